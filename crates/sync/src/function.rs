//! The functions, by name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{CondOp, LockKind};

/// What a function does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Acquires, if it returns zero.
    Acquire(LockKind),
    /// Releases.
    Release(LockKind),
    /// Releases what is held, makes what is not: both functions are the same code.
    ReleaseOrCreate(LockKind),
    /// Makes a lock.
    Create(LockKind),
    /// Ends a lock.
    Destroy(LockKind),
    /// Waits for a condition, without the mutex that is the second argument.
    Wait,
    /// Anything else with a condition variable.
    Cond(CondOp),
    /// Waits at a barrier.
    Barrier,
    /// Makes a barrier.
    CreateBarrier,
    /// Ends a barrier.
    DestroyBarrier,
    /// Waits for the end of a thread.
    Join,
}

impl Operation {
    /// Whether there is something to tell when it returns.
    #[must_use]
    pub fn returns(self) -> bool {
        match self {
            Self::Acquire(_) | Self::Create(_) | Self::Wait | Self::Barrier => true,
            Self::Cond(op) => op == CondOp::Create,
            Self::CreateBarrier | Self::Join | Self::ReleaseOrCreate(_) => true,
            Self::Release(_) | Self::Destroy(_) | Self::DestroyBarrier => false,
        }
    }

    /// What code does that has this function's name and the other's, if it has.
    #[must_use]
    pub fn or(self, other: Option<Self>) -> Self {
        match (self, other) {
            (Release(kind), Some(Create(_))) | (Create(_), Some(Release(kind))) => {
                Self::ReleaseOrCreate(kind)
            }
            (_, Some(both @ Self::ReleaseOrCreate(_))) => both,
            _ => self,
        }
    }
}

use Operation::{Acquire, Create, Destroy, Release};

/// Every function of the C library, by its name in the symbol table. What else it offers calls these.
pub const FUNCTIONS: [(&[u8], Operation); 46] = [
    (b"pthread_mutex_lock", Acquire(LockKind::Mutex)),
    (b"pthread_mutex_trylock", Acquire(LockKind::Mutex)),
    (b"pthread_mutex_timedlock", Acquire(LockKind::Mutex)),
    (b"pthread_mutex_clocklock", Acquire(LockKind::Mutex)),
    (b"pthread_mutex_unlock", Release(LockKind::Mutex)),
    (b"pthread_mutex_init", Create(LockKind::Mutex)),
    (b"pthread_mutex_destroy", Destroy(LockKind::Mutex)),
    (b"pthread_spin_lock", Acquire(LockKind::Spin)),
    (b"pthread_spin_trylock", Acquire(LockKind::Spin)),
    (b"pthread_spin_unlock", Release(LockKind::Spin)),
    (b"pthread_spin_init", Create(LockKind::Spin)),
    (b"pthread_spin_destroy", Destroy(LockKind::Spin)),
    (b"pthread_rwlock_rdlock", Acquire(LockKind::Read)),
    (b"pthread_rwlock_tryrdlock", Acquire(LockKind::Read)),
    (b"pthread_rwlock_timedrdlock", Acquire(LockKind::Read)),
    (b"pthread_rwlock_clockrdlock", Acquire(LockKind::Read)),
    (b"pthread_rwlock_wrlock", Acquire(LockKind::Write)),
    (b"pthread_rwlock_trywrlock", Acquire(LockKind::Write)),
    (b"pthread_rwlock_timedwrlock", Acquire(LockKind::Write)),
    (b"pthread_rwlock_clockwrlock", Acquire(LockKind::Write)),
    (b"pthread_rwlock_unlock", Release(LockKind::Write)),
    (b"pthread_rwlock_init", Create(LockKind::Write)),
    (b"pthread_rwlock_destroy", Destroy(LockKind::Write)),
    (b"sem_wait", Acquire(LockKind::Semaphore)),
    (b"sem_trywait", Acquire(LockKind::Semaphore)),
    (b"sem_timedwait", Acquire(LockKind::Semaphore)),
    (b"sem_clockwait", Acquire(LockKind::Semaphore)),
    (b"sem_post", Release(LockKind::Semaphore)),
    (b"sem_init", Create(LockKind::Semaphore)),
    (b"sem_destroy", Destroy(LockKind::Semaphore)),
    (b"pthread_cond_wait", Operation::Wait),
    (b"pthread_cond_timedwait", Operation::Wait),
    (b"pthread_cond_clockwait", Operation::Wait),
    (b"pthread_cond_signal", Operation::Cond(CondOp::Signal)),
    (b"pthread_cond_broadcast", Operation::Cond(CondOp::Broadcast)),
    (b"pthread_cond_init", Operation::Cond(CondOp::Create)),
    (b"pthread_cond_destroy", Operation::Cond(CondOp::Destroy)),
    (b"pthread_barrier_wait", Operation::Barrier),
    (b"pthread_barrier_init", Operation::CreateBarrier),
    (b"pthread_barrier_destroy", Operation::DestroyBarrier),
    (b"pthread_join", Operation::Join),
    (b"pthread_timedjoin_np", Operation::Join),
    (b"pthread_clockjoin_np", Operation::Join),
    (b"pthread_tryjoin_np", Operation::Join),
    // C's own, which some libraries do not make of the others.
    (b"mtx_lock", Acquire(LockKind::Mutex)),
    (b"mtx_trylock", Acquire(LockKind::Mutex)),
];

/// How an object's address comes to a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// As the argument.
    Plain,
    /// It lies where the argument points to.
    Behind,
}

/// A function as one sees it who cannot look inside libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Function {
    /// Its name in the symbol table.
    pub name: &'static [u8],
    /// What it does.
    pub operation: Operation,
    /// How it gets what it works on: its first argument.
    pub object: Argument,
    /// How it gets the second argument.
    pub second: Argument,
    /// Whether it has no result: then it did what it should.
    pub void: bool,
}

impl Function {
    const fn plain(name: &'static [u8], operation: Operation) -> Self {
        let (object, second) = (Argument::Plain, Argument::Plain);
        Self { name, operation, object, second, void: false }
    }

    const fn void(name: &'static [u8], operation: Operation) -> Self {
        Self { void: true, ..Self::plain(name, operation) }
    }

    /// The function with a name, of [`FUNCTIONS`] and [`WRAPPERS`].
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        let own = FUNCTIONS.iter().find(|(own, _)| *own == name);
        let own = own.map(|(name, operation)| Self::plain(name, *operation));
        own.or_else(|| WRAPPERS.iter().find(|f| f.name == name).copied())
    }
}

/// Functions of the C and the C++ library that call those of [`FUNCTIONS`], for who cannot look inside them. An
/// object of C++ begins with the C library's; a lock of a mutex with the mutex's address.
pub const WRAPPERS: [Function; 16] = [
    Function::plain(b"mtx_timedlock", Acquire(LockKind::Mutex)),
    Function::plain(b"mtx_unlock", Release(LockKind::Mutex)),
    Function::plain(b"mtx_init", Create(LockKind::Mutex)),
    Function::void(b"mtx_destroy", Destroy(LockKind::Mutex)),
    Function::plain(b"cnd_init", Operation::Cond(CondOp::Create)),
    Function::plain(b"cnd_wait", Operation::Wait),
    Function::plain(b"cnd_timedwait", Operation::Wait),
    Function::plain(b"cnd_signal", Operation::Cond(CondOp::Signal)),
    Function::plain(b"cnd_broadcast", Operation::Cond(CondOp::Broadcast)),
    Function::void(b"cnd_destroy", Operation::Cond(CondOp::Destroy)),
    Function::plain(b"thrd_join", Operation::Join),
    Function {
        second: Argument::Behind,
        ..Function::void(
            b"_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE",
            Operation::Wait,
        )
    },
    Function::void(b"_ZNSt18condition_variable10notify_oneEv", Operation::Cond(CondOp::Signal)),
    Function::void(b"_ZNSt18condition_variable10notify_allEv", Operation::Cond(CondOp::Broadcast)),
    Function::void(b"_ZNSt18condition_variableD1Ev", Operation::Cond(CondOp::Destroy)),
    Function {
        object: Argument::Behind,
        ..Function::void(b"_ZNSt6thread4joinEv", Operation::Join)
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_none_is_there_twice() {
        let names = FUNCTIONS.iter().map(|(name, _)| *name);
        let names: Vec<&[u8]> = names.chain(WRAPPERS.iter().map(|f| f.name)).collect();
        for (i, name) in names.iter().enumerate() {
            assert_eq!(Function::named(name).map(|f| f.name), Some(*name));
            assert!(!names[..i].contains(name));
        }
        assert_eq!(Function::named(b"pthread_create"), None);
    }
}
