//! One thread's stream: bytes in, records out, or blocks and addresses for those who take them.
//!
//! Which exit a block was left by is known only when the next item says where the thread went, so
//! the last block is held until then. An item may be a chain of blocks, which run one behind the other: how all but the last were left is
//! known from the next, and the chain is held for its last.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;
use std::sync::Arc;

use ichnos_base::{BlockId, GuestVa, Leave, Record};
use ichnos_trace::Register;
use ichnos_trace::flat::{Brief, NO_REGISTERS, Registers, Sort};

use super::book::{Book, Known, Varies};
use super::raw::Visited;
use super::told::Told;
use crate::plan;
use crate::words::{self, Run, u32_at, u64_at};

/// How many records are gathered at most before somebody is given them: few enough to stay in a cache.
const MANY: usize = 1 << 13;
/// The same for blocks.
const MANY_BLOCKS: usize = 1 << 11;

/// So many bytes are behind a block's words where it is run: it may look at that many from anywhere in them.
pub(super) const SLACK: usize = 8;

/// A stream that cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// What was expected.
    pub why: &'static str,
    /// Where in the buffer.
    pub at: usize,
}

/// What an item of a stream comes to.
#[derive(Debug)]
pub enum Item<'a> {
    /// A block with this identifier is about to be recorded for the first time by this thread.
    Block(u32, Arc<Known>),
    /// The same for a chain, and the identifiers of its blocks, which may be new, too.
    Chain(u32, Range<u32>),
    /// There are so many records that they are better taken away.
    Many,
    /// Something happened to the thread.
    Told(Told<'a>),
}

/// What nobody has taken yet: records, executions of blocks, or executions as they were stored, never two of them.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Records.
    pub records: Vec<Record>,
    /// Executions, by the numbers of their ways.
    pub ways: Vec<BlockId>,
    /// The addresses of their accesses.
    pub words: Vec<u64>,
    /// Their instructions; of what was passed on unread, about so many.
    pub insns: u64,
    /// Executions as they were stored, the registers that were known before, and how the last was left.
    pub raw: Vec<u8>,
    pub registers: Option<Vec<(Register, u64)>>,
    pub leave: Leave,
}

/// Who hears of items, and takes what was gathered before them.
pub type Tell<'t> = dyn FnMut(&mut Gathered, Item<'_>) + 't;

/// What a stream makes of executions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Records.
    Records,
    /// Blocks, where they are whole; records otherwise.
    Blocks,
    /// What was stored.
    Raw,
}

/// The state of one thread's stream.
#[derive(Debug)]
pub struct Stream {
    pub(super) registers: Registers,
    pub(super) held: Option<Held>,
    /// What the held item stored, once its buffer is behind.
    pub(super) words: Vec<u8>,
    /// What the engine told about its accesses.
    pub(super) runs: Vec<Run>,
    /// The blocks that this thread has been through, a bit each.
    known: Vec<u64>,
    /// A time that was told while a block was held, which came before it.
    late: Option<u64>,
    /// The stack pointer behind the held block, if it was told.
    pub(super) stack: Option<u64>,
    /// Where in the buffer executions lie that are to be told raw.
    pub(super) stretch: Range<usize>,
    /// Where in the buffer the last item is that does not go on behind another one.
    pub(super) head: usize,
    /// How far the buffer was fetched.
    pub(super) fetched: usize,
    /// From where on the buffer holds plain items alone, and where the thread went behind it, if that is known.
    pub(super) plain: Option<usize>,
    pub(super) behind: Option<GuestVa>,
    /// Executions of the buffer before that were kept back, and how the last of them was left.
    pub(super) kept: Vec<u8>,
    pub(super) kept_leave: Leave,
    /// What nobody has taken yet.
    pub gathered: Gathered,
    /// What executions become.
    pub form: Form,
    /// Whether somebody was told of every block that the thread may come to.
    pub all_told: bool,
}

/// The last block or chain, until it is known how it was left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) identifier: u32,
    /// Where in the buffer its words are; nothing if the buffer is behind.
    pub(super) at: Option<usize>,
}

/// What an item of a stream is read with.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) book: &'a Book,
}

impl Gathered {
    fn is_much(&self) -> bool {
        self.records.len() >= MANY || self.ways.len() >= MANY_BLOCKS
    }
}

impl Stream {
    /// A new thread.
    pub fn new() -> Self {
        Self {
            registers: NO_REGISTERS,
            held: None,
            words: Vec::new(),
            runs: Vec::new(),
            known: Vec::new(),
            late: None,
            stack: None,
            stretch: 0..0,
            head: 0,
            fetched: 0,
            plain: None,
            behind: None,
            kept: Vec::new(),
            kept_leave: Leave::Silent,
            gathered: Gathered::default(),
            form: Form::Records,
            all_told: false,
        }
    }

    /// Takes a buffer; `tell` hears of blocks before their records, and of events.
    pub fn read(
        &mut self,
        bytes: &[u8],
        (book, visited): (&Book, &mut Visited),
        tell: &mut Tell<'_>,
    ) -> Result<(), Broken> {
        (self.head, self.fetched) = (usize::MAX, 0);
        (self.plain, self.behind) = (None, None);
        self.take_kept();
        let done = self.items(From { bytes, book }, visited, tell);
        if let Some(pc) = self.behind.filter(|_| done.is_ok()) {
            self.finish(Leave::Next(pc), From { bytes, book }, tell);
        }
        self.end_raw(From { bytes, book });
        // The buffer is given back; what it says of the held block is still needed.
        if let Some(Held { identifier, at: at @ Some(_) }) = &mut self.held {
            let start = at.take().unwrap_or(0);
            let len = book.flat.get(*identifier).map_or(0, |brief| brief.len);
            keep(&mut self.words, bytes.get(start..start + len as usize).unwrap_or_default());
        }
        done
    }

    /// What lies in the buffer just read, in one piece, and is to be passed on behind all that was gathered.
    pub fn take_stretch<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(std::mem::take(&mut self.stretch)).unwrap_or_default()
    }

    fn items(
        &mut self,
        from: From<'_>,
        visited: &mut Visited,
        tell: &mut Tell<'_>,
    ) -> Result<(), Broken> {
        let From { bytes, book } = from;
        let mut at = 0;
        while let Some(tag) = u32_at(bytes, at).filter(|&t| t != 0) {
            let broken = |why| Broken { why, at };
            if tag >= words::FIRST_WIDE {
                let len = u32_at(bytes, at + 4).ok_or(broken("an event is cut"))? as usize;
                let start = at + words::WIDE_HEAD;
                let contents = bytes.get(start..start.saturating_add(len));
                let contents = contents.ok_or(broken("an event is cut"))?;
                let told = Told::wide(tag, contents).ok_or(broken("an event is unknown"))?;
                self.tell(told, from, tell);
                at = start + len;
                continue;
            }
            if tag >= words::FIRST_EVENT {
                let value = u64_at(bytes, at + 4).ok_or(broken("an event is cut"))?;
                self.event(tag, value, from, tell);
                at += words::EVENT_LEN;
                continue;
            }
            let brief = book.flat.get(tag).ok_or(broken("a block is unknown"))?;
            self.finish(Leave::Next(brief.entry), from, tell);
            if !brief.goes_on {
                self.tell_late(bytes, tell);
                self.head = at;
                if self.passes_unread(at, bytes.len()) {
                    return self.pass_unread((at, brief.entry), from, visited, tell);
                }
            }
            if self.is_new(tag) {
                let insns = book.insns(tag).ok_or(broken("a block is unknown"))?;
                let blocks = book.chain(tag);
                if blocks.is_some() || brief.sort == Sort::Plain {
                    visited.visit(tag, brief, insns);
                }
                if let Some(blocks) = blocks {
                    tell(&mut self.gathered, Item::Chain(tag, blocks));
                } else if let Some(block) = book.get(tag) {
                    tell(&mut self.gathered, Item::Block(tag, Arc::clone(block)));
                }
            } else if self.gathered.is_much() {
                tell(&mut self.gathered, Item::Many);
            }
            at = self.hold(tag, brief, bytes, at + 4).ok_or(broken("a block is cut"))?;
            at = self.pass_on(at, from, visited);
        }
        Ok(())
    }

    /// Records what is held as far as it is certain.
    pub fn end(&mut self, book: &Book) {
        self.take_kept();
        // Whatever else was gathered was taken when its buffer had been read.
        self.finish(Leave::Unknown, From { bytes: &[], book }, &mut |_, _| {});
    }

    /// Leaves out what is held.
    pub fn drop_held(&mut self) {
        self.held = None;
    }

    /// An event that is a note for the stream itself, or one to be told.
    fn event(&mut self, tag: u32, value: u64, from: From<'_>, tell: &mut Tell<'_>) {
        match tag {
            words::LEFT => self.finish(Leave::Next(GuestVa(value)), from, tell),
            words::CUT => self.finish(Leave::Cut(GuestVa(value)), from, tell),
            // Part of the state after the block that changed it.
            words::FS_BASE | words::GS_BASE => {
                self.finish(Leave::Silent, from, tell);
                self.put_register(tag, value, from.bytes);
                let base = if tag == words::FS_BASE { plan::FS } else { plan::GS };
                self.registers[usize::from(base.0)] = value;
            }
            words::STACK if self.held.is_some() => self.stack = Some(value),
            words::STACK => {
                self.put_register(tag, value, from.bytes);
                self.registers[usize::from(plan::STACK.0)] = value;
            }
            words::TIME => self.late = Some(value),
            words::PLAIN => self.plain = usize::try_from(value).ok().filter(|at| *at != 0),
            words::BEHIND => self.behind = Some(GuestVa(value)).filter(|pc| pc.0 != 0),
            _ => {
                if let Some(told) = Told::plain(tag, value) {
                    self.tell(told, from, tell);
                }
            }
        }
    }

    fn tell(&mut self, told: Told<'_>, from: From<'_>, tell: &mut Tell<'_>) {
        let leave = match &told {
            Told::Signal(info) => Leave::Next(info.interrupted),
            Told::Default(_) => Leave::Unknown,
            _ => Leave::Silent,
        };
        self.finish(leave, from, tell);
        // A thread's start, and what its process is, come before any time.
        if !matches!(told, Told::Start(_) | Told::Exec(_) | Told::Map(_) | Told::Unmap(..)) {
            self.tell_late(from.bytes, tell);
        }
        self.put_stretch(from.bytes);
        tell(&mut self.gathered, Item::Told(told));
    }

    fn tell_late(&mut self, bytes: &[u8], tell: &mut Tell<'_>) {
        if let Some(ns) = self.late.take() {
            self.put_stretch(bytes);
            tell(&mut self.gathered, Item::Told(Told::Time(ns)));
        }
    }

    /// Whether the thread comes to a block for the first time.
    #[inline]
    fn is_new(&mut self, identifier: u32) -> bool {
        let (word, bit) = (identifier as usize / 64, 1 << (identifier % 64));
        if word >= self.known.len() {
            self.known.resize(word + 1, 0);
        }
        let new = self.known[word] & bit == 0;
        self.known[word] |= bit;
        new
    }

    #[inline]
    fn hold(
        &mut self,
        identifier: u32,
        brief: &Brief,
        bytes: &[u8],
        mut at: usize,
    ) -> Option<usize> {
        if brief.sort == Sort::Told {
            at = self.hold_runs(bytes, at)?;
        }
        let end = at + brief.len as usize;
        bytes.get(at..end)?;
        self.held = Some(Held { identifier, at: Some(at) });
        Some(end)
    }

    fn hold_runs(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        self.runs.clear();
        let count = u32_at(bytes, at)?;
        let mut at = at + 4;
        for _ in 0..count {
            let (run, next) = Run::parse(bytes, at)?;
            self.runs.push(run);
            at = next;
        }
        Some(at)
    }

    #[inline]
    fn finish(&mut self, leave: Leave, from: From<'_>, tell: &mut Tell<'_>) {
        let Some(held) = self.held.take() else { return };
        let Some(brief) = from.book.flat.get(held.identifier) else { return };
        let len = brief.len as usize;
        let rest = held.at.map(|at| from.bytes.get(at..).unwrap_or_default());
        let stored = rest.filter(|rest| rest.len() >= len + SLACK);
        if let Some(rest) = rest.filter(|_| stored.is_none()) {
            keep(&mut self.words, rest.get(..len).unwrap_or_default());
        }
        if self.form == Form::Raw {
            let item = (held.identifier, brief, held.at.filter(|_| stored.is_some()));
            return self.finish_raw(item, leave, from, tell);
        }
        // Most are plain blocks; nobody needs to look further.
        let odd = Some(held.identifier).filter(|_| brief.sort != Sort::Plain);
        match odd.and_then(|identifier| from.book.chain(identifier)) {
            Some(blocks) => self.finish_chain(blocks, stored, leave, from, tell),
            None => self.finish_block((held.identifier, brief), stored, leave, from, tell),
        }
    }

    /// The same for a chain, whose blocks are run one behind the other.
    fn finish_chain(
        &mut self,
        blocks: Range<u32>,
        stored: Option<&[u8]>,
        leave: Leave,
        from: From<'_>,
        tell: &mut Tell<'_>,
    ) {
        let kept = std::mem::take(&mut self.words);
        // What was told behind the chain holds behind its last block.
        let stack = self.stack.take();
        let mut rest = stored.unwrap_or(&kept);
        let mut block = from.book.flat.get(blocks.start);
        for identifier in blocks.clone() {
            let Some(brief) = block else { break };
            block = from.book.flat.get(identifier + 1).filter(|_| identifier + 1 != blocks.end);
            let leave = block.map_or(leave, |next| Leave::Next(next.entry));
            if block.is_none() {
                self.stack = stack;
            }
            self.finish_block((identifier, brief), Some(rest), leave, from, tell);
            rest = rest.get(brief.len as usize..).unwrap_or_default();
        }
        self.words = kept;
    }

    /// The same for a block; what it stored is in the buffer, or was kept.
    #[inline]
    fn finish_block(
        &mut self,
        (identifier, brief): (u32, &Brief),
        stored: Option<&[u8]>,
        leave: Leave,
        from: From<'_>,
        tell: &mut Tell<'_>,
    ) {
        if self.form == Form::Blocks && brief.sort == Sort::Plain {
            if !self.gathered.records.is_empty() {
                tell(&mut self.gathered, Item::Many);
            }
            let Gathered { ways, words, insns, .. } = &mut self.gathered;
            let state = (&mut self.registers, stored.unwrap_or(&self.words));
            if let Some(done) = from.book.flat.run(brief, leave, state, words) {
                ways.push(BlockId(done.way));
                *insns += done.insns;
                settle_stack(&mut self.registers, &mut self.stack);
                return;
            }
        }
        if !self.gathered.ways.is_empty() {
            tell(&mut self.gathered, Item::Many);
        }
        let Some(block) = from.book.get(identifier) else { return };
        self.finish_records(block, stored, leave);
    }

    /// The same as records.
    fn finish_records(&mut self, block: &Known, stored: Option<&[u8]>, leave: Leave) {
        let stored = stored.unwrap_or(&self.words);
        let records = &mut self.gathered.records;
        let before = records.len();
        block.program.run(&mut self.registers, stored, leave, records);
        settle_stack(&mut self.registers, &mut self.stack);
        // An instruction that did not retire made no accesses.
        if records.len() == before {
            return;
        }
        match &block.varies {
            Varies::No => {}
            Varies::Stored(varying) => varying.run(&self.registers, stored, records),
            Varies::Told => {
                let runs = std::mem::take(&mut self.runs);
                runs.iter().for_each(|run| run.records(&mut self.gathered.records));
                self.runs = runs;
            }
        }
    }
}

/// Keeps what a block stored, with room behind it.
fn keep(words: &mut Vec<u8>, stored: &[u8]) {
    words.clear();
    words.extend_from_slice(stored);
    words.extend([0; SLACK]);
}

/// A stack pointer that was told behind a block holds from its end on.
fn settle_stack(registers: &mut Registers, told: &mut Option<u64>) {
    if let Some(stack) = told.take() {
        registers[usize::from(plan::STACK.0)] = stack;
    }
}
