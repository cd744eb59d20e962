//! Executions as their collector stored them: the words that save points took, which only
//! replay makes addresses of.
//!
//! A collector that plans blocks tells each once ([`Plan`]), under a number of its own; then it tells what its
//! threads stored ([`Raw`]), with whatever else happened between.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{ExitKind, GuestVa, ProcessId, Register, Step, ThreadId};

/// A block that a collector planned.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The collector's number for it, which no other block of the process has.
    pub identifier: u32,
    /// Where it is.
    pub process: ProcessId,
    /// The address of its first instruction.
    pub entry: GuestVa,
    /// What replay does, in order. The slots of words are chosen by whoever stores them. Without any instruction the block is
    /// *silent*: it sets registers, and how the block before it was left follows from the one behind it.
    pub steps: &'a [Step],
    /// The machine code of all its instructions; empty if unknown.
    pub code: &'a [u8],
}

/// Blocks whose executions are told together, because one mostly follows the other.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// The collector's number for it, which no block and no other chain of the process has.
    pub identifier: u32,
    /// Where its blocks are.
    pub process: ProcessId,
    /// The identifiers of its blocks, at least two and at most [`MOST_BLOCKS`](Self::MOST_BLOCKS), in the order in which they are
    /// run: each but the last is left for the next. They were told before, and take at most [`MOST_WORDS`](Self::MOST_WORDS)
    /// together. Each has instructions, and none of their accesses vary.
    ///
    /// Chains that begin alike take little room if they are told one behind the other.
    pub blocks: &'a [u32],
}

impl Chain<'_> {
    /// The most blocks that a chain may have.
    pub const MOST_BLOCKS: usize = 63;
    /// The most words that they may take.
    pub const MOST_WORDS: usize = 1 << 12;
}

/// Consecutive executions of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// Who executed these.
    pub thread: ThreadId,
    /// Where the blocks are.
    pub process: ProcessId,
    /// Instructions of this thread that lie before, counted as those of `insns` are.
    pub insns_before: u64,
    /// Their own instructions, or about so many: a collector need not look at how blocks were left, or at all executions.
    pub insns: u64,
    /// The registers whose values are known before; nothing if the first execution needs more of the one before it, so that
    /// nobody could begin to read here.
    pub registers: Option<&'a [(Register, u64)]>,
    /// A register that is known before, too, but whose value the collector did not follow: it is what the executions that this
    /// thread told before left there. Blocks make it of nothing but itself and what they take.
    pub follows: Option<Register>,
    /// Executions: the block's identifier in four bytes, then what its steps take in their order, all of it
    /// lowest byte first: four or eight bytes for a [`Step::Take`] of that width, eight for an address, and for a
    /// [`Step::Flex`] the number of runs of its accesses in four bytes, then the runs: turns and lanes (one or two) in four bytes
    /// each, and for each lane, which makes one access a turn, a description ([`describe`](crate::RefKind::describe)), the first
    /// address and the difference from one to the next, in eight bytes each. Or a [chain](Chain)'s identifier, then what the
    /// steps of all its blocks take. All are whole. They come in two pieces, one behind the other: what is in a buffer need not be
    /// copied to stand behind what was kept from the one before.
    ///
    /// An execution was left for where the next begins.
    pub bytes: [&'a [u8]; 2],
    /// How the last was left. [`Leave::Silent`] if it ran to its end; if other executions follow at once, it went there.
    pub leave: Leave,
}

/// How the last block before a mark was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Leave {
    /// Nothing is said: an indirect exit has no outcome, a conditional one was not taken.
    #[default]
    Silent,
    /// Control went on here.
    Next(GuestVa),
    /// The last exit had this outcome, whatever comes next.
    Outcome {
        /// Whether it was taken.
        taken: bool,
        /// Its target.
        target: GuestVa,
    },
    /// The instruction at this address did not retire, nor did any behind it. If the block has none there, it ran to its end.
    Cut(GuestVa),
    /// Nobody saw where control went: the first exit that is not direct has no branch
    /// record, and nothing is known of what comes after it.
    Unknown,
}

impl Leave {
    /// The branch record of a block's last exit.
    #[inline]
    #[must_use]
    pub fn outcome(self, kind: ExitKind, target: GuestVa) -> Option<(bool, GuestVa)> {
        let next = match self {
            Self::Outcome { taken, target } => return Some((taken, target)),
            Self::Unknown if kind != ExitKind::Direct => return None,
            Self::Unknown => None,
            Self::Next(next) => Some(next),
            Self::Silent | Self::Cut(_) => None,
        };
        match kind {
            ExitKind::Direct => Some((true, target)),
            ExitKind::Conditional => Some((next == Some(target), target)),
            ExitKind::Indirect => next.map(|next| (true, next)),
        }
    }
}
