//! Values that are said to follow from registers: the processor computes the same.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_x86::{Gpr, Inst, Value};

use super::{Report, executable, request, settle};
use crate::forms;
use crate::machine::{Dice, Machine};
use crate::probe::{self, ARENAS, WINDOW, Windows};

fn value(machine: &Machine, value: Value) -> u64 {
    let get = |reg: Gpr| machine.gpr[usize::from(reg.number())];
    match value {
        Value::Sum { base, index, disp } => base
            .map_or(0, get)
            .wrapping_add(index.map_or(0, |(reg, scale)| get(reg).wrapping_mul(scale.into())))
            .wrapping_add(disp.cast_unsigned()),
        Value::Difference(a, b) => get(a).wrapping_sub(get(b)),
        Value::And(reg, mask) => get(reg) & mask,
        Value::ShiftLeft(reg, count) => get(reg) << count,
        Value::ShiftRight(reg, count) => get(reg) >> count,
        Value::ShiftRightSigned(reg, count) => (get(reg).cast_signed() >> count).cast_unsigned(),
        Value::Low32(reg) => get(reg) & 0xffff_ffff,
        Value::Low32Signed(reg) => i64::from(get(reg) as i32).cast_unsigned(),
    }
}

/// The registers as the moves leave them.
fn moved(inst: &Inst, before: &Machine) -> Machine {
    let mut machine = before.clone();
    for (reg, new) in inst.moves().iter() {
        let new = value(&machine, new);
        machine.set(reg, new);
    }
    machine
}

#[test]
fn values_follow_as_claimed() {
    let Some(program) = probe::program() else { return };
    let mut dice = Dice::new(6);
    let moving = |inst: &&Inst| executable(inst) && inst.moves().iter().next().is_some();
    let all = forms::all();
    let cases: Vec<(Inst, Machine)> = all
        .iter()
        .filter(moving)
        .flat_map(|inst| {
            let mut machines = [Machine::random(&mut dice), Machine::random(&mut dice)];
            machines.iter_mut().for_each(|machine| settle(inst, machine, &mut dice));
            machines.map(|machine| (*inst, machine))
        })
        .collect();
    assert!(cases.len() > 200, "only {} cases", cases.len());
    let mut windows: Box<Windows> = Box::new([[0; WINDOW]; ARENAS]);
    let requests = cases
        .iter()
        .map(|(inst, machine)| {
            // Whatever is popped or returned to leads to the next instruction.
            for window in windows.iter_mut() {
                window[WINDOW / 2..WINDOW / 2 + 8].copy_from_slice(&inst.next_pc().0.to_le_bytes());
            }
            request(inst, machine, Some(&windows))
        })
        .collect();
    let mut report = Report::default();
    probe::execute(program, requests, |i, outcome| {
        let (inst, before) = &cases[i];
        let mut faults = Vec::new();
        if let Some((after, _)) = &outcome.after {
            report.judged += 1;
            let claimed = moved(inst, before);
            for reg in Gpr::ALL.into_iter().filter(|reg| inst.moves().assigns(*reg)) {
                let n = usize::from(reg.number());
                if claimed.gpr[n] != after.gpr[n] {
                    let (claim, got) = (claimed.gpr[n], after.gpr[n]);
                    faults.push(format!("{} said {claim:#x}, got {got:#x}", reg.name()));
                }
            }
        }
        report.note(inst, &outcome, faults);
    });
    let names: std::collections::BTreeSet<_> =
        cases.iter().map(|(inst, _)| format!("{:?}", inst.mnemonic())).collect();
    assert!(names.len() >= 20, "{names:?}");
    report.finish("moves");
}
