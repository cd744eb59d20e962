//! The unpacker of raw executions: the columns of a chunk become executions and words again. Everything is
//! checked, as `unpack` does, which knows what lies between executions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Leave, Step};

use crate::block::Word;
use crate::bytes::{Cursor, Parse};
use crate::chain::{MAX_CHAINS, Unit, Which};
use crate::error::Flaw;
use crate::flex::get_runs;
use crate::guess::{EXPECTED, Guesses, Hand};
use crate::misses::Misses;
use crate::pack::{CODES, COLUMNS, FLEX, IDS, MISSES, RUNS};
use crate::raw_pack::{CODE_BITS, CODE_WORDS, MOST_SILENT};
use crate::roadmap::{Entry, MAX_BLOCKS, Roadmap};
use crate::unpack::{BURST, Burst, TOO_MANY};

/// Where a chunk of raw executions is being read.
#[derive(Debug, Default)]
pub(crate) struct RawUnpacker {
    guesses: Guesses,
    /// Executions that are expected before one that has a code; nothing if that was not read yet.
    expected: Option<u64>,
    peeked: Option<Peeked>,
}

/// The next execution, if it was already looked at.
#[derive(Clone, Copy, Debug)]
struct Peeked {
    unit: Unit,
    /// The first number of its code.
    code: u64,
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
        let units = Unit::count(roadmap.len() as u32, roadmap.chains() as u32);
        self.guesses.begin((units, roadmap.slots()), bits);
        (self.expected, self.peeked) = (None, None);
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
                        self.words(&mut from, (unit, &entry.shape.words), code, roadmap, burst)?;
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
                        self.words(&mut from, (unit, words), code, roadmap, burst)?;
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
            return Ok(None);
        }
        *left -= 1;
        let expected = match self.expected {
            Some(expected) => expected,
            None => from.runs.varint()?,
        };
        let mut hand = self.guesses.hand();
        let at = hand.here();
        let (place, _) = hand.at(at);
        let none = Flaw("it expects a block where none came before");
        if expected > 0 {
            self.expected = Some(expected - 1);
            return Ok(Some(Peeked { unit: place.expected().ok_or(none)?, code: 0 }));
        }
        self.expected = None;
        let code = from.codes.varint()?;
        if code & 1 != 0 {
            let unit = from.ids.u32()?;
            if unit >> 1 >= MAX_BLOCKS.max(MAX_CHAINS) {
                return Err(Flaw("it needs a block or chain that is not there"));
            }
            place.expect(Unit(unit));
        }
        Ok(Some(Peeked { unit: place.expected().ok_or(none)?, code }))
    }

    /// Appends the words of an execution.
    #[inline]
    fn words(
        &mut self,
        from: &mut Columns<'_>,
        (unit, words): (Unit, &[Word]),
        code: u64,
        roadmap: &Roadmap,
        burst: &mut Burst,
    ) -> Parse<()> {
        let out = &mut burst.words;
        let mut hand = self.guesses.hand();
        if hand.is_new(unit) {
            forget(&mut hand, (unit, words), roadmap);
        }
        let (at, coded) = (hand.here(), self.expected.is_none());
        let (place, guesses) = hand.at(at);
        let (mut code, mut mask) = (code >> 1, (1 << CODE_BITS) - 1);
        if !coded {
            mask = EXPECTED.into();
        }
        for (i, word) in words.iter().enumerate() {
            if coded && i > 0 && i % CODE_WORDS == 0 {
                code = from.codes.varint()?;
            }
            let told = (code & mask) as u32;
            code >>= CODE_BITS;
            let misses = &mut from.misses;
            let written = || misses.next(word.slot.0);
            out.push(guesses.decode((place, i), (word.slot.0, word.taken), told, written)?);
        }
        hand.came(unit);
        hand.put_back();
        if code == 0 { Ok(()) } else { Err(Flaw("a code tells more words than its block has")) }
    }

    #[cold]
    fn flexes(&mut self, from: &mut Columns<'_>, entry: &Entry, burst: &mut Burst) -> Parse<()> {
        for step in &entry.block.steps {
            if let Step::Flex { slot } = step {
                let last = self.guesses.last_mut(slot.0);
                let count = get_runs(&mut from.flex, &mut burst.runs, last)?;
                burst.flexes.push(count as u32);
            }
        }
        Ok(())
    }
}

/// A block or chain comes for the first time in a chunk: nothing is known of its slots, but for those of a chain's blocks that came before.
#[cold]
fn forget(hand: &mut Hand<'_>, (unit, words): (Unit, &[Word]), roadmap: &Roadmap) {
    let Which::Chain(number) = unit.which() else {
        return words.iter().for_each(|word| hand.forget(word.slot.0));
    };
    let (blocks, _) = roadmap.chain(number).unwrap_or_default();
    for id in blocks {
        if hand.is_new(Unit::block(*id))
            && let Some(entry) = roadmap.get(*id)
        {
            entry.shape.words.iter().for_each(|word| hand.forget(word.slot.0));
        }
    }
}
