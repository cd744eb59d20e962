//! An observer that keeps records until they are handed to a sink.
//!
//! Invariant: records before `mark` belong to retired instructions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, Batch, GuestVa, InsnKind, Record, Sink, ThreadId};

use crate::observe::Observer;

/// Records that make a full batch: 64 KiB, so that it stays in a fast cache
/// between the one who writes it and the one who reads it.
const FULL: usize = 4096;

/// Whether the bytes loaded and stored are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Values {
    /// Addresses only.
    #[default]
    Omitted,
    /// Addresses and bytes.
    Recorded,
}

/// The records of one thread that no sink has seen yet.
#[derive(Debug)]
pub(crate) struct Recorder {
    thread: ThreadId,
    values: Values,
    records: Vec<Record>,
    bytes: Vec<u8>,
    mark: (usize, usize),
    insns: u64,
    insns_before: u64,
}

impl Recorder {
    pub(crate) fn new(thread: ThreadId, values: Values) -> Self {
        Self {
            thread,
            values,
            records: Vec::with_capacity(FULL + 16),
            bytes: Vec::new(),
            mark: (0, 0),
            insns: 0,
            insns_before: 0,
        }
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Hands all records to the sink; false if it has seen enough.
    pub(crate) fn hand_over<S: Sink>(&mut self, sink: &mut S) -> Result<bool, S::Error> {
        if self.records.is_empty() {
            return Ok(true);
        }
        let values = (self.values == Values::Recorded).then_some(&self.bytes[..]);
        let batch = Batch {
            thread: self.thread,
            insns_before: self.insns_before,
            records: &self.records,
            values,
        };
        let more = sink.records(&batch)?;
        self.records.clear();
        self.bytes.clear();
        self.insns_before = self.insns;
        Ok(more)
    }

    fn value(&mut self, size: u32, value: u64) {
        if self.values == Values::Recorded {
            self.bytes.extend_from_slice(&value.to_le_bytes()[..size as usize & 15]);
        }
    }
}

impl Observer for Recorder {
    type Data = ();
    type Rest = ();

    fn data(&self) {}
    fn rest(&self) {}

    #[inline]
    fn insn(&mut self, pc: GuestVa, len: u8, kind: InsnKind) {
        self.mark = (self.records.len(), self.bytes.len());
        self.insns += 1;
        self.records.push(Record::insn(pc, len, kind));
    }

    #[inline]
    fn load(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, value: u64) {
        self.records.push(Record::Load { flags, size, addr });
        self.value(size, value);
    }

    #[inline]
    fn store(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, value: u64) {
        self.records.push(Record::Store { flags, size, addr });
        self.value(size, value);
    }

    fn zero(&mut self, addr: GuestVa, size: u32) {
        self.records.push(Record::store(addr, size));
        if self.values == Values::Recorded {
            self.bytes.resize(self.bytes.len() + size as usize, 0);
        }
    }

    fn flush(&mut self, addr: GuestVa, size: u32) {
        self.records.push(Record::Flush { flags: AccessFlags::NONE, size, addr });
    }

    #[inline]
    fn branch(&mut self, taken: bool, target: GuestVa) {
        self.records.push(Record::branch(taken, target));
    }

    fn abandon(&mut self) {
        self.records.truncate(self.mark.0);
        self.bytes.truncate(self.mark.1);
        self.insns -= 1;
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.records.len() >= FULL
    }
}
