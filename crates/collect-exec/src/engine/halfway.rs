//! Repeated string instructions that fault in their middle: the turns that they made are told as if they had been given a
//! smaller count and had retired (`docs/EVENTS.md`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_x86::{AddrWidth, Gpr, Inst, MemOperand};

use super::ctx::Ctx;
use super::{decoded, flexible, trace};
use crate::plan::{Part, Snapshot};
use crate::words::{Run, u64_at};

/// The instruction at which the context stands has faulted. If it made some turns before, its block, which is the last thing
/// that was stored, is made to say so; otherwise it has to be cut off.
pub fn tell(ctx: &mut Ctx) -> bool {
    if ctx.recorded == 0 {
        return false;
    }
    let Ok(inst) = decoded::inst_at(ctx.rip) else { return false };
    let operand = inst.memory().iter().find(|operand| flexible::is_repeated(operand));
    let Some(operand) = operand else { return false };
    let changed = match Snapshot::of(&inst) {
        Some(parts) => stored(ctx, operand, &parts),
        None => told(ctx, &inst, operand),
    };
    changed.is_some()
}

/// Where the registers before and after are stored.
fn stored(ctx: &mut Ctx, operand: &MemOperand, parts: &Snapshot) -> Option<()> {
    let regs = ctx.regs;
    let words = trace::last(ctx, parts.len())?;
    let count = Gpr::Rcx.number();
    let before = u64_at(words, parts.find(Part::Gpr(count))?)?;
    let left = regs[usize::from(count)];
    let narrow = operand.address.width == AddrWidth::Bits32;
    let moved = if narrow { (before ^ left) & 0xffff_ffff } else { before ^ left };
    if moved == 0 {
        return None;
    }
    for (part, at) in parts.parts() {
        let Part::After(reg) = part else { continue };
        words.get_mut(at..at + part.len())?.copy_from_slice(&regs[usize::from(reg)].to_le_bytes());
    }
    Some(())
}

/// Where the engine told all turns before: how far the first operand came says how many were made.
fn told(ctx: &mut Ctx, inst: &Inst, operand: &MemOperand) -> Option<()> {
    let now = flexible::address_of(ctx, operand);
    let mut run = Run { turns: 0, lanes: [None; 2] };
    let lanes = inst.memory().len().min(run.lanes.len());
    let item = trace::last(ctx, Run::len(lanes))?;
    (run, _) = Run::parse(item, 0)?;
    let lane = run.lanes[0].as_ref()?;
    let turns = (now.wrapping_sub(lane.base) as i64).checked_div(lane.stride as i64)?;
    run.turns = u64::try_from(turns).ok().filter(|&turns| turns != 0 && turns <= run.turns)?;
    let mut bytes = Vec::with_capacity(item.len());
    run.put(&mut bytes);
    item.copy_from_slice(&bytes);
    Some(())
}
