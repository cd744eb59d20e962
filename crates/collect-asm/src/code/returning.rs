//! How control comes back to P_inst: returns, which may lead to P_exec or out of copied code, and computed jumps,
//! whose labels lead to P_exec. Both find the place in P_inst by a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Instruction, MemoryOperand, Register as Name};
use ichnos_isa_x86::Inst;

use super::emit::{ASIDE, ASIDE_TOO, Emitter, PLACE, at, context, name, operand};
use super::plot::Plot;
use super::points::Points;
use super::switch::{BACK, BACK_LEN, Flags, GO, ROOM, ROOM_BITS};
use super::ways::Ways;
use crate::Error;

const RAX: u8 = 0;
const RSP: u8 = 4;
const R11: u8 = 11;

impl Emitter {
    /// In P_inst: a return, which may lead to P_exec or out of copied code.
    ///
    /// # Errors
    ///
    /// If the rare way cannot be laid out.
    pub(crate) fn comes_back(
        &mut self,
        (points, ways): (&Points, &mut Ways),
        inst: &Inst,
        flags: Flags,
    ) -> Result<(), Error> {
        let slow = ways.of_return(points, *inst.raw(), (inst.pc(), flags))?;
        if flags == Flags::Free {
            self.store(context(ASIDE), R11);
            self.load(R11, at(RSP, 0));
            self.push(Instruction::with2(Code::Shr_rm64_imm8, name(R11), ROOM_BITS));
            let here = (points.inst >> ROOM_BITS) as i32;
            self.push(Instruction::with2(Code::Cmp_rm64_imm32, name(R11), here));
            self.branch(Code::Jne_rel32_64, slow);
            self.load(R11, context(ASIDE));
            self.push(Ok(*inst.raw()));
        } else {
            self.jump(slow);
        }
        Ok(())
    }

    /// The rare way of a return; the copies lie there.
    pub(super) fn slow_return(&mut self, plot: &Plot, raw: Instruction, flags: Flags) {
        let (outside, plain) = (self.part(), self.part());
        let above = if flags == Flags::Kept { 8 } else { 0 };
        self.store(context(ASIDE_TOO), RAX);
        if flags == Flags::Kept {
            // Nothing below the stack pointer is wanted when a function returns.
            self.store(context(ASIDE), R11);
            self.push(Ok(Instruction::with(Code::Pushfq)));
            self.stays_lowered();
        }
        self.load(R11, at(RSP, above));
        self.push(Instruction::with2(Code::Mov_r64_rm64, name(RAX), name(R11)));
        self.push(Instruction::with2(Code::Shr_rm64_imm8, name(RAX), ROOM_BITS));
        let region = |base: u64| (base >> ROOM_BITS) as i32;
        self.push(Instruction::with2(Code::Cmp_rm64_imm32, name(RAX), region(plot.room)));
        self.branch(Code::Je_rel32_64, plain);
        self.value(RAX, plot.exec_room);
        self.push(Instruction::with2(Code::Sub_r64_rm64, name(R11), name(RAX)));
        self.push(Instruction::with2(Code::Cmp_rm64_imm32, name(R11), ROOM as i32));
        self.branch(Code::Jae_rel32_64, outside);
        self.look_up(plot.to_inst, plot.room);
        self.end_flags(flags);
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
        let popped =
            8 + if raw.op0_kind() == iced_x86::OpKind::Immediate16 { raw.immediate16() } else { 0 };
        let stack = at(RSP, i64::from(popped));
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, stack));
        self.push(Instruction::with1(Code::Jmp_rm64, context(GO)));
        self.label = outside;
        if flags == Flags::Kept {
            self.stays_lowered();
        }
        let begin = self.instrs.len();
        self.load(R11, at(RSP, above));
        self.load(RAX, context(PLACE));
        self.push(Instruction::with2(Code::Mov_rm32_imm32, at(RAX, 0), BACK));
        self.store(at(RAX, 12), R11);
        self.push(Instruction::with2(Code::Lea_r64_m, Name::R11, at(RSP, above)));
        self.store(at(RAX, 4), R11);
        self.push(Instruction::with2(Code::Mov_r64_rm64, Name::R11, at(RAX, 12)));
        self.advance(RAX, BACK_LEN);
        self.site(begin, begin);
        self.stored_before(begin);
        self.label = plain;
        self.end_flags(flags);
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
        self.push(Ok(raw));
    }

    fn end_flags(&mut self, flags: Flags) {
        if flags == Flags::Kept {
            self.push(Ok(Instruction::with(Code::Popfq)));
            self.is_raised();
        }
    }

    /// Looks up in a table where `r11`, an offset, leads to from `base`; `rax` is spoilt.
    fn look_up(&mut self, table: u64, base: u64) {
        self.value(RAX, table);
        let entry = MemoryOperand::new(Name::RAX, Name::R11, 4, 0, 0, false, Name::None);
        self.push(Instruction::with2(Code::Mov_r32_rm32, Name::R11D, entry));
        self.value(RAX, base);
        self.push(Instruction::with2(Code::Add_r64_rm64, Name::R11, Name::RAX));
        self.store(context(GO), R11);
    }

    /// In P_inst: a computed jump that may go to a label of copied code, whose own address leads to P_exec.
    pub(crate) fn computed(&mut self, points: &Points, inst: &Inst) {
        let raw = inst.raw();
        let no = self.part();
        self.store(context(ASIDE), R11);
        self.store(context(ASIDE_TOO), RAX);
        match raw.op0_kind() {
            iced_x86::OpKind::Register => {
                let from = raw.op0_register();
                self.push(Instruction::with2(Code::Mov_r64_rm64, Name::R11, from));
            }
            _ => self.load(R11, operand(raw)),
        }
        self.lower_stack();
        self.push(Ok(Instruction::with(Code::Pushfq)));
        let (first, len) = points.own;
        self.value(RAX, first);
        self.push(Instruction::with2(Code::Sub_r64_rm64, Name::R11, Name::RAX));
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        self.push(Instruction::with2(Code::Cmp_rm64_imm32, Name::R11, len));
        self.branch(Code::Jae_rel32_64, no);
        self.look_up(points.plot.from_labels, points.inst);
        // What is no label has distance zero, which names nothing.
        self.push(Instruction::with2(Code::Cmp_r64_rm64, Name::R11, Name::RAX));
        self.branch(Code::Je_rel32_64, no);
        self.leave_computed();
        self.push(Instruction::with1(Code::Jmp_rm64, context(GO)));
        self.label = no;
        self.stays_lowered();
        self.leave_computed();
        self.push(Ok(*raw));
    }

    fn leave_computed(&mut self) {
        self.push(Ok(Instruction::with(Code::Popfq)));
        self.raise_stack();
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
    }
}
