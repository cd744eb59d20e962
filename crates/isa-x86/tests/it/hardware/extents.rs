//! Where accesses begin and end, masks included.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa};
use ichnos_isa_x86::{Flow, Inst, Role, Shape, accesses};

use super::{Report, SIGSEGV, executable, ranges, request, settle};
use crate::forms;
use crate::machine::{Dice, Machine};
use crate::probe;

/// An experiment at the edge of an arena.
struct Edge {
    inst: Inst,
    /// What was tried, for the complaint.
    what: String,
    before: Machine,
    arena: usize,
    side: Side,
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
    Some(Edge { inst: *inst, what: format!("{side:?} {point:#x}"), before, arena: n, side, faults })
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
    let Some(program) = probe::program() else { return };
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
    // What lies at an edge is no address to go to and no flags to load.
    let stays = |inst: &Inst| {
        matches!(inst.flow(), Flow::Next | Flow::Call(_))
            && !format!("{:?}", inst.mnemonic()).starts_with("Popf")
    };
    for inst in forms.iter().filter(|inst| executable(inst) && stays(inst)) {
        edges(inst, &mut dice, &mut all);
    }
    let requests = all.iter().map(|e| request(&e.inst, &e.before, None)).collect();
    let mut report = Report::default();
    probe::execute(program, requests, |i, outcome| {
        let e = &all[i];
        let faulted = outcome.signal == SIGSEGV && outcome.address != 0;
        let judged = faulted || outcome.signal == 0;
        report.judged += usize::from(judged);
        let excused = faulted && faults_for_idle_lanes(&e.inst);
        let written = outcome.error & 2 != 0;
        let wrong = judged && faulted != e.faults && !excused
            || faulted && e.side == Side::ReadOnly && !written;
        let text = || {
            let verb = if faulted { "faulted" } else { "did not fault" };
            format!("operand {} {}: {verb} at {:#x}", e.arena, e.what, outcome.address)
        };
        report.note(&e.inst, &outcome, if wrong { vec![text()] } else { Vec::new() });
    });
    report.finish("extents");
}
