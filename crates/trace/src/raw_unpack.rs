//! The unpacker of raw executions: the columns of a chunk become executions and words again. Everything is
//! checked, as `unpack` does, which knows what lies between executions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, Leave, Step};

use crate::bytes::{Cursor, Parse};
use crate::error::Flaw;
use crate::flex::get_runs;
use crate::guess::{EXPECTED, Guesses};
use crate::misses::Misses;
use crate::pack::{CODES, COLUMNS, FLEX, IDS, MISSES, RUNS};
use crate::raw_pack::{CODE_BITS, CODE_WORDS, MOST_SILENT};
use crate::roadmap::{Entry, MAX_BLOCKS, Roadmap};
use crate::unpack::{BURST, Burst};

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
    id: BlockId,
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
        self.guesses.begin((roadmap.len() as u32, roadmap.slots()), bits);
        (self.expected, self.peeked) = (None, None);
    }

    /// Whether an execution was looked at that is not out yet.
    pub(crate) const fn has_peeked(&self) -> bool {
        self.peeked.is_some()
    }

    /// Fills a burst with some of the next executions, of which there are `left`; answers whether how the last was left
    /// follows from the next.
    pub(crate) fn fill(
        &mut self,
        (columns, at): (&[Vec<u8>; COLUMNS], &mut [usize; COLUMNS]),
        roadmap: &Roadmap,
        left: &mut u64,
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
        while let Some(Peeked { id, code }) = self.next(&mut from, left)? {
            let entry = roadmap.get(id).ok_or(Flaw("it needs a block that is not there"))?;
            if burst.blocks.len() >= BURST && !entry.shape.is_silent() {
                self.peeked = Some(Peeked { id, code });
                burst.leave = Leave::Next(entry.shape.entry);
                follows = true;
                break;
            }
            if burst.blocks.len() >= BURST + 2 * MOST_SILENT {
                return Err(Flaw("it has too many silent blocks in a row"));
            }
            burst.blocks.push(id);
            self.words(&mut from, (id, entry), code, &mut burst.words)?;
            if entry.shape.flexes > 0 {
                self.flexes(&mut from, entry, burst)?;
            }
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
            return Ok(Some(Peeked { id: place.expected().ok_or(none)?, code: 0 }));
        }
        self.expected = None;
        let code = from.codes.varint()?;
        if code & 1 != 0 {
            let id = from.ids.u32()?;
            if id >= MAX_BLOCKS {
                return Err(Flaw("it needs a block that is not there"));
            }
            place.expect(BlockId(id));
        }
        Ok(Some(Peeked { id: place.expected().ok_or(none)?, code }))
    }

    /// Appends the words of an execution.
    #[inline]
    fn words(
        &mut self,
        from: &mut Columns<'_>,
        (id, entry): (BlockId, &Entry),
        code: u64,
        out: &mut Vec<u64>,
    ) -> Parse<()> {
        let words = &*entry.shape.words;
        let mut hand = self.guesses.hand();
        if hand.is_new(id) {
            words.iter().for_each(|word| hand.forget(word.slot.0));
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
        hand.came(id);
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
