//! Executions to records. A plain block is its template with the words
//! written into it; a planned one that is laid out (`ways`) is its template as far as it went, with the addresses that its
//! operations come to. Any other is walked step by step over the shadow registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, GuestVa, Record, Totals};
use ichnos_trace::flat::Execution;
use ichnos_trace::{Address, Burst, Entry, Exits, Leave, Loose, Run, Step};

use crate::machine::Machine;
use crate::ways::{End, Way, Ways};

/// Records in the making, and what they count.
#[derive(Debug)]
pub(crate) struct Expander {
    pub(crate) records: Vec<Record>,
    pub(crate) totals: Totals,
    pub(crate) machine: Machine,
    /// The addresses of an execution; kept for its memory.
    addresses: Vec<u64>,
}

/// What is left of a burst's words and runs.
#[derive(Debug)]
pub(crate) struct Rest<'a> {
    words: &'a [u64],
    flexes: &'a [u32],
    runs: &'a [Run],
}

impl<'a> Rest<'a> {
    pub(crate) fn new(burst: &'a Burst) -> Self {
        Self { words: &burst.words, flexes: &burst.flexes, runs: &burst.runs }
    }

    /// What an execution of a block takes, whether it goes as far as that or not.
    fn split(&mut self, entry: &Entry) -> Result<Self, &'static str> {
        let lacking = "a block lacks accesses";
        let words = self.words.split_at_checked(entry.shape.words.len());
        let (words, later_words) = words.ok_or("a block lacks words")?;
        let flexes = self.flexes.split_at_checked(entry.shape.flexes as usize);
        let (flexes, later_flexes) = flexes.ok_or(lacking)?;
        let count = flexes.iter().map(|count| *count as usize).sum();
        let (runs, later_runs) = self.runs.split_at_checked(count).ok_or(lacking)?;
        *self = Self { words: later_words, flexes: later_flexes, runs: later_runs };
        Ok(Self { words, flexes, runs })
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*word)
    }

    /// The accesses of a flexible step.
    fn accesses(&mut self) -> Option<&'a [Run]> {
        let (count, flexes) = self.flexes.split_first()?;
        let (accesses, runs) = self.runs.split_at_checked(*count as usize)?;
        (self.flexes, self.runs) = (flexes, runs);
        Some(accesses)
    }
}

/// How many accesses of a run are made at a time, so that a long one does not
/// fill the memory.
pub(crate) const PIECE: u32 = 2048;

impl Expander {
    pub(crate) fn new() -> Self {
        Self {
            records: Vec::new(),
            totals: Totals::default(),
            machine: Machine::new(),
            addresses: Vec::new(),
        }
    }

    /// A chunk begins.
    pub(crate) fn start(&mut self) {
        self.records.clear();
        self.totals = Totals::default();
        self.machine = Machine::new();
    }

    /// Appends the records of a plain block; false if the burst lacks words.
    #[inline]
    pub(crate) fn plain(&mut self, entry: &Entry, rest: &mut Rest<'_>, leave: Leave) -> bool {
        let shape = &entry.shape;
        let start = self.records.len();
        let Some((words, later)) = rest.words.split_at_checked(shape.words.len()) else {
            return false;
        };
        rest.words = later;
        self.records.extend_from_slice(&shape.template);
        let made = &mut self.records[start..];
        for (word, place) in words.iter().zip(shape.words.iter()) {
            if let Some(record) = made.get_mut(place.record as usize) {
                set_address(record, *word);
            }
        }
        shape.tally.add_to(&mut self.totals);
        if let Some((kind, target)) = shape.last_exit {
            self.finish_exit(leave.outcome(kind, target));
        }
        true
    }

    /// Counts a plain block without its records; false if the burst lacks words.
    #[inline]
    pub(crate) fn count(&mut self, entry: &Entry, rest: &mut Rest<'_>, leave: Leave) -> bool {
        let shape = &entry.shape;
        let Some((_, later)) = rest.words.split_at_checked(shape.words.len()) else {
            return false;
        };
        rest.words = later;
        let mut tally = shape.tally;
        if let Some((kind, target)) = shape.last_exit {
            match leave.outcome(kind, target) {
                Some((true, _)) => {}
                Some(_) => tally.falls_through(),
                None => tally.ends_unseen(),
            }
        }
        tally.add_to(&mut self.totals);
        true
    }

    /// The template says taken; the outcome knows better.
    #[inline]
    fn finish_exit(&mut self, outcome: Option<(bool, GuestVa)>) {
        match outcome {
            Some((taken, target)) => {
                self.totals.taken -= u64::from(!taken);
                if let Some(last) = self.records.last_mut() {
                    *last = Record::Branch { taken, target };
                }
            }
            None => {
                self.totals.taken -= 1;
                self.totals.branches -= 1;
                self.records.pop();
            }
        }
    }

    /// Runs and counts a planned block, and appends the addresses of its accesses. Nothing, and nothing done,
    /// if it has to be walked.
    #[inline]
    pub(crate) fn run<'w>(
        &mut self,
        (ways, id): (&'w Ways<'_>, BlockId),
        rest: &mut Rest<'_>,
        leave: Leave,
        addresses: &mut Vec<u64>,
    ) -> Option<(Execution, &'w Way)> {
        let (brief, needs) = ways.get(id)?;
        if needs.known & !self.machine.known != 0 {
            return None;
        }
        let (words, later) = rest.words.split_at_checked(brief.len as usize)?;
        // The way is wanted before the operations are worked off: neither is likely to be in the cache.
        let done = ways.flat.left(brief, leave)?;
        let way = ways.way(done.way)?;
        rest.words = later;
        self.machine.clear(needs.halves & !self.machine.known);
        self.machine.known = self.machine.known & !way.unknown | way.known;
        way.tally.add_to(&mut self.totals);
        let state = (&mut self.machine.registers, words);
        ways.flat.work(brief, &done, state, addresses);
        Some((done, way))
    }

    /// Appends the records of a planned block; false, and nothing done, if it has to be walked.
    #[inline]
    pub(crate) fn planned(
        &mut self,
        (ways, id): (&Ways<'_>, BlockId),
        entry: &Entry,
        rest: &mut Rest<'_>,
        leave: Leave,
    ) -> bool {
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.clear();
        let done = self.run((ways, id), rest, leave, &mut addresses);
        if let Some((done, way)) = done {
            let start = self.records.len();
            let template = entry.shape.template.get(..usize::from(way.records));
            self.records.extend_from_slice(template.unwrap_or_default());
            let made = &mut self.records[start..];
            for (address, place) in addresses.iter().zip(ways.places(way)) {
                if let Some(record) = made.get_mut(usize::from(*place)) {
                    set_address(record, *address);
                }
            }
            match (way.end, made.last_mut()) {
                (End::Taken, Some(last)) => {
                    *last = Record::Branch { taken: true, target: done.next };
                }
                (End::Fell, Some(Record::Branch { taken, .. })) => *taken = false,
                _ => {}
            }
        }
        self.addresses = addresses;
        done.is_some()
    }

    /// Appends the records of any block. `flush` is called when many have gathered; it answers whether more are wanted.
    pub(crate) fn steps<E>(
        &mut self,
        entry: &Entry,
        rest: &mut Rest<'_>,
        leave: Leave,
        flush: &mut impl FnMut(&mut Self) -> Result<bool, E>,
    ) -> Result<Result<(), &'static str>, E> {
        let left = entry.left_at(leave);
        let mut rest = match rest.split(entry) {
            Ok(rest) => rest,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let mut pc = entry.block.entry;
        for (i, step) in entry.block.steps.iter().take(left.steps).enumerate() {
            match *step {
                Step::Insn { len, kind } => {
                    self.push(Record::Insn { len, kind, pc });
                    pc = pc.offset(u64::from(len));
                }
                Step::Take { register, width, .. } => match rest.word() {
                    Some(word) => self.machine.take(register, width, word),
                    None => return Ok(Err("a block lacks words")),
                },
                Step::Derive { register, value } => self.machine.derive(register, value),
                Step::Forget { register } => self.machine.forget(register),
                Step::Ref(r) => {
                    let addr = match r.address {
                        Address::Word(_) => rest.word(),
                        Address::Known(sum) => self.machine.sum(sum),
                    };
                    let Some(addr) = addr else {
                        return Ok(Err("an address depends on a register that is not known"));
                    };
                    self.push(r.kind.record(r.flags, r.size, GuestVa(addr)));
                }
                Step::Flex { .. } => {
                    for run in rest.accesses().unwrap_or_default() {
                        self.repeat(run, flush)?;
                    }
                }
                Step::Exit { target, .. } => {
                    let end = i + 1 == left.steps;
                    let outcome = if end { left.outcome } else { Some((false, target)) };
                    if let Some((taken, target)) = outcome {
                        self.push(Record::Branch { taken, target });
                    }
                }
            }
        }
        debug_assert!(
            entry.block.exits == Exits::Side
                || left.steps == entry.block.steps.len()
                || matches!(leave, Leave::Cut(_))
        );
        Ok(Ok(()))
    }

    fn push(&mut self, record: Record) {
        self.totals.count(&record);
        self.records.push(record);
    }

    /// Appends the accesses of a run, as far as they are wanted.
    fn repeat<E>(
        &mut self,
        run: &Run,
        flush: &mut impl FnMut(&mut Self) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut turn = 0;
        while turn < run.count {
            let end = run.count.min(turn.saturating_add(PIECE));
            for record in run.records(turn, end) {
                self.push(record);
            }
            turn = end;
            if self.records.len() >= PIECE as usize && !flush(self)? {
                break;
            }
        }
        Ok(())
    }

    /// Appends a piece that belongs to no block.
    pub(crate) fn loose<E>(
        &mut self,
        loose: &Loose,
        flush: &mut impl FnMut(&mut Self) -> Result<bool, E>,
    ) -> Result<(), E> {
        match loose {
            Loose::Run(run) => self.repeat(run, flush),
            Loose::Record(record) => {
                self.push(*record);
                Ok(())
            }
        }
    }
}

/// Writes the address of an access. All arms write the same place, so this is
/// one store.
#[inline]
fn set_address(record: &mut Record, word: u64) {
    match record {
        Record::Load { addr, .. }
        | Record::Store { addr, .. }
        | Record::Prefetch { addr, .. }
        | Record::Flush { addr, .. }
        | Record::Insn { pc: addr, .. }
        | Record::Branch { target: addr, .. } => *addr = GuestVa(word),
    }
}

#[cfg(test)]
mod tests;
