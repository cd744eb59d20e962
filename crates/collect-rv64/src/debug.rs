//! Where a debugger wants machines to stop, and the observer that notices.
//!
//! Invariant: a stop falls between two instructions and changes nothing that the
//! guest can see. A machine that stops keeps the place in its schedule and goes
//! on from there, so a debugged run is the undisturbed run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};

use crate::observe::Observer;

/// What a watchpoint waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WatchFor {
    Loads,
    Stores,
    Both,
}

/// Memory that a debugger watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watch {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) what: WatchFor,
}

impl Watch {
    const fn covers(&self, addr: u64, size: u32) -> bool {
        // Distances, so that ranges at the end of the address space work.
        addr.wrapping_sub(self.start) < self.len || self.start.wrapping_sub(addr) < size as u64
    }
}

/// Why a machine stopped for its debugger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// A thread is about to execute an instruction with a breakpoint.
    Breakpoint { thread: usize },
    /// A thread has touched watched memory.
    Watched { thread: usize, watch: Watch },
    /// The thread that was to make one step has done so.
    Stepped { thread: usize },
}

/// Words of the filter in front of the list of breakpoints.
const FILTER: usize = 64;

/// Notices breakpoints ahead and watched accesses.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Sorted.
    breakpoints: Vec<u64>,
    /// A bit for each breakpoint's address, so that most need no search.
    filter: [u64; FILTER],
    watches: Vec<Watch>,
    hit: Option<Watch>,
    next: u64,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            breakpoints: Vec::new(),
            filter: [0; FILTER],
            watches: Vec::new(),
            hit: None,
            next: 0,
        }
    }
}

impl Probe {
    fn is_armed(&self) -> bool {
        !self.breakpoints.is_empty() || !self.watches.is_empty()
    }

    #[inline]
    fn breaks_at(&self, pc: u64) -> bool {
        let bit = (pc >> 1) as usize;
        self.filter[bit / 64 % FILTER] >> (bit % 64) & 1 != 0
            && self.breakpoints.binary_search(&pc).is_ok()
    }

    fn make_filter(&mut self) {
        self.filter = [0; FILTER];
        for &pc in &self.breakpoints {
            let bit = (pc >> 1) as usize;
            self.filter[bit / 64 % FILTER] |= 1 << (bit % 64);
        }
    }

    #[inline]
    fn access(&mut self, addr: GuestVa, size: u32, not: WatchFor) {
        if self.hit.is_none() {
            self.hit =
                self.watches.iter().copied().find(|w| w.what != not && w.covers(addr.0, size));
        }
    }
}

/// A debugger's wishes for one machine.
#[derive(Debug, Default)]
pub(crate) struct Debug {
    probe: Probe,
    /// The thread that stops after its next instruction.
    step: Option<usize>,
    /// A thread that stopped at a breakpoint and shall now pass it.
    over: Option<(usize, u64)>,
    pause: Option<Pause>,
}

impl Debug {
    /// The observer, if there is anything to look out for.
    pub(crate) fn probe(&mut self) -> Option<&mut Probe> {
        self.probe.is_armed().then_some(&mut self.probe)
    }

    pub(crate) fn set_breakpoint(&mut self, pc: GuestVa) {
        if let Err(at) = self.probe.breakpoints.binary_search(&pc.0) {
            self.probe.breakpoints.insert(at, pc.0);
        }
        self.probe.make_filter();
    }

    /// False if there was none.
    pub(crate) fn clear_breakpoint(&mut self, pc: GuestVa) -> bool {
        let found = self.probe.breakpoints.binary_search(&pc.0);
        let gone = found.map(|at| self.probe.breakpoints.remove(at)).is_ok();
        self.probe.make_filter();
        gone
    }

    pub(crate) fn set_watch(&mut self, watch: Watch) {
        self.probe.watches.push(watch);
    }

    /// False if there was none.
    pub(crate) fn clear_watch(&mut self, watch: Watch) -> bool {
        let found = self.probe.watches.iter().position(|w| *w == watch);
        found.map(|at| self.probe.watches.remove(at)).is_some()
    }

    /// Lets the machine go on, one thread perhaps for a single instruction.
    pub(crate) fn go_on(&mut self, step: Option<usize>) {
        self.step = step;
        self.pause = None;
    }

    /// Why the machine stopped, if it did.
    pub(crate) fn pause(&self) -> Option<Pause> {
        self.pause
    }

    /// How many instructions of at most `limit` a thread may run at once.
    pub(crate) fn stride(&self, thread: usize, limit: u64) -> u64 {
        if self.step == Some(thread) { limit.min(1) } else { limit }
    }

    /// A thread is about to run on from `pc`. True if it must not.
    pub(crate) fn stops_before(&mut self, thread: usize, pc: u64) -> bool {
        let passes = self.over.take() == Some((thread, pc));
        if passes || !self.probe.breaks_at(pc) {
            return false;
        }
        self.over = Some((thread, pc));
        self.pause = Some(Pause::Breakpoint { thread });
        true
    }

    /// A thread has run and retired or trapped at least one instruction. True if
    /// the machine must stop.
    pub(crate) fn stops_after(&mut self, thread: usize) -> bool {
        if let Some(watch) = self.probe.hit.take() {
            self.pause = Some(Pause::Watched { thread, watch });
        } else if self.step == Some(thread) {
            self.pause = Some(Pause::Stepped { thread });
        }
        self.pause.is_some()
    }
}

impl Observer for Probe {
    type Data = ();
    type Rest = ();

    fn data(&self) {}
    fn rest(&self) {}

    #[inline]
    fn insn(&mut self, pc: GuestVa, len: u8, _: InsnKind) {
        self.next = pc.0.wrapping_add(len.into());
    }

    #[inline]
    fn load(&mut self, addr: GuestVa, size: u32, _: AccessFlags, _: u64) {
        self.access(addr, size, WatchFor::Stores);
    }

    #[inline]
    fn store(&mut self, addr: GuestVa, size: u32, _: AccessFlags, _: u64) {
        self.access(addr, size, WatchFor::Loads);
    }

    fn zero(&mut self, addr: GuestVa, size: u32) {
        self.access(addr, size, WatchFor::Loads);
    }

    fn flush(&mut self, _: GuestVa, _: u32) {}

    #[inline]
    fn branch(&mut self, taken: bool, target: GuestVa) {
        if taken {
            self.next = target.0;
        }
    }

    fn abandon(&mut self) {
        self.hit = None;
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.hit.is_some() || self.breaks_at(self.next)
    }
}

/// Two observers as one.
pub(crate) struct Both<'a, A, B>(pub(crate) &'a mut A, pub(crate) &'a mut B);

impl<A: Observer, B: Observer> Observer for Both<'_, A, B> {
    type Data = ();
    type Rest = ();

    const BLIND: bool = A::BLIND && B::BLIND;

    fn data(&self) {}
    fn rest(&self) {}

    #[inline]
    fn insn(&mut self, pc: GuestVa, len: u8, kind: InsnKind) {
        self.0.insn(pc, len, kind);
        self.1.insn(pc, len, kind);
    }

    #[inline]
    fn load(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, value: u64) {
        self.0.load(addr, size, flags, value);
        self.1.load(addr, size, flags, value);
    }

    #[inline]
    fn store(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, value: u64) {
        self.0.store(addr, size, flags, value);
        self.1.store(addr, size, flags, value);
    }

    fn zero(&mut self, addr: GuestVa, size: u32) {
        self.0.zero(addr, size);
        self.1.zero(addr, size);
    }

    fn flush(&mut self, addr: GuestVa, size: u32) {
        self.0.flush(addr, size);
        self.1.flush(addr, size);
    }

    #[inline]
    fn branch(&mut self, taken: bool, target: GuestVa) {
        self.0.branch(taken, target);
        self.1.branch(taken, target);
    }

    fn abandon(&mut self) {
        self.0.abandon();
        self.1.abandon();
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.0.is_full() || self.1.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breakpoint_stops_once_and_is_then_passed() {
        let mut debug = Debug::default();
        debug.set_breakpoint(GuestVa(0x1000));
        assert!(!debug.stops_before(0, 0x1002));
        assert!(debug.stops_before(0, 0x1000));
        assert_eq!(debug.pause(), Some(Pause::Breakpoint { thread: 0 }));
        debug.go_on(None);
        assert!(!debug.stops_before(0, 0x1000));
        assert!(debug.stops_before(0, 0x1000), "a loop comes by again");
        debug.go_on(None);
        assert!(debug.stops_before(1, 0x1000), "another thread has not stopped there yet");
        assert!(debug.clear_breakpoint(GuestVa(0x1000)));
        assert!(!debug.clear_breakpoint(GuestVa(0x1000)));
        debug.go_on(None);
        assert!(!debug.stops_before(2, 0x1000));
    }

    #[test]
    fn watches_see_what_they_wait_for() {
        let mut debug = Debug::default();
        let watch = Watch { start: 0x2004, len: 4, what: WatchFor::Stores };
        debug.set_watch(watch);
        let probe = debug.probe().expect("there is something to watch");
        probe.insn(GuestVa(0), 4, InsnKind::OTHER);
        probe.load(GuestVa(0x2004), 4, AccessFlags::NONE, 0);
        probe.store(GuestVa(0x2000), 4, AccessFlags::NONE, 0);
        probe.store(GuestVa(0x2008), 8, AccessFlags::NONE, 0);
        assert!(!probe.is_full());
        probe.store(GuestVa(0x2000), 8, AccessFlags::NONE, 0);
        assert!(probe.is_full());
        probe.abandon();
        assert!(!probe.is_full(), "an instruction that traps has stored nothing");
        probe.store(GuestVa(0x2007), 1, AccessFlags::NONE, 0);
        assert!(debug.stops_after(3));
        assert_eq!(debug.pause(), Some(Pause::Watched { thread: 3, watch }));
        assert!(debug.clear_watch(watch) && debug.probe().is_none());
    }
}
