//! Calls of watched functions that have not returned.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_sync::{Call, Held};

/// What a thread has begun.
#[derive(Default)]
pub struct Begun {
    calls: Vec<Pending>,
    pub(super) held: Held,
    /// The function that was entered last.
    pub(super) last: Option<Entered>,
    /// One that was told and did not begin, because a signal came.
    pub(super) ahead: Option<Entered>,
}

/// A function at its entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entered {
    pub(super) pc: u64,
    pub(super) sp: u64,
}

/// A call of a watched function that has not returned.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) entered: Entered,
    /// Where it returns to.
    pub(super) back: u64,
}

impl Pending {
    /// Whether a call that begins is part of this one: a function that calls another to do its work, or ends with a jump to
    /// it.
    fn contains(&self, call: &Call, at: Entered) -> bool {
        let same = self.call.operation == call.operation && self.call.object == call.object;
        let Entered { pc, sp } = self.entered;
        same && (sp > at.sp || sp == at.sp && pc != at.pc)
    }
}

impl Begun {
    /// A call begins; whether it is to be told. One that is part of another takes its place.
    pub(super) fn begin(&mut self, pending: Pending) -> bool {
        let Pending { call, entered, .. } = pending;
        let outer = self.calls.iter().rposition(|c| c.contains(&call, entered));
        if let Some(at) = outer {
            self.calls.truncate(at);
        }
        // Whatever else was begun with no more on the stack than now was left by a jump.
        self.calls.retain(|c| c.entered.sp > entered.sp);
        if call.operation.returns() {
            self.calls.push(pending);
        }
        outer.is_none()
    }

    /// The call that has returned to an address with this stack pointer.
    pub(super) fn end(&mut self, pc: u64, sp: u64) -> Option<Pending> {
        // What a long jump has left behind does not return any more.
        self.calls.retain(|c| c.entered.sp >= sp.saturating_sub(8));
        let at = self.calls.iter().rposition(|c| c.back == pc && c.entered.sp + 8 == sp)?;
        Some(self.calls.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use ichnos_base::LockKind;
    use ichnos_sync::Operation;

    use super::*;

    const LOCK: u64 = 0x1000;
    const WRAPPER: u64 = 0x2000;

    fn lock(pc: u64, sp: u64, object: u64, back: u64) -> Pending {
        let call = Call { operation: Operation::Acquire(LockKind::Mutex), object, second: 0 };
        Pending { call, entered: Entered { pc, sp }, back }
    }

    fn object(pending: Option<Pending>) -> Option<u64> {
        pending.map(|p| p.call.object)
    }

    #[test]
    fn calls_return_to_where_they_were_made() {
        let mut begun = Begun::default();
        assert!(begun.begin(lock(LOCK, 800, 1, 5)));
        assert_eq!(object(begun.end(6, 808)), None);
        assert_eq!(object(begun.end(5, 800)), None);
        // A handler locks something else meanwhile.
        assert!(begun.begin(lock(LOCK, 400, 2, 5)));
        assert_eq!(object(begun.end(5, 408)), Some(2));
        assert_eq!(object(begun.end(5, 808)), Some(1));
        assert_eq!(object(begun.end(5, 808)), None);
    }

    #[test]
    fn calls_that_were_left_by_a_jump_do_not_return() {
        let mut begun = Begun::default();
        assert!(begun.begin(lock(LOCK, 800, 16, 5)));
        assert!(begun.begin(lock(LOCK, 800, 1, 5)));
        assert_eq!(object(begun.end(5, 808)), Some(1));
        assert_eq!(object(begun.end(5, 808)), None);
        // The same again is told again.
        assert!(begun.begin(lock(LOCK, 800, 16, 5)));
        assert!(begun.begin(lock(LOCK, 800, 16, 5)));
        assert_eq!(object(begun.end(5, 808)), Some(16));
        assert_eq!(object(begun.end(5, 808)), None);
    }

    #[test]
    fn what_is_part_of_another_call_is_told_once() {
        let mut begun = Begun::default();
        assert!(begun.begin(lock(WRAPPER, 800, 1, 5)));
        assert!(!begun.begin(lock(LOCK, 784, 1, 7)));
        assert_eq!(object(begun.end(7, 792)), Some(1));
        assert_eq!(object(begun.end(5, 808)), None);
        // By a jump.
        assert!(begun.begin(lock(WRAPPER, 800, 1, 5)));
        assert!(!begun.begin(lock(LOCK, 800, 1, 5)));
        assert_eq!(object(begun.end(5, 808)), Some(1));
        assert_eq!(object(begun.end(5, 808)), None);
    }
}
