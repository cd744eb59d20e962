//! The functions of libc that are watched, by name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{CondOp, LockKind};

/// What a function does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Acquires, if it returns zero.
    Acquire(LockKind),
    /// Releases.
    Release(LockKind),
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
    pub fn returns(self) -> bool {
        match self {
            Self::Acquire(_) | Self::Create(_) | Self::Wait | Self::Barrier => true,
            Self::Cond(op) => op == CondOp::Create,
            Self::CreateBarrier | Self::Join => true,
            Self::Release(_) | Self::Destroy(_) | Self::DestroyBarrier => false,
        }
    }
}

use Operation::{Acquire, Create, Destroy, Release};

/// Every function, by its name in libc's symbol table.
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
    // What C's own threads are made of.
    (b"mtx_lock", Acquire(LockKind::Mutex)),
    (b"mtx_unlock", Release(LockKind::Mutex)),
];
