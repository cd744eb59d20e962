//! The packer of raw executions: what a thread stored becomes the columns of one stream chunk. The exact
//! inverse of `raw_unpack`.
//!
//! Executions of the expected unit with the expected words are counted; each other one has a code. This file is written for
//! speed: it must keep up with programs that run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{GuestVa, Leave, ProcessId, RefKind, Register, Step, Totals, Width};

use crate::bytes::put_varint;
use crate::chunk::MAX_RECORDS;
use crate::columns::ColumnPacker;
use crate::error::Error;
use crate::flex::{Lane, Run, put_runs};
use crate::followed::{Change, Followed, ODD};
use crate::guess::{
    EXPECTED, Guesses, Known, NEXT, NOWHERE, Note, OTHER, Place, Surprise, WRITTEN, Words,
};
use crate::lore::{Brief, HIGH, Lore, NO_WAY, Numbers, Plans, Sort};
use crate::mark;
use crate::misses::put_miss;
use crate::pack::{CODES, COLUMNS, FLEX, IDS, MARKS, MISSES, RUNS, put_leave};

/// Bits that tell a unit in a code, those that tell a word, and how many words a number of a code tells.
pub(crate) const UNIT_BITS: usize = 2;
pub(crate) const CODE_BITS: usize = 3;
pub(crate) const CODE_WORDS: usize = 20;

/// The bits of a code that tell its unit.
pub(crate) const UNIT_MASK: u64 = (1 << UNIT_BITS) - 1;

/// The most silent executions in a row: a reader keeps them together with what comes before.
pub(crate) const MOST_SILENT: usize = 1024;

/// What a thread did, as far as it becomes one chunk.
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
}

impl Gathered {
    /// Forgets all, but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.registers.clear();
        self.follows = None;
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
    guesses: Guesses,
    zstd: ColumnPacker,
    /// Executions since the last mark, and expected ones since the last code.
    execs: u64,
    expected: u64,
    /// Where the thread is.
    at: usize,
    /// The execution of which it is open how it was left, by its place in the lore; and its words.
    open: Option<u32>,
    words: Vec<u8>,
    /// What a flexible execution consists of, and the numbers that tell one that is not plain.
    parts: Parts,
    codes: Vec<u64>,
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
            guesses: Guesses::default(),
            zstd: ColumnPacker::new(level)?,
            execs: 0,
            expected: 0,
            at: NOWHERE,
            open: None,
            words: Vec::new(),
            parts: Parts::default(),
            codes: Vec::new(),
            silent: 0,
            followed: Followed::default(),
            is_set: false,
            first: None,
            totals: Totals::default(),
        })
    }

    /// Packs a chunk; `followed` knows of the register whose value comes from the chunk before.
    pub(crate) fn pack(
        &mut self,
        plans: &Plans,
        gathered: &Gathered,
        followed: Followed,
    ) -> Result<Packed, Error> {
        self.lore.learn(plans, gathered.follows);
        self.begin(gathered, followed);
        let lore = std::mem::take(&mut self.lore);
        let done = self.pieces(&lore, gathered);
        let blocks = lore.ids;
        count(&lore, &self.guesses.places, &mut self.totals);
        self.lore = lore;
        done?;
        self.put_mark(mark::END);
        put_varint(&mut self.columns[RUNS], self.expected);
        self.put_registers(&gathered.registers)?;
        let packed = self.zstd.pack(&self.columns, None);
        let (payload, raw_len) = packed.map_err(|source| Error::Write { written: 0, source })?;
        let totals = self.totals;
        if totals.insns + totals.references() + totals.branches > MAX_RECORDS {
            return Err(Error::Misuse("a raw buffer has more records than a chunk may have"));
        }
        Ok(Packed { payload, raw_len, totals, blocks })
    }

    fn begin(&mut self, gathered: &Gathered, followed: Followed) {
        self.columns.iter_mut().for_each(Vec::clear);
        // An execution takes some eight bytes; few of them come to a new place of the table.
        let bits = (gathered.bytes.len() / 16).max(1).ilog2();
        let bits = bits.clamp(*mark::TABLE_BITS.start(), 16);
        self.columns[MARKS].extend_from_slice(&[mark::IS_RAW, bits as u8]);
        self.guesses.begin(self.lore.slots, bits);
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

    fn pieces(&mut self, lore: &Lore, gathered: &Gathered) -> Result<(), Error> {
        let (mut bytes, mut events) = (0, 0);
        let mut leave = Leave::Silent;
        let numbers = lore.numbers(gathered.process);
        for piece in &gathered.pieces {
            match *piece {
                Piece::Executions(end, left) => {
                    if self.first.is_none() {
                        self.put_mark(mark::SNAPSHOT);
                        self.first = Some(self.columns[MARKS].len());
                    }
                    let stretch = gathered.bytes.get(bytes..end).unwrap_or_default();
                    if let Some(entry) = first_entry(&numbers, lore, stretch) {
                        if leave != Leave::Next(entry) && leave != Leave::Silent {
                            self.leave(lore, leave)?;
                        }
                        leave = left;
                    }
                    self.executions(lore, &numbers, stretch)?;
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
        self.leave(lore, leave)
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

    fn executions(
        &mut self,
        lore: &Lore,
        numbers: &Numbers,
        mut bytes: &[u8],
    ) -> Result<(), Error> {
        loop {
            // Behind a silent block the open one is not the one before.
            if self.silent == 0 {
                bytes = self.plain(lore, numbers, bytes)?;
            }
            let Some((identifier, rest)) = bytes.split_first_chunk() else { break };
            let Some(place) = numbers.find(u32::from_le_bytes(*identifier)) else {
                return Err(Error::Misuse("a raw buffer names a block or chain that is unknown"));
            };
            let brief = lore.get(place);
            if brief.sort == Sort::Flexible {
                bytes = self.flexible(lore, place, rest)?;
                continue;
            }
            let Some((words, rest)) = rest.split_at_checked(usize::from(brief.len)) else {
                return Err(cut());
            };
            self.execute(lore, place, words)?;
            bytes = rest;
        }
        if bytes.is_empty() { Ok(()) } else { Err(cut()) }
    }

    /// Packs plain executions as long as there is nothing else; what is behind them. Most executions are packed here.
    #[inline(never)]
    fn plain<'b>(
        &mut self,
        lore: &Lore,
        numbers: &Numbers,
        mut bytes: &'b [u8],
    ) -> Result<&'b [u8], Error> {
        // The words of the block before, which is open, may have been kept.
        let kept = std::mem::take(&mut self.words);
        let mut held = &*kept;
        let (mut at, mut execs, mut expected, mut moved) = (self.at, 0, self.expected, 0_i64);
        while let Some((identifier, rest)) = bytes.split_first_chunk() {
            let identifier = u32::from_le_bytes(*identifier);
            if identifier >= HIGH {
                break;
            }
            // A turn may make all places forgotten.
            let Place { next, note: Note { lore: open, .. }, .. } = self.guesses.places[at];
            let (mut to, mut code) = (next as usize, NEXT);
            if self.guesses.places[to].note.identifier != identifier {
                let Some(place) = plain_place(lore, numbers, identifier) else { break };
                let open = (at != NOWHERE).then_some(open);
                (to, code) = self.turn(lore, at, (identifier, place), open);
            }
            let Guesses { places, known, words: guesses, .. } = &mut self.guesses;
            let place = &mut places[to];
            let Some((words, rest)) = rest.split_at_checked(place.note.len as usize) else { break };
            place.note.runs += 1;
            let note = place.note;
            if note.moves == ODD {
                self.followed.add(std::mem::take(&mut moved));
                run_open(&mut self.followed, lore, (open, held), (note.way, note.lore))?;
            } else {
                moved += i64::from(note.moves);
            }
            let place = &mut places[to];
            code |= put_words(&mut known[place.all()], words, guesses, &mut self.columns);
            if code == place.code {
                expected += 1;
            } else {
                place.code = code & !UNIT_MASK;
                let brief = lore.get(place.note.lore);
                put_code(&mut self.columns, &mut expected, brief, code);
            }
            (held, at, bytes) = (words, to, rest);
            execs += 1;
        }
        self.expected = expected;
        self.followed.add(moved);
        if execs > 0 {
            self.execs += execs;
            (self.at, self.open) = (at, Some(self.guesses.places[at].note.lore));
        }
        self.words.extend_from_slice(held);
        Ok(bytes)
    }

    /// Another block or chain comes than was expected, or for the first time: where that is, and how it is told.
    #[inline(never)]
    fn turn(
        &mut self,
        lore: &Lore,
        at: usize,
        (identifier, place): (u32, u32),
        open: Option<u32>,
    ) -> (usize, u64) {
        let brief = lore.get(place);
        let next = self.guesses.places[at].next as usize;
        let (to, code) = if self.guesses.places[next].is(brief.unit) {
            (next, NEXT)
        } else {
            let words = lore.words(brief).iter().map(|word| (word.slot, word.taken));
            let count = |places: &[Place]| count(lore, places, &mut self.totals);
            self.guesses.turn(at, (brief.unit, words), count)
        };
        let note = &mut self.guesses.places[to].note;
        if note.identifier != identifier {
            let way = open.map_or(NO_WAY, |open| lore.left(open, lore.whole(place).entry));
            let (len, moves) = (u32::from(brief.len), lore.way(way).change.moves());
            *note = Note { identifier, lore: place, len, way, moves, runs: note.runs };
        }
        (to, code)
    }

    /// Packs one execution of whatever sort.
    fn execute(&mut self, lore: &Lore, place: u32, mut words: &[u8]) -> Result<(), Error> {
        let brief = lore.get(place);
        let is_silent = brief.sort == Sort::Silent;
        self.silent = if is_silent { self.silent + 1 } else { 0 };
        if self.silent > MOST_SILENT {
            return Err(Error::Misuse("a raw buffer has too many silent blocks in a row"));
        }
        let open = self.open.filter(|_| !is_silent);
        let (to, first) = self.turn(lore, self.at, (Note::NO_IDENTIFIER, place), open);
        self.guesses.places[to].note.lore = place;
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
        let mut codes = std::mem::take(&mut self.codes);
        codes.clear();
        codes.push(first);
        let Guesses { places, known, words: guesses, .. } = &mut self.guesses;
        for (nth, known) in known[places[to].all()].iter_mut().enumerate() {
            let word = take(&mut words, known.taken.is_wide());
            let told = match guesses.surprise(known, word) {
                Some(surprise) => put_word(known, surprise, guesses, &mut self.columns),
                None => EXPECTED,
            };
            if nth > 0 && nth % CODE_WORDS == 0 {
                codes.push(0);
            }
            let shift = nth % CODE_WORDS * CODE_BITS + if nth < CODE_WORDS { UNIT_BITS } else { 0 };
            if let Some(code) = codes.last_mut() {
                *code |= u64::from(told) << shift;
            }
        }
        self.at = to;
        self.execs += 1;
        let place = &mut places[to];
        if codes[0] == place.code && codes[1..].iter().all(|code| *code == 0) {
            self.expected += 1;
        } else {
            // What takes more than one number is never expected but without surprises.
            if codes.len() == 1 {
                place.code = codes[0] & !UNIT_MASK;
            }
            put_code(&mut self.columns, &mut self.expected, brief, codes[0]);
            codes[1..].iter().for_each(|code| put_varint(&mut self.columns[CODES], *code));
        }
        self.codes = codes;
        Ok(())
    }

    /// Packs one execution with flexible accesses, which lie between its words as its steps do; what is behind it.
    #[cold]
    fn flexible<'b>(
        &mut self,
        lore: &Lore,
        place: u32,
        bytes: &'b [u8],
    ) -> Result<&'b [u8], Error> {
        let block = &lore.whole(place).last;
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let mut rest = bytes;
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
        self.execute(lore, place, &parts.words)?;
        for (slot, runs) in &parts.flexes {
            let runs = parts.runs.get(runs.clone()).unwrap_or_default();
            put_runs(&mut self.columns[FLEX], runs, self.guesses.last_mut(*slot));
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

/// The place in the lore of what has an identifier of the many, if it is plain.
// By itself, so that what is done for every execution finds its registers.
#[inline(never)]
fn plain_place(lore: &Lore, numbers: &Numbers, identifier: u32) -> Option<u32> {
    numbers.low(identifier).filter(|place| lore.get(*place).sort == Sort::Plain)
}

/// Counts what was executed, as far as places know that.
fn count(lore: &Lore, places: &[Place], totals: &mut Totals) {
    for Place { note, .. } in places {
        lore.way(note.way).tally.add_times(u64::from(note.runs), totals);
    }
}

/// Packs the words of an execution, at most [`CODE_WORDS`]; the code that tells them.
#[inline(always)]
fn put_words(
    known: &mut [Known],
    mut bytes: &[u8],
    words: &mut Words,
    columns: &mut [Vec<u8>; COLUMNS],
) -> u64 {
    let (mut code, mut shift) = (0, UNIT_BITS);
    for known in known {
        let word = take(&mut bytes, known.taken.is_wide());
        if let Some(surprise) = words.surprise(known, word) {
            code |= u64::from(put_word(known, surprise, words, columns)) << shift;
        }
        shift += CODE_BITS;
    }
    code
}

/// Packs a word that was a surprise; how it is told.
#[inline(never)]
fn put_word(
    known: &mut Known,
    surprise: Surprise,
    words: &mut Words,
    columns: &mut [Vec<u8>; COLUMNS],
) -> u32 {
    let (told, difference) = words.encode(known, surprise);
    if told == WRITTEN {
        put_miss(&mut columns[MISSES..], known.slot, difference);
    }
    told
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

/// Writes the code of an execution that was not expected.
#[inline(never)]
fn put_code(columns: &mut [Vec<u8>; COLUMNS], expected: &mut u64, brief: &Brief, code: u64) {
    put_varint(&mut columns[RUNS], std::mem::take(expected));
    put_varint(&mut columns[CODES], code);
    if code & UNIT_MASK == OTHER {
        put_varint(&mut columns[IDS], u64::from(brief.unit.0));
    }
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

const fn cut() -> Error {
    Error::Misuse("a raw buffer ends inside an execution")
}

/// Takes the runs of a flexible step.
fn take_runs(bytes: &mut &[u8], runs: &mut Vec<Run>) -> Result<(), Error> {
    let none = Error::Misuse("a raw buffer describes no access");
    let count = take_checked(bytes).map(u32::from_le_bytes).ok_or(cut())?;
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
    Ok(())
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
#[inline(always)]
pub(crate) fn take(words: &mut &[u8], wide: bool) -> u64 {
    if wide {
        take_checked(words).map_or(0, u64::from_le_bytes)
    } else {
        take_checked(words).map_or(0, |word| u64::from(u32::from_le_bytes(word)))
    }
}
