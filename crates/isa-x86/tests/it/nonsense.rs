//! Bytes from nowhere: no panic, and what is said about them hangs together.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_isa_x86::{Error, Inst, MAX_LEN, Reg, RegSet, Regs, Role, Syntax, Value, accesses};
use proptest::prelude::*;

use crate::forms;
use crate::machine::{Dice, Machine};

/// What must hold for every instruction.
fn coherent(inst: &Inst, regs: &impl Regs) {
    assert!((1..=MAX_LEN).contains(&usize::from(inst.length())));
    let effects = inst.effects();
    assert!(effects.replaced.without(effects.written).is_empty());
    assert!(effects.conditional.without(effects.written).is_empty(), "{effects:?}");
    assert!(effects.named_only.and(effects.inputs).is_empty());
    assert!(effects.flags.kept.without(effects.flags.changed()).is_empty());
    assert_eq!(inst.kind(), inst.flow().kind());
    let mut stored = false;
    for operand in inst.memory() {
        // Loads are told before stores.
        assert!(!(stored && operand.role == Role::Load));
        stored |= operand.stores();
        // The registers of an operand are inputs of the instruction.
        let missing = operand.registers().without(effects.inputs);
        let known = operand.loads() || operand.stores();
        assert!(!known || missing.is_empty(), "{} lacks {missing}", inst.text(Syntax::Intel));
    }
    // What is said to follow, follows from inputs, and is a result.
    let mut assigned = RegSet::EMPTY;
    for (reg, value) in inst.moves().iter() {
        let unread = sources(value).without(assigned).without(effects.inputs);
        assert!(unread.is_empty(), "{} follows from {unread}", inst.text(Syntax::Intel));
        assigned.insert(Reg::gpr(reg));
        assert!(effects.written.has(Reg::gpr(reg)));
    }
    let mut records = Vec::new();
    match accesses(inst, regs, &mut records) {
        Ok(()) | Err(Error::Missing { .. } | Error::Unsupported { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    assert!(!inst.text(Syntax::Att).is_empty());
}

fn sources(value: Value) -> RegSet {
    match value {
        Value::Sum { base, index, .. } => {
            base.into_iter().chain(index.map(|(reg, _)| reg)).map(Reg::gpr).collect()
        }
        Value::Difference(a, b) => RegSet::gprs(&[a, b]),
        Value::And(reg, _)
        | Value::ShiftLeft(reg, _)
        | Value::ShiftRight(reg, _)
        | Value::ShiftRightSigned(reg, _)
        | Value::Low32(reg)
        | Value::Low32Signed(reg) => RegSet::gprs(&[reg]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..20), seed: u64) {
        match Inst::decode(&bytes, GuestVa(seed)) {
            Ok(inst) => coherent(&inst, &Machine::random(&mut Dice::new(seed))),
            Err(Error::Truncated { have, .. }) => prop_assert!(have < MAX_LEN),
            Err(Error::Invalid { .. }) => prop_assert!(!bytes.is_empty()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn every_form_is_coherent() {
    let machine = Machine::random(&mut Dice::new(7));
    let forms = forms::all();
    assert!(forms.len() > 25_000, "only {} forms", forms.len());
    for inst in &forms {
        coherent(inst, &machine);
    }
}

#[test]
fn cut_off_is_told_from_invalid() {
    let movabs = [0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8];
    for end in 0..movabs.len() {
        let got = Inst::decode(&movabs[..end], GuestVa(1));
        assert_eq!(got, Err(Error::Truncated { pc: GuestVa(1), have: end }));
    }
    assert!(Inst::decode(&movabs, GuestVa(1)).is_ok());
    // push %es exists in 32-bit mode only.
    let got = Inst::decode(&[0x06, 0x90], GuestVa(1));
    assert_eq!(got, Err(Error::Invalid { pc: GuestVa(1), first: 0x06, second: 0x90 }));
    // Fifteen prefixes and no end.
    assert!(matches!(Inst::decode(&[0x66; 20], GuestVa(1)), Err(Error::Invalid { .. })));
}
