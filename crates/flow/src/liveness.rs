//! Which registers and flags are still wanted before each instruction.
//!
//! Backward, to a fixed point over the region's blocks. A call is its callee's
//! reads and writes followed by the return point; the adapter decides how much of
//! the calling convention to believe by what it puts into the instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::graph::Graph;
use crate::insn::{Control, Insn, Live, Region};

impl Live {
    pub(crate) fn or(self, other: Self) -> Self {
        Self { registers: self.registers.or(other.registers), flags: self.flags | other.flags }
    }

    pub(crate) fn before(self, insn: &Insn) -> Self {
        Self {
            registers: self.registers.without(insn.kills.registers).or(insn.uses.registers),
            flags: self.flags & !insn.kills.flags | insn.uses.flags,
        }
    }
}

/// What is live before each instruction.
pub(crate) fn liveness(region: &Region, graph: &Graph) -> Vec<Live> {
    let mut before = vec![Live::default(); region.insns.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for block in graph.blocks.iter().rev() {
            let Some(last) = block.end.checked_sub(1) else { continue };
            let mut live = after(region, graph, &before, last);
            for i in block.clone().rev() {
                live = live.before(&region.insns[i]);
                changed |= before[i] != live;
                before[i] = live;
            }
        }
    }
    before
}

/// What is live after a block's last instruction.
fn after(region: &Region, graph: &Graph, before: &[Live], last: usize) -> Live {
    let insn = &region.insns[last];
    let outside = region.live_outside;
    let at = |pc| graph.block_at(region, pc).map_or(outside, |b| before[graph.blocks[b].start]);
    let next = || match region.insns.get(last + 1) {
        Some(next) if next.pc == insn.end() => before[last + 1],
        _ => outside,
    };
    match insn.control {
        Control::Next | Control::Kernel | Control::Call(_) => next(),
        Control::Jump(target) => at(target),
        Control::Cond(target) => next().or(at(target)),
        // A computed jump may go to any entry of the region.
        Control::Indirect => region.entries.iter().fold(outside, |live, entry| live.or(at(*entry))),
        Control::Return | Control::Stop => outside,
    }
}
