//! A thread's stream as it was stored, for sinks that take it so: the words of finished executions are passed on, and of their
//! blocks only the stack pointer is followed, so that any stretch can be understood without what came before.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Leave, Record};
use ichnos_trace::flat::{Brief, Sort};
use ichnos_trace::{MAX_STEPS, Register};

use super::book::{Book, Known, Varies};
use super::stream::{Form, From, Held, Item, SLACK, Stream, Tell};
use crate::plan;
use crate::words;

/// Bytes of a block's identifier.
const TAG: usize = size_of::<u32>();

/// Registers that are known outside of blocks.
const OUTSIDE: [Register; 3] = [plan::STACK, plan::FS, plan::GS];

/// The notes in a stream that set them, which are executions of silent blocks to whoever takes it.
pub const SILENT: [(u32, Register); 3] =
    [(words::STACK, plan::STACK), (words::FS_BASE, plan::FS), (words::GS_BASE, plan::GS)];

impl Stream {
    /// Passes on executions as long as there is nothing special about them, from `at` on in the buffer, which is behind the
    /// held block; where the next item is then. Most executions take this way.
    #[inline]
    pub(super) fn pass_on(&mut self, bytes: &[u8], mut at: usize, book: &Book) -> usize {
        let Some(Held { identifier, at: Some(start) }) = self.held else { return at };
        if self.stretch.is_empty() || self.stretch.end + TAG != start {
            return at;
        }
        // Only who passes on has a stretch, and then nothing else waits; but behind the block something may have been said.
        let Some(mut brief) = book.flat.get(identifier) else { return at };
        if brief.sort != Sort::Plain || start + brief.len as usize != at {
            return at;
        }
        let (mut held, mut before) = ((identifier, start), self.before);
        let mut stack = self.registers[usize::from(plan::STACK.0)];
        let mut insns = 0;
        while let Some(tag) = words::u32_at(bytes, at)
            && let Some(next) = book.flat.get(tag)
        {
            let end = at + TAG + next.len as usize;
            if next.sort != Sort::Plain || end + SLACK > bytes.len() || !self.knows(tag) {
                break;
            }
            let Some(some) = book.flat.follow(brief, next.entry, &mut stack) else { break };
            insns += some;
            before = Some(held);
            (held, brief) = ((tag, at + TAG), next);
            at = end;
        }
        if before != self.before {
            self.registers[usize::from(plan::STACK.0)] = stack;
            self.gathered.insns += insns;
            self.gathered.leave = Leave::Next(brief.entry);
            self.stretch.end = held.1 - TAG;
            self.before = before;
            self.held = Some(Held { identifier: held.0, at: Some(held.1) });
        }
        at
    }

    /// Passes the held block on, which is over. Its words are in the buffer, or were kept.
    pub(super) fn finish_raw(
        &mut self,
        (identifier, brief, at): (u32, &Brief, Option<usize>),
        leave: Leave,
        from: From<'_>,
        tell: &mut Tell<'_>,
    ) {
        let Some(known) = from.book.get(identifier) else { return };
        if known.steps.len() > MAX_STEPS {
            return self.finish_long((known, at), leave, from, tell);
        }
        let before = self.gathered.leave;
        let follows = matches!(before, Leave::Silent) || before == Leave::Next(brief.entry);
        let is_first = self.gathered.raw.is_empty() && self.stretch.is_empty();
        if !self.gathered.records.is_empty() || (!is_first && !follows) {
            self.put_stretch(from.bytes);
            tell(&mut self.gathered, Item::Many);
        }
        self.note_registers(brief.goes_on, from);
        let done = match brief.sort {
            Sort::Plain => {
                self.follow(at, known, leave, from);
                self.put_plain(identifier, brief.len as usize, at, from.bytes);
                true
            }
            _ => self.put_varying(identifier, known, (brief.len as usize, at), (leave, from.bytes)),
        };
        if done {
            self.gathered.leave = leave;
        }
        if let Some(stack) = self.stack.take() {
            self.put_register(words::STACK, stack, from);
            self.registers[usize::from(plan::STACK.0)] = stack;
        }
        if matches!(leave, Leave::Cut(_) | Leave::Unknown) {
            // What comes next does not tell.
            self.put_stretch(from.bytes);
            tell(&mut self.gathered, Item::Many);
        }
    }

    /// A block of so many steps that no file holds it: told by its records.
    #[cold]
    fn finish_long(
        &mut self,
        (known, at): (&Known, Option<usize>),
        leave: Leave,
        from: From<'_>,
        tell: &mut Tell<'_>,
    ) {
        self.put_stretch(from.bytes);
        if !self.gathered.raw.is_empty() {
            tell(&mut self.gathered, Item::Many);
        }
        self.finish_records(known, at.and_then(|at| from.bytes.get(at..)), leave);
        self.before = None;
    }

    /// Before the first execution that is passed on: what is known then.
    fn note_registers(&mut self, goes_on: bool, from: From<'_>) {
        if !self.gathered.raw.is_empty() || !self.stretch.is_empty() {
            return;
        }
        self.gathered.leave = Leave::Silent;
        let value = |r: Register| (r, self.registers[usize::from(r.0)]);
        let outside = OUTSIDE.map(value);
        self.gathered.registers.clear();
        if goes_on {
            self.catch_up(from);
            let all = (0..Register::COUNT as u8).map(Register);
            let inside = all.filter(|r| !OUTSIDE.contains(r));
            let value = |r: Register| (r, self.registers[usize::from(r.0)]);
            self.gathered.registers.extend(inside.map(value));
        }
        self.gathered.registers.extend(outside);
    }

    /// The last block that was passed on is run, if it is still in the buffer: of registers that are not known outside, those are
    /// known then that it leaves to a block that goes on behind it.
    fn catch_up(&mut self, from: From<'_>) {
        let Some((identifier, at)) = self.before.take() else { return };
        let Some(brief) = from.book.flat.get(identifier) else { return };
        let (Some(stored), Some(known)) = (from.bytes.get(at..), from.book.get(identifier)) else {
            return;
        };
        if brief.sort == Sort::Plain {
            let kept = OUTSIDE.map(|r| self.registers[usize::from(r.0)]);
            known.program.run(&mut self.registers, stored, Leave::Silent, &mut Vec::new());
            for (register, value) in OUTSIDE.into_iter().zip(kept) {
                self.registers[usize::from(register.0)] = value;
            }
        }
    }

    /// The buffer is over: passes on what lies in it. What is held may need registers of what came before.
    pub(super) fn end_raw(&mut self, from: From<'_>) {
        let held = self.held.and_then(|held| from.book.flat.get(held.identifier));
        if held.is_some_and(|brief| brief.goes_on) {
            self.catch_up(from);
        }
        self.before = None;
        self.put_stretch(from.bytes);
    }

    /// Follows what a plain block does to registers that are known outside, and counts its instructions.
    fn follow(&mut self, at: Option<usize>, known: &Known, leave: Leave, from: From<'_>) {
        let stored = match at {
            Some(at) => from.bytes.get(at..).unwrap_or_default(),
            None => &self.words,
        };
        let mut records = Vec::new();
        known.program.run(&mut self.registers, stored, leave, &mut records);
        let is_insn = |r: &&Record| matches!(r, Record::Insn { .. });
        self.gathered.insns += records.iter().filter(is_insn).count() as u64;
    }

    fn put_plain(&mut self, identifier: u32, len: usize, at: Option<usize>, bytes: &[u8]) {
        self.before = at.map(|at| (identifier, at));
        let Some(at) = at else {
            self.put_stretch(bytes);
            self.gathered.raw.extend(identifier.to_le_bytes());
            self.gathered.raw.extend_from_slice(self.words.get(..len).unwrap_or_default());
            return;
        };
        let start = at - TAG;
        if self.stretch.end != start {
            self.put_stretch(bytes);
            self.stretch.start = start;
        }
        self.stretch.end = at + len;
    }

    /// Passes on an execution whose accesses vary; whether its instruction retired.
    fn put_varying(
        &mut self,
        identifier: u32,
        known: &Known,
        (len, at): (usize, Option<usize>),
        (leave, bytes): (Leave, &[u8]),
    ) -> bool {
        self.put_stretch(bytes);
        let stored = match at {
            Some(at) => bytes.get(at..at + len).unwrap_or_default(),
            None => &self.words,
        };
        let mut records = Vec::new();
        known.program.run(&mut self.registers, stored, leave, &mut records);
        if records.is_empty() {
            return false;
        }
        let runs = match &known.varies {
            Varies::Stored(varying) => varying.runs(&self.registers, stored),
            _ => std::mem::take(&mut self.runs),
        };
        let raw = &mut self.gathered.raw;
        raw.extend(identifier.to_le_bytes());
        let head = raw.len();
        raw.extend(0_u32.to_le_bytes());
        let count: u32 = runs.iter().map(|run| run.put_raw(raw)).sum();
        raw[head..head + 4].copy_from_slice(&count.to_le_bytes());
        self.gathered.insns += 1;
        true
    }

    /// Passes on that a register is known to have a value.
    pub(super) fn put_register(&mut self, tag: u32, value: u64, from: From<'_>) {
        if self.form == Form::Raw {
            self.note_registers(false, from);
            self.put_stretch(from.bytes);
            self.gathered.raw.extend(tag.to_le_bytes());
            self.gathered.raw.extend(value.to_le_bytes());
        }
    }

    /// Passes on what lies in one piece in the buffer.
    pub(super) fn put_stretch(&mut self, bytes: &[u8]) {
        let stretch = std::mem::take(&mut self.stretch);
        self.gathered.raw.extend_from_slice(bytes.get(stretch).unwrap_or_default());
    }
}
