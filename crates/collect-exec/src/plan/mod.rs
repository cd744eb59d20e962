//! What a superblock stores and how its addresses come back: computed by the engine when it
//! translates and by the host when it is told of the code, with the same result.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod snapshot;

use iced_x86::{Code, OpKind, Register as Name};
use ichnos_base::GuestVa;
use ichnos_flow::{
    Effect, Level, Live, Plan, Region, Set, plan_line, plan_path as plan_along, value_registers,
};
use ichnos_isa_x86::{Flow, Inst, Rep, Scratch, Shape};
use ichnos_trace::Slot;

use ichnos_lift::{FRAME, TAKEABLE, lift, lift_with};
pub use ichnos_lift::{FS, GS, STACK};

pub use snapshot::{Part, Snapshot};

/// Whether an instruction's accesses differ from one execution to the next, so that it is
/// a superblock of its own.
pub fn is_flexible(inst: &Inst) -> bool {
    let fixed = |s: Shape| {
        matches!(s, Shape::Plain | Shape::String(Rep::Once) | Shape::Run { .. } | Shape::Bit(_))
    };
    inst.memory().iter().any(|operand| !fixed(operand.shape))
}

/// Plans consecutive instructions that are entered at the first alone. `None` if the planner
/// cannot; then each instruction by itself still can be.
pub fn plan_superblock(insts: &[Inst]) -> Option<Plan> {
    plan_line(&region(insts, Set::EMPTY), &Level::Flow.into(), Slot(0)).ok()
}

/// Plans the instructions of a path, in the order in which they are run, for who knows these general registers when it is entered.
/// `None` if the planner cannot.
pub fn plan_path(insts: &[Inst], known: u16) -> Option<Plan> {
    plan_along(&region(insts, Set(known.into())), &Level::Flow.into(), Slot(0)).ok()
}

fn region(insts: &[Inst], known: Set) -> Region {
    let mut scratch = Scratch::new();
    Region {
        insns: insts.iter().map(|inst| lift_with(inst, &mut scratch)).collect(),
        entries: insts.first().map(Inst::pc).into_iter().chain(indirect_tails(insts)).collect(),
        takeable: TAKEABLE,
        frame: FRAME,
        known_outside: Set::only(FS).or(Set::only(GS)).or(Set::only(STACK)).or(known),
        strange: Vec::new(),
        live_outside: Live { registers: Set::ALL, flags: 0xff },
    }
}

/// Whether the stack pointer after an instruction follows from what it was before. Where it does not, the
/// superblock ends, and the engine tells what it is: so the host knows it always.
pub fn keeps_stack(inst: &Inst) -> bool {
    let raw = inst.raw();
    let common = matches!(
        raw.code(),
        Code::Push_r64 | Code::Pop_r64 | Code::Call_rel32_64 | Code::Call_rm64 | Code::Retnq
    );
    let names = (0..raw.op_count()).any(|i| {
        raw.op_kind(i) == OpKind::Register && raw.op_register(i).full_register() == Name::RSP
    });
    if !names && (common || !raw.is_stack_instruction()) {
        return true;
    }
    lift(inst).effects.iter().all(|effect| match *effect {
        Effect::Set(STACK, value) => value_registers(value).without(Set::only(STACK)).is_empty(),
        Effect::Lose(STACK, _) => false,
        _ => true,
    })
}

/// Where code must be cut before indirect transfers: behind the last conditional branch before each. An indirect transfer can
/// go where a side exit goes, and replay could not tell which it was.
fn indirect_tails(insts: &[Inst]) -> impl Iterator<Item = GuestVa> {
    let is_indirect =
        |i: &Inst| matches!(i.flow(), Flow::JumpIndirect | Flow::CallIndirect | Flow::Return);
    insts.iter().enumerate().filter(move |(_, inst)| is_indirect(inst)).filter_map(|(i, _)| {
        let branch = insts[..i].iter().rposition(|i| matches!(i.flow(), Flow::Cond(_)))?;
        insts.get(branch + 1).map(Inst::pc)
    })
}

/// The instructions in stretches of code, by address.
pub fn decode_all(stretches: &[(u64, &[u8])]) -> Option<Vec<Inst>> {
    let mut insts = Vec::new();
    for &(pc, code) in stretches {
        let mut at = 0;
        while at < code.len() {
            let inst = Inst::decode(code.get(at..)?, GuestVa(pc).offset(at as u64)).ok()?;
            at += usize::from(inst.length());
            insts.push(inst);
        }
    }
    Some(insts)
}

/// How many instructions of a superblock can be planned together such that its side exits can
/// be told apart from its end by where control goes, and the stack pointer is known but at its end.
pub fn plannable(insts: &[Inst]) -> usize {
    let mut len = insts.iter().position(|i| !keeps_stack(i)).map_or(insts.len(), |i| i + 1);
    while let Some(last) = len.checked_sub(1).and_then(|i| insts.get(i)) {
        let end = last.next_pc();
        let leads_to_end = |i: &Inst| matches!(i.flow(), Flow::Cond(target) if target == end);
        match insts[..len].iter().position(leads_to_end) {
            // A branch to its own next instruction stays: taken or not is the same.
            Some(i) if i + 1 < len => len = i + 1,
            _ => break,
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps(code: &[u8]) -> bool {
        keeps_stack(&Inst::decode(code, GuestVa(0x1000)).unwrap())
    }

    #[test]
    fn what_moves_the_stack_pointer_is_followed_or_told() {
        let followed: [&[u8]; 11] = [
            &[0x50],                         // push rax
            &[0x54],                         // push rsp
            &[0x5b],                         // pop rbx
            &[0xe8, 0, 1, 0, 0],             // call
            &[0xff, 0xd0],                   // call rax
            &[0xc3],                         // ret
            &[0xc2, 8, 0],                   // ret 8
            &[0x48, 0x83, 0xec, 0x20],       // sub rsp, 32
            &[0x48, 0x8d, 0x64, 0x24, 0x08], // lea rsp, [rsp+8]
            &[0x48, 0x89, 0xe5],             // mov rbp, rsp
            &[0x9c],                         // pushfq
        ];
        let told: [&[u8]; 6] = [
            &[0xc9],                   // leave
            &[0x5c],                   // pop rsp
            &[0x48, 0x89, 0xec],       // mov rsp, rbp
            &[0x48, 0x8b, 0x63, 0x30], // mov rsp, [rbx+48]
            &[0x48, 0x29, 0xc4],       // sub rsp, rax
            &[0x48, 0x94],             // xchg rsp, rax
        ];
        assert!(followed.iter().all(|code| keeps(code)));
        assert!(!told.iter().any(|code| keeps(code)));
    }
}
