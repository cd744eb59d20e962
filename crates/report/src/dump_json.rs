//! A trace as JSON lines: one object per line, for programs in any language.
//!
//! Every object has `type`; all but the first (`begin`) have `thread`, and all
//! but `begin` and `code` have `insn`: the ordinal of the instruction that the
//! record belongs to, or for events how many instructions precede them.
//!
//! | type | fields |
//! |---|---|
//! | `begin` | `isa`, `collector`, `command` (list), `folder`, `host`, `started_ns`, `values`, `branches` |
//! | `insn` | `pc`, `len`, `kind`, `symbol` if there is one |
//! | `load`, `store`, `prefetch`, `flush` | `addr`, `size`, `flags` (list, if any), `value` (if collected) |
//! | `branch` | `taken`, `target` |
//! | `event` | `event` (its name), and its own fields as in the text dump |
//! | `code` | `process`, `pc`, `bytes` |
//!
//! Addresses are strings like `"0x401000"`, because JSON numbers lose the low
//! bits of large ones in many readers; bytes are strings of hexadecimal digits
//! in the order of memory; everything else is a plain number, text or truth
//! value. Arguments of system calls are addresses in this sense.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use ichnos_base::{About, AccessFlags, Batch, Code, Event, Record, Sink, ThreadId};

use crate::error::Error;
use crate::fields::{FLAGS, Fields, event_fields, event_name};
use crate::line::Lines;
use crate::ordinals::{Ordinals, Values};
use crate::symbols::{Names, Symbolize};

/// Writes a trace as JSON lines.
#[derive(Debug)]
pub struct DumpJson<W, Y = ()> {
    lines: Lines<W>,
    ordinals: Ordinals,
    names: Names<Y>,
}

impl<W: Write> DumpJson<W> {
    /// A dump without names.
    pub fn new(out: W) -> Self {
        Self::with_symbols(out, ())
    }
}

impl<W: Write, Y: Symbolize> DumpJson<W, Y> {
    /// A dump with a name beside each instruction.
    pub fn with_symbols(out: W, symbols: Y) -> Self {
        Self { lines: Lines::new(out), ordinals: Ordinals::default(), names: Names::new(symbols) }
    }

    /// The output. All is written after [`Sink::finish`].
    pub fn into_inner(self) -> W {
        self.lines.into_inner()
    }

    fn head(&mut self, kind: &str, thread: ThreadId, insn: u64) -> &mut Lines<W> {
        let lines = self.lines.text("{\"type\":\"").text(kind).text("\",\"thread\":");
        lines.decimal(thread.0.into()).text(",\"insn\":").decimal(insn)
    }

    fn insn(&mut self, thread: ThreadId, ordinal: u64, record: &Record) {
        let Record::Insn { len, kind, pc } = *record else { return };
        let lines = self.head("insn", thread, ordinal);
        lines.text(",\"pc\":\"").address(pc.0).text("\",\"len\":").decimal(len.into());
        match kind.name() {
            Some(name) => lines.text(",\"kind\":\"").text(name).text("\""),
            None => lines.text(",\"kind\":").decimal(kind.0.into()),
        };
        if let Some(name) = self.names.name(thread, pc) {
            self.lines.text(",\"symbol\":").quoted(name);
        }
        self.lines.text("}");
    }

    #[inline]
    fn record(&mut self, thread: ThreadId, ordinal: u64, record: &Record, value: &[u8]) {
        let (kind, flags, size, addr) = match *record {
            Record::Load { flags, size, addr } => ("load", flags, size, addr),
            Record::Store { flags, size, addr } => ("store", flags, size, addr),
            Record::Prefetch { flags, size, addr } => ("prefetch", flags, size, addr),
            Record::Flush { flags, size, addr } => ("flush", flags, size, addr),
            Record::Branch { taken, target } => {
                let taken = if taken { "true" } else { "false" };
                let lines = self.head("branch", thread, ordinal).text(",\"taken\":").text(taken);
                lines.text(",\"target\":\"").address(target.0).text("\"}");
                return;
            }
            Record::Insn { .. } => return self.insn(thread, ordinal, record),
        };
        let lines = self.head(kind, thread, ordinal).text(",\"addr\":\"").address(addr.0);
        lines.text("\",\"size\":").decimal(size.into());
        if flags != AccessFlags::NONE {
            flag_list(lines, flags);
        }
        if !value.is_empty() {
            lines.text(",\"value\":\"").bytes(value).text("\"");
        }
        lines.text("}");
    }
}

fn flag_list<W: Write>(lines: &mut Lines<W>, flags: AccessFlags) {
    let mut before = ",\"flags\":[\"";
    for (_, name) in FLAGS.iter().filter(|(flag, _)| flags.has(*flag)) {
        lines.text(before).text(name);
        before = "\",\"";
    }
    // Flags of a later version have no names and are left out.
    if before == "\",\"" {
        lines.text("\"]");
    }
}

impl<W: Write, Y: Symbolize> Sink for DumpJson<W, Y> {
    type Error = Error;

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Error> {
        let lines = self.lines.text("{\"type\":\"begin\",\"isa\":");
        match about.isa.name() {
            Some(name) => lines.quoted(name),
            None => lines.decimal(about.isa.0.into()),
        };
        lines.text(",\"collector\":").quoted(about.collector).text(",\"command\":[");
        for (i, word) in about.command.iter().enumerate() {
            lines.text(if i == 0 { "" } else { "," }).quoted(word);
        }
        lines.text("],\"folder\":").quoted(about.folder).text(",\"host\":").quoted(about.host);
        let truth = |yes: bool| if yes { "true" } else { "false" };
        lines.text(",\"started_ns\":").decimal(about.started_ns);
        lines.text(",\"values\":").text(truth(about.values));
        lines.text(",\"branches\":").text(truth(about.branches)).text("}").end()?;
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Error> {
        let mut ordinal = self.ordinals.begin(batch);
        let mut values = Values::of(batch);
        for record in batch.records {
            let value = values.take(record);
            let is_insn = matches!(record, Record::Insn { .. });
            ordinal = ordinal.saturating_add(u64::from(is_insn));
            self.record(batch.thread, ordinal.saturating_sub(1), record, value);
            self.lines.end()?;
        }
        self.ordinals.end(batch.thread, ordinal);
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Error> {
        self.names.event(thread, event);
        let before = self.ordinals.of(thread);
        let lines = self.head("event", thread, before).text(",\"event\":\"");
        lines.text(event_name(event)).text("\"");
        event_fields(event, &mut Members(&mut self.lines));
        self.lines.text("}").end()?;
        Ok(true)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Error> {
        let lines = self.lines.text("{\"type\":\"code\",\"thread\":").decimal(thread.0.into());
        lines.text(",\"process\":").decimal(code.process.0.into()).text(",\"pc\":\"");
        lines.address(code.pc.0).text("\",\"bytes\":\"").bytes(code.bytes).text("\"}").end()?;
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(self.lines.finish()?)
    }
}

/// Fields as `,"key":value`.
struct Members<'a, W>(&'a mut Lines<W>);

impl<W: Write> Members<'_, W> {
    fn key(&mut self, key: &str) -> &mut Lines<W> {
        self.0.text(",\"").text(key).text("\":")
    }
}

impl<W: Write> Fields for Members<'_, W> {
    fn number(&mut self, key: &str, value: u64) {
        self.key(key).decimal(value);
    }

    fn signed(&mut self, key: &str, value: i64) {
        self.key(key).signed(value);
    }

    fn address(&mut self, key: &str, value: u64) {
        self.key(key).text("\"").address(value).text("\"");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key).quoted(value);
    }

    fn bytes(&mut self, key: &str, value: &[u8]) {
        self.key(key).text("\"").bytes(value).text("\"");
    }

    fn numbers(&mut self, key: &str, values: &[u64]) {
        self.key(key).text("[");
        for (i, value) in values.iter().enumerate() {
            self.0.text(if i == 0 { "\"" } else { ",\"" }).address(*value).text("\"");
        }
        self.0.text("]");
    }
}
