//! Accesses to the stack that follow each other and mostly lie in one line: what a function saves when it is entered, and what it
//! takes back. They are looked up at once, before the first of them.
//!
//! In a group there are no other accesses and nothing that may fault, save an access of its own to the
//! stack, whose use of a line nobody takes back (`sieved::may_be_undone`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use iced_x86::{Mnemonic, OpKind, Register};
use ichnos_isa_x86::{AddrExpr, Effects, Flow, Gpr, Index, Inst, MemOperand, Reg, Role, Segment};

use crate::sieve;

/// Which accesses are looked up before an instruction.
#[derive(Clone, Debug)]
pub enum Asked {
    /// Its own.
    Own,
    /// Those of a group, of which its own is the first.
    Group(Group),
    /// None: it belongs to a group that was looked up before.
    Before,
}

/// The accesses of a group, by the stack pointer before the first of them.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Their instructions and operands.
    pub members: Vec<(usize, MemOperand)>,
    /// The lowest and the highest byte.
    pub bytes: (i32, i32),
}

impl Group {
    /// Takes one more member in, if that lies within so many bytes of the others; whether it does.
    fn admit(&mut self, insn: usize, operand: MemOperand, most: u32) -> bool {
        let Ok(first) = i32::try_from(operand.address.disp) else { return false };
        let Some(last) = first.checked_add(operand.size as i32 - 1) else { return false };
        let (low, high) = if self.members.is_empty() { (first, last) } else { self.bytes };
        let bytes = (low.min(first), high.max(last));
        if bytes.1.abs_diff(bytes.0) >= most {
            return false;
        }
        self.members.push((insn, operand));
        self.bytes = bytes;
        true
    }

    /// Whether anything is stored to.
    pub fn stores(&self) -> bool {
        self.members.iter().any(|(_, operand)| operand.role != Role::Load)
    }
}

/// What is looked up before each instruction of a superblock whose lines have so many bytes.
pub fn asked(
    insts: &[Inst],
    effects: &[Effects],
    pieces: &[Range<usize>],
    line: u32,
) -> Vec<Asked> {
    let mut asked = vec![Asked::Own; insts.len()];
    for piece in pieces {
        let mut group = Group::default();
        let mut moved = 0;
        for insn in piece.clone() {
            let inst = &insts[insn];
            if group.members.is_empty() {
                moved = 0;
            }
            match stack_operand(inst, moved) {
                Some(operand) if group.admit(insn, operand, line) => {}
                Some(_) => {
                    // It is the first of another one.
                    close(&mut group, &mut asked);
                    moved = 0;
                    stack_operand(inst, 0).map(|first| group.admit(insn, first, line));
                }
                None if may_fault(inst) => close(&mut group, &mut asked),
                None => {}
            }
            if effects[insn].written.has(Reg::gpr(Gpr::Rsp)) {
                match motion(inst) {
                    Some(by) if !group.members.is_empty() => moved += by,
                    Some(_) => {}
                    None => close(&mut group, &mut asked),
                }
            }
        }
        close(&mut group, &mut asked);
    }
    asked
}

fn close(group: &mut Group, asked: &mut [Asked]) {
    let group = std::mem::take(group);
    let [(first, _), others @ ..] = &group.members[..] else { return };
    if others.is_empty() {
        return;
    }
    others.iter().for_each(|&(insn, _)| asked[insn] = Asked::Before);
    let first = *first;
    asked[first] = Asked::Group(group);
}

/// Whether an instruction may stop before it has done anything.
pub fn may_fault(inst: &Inst) -> bool {
    let plain = matches!(inst.flow(), Flow::Next | Flow::Cond(_) | Flow::Jump(_));
    !plain || !inst.memory().is_empty() || matches!(inst.mnemonic(), Mnemonic::Div | Mnemonic::Idiv)
}

/// The one operand of an instruction, if that is on the stack, as seen when the stack pointer was `moved` less.
fn stack_operand(inst: &Inst, moved: i64) -> Option<MemOperand> {
    let [operand] = *inst.memory() else { return None };
    let AddrExpr { base, index, segment, disp, .. } = operand.address;
    let on_stack = base == Some(Gpr::Rsp) && index == Index::None && segment == Segment::Flat;
    let disp = disp.checked_add(moved)?;
    (on_stack && sieve::is_simple(inst))
        .then_some(MemOperand { address: AddrExpr { disp, ..operand.address }, ..operand })
}

/// By how much an instruction moves the stack pointer, if that is known.
fn motion(inst: &Inst) -> Option<i64> {
    let raw = inst.raw();
    let size = || inst.memory().first().map(|operand| i64::from(operand.size));
    let constant = |kind: OpKind| {
        matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64)
            && raw.op0_register() == Register::RSP
    };
    match inst.mnemonic() {
        Mnemonic::Push => size().map(|size| -size),
        Mnemonic::Pop if raw.op0_register() != Register::RSP => size(),
        Mnemonic::Sub if constant(raw.op1_kind()) => Some((raw.immediate(1) as i64).wrapping_neg()),
        Mnemonic::Add if constant(raw.op1_kind()) => Some(raw.immediate(1) as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ichnos_base::GuestVa;

    use super::*;

    /// The instructions of some code, and for each of its groups the members and bytes.
    fn groups(mut code: &[u8]) -> Vec<(Vec<usize>, (i32, i32))> {
        let mut insts = Vec::new();
        while let Ok(inst) = Inst::decode(code, GuestVa(0x1000)) {
            code = &code[usize::from(inst.length())..];
            insts.push(inst);
        }
        let effects: Vec<Effects> = insts.iter().map(Inst::effects).collect();
        let asked = asked(&insts, &effects, &sieve::pieces(&insts), 64);
        asked
            .into_iter()
            .filter_map(|asked| match asked {
                Asked::Group(group) => {
                    Some((group.members.iter().map(|m| m.0).collect(), group.bytes))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn what_a_function_saves_is_a_group() {
        // push rbp; mov rbp, rsp; push r15; push r14; sub rsp, 24; mov [rsp+8], rdi
        let entry = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x41, 0x56, 0x48, 0x83, 0xec, 0x18];
        let code = [&entry[..], &[0x48, 0x89, 0x7c, 0x24, 0x08]].concat();
        assert_eq!(groups(&code), [(vec![0, 2, 3, 5], (-40, -1))]);
        // add rsp, 8; pop rbx; pop rbp; ret
        let leave = [0x48, 0x83, 0xc4, 0x08, 0x5b, 0x5d, 0xc3];
        assert_eq!(groups(&leave), [(vec![1, 2, 3], (0, 23))]);
    }

    #[test]
    fn other_accesses_and_unknown_motions_end_a_group() {
        // push rbx; mov rax, [rdi]; push rbp; and rsp, -16; push rax; push rsp
        let code = [0x53, 0x48, 0x8b, 0x07, 0x55, 0x48, 0x83, 0xe4, 0xf0, 0x50, 0x54];
        assert_eq!(groups(&code), [(vec![4, 5], (-16, -1))]);
    }
}
