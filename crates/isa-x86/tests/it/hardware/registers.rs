//! Registers, flags and memory contents: what is not said to be read has no
//! influence, what is not said to be written stays.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::Mnemonic;
use ichnos_base::Record;
use ichnos_isa_x86::{Effects, Flags, Flow, Gpr, Inst, Reg, Role, accesses};

use super::{Report, executable, ranges, request, settle};
use crate::forms;
use crate::machine::{Dice, Machine};
use crate::probe::{self, ARENAS, Outcome, WINDOW, Windows};

#[test]
fn registers_and_flags_are_as_claimed() {
    let Some(program) = probe::program() else { return };
    let mut dice = Dice::new(1);
    let pairs: Vec<Pair> = forms::all()
        .iter()
        .filter(|inst| executable(inst))
        .map(|inst| pair(inst, &mut dice))
        .collect();
    let requests = pairs
        .iter()
        .flat_map(|p| (0..2).map(|n| request(&p.inst, &p.before[n], Some(&p.windows[n]))))
        .collect();
    let mut report = Report::default();
    let mut first = None;
    probe::execute(program, requests, |i, outcome| {
        let Some(before) = first.take() else {
            first = Some(outcome);
            return;
        };
        let pair = &pairs[i / 2];
        report.judged += usize::from(outcome.signal == 0);
        let faults = judge_pair(pair, [&before, &outcome]);
        report.note(&pair.inst, &outcome, faults);
    });
    report.finish("registers and flags");
}

/// A state that agrees with `machine` in everything that is an input.
fn disturbed(effects: &Effects, machine: &Machine, dice: &mut Dice) -> Machine {
    let noise = Machine::random(dice);
    let mut out = machine.clone();
    for reg in Gpr::ALL {
        let keep = effects.input_bits(reg);
        let i = usize::from(reg.number());
        out.gpr[i] = machine.gpr[i] & keep | noise.gpr[i] & !keep;
    }
    let flags = Flags::ARITHMETIC.or(Flags::DF).without(effects.flags.read).rflags_mask();
    out.rflags = machine.rflags & !flags | noise.rflags & flags;
    for i in 0..32u8 {
        let z = usize::from(i);
        if !effects.inputs.has(Reg::vector(i)) {
            out.z[z][..16].copy_from_slice(&noise.z[z][..16]);
        }
        if !effects.inputs.has(Reg::vector_upper(i)) {
            out.z[z][16..].copy_from_slice(&noise.z[z][16..]);
        }
    }
    for i in 0..8u8 {
        if !effects.inputs.has(Reg::opmask(i)) {
            out.k[usize::from(i)] = noise.k[usize::from(i)];
        }
    }
    if !effects.inputs.has(Reg::X87) {
        let mxcsr = out.mxcsr_word();
        out.fx = noise.fx;
        out.set_mxcsr(mxcsr);
    }
    if !effects.inputs.has(Reg::MXCSR) {
        out.set_mxcsr(noise.mxcsr_word());
    }
    out
}

/// The bytes that accesses of a sort cover, by arena and place in the window.
fn covered(records: &[Record], stores: bool) -> [[bool; WINDOW]; ARENAS] {
    let mut out = [[false; WINDOW]; ARENAS];
    for (addr, size) in ranges(records, stores) {
        for at in addr.0..addr.0 + u64::from(size) {
            for (i, window) in out.iter_mut().enumerate() {
                let place = at.wrapping_sub(probe::centre(i) - WINDOW as u64 / 2);
                if let Some(byte) = usize::try_from(place).ok().and_then(|p| window.get_mut(p)) {
                    *byte = true;
                }
            }
        }
    }
    out
}

/// One comparison: two states, and the instruction that was executed from both.
struct Pair {
    inst: Inst,
    effects: Effects,
    before: [Machine; 2],
    windows: [Box<Windows>; 2],
    stores: [[bool; WINDOW]; ARENAS],
}

fn pair(inst: &Inst, dice: &mut Dice) -> Pair {
    let effects = inst.effects();
    let mut first = Machine::random(dice);
    settle(inst, &mut first, dice);
    let second = disturbed(&effects, &first, dice);
    let mut records = Vec::new();
    accesses(inst, &first, &mut records).unwrap_or_default();
    let loads = covered(&records, false);
    let mut windows = [Box::new([[0; WINDOW]; ARENAS]), Box::new([[0; WINDOW]; ARENAS])];
    for i in 0..ARENAS {
        dice.fill(&mut windows[0][i]);
        dice.fill(&mut windows[1][i]);
        for at in (0..WINDOW).filter(|at| loads[i][*at]) {
            windows[1][i][at] = windows[0][i][at];
        }
    }
    for window in &mut windows {
        sensible(inst, window);
    }
    let stores = covered(&records, true);
    Pair { inst: *inst, effects, before: [first, second], windows, stores }
}

/// Returns and jumps through memory go to the next instruction; flags popped
/// trap nothing.
fn sensible(inst: &Inst, windows: &mut Windows) {
    let word = match (inst.flow(), inst.mnemonic()) {
        (Flow::Return | Flow::JumpIndirect | Flow::CallIndirect, _) => inst.next_pc().0,
        (_, Mnemonic::Popf | Mnemonic::Popfq) => 0x246,
        _ => return,
    };
    for (i, _) in inst.memory().iter().enumerate().filter(|(_, m)| m.role == Role::Load) {
        windows[i][WINDOW / 2..WINDOW / 2 + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// What an instruction did that it was not said to do.
fn judge_pair(pair: &Pair, outcomes: [&Outcome; 2]) -> Vec<String> {
    // Of its 512 bytes the last 96 are reserved; they must exist, but stay.
    let reserved = matches!(pair.inst.mnemonic(), Mnemonic::Fxsave | Mnemonic::Fxsave64);
    let (Some(a), Some(b)) = (&outcomes[0].after, &outcomes[1].after) else {
        if outcomes[0].signal == outcomes[1].signal {
            return Vec::new();
        }
        return vec![format!(
            "signals {} and {} from states that agree in all inputs",
            outcomes[0].signal, outcomes[1].signal
        )];
    };
    let mut faults = Vec::new();
    for (n, (after, _)) in [a, b].into_iter().enumerate() {
        unchanged(&pair.effects, &pair.before[n], after, &mut faults);
    }
    agree(&pair.effects, &a.0, &b.0, &mut faults);
    for i in 0..ARENAS {
        for at in 0..WINDOW {
            let before = [pair.windows[0][i][at], pair.windows[1][i][at]];
            let after = [a.1[i][at], b.1[i][at]];
            if !pair.stores[i][at] && before != after {
                faults.push(format!("arena {i} byte {at} written"));
            } else if pair.stores[i][at] && after[0] != after[1] && !(reserved && at >= 928) {
                faults.push(format!("arena {i} byte {at} depends on something else"));
            }
        }
    }
    if format!("{:?}", pair.inst.mnemonic()).starts_with("Set") {
        let holds = pair.inst.condition_holds(pair.before[0].rflags, 0);
        let set = match pair.inst.memory() {
            [] => a.0.gpr[3] & 0xff,
            _ => u64::from(a.1[0][WINDOW / 2]),
        };
        if holds != Some(set == 1) {
            faults.push(format!("the condition is said to be {holds:?} and gave {set}"));
        }
    }
    faults.truncate(6);
    faults
}

fn halves(z: &[u8; 64]) -> [&[u8]; 2] {
    let (low, high) = z.split_at(16);
    [low, high]
}

fn unchanged(effects: &Effects, before: &Machine, after: &Machine, faults: &mut Vec<String>) {
    for reg in Gpr::ALL {
        let i = usize::from(reg.number());
        let change = (before.gpr[i] ^ after.gpr[i]) & !effects.written_bits(reg);
        if change != 0 {
            faults.push(format!("{} changed by {change:#x}", reg.name()));
        }
        if effects.zero_extended.has(Reg::gpr(reg)) && after.gpr[i] >> 32 != 0 {
            faults.push(format!("{} has an upper half", reg.name()));
        }
        if effects.written_bits(reg) != 0 && !effects.written.has(Reg::gpr(reg)) {
            faults.push(format!("{} has written bits but is not written", reg.name()));
        }
    }
    for i in 0..32u8 {
        let (old, new) = (&before.z[usize::from(i)], &after.z[usize::from(i)]);
        for (reg, (old, new)) in [Reg::vector(i), Reg::vector_upper(i)]
            .into_iter()
            .zip(halves(old).into_iter().zip(halves(new)))
        {
            if !effects.written.has(reg) && old != new {
                faults.push(format!("{reg} changed"));
            }
        }
    }
    for i in 0..8u8 {
        let n = usize::from(i);
        if !effects.written.has(Reg::opmask(i)) && before.k[n] != after.k[n] {
            faults.push(format!("k{i} changed"));
        }
    }
    let flags = Flags::ARITHMETIC.or(Flags::DF).without(effects.flags.changed()).rflags_mask();
    if (before.rflags ^ after.rflags) & flags != 0 {
        faults.push(format!("flags changed by {:#x}", (before.rflags ^ after.rflags) & flags));
    }
    if !effects.written.has(Reg::MXCSR) && before.mxcsr_word() != after.mxcsr_word() {
        faults.push("mxcsr changed".into());
    }
    let x87 = |m: &Machine| [m.fx[..6].to_vec(), m.fx[32..160].to_vec()];
    if !effects.written.has(Reg::X87) && x87(before) != x87(after) {
        faults.push("x87 changed".into());
    }
}

fn agree(effects: &Effects, a: &Machine, b: &Machine, faults: &mut Vec<String>) {
    for reg in Gpr::ALL {
        let i = usize::from(reg.number());
        let written = effects.written_bits(reg);
        let partial = written != u64::MAX;
        let difference = (a.gpr[i] ^ b.gpr[i]) & written;
        let surely = partial && !effects.conditional.has(Reg::gpr(reg));
        if difference != 0 && (surely || effects.replaced.has(Reg::gpr(reg))) {
            faults.push(format!("{} depends on a non-input: {difference:#x}", reg.name()));
        }
    }
    for i in 0..32u8 {
        let n = usize::from(i);
        for (reg, (x, y)) in [Reg::vector(i), Reg::vector_upper(i)]
            .into_iter()
            .zip(halves(&a.z[n]).into_iter().zip(halves(&b.z[n])))
        {
            if effects.replaced.has(reg) && x != y {
                faults.push(format!("{reg} depends on a non-input"));
            }
        }
    }
    for i in 0..8u8 {
        let n = usize::from(i);
        if effects.replaced.has(Reg::opmask(i)) && a.k[n] != b.k[n] {
            faults.push(format!("k{i} depends on a non-input"));
        }
    }
    let flags = effects.flags.defined().rflags_mask();
    if (a.rflags ^ b.rflags) & flags != 0 {
        faults.push(format!("flags {:#x} depend on a non-input", (a.rflags ^ b.rflags) & flags));
    }
}
