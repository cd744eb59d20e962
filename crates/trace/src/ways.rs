//! Executions that a source tells by numbers of its own ([`Paths`](ichnos_base::Paths)), as blocks of the
//! roadmap: which ones they are is found out once and then looked up.
//!
//! A source's block and the roadmap's need not be the same: a path goes on through whatever falls through to what
//! follows, up to a number of instructions. So there is an automaton. Its states are open paths, of which number
//! 0 is the empty one; a source's block leads from one to another, and perhaps completes blocks on the way. What it
//! does is what [`Path`] does with the records, so that records and paths make the same file.
//!
//! Invariants: a turn's blocks are plain, and their words are the words told since the path was empty, in
//! order. Whatever does not keep this is [`Turn::SLOW`]: its records are laid out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::hash::{DefaultHasher, Hash, Hasher};

use ichnos_base::{BlockId, GuestVa, ProcessId, Record, RefKind};

use crate::book::Book;
use crate::error::Error;
use crate::hash::QuickMap;
use crate::path::{Due, Path};

/// The most states of a process. A program has a few for each of its blocks; beyond this they are found anew.
const MAX_STATES: usize = 1 << 18;

/// Stands for no block.
pub(crate) const NONE: u32 = u32::MAX;

/// What a source's block does to an open path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// The blocks that it completes; [`NONE`] where there is none.
    pub(crate) blocks: [u32; 2],
    /// The path that is open afterwards.
    pub(crate) then: u32,
    /// Whether the last block that it completes ends with a branch that is taken.
    pub(crate) taken: bool,
    slow: bool,
}

impl Turn {
    const UNKNOWN: Self = Self { blocks: [NONE; 2], then: NONE, taken: false, slow: false };
    /// The records must be looked at.
    const SLOW: Self = Self { blocks: [NONE; 2], then: NONE, taken: false, slow: true };

    #[inline]
    pub(crate) const fn is_unknown(&self) -> bool {
        self.then == NONE
    }
}

/// An open path.
#[derive(Debug)]
struct State {
    /// Its records, with meaningless addresses of accesses.
    records: Vec<Record>,
    words: usize,
    /// What blocks of the source do to it, the last one first.
    last: (u32, Turn),
    turns: Vec<(u32, Turn)>,
}

/// One process's automaton.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// What blocks of the source do to the empty path.
    first: Vec<Turn>,
    states: Vec<State>,
    /// The states by their records' hash: there is one for each path.
    by_hash: QuickMap<u64, Vec<u32>>,
}

/// A source's block to come.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) id: BlockId,
    pub(crate) records: &'a [Record],
    /// Whether its last record is a branch that was taken, and where that went.
    pub(crate) taken: bool,
    pub(crate) next: GuestVa,
}

impl Way<'_> {
    /// The records as they were, but for addresses of accesses.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let last = self.records.len().wrapping_sub(1);
        let told = move |(i, record): (usize, &Record)| match *record {
            Record::Branch { .. } if i == last && self.taken => {
                Record::Branch { taken: true, target: self.next }
            }
            Record::Branch { target, .. } => Record::Branch { taken: false, target },
            other => other,
        };
        self.records.iter().enumerate().map(told)
    }
}

/// A record with its address, if it has one.
pub(crate) fn filled(record: Record, words: &mut impl Iterator<Item = u64>) -> Option<Record> {
    match RefKind::of(&record) {
        Some((kind, flags, size, _)) => Some(kind.record(flags, size, GuestVa(words.next()?))),
        None => Some(record),
    }
}

impl Ways {
    /// What a source's block does to an open path, if that is known.
    #[inline]
    pub(crate) fn turn(&mut self, open: u32, way: BlockId) -> Turn {
        if open == 0 {
            return self.first.get(way.index()).copied().unwrap_or(Turn::UNKNOWN);
        }
        let Some(state) = self.states.get_mut(open as usize - 1) else { return Turn::UNKNOWN };
        if state.last.0 != way.0 {
            let Some(known) = state.turns.iter().find(|turn| turn.0 == way.0) else {
                return Turn::UNKNOWN;
            };
            state.last = *known;
        }
        state.last.1
    }

    /// Whether there are so many states that it is time to begin anew.
    pub(crate) fn is_full(&self) -> bool {
        self.states.len() >= MAX_STATES
    }

    /// The records of an open path, without addresses, and how many words they take.
    pub(crate) fn open_path(&self, open: u32) -> (&[Record], usize) {
        let state = (open as usize).checked_sub(1).and_then(|at| self.states.get(at));
        state.map_or((&[], 0), |state| (&state.records, state.words))
    }

    /// Finds out what a source's block does. Nothing, if its records must be looked at each time.
    #[cold]
    pub(crate) fn learn(
        &mut self,
        book: &mut Book,
        process: ProcessId,
        open: u32,
        way: &Way<'_>,
    ) -> Result<Option<Turn>, Error> {
        let known = self.turn(open, way.id);
        if known.slow {
            return Ok(None);
        }
        let turn = self.find_out(book, process, open, way)?;
        self.keep(open, way.id, turn);
        Ok(Some(turn).filter(|turn| !turn.slow))
    }

    fn find_out(
        &mut self,
        book: &mut Book,
        process: ProcessId,
        open: u32,
        way: &Way<'_>,
    ) -> Result<Turn, Error> {
        let mut path = Path::default();
        let mut done = Vec::new();
        let before = self.open_path(open).0.to_vec();
        for record in before.into_iter().chain(way.records()) {
            if path.before(&record) == Due::Path {
                done.push(path.complete());
            }
            let due = path.take(&record);
            if !path.loose.is_empty() {
                return Ok(Turn::SLOW);
            }
            if due == Due::Path {
                done.push(path.complete());
            }
        }
        let mut turn = Turn { then: 0, taken: way.taken, ..Turn::UNKNOWN };
        // Where the path goes on, what is complete ended before.
        turn.taken &= path.records.is_empty();
        if done.len() > turn.blocks.len() {
            return Ok(Turn::SLOW);
        }
        for (block, records) in turn.blocks.iter_mut().zip(&done) {
            let Some(id) = book.find(process, BlockId(NONE), records)? else {
                return Ok(Turn::SLOW);
            };
            if !book.roadmap.get(id).is_some_and(|entry| entry.shape.plain) {
                return Ok(Turn::SLOW);
            }
            *block = id.0;
        }
        if !path.records.is_empty() {
            turn.then = self.push(path.records);
        }
        Ok(turn)
    }

    fn push(&mut self, records: Vec<Record>) -> u32 {
        let mut hasher = DefaultHasher::new();
        records.hash(&mut hasher);
        let same = self.by_hash.entry(hasher.finish()).or_default();
        let is_same = |state: &&u32| self.states[**state as usize - 1].records == records;
        if let Some(state) = same.iter().find(is_same) {
            return *state;
        }
        let words = records.iter().filter(|record| RefKind::of(record).is_some()).count();
        let last = (NONE, Turn::UNKNOWN);
        self.states.push(State { records, words, last, turns: Vec::new() });
        let state = self.states.len() as u32;
        same.push(state);
        state
    }

    fn keep(&mut self, open: u32, way: BlockId, turn: Turn) {
        if open == 0 {
            if self.first.len() <= way.index() {
                self.first.resize(way.index() + 1, Turn::UNKNOWN);
            }
            self.first[way.index()] = turn;
        } else if let Some(state) = self.states.get_mut(open as usize - 1) {
            state.last = (way.0, turn);
            state.turns.push((way.0, turn));
        }
    }
}
