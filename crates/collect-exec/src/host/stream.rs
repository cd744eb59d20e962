//! One thread's stream: bytes in, records out.
//!
//! Which exit a block was left by is known only when the next item says where the thread went, so
//! the last block is held until then.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::Rc;

use ichnos_base::{AccessFlags, GuestVa, Record};
use ichnos_trace::{Address, ExitKind, RefKind, Register, Step, Sum, Value, Width};

use super::book::{Book, Known};
use super::told::Told;
use crate::plan;
use crate::words::{self, Run, u32_at, u64_at};

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
    /// A block is about to be recorded.
    Block(Rc<Known>),
    /// Something happened to the thread.
    Told(Told<'a>),
}

/// Who hears of items, and gets the records before them.
pub type Tell<'t> = dyn FnMut(&mut Vec<Record>, Item<'_>) + 't;

/// The state of one thread's stream.
#[derive(Debug)]
pub struct Stream {
    registers: [u64; Register::COUNT],
    held: Option<Held>,
    /// A time that was told while a block was held, which came before it.
    late: Option<u64>,
    /// Records that nobody has taken yet.
    pub records: Vec<Record>,
}

#[derive(Debug)]
struct Held {
    block: Rc<Known>,
    words: Vec<u64>,
    runs: Vec<Run>,
}

/// Where a block ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The thread went on there.
    Next(GuestVa),
    /// The instruction there did not retire.
    Cut(GuestVa),
    /// To its last instruction.
    End,
    /// Nobody knows.
    Unknown,
}

impl Stream {
    /// A new thread.
    pub fn new() -> Self {
        Self { registers: [0; Register::COUNT], held: None, late: None, records: Vec::new() }
    }

    /// Takes a buffer; `tell` hears of blocks before their records, and of events.
    pub fn read(&mut self, bytes: &[u8], book: &Book, tell: &mut Tell<'_>) -> Result<(), Broken> {
        let mut at = 0;
        while let Some(tag) = u32_at(bytes, at).filter(|&t| t != 0) {
            let broken = |why| Broken { why, at };
            if tag >= words::FIRST_WIDE {
                let len = u32_at(bytes, at + 4).ok_or(broken("an event is cut"))? as usize;
                let start = at + words::WIDE_HEAD;
                let contents = bytes.get(start..start.saturating_add(len));
                let contents = contents.ok_or(broken("an event is cut"))?;
                let told = Told::wide(tag, contents).ok_or(broken("an event is unknown"))?;
                self.tell(told, tell);
                at = start + len;
                continue;
            }
            if tag >= words::FIRST_EVENT {
                let value = u64_at(bytes, at + 4).ok_or(broken("an event is cut"))?;
                self.event(tag, value, tell);
                at += words::EVENT_LEN;
                continue;
            }
            let block = book.get(tag).ok_or(broken("a block is unknown"))?;
            self.finish(Until::Next(block.entry));
            self.tell_late(tell);
            tell(&mut self.records, Item::Block(Rc::clone(block)));
            at = self.hold(block, bytes, at + 4).ok_or(broken("a block is cut"))?;
        }
        Ok(())
    }

    /// Records what is held as far as it is certain.
    pub fn end(&mut self) {
        self.finish(Until::Unknown);
    }

    /// An event that is a note for the stream itself, or one to be told.
    fn event(&mut self, tag: u32, value: u64, tell: &mut Tell<'_>) {
        match tag {
            words::LEFT => self.finish(Until::Next(GuestVa(value))),
            words::CUT => self.finish(Until::Cut(GuestVa(value))),
            // Part of the state after the block that changed it.
            words::FS_BASE | words::GS_BASE => {
                self.finish(Until::End);
                let base = if tag == words::FS_BASE { plan::FS } else { plan::GS };
                self.registers[usize::from(base.0)] = value;
            }
            words::TIME => self.late = Some(value),
            _ => {
                if let Some(told) = Told::plain(tag, value) {
                    self.tell(told, tell);
                }
            }
        }
    }

    fn tell(&mut self, told: Told<'_>, tell: &mut Tell<'_>) {
        let until = match &told {
            Told::Signal(info) => Until::Next(info.interrupted),
            Told::Default(_) => Until::Unknown,
            _ => Until::End,
        };
        self.finish(until);
        // A thread's start, and what its process is, come before any time.
        if !matches!(told, Told::Start(_) | Told::Exec(_) | Told::Map(_) | Told::Unmap(..)) {
            self.tell_late(tell);
        }
        tell(&mut self.records, Item::Told(told));
    }

    fn tell_late(&mut self, tell: &mut Tell<'_>) {
        if let Some(ns) = self.late.take() {
            tell(&mut self.records, Item::Told(Told::Time(ns)));
        }
    }

    fn hold(&mut self, block: &Rc<Known>, bytes: &[u8], mut at: usize) -> Option<usize> {
        let mut held = Held { block: Rc::clone(block), words: Vec::new(), runs: Vec::new() };
        if block.flexible {
            let count = u32_at(bytes, at)?;
            at += 4;
            for _ in 0..count {
                let (run, next) = Run::parse(bytes, at)?;
                held.runs.push(run);
                at = next;
            }
            // A flexible instruction forms its addresses itself: nothing else is stored.
            held.words.resize(block.widths.len(), 0);
        } else {
            for width in &block.widths {
                let (word, len) = match width {
                    Width::Four => (u64::from(u32_at(bytes, at)?), 4),
                    Width::Eight => (u64_at(bytes, at)?, 8),
                };
                held.words.push(word);
                at += len;
            }
        }
        self.held = Some(held);
        Some(at)
    }

    fn finish(&mut self, until: Until) {
        let Some(held) = self.held.take() else { return };
        let mut words = held.words.iter().copied();
        let (mut pc, mut runs) = (held.block.entry, held.runs);
        for step in &held.block.steps {
            match *step {
                Step::Insn { len, kind } => {
                    if until == Until::Cut(pc) {
                        return;
                    }
                    self.records.push(Record::Insn { len, kind, pc });
                    pc = pc.offset(u64::from(len));
                }
                Step::Take { register, width, .. } => {
                    let word = words.next().unwrap_or(0);
                    let place = &mut self.registers[usize::from(register.0)];
                    *place = match width {
                        Width::Four => *place & !0xffff_ffff | word,
                        Width::Eight => word,
                    };
                }
                Step::Derive { register, value } => {
                    self.registers[usize::from(register.0)] = self.value(value);
                }
                Step::Forget { register } => self.registers[usize::from(register.0)] = 0,
                Step::Ref(r) => {
                    let addr = match r.address {
                        Address::Known(sum) => self.sum(sum),
                        Address::Word(_) => words.next().unwrap_or(0),
                    };
                    self.records.push(r.kind.record(r.flags, r.size, GuestVa(addr)));
                }
                // All accesses of the instruction were told with the first.
                Step::Flex { .. } => std::mem::take(&mut runs).iter().for_each(|run| self.run(run)),
                Step::Exit { kind, target } => {
                    if self.leave(kind, target, until) {
                        return;
                    }
                }
            }
        }
    }

    /// Records a transfer; whether the block ends there.
    fn leave(&mut self, kind: ExitKind, target: GuestVa, until: Until) -> bool {
        let (taken, target) = match (kind, until) {
            (ExitKind::Direct, _) => (true, target),
            (ExitKind::Conditional, Until::Next(next)) => (next == target, target),
            (ExitKind::Conditional, Until::Cut(_) | Until::End) => (false, target),
            (ExitKind::Indirect, Until::Next(next)) => (true, next),
            (ExitKind::Conditional | ExitKind::Indirect, _) => return true,
        };
        self.records.push(Record::Branch { taken, target });
        taken
    }

    fn run(&mut self, run: &Run) {
        for turn in 0..run.turns {
            for lane in run.lanes.iter().flatten() {
                let addr = GuestVa(lane.base.wrapping_add(lane.stride.wrapping_mul(turn)));
                let kind = match lane.what & 0xff {
                    0 => RefKind::Load,
                    1 => RefKind::Store,
                    2 => RefKind::Prefetch,
                    _ => RefKind::Flush,
                };
                let flags = AccessFlags((lane.what >> 8) as u8);
                self.records.push(kind.record(flags, lane.size, addr));
            }
        }
    }

    fn get(&self, register: Register) -> u64 {
        self.registers[usize::from(register.0)]
    }

    fn sum(&self, sum: Sum) -> u64 {
        let base = sum.base.map_or(0, |r| self.get(r));
        let index = sum.index.map_or(0, |(r, n)| self.get(r).wrapping_mul(u64::from(n)));
        base.wrapping_add(index).wrapping_add(sum.disp as u64)
    }

    fn value(&self, value: Value) -> u64 {
        match value {
            Value::Sum(sum) => self.sum(sum),
            Value::Difference(a, b) => self.get(a).wrapping_sub(self.get(b)),
            Value::And(r, mask) => self.get(r) & mask,
            Value::ShiftLeft(r, n) => self.get(r) << n,
            Value::ShiftRight(r, n) => self.get(r) >> n,
            Value::ShiftRightSigned(r, n) => (self.get(r) as i64 >> n) as u64,
            Value::Low32(r) => self.get(r) & 0xffff_ffff,
            Value::Low32Signed(r) => self.get(r) as u32 as i32 as i64 as u64,
            _ => 0,
        }
    }
}
