//! How often each block ran: executions are counted by block and multiplied out
//! when they are taken, so that nobody looks at every record of every execution
//! ([`Sink::blocks`](ichnos_base::Sink::blocks)).
//!
//! Memory: 24 bytes for each number of a block, and for the blocks that ran, 16
//! for a record and 4 more for an access.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{BlockId, Record, Shapes};

/// Executions since they were last taken, and what the blocks are.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    blocks: Vec<Block>,
    /// The blocks that ran, in the order of their first executions.
    ran: Vec<BlockId>,
    records: Vec<Record>,
    reaches: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    times: u64,
    /// Where its records lie; they end at 0 if it was not looked at.
    first_record: u32,
    end_record: u32,
    first_reach: u32,
    end_reach: u32,
}

const UNKNOWN: Block =
    Block { times: 0, first_record: 0, end_record: 0, first_reach: 0, end_reach: 0 };

impl Executed {
    /// A block runs once more. Gives how many bytes each of its accesses touches, of all that
    /// take an address: 0 for those that touch nothing.
    #[inline]
    pub fn run(&mut self, id: BlockId, shapes: &dyn Shapes) -> &[u32] {
        let block = match self.blocks.get_mut(id.index()) {
            Some(block) if block.times > 0 => block,
            _ => self.first(id, shapes.records(id)),
        };
        block.times += 1;
        let reaches = range(block.first_reach, block.end_reach);
        self.reaches.get(reaches).unwrap_or_default()
    }

    /// Adds executions that were counted elsewhere.
    pub fn join(&mut self, other: &Self) {
        for id in &other.ran {
            let Some(block) = other.blocks.get(id.index()) else { continue };
            let records = other.records.get(range(block.first_record, block.end_record));
            let own = match self.blocks.get_mut(id.index()) {
                Some(own) if own.times > 0 => own,
                _ => self.first(*id, records.unwrap_or_default()),
            };
            own.times += block.times;
        }
    }

    /// Takes all executions: `each` gets every record of the blocks that ran, and how often it
    /// did. Addresses of accesses and outcomes of branches mean nothing.
    pub fn take(&mut self, mut each: impl FnMut(&Record, u64)) {
        for id in self.ran.drain(..) {
            let Some(block) = self.blocks.get_mut(id.index()) else { continue };
            let times = std::mem::take(&mut block.times);
            let records = self.records.get(range(block.first_record, block.end_record));
            records.unwrap_or_default().iter().for_each(|record| each(record, times));
        }
    }

    /// A block that has not run since executions were taken, and does now.
    #[inline(never)]
    fn first(&mut self, id: BlockId, records: &[Record]) -> &mut Block {
        self.ran.push(id);
        if self.blocks.len() <= id.index() {
            self.blocks.resize(id.index() + 1, UNKNOWN);
        }
        let block = &mut self.blocks[id.index()];
        if block.end_record == 0 {
            block.first_record = self.records.len() as u32;
            block.first_reach = self.reaches.len() as u32;
            self.records.extend_from_slice(records);
            self.reaches.extend(records.iter().filter_map(reach));
            block.end_record = self.records.len() as u32;
            block.end_reach = self.reaches.len() as u32;
        }
        block
    }
}

/// How many bytes an access touches, if it is one.
fn reach(record: &Record) -> Option<u32> {
    match *record {
        // An access of no bytes touches what it names.
        Record::Load { size, .. } | Record::Store { size, .. } => Some(size.max(1)),
        Record::Prefetch { .. } | Record::Flush { .. } => Some(0),
        Record::Insn { .. } | Record::Branch { .. } => None,
    }
}

const fn range(first: u32, end: u32) -> Range<usize> {
    first as usize..end as usize
}
