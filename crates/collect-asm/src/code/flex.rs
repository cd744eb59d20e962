//! Instructions whose accesses differ from one execution to the next: repeated strings,
//! masked vectors, gathers. The copy stores the registers on which the accesses depend,
//! and the collector evaluates them as a single-stepping one would.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record, RefKind};
use ichnos_isa_x86::{AddrWidth, Gpr, Index, Inst, LaneMask, Regs, Rep, Segment, Shape, accesses};
use ichnos_trace::{Lane, Run};

/// One thing stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// A general register: 8 bytes.
    Gpr(Gpr),
    /// A vector register of so many bytes.
    Vector(u8, usize),
    /// A mask register: 8 bytes, of which two count if it is `Narrow`.
    Mask(u8, MaskWidth),
    /// The flags, for the direction: 8 bytes.
    Flags,
    /// rcx once more, after the instruction: 8 bytes.
    CountAfter,
}

/// How much of a mask register is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MaskWidth {
    /// 16 bits, as every processor with masks can.
    Narrow,
    /// 64 bits.
    Wide,
}

/// More turns of a repeated string instruction than these are told as runs, which do not fill the memory.
const LONG: u64 = 1 << 16;

/// The bit of the flags that says that string instructions go backwards.
const DIRECTION: u64 = 1 << 10;

/// What is stored for an instruction.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    inst: Inst,
    /// In this order.
    pub(crate) items: Vec<Item>,
}

impl Item {
    /// Bytes.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Vector(_, len) => len,
            _ => 8,
        }
    }
}

impl Payload {
    /// What an instruction needs; nothing if its accesses cannot be told.
    pub(crate) fn of(inst: &Inst) -> Option<Self> {
        let mut items = Vec::new();
        let mut add = |item: Item| {
            if !items.contains(&item) {
                items.push(item);
            }
        };
        let bytes = vector_len(inst);
        let mask = |mask: LaneMask, lanes: u8, add: &mut dyn FnMut(Item)| match mask {
            LaneMask::Opmask(k) => {
                add(Item::Mask(k, if lanes > 16 { MaskWidth::Wide } else { MaskWidth::Narrow }));
                true
            }
            LaneMask::Sign { vector, .. } => {
                add(Item::Vector(vector, bytes));
                true
            }
            LaneMask::MmxSign(_) => false,
        };
        let mut after = false;
        for operand in inst.memory() {
            operand.address.base.into_iter().for_each(|r| add(Item::Gpr(r)));
            match operand.address.index {
                Index::None => {}
                Index::Scaled(r, _) | Index::LowByte(r) => add(Item::Gpr(r)),
            }
            let known = match operand.shape {
                Shape::Plain | Shape::Line(_) | Shape::Run { .. } | Shape::String(Rep::Once) => {
                    true
                }
                Shape::Bit(number) => {
                    add(Item::Gpr(number));
                    true
                }
                Shape::String(rep) => {
                    add(Item::Gpr(Gpr::Rcx));
                    add(Item::Flags);
                    after |= rep != Rep::Count;
                    true
                }
                Shape::Lanes(lanes) => {
                    add(Item::Vector(lanes.index, bytes));
                    mask(lanes.mask, lanes.count, &mut add)
                }
                Shape::Masked(masked) => mask(masked.mask, masked.lanes, &mut add),
                _ => false,
            };
            if !known {
                return None;
            }
        }
        if after {
            items.push(Item::CountAfter);
        }
        Some(Self { inst: *inst, items })
    }

    /// Bytes stored.
    pub(crate) fn len(&self) -> usize {
        self.items.iter().map(|item| item.len()).sum()
    }

    /// The accesses that one execution made, given what was stored; false if the bytes
    /// are too few.
    pub(crate) fn evaluate(&self, bytes: &[u8], fs: u64, out: &mut Vec<Record>) -> bool {
        let Some((mut saved, turns)) = self.saved(bytes, fs) else { return false };
        match turns {
            Some(turns) => self.repeat(&mut saved, turns, out),
            None => accesses(&self.inst, &saved, out).is_ok(),
        }
    }

    /// The same as runs, if there are too many of them for anything else.
    pub(crate) fn runs(&self, bytes: &[u8], fs: u64) -> Option<Vec<Run>> {
        let (saved, turns) = self.saved(bytes, fs)?;
        let mut left = turns.filter(|turns| *turns > LONG)?;
        // Narrow addresses may begin again from the lowest.
        if self.inst.memory().iter().any(|m| m.address.width != AddrWidth::Bits64) {
            return None;
        }
        let mut first = Vec::new();
        accesses(&self.inst, &saved, &mut first).ok()?;
        let mut lanes = first.iter().filter_map(RefKind::of).map(|(kind, flags, size, base)| {
            let size_up = u64::from(size);
            let stride = if saved.is_backward() { size_up.wrapping_neg() } else { size_up };
            Lane { kind, flags, size, base, stride }
        });
        let (mut first, mut second) = (lanes.next()?, lanes.next());
        let mut runs = Vec::new();
        while left > 0 {
            let count = u32::try_from(left).unwrap_or(u32::MAX);
            runs.push(Run { count, first, second });
            left -= u64::from(count);
            for lane in [Some(&mut first), second.as_mut()].into_iter().flatten() {
                lane.base = lane.base.offset(lane.stride.wrapping_mul(count.into()));
            }
        }
        Some(runs)
    }

    /// The registers that were stored, and how many turns there were, if that is the question.
    fn saved(&self, mut bytes: &[u8], fs: u64) -> Option<(Saved, Option<u64>)> {
        let mut saved = Saved { gprs: [0; 16], fs, flags: 0, vectors: Vec::new(), masks: [0; 8] };
        let mut after = 0;
        for item in &self.items {
            let (these, rest) = bytes.split_at_checked(item.len())?;
            bytes = rest;
            let word = crate::note::u64_at(these, 0).unwrap_or(0);
            match *item {
                Item::Gpr(gpr) => saved.gprs[usize::from(gpr.number())] = word,
                Item::Mask(k, MaskWidth::Narrow) => saved.masks[usize::from(k % 8)] = word & 0xffff,
                Item::Mask(k, MaskWidth::Wide) => saved.masks[usize::from(k % 8)] = word,
                Item::Flags => saved.flags = word,
                Item::CountAfter => after = word,
                Item::Vector(number, _) => {
                    let mut vector = [0; 64];
                    vector[..these.len()].copy_from_slice(these);
                    saved.vectors.push((number, vector));
                }
            }
        }
        let repeats =
            self.inst.memory().first().is_some_and(|m| matches!(m.shape, Shape::String(_)));
        let turns = repeats.then(|| saved.gpr(Gpr::Rcx).wrapping_sub(after));
        Some((saved, turns))
    }

    /// All turns of a repeated string instruction.
    fn repeat(&self, saved: &mut Saved, turns: u64, out: &mut Vec<Record>) -> bool {
        let rcx = usize::from(Gpr::Rcx.number());
        let backward = saved.is_backward();
        for _ in 0..turns {
            if accesses(&self.inst, saved, out).is_err() {
                return false;
            }
            let bases = self.inst.memory().iter().filter_map(|m| Some((m.address.base?, m.size)));
            let mut moved = 0u16;
            for (base, size) in bases {
                let number = usize::from(base.number());
                if moved >> number & 1 == 0 {
                    moved |= 1 << number;
                    let size = u64::from(size);
                    let by = if backward { size.wrapping_neg() } else { size };
                    saved.gprs[number] = saved.gprs[number].wrapping_add(by);
                }
            }
            saved.gprs[rcx] = saved.gprs[rcx].wrapping_sub(1);
        }
        true
    }
}

fn vector_len(inst: &Inst) -> usize {
    match inst.raw().encoding() {
        iced_x86::EncodingKind::EVEX => 64,
        iced_x86::EncodingKind::VEX | iced_x86::EncodingKind::XOP => 32,
        _ => 16,
    }
}

/// The registers that were stored.
struct Saved {
    gprs: [u64; 16],
    fs: u64,
    flags: u64,
    vectors: Vec<(u8, [u8; 64])>,
    masks: [u64; 8],
}

impl Saved {
    /// Whether string instructions go backwards.
    const fn is_backward(&self) -> bool {
        self.flags & DIRECTION != 0
    }
}

impl Regs for Saved {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.gprs[usize::from(reg.number())]
    }

    fn segment_base(&self, segment: Segment) -> GuestVa {
        GuestVa(if segment == Segment::Fs { self.fs } else { 0 })
    }

    fn rflags(&self) -> u64 {
        self.flags
    }

    fn vector(&self, number: u8) -> [u8; 64] {
        self.vectors.iter().find(|(n, _)| *n == number).map_or([0; 64], |(_, bytes)| *bytes)
    }

    fn opmask(&self, number: u8) -> u64 {
        self.masks[usize::from(number % 8)]
    }
}
