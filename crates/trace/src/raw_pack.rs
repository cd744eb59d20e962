//! The packer of raw executions: what a thread stored becomes the columns of one stream chunk. The exact
//! inverse of `raw_unpack`.
//!
//! Executions of the expected block with the expected words are counted; each other one has a code. This file is written for
//! speed: it must keep up with programs that run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use ichnos_base::{GuestVa, Leave, ProcessId, RefKind, Register, Step, Totals, Width};

use crate::bytes::put_varint;
use crate::chunk::MAX_RECORDS;
use crate::columns::ColumnPacker;
use crate::error::Error;
use crate::flex::{Lane, Run, put_runs};
use crate::guess::{EXPECTED, Guesses, Next, WRITTEN};
use crate::lore::{Brief, Lore, Numbers, Plans, Sort, Ways};
use crate::mark;
use crate::misses::put_miss;
use crate::pack::{CODES, COLUMNS, FLEX, IDS, MARKS, MISSES, RUNS, put_leave};

/// Bits that tell a word in a code, and how many words the first number of a code tells, beside the block.
pub(crate) const CODE_BITS: usize = 3;
pub(crate) const CODE_WORDS: usize = 20;

/// The most silent executions in a row: a reader keeps them together with what comes before.
pub(crate) const MOST_SILENT: usize = 1024;

/// What a thread did, as far as it becomes one chunk.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) process: ProcessId,
    /// The registers that are known before the first execution.
    pub(crate) registers: Vec<(Register, u64)>,
    /// All executions, as [`Raw`](ichnos_base::Raw) has them.
    pub(crate) bytes: Vec<u8>,
    /// All events, one behind the other as marks hold them.
    pub(crate) events: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
}

impl Gathered {
    /// Forgets all, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.registers.clear();
        self.bytes.clear();
        self.events.clear();
        self.pieces.clear();
    }
}

/// A piece of what a thread did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// Executions, up to there, and how the last was left.
    Executions(usize, Leave),
    /// An event, up to there.
    Event(usize),
}

/// A chunk that is packed.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) payload: Vec<u8>,
    pub(crate) raw_len: usize,
    pub(crate) totals: Totals,
    pub(crate) blocks: u32,
}

/// Packs one chunk after the other.
#[derive(Debug)]
pub(crate) struct RawPacker {
    columns: [Vec<u8>; COLUMNS],
    lore: Lore,
    ways: Ways,
    guesses: Guesses,
    zstd: ColumnPacker,
    /// Executions since the last mark, and expected ones since the last code.
    execs: u64,
    expected: u64,
    /// The execution of which it is open how it was left, by its place in the lore.
    open: Option<u32>,
    totals: Totals,
}

impl RawPacker {
    pub(crate) fn new(level: i32) -> std::io::Result<Self> {
        Ok(Self {
            columns: Default::default(),
            lore: Lore::default(),
            ways: Ways::default(),
            guesses: Guesses::default(),
            zstd: ColumnPacker::new(level)?,
            execs: 0,
            expected: 0,
            open: None,
            totals: Totals::default(),
        })
    }

    /// Packs a chunk.
    pub(crate) fn pack(&mut self, plans: &Plans, gathered: &Gathered) -> Result<Packed, Error> {
        self.lore.learn(&mut self.ways, plans);
        self.begin(gathered);
        let lore = std::mem::take(&mut self.lore);
        let done = self.pieces(&lore, gathered);
        self.ways.add_to(&mut self.totals);
        let blocks = lore.ids;
        self.lore = lore;
        done?;
        self.put_mark(mark::END);
        put_varint(&mut self.columns[RUNS], self.expected);
        let packed = self.zstd.pack(&self.columns, None);
        let (payload, raw_len) = packed.map_err(|source| Error::Write { written: 0, source })?;
        let totals = self.totals;
        if totals.insns + totals.references() + totals.branches > MAX_RECORDS {
            return Err(Error::Misuse("a raw buffer has more records than a chunk may have"));
        }
        Ok(Packed { payload, raw_len, totals, blocks })
    }

    fn begin(&mut self, gathered: &Gathered) {
        self.columns.iter_mut().for_each(Vec::clear);
        // An execution takes some eight bytes; so does a place of the table.
        let bits = (gathered.bytes.len() / 16).max(1).ilog2();
        let bits = bits.clamp(*mark::TABLE_BITS.start(), 16);
        self.columns[MARKS].extend_from_slice(&[mark::IS_RAW, bits as u8]);
        self.guesses.begin(self.lore.slots, bits);
        self.ways.begin();
        (self.execs, self.expected, self.open) = (0, 0, None);
        self.totals = Totals::default();
    }

    fn pieces(&mut self, lore: &Lore, gathered: &Gathered) -> Result<(), Error> {
        let (mut bytes, mut events, mut fresh) = (0, 0, true);
        let mut leave = Leave::Silent;
        for piece in &gathered.pieces {
            match *piece {
                Piece::Executions(end, left) => {
                    if std::mem::take(&mut fresh) {
                        mark::put_snapshot(self.put_mark(mark::SNAPSHOT), &gathered.registers);
                    }
                    let stretch = gathered.bytes.get(bytes..end).unwrap_or_default();
                    let numbers = lore.numbers(gathered.process);
                    if let Some(entry) = first_entry(&numbers, lore, stretch) {
                        if leave != Leave::Next(entry) && leave != Leave::Silent {
                            self.leave(lore, leave);
                        }
                        leave = left;
                    }
                    self.executions(lore, gathered.process, stretch)?;
                    bytes = end;
                }
                Piece::Event(end) => {
                    self.leave(lore, std::mem::take(&mut leave));
                    let event = gathered.events.get(events..end).unwrap_or_default();
                    self.put_mark(mark::EVENT).extend_from_slice(event);
                    events = end;
                }
            }
        }
        self.leave(lore, leave);
        Ok(())
    }

    /// The open execution was left like this.
    fn leave(&mut self, lore: &Lore, leave: Leave) {
        let Some(place) = self.open.take() else { return };
        self.totals.add(&lore.whole(place).left_at(leave).totals);
        if leave != Leave::Silent {
            let columns = &mut self.columns[MARKS];
            put_varint(columns, std::mem::take(&mut self.execs));
            put_leave(columns, leave);
        }
    }

    fn executions(
        &mut self,
        lore: &Lore,
        process: ProcessId,
        mut bytes: &[u8],
    ) -> Result<(), Error> {
        let (numbers, mut silent) = (lore.numbers(process), 0);
        while let Some((identifier, rest)) = bytes.split_first_chunk() {
            let Some(place) = numbers.find(u32::from_le_bytes(*identifier)) else {
                return Err(Error::Misuse("a raw buffer names a block that is unknown"));
            };
            let brief = lore.get(place);
            if brief.sort == Sort::Flexible {
                bytes = self.flexible(lore, (place, brief), rest)?;
                continue;
            }
            let Some((words, rest)) = rest.split_at_checked(usize::from(brief.len)) else {
                return Err(cut());
            };
            silent = if brief.sort == Sort::Silent { silent + 1 } else { 0 };
            if silent > MOST_SILENT {
                return Err(Error::Misuse("a raw buffer has too many silent blocks in a row"));
            }
            self.execute(lore, (place, brief), words);
            bytes = rest;
        }
        if bytes.is_empty() { Ok(()) } else { Err(cut()) }
    }

    /// Packs one execution.
    #[inline(always)]
    fn execute(&mut self, lore: &Lore, (place, brief): (u32, &Brief), mut words: &[u8]) {
        let next = self.guesses.next();
        let is_next = next.id == brief.id.0;
        if !is_next {
            *next = Next { id: brief.id.0, note: 0 };
        }
        if brief.sort != Sort::Silent
            && let Some(open) = self.open.replace(place)
        {
            let guess = next.note.checked_sub(1);
            next.note = self.ways.left(lore, open, brief.entry, guess) + 1;
        }
        let first = u64::from(!is_next);
        let taken = lore.words(brief);
        if taken.len() > CODE_WORDS {
            return self.execute_long(lore, brief, words, first);
        }
        let (mut code, mut shift) = (first, 1);
        for word in taken {
            let value = take(&mut words, word.taken.is_wide());
            let (told, number) = self.guesses.encode(word.slot, word.taken, value);
            if told == WRITTEN {
                put_miss(&mut self.columns[MISSES..], word.slot, number);
            }
            code |= u64::from(told) << shift;
            shift += CODE_BITS;
        }
        self.guesses.came(brief.id);
        self.execs += 1;
        if code == 0 {
            self.expected += 1;
        } else {
            self.put_code(brief, code);
        }
    }

    /// The same for one with many words.
    #[cold]
    #[inline(never)]
    fn execute_long(&mut self, lore: &Lore, brief: &Brief, mut words: &[u8], first: u64) {
        let (mut codes, mut expected) = (vec![first], first == 0);
        for (i, word) in lore.words(brief).iter().enumerate() {
            let value = take(&mut words, word.taken.is_wide());
            let (told, number) = self.guesses.encode(word.slot, word.taken, value);
            if told == WRITTEN {
                put_miss(&mut self.columns[MISSES..], word.slot, number);
            }
            expected &= told == EXPECTED;
            if i > 0 && i % CODE_WORDS == 0 {
                codes.push(0);
            }
            let shift = i % CODE_WORDS * CODE_BITS + usize::from(i < CODE_WORDS);
            if let Some(code) = codes.last_mut() {
                *code |= u64::from(told) << shift;
            }
        }
        self.guesses.came(brief.id);
        self.execs += 1;
        if expected {
            self.expected += 1;
            return;
        }
        self.put_code(brief, codes[0]);
        codes[1..].iter().for_each(|code| put_varint(&mut self.columns[CODES], *code));
    }

    /// Writes the code of an execution that was not expected.
    #[inline(never)]
    fn put_code(&mut self, brief: &Brief, code: u64) {
        put_varint(&mut self.columns[RUNS], std::mem::take(&mut self.expected));
        put_varint(&mut self.columns[CODES], code);
        if code & 1 != 0 {
            put_varint(&mut self.columns[IDS], u64::from(brief.id.0));
        }
    }

    /// Packs one execution with flexible accesses, which lie between its words as its steps do; what is behind it.
    #[cold]
    fn flexible<'b>(
        &mut self,
        lore: &Lore,
        (place, brief): (u32, &Brief),
        bytes: &'b [u8],
    ) -> Result<&'b [u8], Error> {
        let block = Arc::clone(lore.whole(place));
        let (mut rest, mut words, mut flexes) = (bytes, Vec::new(), Vec::new());
        for step in block.steps.iter().filter(|step| step.takes()) {
            let len = match step {
                Step::Flex { slot } => {
                    flexes.push((slot.0, take_runs(&mut rest)?));
                    continue;
                }
                Step::Take { width: Width::Four, .. } => 4,
                _ => 8,
            };
            let (word, later) = rest.split_at_checked(len).ok_or(cut())?;
            words.extend_from_slice(word);
            rest = later;
        }
        self.execute(lore, (place, brief), &words);
        for (slot, runs) in &flexes {
            put_runs(&mut self.columns[FLEX], runs, self.guesses.last_mut(*slot));
            runs.iter().for_each(|run| run.count(&mut self.totals));
        }
        Ok(rest)
    }

    fn put_mark(&mut self, tag: u8) -> &mut Vec<u8> {
        let out = &mut self.columns[MARKS];
        put_varint(out, std::mem::take(&mut self.execs));
        out.push(tag);
        out
    }
}

/// Where the first execution begins that is not silent.
fn first_entry(numbers: &Numbers, lore: &Lore, mut bytes: &[u8]) -> Option<GuestVa> {
    loop {
        let identifier = take_checked(&mut bytes).map(u32::from_le_bytes)?;
        let brief = lore.get(numbers.find(identifier)?);
        if brief.sort != Sort::Silent {
            return Some(brief.entry);
        }
        bytes = bytes.get(usize::from(brief.len)..)?;
    }
}

const fn cut() -> Error {
    Error::Misuse("a raw buffer ends inside an execution")
}

/// The runs of a flexible step.
fn take_runs(bytes: &mut &[u8]) -> Result<Vec<Run>, Error> {
    let none = Error::Misuse("a raw buffer describes no access");
    let count = take_checked(bytes).map(u32::from_le_bytes).ok_or(cut())?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let turns = take_checked(bytes).map(u32::from_le_bytes).ok_or(cut())?;
        let lanes = take_checked(bytes).map(u32::from_le_bytes).ok_or(cut())?;
        let first = take_lane(bytes)?;
        let second = if lanes > 1 { Some(take_lane(bytes)?) } else { None };
        if turns == 0 || !(1..=2).contains(&lanes) {
            return Err(none);
        }
        runs.push(Run { count: turns, first, second });
    }
    Ok(runs)
}

fn take_lane(bytes: &mut &[u8]) -> Result<Lane, Error> {
    let mut word = || take_checked(bytes).map(u64::from_le_bytes).ok_or(cut());
    let (what, base, stride) = (word()?, GuestVa(word()?), word()?);
    let none = Error::Misuse("a raw buffer describes no access");
    let (kind, flags, size) = RefKind::described(what).ok_or(none)?;
    Ok(Lane { kind, flags, size, base, stride })
}

fn take_checked<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// The next word of so many bytes, which are there.
#[inline]
fn take(words: &mut &[u8], wide: bool) -> u64 {
    if wide {
        take_checked(words).map_or(0, u64::from_le_bytes)
    } else {
        take_checked(words).map_or(0, |word| u64::from(u32::from_le_bytes(word)))
    }
}
