//! Basic-block vectors (Sherwood, Perelman, Hamerly and Calder, ASPLOS 2002):
//! for each interval of the run, how many instructions each block executed.
//!
//! A block is named by the address of its first instruction: the one after a
//! control transfer, or the first of a thread, or one that does not follow the
//! instruction before it. Intervals have exactly the length asked for, counted
//! over all threads in the order in which their batches arrive, so they may cut
//! a block.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;

use ichnos_base::{Batch, GuestVa, Record, Sink, ThreadId};

use crate::Error;
use crate::error::range;
use crate::line_map::LineMap;

/// The vector of one interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// Instructions before the interval.
    pub start: u64,
    /// Instructions in it; fewer than asked for only in the last.
    pub instructions: u64,
    /// Blocks by number, ascending, and the instructions executed in each.
    pub counts: Vec<(u32, u64)>,
}

/// Collects the vectors. Memory grows with the number of blocks, and with each
/// interval by the blocks that ran in it.
#[derive(Debug)]
pub struct BlockVectors {
    length: u64,
    numbers: LineMap,
    leaders: Vec<GuestVa>,
    /// Instructions of each block in the present interval.
    counts: Vec<u64>,
    touched: Vec<u32>,
    start: u64,
    instructions: u64,
    intervals: Vec<Interval>,
    threads: HashMap<ThreadId, Place>,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    block: u32,
    /// The address at which the block goes on; nothing if it has ended.
    next: Option<GuestVa>,
}

impl BlockVectors {
    /// With intervals of `length` instructions.
    ///
    /// # Errors
    ///
    /// If `length` is zero.
    pub fn new(length: u64) -> Result<Self, Error> {
        range("interval", length, 1, u64::MAX)?;
        Ok(Self {
            length,
            numbers: LineMap::with_capacity(1024),
            leaders: Vec::new(),
            counts: Vec::new(),
            touched: Vec::new(),
            start: 0,
            instructions: 0,
            intervals: Vec::new(),
            threads: HashMap::new(),
        })
    }

    /// The first instruction of each block, by block number.
    #[must_use]
    pub fn leaders(&self) -> &[GuestVa] {
        &self.leaders
    }

    /// The finished intervals; after `finish` also the last, shorter one.
    #[must_use]
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    fn block(&mut self, leader: GuestVa) -> u32 {
        if let Some(number) = self.numbers.get(leader.0) {
            return number;
        }
        let number = self.leaders.len() as u32;
        self.numbers.insert(leader.0, number);
        self.leaders.push(leader);
        self.counts.push(0);
        number
    }

    fn end_interval(&mut self) {
        self.touched.sort_unstable();
        let counts = self.touched.iter().map(|&block| {
            let count = std::mem::take(&mut self.counts[block as usize]);
            (block, count)
        });
        let counts = counts.collect();
        self.touched.clear();
        let instructions = std::mem::take(&mut self.instructions);
        self.intervals.push(Interval { start: self.start, instructions, counts });
        self.start += instructions;
    }
}

impl Sink for BlockVectors {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let mut place = self.threads.get(&batch.thread).copied().unwrap_or_default();
        for record in batch.records {
            let Record::Insn { len, kind, pc } = *record else { continue };
            if place.next != Some(pc) {
                place.block = self.block(pc);
            }
            place.next = (!kind.transfers()).then(|| pc.offset(u64::from(len)));
            if self.instructions == self.length {
                self.end_interval();
            }
            self.instructions += 1;
            let count = &mut self.counts[place.block as usize];
            if *count == 0 {
                self.touched.push(place.block);
            }
            *count += 1;
        }
        self.threads.insert(batch.thread, place);
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        if self.instructions > 0 {
            self.end_interval();
        }
        Ok(())
    }
}
