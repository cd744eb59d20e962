//! Gathers the instructions of a path: what a thread mostly runs from an address on, across branches that are taken, jumps,
//! calls and returns.
//!
//! If both a call and the return from it are in a path, neither is one of the processor. Another call is what it always is in the
//! cache, and the path goes on behind it; it ends with a return from a call that is not in it. A block comes twice only
//! where a loop is unrolled.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Instruction};
use ichnos_base::Chain;
use ichnos_flow::{Piece, Plan};
use ichnos_isa_x86::{Flow, Inst, Scratch};

use super::superblock::{self, Decoded};
use super::translate::Surroundings;
use super::{native, sync};
use crate::plan;

/// The most instructions of a path.
const MOST_INSNS: usize = 160;
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
    /// Which of its instructions are calls from which it does not return.
    pub calls: Vec<usize>,
    /// The registers, as bits, that must be known where it is entered.
    pub known: u16,
}

/// What stands along a route, as far as it can be one path, for who knows these registers; nothing if that is no more than its first block.
pub fn gather(around: &mut dyn Surroundings, route: &Route, known: u16) -> Option<Path> {
    let mut insns = along(around, route);
    loop {
        let (len, calls) = calls(&insns);
        insns.truncate(len);
        let insts: Vec<Inst> = insns.iter().filter_map(|d| d.inst.as_deref().copied()).collect();
        let plan = plan::plan_path(&insts, known)?;
        let mut words = 0;
        let fits = |piece: &&Piece| {
            words += piece.words();
            words <= MOST_WORDS
        };
        match plan.pieces.iter().take(Chain::MOST_BLOCKS).take_while(fits).last() {
            Some(last) if last.insns.end < insns.len() => insns.truncate(last.insns.end),
            Some(_) if plan.pieces.len() > 1 || goes_on(&insns, route) => {
                return Some(Path { insns, plan, calls, known });
            }
            _ => return None,
        }
    }
}

/// Whether a path of one block is longer than the first of its route.
fn goes_on(insns: &[Decoded], route: &Route) -> bool {
    let second = route.entries.get(1);
    second.is_some_and(|second| insns.iter().skip(1).any(|d| d.insn.ip() == *second))
}

/// The instructions along a route.
fn along(around: &mut dyn Surroundings, route: &Route) -> Vec<Decoded> {
    let mut insns: Vec<Decoded> = Vec::new();
    let mut scratch = Scratch::new();
    for (i, &entry) in route.entries.iter().enumerate() {
        let next = route.entries.get(i + 1).copied().or(route.end);
        // Whatever is marked begins a fragment, and so an entry.
        if i > 0 && sync::is_mark(entry) {
            return insns;
        }
        let mut at = entry;
        loop {
            // Other code can only be run into where a block of it begins.
            let met = at != entry && next != Some(at) && route.entries[..=i].contains(&at)
                || next.is_none() && at != entry && around.has_fragment(at);
            if met || insns.len() == MOST_INSNS {
                return insns;
            }
            let Some(mut decoded) = superblock::decode(around, at) else { return insns };
            let inst = Inst::from_raw_with(decoded.insn, &mut scratch);
            if !is_common(&decoded.insn, &inst) {
                return insns;
            }
            decoded.inst = Some(Box::new(inst));
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

/// How many of the instructions can be one path, which is up to a return from a call that is not among them; and which of them are calls without
/// the return from them.
fn calls(insns: &[Decoded]) -> (usize, Vec<usize>) {
    let mut calls = Vec::new();
    for (i, decoded) in insns.iter().enumerate() {
        match decoded.inst.as_ref().map(|inst| inst.flow()) {
            Some(Flow::Call(_) | Flow::CallIndirect) => calls.push(i),
            Some(Flow::Return) if calls.pop().is_none() => return (i + 1, calls),
            _ => {}
        }
    }
    (insns.len(), calls)
}
