//! Address translation: Sv39 and Sv48 page tables, walked in guest memory.
//! Accessed and dirty bits are the guest's to set: a page without them faults.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::system::privilege::Privilege;
use crate::tlb::Rights;

const VALID: u64 = 1;
const READ: u64 = 2;
const WRITE: u64 = 4;
const EXEC: u64 = 8;
const USER: u64 = 16;
const ACCESSED: u64 = 64;
const DIRTY: u64 = 128;
/// Bits above the page number, all reserved or of extensions that are not here.
const RESERVED: u64 = 0xffc0_0000_0000_0000;

/// What decides about a translation besides the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Regime {
    pub(crate) satp: u64,
    pub(crate) mode: Privilege,
    /// Supervisor mode may touch user pages.
    pub(crate) sum: bool,
    /// What is executable is readable.
    pub(crate) mxr: bool,
}

/// Why a walk found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Miss {
    /// The tables say no.
    Page,
    /// The tables themselves are not in memory.
    Access,
}

impl Regime {
    /// Whether addresses are physical as they are.
    pub(crate) const fn is_bare(&self) -> bool {
        matches!(self.mode, Privilege::Machine) || self.satp >> 60 == 0
    }

    /// The physical page of a virtual address, and what may be done with it.
    /// `read` gives the table entry at a physical address.
    pub(crate) fn walk(
        &self,
        va: u64,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(u64, Rights), Miss> {
        let levels: u32 = if self.satp >> 60 == 8 { 3 } else { 4 };
        let unused = 64 - (12 + 9 * levels);
        if ((va << unused) as i64 >> unused) as u64 != va {
            return Err(Miss::Page);
        }
        let mut table = (self.satp & ((1 << 44) - 1)) << 12;
        for level in (0..levels).rev() {
            let index = va >> (12 + 9 * level) & 511;
            let entry = read(table + 8 * index).ok_or(Miss::Access)?;
            if entry & VALID == 0 || entry & (READ | WRITE) == WRITE || entry & RESERVED != 0 {
                return Err(Miss::Page);
            }
            let page = (entry >> 10) << 12;
            if entry & (READ | WRITE | EXEC) != 0 {
                return self.leaf(va, entry, level);
            }
            // A pointer to the next table has none of the leaf's bits.
            if entry & (ACCESSED | DIRTY | USER) != 0 {
                return Err(Miss::Page);
            }
            table = page;
        }
        Err(Miss::Page)
    }

    fn leaf(&self, va: u64, entry: u64, level: u32) -> Result<(u64, Rights), Miss> {
        let inside = (1 << (9 * level)) - 1;
        let number = entry >> 10;
        if number & inside != 0 || entry & ACCESSED == 0 {
            return Err(Miss::Page);
        }
        let user = entry & USER != 0;
        let (touch, run) = match self.mode {
            Privilege::User => (user, user),
            _ => (!user || self.sum, !user),
        };
        let rights = Rights {
            read: touch && (entry & READ != 0 || self.mxr && entry & EXEC != 0),
            write: touch && entry & WRITE != 0 && entry & DIRTY != 0,
            exec: run && entry & EXEC != 0,
        };
        Ok(((number | va >> 12 & inside) << 12, rights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: u64 = VALID | READ | WRITE | ACCESSED | DIRTY;

    fn regime(mode: Privilege) -> Regime {
        Regime { satp: 8 << 60 | 0x80000, mode, sum: false, mxr: false }
    }

    #[test]
    fn a_walk_goes_down_to_the_leaf() {
        let tables = |pa: u64| match pa {
            0x8000_0008 => Some(0x80001 << 10 | VALID),
            0x8000_1010 => Some(0x80002 << 10 | VALID),
            0x8000_2018 => Some(0x12345 << 10 | LEAF),
            0x8000_1018 => Some(0x40200 << 10 | LEAF | USER),
            _ => Some(0),
        };
        let s = regime(Privilege::Supervisor);
        let at = |r: &Regime, va| r.walk(va, tables).map(|(page, rights)| (page, rights.write));
        let va = 1 << 30 | 2 << 21 | 3 << 12 | 0x678;
        assert_eq!(at(&s, va), Ok((0x1234_5000, true)));
        // A superpage of 2 MB for user mode only.
        let large = 1 << 30 | 3 << 21 | 0x5_4321;
        assert_eq!(at(&s, large), Ok((0x4025_4000, false)));
        assert_eq!(at(&regime(Privilege::User), large), Ok((0x4025_4000, true)));
        assert_eq!(at(&Regime { sum: true, ..s }, large), Ok((0x4025_4000, true)));
        assert_eq!(at(&s, 1 << 40), Err(Miss::Page));
        assert_eq!(s.walk(va, |_| None), Err(Miss::Access));
    }
}
