//! What calls mean.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BarrierPhase, CondOp, LockKind, LockOp};

use crate::Operation;

/// A call of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// What it does.
    pub operation: Operation,
    /// What it works on.
    pub object: u64,
    /// The second argument.
    pub second: u64,
}

/// Something to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// What happened.
    pub what: What,
    /// To what; of a join, the thread's handle.
    pub object: u64,
}

/// What happens to something by which threads synchronise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// To a lock.
    Lock(LockOp, LockKind),
    /// To a condition variable.
    Cond(CondOp),
    /// To a barrier.
    Barrier(BarrierPhase),
    /// A thread's end was waited for.
    Join,
}

/// What a thread holds, as far as it was seen to acquire it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Held(Vec<(u64, LockKind)>);

const EOWNERDEAD: i32 = 130;
const BARRIER_SERIAL_THREAD: i32 = -1;

impl Held {
    /// What a function does to an object that this thread may hold.
    #[must_use]
    pub fn meant(&self, operation: Operation, object: u64) -> Operation {
        match operation {
            Operation::ReleaseOrCreate(kind) if self.0.iter().any(|(held, _)| *held == object) => {
                Operation::Release(kind)
            }
            Operation::ReleaseOrCreate(kind) => Operation::Create(kind),
            operation => operation,
        }
    }

    /// A function is entered: what to tell, in this order. What it does was found out by [`Self::meant`].
    pub fn enter(&mut self, call: &Call) -> [Option<Told>; 2] {
        let object = call.object;
        let one = |what: What| [Some(Told { what, object }), None];
        match call.operation {
            Operation::Acquire(kind) => one(What::Lock(LockOp::Request, kind)),
            Operation::Release(kind) => [self.release(kind, object), None],
            Operation::Destroy(kind) => one(What::Lock(LockOp::Destroy, kind)),
            Operation::Wait => {
                let waits = Told { what: What::Cond(CondOp::Wait), object };
                [Some(waits), self.release(LockKind::Mutex, call.second)]
            }
            Operation::Cond(op @ (CondOp::Signal | CondOp::Broadcast | CondOp::Destroy)) => {
                one(What::Cond(op))
            }
            Operation::Barrier => one(What::Barrier(BarrierPhase::Enter)),
            Operation::DestroyBarrier => one(What::Barrier(BarrierPhase::Destroy)),
            Operation::Create(_)
            | Operation::ReleaseOrCreate(_)
            | Operation::Cond(_)
            | Operation::CreateBarrier
            | Operation::Join => [None, None],
        }
    }

    /// A function has returned with a result: what to tell, in this order.
    pub fn leave(&mut self, call: &Call, result: i32) -> [Option<Told>; 2] {
        let object = call.object;
        let done = result == 0 || result == EOWNERDEAD;
        let one = |what: What| [Some(Told { what, object }), None];
        match call.operation {
            Operation::Acquire(kind) if done => [Some(self.acquire(kind, object)), None],
            Operation::Create(kind) if done => one(What::Lock(LockOp::Create, kind)),
            // The mutex is held again whatever the result.
            Operation::Wait => {
                let wakes = Told { what: What::Cond(CondOp::Wake), object };
                [Some(wakes), Some(self.acquire(LockKind::Mutex, call.second))]
            }
            Operation::Cond(CondOp::Create) if done => one(What::Cond(CondOp::Create)),
            Operation::Barrier if done || result == BARRIER_SERIAL_THREAD => {
                one(What::Barrier(BarrierPhase::Leave))
            }
            Operation::CreateBarrier if done => one(What::Barrier(BarrierPhase::Create)),
            Operation::Join if done => one(What::Join),
            _ => [None, None],
        }
    }

    fn acquire(&mut self, kind: LockKind, object: u64) -> Told {
        if kind != LockKind::Semaphore {
            self.0.push((object, kind));
        }
        Told { what: What::Lock(LockOp::Acquire, kind), object }
    }

    /// Semaphores have no holder; of locks, what was not seen to be acquired is not told. A read-write lock was
    /// held in one of two ways, which its release does not say.
    fn release(&mut self, kind: LockKind, object: u64) -> Option<Told> {
        let told = |kind| Told { what: What::Lock(LockOp::Release, kind), object };
        if kind == LockKind::Semaphore {
            return Some(told(kind));
        }
        let at = self.0.iter().rposition(|&(addr, _)| addr == object)?;
        Some(told(self.0.remove(at).1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn call(operation: Operation) -> Call {
        Call { operation, object: 64, second: 128 }
    }

    fn lock(op: LockOp, kind: LockKind, object: u64) -> Option<Told> {
        Some(Told { what: What::Lock(op, kind), object })
    }

    #[test]
    fn only_what_was_acquired_is_released() {
        let mut held = Held::default();
        let unlock = call(Operation::Release(LockKind::Write));
        assert_eq!(held.enter(&unlock), [None, None]);
        let read = call(Operation::Acquire(LockKind::Read));
        assert_eq!(held.enter(&read), [lock(LockOp::Request, LockKind::Read, 64), None]);
        assert_eq!(held.leave(&read, 16), [None, None]);
        assert_eq!(held.enter(&unlock), [None, None]);
        assert_eq!(held.leave(&read, 0), [lock(LockOp::Acquire, LockKind::Read, 64), None]);
        assert_eq!(held.enter(&unlock), [lock(LockOp::Release, LockKind::Read, 64), None]);
        assert_eq!(held.enter(&unlock), [None, None]);
        let post = call(Operation::Release(LockKind::Semaphore));
        assert_eq!(held.enter(&post), [lock(LockOp::Release, LockKind::Semaphore, 64), None]);
    }

    #[test]
    fn code_with_two_names_does_what_can_be_meant() {
        let both = Operation::Create(LockKind::Spin).or(Some(Operation::Release(LockKind::Spin)));
        assert_eq!(Operation::Join.or(None), Operation::Join);
        let mut held = Held::default();
        let made = held.meant(both, 64);
        assert_eq!(held.enter(&call(made)), [None, None]);
        let created = lock(LockOp::Create, LockKind::Spin, 64);
        assert_eq!(held.leave(&call(made), 0), [created, None]);
        held.leave(&call(Operation::Acquire(LockKind::Spin)), 0);
        let released = lock(LockOp::Release, LockKind::Spin, 64);
        let unlocks = held.meant(both, 64);
        assert_eq!(held.enter(&call(unlocks)), [released, None]);
        assert_eq!(held.meant(both, 64), made);
    }

    #[test]
    fn waiting_gives_the_mutex_back_and_takes_it_again() {
        let mut held = Held::default();
        let own = Call { object: 128, ..call(Operation::Acquire(LockKind::Mutex)) };
        assert!(held.leave(&own, EOWNERDEAD)[0].is_some());
        let wait = call(Operation::Wait);
        let cond = |op| Some(Told { what: What::Cond(op), object: 64 });
        let released = lock(LockOp::Release, LockKind::Mutex, 128);
        assert_eq!(held.enter(&wait), [cond(CondOp::Wait), released]);
        let acquired = lock(LockOp::Acquire, LockKind::Mutex, 128);
        assert_eq!(held.leave(&wait, 110), [cond(CondOp::Wake), acquired]);
        assert_eq!(held.enter(&wait), [cond(CondOp::Wait), released]);
    }

    #[test]
    fn results_say_whether_it_was_done() {
        let mut held = Held::default();
        let left = Some(Told { what: What::Barrier(BarrierPhase::Leave), object: 64 });
        for (result, told) in [(0, left), (-1, left), (22, None)] {
            assert_eq!(held.leave(&call(Operation::Barrier), result), [told, None]);
        }
        let joined = Some(Told { what: What::Join, object: 64 });
        for (result, told) in [(0, joined), (16, None)] {
            assert_eq!(held.leave(&call(Operation::Join), result), [told, None]);
        }
    }
}
