//! The unpacker of raw executions: the columns of a chunk become executions and words again. Everything is
//! checked, as `unpack` does, which knows what lies between executions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Leave, Step};

use crate::block::Word;
use crate::bytes::{Cursor, Parse};
use crate::chain::{MAX_CHAINS, Unit, Which};
use crate::error::Flaw;
use crate::flex::get_runs;
use crate::guess::{Guesses, NEXT, NOWHERE, OTHER, Place, SECOND};
use crate::misses::Misses;
use crate::pack::{CODES, COLUMNS, FLEX, IDS, MISSES, RUNS};
use crate::raw_pack::{CODE_BITS, CODE_WORDS, MOST_SILENT, UNIT_BITS, UNIT_MASK};
use crate::roadmap::{Entry, MAX_BLOCKS, Roadmap};
use crate::unpack::{BURST, Burst, TOO_MANY};

/// Where a chunk of raw executions is being read.
#[derive(Debug, Default)]
pub(crate) struct RawUnpacker {
    guesses: Guesses,
    /// Where the thread is.
    at: usize,
    /// Executions that are expected before one that has a code; nothing if that was not read yet.
    expected: Option<u64>,
    peeked: Option<Peeked>,
}

/// The next execution, if it was already looked at.
#[derive(Clone, Copy, Debug)]
struct Peeked {
    unit: Unit,
    /// The first number of its code, if it is not as expected.
    code: Option<u64>,
}

/// The columns that executions are read from.
struct Columns<'a> {
    runs: Cursor<'a>,
    codes: Cursor<'a>,
    ids: Cursor<'a>,
    misses: Misses<'a>,
    flex: Cursor<'a>,
}

const USED: [usize; 4] = [RUNS, CODES, IDS, FLEX];

impl RawUnpacker {
    /// A chunk begins.
    pub(crate) fn begin(&mut self, roadmap: &Roadmap, bits: u32) {
        self.guesses.begin(roadmap.slots(), bits);
        (self.at, self.expected, self.peeked) = (NOWHERE, None, None);
    }

    /// Whether an execution was looked at that is not out yet.
    pub(crate) const fn has_peeked(&self) -> bool {
        self.peeked.is_some()
    }

    /// Fills a burst with some of the next executions, of which there are `left` before a mark, and whose blocks are at most
    /// so many more than their units; answers whether how the last was left follows from the next.
    pub(crate) fn fill(
        &mut self,
        (columns, at): (&[Vec<u8>; COLUMNS], &mut [usize; COLUMNS]),
        roadmap: &Roadmap,
        (left, may_follow): (&mut u64, &mut u64),
        burst: &mut Burst,
    ) -> Parse<bool> {
        let column = |c: usize| Cursor::new(columns[c].get(at[c]..).unwrap_or_default());
        let mut from = Columns {
            runs: column(RUNS),
            codes: column(CODES),
            ids: column(IDS),
            misses: Misses { columns: std::array::from_fn(|i| column(MISSES + i)) },
            flex: column(FLEX),
        };
        let mut follows = false;
        while let Some(Peeked { unit, code }) = self.next(&mut from, left)? {
            let next = match unit.which() {
                Which::Block(id) => {
                    let entry =
                        roadmap.get(id).ok_or(Flaw("it needs a block that is not there"))?;
                    if burst.blocks.len() < BURST || entry.shape.is_silent() {
                        if burst.blocks.len() >= BURST + 2 * MOST_SILENT {
                            return Err(Flaw("it has too many silent blocks in a row"));
                        }
                        burst.blocks.push(id);
                        self.words(&mut from, (unit, &entry.shape.words), code, burst)?;
                        if entry.shape.flexes > 0 {
                            self.flexes(&mut from, entry, burst)?;
                        }
                        continue;
                    }
                    entry.shape.entry
                }
                Which::Chain(number) => {
                    let chain = roadmap.chain(number);
                    let (blocks, words) =
                        chain.ok_or(Flaw("it needs a chain that is not there"))?;
                    if burst.blocks.len() < BURST {
                        let rest = may_follow.checked_sub(blocks.len() as u64 - 1);
                        *may_follow = rest.ok_or(TOO_MANY)?;
                        burst.blocks.extend_from_slice(blocks);
                        self.words(&mut from, (unit, words), code, burst)?;
                        continue;
                    }
                    let entry = blocks.first().and_then(|id| roadmap.entry_pc(*id));
                    entry.unwrap_or(GuestVa(0))
                }
            };
            self.peeked = Some(Peeked { unit, code });
            burst.leave = Leave::Next(next);
            follows = true;
            break;
        }
        let cursors = [&from.runs, &from.codes, &from.ids, &from.flex];
        for (c, cursor) in USED.into_iter().zip(cursors) {
            at[c] = columns[c].len() - cursor.left();
        }
        for (i, cursor) in from.misses.columns.iter().enumerate() {
            at[MISSES + i] = columns[MISSES + i].len() - cursor.left();
        }
        Ok(follows)
    }

    /// All executions are out: whether the last of their numbers tells that none is expected any more.
    pub(crate) fn check_end(&self, runs: &[u8]) -> Parse<()> {
        let done = match self.expected {
            Some(expected) => expected == 0 && runs.is_empty(),
            None => runs == [0],
        };
        if done { Ok(()) } else { Err(Flaw("it expects executions that it does not have")) }
    }

    /// The next execution.
    #[inline]
    fn next(&mut self, from: &mut Columns<'_>, left: &mut u64) -> Parse<Option<Peeked>> {
        if let Some(peeked) = self.peeked.take() {
            return Ok(Some(peeked));
        }
        if *left == 0 {
            // A mark comes here.
            self.at = NOWHERE;
            return Ok(None);
        }
        *left -= 1;
        let expected = match self.expected {
            Some(expected) => expected,
            None => from.runs.varint()?,
        };
        let none = Flaw("it expects a block where none came before");
        if expected > 0 {
            self.expected = Some(expected - 1);
            let unit = self.guesses.follows(self.at, NEXT).ok_or(none)?;
            return Ok(Some(Peeked { unit, code: None }));
        }
        self.expected = None;
        let code = from.codes.varint()?;
        let unit = match code & UNIT_MASK {
            told @ (NEXT | SECOND) => self.guesses.follows(self.at, told).ok_or(none)?,
            OTHER => Unit(from.ids.u32()?),
            _ => return Err(Flaw("a unit is told in no known way")),
        };
        if unit.0 >> 1 >= MAX_BLOCKS.max(MAX_CHAINS) {
            return Err(Flaw("it needs a block or chain that is not there"));
        }
        Ok(Some(Peeked { unit, code: Some(code) }))
    }

    /// Appends the words of an execution.
    #[inline]
    fn words(
        &mut self,
        from: &mut Columns<'_>,
        (unit, words): (Unit, &[Word]),
        told: Option<u64>,
        burst: &mut Burst,
    ) -> Parse<()> {
        let mut to = self.guesses.places[self.at].next as usize;
        if told.is_some_and(|code| code & UNIT_MASK != NEXT) {
            let words = words.iter().map(|word| (word.slot.0, word.taken));
            (to, _) = self.guesses.turn(self.at, (unit, words), |_| {});
        }
        self.at = to;
        let Guesses { places, known, words: guesses, .. } = &mut self.guesses;
        let Place { code: expected, .. } = &mut places[to];
        let mut code = told.unwrap_or(*expected) & !UNIT_MASK;
        if words.len() <= CODE_WORDS {
            *expected = code;
        }
        code >>= UNIT_BITS;
        let known = &mut known[places[to].all()];
        for (i, known) in known.iter_mut().enumerate() {
            if i > 0 && i % CODE_WORDS == 0 && told.is_some() {
                code = from.codes.varint()?;
            }
            let told = (code & ((1 << CODE_BITS) - 1)) as u32;
            code >>= CODE_BITS;
            let (misses, slot) = (&mut from.misses, known.slot);
            burst.words.push(guesses.decode(known, told, || misses.next(slot))?);
        }
        if code == 0 { Ok(()) } else { Err(Flaw("a code tells more words than its block has")) }
    }

    #[cold]
    fn flexes(&mut self, from: &mut Columns<'_>, entry: &Entry, burst: &mut Burst) -> Parse<()> {
        for step in entry.block.steps.iter() {
            if let Step::Flex { slot } = step {
                let last = self.guesses.last_mut(slot.0);
                let count = get_runs(&mut from.flex, &mut burst.runs, last)?;
                burst.flexes.push(count as u32);
            }
        }
        Ok(())
    }
}
