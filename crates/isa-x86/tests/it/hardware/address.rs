//! Addresses: `lea` computes what the crate computes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};
use ichnos_isa_x86::{Inst, Syntax, address};

use super::request;
use crate::forms::CODE;
use crate::machine::{Dice, Machine};
use crate::probe::{self, ARENAS, WINDOW};

fn random_operand(dice: &mut Dice) -> MemoryOperand {
    let class = if dice.below(2) == 0 { Register::RAX } else { Register::EAX };
    let pick = |dice: &mut Dice| class + u32::try_from(dice.below(16)).unwrap();
    let none = |dice: &mut Dice| dice.below(4) == 0;
    let base = if none(dice) { Register::None } else { pick(dice) };
    let mut index = if none(dice) { Register::None } else { pick(dice) };
    if index.number() == 4 {
        index = Register::None;
    }
    let scale = 1 << dice.below(4);
    let displ = match dice.below(4) {
        0 => 0,
        1 => i64::from(dice.next() as i8),
        _ => i64::from(dice.next() as i32),
    };
    let scale = if index == Register::None { 1 } else { scale };
    let size = if displ == 0 && base != Register::None { 0 } else { 4 };
    MemoryOperand::new(base, index, scale, displ, size, false, Register::None)
}

fn encode(code: Code, operand: MemoryOperand) -> Option<(Inst, Vec<u8>)> {
    let raw = Instruction::with2(code, Register::R10, operand).ok()?;
    let mut encoder = Encoder::new(64);
    encoder.encode(&raw, CODE.0).ok()?;
    let bytes = encoder.take_buffer();
    Some((Inst::decode(&bytes, CODE).ok()?, bytes))
}

#[test]
fn addresses_are_what_lea_says() {
    let Some(program) = probe::program() else { return };
    let mut dice = Dice::new(3);
    let mut loads = Vec::new();
    let mut requests = Vec::new();
    while loads.len() < 4000 {
        let operand = random_operand(&mut dice);
        let Some((load, _)) = encode(Code::Mov_r64_rm64, operand) else { continue };
        let Some((lea, _)) = encode(Code::Lea_r64_m, operand) else { continue };
        let machine = Machine::random(&mut dice);
        requests.push(request(&lea, &machine, Some(&[[0; WINDOW]; ARENAS])));
        loads.push((load, machine));
    }
    probe::execute(program, requests, |i, outcome| {
        let (load, machine) = &loads[i];
        let (after, _) = outcome.after.expect("lea does not fault");
        let claimed = address(&load.memory()[0].address, machine);
        assert_eq!(claimed.0, after.gpr[10], "{}", load.text(Syntax::Intel));
    });
}
