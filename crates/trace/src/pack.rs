//! The packer: one thread's block executions, words and marks become the columns
//! of one stream chunk. The exact inverse of `unpack`.
//!
//! Most executions are of the expected block with the expected words: they take one decision, and this
//! file is written for them. Only what was not expected costs more.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, Event, ExitKind, GuestVa, Leave, Record, Slot, Totals};

use crate::bytes::put_varint;
use crate::coder::Encoder;
use crate::digest::{Digest, Digests, Ending};
use crate::error::Error;
use crate::event_codec::put_event;
use crate::flex::put_accesses;
use crate::learn::Learner;
use crate::mark::{self, Mode};
use crate::misses::MISS_COLUMNS;
use crate::predict::Predictors;
use crate::roadmap::Roadmap;
use crate::sequence::{Guess, Sequence};
use crate::values::Values;

pub(crate) const MARKS: usize = 0;
pub(crate) const CODES: usize = 1;
pub(crate) const IDS: usize = 2;
pub(crate) const MISSES: usize = 3;
pub(crate) const FLEX: usize = MISSES + MISS_COLUMNS;
pub(crate) const VALUE_TOKENS: usize = FLEX + 1;
pub(crate) const VALUE_BYTES: usize = FLEX + 2;
pub(crate) const RUNS: usize = FLEX + 3;
/// How many columns a stream chunk has.
pub(crate) const COLUMNS: usize = FLEX + 4;

/// After so many executions it is looked at whether wires are worth learning.
const WATCH: u64 = 512;

/// Packs one open chunk.
///
/// Knows of the roadmap what it was last shown ([`Packer::grow`]); whoever packs an execution has
/// shown its block before.
#[derive(Debug)]
pub(crate) struct Packer {
    pub(crate) columns: [Vec<u8>; COLUMNS],
    /// What the chunk counts, but for whole executions, until it ends.
    pub(crate) totals: Totals,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Blocks of the roadmap that the chunk needs.
    pub(crate) blocks: u32,
    execs: u64,
    marks: u64,
    /// Instructions and accesses of executions.
    insns: u64,
    accesses: u64,
    /// Last branches of executions that were not taken, and that nobody saw.
    untaken: u64,
    unseen: u64,
    /// All executions since the packer was made.
    clock: u64,
    /// Whether flexible accesses or values were packed since it was last looked how long the columns are: one
    /// execution may have many.
    pub(crate) is_wide: bool,
    digests: Digests,
    predictors: Predictors,
    learner: Learner,
    sequence: Sequence,
    coder: Encoder,
    tokens: Vec<u8>,
    values: Values,
    loose_last: u64,
    last: Last,
    scratch: Vec<u8>,
}

/// The last execution, as long as it is open how it ended.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// [`Ending::Plain`] if nothing is open.
    ending: Ending,
    target: GuestVa,
    leave: Leave,
}

impl Last {
    const NONE: Self = Self { ending: Ending::Plain, target: GuestVa(0), leave: Leave::Silent };
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
            insns: 0,
            accesses: 0,
            untaken: 0,
            unseen: 0,
            clock: 0,
            is_wide: false,
            digests: Digests::default(),
            predictors: Predictors::new(),
            learner: Learner::new(),
            sequence: Sequence::new(),
            coder: Encoder::new(),
            tokens: Vec::new(),
            values: Values::new(),
            loose_last: 0,
            last: Last::NONE,
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
        (self.insns, self.accesses, self.untaken, self.unseen) = (0, 0, 0, 0);
        self.learner.begin(&self.predictors.wires);
        self.predictors.reset(roadmap.slots(), mode.bits);
        self.sequence.reset(roadmap.len(), mode.bits);
        self.digests.begin();
        self.is_wide = mode.flags & mark::HAS_VALUES != 0;
        self.grow(roadmap);
        if mode.flags & mark::HAS_VALUES != 0 {
            self.values.reset(mode.bits);
        }
        self.coder = Encoder::new();
        self.loose_last = 0;
        self.last = Last::NONE;
    }

    /// Looks at blocks that appeared since.
    #[inline]
    pub(crate) fn grow(&mut self, roadmap: &Roadmap) {
        if self.digests.len() < roadmap.len() {
            self.digests.grow(roadmap);
            self.sequence.grow(roadmap.len());
            self.predictors.grow(roadmap.slots());
            self.learner.grow(roadmap);
        }
    }

    /// Whether nothing was packed since the chunk began.
    pub(crate) const fn is_empty(&self) -> bool {
        self.execs == 0 && self.marks == 0
    }

    /// Instructions so far, but for those of side exits that are still open.
    #[inline]
    pub(crate) const fn insns(&self) -> u64 {
        self.insns + self.totals.insns
    }

    /// All executions that the packer has seen, in this chunk and before.
    #[inline]
    pub(crate) const fn clock(&self) -> u64 {
        self.clock
    }

    /// How many bytes the columns hold so far.
    pub(crate) fn raw_len(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// How many loads, stores and other records besides instructions there are.
    pub(crate) const fn accesses(&self) -> u64 {
        let t = &self.totals;
        self.accesses + t.loads + t.stores + t.prefetches + t.flushes
    }

    /// Packs one execution. `leave` says how it really ended; what the next block
    /// tells anyway is left out.
    #[inline]
    pub(crate) fn execute(&mut self, id: BlockId, words: &[u64], leave: Leave) {
        let block = *self.digests.get(id);
        if !self.learner.changes.is_empty() {
            self.put_wires(block.entry);
        }
        self.follow(block.entry);
        let missed = self.put_words(&block, words);
        let [.., codes, ids] = &mut self.columns[..MISSES] else { return };
        let to = (&mut self.coder, &mut *codes);
        if self.sequence.encode(to, id, missed) == Guess::None {
            put_varint(ids, u64::from(id.0));
        }
        if missed {
            let slots = self.digests.slots(&block);
            for (token, slot) in self.tokens.iter().zip(slots) {
                self.predictors.tokens.put((&mut self.coder, codes), *slot, *token);
            }
        }
        self.execs += 1;
        self.blocks = self.blocks.max(id.0 + 1);
        self.last = Last { ending: block.ending, target: block.target, leave };
        self.digests.ran(id);
        self.insns += u64::from(block.insns);
        self.accesses += u64::from(block.accesses);
        self.clock += 1;
        if self.clock.is_multiple_of(WATCH) {
            self.learner.watch(&self.predictors.wires);
        }
    }

    /// Predicts the words of an execution; whether not all are as expected, and then the tokens are
    /// left behind.
    #[inline]
    fn put_words(&mut self, block: &Digest, words: &[u64]) -> bool {
        let slots = self.digests.slots(block);
        let mut calm = 0;
        if !self.learner.is_awake() {
            calm = self.predictors.pass(slots, words);
            if calm == slots.len() {
                return false;
            }
        }
        self.put_tokens(block, words, calm)
    }

    /// The same from a word on.
    fn put_tokens(&mut self, block: &Digest, words: &[u64], calm: usize) -> bool {
        let slots = self.digests.slots(block);
        self.tokens.clear();
        self.tokens.resize(calm, 0);
        let misses = &mut self.columns[MISSES..];
        let mut missed = 0;
        for (slot, word) in slots.iter().zip(words).skip(calm) {
            let (token, coded) = self.predictors.encode(*slot, *word, misses);
            self.learner.saw(&self.predictors, (*slot, *word), coded);
            missed |= token;
            self.tokens.push(token);
        }
        missed != 0
    }

    /// Writes down wires that changed, before an execution that begins at `next`.
    #[cold]
    fn put_wires(&mut self, next: GuestVa) {
        if self.last.leave == Leave::Silent {
            self.last.leave = match self.last.ending {
                Ending::Indirect => Leave::Outcome { taken: true, target: next },
                _ => Leave::Next(next),
            };
        }
        self.resolve(Leave::Silent);
        let changes = std::mem::take(&mut self.learner.changes);
        for (slot, wire) in &changes {
            // The slot exists: the learner saw its words.
            if self.predictors.set_wire(*slot, *wire).is_ok() {
                wire.write(self.put_mark(mark::WIRE), *slot);
            }
        }
    }

    /// The last block's exit, now that it is known what comes after it: mostly what its end says.
    #[inline]
    fn follow(&mut self, entry: GuestVa) {
        match (self.last.ending, self.last.leave) {
            (Ending::Plain, _) => {}
            (Ending::Conditional, Leave::Outcome { taken, .. })
                if taken == (entry == self.last.target) =>
            {
                self.untaken += u64::from(!taken);
            }
            (Ending::Indirect, Leave::Outcome { taken: true, target }) if target == entry => {}
            (Ending::Indirect, Leave::Silent) => {}
            _ => self.resolve(Leave::Next(entry)),
        }
    }

    /// The last block's exit, whatever comes after it.
    fn resolve(&mut self, after: Leave) {
        let Last { ending, target, leave: actual } = std::mem::replace(&mut self.last, Last::NONE);
        let leave = match actual {
            // Nobody said where it went.
            Leave::Silent if after == Leave::Silent => Leave::Unknown,
            Leave::Silent => after,
            actual => actual,
        };
        let kind = match ending {
            Ending::Plain => return,
            Ending::Conditional => ExitKind::Conditional,
            Ending::Indirect => ExitKind::Indirect,
        };
        let outcome = leave.outcome(kind, target);
        if outcome != after.outcome(kind, target) {
            self.put_leave(actual);
        }
        self.untaken += u64::from(outcome.is_none_or(|(taken, _)| !taken));
        self.unseen += u64::from(outcome.is_none());
    }

    fn put_leave(&mut self, leave: Leave) {
        if leave != Leave::Silent {
            put_varint(&mut self.columns[MARKS], std::mem::take(&mut self.execs));
            self.marks += 1;
            put_leave(&mut self.columns[MARKS], leave);
        }
    }

    /// Packs the accesses of the next flexible step of the execution that follows.
    pub(crate) fn flex(&mut self, slot: Slot, accesses: &[Record]) {
        let last = self.predictors.last_mut(slot.0);
        self.is_wide = true;
        put_accesses(&mut self.columns[FLEX], accesses, last);
        accesses.iter().for_each(|a| self.totals.count(a));
    }

    /// Packs the values of records that were or will be packed; false if there are
    /// fewer bytes than the records need.
    pub(crate) fn put_values(&mut self, records: &[Record], bytes: &[u8]) -> bool {
        let [.., tokens, written, _] = &mut self.columns;
        self.values.encode(records, bytes, tokens, written) == Some(bytes.len())
    }

    /// Packs records that belong to no block.
    pub(crate) fn loose(&mut self, records: &[Record]) {
        self.resolve(Leave::Silent);
        let mut last = self.loose_last;
        mark::put_loose(self.put_mark(mark::LOOSE), records, &mut last);
        self.loose_last = last;
        records.iter().for_each(|r| self.totals.count(r));
    }

    /// Packs an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        let mut body = std::mem::take(&mut self.scratch);
        body.clear();
        put_event(&mut body, event)?;
        self.resolve(Leave::Silent);
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

    /// Ends the chunk: its columns and totals are complete.
    pub(crate) fn end(&mut self) {
        self.resolve(Leave::Silent);
        self.digests.add_to(&mut self.totals);
        self.totals.taken -= self.untaken;
        self.totals.branches -= self.unseen;
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

/// Appends how an execution was left, if there is anything to say, as a mark without its count.
pub(crate) fn put_leave(out: &mut Vec<u8>, leave: Leave) {
    let to = match leave {
        Leave::Silent => return,
        Leave::Unknown => return out.push(mark::NO_OUTCOME),
        Leave::Outcome { taken, target } => {
            out.extend_from_slice(&[mark::OUTCOME, u8::from(taken)]);
            target
        }
        Leave::Next(next) => {
            out.push(mark::NEXT);
            next
        }
        Leave::Cut(pc) => {
            out.push(mark::CUT);
            pc
        }
    };
    put_varint(out, to.0);
}
