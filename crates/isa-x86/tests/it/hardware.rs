//! The processor as judge: what the crate claims is what the processor does.
//!
//! For every instruction form there is (`forms`), on this machine's processor:
//!
//! - *Registers*: the instruction is executed from two states that agree in what
//!   it is said to read and differ in everything else. What it is said to replace
//!   must agree afterwards; what it is not said to write must be unchanged.
//! - *Memory contents*: the same for bytes said to be loaded and stored.
//! - *Extents*: each operand is moved across the edge of mapped memory, byte by
//!   interesting byte; it must fault if and only if an access is claimed beyond
//!   the edge, masks included. On memory that cannot be written it must fault if
//!   and only if a store is claimed.
//!
//! Forms that the processor does not have, or that fault for other reasons
//! (privilege, alignment), are counted and left out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::path::Path;

use iced_x86::{CpuidFeature, Mnemonic};
use ichnos_base::{AccessFlags, GuestVa, Record};
use ichnos_isa_x86::{Effects, Flags, Flow, Gpr, Inst, Reg, Role, Shape, Syntax, accesses};

use crate::forms;
use crate::machine::{Dice, Machine};
use crate::probe::{self, ARENAS, Outcome, Request, WINDOW, Windows};

const SIGSEGV: u32 = 11;

/// Instructions that would take the probe down with them, leave user code, or
/// read what differs from one moment to the next.
fn executable(inst: &Inst) -> bool {
    use Mnemonic as M;
    let op = inst.raw().code().op_code();
    if op.is_privileged() && op.must_be_cpl0() || op.is_input_output() {
        return false;
    }
    let unfit = matches!(
        inst.mnemonic(),
        M::Wrfsbase | M::Wrgsbase | M::Wrpkru | M::Xsetbv | M::Vmcall | M::Vmmcall | M::Vmfunc
            | M::Enclu | M::Encls | M::Enclv | M::Getsec | M::Pconfig | M::Tpause | M::Umwait
            | M::Umonitor | M::Xbegin | M::Xabort | M::Xend | M::Xtest | M::Seamcall | M::Tdcall
            | M::Rdtsc | M::Rdtscp | M::Rdrand | M::Rdseed | M::Rdpid | M::Cpuid | M::Xgetbv
            | M::Rdpmc | M::Popf | M::Popfd | M::Popfq | M::Lfs | M::Lgs | M::Lss | M::Swapgs
            | M::Sti | M::Cli | M::Xrstor | M::Xrstor64 | M::Xrstors | M::Xrstors64 | M::Xsave
            | M::Xsave64 | M::Xsavec | M::Xsavec64 | M::Xsaveopt | M::Xsaveopt64 | M::Xsaves
            | M::Xsaves64 | M::Ldtilecfg | M::Pushf | M::Pushfd | M::Pushfq | M::Enter
            // The kernel emulates these, and not to the letter.
            | M::Sldt | M::Smsw | M::Str | M::Sgdt | M::Sidt
            // They load control words, and a random one unmasks exceptions.
            | M::Fldenv | M::Frstor | M::Fxrstor | M::Fxrstor64 | M::Fldcw | M::Ldmxcsr | M::Vldmxcsr
    );
    let foreign = inst.raw().code().cpuid_features().iter().any(|feature| {
        matches!(feature, CpuidFeature::VMX | CpuidFeature::SVM | CpuidFeature::SMX)
    });
    let leaves = !matches!(inst.flow(), Flow::Next | Flow::Cond(_) | Flow::Jump(_) | Flow::Call(_));
    !unfit && !foreign && !leaves
}

/// Puts each memory operand into an arena of its own and makes numbers sensible.
fn settle(inst: &Inst, machine: &mut Machine, dice: &mut Dice) {
    for (i, operand) in inst.memory().iter().enumerate() {
        match operand.shape {
            Shape::Bit(reg) => {
                machine.set(reg, dice.below(1600).wrapping_sub(800));
            }
            Shape::Lanes(lanes) => {
                let size = usize::from(lanes.index_size);
                for index in machine.z[usize::from(lanes.index)].chunks_mut(size) {
                    let value = (dice.below(400) as i64 - 200).to_le_bytes();
                    index.copy_from_slice(&value[..size]);
                }
            }
            Shape::Tile { stride, .. } => {
                if let Some(reg) = stride {
                    machine.set(reg, 64);
                }
            }
            _ => {}
        }
        if let Some(base) = operand.address.base {
            let disp = operand.address.disp.cast_unsigned();
            machine.set(base, probe::centre(i).wrapping_sub(disp));
        }
    }
    match inst.mnemonic() {
        // Quotients must fit.
        Mnemonic::Div | Mnemonic::Idiv => {
            machine.set(Gpr::Rdx, 0);
            machine.gpr[0] &= 0x7f;
        }
        _ => {}
    }
    if inst.raw().has_rep_prefix() || inst.raw().has_repne_prefix() {
        machine.set(Gpr::Rcx, dice.below(2));
    }
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

fn ranges(records: &[Record], stores: bool) -> Vec<(GuestVa, u32)> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Load { addr, size, .. } if !stores => Some((*addr, *size)),
            Record::Store { addr, size, .. } if stores => Some((*addr, *size)),
            _ => None,
        })
        .collect()
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
    let stores = covered(&records, true);
    Pair { inst: *inst, effects, before: [first, second], windows, stores }
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

fn request(inst: &Inst, before: &Machine, windows: Option<&Windows>) -> Request {
    Request {
        code: forms::bytes(inst),
        before: before.clone(),
        windows: windows.map(|w| Box::new(*w)),
    }
}

/// Collects complaints, one line per form.
#[derive(Default)]
struct Report {
    complaints: BTreeMap<String, Vec<String>>,
    signals: BTreeMap<u32, usize>,
    clean: usize,
}

impl Report {
    fn note(&mut self, inst: &Inst, faults: Vec<String>) {
        if faults.is_empty() {
            self.clean += 1;
            return;
        }
        self.complaints.entry(inst.text(Syntax::Intel)).or_default().extend(faults);
    }

    fn finish(self, what: &str) {
        let mut text = String::new();
        for (inst, faults) in self.complaints.iter().take(400) {
            text += &format!("  {inst}: {}\n", faults.join("; "));
        }
        println!("{what}: {} clean, signals {:?}", self.clean, self.signals);
        assert!(text.is_empty(), "{what}: {} forms disagree:\n{text}", self.complaints.len());
    }
}

#[test]
fn registers_and_flags_are_as_claimed() {
    let Some(program) = probe::build() else { return };
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
    probe::execute(&program, requests, |i, outcome| {
        let Some(before) = first.take() else {
            first = Some(outcome);
            return;
        };
        let pair = &pairs[i / 2];
        *report.signals.entry(outcome.signal).or_default() += 1;
        report.note(&pair.inst, judge_pair(pair, [&before, &outcome]));
    });
    remove(&program);
    report.finish("registers and flags");
}

fn remove(program: &Path) {
    std::fs::remove_file(program).expect("the probe can be removed");
}

/// An experiment at the edge of an arena.
struct Edge {
    inst: Inst,
    /// What was tried, for the complaint.
    what: String,
    before: Machine,
    arena: usize,
    faults: bool,
}

/// Moves operand `n` so that `point`, an address while it lies at its centre, comes
/// to lie at an edge; the bytes on one side of the point are then not mapped.
fn edge(inst: &Inst, machine: &Machine, n: usize, point: u64, side: Side) -> Option<Edge> {
    let base = inst.memory()[n].address.base?;
    let (first, end) = if side == Side::ReadOnly { probe::readonly(n) } else { probe::arena(n) };
    let target = match side {
        Side::Above => end,
        Side::Below => first,
        Side::ReadOnly => first + 0x8000,
    };
    let mut before = machine.clone();
    let old = before.gpr[usize::from(base.number())];
    before.set(base, old.wrapping_add(target).wrapping_sub(point));
    let mut records = Vec::new();
    accesses(inst, &before, &mut records).ok()?;
    let beyond = |(addr, size): &(GuestVa, u32)| match side {
        Side::Above => {
            addr.0 >= first && addr.0 + u64::from(*size) > end && addr.0 < end + 0x1_0000
        }
        Side::Below => addr.0 < first && addr.0 + 0x1_0000 > first,
        Side::ReadOnly => addr.0 >= first && addr.0 < end,
    };
    let mut touched = ranges(&records, true);
    if side != Side::ReadOnly {
        touched.extend(ranges(&records, false));
    }
    let faults = touched.iter().any(beyond);
    Some(Edge { inst: *inst, what: format!("{side:?} {point:#x}"), before, arena: n, faults })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Above,
    Below,
    ReadOnly,
}

/// Stores that want the whole operand to be writable although they write only the
/// active lanes: a fault proves nothing.
fn faults_for_idle_lanes(inst: &Inst) -> bool {
    let name = format!("{:?}", inst.mnemonic());
    name.starts_with("Vextract") || matches!(&*name, "Maskmovdqu" | "Vmaskmovdqu" | "Maskmovq")
}

fn edges(inst: &Inst, dice: &mut Dice, out: &mut Vec<Edge>) {
    let masked =
        inst.memory().iter().any(|m| matches!(m.shape, Shape::Masked(_) | Shape::Lanes(_)));
    for _ in 0..if masked { 3 } else { 1 } {
        let mut machine = Machine::random(dice);
        settle(inst, &mut machine, dice);
        let mut records = Vec::new();
        if accesses(inst, &machine, &mut records).is_err() {
            return;
        }
        for (n, operand) in inst.memory().iter().enumerate() {
            if matches!(operand.role, Role::Prefetch | Role::Flush) {
                continue;
            }
            let centre = probe::centre(n);
            let mine: Vec<(u64, u64)> = ranges(&records, true)
                .into_iter()
                .chain(ranges(&records, false))
                .map(|(addr, size)| (addr.0, addr.0 + u64::from(size)))
                .filter(|(from, _)| from.abs_diff(centre) < 0x4000)
                .collect();
            let start = mine.iter().map(|r| r.0).min().unwrap_or(centre);
            let end = mine.iter().map(|r| r.1).max().unwrap_or(centre + 64).max(start + 1);
            let mut points =
                vec![start, start + 1, end - 1, end, start + dice.below(end - start + 1)];
            if masked {
                points.extend(mine.iter().take(4).flat_map(|r| [r.0, r.1]));
            }
            if operand.flags.has(AccessFlags::ATOMIC) {
                // Kernels punish atomic accesses that cross a cache line.
                points.truncate(0);
                points.extend([start, end]);
            }
            points.sort_unstable();
            points.dedup();
            for point in points {
                for side in [Side::Above, Side::Below] {
                    out.extend(edge(inst, &machine, n, point, side));
                }
            }
            out.extend(edge(inst, &machine, n, centre, Side::ReadOnly));
        }
    }
}

#[test]
fn accesses_end_where_claimed() {
    let Some(program) = probe::build() else { return };
    let mut dice = Dice::new(2);
    let mut all = Vec::new();
    let mut forms = forms::all();
    // Immediates make no difference to extents.
    forms.dedup_by_key(|inst| {
        let raw = inst.raw();
        let prefixes = (raw.has_lock_prefix(), raw.has_rep_prefix(), raw.has_repne_prefix());
        (
            raw.code(),
            raw.op_mask(),
            raw.zeroing_masking(),
            raw.is_broadcast(),
            prefixes,
            raw.memory_base(),
        )
    });
    for inst in forms.iter().filter(|inst| executable(inst)) {
        edges(inst, &mut dice, &mut all);
    }
    println!("{} experiments", all.len());
    let requests = all.iter().map(|e| request(&e.inst, &e.before, None)).collect();
    let mut report = Report::default();
    probe::execute(&program, requests, |i, outcome| {
        let e = &all[i];
        *report.signals.entry(outcome.signal).or_default() += 1;
        let faulted = outcome.signal == SIGSEGV && outcome.address != 0;
        let judged = faulted || outcome.signal == 0;
        let excused = faulted && faults_for_idle_lanes(&e.inst);
        let wrong = judged && faulted != e.faults && !excused;
        let text = || {
            let verb = if faulted { "faulted" } else { "did not fault" };
            format!("operand {} {}: {verb} at {:#x}", e.arena, e.what, outcome.address)
        };
        report.note(&e.inst, if wrong { vec![text()] } else { Vec::new() });
    });
    remove(&program);
    report.finish("extents");
}
