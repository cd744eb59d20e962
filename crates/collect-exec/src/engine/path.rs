//! Gathers the instructions of a path: what a thread mostly runs from an address on, across branches that are taken, jumps,
//! calls and returns.
//!
//! A call inside a path is no call of the processor, nor is the return from it: so both must be there, or the path ends with
//! the one, which then is what it always is in the cache. Nothing comes twice.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_flow::{Piece, Plan};
use ichnos_isa_x86::{Flow, Inst, Scratch};
use iced_x86::{Code, Instruction};

use super::superblock::{self, Decoded};
use super::translate::Surroundings;
use super::{native, sync};
use crate::plan;

/// The most instructions of a path.
pub const MOST_INSNS: usize = 160;
/// The most words that an execution of it stores: so many are packed quickly.
const MOST_WORDS: usize = 20;

/// Where a path goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where its blocks begin, in order.
    pub entries: Vec<u64>,
    /// Where it goes on behind the last, if that is known.
    pub end: Option<u64>,
}

/// A path that can be translated.
pub struct Path {
    /// Its instructions.
    pub insns: Vec<Decoded>,
    /// What it stores where.
    pub plan: Plan,
}

/// What stands along a route, as far as it can be one path; nothing if that is less than two blocks.
pub fn gather(around: &mut dyn Surroundings, route: &Route) -> Option<Path> {
    let mut insns = along(around, route);
    loop {
        insns.truncate(balanced(&insns));
        let insts: Vec<Inst> = insns.iter().filter_map(|d| d.inst).collect();
        let plan = plan::plan_path(&insts)?;
        let mut words = 0;
        let fits = |piece: &&Piece| {
            words += piece.words();
            words <= MOST_WORDS
        };
        match plan.pieces.iter().take_while(fits).last() {
            Some(last) if last.insns.end < insns.len() => insns.truncate(last.insns.end),
            Some(_) if plan.pieces.len() > 1 => return Some(Path { insns, plan }),
            _ => return None,
        }
    }
}

/// The instructions along a route.
fn along(around: &mut dyn Surroundings, route: &Route) -> Vec<Decoded> {
    let mut insns: Vec<Decoded> = Vec::new();
    let mut scratch = Scratch::new();
    for (i, &entry) in route.entries.iter().enumerate() {
        let next = route.entries.get(i + 1).copied().or(route.end);
        let mut at = entry;
        loop {
            let is_new = !insns.iter().any(|d| d.insn.ip() == at);
            let met = next.is_none() && at != entry && around.has_fragment(at);
            let stops = met || !insns.is_empty() && sync::is_mark(at);
            if stops || !is_new || insns.len() == MOST_INSNS {
                return insns;
            }
            let Some(mut decoded) = superblock::decode(around, at) else { return insns };
            let inst = Inst::from_raw_with(decoded.insn, &mut scratch);
            if !is_common(&decoded.insn, &inst) {
                return insns;
            }
            decoded.inst = Some(inst);
            let after = decoded.insn.next_ip();
            insns.push(decoded);
            let taken = match inst.flow() {
                Flow::Next => None,
                Flow::Cond(target) => Some(target.0).filter(|to| next == Some(*to)),
                Flow::Jump(target) | Flow::Call(target) => Some(target.0),
                _ => next,
            };
            let goes_on = matches!(inst.flow(), Flow::Next | Flow::Cond(_));
            match (taken, next) {
                (Some(to), Some(next)) if to == next => break,
                (None, Some(next)) if goes_on && after == next => break,
                (None, _) if goes_on => at = after,
                // It goes elsewhere, or nobody knows where.
                _ => return insns,
            }
        }
    }
    insns
}

/// Whether an instruction can be in a path.
fn is_common(insn: &Instruction, inst: &Inst) -> bool {
    let apart = native::stands_apart(insn)
        || superblock::stands_alone(inst, false)
        || superblock::changes_base(insn)
        || !plan::keeps_stack(inst);
    let flow = match inst.flow() {
        Flow::Next | Flow::Jump(_) | Flow::Call(_) => true,
        Flow::Cond(_) => insn.is_jcc_short_or_near(),
        Flow::JumpIndirect => insn.is_jmp_near_indirect(),
        Flow::CallIndirect => insn.is_call_near_indirect(),
        Flow::Return => insn.code() == Code::Retnq,
        Flow::Syscall | Flow::Trap => false,
    };
    !apart && flow
}

/// How many of the instructions can be one path: up to a return from a call that is not among them, or a call without the return
/// from it.
fn balanced(insns: &[Decoded]) -> usize {
    let mut calls = Vec::new();
    for (i, inst) in insns.iter().enumerate().filter_map(|(i, d)| Some((i, d.inst?))) {
        match inst.flow() {
            Flow::Call(_) | Flow::CallIndirect => calls.push(i),
            Flow::Return if calls.pop().is_none() => return i + 1,
            _ => {}
        }
    }
    calls.first().map_or(insns.len(), |call| call + 1)
}
