//! What is stored of the registers for an instruction whose accesses vary, so that the host can
//! compute them.
//!
//! The general registers of the addresses, masks, vectors of indices. A repeated string instruction
//! is stored before and after: the count tells how often it went round, the addresses which way.
//! Engine and host get the same answer from the same instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_x86::{Gpr, Inst, LaneMask, MemOperand, Rep, Segment, Shape};

/// Something that is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A general register, eight bytes.
    Gpr(u8),
    /// A mask register of at most 16 lanes, two bytes in eight.
    Mask16(u8),
    /// A mask register, eight bytes.
    Mask64(u8),
    /// A vector register as far as the instruction uses it: 16, 32 or 64 bytes.
    Vector(u8, u8),
    /// A general register after the instruction, eight bytes.
    After(u8),
}

impl Part {
    /// Bytes that it takes.
    pub const fn len(self) -> usize {
        match self {
            Self::Vector(_, len) => len as usize,
            _ => 8,
        }
    }
}

/// All that is stored for one instruction, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    parts: Vec<Part>,
}

impl Snapshot {
    /// What to store for an instruction; `None` if its accesses depend on more than that: then
    /// the engine computes them.
    pub fn of(inst: &Inst) -> Option<Self> {
        let mut snapshot = Self::default();
        for operand in inst.memory() {
            if operand.address.segment == Segment::Gs {
                return None;
            }
            operand.address.registers().for_each(|r| snapshot.add(Part::Gpr(r.number())));
            match operand.shape {
                Shape::Plain | Shape::Run { .. } => {}
                Shape::String(rep) => snapshot.string(operand, rep),
                Shape::Bit(number) => snapshot.add(Part::Gpr(number.number())),
                Shape::Masked(masked) => snapshot.mask(masked.mask, masked.lanes)?,
                Shape::Lanes(lanes) => {
                    snapshot.mask(lanes.mask, lanes.count)?;
                    snapshot.vector(lanes.index, lanes.count.checked_mul(lanes.index_size)?);
                }
                _ => return None,
            }
        }
        Some(snapshot)
    }

    /// What is stored, and where in the record it begins.
    pub fn parts(&self) -> impl Iterator<Item = (Part, usize)> + '_ {
        self.parts.iter().scan(0, |at, &part| {
            let here = *at;
            *at += part.len();
            Some((part, here))
        })
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|p| p.len()).sum()
    }

    /// Where a part begins.
    pub fn find(&self, wanted: Part) -> Option<usize> {
        self.parts().find(|(part, _)| *part == wanted).map(|(_, at)| at)
    }

    fn add(&mut self, part: Part) {
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
    }

    fn string(&mut self, operand: &MemOperand, rep: Rep) {
        if rep == Rep::Once {
            return;
        }
        let count = Gpr::Rcx.number();
        self.add(Part::Gpr(count));
        self.add(Part::After(count));
        operand.address.base.iter().for_each(|r| self.add(Part::After(r.number())));
    }

    fn mask(&mut self, mask: LaneMask, lanes: u8) -> Option<()> {
        match mask {
            LaneMask::Opmask(k) if lanes <= 16 => self.add(Part::Mask16(k)),
            LaneMask::Opmask(k) => self.add(Part::Mask64(k)),
            LaneMask::Sign { vector, size } => self.vector(vector, lanes.checked_mul(size)?),
            LaneMask::MmxSign(_) => return None,
        }
        Some(())
    }

    fn vector(&mut self, number: u8, used: u8) {
        let len = match used {
            0..=16 if number < 16 => 16,
            17..=32 if number < 16 => 32,
            _ => 64,
        };
        // The same register may be asked for twice, as mask and as index.
        let same = |p: &&mut Part| matches!(p, Part::Vector(n, _) if *n == number);
        match self.parts.iter_mut().find(same) {
            Some(Part::Vector(_, known)) => *known = len.max(*known),
            _ => self.parts.push(Part::Vector(number, len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ichnos_base::GuestVa;

    fn of(bytes: &[u8]) -> Option<Snapshot> {
        Inst::decode(bytes, GuestVa(0x1000)).ok().and_then(|i| Snapshot::of(&i))
    }

    #[test]
    fn stores_what_accesses_depend_on() {
        // rep movsb
        let copy = of(&[0xf3, 0xa4]).unwrap();
        for part in [Part::Gpr(1), Part::After(1), Part::Gpr(6), Part::Gpr(7), Part::After(7)] {
            assert!(copy.find(part).is_some(), "{part:?} in {copy:?}");
        }
        // vmovdqu8 [rax]{k1}, ymm16
        let masked = of(&[0x62, 0xe1, 0x7f, 0x29, 0x7f, 0x00]).unwrap();
        assert_eq!((masked.find(Part::Gpr(0)), masked.find(Part::Mask64(1))), (Some(0), Some(8)));
        // vpgatherdd ymm0, [rax+ymm1*4], ymm2
        let gather = of(&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88]).unwrap();
        assert!(gather.find(Part::Vector(1, 32)).is_some());
        assert!(gather.find(Part::Vector(2, 32)).is_some());
        // xsavec [rax]
        assert_eq!(of(&[0x0f, 0xc7, 0x20]), None);
    }
}
