//! Writes din and lackey text.
//!
//! Both hold all threads in one text without saying whose a line is: batches
//! appear in the order in which they are told. Events and code have no place
//! here and are left out, and so are prefetches and flushes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use ichnos_base::{AccessFlags, Batch, GuestVa, Record, Sink, ThreadId};

use crate::digits::{push_decimal, push_hex};
use crate::output::Output;
use crate::{DinStyle, Error, Format, Repeats, Result, WriteOptions};

/// Text collected before it is handed on.
const BLOCK: usize = 1 << 16;

/// A sink that writes din text.
#[derive(Debug)]
pub struct DinSink {
    page: Page,
    style: DinStyle,
}

impl DinSink {
    /// Writes to `output`.
    #[must_use]
    pub fn new(output: Output, options: &WriteOptions) -> Self {
        Self { page: Page::new(Format::Din, output, options), style: options.din }
    }
}

impl Sink for DinSink {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        if self.page.leaves_out(batch.thread) {
            return Ok(true);
        }
        for record in batch.records {
            let (label, addr, size) = match *record {
                Record::Insn { len, pc, .. } => (b'2', pc, u32::from(len)),
                Record::Load { size, addr, .. } => (b'0', addr, size),
                Record::Store { size, addr, .. } => (b'1', addr, size),
                _ => continue,
            };
            let text = &mut self.page.text;
            text.extend_from_slice(&[label, b' ']);
            push_hex(text, addr.0, 0);
            if self.style == DinStyle::Sized {
                text.push(b' ');
                push_hex(text, u64::from(size), 0);
            }
            text.push(b'\n');
            self.page.turn()?;
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        self.page.finish()
    }
}

/// A sink that writes what lackey would.
#[derive(Debug)]
pub struct LackeySink {
    page: Page,
    repeats: Repeats,
    /// The last instruction, for the lines of its further turns.
    insn: (GuestVa, u8),
    /// A load that the next record may make a modification.
    load: Option<(u32, GuestVa)>,
    /// Whether the present turn of a repeated instruction has a load or a store
    /// already.
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Fresh,
    Loaded,
    Done,
}

impl LackeySink {
    /// Writes to `output`.
    #[must_use]
    pub fn new(output: Output, options: &WriteOptions) -> Self {
        Self {
            page: Page::new(Format::Lackey, output, options),
            repeats: options.repeats,
            insn: (GuestVa(0), 0),
            load: None,
            turn: Turn::Fresh,
        }
    }

    fn put(&mut self, mark: &[u8; 3], addr: GuestVa, size: u32) -> Result<()> {
        let text = &mut self.page.text;
        text.extend_from_slice(mark);
        push_hex(text, addr.0, 8);
        text.push(b',');
        push_decimal(text, u64::from(size));
        text.push(b'\n');
        self.page.turn()
    }

    fn settle(&mut self) -> Result<()> {
        match self.load.take() {
            Some((size, addr)) => self.put(b" L ", addr, size),
            None => Ok(()),
        }
    }

    /// A line for a further turn of a repeated string instruction: one that
    /// begins anew after a store, or with a second load.
    fn turn(&mut self, flags: AccessFlags, next: Turn) -> Result<()> {
        if self.repeats == Repeats::Separate && flags.has(AccessFlags::STRING) {
            let anew = matches!((self.turn, next), (Turn::Done, _) | (Turn::Loaded, Turn::Loaded));
            if anew {
                self.settle()?;
                let (pc, len) = self.insn;
                self.put(b"I  ", pc, u32::from(len))?;
            }
            self.turn = next;
        }
        Ok(())
    }
}

impl Sink for LackeySink {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        if self.page.leaves_out(batch.thread) {
            return Ok(true);
        }
        for record in batch.records {
            match *record {
                Record::Insn { len, pc, .. } => {
                    self.settle()?;
                    self.insn = (pc, len);
                    self.turn = Turn::Fresh;
                    self.put(b"I  ", pc, u32::from(len))?;
                }
                Record::Load { size, addr, flags } => {
                    self.settle()?;
                    self.turn(flags, Turn::Loaded)?;
                    self.load = Some((size, addr));
                }
                Record::Store { size, addr, flags } => {
                    self.turn(flags, Turn::Done)?;
                    if self.load == Some((size, addr)) {
                        self.load = None;
                        self.put(b" M ", addr, size)?;
                    } else {
                        self.settle()?;
                        self.put(b" S ", addr, size)?;
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        self.settle()?;
        self.page.finish()
    }
}

/// Text on its way out.
#[derive(Debug)]
struct Page {
    format: Format,
    text: Vec<u8>,
    output: Option<Output>,
    thread: Option<ThreadId>,
}

impl Page {
    fn new(format: Format, output: Output, options: &WriteOptions) -> Self {
        let text = Vec::with_capacity(BLOCK + 128);
        Self { format, text, output: Some(output), thread: options.thread }
    }

    fn leaves_out(&self, thread: ThreadId) -> bool {
        self.thread.is_some_and(|wanted| wanted != thread)
    }

    #[inline]
    fn turn(&mut self) -> Result<()> {
        if self.text.len() >= BLOCK { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let format = self.format;
        if let Some(output) = &mut self.output {
            output.write_all(&self.text).map_err(|source| Error::Write { format, source })?;
        }
        self.text.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.write()?;
        let format = self.format;
        match self.output.take() {
            Some(output) => output.finish().map_err(|source| Error::Write { format, source }),
            None => Ok(()),
        }
    }
}
