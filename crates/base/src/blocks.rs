//! Executions of whole blocks, for sinks that need not see every record.
//!
//! A source that keeps a program's code apart from its data addresses can tell which
//! blocks ran and what they touched, without laying out one record after the other.
//! A sink that asks for this form looks at each block's records once, takes from them
//! what it needs, and then works with addresses alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{BlockId, Record, ThreadId};

/// Consecutive executions of blocks by one thread, in program order.
///
/// Each means the block's records ([`Shapes::records`]) with addresses filled in:
/// every load, store, prefetch and flush takes the next of `words`. Only the outcomes of
/// branches are not told in this form. No event lies inside.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    /// Who executed these.
    pub thread: ThreadId,
    /// Instructions of this thread that lie before.
    pub insns_before: u64,
    /// What was executed.
    pub blocks: &'a [BlockId],
    /// The addresses of all accesses, exactly as many as the blocks have.
    pub words: &'a [u64],
    /// What the blocks are.
    pub shapes: &'a dyn Shapes,
}

/// What the blocks of a source are. A number always means the same block, from
/// [`Sink::begin`](crate::Sink::begin) to [`Sink::finish`](crate::Sink::finish).
pub trait Shapes {
    /// The records of one execution of a block, with meaningless addresses of accesses
    /// and outcomes of branches; none if there is no such block.
    fn records(&self, block: BlockId) -> &[Record];
}
