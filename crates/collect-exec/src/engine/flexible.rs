//! The accesses of instructions whose number depends on the state: string instructions with a
//! repeat prefix, gathers, masked vectors, the xsave family. Computed just before they run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::arch::asm;
use std::cell::OnceCell;

use ichnos_base::{AccessFlags, GuestVa, Record};
use ichnos_isa_x86::{
    AddrWidth, Gpr, Inst, MemOperand, Regs, Rep, Role, Segment, Shape, XLayout, XState, accesses,
    address,
};

use super::ctx::{Ctx, XSAVE_LEN, Xsave};
use super::{sys, trace, xstate};
use crate::words::{Lane, Run};

const DF: u64 = 0x400;
const ZF_COMPARES: usize = 8;

/// The address of an operand of the instruction that the program is about to run, if no vector register is in it.
pub fn address_of(ctx: &Ctx, operand: &MemOperand) -> u64 {
    address(&operand.address, &General(ctx)).0
}

/// Writes the block `identifier`, which is this one instruction, to the thread's stream.
pub fn record(ctx: &mut Ctx, inst: &Inst, identifier: u32) {
    let runs = runs(ctx, inst);
    let mut item = Vec::with_capacity(64);
    item.extend(identifier.to_le_bytes());
    item.extend((runs.len() as u32).to_le_bytes());
    runs.iter().for_each(|run| run.put(&mut item));
    trace::put(ctx, &item);
}

/// Whether an instruction is a string instruction that repeats.
pub fn repeats(inst: &Inst) -> bool {
    inst.memory().iter().any(is_repeated)
}

/// Whether an operand is one of such an instruction.
pub fn is_repeated(operand: &MemOperand) -> bool {
    matches!(operand.shape, Shape::String(rep) if rep != Rep::Once)
}

/// The accesses that an instruction is about to make.
pub fn runs(ctx: &Ctx, inst: &Inst) -> Vec<Run> {
    if repeats(inst) {
        return string(ctx, inst).into_iter().collect();
    }
    let machine = Machine::new(ctx);
    let mut records = Vec::new();
    if accesses(inst, &machine, &mut records).is_err() {
        sys::die(&format!("cannot tell what the instruction at {} touches", inst.pc()));
    }
    records.iter().filter_map(single).collect()
}

fn single(record: &Record) -> Option<Run> {
    let (kind, flags, size, addr) = match *record {
        Record::Load { flags, size, addr } => (0, flags, size, addr),
        Record::Store { flags, size, addr } => (1, flags, size, addr),
        Record::Prefetch { flags, size, addr } => (2, flags, size, addr),
        Record::Flush { flags, size, addr } => (3, flags, size, addr),
        _ => return None,
    };
    let lane = Lane { what: what(kind, flags), size, base: addr.0, stride: 0 };
    Some(Run { turns: 1, lanes: [Some(lane), None] })
}

fn what(kind: u32, flags: AccessFlags) -> u32 {
    kind | u32::from(flags.0) << 8
}

/// All iterations of a repeated string instruction, as one run.
fn string(ctx: &Ctx, inst: &Inst) -> Option<Run> {
    let machine = General(ctx);
    let mut lanes = [None; 2];
    let mut rep = Rep::Count;
    let mut count = 0;
    for (operand, lane) in inst.memory().iter().zip(&mut lanes) {
        let Shape::String(r) = operand.shape else { continue };
        rep = r;
        let rcx = ctx.regs[1];
        let narrow = operand.address.width == AddrWidth::Bits32;
        count = if narrow { rcx & 0xffff_ffff } else { rcx };
        let size = u64::from(operand.size);
        let stride = if ctx.rflags & DF != 0 { size.wrapping_neg() } else { size };
        let kind = if operand.role == Role::Store { 1 } else { 0 };
        let base = address(&operand.address, &machine).0;
        let what = what(kind, operand.flags);
        *lane = Some(Lane { what, size: operand.size, base, stride });
    }
    let turns = match rep {
        Rep::Count | Rep::Once => count,
        Rep::Equal | Rep::NotEqual => compared(ctx, &lanes, count, rep == Rep::Equal),
    };
    (turns != 0).then_some(Run { turns, lanes })
}

/// How many iterations a comparing string instruction makes.
fn compared(ctx: &Ctx, lanes: &[Option<Lane>; 2], count: u64, while_equal: bool) -> u64 {
    let value = |lane: &Lane, turn: u64| {
        let mut bytes = [0; ZF_COMPARES];
        let size = (lane.size as usize).min(ZF_COMPARES);
        let at = lane.base.wrapping_add(lane.stride.wrapping_mul(turn));
        sys::copy_in(at, &mut bytes[..size]).then(|| u64::from_le_bytes(bytes))
    };
    let Some(first) = &lanes[0] else { return 0 };
    let mask = if first.size >= 8 { u64::MAX } else { (1 << (8 * first.size)) - 1 };
    for turn in 0..count {
        let Some(a) = value(first, turn) else { return turn };
        let b = match &lanes[1] {
            Some(second) => match value(second, turn) {
                Some(b) => b,
                None => return turn,
            },
            None => ctx.regs[0] & mask,
        };
        if (a == b) != while_equal {
            return turn + 1;
        }
    }
    count
}

/// General registers alone.
struct General<'a>(&'a Ctx);

impl Regs for General<'_> {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.0.regs[usize::from(reg.number())]
    }
    fn segment_base(&self, segment: Segment) -> GuestVa {
        GuestVa(if segment == Segment::Fs { self.0.fs } else { self.0.gs })
    }
    fn rflags(&self) -> u64 {
        self.0.rflags
    }
    fn vector(&self, _number: u8) -> [u8; 64] {
        [0; 64]
    }
    fn opmask(&self, _number: u8) -> u64 {
        0
    }
}

/// The whole state, vectors in the standard form once they are asked for.
struct Machine<'a> {
    general: General<'a>,
    vectors: OnceCell<Box<Xsave>>,
    layout: &'static XLayout,
}

impl<'a> Machine<'a> {
    fn new(ctx: &'a Ctx) -> Self {
        Self { general: General(ctx), vectors: OnceCell::new(), layout: xstate::layout() }
    }

    fn vectors(&self) -> &Xsave {
        self.vectors.get_or_init(|| {
            let mut vectors = Box::new(Xsave([0; XSAVE_LEN]));
            xstate::to_frame(&self.general.0.xsave, &mut vectors);
            vectors
        })
    }

    fn part(&self, component: usize, at: usize, out: &mut [u8]) {
        let place = self.layout.components[component - 2];
        let start = place.offset as usize + at;
        let bytes = self.vectors().0.get(start..start + out.len()).filter(|_| place.size != 0);
        if let Some(bytes) = bytes {
            out.copy_from_slice(bytes);
        }
    }
}

impl Regs for Machine<'_> {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.general.gpr(reg)
    }
    fn segment_base(&self, segment: Segment) -> GuestVa {
        self.general.segment_base(segment)
    }
    fn rflags(&self) -> u64 {
        self.general.rflags()
    }
    fn vector(&self, number: u8) -> [u8; 64] {
        let mut out = [0; 64];
        let i = usize::from(number);
        if i < 16 {
            out[..16].copy_from_slice(&self.vectors().0[160 + 16 * i..176 + 16 * i]);
            self.part(2, 16 * i, &mut out[16..32]);
            self.part(6, 32 * i, &mut out[32..]);
        } else {
            self.part(7, 64 * (i - 16), &mut out);
        }
        out
    }
    fn opmask(&self, number: u8) -> u64 {
        // Masks are what is mostly asked for, and much cheaper to find than all vectors.
        xstate::opmask(&self.general.0.xsave, number)
    }
    fn mxcsr(&self) -> Option<u32> {
        Some(u32::from_le_bytes(self.vectors().0[24..28].try_into().ok()?))
    }
    fn xstate(&self) -> Option<XState> {
        let in_use = u64::from_le_bytes(self.vectors().0[512..520].try_into().ok()?);
        Some(XState { xcr0: xcr0(), in_use, layout: *self.layout })
    }
    fn peek(&self, addr: GuestVa, out: &mut [u8]) -> bool {
        sys::copy_in(addr.0, out)
    }
}

fn xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a control register that programs may read.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}
