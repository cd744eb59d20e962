//! Basic blocks, and the pieces (superblocks) they are joined to.
//!
//! Invariants of a piece, on which replay depends when it infers from the next
//! piece's entry where this one was left:
//! - *single entry*: nobody jumps to a block that is not a piece's first;
//! - *contiguous*: each block is the fall-through of the one before it;
//! - *distinct exits*: no two ways out of a piece lead to the same address. The
//!   fall-through at its end is such a way, and a computed transfer may lead to
//!   any entry or return point of the region.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;
use std::ops::Range;

use ichnos_base::GuestVa;
use ichnos_trace::MAX_STEPS;

use crate::Error;
use crate::insn::{Control, Insn, Region};
use crate::options::Piece;

/// The most that a piece may weigh, see [`weight`].
pub(crate) const MAX_WEIGHT: usize = MAX_STEPS - 64;

/// No less than the number of an instruction's steps: itself, its exit, and for
/// each effect the effect, a register stored for it and one forgotten.
pub(crate) fn weight(insn: &Insn) -> usize {
    2 + 3 * insn.effects.len()
}

/// The region's blocks.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Instructions of each block, by number.
    pub(crate) blocks: Vec<Range<usize>>,
    weights: Vec<usize>,
    /// For each block, whether control can come from parts unknown.
    pub(crate) open: Vec<bool>,
    /// For each block, whether control can come with a frame that replay does not know.
    pub(crate) strange: Vec<bool>,
    /// For each block, whether it must begin a piece.
    heads: Vec<bool>,
    /// Addresses that computed transfers may lead to.
    reachable: HashSet<GuestVa>,
    /// For each instruction, the blocks to which it may lead: by a transfer to a fixed place, and to the next one.
    leads: Vec<[Option<u32>; 2]>,
}

impl Graph {
    pub(crate) fn new(region: &Region, piece: Piece) -> Result<Self, Error> {
        for pair in region.insns.windows(2) {
            let (end, pc) = (pair[0].end(), pair[1].pc);
            if pc < end {
                return Err(Error::Order { pc, end });
            }
        }
        let to_next = |insn: &&Insn| insn.control == Control::Cond(insn.end());
        if let Some(insn) = region.insns.iter().find(to_next) {
            return Err(Error::Ambiguous { pc: insn.pc });
        }
        let mut reachable: HashSet<GuestVa> = region.entries.iter().copied().collect();
        let mut targets = HashSet::new();
        for insn in &region.insns {
            match insn.control {
                Control::Jump(target) | Control::Cond(target) => drop(targets.insert(target)),
                Control::Call(target) => {
                    reachable.insert(insn.end());
                    reachable.extend(target);
                }
                _ => {}
            }
        }
        let (blocks, weights, open, strange, heads, leads) = Default::default();
        let mut graph = Self { blocks, weights, open, strange, heads, reachable, leads };
        let strange: HashSet<GuestVa> = region.strange.iter().copied().collect();
        for i in 0..region.insns.len() {
            graph.add(region, piece, &targets, i);
        }
        let first = |block: &Range<usize>| region.insns[block.start].pc;
        graph.strange = graph.blocks.iter().map(|b| strange.contains(&first(b))).collect();
        graph.leads = region.insns.iter().map(|insn| graph.leads_of(region, insn)).collect();
        Ok(graph)
    }

    fn leads_of(&self, region: &Region, insn: &Insn) -> [Option<u32>; 2] {
        let at = |pc| self.block_at(region, pc).and_then(|block| u32::try_from(block).ok());
        let taken = match insn.control {
            Control::Jump(target) | Control::Cond(target) => at(target),
            _ => None,
        };
        [taken, if falls_through(insn.control) { at(insn.end()) } else { None }]
    }

    /// The block to which an instruction's transfer leads, and the one to which it leads otherwise; without calls and computed transfers.
    #[inline]
    pub(crate) fn leads(&self, insn: usize) -> [Option<usize>; 2] {
        let [taken, next] = self.leads[insn];
        [taken.map(|block| block as usize), next.map(|block| block as usize)]
    }

    /// Puts instruction `i` into the last block or a new one.
    fn add(&mut self, region: &Region, piece: Piece, targets: &HashSet<GuestVa>, i: usize) {
        let insn = &region.insns[i];
        let before = i.checked_sub(1).map(|before| &region.insns[before]);
        let falls = before.is_some_and(|b| falls_through(b.control) && b.end() == insn.pc);
        let inside = before.is_some_and(|b| b.control == Control::Next && b.end() == insn.pc);
        let joins = self.reachable.contains(&insn.pc) || targets.contains(&insn.pc);
        let same = inside && !joins && piece != Piece::Instruction;
        let heavy = weight(insn);
        if same
            && let (Some(last), Some(sum)) = (self.blocks.last_mut(), self.weights.last_mut())
            && *sum + heavy <= MAX_WEIGHT
        {
            last.end = i + 1;
            *sum += heavy;
            return;
        }
        let kernel = before.is_some_and(|b| b.control == Control::Kernel);
        // What follows a loop is executed once, the loop often: it must not make the
        // loop store for it in every turn.
        let turned = before.is_some_and(|b| matches!(b.control, Control::Cond(t) if t <= b.pc));
        self.blocks.push(i..i + 1);
        self.weights.push(heavy);
        // Code that nothing in the region leads to must be reached somehow.
        let led_to = falls || targets.contains(&insn.pc);
        self.open.push(self.reachable.contains(&insn.pc) || !led_to);
        self.heads.push(!falls || joins || kernel || turned || piece != Piece::Superblock);
    }

    /// The block that starts at an address.
    pub(crate) fn block_at(&self, region: &Region, pc: GuestVa) -> Option<usize> {
        self.blocks.binary_search_by(|block| region.insns[block.start].pc.cmp(&pc)).ok()
    }

    /// Makes a block begin a piece.
    pub(crate) fn cut(&mut self, block: usize) {
        self.heads[block] = true;
    }

    /// The pieces, as stretches of blocks.
    pub(crate) fn pieces(&self, region: &Region) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut sum = 0;
        let mut exits = HashSet::new();
        for block in 0..self.blocks.len() {
            sum += self.weights[block];
            let ways = self.ways_out(region, block);
            let ends = self.heads[block] || sum > MAX_WEIGHT || self.clash(&exits, &ways);
            if block > start && ends {
                pieces.push(start..block);
                start = block;
                sum = self.weights[block];
                exits.clear();
            }
            // The fall-through counts only at the piece's end.
            exits.extend(ways.taken);
        }
        if start < self.blocks.len() {
            pieces.push(start..self.blocks.len());
        }
        pieces
    }

    /// Whether a block's ways out cannot be told from earlier ones.
    fn clash(&self, exits: &HashSet<GuestVa>, ways: &Ways) -> bool {
        let fixed = ways.taken.is_some_and(|target| exits.contains(&target));
        let falls = ways.falls.is_some_and(|target| exits.contains(&target));
        let computed = ways.computed && exits.iter().any(|target| self.reachable.contains(target));
        fixed || falls || computed
    }

    fn ways_out(&self, region: &Region, block: usize) -> Ways {
        let Some(last) = region.insns.get(self.blocks[block].end - 1) else {
            return Ways::default();
        };
        let taken = match last.control {
            Control::Jump(target) | Control::Cond(target) | Control::Call(Some(target)) => {
                Some(target)
            }
            _ => None,
        };
        let computed =
            matches!(last.control, Control::Call(None) | Control::Indirect | Control::Return);
        // Where the piece would go on, were it to end here.
        let falls = falls_through(last.control).then(|| last.end());
        Ways { taken, falls, computed }
    }
}

/// The ways out of a block.
#[derive(Default)]
struct Ways {
    taken: Option<GuestVa>,
    falls: Option<GuestVa>,
    computed: bool,
}

/// Whether the next instruction may follow without anything in between.
pub(crate) const fn falls_through(control: Control) -> bool {
    matches!(control, Control::Next | Control::Cond(_) | Control::Kernel)
}
