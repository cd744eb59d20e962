//! One process as the checker sees it: its memory, its code, and how surely
//! both are known at the moment.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::rc::Rc;

use ichnos_base::{GuestVa, Map, ProcessId};

use super::codebook::CodeBook;
use super::rule::{Log, Place, Rule};
use super::space::{AddressSpace, Fit, PAGE_SHIFT};

/// What a process holds. Cheap to copy for a fork.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    pub space: Rc<AddressSpace>,
    pub code: Rc<CodeBook>,
    /// Whether any mapping was ever told.
    pub mapped: bool,
}

/// One process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub now: Holdings,
    /// All rights that memory ever had.
    ever: AddressSpace,
    /// What is true now may depend on a stream that has not been told yet.
    pub unsure: bool,
    /// The first instruction that was executed before any code was told.
    pub before_code: Option<Place>,
    /// Counts changes that make remembered answers wrong.
    pub epoch: u64,
}

impl Process {
    /// A process that begins with what another one had.
    pub fn forked(from: Holdings) -> Self {
        let ever = (*from.space).clone();
        Self { now: from, ever, ..Self::default() }
    }

    /// A process whose parent has not been told yet.
    pub fn orphaned() -> Self {
        Self { unsure: true, ..Self::default() }
    }

    /// Takes what the parent had, told only after the child.
    pub fn inherit_late(&mut self, from: &Holdings) {
        self.ever.widen_by(&from.space);
        self.now.mapped |= from.mapped;
    }

    pub fn map(&mut self, map: &Map<'_>) {
        Rc::make_mut(&mut self.now.space).map(map.start, map.len, map.protection);
        self.ever.widen(map.start, map.len, map.protection);
        self.now.mapped = true;
        self.epoch += 1;
    }

    pub fn unmap(&mut self, start: GuestVa, len: u64) {
        Rc::make_mut(&mut self.now.space).unmap(start, len);
        self.now.mapped = true;
        self.epoch += 1;
    }

    pub fn exec(&mut self) {
        Rc::make_mut(&mut self.now.space).clear_all();
        Rc::make_mut(&mut self.now.code).clear();
        self.before_code = None;
        self.epoch += 1;
    }

    pub fn tell(&mut self, pc: GuestVa, bytes: &[u8]) {
        let first = self.now.code.is_empty();
        let changed = Rc::make_mut(&mut self.now.code).tell(pc, bytes);
        self.epoch += u64::from(first || changed);
    }
}

/// A stretch of memory that an instruction touches, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub addr: GuestVa,
    pub len: u64,
    /// One of these rights is needed.
    pub rights: u8,
}

/// Any right lets a program read: x86-64 has no write-only memory, and memory
/// that may only be executed can be read unless protection keys forbid it.
pub(crate) const TO_LOAD: u8 = 7;
/// The right to store.
pub(crate) const TO_STORE: u8 = 2;
/// The right to execute.
pub(crate) const TO_FETCH: u8 = 4;

impl Touch {
    pub fn rule(&self, fit: Fit) -> Rule {
        match fit {
            _ if self.rights == TO_FETCH => Rule::FetchForbidden,
            Fit::Forbidden(_) => Rule::AccessForbidden,
            _ => Rule::AccessUnmapped,
        }
    }

    pub fn words(&self, fit: Fit) -> (String, String) {
        let (expected, verb) = match self.rights {
            TO_FETCH => ("executable memory", "a fetch"),
            TO_STORE => ("writable memory", "a store"),
            _ => ("mapped memory", "a load"),
        };
        let Self { addr, len, .. } = self;
        let got = match fit {
            Fit::Forbidden(at) => format!("{verb} of {len} bytes at {addr}, forbidden at {at}"),
            Fit::Unmapped(at) => format!("{verb} of {len} bytes at {addr}, unmapped at {at}"),
            Fit::Allowed => format!("{verb} of {len} bytes at {addr}"),
        };
        (expected.into(), got)
    }
}

/// Touches that looked wrong when they came, but may be explained by another
/// thread's mapping told later. One is kept per page and right, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    touches: HashMap<(ProcessId, u64, u8), (Place, Touch)>,
    /// Touches beyond the bound, which nobody checked.
    pub unchecked: u64,
}

/// About 6 MB.
const MOST_DEFERRED: usize = 1 << 16;

impl Deferred {
    pub fn put(&mut self, process: ProcessId, place: Place, touch: Touch) {
        let key = (process, touch.addr.0 >> PAGE_SHIFT, touch.rights);
        if self.touches.len() >= MOST_DEFERRED && !self.touches.contains_key(&key) {
            self.unchecked += 1;
            return;
        }
        self.touches.entry(key).or_insert((place, touch));
    }

    /// Judges all of them by everything that was ever mapped.
    pub fn settle(&mut self, processes: &HashMap<ProcessId, Process>, log: &mut Log) {
        let mut touches: Vec<_> = self.touches.drain().collect();
        touches.sort_by_key(|((process, page, rights), (place, _))| {
            (place.thread, place.insn, *process, *page, *rights)
        });
        for ((process, ..), (place, touch)) in touches {
            let Some(process) = processes.get(&process).filter(|p| p.now.mapped) else { continue };
            let fit = process.ever.fit(touch.addr, touch.len, touch.rights);
            if fit != Fit::Allowed {
                log.note(touch.rule(fit), place, || touch.words(fit));
            }
        }
    }
}
