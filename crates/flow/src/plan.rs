//! From a region to its plan: pieces, save points and roadmap steps.
//!
//! What is known at a piece's entry is the meet over all ways into it, found by
//! starting from everything and taking away until nothing changes (*fixed point*).
//! A piece that would have to store after its first exit is cut, and the search
//! starts again; each round cuts at least one piece, so it ends.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{GuestVa, InsnKind, ProcessId};
use ichnos_trace::{Block, ExitKind, Exits, Register, Slot, Step, Width};

use crate::emit::{self, Emitted};
use crate::graph::Graph;
use crate::insn::{Control, Live, Region};
use crate::known::Known;
use crate::liveness::liveness;
use crate::options::{Across, Options};
use crate::place::{Points, place};
use crate::summary::Summary;
use crate::{Error, Set};

/// What to store where, and how replay reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The pieces, in order of address. They cover the region's instructions.
    pub pieces: Vec<Piece>,
    /// The first slot number that the plan does not use.
    pub next_slot: Slot,
}

/// A superblock of the plan: one entry, one identifier in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its instructions, by number in the region.
    pub insns: Range<usize>,
    /// The address of its first instruction.
    pub entry: GuestVa,
    /// Where it stores what; the first is at its entry, even if it stores no
    /// register there. All lie before the first exit.
    pub saves: Vec<SavePoint>,
    /// What replay does.
    pub steps: Vec<Step>,
}

/// Inserted code that stores registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavePoint {
    /// The instruction before which it lies, by number in the region.
    pub at: usize,
    /// What it stores, in this order.
    pub stores: Vec<Store>,
    /// What it must leave alone: all else it may use as scratch.
    pub live: Live,
}

/// One word stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    /// The register.
    pub register: Register,
    /// How much of it.
    pub width: Width,
    /// The word's slot.
    pub slot: Slot,
}

impl Piece {
    /// How many words an execution stores, besides the identifier.
    #[must_use]
    pub fn words(&self) -> usize {
        self.saves.iter().map(|save| save.stores.len()).sum()
    }

    /// How many bytes those words have.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let width = |store: &Store| if store.width == Width::Four { 4 } else { 8 };
        self.saves.iter().flat_map(|save| &save.stores).map(width).sum()
    }

    /// The piece as a block of the roadmap; `code` is the machine code of its
    /// instructions, or empty.
    #[must_use]
    pub fn block(&self, process: ProcessId, code: Vec<u8>) -> Block {
        Block { process, entry: self.entry, exits: Exits::Side, steps: self.steps.clone(), code }
    }
}

/// Plans a region. Slots are numbered from `first_slot` on.
///
/// # Errors
///
/// See [`Error`]; none of them depends on the options.
pub fn plan(region: &Region, options: &Options, first_slot: Slot) -> Result<Plan, Error> {
    let mut graph = Graph::new(region, options.piece)?;
    let summaries = region
        .insns
        .iter()
        .map(|insn| Summary::of(insn, region, options))
        .collect::<Result<Vec<_>, _>>()?;
    let live = liveness(region, &graph);
    let pieces = loop {
        let planner = Planner::new(region, options, &graph, &summaries);
        match planner.solve()? {
            Ok(pieces) => break pieces,
            Err(late) => late.into_iter().for_each(|block| graph.cut(block)),
        }
    };
    let mut slot = first_slot;
    let pieces = pieces
        .into_iter()
        .map(|(insns, points, known)| {
            emit::emit(region, options, &live, (&insns, &points), known, &mut slot)
                .map(|emitted| emitted.piece)
        })
        .collect::<Result<_, _>>()?;
    Ok(Plan { pieces, next_slot: slot })
}

/// One round of the search.
struct Planner<'a> {
    region: &'a Region,
    options: &'a Options,
    graph: &'a Graph,
    summaries: &'a [Summary],
    pieces: Vec<Range<usize>>,
    entry: Vec<Known>,
}

/// A piece with its save points and what is known at its entry.
type Placed = (Range<usize>, Points, Known);

impl<'a> Planner<'a> {
    fn new(
        region: &'a Region,
        options: &'a Options,
        graph: &'a Graph,
        summaries: &'a [Summary],
    ) -> Self {
        let pieces = graph.pieces(region);
        let across = match options.across {
            Across::Nothing => Set::EMPTY,
            Across::Frame => region.frame,
            Across::All => region.takeable,
        };
        let entry = pieces
            .iter()
            .map(|p| if graph.open[p.start] { Known::default() } else { Known::ALL.of(across) })
            .collect();
        Self { region, options, graph, summaries, pieces, entry }
    }

    fn insns(&self, piece: usize) -> Range<usize> {
        let blocks = &self.pieces[piece];
        self.graph.blocks[blocks.start].start..self.graph.blocks[blocks.end - 1].end
    }

    /// The first instruction that may leave a piece.
    fn first_exit(&self, insns: &Range<usize>) -> usize {
        let leaves = |i: &usize| self.region.insns[*i].control != Control::Next;
        insns.clone().find(leaves).unwrap_or(insns.end)
    }

    /// Finds what is known at every entry, or the blocks at which to cut.
    fn solve(mut self) -> Result<Result<Vec<Placed>, Vec<usize>>, Error> {
        let mut work: Vec<usize> = (0..self.pieces.len()).rev().collect();
        let mut late = Vec::new();
        while let Some(piece) = work.pop() {
            let insns = self.insns(piece);
            let known = self.entry[piece];
            let first_exit = self.first_exit(&insns);
            let points = match place(self.summaries, insns.clone(), first_exit, known.full) {
                Ok(points) => points,
                Err(too_late) => {
                    late.push(self.block_of(too_late.0));
                    continue;
                }
            };
            let mut slot = Slot(0);
            let parts = (&insns, &points);
            let emitted = emit::emit(self.region, self.options, &[], parts, known, &mut slot)?;
            self.spread(&emitted, &mut work);
        }
        if !late.is_empty() {
            return Ok(Err(late));
        }
        let placed = (0..self.pieces.len()).map(|piece| {
            let insns = self.insns(piece);
            let (exit, known) = (self.first_exit(&insns), self.entry[piece]);
            // What was early enough when the entry knew as much is so still.
            let points = place(self.summaries, insns.clone(), exit, known.full).unwrap_or_default();
            (insns, points, known)
        });
        Ok(Ok(placed.collect()))
    }

    /// Takes away from the successors' entries what this piece does not leave known.
    fn spread(&mut self, emitted: &Emitted, work: &mut Vec<usize>) {
        for (target, known) in &emitted.out {
            let Some(block) = self.graph.block_at(self.region, *target) else { continue };
            let Ok(piece) = self.pieces.binary_search_by(|p| p.start.cmp(&block)) else { continue };
            let less = self.entry[piece].and(*known);
            if less != self.entry[piece] {
                self.entry[piece] = less;
                if !work.contains(&piece) {
                    work.push(piece);
                }
            }
        }
    }

    fn block_of(&self, insn: usize) -> usize {
        self.graph.blocks.partition_point(|block| block.end <= insn)
    }
}

/// How a transfer is told to replay.
pub(crate) fn exit(control: Control) -> Option<Step> {
    let (kind, target) = match control {
        Control::Jump(target) | Control::Call(Some(target)) => (ExitKind::Direct, target),
        Control::Cond(target) => (ExitKind::Conditional, target),
        Control::Call(None) | Control::Indirect | Control::Return => {
            (ExitKind::Indirect, GuestVa(0))
        }
        Control::Next | Control::Kernel | Control::Stop => return None,
    };
    Some(Step::Exit { kind, target })
}

/// An instruction as a step.
pub(crate) const fn insn_step(len: u8, kind: InsnKind) -> Step {
    Step::Insn { len, kind }
}
