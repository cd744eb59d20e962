//! Physical memory protection: sixteen entries that say what modes below
//! machine mode, and machine mode itself where locked, may do where.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::system::privilege::Privilege;
use crate::tlb::Rights;

pub(crate) const ENTRIES: usize = 16;
const LOCKED: u8 = 0x80;

/// The protection registers of a hart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pmp {
    config: [u8; ENTRIES],
    address: [u64; ENTRIES],
    /// Whether protection applies at all. It does not when firmware is built in.
    enabled: bool,
}

impl Pmp {
    /// Protection as after a reset: modes below machine mode may do nothing.
    pub(crate) fn new() -> Self {
        Self { enabled: true, ..Self::default() }
    }

    /// No protection.
    pub(crate) fn open() -> Self {
        Self::default()
    }

    /// Eight entries' configuration, `first` of them.
    pub(crate) fn config(&self, first: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.config[first..first + 8]);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn set_config(&mut self, first: usize, value: u64) {
        for (n, byte) in value.to_le_bytes().into_iter().enumerate() {
            let entry = &mut self.config[first + n];
            // Writable but not readable is reserved and not taken.
            if *entry & LOCKED == 0 && byte & 3 != 2 {
                *entry = byte & 0x9f;
            }
        }
    }

    pub(crate) fn address(&self, entry: usize) -> u64 {
        self.address[entry]
    }

    pub(crate) fn set_address(&mut self, entry: usize, value: u64) {
        let next = self.config.get(entry + 1).copied().unwrap_or(0);
        let guards_locked = next & LOCKED != 0 && next >> 3 & 3 == 1;
        if self.config[entry] & LOCKED == 0 && !guards_locked {
            self.address[entry] = value & ((1 << 54) - 1);
        }
    }

    /// The first and last byte of an entry, if it is on.
    fn range(&self, entry: usize) -> Option<(u64, u64)> {
        let top = self.address[entry];
        match self.config[entry] >> 3 & 3 {
            0 => None,
            1 => {
                let bottom = if entry == 0 { 0 } else { self.address[entry - 1] };
                (bottom < top).then(|| (bottom << 2, (top << 2) - 1))
            }
            2 => Some((top << 2, (top << 2) + 3)),
            _ => {
                let ones = top.trailing_ones().min(53);
                let size = 1u64 << (ones + 3);
                let start = top << 2 & !(size - 1);
                Some((start, start + (size - 1)))
            }
        }
    }

    /// What a mode may do with `len` bytes. A range that is only partly in an
    /// entry may do nothing, or, if `len` is a page, must be asked byte by byte.
    pub(crate) fn rights(&self, pa: u64, len: u64, mode: Privilege) -> Option<Rights> {
        const ALL: Rights = Rights { read: true, write: true, exec: true };
        if !self.enabled {
            return Some(ALL);
        }
        let last = pa + (len - 1);
        for entry in 0..ENTRIES {
            let Some((low, high)) = self.range(entry) else { continue };
            if last < low || pa > high {
                continue;
            }
            if pa < low || last > high {
                return None;
            }
            let bits = self.config[entry];
            if mode == Privilege::Machine && bits & LOCKED == 0 {
                return Some(ALL);
            }
            return Some(Rights { read: bits & 1 != 0, write: bits & 2 != 0, exec: bits & 4 != 0 });
        }
        Some(if mode == Privilege::Machine { ALL } else { Rights::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_match_in_order_and_lock() {
        let mut pmp = Pmp::new();
        assert_eq!(pmp.rights(0x1000, 4, Privilege::User), Some(Rights::default()));
        assert_eq!(pmp.rights(0x1000, 4, Privilege::Machine).map(|r| r.write), Some(true));
        // 0x2000..0x3000 read-only and locked, then everything.
        pmp.set_address(0, 0x2000 >> 2 | 0x1ff);
        pmp.set_address(1, u64::MAX);
        pmp.set_config(0, 0x1f_99);
        let at = |pmp: &Pmp, pa, mode| pmp.rights(pa, 8, mode).map(|r| (r.read, r.write, r.exec));
        assert_eq!(at(&pmp, 0x2ff8, Privilege::Supervisor), Some((true, false, false)));
        assert_eq!(at(&pmp, 0x2ff8, Privilege::Machine), Some((true, false, false)));
        assert_eq!(at(&pmp, 0x3000, Privilege::User), Some((true, true, true)));
        assert_eq!(at(&pmp, 0x2ffc, Privilege::User), None);
        pmp.set_config(0, 0);
        assert_eq!(pmp.config(0) & 0xff, 0x99);
    }
}
