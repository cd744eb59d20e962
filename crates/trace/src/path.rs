//! A thread's records on their way into blocks: the path that is not yet
//! complete, and records that belong to no block.
//!
//! Invariants: the path is empty or begins with an instruction, its instructions
//! follow each other in memory, and only its last record may be a taken
//! branch. At most one of path and loose records is not empty.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::Record;

/// The most instructions in a path. Longer blocks pack a little better; this
/// keeps a block's records within the first cache level.
const MAX_INSNS: u32 = 64;

/// The most accesses of one instruction that a path holds; what comes after is
/// loose.
const MAX_ACCESSES: u32 = 1 << 16;

/// The most loose records that are held back.
const MAX_LOOSE: usize = 1 << 16;

/// The most bytes of values that a path holds before it ends at the next
/// instruction.
const MAX_VALUES: usize = 1 << 20;

/// Records that are not yet packed.
#[derive(Debug, Default)]
pub(crate) struct Path {
    pub(crate) records: Vec<Record>,
    pub(crate) loose: Vec<Record>,
    /// The values of whichever of the two is not empty.
    pub(crate) values: Vec<u8>,
    insns: u32,
    /// Accesses of the last instruction.
    accesses: u32,
    next_pc: u64,
    /// Whether the last instruction may still get accesses and a branch.
    open: bool,
}

/// What must be done before a record can be taken, or after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Nothing,
    /// The path is complete.
    Path,
    /// The loose records must go first.
    Loose,
}

impl Path {
    /// What is due before `record` can be taken.
    #[inline]
    pub(crate) fn before(&self, record: &Record) -> Due {
        if let Record::Insn { pc, .. } = record {
            if self.insns == 0 {
                return if self.loose.is_empty() { Due::Nothing } else { Due::Loose };
            }
            let full = self.insns >= MAX_INSNS || self.values.len() >= MAX_VALUES;
            return if pc.0 != self.next_pc || full { Due::Path } else { Due::Nothing };
        }
        if self.open && self.accesses < MAX_ACCESSES {
            Due::Nothing
        } else if self.insns > 0 {
            Due::Path
        } else if self.loose.len() >= MAX_LOOSE || self.values.len() >= MAX_VALUES {
            Due::Loose
        } else {
            Due::Nothing
        }
    }

    /// Takes a record before which nothing is due; answers what is due after it.
    #[inline]
    pub(crate) fn take(&mut self, record: &Record) -> Due {
        match record {
            Record::Insn { len, pc, .. } => {
                self.insns += 1;
                self.accesses = 0;
                self.next_pc = pc.0.wrapping_add(u64::from(*len));
                self.open = true;
                self.records.push(*record);
                Due::Nothing
            }
            _ if !self.open => {
                self.loose.push(*record);
                Due::Nothing
            }
            Record::Branch { taken, .. } => {
                self.records.push(*record);
                self.open = false;
                if *taken { Due::Path } else { Due::Nothing }
            }
            _ => {
                self.accesses += 1;
                self.records.push(*record);
                Due::Nothing
            }
        }
    }

    /// Whether the path lies over any of these bytes.
    pub(crate) fn covers(&self, start: u64, len: u64) -> bool {
        let mut insns = self.records.iter().filter_map(|record| match record {
            Record::Insn { len, pc, .. } => Some((pc.0, u64::from(*len))),
            _ => None,
        });
        let Some((first, first_len)) = insns.next() else { return false };
        let (last, last_len) = insns.next_back().unwrap_or((first, first_len));
        let path_len = last.wrapping_add(last_len).wrapping_sub(first);
        start.wrapping_sub(first) < path_len || first.wrapping_sub(start) < len
    }

    /// The path was packed.
    #[inline]
    pub(crate) fn clear_path(&mut self) {
        self.records.clear();
        self.values.clear();
        self.insns = 0;
        self.open = false;
    }

    /// The loose records were packed.
    pub(crate) fn clear_loose(&mut self) {
        self.loose.clear();
        self.values.clear();
    }
}
