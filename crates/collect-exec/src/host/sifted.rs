//! What engines tell behind a sieve becomes lines, and what they count becomes what was kept back.
//!
//! All that a piece of code does is known from its code and how often it began, but for what varies, which is
//! counted apart. So what was kept back is what was counted, less what was told, less what did not run because of a fault.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ichnos_base::{Gone, GuestVa, Held, Line, Sieve, Use};
use ichnos_isa_x86::Inst;

use super::channel::Channel;
use super::stream::Broken;
use super::told::Told;
use crate::plan::decode_all;
use crate::sieve::{self, line};
use crate::words::{self, Described, u32_at, u64_at};

/// How many lines are gathered at most before somebody is given them.
const MANY: usize = 1 << 13;
/// How many of them may be taken back: a fetch, and an access that loads and stores.
const UNCERTAIN: usize = 3;

/// All that is known of programs behind a sieve.
pub struct Sifted {
    channel: Arc<Channel>,
    sieve: Sieve,
    pieces: Vec<Option<Piece>>,
    threads: HashMap<u32, Sifting>,
}

/// What each instruction of a piece's superblock counts for, and where in it the piece lies.
type Piece = (Arc<[Held]>, Range<usize>);

/// One thread's stream.
#[derive(Default)]
struct Sifting {
    /// What was told, and what was counted but did not run.
    not_held: Held,
    /// The lines told. The last ones may be taken back, until something else is told than the time.
    lines: Vec<Line>,
}

/// Which lines cannot be taken back any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stays {
    /// All: something else has been told, and no instruction is under way.
    All,
    /// All but the last ones. The time comes before them then.
    AllButLast,
}

/// How far a reading has come.
pub enum Step<'a> {
    /// There are so many lines that they are better taken away.
    Many,
    /// Something happened to the thread, after the lines so far.
    Told(Told<'a>),
    /// The buffer is at its end.
    End,
}

impl Sifted {
    /// Nothing is known.
    pub fn new(channel: Arc<Channel>, sieve: Sieve) -> Self {
        Self { channel, sieve, pieces: Vec::new(), threads: HashMap::new() }
    }

    /// Takes a buffer of roadmap messages; what cannot be understood is left out.
    pub fn read_roadmap(&mut self, mut bytes: &[u8]) {
        while let Some(described) = Described::take(&mut bytes) {
            if let Some(insts) = decode_all(&described.stretches) {
                self.add(described.head.first as usize, &insts);
            }
        }
    }

    fn add(&mut self, first: usize, insts: &[Inst]) {
        let shift = self.sieve.code.shift;
        let insns: Arc<[Held]> = insts.iter().map(|inst| sieve::held(inst, shift)).collect();
        for (i, piece) in sieve::pieces(insts).into_iter().enumerate() {
            if self.pieces.len() <= first + i {
                self.pieces.resize(first + i + 1, None);
            }
            self.pieces[first + i] = Some((Arc::clone(&insns), piece));
        }
    }

    /// Reads a thread's buffer from an offset, which moves on.
    pub fn read<'a>(
        &mut self,
        thread: u32,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Step<'a>, Broken> {
        let sifting = self.threads.entry(thread).or_default();
        while let Some(tag) = u32_at(bytes, *at).filter(|&t| t != 0) {
            let broken = |why| Broken { why, at: *at };
            if tag == words::LINE {
                let word = u64_at(bytes, *at + 4).ok_or(broken("a line is cut"))?;
                sifting.line(word, None);
                *at += words::EVENT_LEN;
                continue;
            }
            if tag == words::INSTEAD {
                let cut = || broken("a line is cut");
                let comes = u64_at(bytes, *at + 4).ok_or_else(cut)?;
                let goes = u64_at(bytes, *at + 12).ok_or_else(cut)?;
                sifting.line(comes, Some(goes));
                *at += words::INSTEAD_LEN;
                if sifting.lines.len() >= MANY {
                    return Ok(Step::Many);
                }
                continue;
            }
            let (event, len) =
                Event::parse(bytes, *at, tag).ok_or(broken("an event is cut or unknown"))?;
            *at += len;
            match event {
                Event::Undone(piece, rest, told) => {
                    let piece = self.pieces.get(piece as usize).and_then(Option::as_ref);
                    sifting.take_back(piece, rest as usize, told);
                }
                Event::Note => {}
                Event::Told(told) => return Ok(Step::Told(told)),
            }
        }
        Ok(Step::End)
    }

    /// The lines that were read and stay.
    pub fn take_lines(&mut self, thread: u32, stays: Stays) -> Vec<Line> {
        let Some(sifting) = self.threads.get_mut(&thread) else { return Vec::new() };
        let keep = if stays == Stays::AllButLast { UNCERTAIN } else { 0 };
        let uncertain = sifting.lines.split_off(sifting.lines.len().saturating_sub(keep));
        std::mem::replace(&mut sifting.lines, uncertain)
    }

    /// The last of a thread: what it still had to tell, and what was kept back.
    pub fn end(&mut self, thread: u32) -> (Vec<Line>, Held) {
        let sifting = self.threads.remove(&thread).unwrap_or_default();
        let mut held = Held::default();
        for (counter, count) in self.channel.take_counters(thread) {
            match counter as u32 {
                sieve::LOADS => held.loads = held.loads.wrapping_add(count),
                sieve::STORES => held.stores = held.stores.wrapping_add(count),
                _ => {
                    if let Some(Some((insns, piece))) = self.pieces.get(counter) {
                        let insns = insns.get(piece.clone()).unwrap_or_default();
                        insns.iter().for_each(|insn| add(&mut held, insn, count));
                    }
                }
            }
        }
        add(&mut held, &sifting.not_held, u64::MAX);
        (sifting.lines, held)
    }
}

/// An item that is no line.
enum Event<'a> {
    /// Of a piece, so many instructions did not run; how many references told last are no longer true.
    Undone(u32, u32, u64),
    /// Something that only whole streams need.
    Note,
    Told(Told<'a>),
}

impl<'a> Event<'a> {
    /// The event at an offset, and its length.
    fn parse(bytes: &'a [u8], at: usize, tag: u32) -> Option<(Self, usize)> {
        if tag < words::FIRST_EVENT {
            return None;
        }
        if tag < words::FIRST_WIDE {
            let value = u64_at(bytes, at + 4)?;
            let event = Told::plain(tag, value).map_or(Self::Note, Self::Told);
            return Some((event, words::EVENT_LEN));
        }
        let len = u32_at(bytes, at + 4)? as usize;
        let start = at + words::WIDE_HEAD;
        let contents = bytes.get(start..start.checked_add(len)?)?;
        let event = if tag == words::UNDONE {
            Self::Undone(u32_at(contents, 0)?, u32_at(contents, 4)?, u64_at(contents, 8)?)
        } else {
            Self::Told(Told::wide(tag, contents)?)
        };
        Some((event, words::WIDE_HEAD + len))
    }
}

impl Sifting {
    /// A line that was told, and the one in whose place it comes.
    #[inline]
    fn line(&mut self, word: u64, goes: Option<u64>) {
        let line = GuestVa(word & !line::BITS);
        let has = |bit| word & bit != 0;
        let goes = goes.map(|goes| {
            let gone = GuestVa(goes & !line::BITS);
            if goes & line::STORE != 0 { Gone::Dirty(gone) } else { Gone::Clean(gone) }
        });
        let told = |comes: Use, alone: Line| match goes {
            Some(goes) => Line::Instead { comes, line, goes },
            None => alone,
        };
        if has(line::FETCH) {
            self.not_held.insns = self.not_held.insns.wrapping_add(1);
            return self.lines.push(told(Use::Fetch, Line::Fetch(line)));
        }
        if has(line::PREFETCH) {
            return self.lines.push(Line::Prefetch(line));
        }
        if has(line::FLUSH) {
            return self.lines.push(Line::Flush(line));
        }
        let loads = has(line::LOAD) && !(has(line::LATE) && has(line::STORE));
        if loads {
            self.not_held.loads = self.not_held.loads.wrapping_add(1);
            self.lines.push(told(Use::Load, Line::Load(line)));
        }
        if has(line::STORE) {
            self.not_held.stores = self.not_held.stores.wrapping_add(1);
            let alone = Line::Store(line);
            self.lines.push(if loads { alone } else { told(Use::Store, alone) });
        }
    }

    /// The last instructions of a piece did not run; what the first of them told is taken back.
    fn take_back(&mut self, piece: Option<&Piece>, rest: usize, told: u64) {
        if let Some((insns, piece)) = piece {
            let from = piece.end.saturating_sub(rest).max(piece.start);
            let undone = insns.get(from..piece.end).unwrap_or_default();
            undone.iter().for_each(|insn| add(&mut self.not_held, insn, 1));
        }
        let mut left = told;
        while left > 0
            && let Some(line) = self.lines.pop()
        {
            let not_held = &mut self.not_held;
            let count = match line {
                Line::Fetch(_) | Line::Instead { comes: Use::Fetch, .. } => &mut not_held.insns,
                Line::Load(_) | Line::Instead { comes: Use::Load, .. } => &mut not_held.loads,
                Line::Store(_) | Line::Instead { comes: Use::Store, .. } => &mut not_held.stores,
                _ => return,
            };
            *count = count.wrapping_sub(1);
            // An access that loads and stores is one reference, but two lines.
            let of_both = match (line, self.lines.last()) {
                (Line::Store(line), Some(Line::Load(other))) => *other == line,
                (Line::Store(at), Some(Line::Instead { comes: Use::Load, line, .. })) => {
                    *line == at
                }
                _ => false,
            };
            left -= u64::from(!of_both);
        }
    }
}

fn add(to: &mut Held, what: &Held, times: u64) {
    to.insns = to.insns.wrapping_add(what.insns.wrapping_mul(times));
    to.across = to.across.wrapping_add(what.across.wrapping_mul(times));
    to.loads = to.loads.wrapping_add(what.loads.wrapping_mul(times));
    to.stores = to.stores.wrapping_add(what.stores.wrapping_mul(times));
}

#[cfg(test)]
mod tests;
