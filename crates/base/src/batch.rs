//! Records in the portions in which they travel, and the code they stand for.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{GuestVa, ProcessId, Record, ThreadId};

/// Consecutive records of one thread, in program order.
///
/// A batch may end anywhere, also between an instruction and its accesses (a
/// repeated string instruction can make millions of them), so a consumer that
/// cares keeps its place per thread. No event lies inside a batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Who executed these.
    pub thread: ThreadId,
    /// Instructions of this thread that lie before the batch. An instruction
    /// cut by the batch's start counts as before.
    pub insns_before: u64,
    /// What was executed.
    pub records: &'a [Record],
    /// The bytes loaded and stored, if they were collected: for each load and
    /// store of `records` in order, [`Record::value_len`] bytes.
    pub values: Option<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// A batch without values.
    #[inline]
    #[must_use]
    pub const fn new(thread: ThreadId, insns_before: u64, records: &'a [Record]) -> Self {
        Self { thread, insns_before, records, values: None }
    }
}

/// The machine code of one or more consecutive instructions.
///
/// Told before the first record of an instruction it covers, and again when the
/// bytes have changed since. Collectors that see no code (converted address
/// traces) never tell any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code<'a> {
    /// The address space that holds the code.
    pub process: ProcessId,
    /// Where the first byte lies.
    pub pc: GuestVa,
    /// The code itself.
    pub bytes: &'a [u8],
}
