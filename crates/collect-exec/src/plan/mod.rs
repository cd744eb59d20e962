//! What a superblock stores and how its addresses come back: computed by the engine when it
//! translates and by the host when it is told of the code, with the same result.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod snapshot;

use ichnos_base::GuestVa;
use ichnos_flow::{Level, Live, Plan, Region, Set, plan_line};
use ichnos_isa_x86::{Flow, Inst, Rep, Shape};
use ichnos_trace::Slot;

use ichnos_lift::{FRAME, TAKEABLE, lift};
pub use ichnos_lift::{FS, GS};

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
    let entry = insts.first()?.pc();
    let tail = indirect_tail(insts);
    let region = Region {
        insns: insts.iter().map(lift).collect(),
        entries: std::iter::once(entry).chain(tail).collect(),
        takeable: TAKEABLE,
        frame: FRAME,
        known_outside: Set::only(FS).or(Set::only(GS)),
        strange: Vec::new(),
        live_outside: Live { registers: Set::ALL, flags: 0xff },
    };
    plan_line(&region, &Level::Flow.into(), Slot(0)).ok()
}

/// Where a superblock that ends with an indirect transfer must be cut: behind its last conditional
/// branch. An indirect transfer can go where a side exit goes, and replay could not tell which it was.
fn indirect_tail(insts: &[Inst]) -> Option<GuestVa> {
    let last = insts.last()?;
    if !matches!(last.flow(), Flow::JumpIndirect | Flow::CallIndirect | Flow::Return) {
        return None;
    }
    let branch = insts.iter().rposition(|i| matches!(i.flow(), Flow::Cond(_)))?;
    insts.get(branch + 1).map(Inst::pc)
}

/// The instructions in a stretch of code.
pub fn decode_all(code: &[u8], pc: GuestVa) -> Option<Vec<Inst>> {
    let mut insts = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let inst = Inst::decode(code.get(at..)?, pc.offset(at as u64)).ok()?;
        at += usize::from(inst.length());
        insts.push(inst);
    }
    Some(insts)
}

/// How many instructions of a superblock can be planned together such that its side exits can
/// be told apart from its end by where control goes.
pub fn unambiguous(insts: &[Inst]) -> usize {
    let mut len = insts.len();
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
