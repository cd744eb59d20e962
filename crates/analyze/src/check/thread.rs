//! One thread's records against the rules: the checker's hot loop.
//!
//! Look-aside tables keep the loop short. `known_insns` holds instructions
//! whose length, memory and code were found good; `known_pages` holds what may
//! be done with whole pages, and `known_regions` what was last found when that
//! did not help. All are emptied when the process's epoch moves, which happens
//! only between batches.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::Rc;

use ichnos_base::{
    AccessFlags, Batch, GuestVa, InsnKind, Isa, ProcessId, Record, ThreadId, ThreadStart, Totals,
};

use super::codebook::Entry;
use super::pairs::Pairs;
use super::process::{Deferred, Process, TO_FETCH, TO_LOAD, TO_STORE, Touch};
use super::rule::{Log, Place, Rule};
use super::space::{Fit, Known, PAGE_SHIFT};

const INSNS: usize = 4096;
const PAGES: usize = 1024;
const REGIONS: usize = 4;
const PAGE_MASK: u64 = (1 << PAGE_SHIFT) - 1;
/// The kernel's page of emulated system calls, which no mapping list shows as
/// what it is.
const VSYSCALL_PAGE: u64 = 0xffff_ffff_ff60_0000 >> PAGE_SHIFT;

/// What the trace promised about itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promise {
    pub isa: Isa,
    pub branches: bool,
    pub values: bool,
}

/// Everything outside the thread that its records are held against.
pub(crate) struct Desk<'a> {
    pub promise: Promise,
    pub process: &'a mut Process,
    pub deferred: &'a mut Deferred,
    pub log: &'a mut Log,
}

/// One thread's place and past.
#[derive(Debug)]
pub(crate) struct Thread {
    pub id: ThreadId,
    pub process: ProcessId,
    pub start: Option<ThreadStart>,
    pub ended: bool,
    /// Whether anything but the start has come.
    pub fresh: bool,
    /// Whether something is missing from the stream.
    pub torn: bool,
    pub pairs: Pairs,
    pub totals: Totals,
    /// Instructions that lie before the present place.
    pub insns: u64,
    /// Where the next instruction must lie, if that is known.
    pub next: Option<GuestVa>,
    /// The instruction whose accesses and branch may follow.
    pub current: Option<Current>,
    /// The flags of its last load or store.
    pub last_flags: AccessFlags,
    epoch: u64,
    known_insns: Box<[(u64, u32); INSNS]>,
    known_pages: Box<[u64; PAGES]>,
    known_regions: [Known; REGIONS],
    /// The region to be forgotten next.
    oldest: usize,
}

/// The instruction at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub pc: GuestVa,
    pub kind: InsnKind,
    /// How many branch records must still come.
    pub branches_due: u8,
    branched: bool,
    /// Whether it may be found again at its own address: a string instruction
    /// interrupted between two of its turns, or a system call to be repeated.
    pub again: bool,
}

impl Thread {
    pub fn new(id: ThreadId) -> Self {
        Self {
            id,
            process: ProcessId(0),
            start: None,
            ended: false,
            fresh: true,
            torn: false,
            pairs: Pairs::default(),
            totals: Totals::default(),
            insns: 0,
            next: None,
            current: None,
            last_flags: AccessFlags::NONE,
            epoch: u64::MAX,
            known_insns: Box::new([(0, 0); INSNS]),
            known_pages: Box::new([0; PAGES]),
            known_regions: [Known::NOTHING; REGIONS],
            oldest: 0,
        }
    }

    /// The present place, for a complaint.
    pub fn place(&self) -> Place {
        let pc = self.current.map(|c| c.pc);
        let insn = if pc.is_some() { self.insns.saturating_sub(1) } else { self.insns };
        Place { thread: self.id, insn, pc }
    }

    /// Something is missing: whatever comes next is right.
    pub fn tear(&mut self) {
        self.torn = true;
        self.next = None;
        self.current = None;
        self.pairs.tear();
    }

    /// Takes a batch.
    pub fn records(&mut self, batch: &Batch<'_>, desk: &mut Desk<'_>) {
        if self.epoch != desk.process.epoch {
            self.epoch = desk.process.epoch;
            self.known_insns.fill((0, 0));
            self.known_pages.fill(0);
            self.known_regions = [Known::NOTHING; REGIONS];
        }
        for record in batch.records {
            self.totals.count(record);
            match *record {
                Record::Insn { len, kind, pc } => self.insn(pc, len, kind, desk),
                Record::Load { size, addr, flags } => {
                    self.last_flags = flags;
                    self.access(addr, size, TO_LOAD, desk);
                }
                Record::Store { size, addr, flags } => {
                    self.last_flags = flags;
                    self.access(addr, size, TO_STORE, desk);
                }
                Record::Branch { taken, target } => self.branch(taken, target, desk),
                Record::Prefetch { .. } | Record::Flush { .. } => self.hint(desk),
            }
        }
    }

    #[inline(always)]
    fn insn(&mut self, pc: GuestVa, len: u8, kind: InsnKind, desk: &mut Desk<'_>) {
        if let Some(current) = self.current
            && current.branches_due != 0
        {
            self.branch_missing(current, desk);
        }
        if let Some(next) = self.next
            && next != pc
            && !self.current.is_some_and(|c| c.again && c.pc == pc)
        {
            self.flow_broken(next, pc, desk);
        }
        self.insns = self.insns.wrapping_add(1);
        self.last_flags = AccessFlags::NONE;
        let branches_due = u8::from(kind.transfers() & desk.promise.branches);
        self.current = Some(Current { pc, kind, branches_due, branched: false, again: false });
        self.next = desk.promise.branches.then_some(pc.offset(len.into()));
        let meta = u32::from(len) | u32::from(kind.0) << 8 | 1 << 16;
        if self.known_insns[slot_of(pc)] != (pc.0, meta) {
            self.learn_insn(pc, len, kind, desk);
        }
    }

    #[inline(always)]
    fn access(&mut self, addr: GuestVa, size: u32, rights: u8, desk: &mut Desk<'_>) {
        if self.current.is_none_or(|c| c.branched) {
            self.misplaced("access", desk);
        }
        let page = addr.0 >> PAGE_SHIFT;
        let known = self.known_pages[page as usize % PAGES];
        let inside = (addr.0 & PAGE_MASK) + u64::from(size) <= PAGE_MASK + 1;
        if known >> 8 != page || known as u8 & rights == 0 || !inside || size == 0 {
            self.learn_access(addr, size, rights, desk);
        }
    }

    #[inline(always)]
    fn branch(&mut self, taken: bool, target: GuestVa, desk: &mut Desk<'_>) {
        match &mut self.current {
            Some(current) if current.branches_due != 0 => {
                current.branches_due = 0;
                current.branched = true;
                if taken {
                    self.next = Some(target);
                } else if current.kind != InsnKind::BRANCH {
                    self.untaken(desk);
                }
            }
            _ => self.branch_unexpected(target, desk),
        }
    }

    #[inline(always)]
    fn hint(&mut self, desk: &mut Desk<'_>) {
        if self.current.is_none_or(|c| c.branched) {
            self.misplaced("prefetch or flush", desk);
        }
    }

    #[cold]
    fn learn_insn(&mut self, pc: GuestVa, len: u8, kind: InsnKind, desk: &mut Desk<'_>) {
        let length = self.length_fits(len, desk);
        let fetch = pc.0 >> PAGE_SHIFT == VSYSCALL_PAGE
            || self.touch(Touch { addr: pc, len: len.into(), rights: TO_FETCH }, desk);
        if length && fetch && self.code_fits(pc, len, kind, desk) {
            let meta = u32::from(len) | u32::from(kind.0) << 8 | 1 << 16;
            self.known_insns[slot_of(pc)] = (pc.0, meta);
        }
    }

    fn length_fits(&self, len: u8, desk: &mut Desk<'_>) -> bool {
        let (fits, expected) = match desk.promise.isa {
            Isa::X86_64 => ((1..=15).contains(&len), "1 to 15 bytes"),
            Isa::RV64 => (len == 2 || len == 4, "2 or 4 bytes"),
            _ => (true, ""),
        };
        if !fits {
            let say = || (expected.into(), format!("{len} bytes"));
            desk.log.note(Rule::InsnLength, self.place(), say);
        }
        fits
    }

    fn code_fits(&self, pc: GuestVa, len: u8, kind: InsnKind, desk: &mut Desk<'_>) -> bool {
        if desk.process.now.code.is_empty() {
            desk.process.before_code.get_or_insert(self.place());
            return true;
        }
        let entry = Rc::make_mut(&mut desk.process.now.code).execute(pc, len, kind);
        let place = self.place();
        match entry {
            Entry::Agrees => return true,
            // A child told before its parent has code that nobody told yet.
            Entry::Untold(_) if desk.process.unsure => return true,
            Entry::Untold(at) => desk.log.note(Rule::CodeUntold, place, || {
                ("code told before it is executed".into(), format!("nothing told at {at}"))
            }),
            Entry::Differs { len: had, kind: was } => {
                desk.log.note(Rule::CodeDiffers, place, || {
                    let expected = format!("{had} bytes, {}, as before", kind_name(was));
                    (expected, format!("{len} bytes, {}", kind_name(kind)))
                })
            }
        }
        false
    }

    #[cold]
    fn learn_access(&mut self, addr: GuestVa, size: u32, rights: u8, desk: &mut Desk<'_>) {
        if size == 0 {
            if desk.promise.isa != Isa::UNKNOWN {
                let say = || ("at least one byte".into(), format!("0 bytes at {addr}"));
                desk.log.note(Rule::AccessSize, self.place(), say);
            }
            return;
        }
        let page = addr.0 >> PAGE_SHIFT;
        if page == VSYSCALL_PAGE {
            return;
        }
        self.touch(Touch { addr, len: size.into(), rights }, desk);
        let rights = match self.known_regions.iter().find(|known| known.holds_page(page)) {
            Some(known) => known.rights,
            // One touch of each sort was put by for the page; that is enough.
            None if desk.process.unsure => rights & TO_STORE | 1,
            None if !desk.process.now.mapped => TO_LOAD,
            None => return,
        };
        self.known_pages[page as usize % PAGES] = page << 8 | u64::from(rights);
    }

    /// Whether a touch is right, or cannot be judged yet.
    fn touch(&mut self, touch: Touch, desk: &mut Desk<'_>) -> bool {
        let allows = |known: &Known| known.allows(touch.addr.0, touch.len, touch.rights);
        if self.known_regions.iter().any(allows) {
            return true;
        }
        if !desk.process.now.mapped && !desk.process.unsure {
            return true;
        }
        if let Some(known) = desk.process.now.space.region(touch.addr) {
            self.known_regions[self.oldest] = known;
            self.oldest = (self.oldest + 1) % REGIONS;
            if allows(&known) {
                return true;
            }
        }
        let fit = desk.process.now.space.fit(touch.addr, touch.len, touch.rights);
        if fit == Fit::Allowed {
            return true;
        }
        if desk.process.unsure {
            desk.deferred.put(self.process, self.place(), touch);
            return true;
        }
        desk.log.note(touch.rule(fit), self.place(), || touch.words(fit));
        false
    }

    #[cold]
    fn branch_missing(&self, current: Current, desk: &mut Desk<'_>) {
        desk.log.note(Rule::BranchMissing, self.place(), || {
            (format!("a branch record after a {}", kind_name(current.kind)), "none".into())
        });
    }

    #[cold]
    fn branch_unexpected(&self, target: GuestVa, desk: &mut Desk<'_>) {
        desk.log.note(Rule::BranchUnexpected, self.place(), || {
            let expected = match self.current {
                Some(c) if c.branched => "one branch record".into(),
                Some(c) => format!("no branch record after {}", kind_name(c.kind)),
                None => "an instruction first".into(),
            };
            (expected, format!("a branch record to {target}"))
        });
    }

    #[cold]
    fn untaken(&self, desk: &mut Desk<'_>) {
        let kind = self.current.map_or(InsnKind::OTHER, |c| c.kind);
        desk.log.note(Rule::BranchUntaken, self.place(), || {
            (format!("{} to be taken", kind_name(kind)), "not taken".into())
        });
    }

    #[cold]
    fn misplaced(&self, what: &str, desk: &mut Desk<'_>) {
        desk.log.note(Rule::AccessPlace, self.place(), || match self.current {
            Some(_) => ("accesses before the branch record".into(), format!("{what} after it")),
            None => ("an instruction first".into(), format!("{what} without one")),
        });
    }

    #[cold]
    fn flow_broken(&self, next: GuestVa, pc: GuestVa, desk: &mut Desk<'_>) {
        let place = Place { thread: self.id, insn: self.insns, pc: Some(pc) };
        desk.log.note(Rule::Flow, place, || {
            let after = match self.current {
                Some(c) => format!("{next} after {} at {}", kind_name(c.kind), c.pc),
                None => next.to_string(),
            };
            (after, pc.to_string())
        });
    }
}

/// Spreads instructions over the table; their low bits alone would crowd it,
/// because hot code is often aligned.
#[inline(always)]
const fn slot_of(pc: GuestVa) -> usize {
    (pc.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % INSNS
}

pub(crate) fn kind_name(kind: InsnKind) -> String {
    kind.name().map_or_else(|| format!("kind {}", kind.0), Into::into)
}
