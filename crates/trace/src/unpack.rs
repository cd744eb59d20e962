//! The unpacker: the columns of one stream chunk become block executions, words
//! and marks again, in bursts. Everything is checked: block numbers, slots,
//! tokens, and that each column is used up exactly.
//!
//! Memory: the columns (bounded by the chunk header's checked length), a burst of at most
//! [`BURST`] executions, beside the rest of a chain and silent ones, and the predictors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, Event, GuestVa, Leave, Record, Register, Step};

use crate::block::Word;
use crate::bytes::{Cursor, Parse};
use crate::chunk::MAX_INSNS;
use crate::coder::Decoding;
use crate::error::Flaw;
use crate::event_codec::get_event;
use crate::flex::{Run, get_runs};
use crate::mark::{self, Loose};
use crate::misses::Misses;
use crate::pack::{CODES, COLUMNS, FLEX, IDS, MARKS, MISSES, RUNS, VALUE_BYTES, VALUE_TOKENS};
use crate::predict::Predictors;
use crate::raw_unpack::RawUnpacker;
use crate::roadmap::Roadmap;
use crate::sequence::{Guess, Sequence};
use crate::values::{ValueReader, Values};
use crate::wire::Wire;

/// How many executions come at a time: few enough that they and their words
/// stay in the first cache level.
pub(crate) const BURST: usize = 1024;

/// Room for the words of a usual burst.
const ROOM: usize = 4 * BURST;

/// What a decoder fills: consecutive block executions of one thread, or what lies between.
#[derive(Debug, Default)]
pub struct Burst {
    /// Which blocks, in order.
    pub blocks: Vec<BlockId>,
    /// Their words, in order.
    pub words: Vec<u64>,
    /// For each flexible step in order, how many of `runs` are its accesses.
    pub flexes: Vec<u32>,
    /// The flexible steps' accesses.
    pub runs: Vec<Run>,
    /// How the last execution was left. The others were left for the next block.
    pub leave: Leave,
    /// Records that belong to no block.
    pub loose: Vec<Loose>,
    /// The shadow registers that are known.
    pub registers: Vec<(Register, u64)>,
}

/// What comes next in a chunk.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// Block executions: in the burst.
    Executions,
    /// An event.
    Event(Event<'a>),
    /// Records that belong to no block: in the burst.
    Loose,
    /// The shadow registers from here on: in the burst. Those not named are unknown.
    Snapshot,
}

/// The event with which a column of marks begins, if it begins with one.
pub(crate) fn first_event(marks: &[u8]) -> Parse<Option<Event<'_>>> {
    let mut marks = Cursor::new(marks);
    marks.take(2)?;
    if marks.varint()? != 0 || marks.u8()? != mark::EVENT {
        return Ok(None);
    }
    get_event(&mut marks).map(Some)
}

/// Unpacks one chunk at a time; keeps its memory from chunk to chunk.
#[derive(Debug)]
pub(crate) struct Unpacker {
    pub(crate) columns: [Vec<u8>; COLUMNS],
    at: [usize; COLUMNS],
    predictors: Predictors,
    sequence: Sequence,
    raw: RawUnpacker,
    /// Whether executions are raw.
    is_raw: bool,
    decoding: Decoding,
    pub(crate) values: ValueReader,
    pub(crate) has_values: bool,
    loose_last: u64,
    /// The tokens of an execution; kept for its memory.
    tokens: Vec<u8>,
    ahead: Ahead,
    /// The next block, if it was already looked at, and whether not all its words are as expected.
    peeked: Option<(BlockId, bool)>,
    ended: bool,
}

impl Unpacker {
    pub(crate) fn new() -> Self {
        Self {
            columns: Default::default(),
            at: [0; COLUMNS],
            predictors: Predictors::new(),
            sequence: Sequence::new(),
            raw: RawUnpacker::default(),
            is_raw: false,
            decoding: Decoding::default(),
            values: ValueReader { values: Values::new(), tokens: 0, written: 0 },
            has_values: false,
            loose_last: 0,
            tokens: Vec::new(),
            ahead: Ahead::default(),
            peeked: None,
            ended: true,
        }
    }

    /// The columns were filled: start on them.
    pub(crate) fn begin(&mut self, roadmap: &Roadmap) -> Parse<()> {
        self.at = [0; COLUMNS];
        self.loose_last = 0;
        self.peeked = None;
        self.ended = false;
        let mut marks = Cursor::new(&self.columns[MARKS]);
        let flags = marks.u8()?;
        self.is_raw = flags == mark::IS_RAW;
        if flags & !mark::HAS_VALUES != 0 && !self.is_raw {
            return Err(Flaw("it has unknown flags"));
        }
        let bits = u32::from(marks.u8()?);
        if !mark::TABLE_BITS.contains(&bits) {
            return Err(Flaw("its prediction tables are too large or too small"));
        }
        if self.is_raw {
            self.raw.begin(roadmap, bits, &self.columns)?;
        } else {
            self.predictors.reset(roadmap.slots(), bits);
            self.sequence.reset(roadmap.len(), bits);
            self.decoding = Decoding::new(&self.columns[CODES])?;
        }
        self.has_values = flags & mark::HAS_VALUES != 0;
        if self.has_values {
            self.values.values.reset(bits);
            (self.values.tokens, self.values.written) = (0, 0);
        }
        self.ahead = Ahead { until_mark: 0, may_follow: MAX_INSNS };
        self.ahead.expect(marks.varint()?)?;
        self.at[MARKS] = self.columns[MARKS].len() - marks.left();
        Ok(())
    }

    /// The next item, or nothing at the end of the chunk.
    pub(crate) fn next(&mut self, roadmap: &Roadmap, burst: &mut Burst) -> Parse<Option<Item<'_>>> {
        loop {
            if self.ahead.until_mark > 0 || self.peeked.is_some() {
                self.fill(roadmap, burst)?;
                return Ok(Some(Item::Executions));
            }
            if self.ended {
                return Ok(None);
            }
            if !self.take_wire()? {
                return self.next_mark(burst);
            }
        }
    }

    /// Applies the next mark if it is a wire.
    fn take_wire(&mut self) -> Parse<bool> {
        let column = &self.columns[MARKS];
        let mut marks = Cursor::new(column.get(self.at[MARKS]..).unwrap_or_default());
        if marks.u8()? != mark::WIRE {
            return Ok(false);
        }
        let (slot, wire) = Wire::read(&mut marks)?;
        self.predictors.set_wire(slot, wire)?;
        self.ahead.expect(marks.varint()?)?;
        self.at[MARKS] = column.len() - marks.left();
        Ok(true)
    }

    fn next_mark(&mut self, burst: &mut Burst) -> Parse<Option<Item<'_>>> {
        let column = &self.columns[MARKS];
        let mut marks = Cursor::new(column.get(self.at[MARKS]..).unwrap_or_default());
        let item = match marks.u8()? {
            mark::END => {
                self.ended = true;
                self.at[MARKS] = column.len() - marks.left();
                self.check_end()?;
                return Ok(None);
            }
            mark::EVENT => Item::Event(get_event(&mut marks)?),
            mark::LOOSE => {
                burst.loose.clear();
                mark::get_loose(&mut marks, &mut burst.loose, &mut self.loose_last)?;
                Item::Loose
            }
            mark::SNAPSHOT => {
                burst.registers = mark::get_snapshot(&mut marks)?;
                Item::Snapshot
            }
            _ => return Err(Flaw("a mark is of no kind")),
        };
        self.ahead.expect(marks.varint()?)?;
        self.at[MARKS] = column.len() - marks.left();
        Ok(Some(item))
    }

    /// Marks that tell how the last execution was left belong to its burst.
    fn take_leave(&mut self) -> Parse<Leave> {
        let column = &self.columns[MARKS];
        let mut marks = Cursor::new(column.get(self.at[MARKS]..).unwrap_or_default());
        let leave = match marks.u8()? {
            mark::OUTCOME => {
                let taken = match marks.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Flaw("a branch is neither taken nor not")),
                };
                Leave::Outcome { taken, target: GuestVa(marks.varint()?) }
            }
            mark::NO_OUTCOME => Leave::Unknown,
            mark::NEXT => Leave::Next(GuestVa(marks.varint()?)),
            mark::CUT => Leave::Cut(GuestVa(marks.varint()?)),
            _ => return Ok(Leave::Silent),
        };
        self.ahead.expect(marks.varint()?)?;
        self.at[MARKS] = column.len() - marks.left();
        Ok(leave)
    }

    fn check_end(&self) -> Parse<()> {
        let mut others = vec![VALUE_TOKENS, VALUE_BYTES];
        let codes = &self.columns[CODES];
        let mut at_end = true;
        if self.is_raw {
            // Whether these are used up was seen at the start.
            others.extend((CODES..FLEX).chain([RUNS]));
        } else {
            others.push(CODES);
            at_end = self.decoding.is_at_end(codes);
        }
        let used = |c: &usize| others.contains(c) || self.at[*c] == self.columns[*c].len();
        if at_end && (0..COLUMNS).all(|c| used(&c)) {
            Ok(())
        } else {
            Err(Flaw("a column has bytes left over"))
        }
    }

    /// Whether all values were read; asked when the chunk's records are all out.
    pub(crate) fn check_values(&self) -> Parse<()> {
        let used = if self.has_values { (self.values.tokens, self.values.written) } else { (0, 0) };
        if used == (self.columns[VALUE_TOKENS].len(), self.columns[VALUE_BYTES].len()) {
            Ok(())
        } else {
            Err(Flaw("it holds more values than its accesses need"))
        }
    }

    /// Appends the values of records that came out of this chunk, in their order.
    pub(crate) fn read_values(&mut self, records: &[Record], out: &mut Vec<u8>) -> Parse<()> {
        let columns = (&self.columns[VALUE_TOKENS][..], &self.columns[VALUE_BYTES][..]);
        self.values.read(records, columns, out)
    }

    fn fill(&mut self, roadmap: &Roadmap, burst: &mut Burst) -> Parse<()> {
        burst.blocks.clear();
        burst.words.clear();
        burst.flexes.clear();
        burst.runs.clear();
        burst.leave = Leave::Silent;
        if !self.is_raw {
            return self.fill_burst(roadmap, burst);
        }
        let Ahead { until_mark, may_follow } = &mut self.ahead;
        let flex = (&self.columns[FLEX][..], &mut self.at[FLEX]);
        if !self.raw.fill(flex, roadmap, (until_mark, may_follow), burst)? {
            burst.leave = self.take_leave()?;
        }
        Ok(())
    }

    fn fill_burst(&mut self, roadmap: &Roadmap, burst: &mut Burst) -> Parse<()> {
        let column = |c: usize| Cursor::new(self.columns[c].get(self.at[c]..).unwrap_or_default());
        let mut from = Columns {
            codes: &self.columns[CODES],
            decoding: self.decoding,
            ids: column(IDS),
            misses: Misses { columns: std::array::from_fn(|i| column(MISSES + i)) },
            flex: column(FLEX),
        };
        let mut next = self.peeked.take();
        let mut filled = 0;
        while burst.blocks.len() < BURST {
            let (id, missed) = match next.take() {
                Some(next) => next,
                None if self.ahead.until_mark == 0 => break,
                None => {
                    self.ahead.until_mark -= 1;
                    from.block(&mut self.sequence)?
                }
            };
            let entry = roadmap.get(id).ok_or(Flaw("it needs a block that is not there"))?;
            self.sequence.update(id);
            burst.blocks.push(id);
            let predictors = &mut self.predictors;
            let words = &*entry.shape.words;
            let end = filled + words.len();
            if end > burst.words.len() {
                burst.words.resize(end.next_power_of_two().max(ROOM), 0);
            }
            let out = &mut burst.words[filled..end];
            filled = end;
            if missed {
                from.unexpected(words, predictors, (&mut self.tokens, out))?;
            } else {
                let expected = words.iter().map(|word| (word.slot.0, 0));
                predictors.decode_all(expected, &mut from.misses, out)?;
            }
            if entry.shape.flexes > 0 {
                from.flexes(&entry.block.steps, predictors, burst)?;
            }
        }
        burst.words.truncate(filled);
        if self.ahead.until_mark > 0 {
            self.ahead.until_mark -= 1;
            let next = from.block(&mut self.sequence)?;
            let entry =
                roadmap.entry_pc(next.0).ok_or(Flaw("it needs a block that is not there"))?;
            self.peeked = Some(next);
            burst.leave = Leave::Next(entry);
        }
        self.decoding = from.decoding;
        self.decoding.check(from.codes)?;
        let left = [&from.ids].into_iter().chain(&from.misses.columns).chain([&from.flex]);
        for (column, cursor) in (IDS..=FLEX).zip(left) {
            self.at[column] = self.columns[column].len() - cursor.left();
        }
        if self.peeked.is_none() {
            burst.leave = self.take_leave()?;
        }
        Ok(())
    }
}

/// A chunk is too long.
pub(crate) const TOO_MANY: Flaw = Flaw("it has more executions than a chunk may have");

/// Executions that are still to come.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    until_mark: u64,
    /// How many more the chunk may have. Its bytes do not bound them: what is expected takes next to none.
    may_follow: u64,
}

impl Ahead {
    /// So many come before the next mark.
    fn expect(&mut self, executions: u64) -> Parse<()> {
        let rest = self.may_follow.checked_sub(executions);
        self.may_follow = rest.ok_or(TOO_MANY)?;
        self.until_mark = executions;
        Ok(())
    }
}

struct Columns<'a> {
    codes: &'a [u8],
    decoding: Decoding,
    ids: Cursor<'a>,
    misses: Misses<'a>,
    flex: Cursor<'a>,
}

impl Columns<'_> {
    /// The next block, and whether not all its words are as expected.
    #[inline(always)]
    fn block(&mut self, sequence: &mut Sequence) -> Parse<(BlockId, bool)> {
        if sequence.is_uneasy(&mut self.decoding, self.codes) {
            self.uneasy_block(sequence)
        } else {
            Ok((sequence.by_history(), false))
        }
    }

    /// The same where something is not as expected.
    #[inline(never)]
    fn uneasy_block(&mut self, sequence: &mut Sequence) -> Parse<(BlockId, bool)> {
        let mut decoding = self.decoding;
        let guess = sequence.decode(&mut decoding, self.codes);
        let id = match guess {
            Guess::History => sequence.by_history(),
            Guess::Successor(rank) => sequence.successor(rank),
            Guess::None => BlockId(self.ids.u32()?),
        };
        let known = guess == Guess::History;
        let missed = known || sequence.decode_missed(&mut decoding, self.codes, id);
        self.decoding = decoding;
        Ok((id, missed))
    }

    /// The words of an execution that are not all as expected. Tokens depend on no words, so all are read first.
    #[inline(never)]
    fn unexpected(
        &mut self,
        words: &[Word],
        predictors: &mut Predictors,
        (tokens, out): (&mut Vec<u8>, &mut [u64]),
    ) -> Parse<()> {
        tokens.clear();
        let mut decoding = self.decoding;
        for word in words {
            tokens.push(predictors.tokens.get(&mut decoding, self.codes, word.slot.0)?);
        }
        self.decoding = decoding;
        let coded = words.iter().zip(&*tokens).map(|(word, token)| (word.slot.0, *token));
        predictors.decode_all(coded, &mut self.misses, out)
    }

    #[cold]
    fn flexes(
        &mut self,
        steps: &[Step],
        predictors: &mut Predictors,
        burst: &mut Burst,
    ) -> Parse<()> {
        for step in steps {
            if let Step::Flex { slot } = step {
                let last = predictors.last_mut(slot.0);
                let count = get_runs(&mut self.flex, &mut burst.runs, last)?;
                burst.flexes.push(count as u32);
            }
        }
        Ok(())
    }
}
