//! The packer of raw executions: what a thread stored becomes the columns of one stream chunk. The exact
//! inverse of `raw_unpack`.
//!
//! The thread is followed from place to place: executions of the expected unit are counted, each other one is told. What they take
//! becomes rows of tables, which are told when there are enough of them. This file is written for speed: it must keep up with
//! programs that run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{GuestVa, Leave, ProcessId, Register, Step, Totals, Width};

use crate::bytes::put_varint;
use crate::chunk::{MAX_INSNS, MAX_RECORDS};
use crate::columns::ColumnPacker;
use crate::error::Error;
use crate::flex::{Run, put_runs};
use crate::followed::{Change, Followed, ODD};
use crate::hash::QuickMap;
use crate::lore::{HIGH, Lore, NO_WAY, Numbers, Plans, Sort};
use crate::mark;
use crate::onward::Onward;
use crate::pack::{CODES, COLUMNS, FLEX, IDS, MARKS, MISSES, RUNS, put_leave};
use crate::places::{NOWHERE, Note, OTHER, Place, Places, Taking};
use crate::raw_flex::take_runs;
use crate::tables::{Stored, Tables};
use crate::tile::{PLANES, Told};

/// In a chunk of raw executions: how the words of tiles are guessed, and which of them are as guessed.
pub(crate) const HEADS: usize = CODES;
pub(crate) const BITS: usize = MISSES + PLANES;

/// The most executions and words that a chunk may have.
pub(crate) const MOST_RAW: usize = 1 << 23;

/// The most silent executions in a row: a reader keeps them together with what comes before.
pub(crate) const MOST_SILENT: usize = 1024;

/// With more records than this a chunk ends before the next executions that can begin one: whoever told them may have told fewer
/// instructions than there are.
const CLOSE_RECORDS: u64 = MAX_INSNS / 2;

/// After so many bytes of executions that is looked at: but for flexible ones, they have far fewer records than a chunk may have.
const LOOK: usize = 1 << 20;

/// So many bytes at least lie between executions that can begin a chunk, if one becomes several.
const APART: usize = 4096;

/// What a thread did, as far as it becomes one chunk; or several, if that has too many records for one.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) process: ProcessId,
    /// The registers that are known before the first execution, and one that must be followed.
    pub(crate) registers: Vec<(Register, u64)>,
    pub(crate) follows: Option<Register>,
    /// All executions, as [`Raw`](ichnos_base::Raw) has them.
    pub(crate) bytes: Vec<u8>,
    /// All events, one behind the other as marks hold them.
    pub(crate) events: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
    /// Before which pieces registers are known, and which.
    pub(crate) later: Vec<(usize, Vec<(Register, u64)>)>,
    /// Where the last such piece begins.
    noted: usize,
}

/// Where in what was gathered a chunk begins: the piece, and what is before it of all executions and events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct From {
    piece: usize,
    bytes: usize,
    events: usize,
}

/// What is left for another chunk.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) from: From,
    pub(crate) followed: Followed,
}

impl Gathered {
    /// The registers that are known before a piece which can begin a chunk.
    fn registers_before(&self, piece: usize) -> &[(Register, u64)] {
        let last = self.later.iter().rev().find(|(from, _)| *from <= piece);
        last.map_or(&self.registers, |(_, registers)| registers)
    }

    /// The next executions could begin a chunk: these registers are known before them. Whether they may, which takes memory, and so
    /// not all do.
    pub(crate) fn know(&mut self, registers: &[(Register, u64)]) -> bool {
        let apart = self.bytes.len() - self.noted >= APART;
        if apart {
            self.noted = self.bytes.len();
            self.later.push((self.pieces.len(), registers.to_vec()));
        }
        apart
    }

    /// Forgets all, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.registers.clear();
        self.follows = None;
        self.bytes.clear();
        self.events.clear();
        self.pieces.clear();
        self.later.clear();
        self.noted = 0;
    }
}

/// A piece of what a thread did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// Executions, up to there, how the last was left, and whether the first can begin a chunk.
    Executions(usize, Leave, bool),
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
    places: Places,
    tables: Tables,
    /// The last addresses of slots whose accesses are told one by one.
    flexible: QuickMap<u32, u64>,
    /// Words that do not lie in one piece in what was gathered.
    apart: Vec<u8>,
    zstd: ColumnPacker,
    /// Executions since the last mark, and expected ones since the last code.
    execs: u64,
    expected: u64,
    /// Where the thread is.
    at: usize,
    /// Where in what was gathered the last execution begins that was looked at by itself.
    pub(crate) place: usize,
    /// The execution of which it is open how it was left, by its place in the lore; and its words.
    open: Option<u32>,
    words: Vec<u8>,
    /// What a flexible execution consists of.
    parts: Parts,
    /// Silent executions since the last that was not.
    silent: usize,
    followed: Followed,
    /// Whether a silent block has set the followed register behind the open one.
    is_set: bool,
    /// Where in the marks the first executions begin.
    first: Option<usize>,
    totals: Totals,
}

/// What an execution with flexible accesses consists of.
#[derive(Debug, Default)]
struct Parts {
    words: Vec<u8>,
    runs: Vec<Run>,
    /// The slots of its flexible steps, and where their runs are.
    flexes: Vec<(u32, Range<usize>)>,
}

impl Parts {
    /// Forgets all, but keeps the memory.
    fn clear(&mut self) {
        self.words.clear();
        self.runs.clear();
        self.flexes.clear();
    }
}

impl RawPacker {
    pub(crate) fn new(level: i32) -> std::io::Result<Self> {
        Ok(Self {
            columns: Default::default(),
            lore: Lore::default(),
            places: Places::default(),
            tables: Tables::default(),
            flexible: QuickMap::default(),
            apart: Vec::new(),
            zstd: ColumnPacker::new(level)?,
            execs: 0,
            expected: 0,
            at: NOWHERE,
            place: 0,
            open: None,
            words: Vec::new(),
            parts: Parts::default(),
            silent: 0,
            followed: Followed::default(),
            is_set: false,
            first: None,
            totals: Totals::default(),
        })
    }

    /// Packs a chunk; `followed` knows of the register whose value comes from the chunk before. What there is too much of for one is left.
    pub(crate) fn pack(
        &mut self,
        plans: &Plans,
        gathered: &Gathered,
        Rest { from, followed }: Rest,
    ) -> Result<(Packed, Option<Rest>), Error> {
        self.lore.learn(plans, gathered.follows);
        self.begin(gathered, followed);
        let lore = std::mem::take(&mut self.lore);
        let done = self.pieces(&lore, gathered, from);
        let (blocks, totals) = (lore.ids, self.totals(&lore));
        self.lore = lore;
        let left = done?;
        let rest = left.map(|from| Rest { from, followed: self.followed.split() });
        self.put_mark(mark::END);
        put_varint(&mut self.columns[RUNS], self.expected << 1);
        self.put_registers(gathered.registers_before(from.piece))?;
        // Each execution and each word has four bytes at least.
        if gathered.bytes.len() / 4 > MOST_RAW {
            return Err(Error::Misuse("a raw buffer has more words than a chunk may have"));
        }
        if totals.insns > MAX_INSNS || totals.records() > MAX_RECORDS {
            return Err(Error::Misuse("a raw buffer has more records than a chunk may have"));
        }
        let (stored, mut told) = stored(&gathered.bytes, &self.apart, &mut self.columns);
        self.tables.end(&self.places, stored, &mut told);
        let packed = self.zstd.pack(&self.columns, None);
        let (payload, raw_len) = packed.map_err(|source| Error::Write { written: 0, source })?;
        Ok((Packed { payload, raw_len, totals, blocks }, rest))
    }

    /// What was counted.
    fn totals(&self, lore: &Lore) -> Totals {
        let mut totals = self.totals;
        for Place { note, .. } in &self.places.list {
            lore.way(note.way).tally.add_times(u64::from(note.runs), &mut totals);
        }
        totals
    }

    fn begin(&mut self, gathered: &Gathered, followed: Followed) {
        self.columns.iter_mut().for_each(Vec::clear);
        // An execution takes some eight bytes; few of them come to a new place of the table.
        let bits = (gathered.bytes.len() / 16).max(1).ilog2();
        let bits = bits.clamp(*mark::TABLE_BITS.start(), 16);
        self.columns[MARKS].extend_from_slice(&[mark::IS_RAW, bits as u8]);
        self.places.begin(bits);
        self.tables.begin();
        self.flexible.clear();
        self.apart.clear();
        (self.execs, self.expected, self.open, self.silent) = (0, 0, None, 0);
        self.at = NOWHERE;
        (self.followed, self.is_set, self.first) = (followed, false, None);
        self.totals = Totals::default();
    }

    /// Says what is known before the first execution, which for a register that is followed is only now certain; whoever packs the next
    /// chunk learns what it holds at the end of this one.
    fn put_registers(&mut self, known: &[(Register, u64)]) -> Result<(), Error> {
        let followed = self.followed.finish()?;
        let Some(first) = self.first else { return Ok(()) };
        let mut registers = known.to_vec();
        registers.extend(followed);
        let mut snapshot = Vec::new();
        mark::put_snapshot(&mut snapshot, &registers);
        self.columns[MARKS].splice(first..first, snapshot);
        Ok(())
    }

    /// Packs pieces; where it goes on if there are too many records.
    fn pieces(
        &mut self,
        lore: &Lore,
        gathered: &Gathered,
        From { piece, mut bytes, mut events }: From,
    ) -> Result<Option<From>, Error> {
        let mut leave = Leave::Silent;
        let mut look = bytes + LOOK;
        let numbers = lore.numbers(gathered.process);
        for (piece, is) in gathered.pieces.iter().enumerate().skip(piece) {
            match *is {
                Piece::Executions(end, left, can_begin) => {
                    // Those of flexible ones are counted there.
                    let is_much = self.totals.records() > CLOSE_RECORDS;
                    if can_begin && (is_much || bytes >= look) {
                        if self.totals(lore).records() > CLOSE_RECORDS {
                            self.leave(lore, leave)?;
                            return Ok(Some(From { piece, bytes, events }));
                        }
                        look = bytes + LOOK;
                    }
                    if self.first.is_none() {
                        self.put_mark(mark::SNAPSHOT);
                        self.first = Some(self.columns[MARKS].len());
                    }
                    let all = gathered.bytes.get(..end).unwrap_or_default();
                    let stretch = all.get(bytes..).unwrap_or_default();
                    if let Some(entry) = first_entry(&numbers, lore, stretch) {
                        if leave != Leave::Next(entry) && leave != Leave::Silent {
                            self.leave(lore, leave)?;
                        }
                        leave = left;
                    }
                    fetch(stretch);
                    self.executions(lore, &numbers, (all, bytes))?;
                    bytes = end;
                }
                Piece::Event(end) => {
                    self.leave(lore, std::mem::take(&mut leave))?;
                    let event = gathered.events.get(events..end).unwrap_or_default();
                    self.put_mark(mark::EVENT).extend_from_slice(event);
                    events = end;
                }
            }
        }
        self.leave(lore, leave)?;
        Ok(None)
    }

    /// The open execution was left like this, and a mark says so, or what comes next.
    fn leave(&mut self, lore: &Lore, leave: Leave) -> Result<(), Error> {
        let Some(place) = self.open.take() else { return Ok(()) };
        if !std::mem::take(&mut self.is_set) {
            run(&mut self.followed, lore, (place, &self.words), leave)?;
        }
        let whole = lore.whole(place);
        whole.inner.tally.add_to(&mut self.totals);
        self.totals.add(&whole.last.left_at(leave).totals);
        if leave != Leave::Silent {
            put_leave(self.mark(), leave);
        }
        Ok(())
    }

    /// Packs the executions that begin there, up to the end of these bytes.
    fn executions(
        &mut self,
        lore: &Lore,
        numbers: &Numbers,
        (all, mut start): (&[u8], usize),
    ) -> Result<(), Error> {
        loop {
            // Behind a silent block the open one is not the one before.
            if self.silent == 0 {
                start = self.plain(lore, numbers, (all, start))?;
            }
            self.place = start;
            let rest = all.get(start..).unwrap_or_default();
            let Some((identifier, words)) = rest.split_first_chunk() else { break };
            let Some(place) = numbers.find(u32::from_le_bytes(*identifier)) else {
                return Err(Error::Misuse("a raw buffer names a block or chain that is unknown"));
            };
            let brief = lore.get(place);
            let rest = if brief.sort == Sort::Flexible {
                self.flexible(lore, place, (all, words))?
            } else {
                let parts = words.split_at_checked(usize::from(brief.len));
                let (own, rest) = parts.ok_or(cut())?;
                self.execute(lore, place, (own, all.len() - words.len()), all)?;
                rest
            };
            start = all.len() - rest.len();
        }
        if start == all.len() { Ok(()) } else { Err(cut()) }
    }

    /// Packs plain executions as long as there is nothing else; where the next begins. Most executions are packed here.
    #[inline(never)]
    fn plain(
        &mut self,
        lore: &Lore,
        numbers: &Numbers,
        (all, start): (&[u8], usize),
    ) -> Result<usize, Error> {
        // The words of the block before, which is open, may have been kept.
        let kept = std::mem::take(&mut self.words);
        let bytes = all.get(start..).unwrap_or_default();
        let (at, expected) = (self.at, self.expected);
        let mut onward = Onward { bytes, held: &kept, at, expected, moved: 0, execs: 0 };
        loop {
            let runs = &mut self.columns[RUNS];
            onward.go(&mut self.places.list, self.tables.rows(), runs, all.len());
            if !self.other(lore, numbers, all, &mut onward)? {
                break;
            }
        }
        let Onward { bytes, held, at, expected, moved, execs, .. } = onward;
        self.expected = expected;
        self.followed.add(moved);
        if execs > 0 {
            self.execs += execs;
            (self.at, self.open) = (at, Some(self.places.list[at].note.lore));
        }
        self.words.extend_from_slice(held);
        Ok(all.len() - bytes.len())
    }

    /// Packs a plain execution that is not just to be counted, if the next is plain.
    fn other(
        &mut self,
        lore: &Lore,
        numbers: &Numbers,
        all: &[u8],
        onward: &mut Onward<'_>,
    ) -> Result<bool, Error> {
        let Some((identifier, rest)) = onward.bytes.split_first_chunk() else { return Ok(false) };
        let identifier = u32::from_le_bytes(*identifier);
        if identifier >= HIGH {
            return Ok(false);
        }
        let Some(place) = plain_place(lore, numbers, identifier) else { return Ok(false) };
        let parts = rest.split_at_checked(lore.get(place).len.into());
        let Some((words, rest)) = parts else { return Ok(false) };
        let Place { note: Note { lore: open, .. }, .. } = self.places.list[onward.at];
        let before = (onward.at != NOWHERE).then_some(open);
        let to = self.turn(lore, onward.at, (identifier, place), before, &mut onward.expected);
        let note = &mut self.places.list[to].note;
        note.runs += 1;
        let first = (all.len() - rest.len() - words.len()) as u32;
        let has_row = note.put_row(self.tables.rows(), first);
        let note = *note;
        if !has_row {
            self.make_row(to, first, all);
        }
        if note.moves == ODD {
            self.followed.add(std::mem::take(&mut onward.moved));
            let (way, next) = (note.way, note.lore);
            run_open(&mut self.followed, lore, (open, onward.held), (way, next))?;
        } else {
            onward.moved += i64::from(note.moves);
        }
        onward.execs += 1;
        (onward.held, onward.at, onward.bytes) = (words, to, rest);
        Ok(true)
    }

    /// Makes room for a row of a place, whose words begin there.
    #[cold]
    #[inline(never)]
    fn make_row(&mut self, place: usize, at: u32, all: &[u8]) {
        let (stored, mut told) = stored(all, &self.apart, &mut self.columns);
        self.tables.make_row((&mut self.places, place), at, stored, &mut told);
    }

    /// Another block or chain comes than was expected, or for the first time: where that is. It is told how that is reached.
    #[inline(never)]
    fn turn(
        &mut self,
        lore: &Lore,
        at: usize,
        (identifier, place): (u32, u32),
        open: Option<u32>,
        expected: &mut u64,
    ) -> usize {
        let brief = lore.get(place);
        let to = match self.places.next(at) {
            Some((next, unit)) if unit == brief.unit => {
                *expected += 1;
                next
            }
            _ => {
                let words = lore.words(brief).iter().copied();
                let taking = Taking { words, is_apart: brief.sort == Sort::Flexible };
                let (to, told) = self.places.turn(at, brief.unit, taking);
                put_varint(&mut self.columns[RUNS], std::mem::take(expected) << 1 | told);
                if told == OTHER {
                    put_varint(&mut self.columns[IDS], u64::from(brief.unit.0));
                }
                to
            }
        };
        let place_to = &mut self.places.list[to];
        let is_common = place_to.is_common();
        let note = &mut place_to.note;
        if note.identifier != identifier || is_common {
            let way = open.map_or(NO_WAY, |open| lore.left(open, lore.whole(place).entry));
            if note.way != way {
                let runs = std::mem::take(&mut note.runs);
                lore.way(note.way).tally.add_times(u64::from(runs), &mut self.totals);
            }
            // What came before one that stands for its unit may be something else the next time: it has to be looked up.
            let identifier = if is_common { Note::NO_IDENTIFIER } else { identifier };
            let (len, moves) = (brief.len, lore.way(way).change.moves());
            *note = Note { identifier, lore: place, len, way, moves, ..*note };
        }
        to
    }

    /// Packs one execution of whatever sort, whose words begin here.
    fn execute(
        &mut self,
        lore: &Lore,
        place: u32,
        (words, first): (&[u8], usize),
        all: &[u8],
    ) -> Result<(), Error> {
        let brief = lore.get(place);
        let is_silent = brief.sort == Sort::Silent;
        self.silent = if is_silent { self.silent + 1 } else { 0 };
        if self.silent > MOST_SILENT {
            return Err(Error::Misuse("a raw buffer has too many silent blocks in a row"));
        }
        let open = self.open.filter(|_| !is_silent);
        let mut expected = self.expected;
        let to = self.turn(lore, self.at, (Note::NO_IDENTIFIER, place), open, &mut expected);
        self.expected = expected;
        self.places.list[to].note.lore = place;
        if is_silent {
            self.is_set |= self.followed.set(&lore.whole(place).last, words)?;
        } else {
            let way = open.map_or(NO_WAY, |open| lore.left(open, lore.whole(place).entry));
            lore.way(way).tally.add_to(&mut self.totals);
            let is_set = std::mem::take(&mut self.is_set);
            if let Some(open) = open.filter(|_| !is_set) {
                run_open(&mut self.followed, lore, (open, &self.words), (way, place))?;
            }
            self.open = Some(place);
            self.words.clear();
            self.words.extend_from_slice(words);
        }
        let note = &mut self.places.list[to].note;
        if !note.put_row(self.tables.rows(), first as u32) {
            self.make_row(to, first as u32, all);
        }
        self.at = to;
        self.execs += 1;
        Ok(())
    }

    /// Packs one execution with flexible accesses, which lie between its words as its steps do; what is behind it.
    #[cold]
    fn flexible<'b>(
        &mut self,
        lore: &Lore,
        place: u32,
        (all, mut rest): (&[u8], &'b [u8]),
    ) -> Result<&'b [u8], Error> {
        let block = &lore.whole(place).last;
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        for step in block.steps.iter().filter(|step| step.takes()) {
            let len = match step {
                Step::Flex { slot } => {
                    let first = parts.runs.len();
                    take_runs(&mut rest, &mut parts.runs)?;
                    parts.flexes.push((slot.0, first..parts.runs.len()));
                    continue;
                }
                Step::Take { width: Width::Four, .. } => 4,
                _ => 8,
            };
            let (word, later) = rest.split_at_checked(len).ok_or(cut())?;
            parts.words.extend_from_slice(word);
            rest = later;
        }
        let first = self.apart.len();
        self.apart.extend_from_slice(&parts.words);
        self.execute(lore, place, (&parts.words, first), all)?;
        for (slot, runs) in &parts.flexes {
            let runs = parts.runs.get(runs.clone()).unwrap_or_default();
            put_runs(&mut self.columns[FLEX], runs, self.flexible.entry(*slot).or_default());
            runs.iter().for_each(|run| run.count(&mut self.totals));
        }
        self.parts = parts;
        Ok(rest)
    }

    fn put_mark(&mut self, tag: u8) -> &mut Vec<u8> {
        let out = self.mark();
        out.push(tag);
        out
    }

    /// A mark comes here. What comes behind it is not expected to go on from what came before.
    fn mark(&mut self) -> &mut Vec<u8> {
        self.at = NOWHERE;
        let out = &mut self.columns[MARKS];
        put_varint(out, std::mem::take(&mut self.execs));
        out
    }
}

/// Where words lie, and the columns in which they are told.
fn stored<'b, 'c>(
    bytes: &'b [u8],
    apart: &'b [u8],
    columns: &'c mut [Vec<u8>; COLUMNS],
) -> (Stored<'b>, Told<'c>) {
    let (first, rest) = columns.split_at_mut(MISSES);
    let (planes, rest) = rest.split_at_mut(PLANES);
    let told = Told { heads: &mut first[HEADS], bits: &mut rest[BITS - MISSES - PLANES], planes };
    (Stored { bytes, apart }, told)
}

/// The place in the lore of what has an identifier of the many, if it is plain.
// By itself, so that what is done for every execution finds its registers.
#[inline(never)]
fn plain_place(lore: &Lore, numbers: &Numbers, identifier: u32) -> Option<u32> {
    numbers.low(identifier).filter(|place| lore.get(*place).sort == Sort::Plain)
}

/// What was open, which took these words, was left for something else by a way that does not just move the followed register.
#[cold]
#[inline(never)]
fn run_open(
    followed: &mut Followed,
    lore: &Lore,
    (open, words): (u32, &[u8]),
    (way, next): (u32, u32),
) -> Result<(), Error> {
    match lore.way(way).change {
        Change::Moves(by) => followed.add(by.into()),
        Change::Takes(at, by) => followed.takes(words, at, by),
        Change::Odd => run(followed, lore, (open, words), Leave::Next(lore.whole(next).entry))?,
    }
    Ok(())
}

/// A block or chain was run that took these words, and left like this.
fn run(
    followed: &mut Followed,
    lore: &Lore,
    (place, mut words): (u32, &[u8]),
    leave: Leave,
) -> Result<(), Error> {
    for (inner, next) in lore.inner(place) {
        let own = words.split_at_checked(lore.get(inner).len.into());
        let (own, rest) = own.ok_or(cut())?;
        followed.run(&lore.whole(inner).last, Leave::Next(lore.whole(next).entry), own)?;
        words = rest;
    }
    followed.run(&lore.whole(place).last, leave, words)
}

/// Where the first execution begins that is not silent.
fn first_entry(numbers: &Numbers, lore: &Lore, mut bytes: &[u8]) -> Option<GuestVa> {
    loop {
        let identifier = take_checked(&mut bytes).map(u32::from_le_bytes)?;
        let brief = lore.get(numbers.find(identifier)?);
        if brief.sort != Sort::Silent {
            return Some(lore.whole(numbers.find(identifier)?).entry);
        }
        bytes = bytes.get(usize::from(brief.len)..)?;
    }
}

/// Reads bytes for the first time, one line of the processor's caches behind the other, which is quick: who follows executions goes on
/// too irregularly for that.
#[inline(never)]
fn fetch(bytes: &[u8]) {
    let any = bytes.iter().step_by(64).fold(0, |any, byte| any | byte);
    std::hint::black_box(any);
}

pub(crate) const fn cut() -> Error {
    Error::Misuse("a raw buffer ends inside an execution")
}

pub(crate) fn take_checked<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// The next word of so many bytes, which are there.
#[inline(always)]
pub(crate) fn take(words: &mut &[u8], wide: bool) -> u64 {
    if wide {
        take_checked(words).map_or(0, u64::from_le_bytes)
    } else {
        take_checked(words).map_or(0, |word| u64::from(u32::from_le_bytes(word)))
    }
}
