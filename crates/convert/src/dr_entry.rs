//! The 12-byte entries of drmemtrace's canonical form: a type, a size (or the
//! kind of a marker) and an address (or a value), little-endian, packed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::InsnKind;

/// Bytes of an entry.
pub(crate) const ENTRY: usize = 12;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: u16,
    pub(crate) size: u16,
    pub(crate) addr: u64,
}

impl Entry {
    pub(crate) const fn new(kind: u16, size: u16, addr: u64) -> Self {
        Self { kind, size, addr }
    }

    pub(crate) const fn marker(marker: u16, value: u64) -> Self {
        Self::new(MARKER, marker, value)
    }

    pub(crate) fn decode(bytes: &[u8; ENTRY]) -> Self {
        let [k0, k1, s0, s1, addr @ ..] = *bytes;
        Self {
            kind: u16::from_le_bytes([k0, k1]),
            size: u16::from_le_bytes([s0, s1]),
            addr: u64::from_le_bytes(addr),
        }
    }

    pub(crate) fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.kind.to_le_bytes());
        into.extend_from_slice(&self.size.to_le_bytes());
        into.extend_from_slice(&self.addr.to_le_bytes());
    }
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const PREFETCH: u16 = 2;
/// The last of the first run of prefetch types.
pub(crate) const PREFETCH_INSTR: u16 = 9;
pub(crate) const PREFETCH_NTA: u16 = 6;
pub(crate) const PREFETCH_WRITE: u16 = 8;
pub(crate) const INSTR: u16 = 10;
pub(crate) const DIRECT_JUMP: u16 = 11;
pub(crate) const INDIRECT_JUMP: u16 = 12;
pub(crate) const CONDITIONAL_JUMP: u16 = 13;
pub(crate) const DIRECT_CALL: u16 = 14;
pub(crate) const INDIRECT_CALL: u16 = 15;
pub(crate) const RETURN: u16 = 16;
pub(crate) const BUNDLE: u16 = 17;
pub(crate) const INSTR_FLUSH: u16 = 18;
pub(crate) const INSTR_FLUSH_END: u16 = 19;
pub(crate) const DATA_FLUSH: u16 = 20;
pub(crate) const DATA_FLUSH_END: u16 = 21;
pub(crate) const THREAD: u16 = 22;
pub(crate) const THREAD_EXIT: u16 = 23;
pub(crate) const PID: u16 = 24;
pub(crate) const HEADER: u16 = 25;
pub(crate) const FOOTER: u16 = 26;
pub(crate) const HARDWARE_PREFETCH: u16 = 27;
pub(crate) const MARKER: u16 = 28;
pub(crate) const NO_FETCH: u16 = 29;
pub(crate) const MAYBE_FETCH: u16 = 30;
pub(crate) const SYSENTER: u16 = 31;
/// The second run of prefetch types; from `WRITE_L1` on they are for writing,
/// and every second one, beginning with these, is non-temporal.
pub(crate) const PREFETCH_READ_L1_NT: u16 = 32;
pub(crate) const PREFETCH_READ_L3_NT: u16 = 34;
pub(crate) const PREFETCH_WRITE_L1: u16 = 41;
pub(crate) const PREFETCH_WRITE_L1_NT: u16 = 42;
pub(crate) const PREFETCH_WRITE_L3_NT: u16 = 46;
pub(crate) const ENCODING: u16 = 47;
pub(crate) const TAKEN_JUMP: u16 = 48;
pub(crate) const UNTAKEN_JUMP: u16 = 49;

/// Kinds of markers.
pub(crate) mod marker {
    pub(crate) const KERNEL_EVENT: u16 = 0;
    pub(crate) const KERNEL_XFER: u16 = 1;
    pub(crate) const TIMESTAMP: u16 = 2;
    pub(crate) const CPU_ID: u16 = 3;
    pub(crate) const FUNC_ID: u16 = 4;
    pub(crate) const FUNC_ARG: u16 = 6;
    pub(crate) const FUNC_RETVAL: u16 = 7;
    pub(crate) const FILETYPE: u16 = 9;
    pub(crate) const CACHE_LINE_SIZE: u16 = 10;
    pub(crate) const VERSION: u16 = 12;
    pub(crate) const RSEQ_ABORT: u16 = 13;
    pub(crate) const WINDOW_ID: u16 = 14;
    pub(crate) const PAGE_SIZE: u16 = 18;
    pub(crate) const CHUNK_INSTR_COUNT: u16 = 20;
    pub(crate) const CHUNK_FOOTER: u16 = 21;
    pub(crate) const RECORD_ORDINAL: u16 = 22;
    pub(crate) const SYSCALL: u16 = 25;
    pub(crate) const MAYBE_BLOCKING: u16 = 26;
    pub(crate) const BRANCH_TARGET: u16 = 29;
    pub(crate) const SIGNAL_NUMBER: u16 = 40;
}

/// Bits of the file type.
pub(crate) mod filetype {
    pub(crate) const X86_64: u64 = 0x40;
    pub(crate) const IFILTERED: u64 = 0x80;
    pub(crate) const ENCODINGS: u64 = 0x200;
    pub(crate) const SYSCALL_NUMBERS: u64 = 0x400;
    pub(crate) const CORE_SHARDED: u64 = 0x1_0000;
    pub(crate) const REGDEPS: u64 = 0x2_0000;
}

/// The version that is written, and the newest that is read: only retired
/// instructions, branch targets before branches.
pub(crate) const VERSION: u64 = 7;
/// The oldest version that is read.
pub(crate) const OLDEST: u64 = 2;

/// Functions with ids from here on are system calls.
pub(crate) const SYSCALL_BASE: u64 = 1 << 32;

/// Microseconds from 1601, drmemtrace's epoch, to 1970.
pub(crate) const EPOCH_US: u64 = 11_644_473_600_000_000;

/// The entry type of an instruction; `taken` for conditional branches, if known.
pub(crate) const fn type_of(kind: InsnKind, taken: Option<bool>) -> u16 {
    match kind {
        InsnKind::JUMP => DIRECT_JUMP,
        InsnKind::JUMP_INDIRECT => INDIRECT_JUMP,
        InsnKind::CALL => DIRECT_CALL,
        InsnKind::CALL_INDIRECT => INDIRECT_CALL,
        InsnKind::RETURN => RETURN,
        InsnKind::BRANCH => match taken {
            Some(true) => TAKEN_JUMP,
            Some(false) => UNTAKEN_JUMP,
            None => CONDITIONAL_JUMP,
        },
        _ => INSTR,
    }
}

/// The kind of an instruction entry, and whether it is taken if the type tells;
/// `None` for entries that are no instructions.
pub(crate) const fn kind_of(entry_type: u16) -> Option<(InsnKind, Option<bool>)> {
    Some(match entry_type {
        INSTR => (InsnKind::OTHER, None),
        SYSENTER => (InsnKind::SYSCALL, None),
        DIRECT_JUMP => (InsnKind::JUMP, Some(true)),
        INDIRECT_JUMP => (InsnKind::JUMP_INDIRECT, Some(true)),
        CONDITIONAL_JUMP => (InsnKind::BRANCH, None),
        DIRECT_CALL => (InsnKind::CALL, Some(true)),
        INDIRECT_CALL => (InsnKind::CALL_INDIRECT, Some(true)),
        RETURN => (InsnKind::RETURN, Some(true)),
        TAKEN_JUMP => (InsnKind::BRANCH, Some(true)),
        UNTAKEN_JUMP => (InsnKind::BRANCH, Some(false)),
        _ => return None,
    })
}
