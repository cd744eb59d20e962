//! The accesses of an instruction that vary, computed from what the engine stored of the registers
//! around it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record};
use ichnos_isa_x86::{
    AddrWidth, Gpr, Inst, MemOperand, Regs, Rep, Role, Segment, Shape, accesses, address,
};
use ichnos_trace::RefKind;
use ichnos_trace::flat::Registers;

use crate::plan::{self, Part, Snapshot};
use crate::words::{Lane, Run, u64_at};

/// An instruction whose registers are stored around it.
#[derive(Debug)]
pub struct Varying {
    inst: Inst,
    stored: Snapshot,
}

impl Varying {
    /// For an instruction; `None` if the engine tells the accesses themselves.
    pub fn new(inst: &Inst) -> Option<Self> {
        Some(Self { inst: *inst, stored: Snapshot::of(inst)? })
    }

    /// Bytes of the stream that an execution takes.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Appends the accesses of an execution that stored `words`.
    pub fn run(&self, registers: &Registers, words: &[u8], out: &mut Vec<Record>) {
        let state = State { stored: &self.stored, words, registers };
        if !self.repeats() {
            // What cannot be computed has no snapshot.
            let _ = accesses(&self.inst, &state, out);
        } else if let Some(run) = self.string(&state) {
            run.records(out);
        }
    }

    /// The same as runs that are told raw; how many. The records between are put into a list that is empty.
    pub fn put_raw(
        &self,
        registers: &Registers,
        words: &[u8],
        records: &mut Vec<Record>,
        out: &mut Vec<u8>,
    ) -> u32 {
        let state = State { stored: &self.stored, words, registers };
        if self.repeats() {
            return self.string(&state).map_or(0, |run| run.put_raw(out));
        }
        let _ = accesses(&self.inst, &state, records);
        records.iter().filter_map(Run::once).map(|run| run.put_raw(out)).sum()
    }

    fn repeats(&self) -> bool {
        let repeats = |o: &MemOperand| matches!(o.shape, Shape::String(r) if r != Rep::Once);
        self.inst.memory().iter().any(repeats)
    }

    /// All turns of a repeated string instruction, the operands' accesses one after the other in each.
    fn string(&self, state: &State<'_>) -> Option<Run> {
        let mut run = Run { turns: 0, lanes: [None; 2] };
        for (operand, lane) in self.inst.memory().iter().zip(&mut run.lanes) {
            let narrow = operand.address.width == AddrWidth::Bits32;
            let cut = |value: u64| if narrow { value & 0xffff_ffff } else { value };
            let moved = |number: u8| {
                cut(state.part(Part::After(number)).wrapping_sub(state.part(Part::Gpr(number))))
            };
            run.turns = cut(moved(Gpr::Rcx.number()).wrapping_neg());
            let way = moved(operand.address.base?.number());
            let size = u64::from(operand.size);
            let forward = cut(size.wrapping_mul(run.turns));
            let stride = if way == forward { size } else { size.wrapping_neg() };
            // A thread that was killed in the middle stored nothing behind the instruction.
            if way != forward && way != cut(forward.wrapping_neg()) {
                return None;
            }
            let kind = if operand.role == Role::Store { RefKind::Store } else { RefKind::Load };
            let what = u32::from(kind.code()) | u32::from(operand.flags.0) << 8;
            let base = address(&operand.address, state).0;
            *lane = Some(Lane { what, size: operand.size, base, stride });
        }
        Some(run)
    }
}

/// What was stored, as registers.
struct State<'a> {
    stored: &'a Snapshot,
    words: &'a [u8],
    registers: &'a Registers,
}

impl State<'_> {
    fn part(&self, part: Part) -> u64 {
        self.stored.find(part).and_then(|at| u64_at(self.words, at)).unwrap_or(0)
    }
}

impl Regs for State<'_> {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.part(Part::Gpr(reg.number()))
    }

    fn segment_base(&self, segment: Segment) -> GuestVa {
        let base = if segment == Segment::Fs { plan::FS } else { plan::GS };
        GuestVa(self.registers[usize::from(base.0)])
    }

    fn rflags(&self) -> u64 {
        0
    }

    fn vector(&self, number: u8) -> [u8; 64] {
        let mut out = [0; 64];
        let wanted = |(part, _): &(Part, usize)| matches!(part, Part::Vector(n, _) if *n == number);
        if let Some((part, at)) = self.stored.parts().find(wanted)
            && let Some(bytes) = self.words.get(at..at + part.len())
        {
            out[..part.len()].copy_from_slice(bytes);
        }
        out
    }

    fn opmask(&self, number: u8) -> u64 {
        let narrow = self.part(Part::Mask16(number)) & 0xffff;
        narrow | self.part(Part::Mask64(number))
    }
}
