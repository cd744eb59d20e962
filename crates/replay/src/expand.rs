//! Executions to records. A plain block is its template with the words
//! written into it; any other is walked step by step over the shadow registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record, Totals};
use ichnos_trace::{Address, Burst, Entry, Exits, Leave, Loose, Run, Step};

use crate::machine::Machine;

/// Records in the making, and what they count.
#[derive(Debug)]
pub(crate) struct Expander {
    pub(crate) records: Vec<Record>,
    pub(crate) totals: Totals,
    pub(crate) machine: Machine,
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

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*word)
    }
}

/// How many accesses of a run are made at a time, so that a long one does not
/// fill the memory.
pub(crate) const PIECE: u32 = 2048;

impl Expander {
    pub(crate) fn new() -> Self {
        Self { records: Vec::new(), totals: Totals::default(), machine: Machine::new() }
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
        for (word, place) in words.iter().zip(&shape.words) {
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

    /// Appends the records of any block. `flush` is called when many have gathered.
    pub(crate) fn steps<E>(
        &mut self,
        entry: &Entry,
        rest: &mut Rest<'_>,
        leave: Leave,
        flush: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Result<(), &'static str>, E> {
        let left = entry.left_at(leave);
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
                    let Some((count, later)) = rest.flexes.split_first() else {
                        return Ok(Err("a block lacks accesses"));
                    };
                    rest.flexes = later;
                    let Some((runs, later)) = rest.runs.split_at_checked(*count as usize) else {
                        return Ok(Err("a block lacks accesses"));
                    };
                    rest.runs = later;
                    for run in runs {
                        self.run(run, flush)?;
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
        debug_assert!(entry.block.exits == Exits::Side || left.steps == entry.block.steps.len());
        Ok(Ok(()))
    }

    fn push(&mut self, record: Record) {
        self.totals.count(&record);
        self.records.push(record);
    }

    /// Appends the accesses of a run.
    pub(crate) fn run<E>(
        &mut self,
        run: &Run,
        flush: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut turn = 0;
        while turn < run.count {
            let end = run.count.min(turn.saturating_add(PIECE));
            for record in run.records(turn, end) {
                self.push(record);
            }
            turn = end;
            if self.records.len() >= PIECE as usize {
                flush(self)?;
            }
        }
        Ok(())
    }

    /// Appends a piece that belongs to no block.
    pub(crate) fn loose<E>(
        &mut self,
        loose: &Loose,
        flush: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        match loose {
            Loose::Run(run) => self.run(run, flush),
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
