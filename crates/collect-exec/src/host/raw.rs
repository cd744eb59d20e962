//! A thread's stream as it was stored, for sinks that take it so: the words of finished executions are passed on, and of their
//! blocks nothing is looked at but how long they are. Where a buffer holds nothing else, not even that: what lies there is passed on unread,
//! if the sink knows all blocks of the process. What the stack pointer was is left to whoever packs them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Leave};
use ichnos_trace::flat::{Brief, Sort};
use ichnos_trace::{Numbered, Register};

use super::book::{Known, MOST_INSNS, Varies};
use super::stream::{Broken, Form, From, Gathered, Held, Item, Stream, Tell};
use crate::plan;
use crate::words;

/// Bytes of a block's identifier.
const TAG: usize = size_of::<u32>();

/// Registers that are known outside of blocks, and followed here.
const OUTSIDE: [Register; 2] = [plan::FS, plan::GS];

/// The notes in a stream that set registers which are known outside of blocks: executions of silent blocks to whoever takes it.
pub const SILENT: [(u32, Register); 3] =
    [(words::STACK, plan::STACK), (words::FS_BASE, plan::FS), (words::GS_BASE, plan::GS)];

/// The blocks that a process has been through, by identifier, as far as there is nothing special about them.
#[derive(Debug, Default)]
pub struct Visited(Numbered<Visit>);

/// A block or chain that was visited, in four bytes: those of its identifier and words in the lower 16 bits, its instructions in 15, and
/// whether it goes on behind another one. Nothing if it was not visited, or there is something special about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Visit(u32);

impl Visit {
    const GOES_ON: u32 = 1 << 31;

    const fn len(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    const fn insns(self) -> u64 {
        (self.0 >> 16 & MOST_INSNS as u32) as u64
    }

    const fn goes_on(self) -> bool {
        self.0 & Self::GOES_ON != 0
    }
}

/// Bytes of a processor's cache line, and how many are fetched at a time: few enough to stay in its first cache.
const LINE: usize = 64;
const FETCHED: usize = 16 << 10;

/// Looks at some bytes from `at` on, which another processor has stored: all their lines are on their way at once then, and not one
/// by one when it is known where the next item begins. How far that went.
#[inline(never)]
fn fetch(bytes: &[u8], at: usize) -> usize {
    let end = bytes.len().min(at + FETCHED);
    let lines = bytes.get(at..end).unwrap_or_default().iter().step_by(LINE);
    std::hint::black_box(lines.fold(0, |all, byte| all ^ byte));
    end
}

impl Visited {
    /// A plain block or a chain was visited, which has so many instructions.
    pub fn visit(&mut self, identifier: u32, brief: &Brief, insns: u16) {
        // A block has few instructions, so that few words do.
        let Ok(len) = u16::try_from(TAG + brief.len as usize) else { return };
        let goes_on = if brief.goes_on { Visit::GOES_ON } else { 0 };
        *self.0.place(identifier) = Visit(u32::from(len) | u32::from(insns) << 16 | goes_on);
    }

    /// A block or chain that was visited and has nothing special; or nothing.
    fn get(&self, identifier: u32) -> Visit {
        self.0.get(identifier).copied().unwrap_or_default()
    }

    /// The same, beginning with those whose identifiers are near the last that was asked for.
    #[inline(always)]
    fn near<'v>(&'v self, (first, page): &mut (u32, &'v [Visit]), identifier: u32) -> Visit {
        match page.get(identifier.wrapping_sub(*first) as usize) {
            Some(visit) => *visit,
            None => {
                (*first, *page) = self.0.page(identifier);
                page.get((identifier - *first) as usize).copied().unwrap_or_default()
            }
        }
    }
}

/// Of what is passed on unread, one part in so many is looked at.
const LOOKED_AT: usize = 16;

/// About how many instructions there are in a buffer from there on: as many as in the first part of that, in proportion.
fn estimate(from: From<'_>, start: usize, visited: &mut Visited) -> Result<u64, Broken> {
    let From { bytes, book } = from;
    let all = bytes.len() - start;
    let (mut at, mut insns) = (start, 0);
    while at - start <= all / LOOKED_AT
        && let Some(tag) = words::u32_at(bytes, at)
    {
        let broken = |why| Broken { why, at };
        if tag >= words::FIRST_EVENT {
            at += words::EVENT_LEN;
            continue;
        }
        let mut visit = visited.get(tag);
        if visit.len() == 0 {
            let known = book.flat.get(tag).zip(book.insns(tag));
            let (brief, insns) = known.ok_or(broken("a block is unknown"))?;
            if book.chain(tag).is_none() && brief.sort != Sort::Plain {
                return Err(broken("a block is not plain"));
            }
            visited.visit(tag, brief, insns);
            visit = visited.get(tag);
        }
        if visit.len() == 0 || visit.len() > bytes.len() - at {
            return Err(broken("a block is cut"));
        }
        at += visit.len();
        insns += visit.insns();
    }
    // So many bytes are in a buffer that this is less than a word has room for.
    let looked = (at - start).max(1) as u64;
    Ok(insns * all as u64 / looked)
}

impl Stream {
    /// Passes on executions as long as there is nothing special about them, from `at` on in the buffer, which is behind the
    /// held block; where the next item is then. Most executions take this way.
    #[inline]
    pub(super) fn pass_on(&mut self, mut at: usize, from: From<'_>, visited: &Visited) -> usize {
        let From { bytes, book } = from;
        let Some(Held { identifier, at: Some(start) }) = self.held else { return at };
        if self.stretch.is_empty() || self.stretch.end + TAG != start {
            return at;
        }
        // Only who passes on has a stretch, and then nothing else waits; but behind the block something may have been said.
        let mut visit = visited.get(identifier);
        if visit.len() == 0 || start - TAG + visit.len() != at {
            return at;
        }
        let (mut held, mut head, mut insns) = (start, self.head, 0);
        let mut page = visited.0.page(identifier);
        while let Some(tag) = words::u32_at(bytes, at) {
            if at >= self.fetched {
                self.fetched = fetch(bytes, at);
            }
            let next = visited.near(&mut page, tag);
            let end = at + next.len();
            if next.len() == 0 || end > bytes.len() {
                break;
            }
            insns += visit.insns();
            head = if next.goes_on() { head } else { at };
            held = at + TAG;
            (visit, at) = (next, end);
        }
        let last = words::u32_at(bytes, held - TAG).unwrap_or(identifier);
        if held != start
            && let Some(brief) = book.flat.get(last)
        {
            self.head = head;
            self.gathered.insns += insns;
            self.gathered.leave = Leave::Next(brief.entry);
            self.stretch.end = held - TAG;
            self.held = Some(Held { identifier: last, at: Some(held) });
        }
        at
    }

    /// Whether a buffer of so many bytes can be passed on unread from there on, where an item begins that does not go on behind another one.
    pub(super) fn passes_unread(&self, at: usize, len: usize) -> bool {
        let is_plain = self.plain.is_some_and(|plain| plain <= at && at < len);
        self.form == Form::Raw && self.all_told && is_plain && self.behind.is_some()
    }

    /// Passes on what lies in the buffer from there on, where a block or chain with this entry is next. Only some of it is looked at, to see how
    /// many instructions there may be.
    pub(super) fn pass_unread(
        &mut self,
        (at, entry): (usize, GuestVa),
        from: From<'_>,
        visited: &mut Visited,
        tell: &mut Tell<'_>,
    ) -> Result<(), Broken> {
        let len = from.bytes.len();
        let insns = estimate(from, at, visited)?;
        self.join(entry, from.bytes, tell);
        self.note_registers(false);
        self.put_words(at, len, from.bytes);
        self.gathered.insns += insns;
        self.gathered.leave = self.behind.take().map_or(Leave::Silent, Leave::Next);
        Ok(())
    }

    /// What comes next begins there: what waits goes first if it was left for something else.
    fn join(&mut self, entry: GuestVa, bytes: &[u8], tell: &mut Tell<'_>) {
        let before = self.gathered.leave;
        let follows = matches!(before, Leave::Silent) || before == Leave::Next(entry);
        if !self.is_first() && !follows {
            self.put_stretch(bytes);
            tell(&mut self.gathered, Item::Many);
        }
    }

    /// Passes the held block or chain on, which is over. Its words are in the buffer, or were kept.
    pub(super) fn finish_raw(
        &mut self,
        (identifier, brief, at): (u32, &Brief, Option<usize>),
        leave: Leave,
        from: From<'_>,
        tell: &mut Tell<'_>,
    ) {
        self.join(brief.entry, from.bytes, tell);
        self.note_registers(brief.goes_on);
        let len = brief.len as usize;
        let done = match from.book.get(identifier) {
            Some(known) if brief.sort != Sort::Plain => {
                self.put_varying(identifier, known, (len, at), (leave, from.bytes))
            }
            _ => {
                self.gathered.insns += u64::from(from.book.insns(identifier).unwrap_or(0));
                self.put_plain(identifier, len, at, from.bytes);
                true
            }
        };
        if done {
            self.gathered.leave = leave;
        }
        if let Some(stack) = self.stack.take() {
            self.put_register(words::STACK, stack, from.bytes);
        }
        if matches!(leave, Leave::Cut(_) | Leave::Unknown) {
            // What comes next does not tell.
            self.put_stretch(from.bytes);
            tell(&mut self.gathered, Item::Many);
        }
    }

    /// Whether nothing waits to be passed on.
    fn is_first(&self) -> bool {
        self.gathered.raw.is_empty() && self.stretch.is_empty()
    }

    /// Before the first execution that is passed on: what is known then. A block that goes on behind another one needs more.
    fn note_registers(&mut self, goes_on: bool) {
        if !self.is_first() {
            return;
        }
        self.gathered.leave = Leave::Silent;
        let value = |r: Register| (r, self.registers[usize::from(r.0)]);
        let known = (!goes_on).then(|| OUTSIDE.map(value).to_vec());
        self.gathered.registers = known;
    }

    /// Takes up what was kept back.
    pub(super) fn take_kept(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        self.note_registers(false);
        self.gathered.raw.append(&mut self.kept);
        self.gathered.leave = self.kept_leave;
    }

    /// The buffer is over: what lies in it can be passed on. If the held block needs registers of those before it, they are
    /// kept back: whoever takes these may begin anew with the next buffer.
    pub(super) fn end_raw(&mut self, from: From<'_>) {
        let held = self.held.and_then(|held| from.book.flat.get(held.identifier));
        let head = self.head;
        if !held.is_some_and(|brief| brief.goes_on) || !self.stretch.contains(&head) {
            return;
        }
        let Some(first) = words::u32_at(from.bytes, head) else { return };
        let Some(brief) = from.book.flat.get(first) else { return };
        self.kept.extend_from_slice(from.bytes.get(head..self.stretch.end).unwrap_or_default());
        self.kept_leave = self.gathered.leave;
        self.stretch.end = head;
        if !self.is_first() {
            self.gathered.leave = Leave::Next(brief.entry);
        }
    }

    fn put_plain(&mut self, identifier: u32, len: usize, at: Option<usize>, bytes: &[u8]) {
        let Some(at) = at else {
            self.put_stretch(bytes);
            self.gathered.raw.extend(identifier.to_le_bytes());
            self.gathered.raw.extend_from_slice(self.words.get(..len).unwrap_or_default());
            return;
        };
        self.put_words(at - TAG, at + len, bytes);
    }

    /// Passes on what lies in the buffer from there to there.
    fn put_words(&mut self, start: usize, end: usize, bytes: &[u8]) {
        if self.stretch.end != start {
            self.put_stretch(bytes);
            self.stretch.start = start;
        }
        self.stretch.end = end;
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
        // Nobody takes records from here: their memory is used again and again.
        let Gathered { records, raw, .. } = &mut self.gathered;
        records.clear();
        known.program.run(&mut self.registers, stored, leave, records);
        if records.is_empty() {
            return false;
        }
        records.clear();
        raw.extend(identifier.to_le_bytes());
        let head = raw.len();
        raw.extend(0_u32.to_le_bytes());
        let count = match &known.varies {
            Varies::Stored(varying) => varying.put_raw(&self.registers, stored, records, raw),
            _ => self.runs.iter().map(|run| run.put_raw(raw)).sum(),
        };
        records.clear();
        self.runs.clear();
        raw[head..head + 4].copy_from_slice(&count.to_le_bytes());
        self.gathered.insns += 1;
        true
    }

    /// Passes on that a register is known to have a value.
    pub(super) fn put_register(&mut self, tag: u32, value: u64, bytes: &[u8]) {
        if self.form == Form::Raw {
            self.note_registers(false);
            self.put_stretch(bytes);
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
