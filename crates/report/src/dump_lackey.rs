//! A trace in the words of Valgrind's lackey (`--trace-mem=yes`): `I  addr,size`
//! for instructions, ` L`, ` S` and ` M` for loads, stores and modifications.
//!
//! A load followed by a store of the same bytes by the same instruction is a
//! modification. Everything else (branches, events, prefetches, which thread it
//! was) has no words in this format and is left out. Lackey tells a repeated
//! string instruction once per step; ichnos tells it once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::io::Write;

use ichnos_base::{Batch, GuestVa, Record, Sink, ThreadId};

use crate::error::Error;
use crate::line::Lines;

/// Writes a trace as lackey would.
#[derive(Debug)]
pub struct DumpLackey<W> {
    lines: Lines<W>,
    /// A thread's load that may yet be a modification.
    held: HashMap<ThreadId, (GuestVa, u32)>,
}

impl<W: Write> DumpLackey<W> {
    /// A dump to `out`.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), held: HashMap::new() }
    }

    /// The output. All is written after [`Sink::finish`].
    pub fn into_inner(self) -> W {
        self.lines.into_inner()
    }

    #[inline]
    fn line(&mut self, what: &str, addr: GuestVa, size: u32) -> Result<(), Error> {
        self.lines.text(what).hex(addr.0, 8).text(",").decimal(size.into()).end()?;
        Ok(())
    }
}

impl<W: Write> Sink for DumpLackey<W> {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Error> {
        let mut held = self.held.remove(&batch.thread);
        for record in batch.records {
            if let Record::Store { size, addr, .. } = *record
                && held == Some((addr, size))
            {
                held = None;
                self.line(" M ", addr, size)?;
                continue;
            }
            if let Some((addr, size)) = held.take() {
                self.line(" L ", addr, size)?;
            }
            match *record {
                Record::Insn { len, pc, .. } => self.line("I  ", pc, len.into())?,
                Record::Load { size, addr, .. } => held = Some((addr, size)),
                Record::Store { size, addr, .. } => self.line(" S ", addr, size)?,
                _ => {}
            }
        }
        if let Some(held) = held {
            self.held.insert(batch.thread, held);
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Error> {
        let mut held: Vec<_> = self.held.drain().collect();
        held.sort_unstable_by_key(|(thread, _)| *thread);
        for (_, (addr, size)) in held {
            self.line(" L ", addr, size)?;
        }
        Ok(self.lines.finish()?)
    }
}
