//! Physical memory protection: sixteen entries that say what modes below
//! machine mode, and machine mode itself where locked, may do where.
//!
//! Invariant: a page is protected as a whole. The architecture leaves the grain
//! to the machine, and this one's is a page, so that a translation carries its
//! protection with it. Software finds that out by reading addresses back.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::system::privilege::Privilege;
use crate::tlb::Rights;

pub(crate) const ENTRIES: usize = 16;
const LOCKED: u8 = 0x80;
const MATCHING: u8 = 0x18;
const RANGE: u8 = 0x08;
const FOUR_BYTES: u8 = 0x10;
/// Low bits of an address register, which counts words, below a page.
const BELOW_PAGE: u64 = 0x3ff;

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
            // Writable but not readable is reserved and not taken. Four bytes are
            // less than the grain: they become the smallest power of two.
            if *entry & LOCKED == 0 && byte & 3 != 2 {
                let four = byte & MATCHING == FOUR_BYTES;
                *entry = byte & 0x9f | if four { MATCHING } else { 0 };
            }
        }
    }

    /// An address register as it reads: without bits that are below the grain.
    pub(crate) fn address(&self, entry: usize) -> u64 {
        match self.config[entry] & FOUR_BYTES {
            0 => self.address[entry] & !BELOW_PAGE,
            _ => self.address[entry] | BELOW_PAGE >> 1,
        }
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
        match self.config[entry] & MATCHING {
            0 => None,
            RANGE => {
                let top = self.address[entry] & !BELOW_PAGE;
                let below = entry.checked_sub(1).map_or(0, |n| self.address[n] & !BELOW_PAGE);
                (below < top).then(|| (below << 2, (top << 2) - 1))
            }
            _ => {
                let top = self.address(entry);
                let size = 1u64 << (top.trailing_ones().min(53) + 3);
                let start = top << 2 & !(size - 1);
                Some((start, start + (size - 1)))
            }
        }
    }

    /// What a mode may do with the page around an address.
    pub(crate) fn rights(&self, pa: u64, mode: Privilege) -> Rights {
        const ALL: Rights = Rights { read: true, write: true, exec: true };
        if !self.enabled {
            return ALL;
        }
        let inside = |entry: &usize| self.range(*entry).is_some_and(|(a, z)| a <= pa && pa <= z);
        match ((0..ENTRIES).find(inside), mode) {
            (None, Privilege::Machine) => ALL,
            (None, _) => Rights::default(),
            (Some(entry), Privilege::Machine) if self.config[entry] & LOCKED == 0 => ALL,
            (Some(entry), _) => {
                let bits = self.config[entry];
                Rights { read: bits & 1 != 0, write: bits & 2 != 0, exec: bits & 4 != 0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pmp: &Pmp, pa: u64, mode: Privilege) -> (bool, bool, bool) {
        let rights = pmp.rights(pa, mode);
        (rights.read, rights.write, rights.exec)
    }

    #[test]
    fn entries_match_in_order_and_lock() {
        let mut pmp = Pmp::new();
        assert_eq!(at(&pmp, 0x1000, Privilege::User), (false, false, false));
        assert_eq!(at(&pmp, 0x1000, Privilege::Machine), (true, true, true));
        // 0x2000..0x3000 read-only and locked, then everything.
        pmp.set_address(0, 0x2000 >> 2 | 0x1ff);
        pmp.set_address(1, u64::MAX);
        pmp.set_config(0, 0x1f_99);
        assert_eq!(at(&pmp, 0x2ff8, Privilege::Supervisor), (true, false, false));
        assert_eq!(at(&pmp, 0x2ff8, Privilege::Machine), (true, false, false));
        assert_eq!(at(&pmp, 0x3000, Privilege::User), (true, true, true));
        pmp.set_config(0, 0);
        assert_eq!(pmp.config(0) & 0xff, 0x99);
    }

    #[test]
    fn the_grain_is_a_page_and_shows() {
        let mut pmp = Pmp::new();
        pmp.set_address(0, u64::MAX);
        assert_eq!(pmp.address(0).trailing_zeros(), 10);
        // Four bytes at 0x5008 become the page.
        pmp.set_address(0, 0x5008 >> 2);
        pmp.set_config(0, 0x13);
        assert_eq!((pmp.config(0), pmp.address(0)), (0x1b, 0x5000 >> 2 | 0x1ff));
        assert_eq!(at(&pmp, 0x5000, Privilege::User), (true, true, false));
        assert_eq!(at(&pmp, 0x6000, Privilege::User), (false, false, false));
        // From 0x7004 to 0x9ffc is from 0x7000 to 0x9000.
        pmp.set_address(0, 0x7004 >> 2);
        pmp.set_address(1, 0x9ffc >> 2);
        pmp.set_config(0, 0x09_00);
        let read = |pa| at(&pmp, pa, Privilege::User).0;
        assert_eq!([0x6fff, 0x7000, 0x8fff, 0x9000].map(read), [false, true, true, false]);
    }
}
