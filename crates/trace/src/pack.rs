//! The packer: one thread's block executions, words and marks become the columns
//! of one stream chunk. The exact inverse of `unpack`.
//!
//! One byte per execution says whether the block was guessed and whether
//! all its words were; only what was not costs more.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, Event, GuestVa, Record, Totals};

use crate::block::Exits;
use crate::bytes::put_varint;
use crate::coder::Encoder;
use crate::error::Error;
use crate::event_codec::put_event;
use crate::flex::put_accesses;
use crate::learn::Learner;
use crate::mark::{self, Leave, Mode};
use crate::misses::MISS_COLUMNS;
use crate::predict::Predictors;
use crate::roadmap::{Entry, Roadmap};
use crate::sequence::{Guess, Sequence};
use crate::step::{Register, Slot};
use crate::values::Values;

pub(crate) const MARKS: usize = 0;
pub(crate) const CODES: usize = 1;
pub(crate) const IDS: usize = 2;
pub(crate) const MISSES: usize = 3;
pub(crate) const FLEX: usize = MISSES + MISS_COLUMNS;
pub(crate) const VALUE_TOKENS: usize = FLEX + 1;
pub(crate) const VALUE_BYTES: usize = FLEX + 2;
/// How many columns a stream chunk has.
pub(crate) const COLUMNS: usize = FLEX + 3;

/// Packs one open chunk.
#[derive(Debug)]
pub(crate) struct Packer {
    pub(crate) columns: [Vec<u8>; COLUMNS],
    pub(crate) totals: Totals,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Blocks of the roadmap that the chunk needs.
    pub(crate) blocks: u32,
    execs: u64,
    marks: u64,
    predictors: Predictors,
    learner: Learner,
    sequence: Sequence,
    coder: Encoder,
    tokens: Vec<u8>,
    values: Values,
    loose_last: u64,
    pending: Option<(BlockId, Leave)>,
    scratch: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self {
            columns: Default::default(),
            totals: Totals::default(),
            first_ns: 0,
            last_ns: 0,
            blocks: 0,
            execs: 0,
            marks: 0,
            predictors: Predictors::new(),
            learner: Learner::new(),
            sequence: Sequence::new(),
            coder: Encoder::new(),
            tokens: Vec::new(),
            values: Values::new(),
            loose_last: 0,
            pending: None,
            scratch: Vec::new(),
        }
    }

    /// Begins a chunk that holds values, or none.
    pub(crate) fn begin(&mut self, roadmap: &Roadmap, mode: Mode) {
        self.columns.iter_mut().for_each(Vec::clear);
        self.columns[MARKS].extend_from_slice(&[mode.flags, mode.bits as u8]);
        self.totals = Totals::default();
        (self.first_ns, self.last_ns) = (0, 0);
        (self.blocks, self.execs, self.marks) = (0, 0, 0);
        self.learner.begin(&self.predictors.wires);
        self.predictors.reset(roadmap.slots(), mode.bits);
        self.sequence.reset(roadmap.len(), mode.bits);
        if mode.flags & mark::HAS_VALUES != 0 {
            self.values.reset(mode.bits);
        }
        self.coder = Encoder::new();
        self.loose_last = 0;
        self.pending = None;
    }

    /// Whether nothing was packed since the chunk began.
    pub(crate) const fn is_empty(&self) -> bool {
        self.execs == 0 && self.marks == 0
    }

    /// How many bytes the columns hold so far.
    pub(crate) fn raw_len(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// How many loads, stores and other records besides instructions there are.
    pub(crate) const fn accesses(&self) -> u64 {
        let t = &self.totals;
        t.loads + t.stores + t.prefetches + t.flushes
    }

    /// Packs one execution. `leave` says how it really ended; what the next block
    /// tells anyway is left out.
    #[inline]
    pub(crate) fn execute(&mut self, roadmap: &Roadmap, id: BlockId, words: &[u64], leave: Leave) {
        let Some(entry) = roadmap.get(id) else { return };
        if !self.learner.changes.is_empty() {
            self.put_wires(roadmap, entry.block.entry);
        }
        if self.pending.is_some() {
            self.resolve(roadmap, Leave::Next(entry.block.entry));
        }
        self.sequence.grow(roadmap.len());
        self.predictors.grow(roadmap.slots());
        self.learner.grow(roadmap);
        let (head, misses) = self.columns.split_at_mut(MISSES);
        let [.., codes, ids] = head else { return };
        self.tokens.clear();
        let mut missed = 0;
        for (word, place) in words.iter().zip(&entry.shape.words) {
            let slot = place.slot.0;
            let (token, coded, told) = self.predictors.encode(slot, *word, misses);
            self.learner.saw(&self.predictors.wires, (slot, *word), coded, told);
            missed |= token;
            self.tokens.push(token);
        }
        let coder = &mut self.coder;
        if self.sequence.encode((coder, codes), id, missed != 0) == Guess::None {
            put_varint(ids, u64::from(id.0));
        }
        self.sequence.update(id);
        if missed != 0 {
            for (token, place) in self.tokens.iter().zip(&entry.shape.words) {
                self.predictors.put_token((coder, codes), place.slot.0, *token);
            }
        }
        self.execs += 1;
        self.blocks = self.blocks.max(id.0 + 1);
        self.count(entry, id, leave);
    }

    /// Writes down wires that changed, before an execution that begins at `next`.
    #[cold]
    fn put_wires(&mut self, roadmap: &Roadmap, next: GuestVa) {
        if let Some((_, actual @ Leave::Silent)) = &mut self.pending {
            *actual = Leave::Next(next);
        }
        self.resolve(roadmap, Leave::Silent);
        self.predictors.grow(roadmap.slots());
        let changes = std::mem::take(&mut self.learner.changes);
        for (slot, wire) in &changes {
            // The slot exists: the learner saw its words.
            if self.predictors.set_wire(*slot, *wire).is_ok() {
                wire.write(self.put_mark(mark::WIRE), *slot);
            }
        }
    }

    fn count(&mut self, entry: &Entry, id: BlockId, leave: Leave) {
        if entry.block.exits == Exits::Side {
            self.pending = Some((id, leave));
            return;
        }
        entry.shape.tally.add_to(&mut self.totals);
        if entry.shape.last_exit.is_some() {
            self.pending = Some((id, leave));
        }
    }

    /// The last block's exit, now that it is known what comes after it.
    fn resolve(&mut self, roadmap: &Roadmap, after: Leave) {
        let Some((id, actual)) = self.pending.take() else { return };
        let Some(entry) = roadmap.get(id) else { return };
        let leave = match (actual, after) {
            // An execution of a plan, and nobody said where it went.
            (Leave::Silent, Leave::Silent) => Leave::Unknown,
            (Leave::Silent, after) => after,
            (actual, _) => actual,
        };
        if entry.block.exits == Exits::Side {
            self.totals.add(&entry.left_at(leave).totals);
            if leave != after {
                self.put_leave(leave);
            }
            return;
        }
        let Some((kind, target)) = entry.shape.last_exit else { return };
        let guessed = after.outcome(kind, target);
        let outcome = leave.outcome(kind, target);
        if outcome != guessed {
            self.put_leave(actual);
        }
        match outcome {
            Some((true, _)) => {}
            Some((false, _)) => self.totals.taken -= 1,
            None => {
                self.totals.taken -= 1;
                self.totals.branches -= 1;
            }
        }
    }

    fn put_leave(&mut self, leave: Leave) {
        match leave {
            Leave::Outcome { taken, target } => {
                let out = self.put_mark(mark::OUTCOME);
                out.push(u8::from(taken));
                put_varint(out, target.0);
            }
            Leave::Unknown => {
                self.put_mark(mark::NO_OUTCOME);
            }
            Leave::Next(next) => put_varint(self.put_mark(mark::NEXT), next.0),
            Leave::Silent => {}
        }
    }

    /// How the last execution really ended, if that was not known when it was packed.
    pub(crate) fn left(&mut self, leave: Leave) {
        if let Some((_, actual)) = &mut self.pending {
            *actual = leave;
        }
    }

    /// Packs the accesses of the next flexible step of the execution that follows.
    pub(crate) fn flex(&mut self, roadmap: &Roadmap, slot: Slot, accesses: &[Record]) {
        self.predictors.grow(roadmap.slots());
        let last = self.predictors.last_mut(slot.0);
        put_accesses(&mut self.columns[FLEX], accesses, last);
        accesses.iter().for_each(|a| self.totals.count(a));
    }

    /// Packs the values of records that were or will be packed; false if there are
    /// fewer bytes than the records need.
    pub(crate) fn put_values(&mut self, records: &[Record], bytes: &[u8]) -> bool {
        let [.., tokens, written] = &mut self.columns;
        self.values.encode(records, bytes, tokens, written) == Some(bytes.len())
    }

    /// Packs records that belong to no block.
    pub(crate) fn loose(&mut self, roadmap: &Roadmap, records: &[Record]) {
        self.resolve(roadmap, Leave::Silent);
        let mut last = self.loose_last;
        mark::put_loose(self.put_mark(mark::LOOSE), records, &mut last);
        self.loose_last = last;
        records.iter().for_each(|r| self.totals.count(r));
    }

    /// Packs an event.
    pub(crate) fn event(&mut self, roadmap: &Roadmap, event: &Event<'_>) -> Result<(), Error> {
        let mut body = std::mem::take(&mut self.scratch);
        body.clear();
        put_event(&mut body, event)?;
        self.resolve(roadmap, Leave::Silent);
        self.put_mark(mark::EVENT).extend_from_slice(&body);
        self.scratch = body;
        if let Event::Timestamp { ns } = *event {
            if self.first_ns == 0 {
                self.first_ns = ns;
            }
            self.last_ns = ns;
        }
        Ok(())
    }

    /// Packs the shadow registers as they are from here on.
    pub(crate) fn snapshot(&mut self, roadmap: &Roadmap, registers: &[(Register, u64)]) {
        self.resolve(roadmap, Leave::Silent);
        mark::put_snapshot(self.put_mark(mark::SNAPSHOT), registers);
    }

    /// Ends the chunk: its columns are complete.
    pub(crate) fn end(&mut self, roadmap: &Roadmap) {
        self.resolve(roadmap, Leave::Silent);
        self.put_mark(mark::END);
        self.coder.finish(&mut self.columns[CODES]);
    }

    fn put_mark(&mut self, tag: u8) -> &mut Vec<u8> {
        let out = &mut self.columns[MARKS];
        put_varint(out, self.execs);
        self.execs = 0;
        self.marks += 1;
        out.push(tag);
        out
    }
}
