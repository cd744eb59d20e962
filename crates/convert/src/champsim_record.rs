//! ChampSim's records: raw little-endian structs, without header or version.
//!
//! A record does not say what sort of branch it is. ChampSim infers it from
//! which of three special registers are read and written; [`ChampSimRecord::kind`]
//! infers the same, and the writer is tested to produce what it wants inferred.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::InsnKind;

/// The stack pointer's number in ChampSim's traces.
pub const STACK_POINTER: u8 = 6;
/// The flags' number.
pub const FLAGS: u8 = 25;
/// The instruction pointer's number.
pub const INSTRUCTION_POINTER: u8 = 26;

/// Which of ChampSim's two structs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// 64 bytes: two destinations, four sources.
    Standard,
    /// 96 bytes: four destinations, four sources, an address-space number.
    CloudSuite,
}

impl Layout {
    /// Bytes of a record.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Standard => 64,
            Self::CloudSuite => 96,
        }
    }

    /// Destination registers, and destination addresses, of a record.
    #[must_use]
    pub const fn destinations(self) -> usize {
        match self {
            Self::Standard => 2,
            Self::CloudSuite => 4,
        }
    }
}

/// Source registers, and source addresses, of a record in either layout.
pub const SOURCES: usize = 4;

/// The record of either layout; the standard one leaves half of the destinations
/// empty. 0 means an empty slot everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChampSimRecord {
    /// The instruction's address.
    pub ip: u64,
    /// Whether the writer calls it a branch. ChampSim does not rely on it.
    pub is_branch: bool,
    /// Whether a conditional branch was taken.
    pub taken: bool,
    /// Registers written.
    pub dest_regs: [u8; 4],
    /// Registers read.
    pub src_regs: [u8; 4],
    /// Addresses written.
    pub dest_mem: [u64; 4],
    /// Addresses read.
    pub src_mem: [u64; 4],
}

impl ChampSimRecord {
    /// Appends the record's bytes.
    pub fn encode(&self, layout: Layout, into: &mut Vec<u8>) {
        let end = into.len() + layout.size();
        let dest = layout.destinations();
        into.extend_from_slice(&self.ip.to_le_bytes());
        into.extend_from_slice(&[u8::from(self.is_branch), u8::from(self.taken)]);
        into.extend(self.dest_regs.iter().take(dest));
        into.extend_from_slice(&self.src_regs);
        if layout == Layout::CloudSuite {
            into.extend_from_slice(&[0; 6]);
        }
        for address in self.dest_mem.iter().take(dest).chain(&self.src_mem) {
            into.extend_from_slice(&address.to_le_bytes());
        }
        // The address-space number and padding.
        into.resize(end, 0);
    }

    /// Reads a record from its bytes; `None` if there are not as many as the
    /// layout has.
    #[must_use]
    pub fn decode(layout: Layout, bytes: &[u8]) -> Option<Self> {
        let (regs, mem) = match layout {
            Layout::Standard => (12, 16),
            Layout::CloudSuite => (14, 24),
        };
        let dest = layout.destinations();
        let word =
            |at: usize| bytes.get(at..at + 8)?.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
        let mut record = Self {
            ip: word(0)?,
            is_branch: *bytes.get(8)? != 0,
            taken: *bytes.get(9)? != 0,
            src_regs: *bytes.get(regs..)?.first_chunk()?,
            ..Self::default()
        };
        for (slot, byte) in record.dest_regs.iter_mut().take(dest).zip(bytes.get(10..)?) {
            *slot = *byte;
        }
        for (i, slot) in record.dest_mem.iter_mut().take(dest).enumerate() {
            *slot = word(mem + 8 * i)?;
        }
        for (i, slot) in record.src_mem.iter_mut().enumerate() {
            *slot = word(mem + 8 * (dest + i))?;
        }
        bytes.get(layout.size() - 1)?;
        Some(record)
    }

    /// What ChampSim takes the instruction for, and whether it takes it as
    /// taken. A branch of no sort that ChampSim names is a conditional one here.
    #[must_use]
    pub fn kind(&self) -> (InsnKind, bool) {
        let reads = |reg| self.src_regs.contains(&reg);
        let writes = |reg| self.dest_regs.contains(&reg);
        if !writes(INSTRUCTION_POINTER) {
            return (InsnKind::OTHER, false);
        }
        let special = [0, STACK_POINTER, FLAGS, INSTRUCTION_POINTER];
        let other = self.src_regs.iter().any(|reg| !special.contains(reg));
        let (sp, ip, flags) = (reads(STACK_POINTER), reads(INSTRUCTION_POINTER), reads(FLAGS));
        let moves_sp = writes(STACK_POINTER);
        match (sp, ip, flags, other) {
            (false, _, false, false) => (InsnKind::JUMP, true),
            (false, false, false, true) => (InsnKind::JUMP_INDIRECT, true),
            (false, true, _, _) if !moves_sp => (InsnKind::BRANCH, self.taken),
            (true, true, false, false) if moves_sp => (InsnKind::CALL, true),
            (true, true, false, true) if moves_sp => (InsnKind::CALL_INDIRECT, true),
            (true, false, _, _) if moves_sp => (InsnKind::RETURN, true),
            _ => (InsnKind::BRANCH, self.taken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record(layout: Layout) -> impl Strategy<Value = ChampSimRecord> {
        let n = layout.destinations();
        let first = move |mut a: [u64; 4]| {
            a.iter_mut().skip(n).for_each(|x| *x = 0);
            a
        };
        (any::<(u64, bool, bool)>(), any::<([u8; 4], [u8; 4], [u64; 4], [u64; 4])>()).prop_map(
            move |((ip, is_branch, taken), (mut dest_regs, src_regs, dest_mem, src_mem))| {
                dest_regs.iter_mut().skip(n).for_each(|x| *x = 0);
                let dest_mem = first(dest_mem);
                ChampSimRecord { ip, is_branch, taken, dest_regs, src_regs, dest_mem, src_mem }
            },
        )
    }

    proptest! {
        #[test]
        fn records_are_read_back(
            standard in any_record(Layout::Standard),
            cloud in any_record(Layout::CloudSuite),
        ) {
            for (layout, record) in [(Layout::Standard, standard), (Layout::CloudSuite, cloud)] {
                let mut bytes = Vec::new();
                record.encode(layout, &mut bytes);
                prop_assert_eq!(bytes.len(), layout.size());
                prop_assert_eq!(ChampSimRecord::decode(layout, &bytes), Some(record));
                prop_assert_eq!(ChampSimRecord::decode(layout, &bytes[1..]), None);
            }
        }
    }

    #[test]
    fn fields_lie_where_the_struct_has_them() {
        let record = ChampSimRecord {
            ip: 0x0102_0304_0506_0708,
            is_branch: true,
            taken: true,
            dest_regs: [11, 12, 0, 0],
            src_regs: [13, 14, 15, 16],
            dest_mem: [0x20, 0x21, 0, 0],
            src_mem: [0x30, 0x31, 0x32, 0x33],
        };
        let mut bytes = Vec::new();
        record.encode(Layout::Standard, &mut bytes);
        assert_eq!(bytes[..16], [8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 11, 12, 13, 14, 15, 16]);
        assert_eq!((bytes[16], bytes[24], bytes[32], bytes[56]), (0x20, 0x21, 0x30, 0x33));
        bytes.clear();
        record.encode(Layout::CloudSuite, &mut bytes);
        assert_eq!(bytes[10..18], [11, 12, 0, 0, 13, 14, 15, 16]);
        assert_eq!((bytes[24], bytes[32], bytes[56], bytes[80]), (0x20, 0x21, 0x30, 0x33));
    }
}
