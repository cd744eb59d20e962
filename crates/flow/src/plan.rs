//! From a region to its plan: pieces, save points and roadmap steps.
//!
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{GuestVa, InsnKind, ProcessId};
use ichnos_trace::{Block, ExitKind, Exits, Register, Slot, Step, Width};

use crate::graph::Graph;
use crate::insn::{Control, Live, Region};
use crate::liveness::liveness;
use crate::options::Options;
use crate::search::search;
use crate::set::Set;
use crate::summary::Summary;
use crate::{Error, emit};

/// What to store where, and how replay reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The pieces, in order of address. They cover the region's instructions.
    pub pieces: Vec<Piece>,
    /// What is live before each instruction of the region; nothing for one line ([`crate::plan_line`]).
    pub live: Vec<Live>,
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
    /// Where control can go, and the registers that replay knows there.
    pub out: Vec<(GuestVa, Set)>,
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
        let (steps, code) = (self.steps.as_slice().into(), code.into());
        Block { process, entry: self.entry, exits: Exits::Side, steps, code }
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
    let pieces = search(region, options, &mut graph, &summaries);
    let mut slot = first_slot;
    let pieces = pieces
        .into_iter()
        .map(|(insns, points, known)| {
            emit::emit(region, options, &live, (&insns, &points), known, &mut slot)
                .map(|emitted| emitted.piece)
        })
        .collect::<Result<_, _>>()?;
    Ok(Plan { pieces, live, next_slot: slot })
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
