//! Transfers inside of a path, which goes on where they are expected to lead.
//!
//! A call only stores its return address, if the path also returns from it; whether an indirect jump, call or return goes where
//! the path does is seen by the difference. Nothing here changes flags. If one goes elsewhere it is done, behind the path's
//! code, as it is done outside of paths.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{FlowControl, Instruction};

use super::ctx::at;
use super::emit::{Gp, RAX, RCX};
use super::exits::Cold;
use super::fragment::Spills;
use super::mangle::Unsupported;
use super::translate::{Draft, Next, Surroundings, hardware_condition};

/// A call that the processor takes for one; it does not if nothing is called over.
const CALL_OVER_NOTHING: &[u8] = &[0xe8, 1, 0, 0, 0, 0xcc];
/// rsp.
const RSP: Gp = Gp(4);

/// What went elsewhere than a path expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// A return.
    Return,
    /// A jump that should have gone here.
    Jump(u64),
    /// A call that should have gone here; its return address lies in memory here.
    Call(u64, u64),
}

impl Draft {
    /// The path goes on where a conditional branch leads: it is left if that is not taken.
    pub fn unless(&mut self, insn: &Instruction) -> Result<(), Unsupported> {
        if !insn.is_jcc_short_or_near() {
            return Err(Unsupported);
        }
        let code = hardware_condition(insn.condition_code() as u8).ok_or(Unsupported)?;
        let patch = self.emit.jump_if(code ^ 1);
        self.exit_if(patch, insn.next_ip());
        Ok(())
    }

    /// The path goes on where a call, a return or an indirect jump is expected to lead.
    pub fn expect(
        &mut self,
        around: &mut dyn Surroundings,
        insn: &Instruction,
        next: Option<u64>,
    ) -> Result<Next, Unsupported> {
        let to = next.ok_or(Unsupported)?;
        let pc = insn.ip();
        match insn.flow_control() {
            FlowControl::Call if insn.is_call_near() && insn.near_branch_target() == to => {
                self.call(around, insn)?;
            }
            FlowControl::Return => {
                self.emit.save(at::SPILL_RAX, RAX);
                self.emit.save(at::SPILL_RCX, RCX);
                self.emit.raw(&[0x48, 0x8b, 0x0c, 0x24]); // mov rcx, [rsp]
                self.check(pc, to, Miss::Return);
                self.emit.raw(&[0x48, 0x8d, 0x64, 0x24, 0x08]); // lea rsp, [rsp+8]
                self.calls = self.calls.saturating_sub(1);
            }
            FlowControl::IndirectBranch if insn.is_jmp_near_indirect() => {
                self.spill_and_load(insn)?;
                self.check(pc, to, Miss::Jump(to));
            }
            FlowControl::IndirectCall if insn.is_call_near_indirect() => {
                self.spill_and_load(insn)?;
                let constant = around.constant(insn.next_ip()).ok_or(Unsupported)?;
                self.check(pc, to, Miss::Call(to, constant));
                self.call(around, insn)?;
            }
            _ => return Err(Unsupported),
        }
        Ok(Next::Go(to))
    }

    /// A call that goes where the path does.
    fn call(
        &mut self,
        around: &mut dyn Surroundings,
        insn: &Instruction,
    ) -> Result<(), Unsupported> {
        if self.real_calls.contains(&self.insn) {
            let fix = self.call_pad(insn.next_ip());
            return self.push_return(around, fix, insn.next_ip());
        }
        self.calls += 1;
        self.push_constant(around, insn.next_ip())
    }

    /// Goes on if rcx holds an address; both registers that are spilled get their values back.
    fn check(&mut self, pc: u64, to: u64, miss: Miss) {
        self.site(pc, Spills::BOTH);
        self.emit.set(RAX, to.wrapping_neg());
        self.emit.raw(&[0x48, 0x8d, 0x0c, 0x01]); // lea rcx, [rcx+rax]
        self.emit.raw(&[0xe3, 0]); // jrcxz over the jump
        let over = self.emit.offset();
        let patch = self.emit.jump();
        let distance = (self.emit.offset() - over) as u8;
        self.emit.set_byte(over - 1, distance);
        self.cold.push(Cold { miss: Some(miss), ..self.cold(patch, pc) });
        self.emit.load(RAX, at::SPILL_RAX);
        self.emit.load(RCX, at::SPILL_RCX);
        self.site(pc, Spills::NONE);
    }

    /// A transfer went elsewhere: rcx holds how far from there, and both registers are spilled.
    pub fn missed(&mut self, pc: u64, miss: Miss) {
        self.site(pc, Spills::BOTH);
        let to = match miss {
            Miss::Return => {
                self.emit.load(RAX, at::SPILL_RAX);
                self.emit.load(RCX, at::SPILL_RCX);
                self.site(pc, Spills::NONE);
                self.unsettle();
                self.take_back(pc, Spills::NONE);
                self.site(pc, Spills::NONE);
                self.make_up_calls();
                self.return_by_table();
                return;
            }
            Miss::Jump(to) | Miss::Call(to, _) => to,
        };
        self.emit.set(RAX, to);
        self.emit.raw(&[0x48, 0x8d, 0x0c, 0x01]); // lea rcx, [rcx+rax]
        self.unsettle();
        self.take_back(pc, Spills::BOTH);
        self.site(pc, Spills::BOTH);
        self.make_up_calls();
        if let Miss::Call(_, constant) = miss {
            self.emit.raw(CALL_OVER_NOTHING);
            self.emit.raw(&[0x48, 0x8d, 0x64, 0x24, 0x08]); // lea rsp, [rsp+8]
            self.emit.raw(&[0xff, 0x35]); // push [rip+distance]
            let distance = constant.wrapping_sub(self.emit.here() + 4) as u32;
            self.emit.raw(&distance.to_le_bytes());
        }
        self.table_jump();
    }

    /// The path is left inside of calls that the processor does not know of: it is made to expect their returns, or it would take each
    /// return from here on for the one before. Where these calls are made from it will not find back to, but that is one mistake
    /// each. The engine's stack is free while translated code runs.
    pub fn make_up_calls(&mut self) {
        if self.calls == 0 {
            return;
        }
        self.emit.save(at::SPILL_FAR, RSP);
        self.emit.load(RSP, at::ENGINE_SP);
        (0..self.calls).for_each(|_| self.emit.raw(CALL_OVER_NOTHING));
        self.emit.load(RSP, at::SPILL_FAR);
    }
}
