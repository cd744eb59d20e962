//! A trace as text, one line per record and event, made to be read and grepped.
//!
//! Each line begins with the thread and the ordinal of the instruction it
//! belongs to (for events: how many instructions precede them). Then:
//!
//! ```text
//! I ADDRESS LENGTH KIND [NAME]          an instruction
//! L|S|P|F ADDRESS SIZE [FLAG,...] [=BYTES]   a load, store, prefetch or flush
//! B taken|untaken ADDRESS               a control transfer's outcome
//! E NAME [KEY=VALUE ...]                an event
//! ```
//!
//! Bytes of values are in the order of memory. Texts with blanks or quotes are
//! quoted as in JSON.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use ichnos_base::{AccessFlags, Batch, Event, InsnKind, Record, Sink, ThreadId};

use crate::error::Error;
use crate::fields::{FLAGS, Fields, event_fields, event_name};
use crate::line::Lines;
use crate::ordinals::{Ordinals, Values};
use crate::symbols::{Names, Symbolize};

/// Writes a trace as text.
#[derive(Debug)]
pub struct DumpText<W, Y = ()> {
    lines: Lines<W>,
    ordinals: Ordinals,
    names: Names<Y>,
}

impl<W: Write> DumpText<W> {
    /// A dump without names.
    pub fn new(out: W) -> Self {
        Self::with_symbols(out, ())
    }
}

impl<W: Write, Y: Symbolize> DumpText<W, Y> {
    /// A dump with a name beside each instruction.
    pub fn with_symbols(out: W, symbols: Y) -> Self {
        Self { lines: Lines::new(out), ordinals: Ordinals::default(), names: Names::new(symbols) }
    }

    /// The output. All is written after [`Sink::finish`].
    pub fn into_inner(self) -> W {
        self.lines.into_inner()
    }

    fn insn(&mut self, thread: ThreadId, record: &Record) {
        let Record::Insn { len, kind, pc } = *record else { return };
        let lines = self.lines.text(" I ").address(pc.0).text(" ").decimal(len.into()).text(" ");
        kind_words(lines, kind);
        if let Some(name) = self.names.name(thread, pc) {
            lines.text(" ").text(name);
        }
    }

    #[inline]
    fn record(&mut self, record: &Record, value: &[u8]) {
        let (letter, flags, size, addr) = match *record {
            Record::Load { flags, size, addr } => (" L ", flags, size, addr),
            Record::Store { flags, size, addr } => (" S ", flags, size, addr),
            Record::Prefetch { flags, size, addr } => (" P ", flags, size, addr),
            Record::Flush { flags, size, addr } => (" F ", flags, size, addr),
            Record::Branch { taken, target } => {
                let outcome = if taken { " B taken " } else { " B untaken " };
                self.lines.text(outcome).address(target.0);
                return;
            }
            Record::Insn { .. } => return,
        };
        self.lines.text(letter).address(addr.0).text(" ").decimal(size.into());
        if flags != AccessFlags::NONE {
            flag_words(&mut self.lines, flags);
        }
        if !value.is_empty() {
            self.lines.text(" =").bytes(value);
        }
    }
}

fn kind_words<W: Write>(lines: &mut Lines<W>, kind: InsnKind) {
    match kind.name() {
        Some(name) => lines.text(name),
        None => lines.text("kind-").decimal(kind.0.into()),
    };
}

fn flag_words<W: Write>(lines: &mut Lines<W>, flags: AccessFlags) {
    let mut before = " ";
    for (_, name) in FLAGS.iter().filter(|(flag, _)| flags.has(*flag)) {
        lines.text(before).text(name);
        before = ",";
    }
}

impl<W: Write, Y: Symbolize> Sink for DumpText<W, Y> {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Error> {
        let mut ordinal = self.ordinals.begin(batch);
        let mut values = Values::of(batch);
        for record in batch.records {
            let value = values.take(record);
            let is_insn = matches!(record, Record::Insn { .. });
            ordinal = ordinal.saturating_add(u64::from(is_insn));
            // Records before any instruction belong to none; they get 0 as well.
            let shown = ordinal.saturating_sub(1);
            self.lines.decimal(batch.thread.0.into()).text(" ").decimal(shown);
            if is_insn {
                self.insn(batch.thread, record);
            } else {
                self.record(record, value);
            }
            self.lines.end()?;
        }
        self.ordinals.end(batch.thread, ordinal);
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Error> {
        self.names.event(thread, event);
        let before = self.ordinals.of(thread);
        let lines = self.lines.decimal(thread.0.into()).text(" ").decimal(before).text(" E ");
        lines.text(event_name(event));
        event_fields(event, &mut Words(&mut self.lines));
        self.lines.end()?;
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(self.lines.finish()?)
    }
}

/// Fields as ` key=value`.
struct Words<'a, W>(&'a mut Lines<W>);

impl<W: Write> Words<'_, W> {
    fn key(&mut self, key: &str) -> &mut Lines<W> {
        self.0.text(" ").text(key).text("=")
    }
}

impl<W: Write> Fields for Words<'_, W> {
    fn number(&mut self, key: &str, value: u64) {
        self.key(key).decimal(value);
    }

    fn signed(&mut self, key: &str, value: i64) {
        self.key(key).signed(value);
    }

    fn address(&mut self, key: &str, value: u64) {
        self.key(key).address(value);
    }

    fn text(&mut self, key: &str, value: &str) {
        let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '"';
        if !value.is_empty() && value.chars().all(plain) {
            self.key(key).text(value);
        } else {
            self.key(key).quoted(value);
        }
    }

    fn bytes(&mut self, key: &str, value: &[u8]) {
        self.key(key).bytes(value);
    }

    fn numbers(&mut self, key: &str, values: &[u64]) {
        self.key(key);
        for (i, value) in values.iter().enumerate() {
            self.0.text(if i == 0 { "" } else { "," }).address(*value);
        }
    }
}
