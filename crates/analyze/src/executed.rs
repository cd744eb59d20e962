//! How often each block ran: executions are counted by block and multiplied out
//! when they are taken, so that nobody looks at every record of every execution
//! ([`Sink::blocks`](ichnos_base::Sink::blocks)).
//!
//! Memory: for blocks that ran, 24 bytes for each number near theirs, 16 for a record and 4 more for an access. A trace of
//! many processes has millions of blocks, of which a stretch runs few.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{BlockId, Record, Shapes};

/// Executions since they were last taken, and what the blocks are.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    blocks: Paged,
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

/// How many numbers have a page together.
const PAGE: usize = 256;

/// Blocks by number, in pages, of which only those exist that were asked for.
#[derive(Debug, Default)]
struct Paged {
    /// Where each page is, one more; 0 if there is none.
    pages: Vec<u32>,
    blocks: Vec<Block>,
}

impl Paged {
    #[inline]
    fn place(&self, id: BlockId) -> Option<usize> {
        let page = self.pages.get(id.index() / PAGE)?.checked_sub(1)?;
        Some(page as usize * PAGE + id.index() % PAGE)
    }

    #[inline]
    fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(self.place(id)?)
    }

    #[inline]
    fn get_mut(&mut self, id: BlockId) -> Option<&mut Block> {
        let place = self.place(id)?;
        self.blocks.get_mut(place)
    }

    /// A block, whose page exists from now on.
    fn make(&mut self, id: BlockId) -> &mut Block {
        let page = id.index() / PAGE;
        if self.pages.len() <= page {
            self.pages.resize(page + 1, 0);
        }
        if self.pages[page] == 0 {
            self.blocks.resize(self.blocks.len() + PAGE, UNKNOWN);
            self.pages[page] = (self.blocks.len() / PAGE) as u32;
        }
        let first = (self.pages[page] as usize - 1) * PAGE;
        &mut self.blocks[first + id.index() % PAGE]
    }
}

impl Executed {
    /// A block runs once more. Gives how many bytes each of its accesses touches, of all that
    /// take an address: 0 for those that touch nothing.
    #[inline]
    pub fn run(&mut self, id: BlockId, shapes: &dyn Shapes) -> &[u32] {
        let block = match self.blocks.get_mut(id) {
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
            let Some(block) = other.blocks.get(*id) else { continue };
            let records = other.records.get(range(block.first_record, block.end_record));
            let own = match self.blocks.get_mut(*id) {
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
            let Some(block) = self.blocks.get_mut(id) else { continue };
            let times = std::mem::take(&mut block.times);
            let records = self.records.get(range(block.first_record, block.end_record));
            records.unwrap_or_default().iter().for_each(|record| each(record, times));
        }
    }

    /// A block that has not run since executions were taken, and does now.
    #[inline(never)]
    fn first(&mut self, id: BlockId, records: &[Record]) -> &mut Block {
        self.ran.push(id);
        let block = self.blocks.make(id);
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
