//! The second way in: a collector plans blocks itself, registers them, and hands
//! over raw buffers of words as its save points stored them.
//!
//! A raw buffer is a sequence of executions: the identifier under which a block was
//! registered, then the words that its steps take, in the order of the
//! steps. A [`Step::Take`] or a reference with [`Address::Word`](crate::Address::Word)
//! takes one word. A [`Step::Flex`] takes a count, then for each access a
//! description ([`describe`]) and an address.
//!
//! Which exit an execution left by follows from the next block's entry. Where no block follows
//! (before an event, at the end), [`Writer::raw_next`] says where control
//! went; if nobody says so, the trace stops at the first exit whose outcome
//! it would have to guess.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use ichnos_base::{AccessFlags, BlockId, GuestVa, Record, ThreadId};

use crate::block::Block;
use crate::error::Error;
use crate::mark::Leave;
use crate::pack::Packer;
use crate::roadmap::Roadmap;
use crate::step::{RefKind, Register, Slot, Step};
use crate::stream::{Stream, Tools};
use crate::writer::Writer;

/// The most words a raw buffer may have: a chunk begins only where a buffer does, and
/// this keeps chunks within their limits.
pub const MAX_RAW_WORDS: usize = 1 << 17;

/// A buffer of words as a traced thread filled it.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// The registers whose values are known at the buffer's start.
    pub registers: &'a [(Register, u64)],
    /// Executions: identifier, words, identifier, words...
    pub words: &'a [u64],
}

/// The word that describes one access of a flexible step.
#[must_use]
pub const fn describe(kind: RefKind, flags: AccessFlags, size: u32) -> u64 {
    kind.code() as u64 | (flags.0 as u64) << 8 | (size as u64) << 32
}

fn described(word: u64, addr: u64) -> Option<Record> {
    let kind = RefKind::from_code(word as u8)?;
    Some(kind.record(AccessFlags((word >> 8) as u8), (word >> 32) as u32, GuestVa(addr)))
}

impl<W: Write> Writer<W> {
    /// A slot for words of a plan.
    pub fn plan_slot(&mut self) -> Slot {
        self.tools.book.new_slot()
    }

    /// Registers a planned block under an identifier of the collector's choice. An
    /// identifier registered again means the new block from then on.
    pub fn plan_block(&mut self, identifier: u64, block: Block) -> Result<BlockId, Error> {
        self.guarded(|this| {
            let id = this.tools.book.push_plan(block)?;
            this.plans.insert(identifier, id);
            Ok(id)
        })
    }

    /// Packs a raw buffer. Answers how many words belonged to whole executions;
    /// the rest, of an execution that a dying thread did not finish, is left out.
    pub fn raw(&mut self, thread: ThreadId, raw: &Raw<'_>) -> Result<usize, Error> {
        if raw.words.len() > MAX_RAW_WORDS {
            return Err(Error::Misuse("a raw buffer is longer than a raw buffer may be"));
        }
        self.guarded(|this| {
            let Some(first) = raw.words.first() else { return Ok(0) };
            let first = this.planned(*first)?;
            let entry = this.tools.book.roadmap.entry_pc(first);
            let (stream, tools) = this.stream(thread)?;
            stream.start_raw(tools, entry.unwrap_or_default(), raw.registers)?;
            let mut rest = raw.words;
            while let Some(identifier) = rest.first() {
                let id = this.planned(*identifier)?;
                let (stream, tools) = this.open_stream(thread);
                let Some(used) = stream.raw_execution(tools, id, &rest[1..])? else { break };
                rest = &rest[1 + used..];
            }
            Ok(raw.words.len() - rest.len())
        })
    }

    /// Says where control went after the last execution of a raw buffer.
    pub fn raw_next(&mut self, thread: ThreadId, pc: GuestVa) -> Result<(), Error> {
        self.guarded(|this| {
            let (stream, _) = this.stream(thread)?;
            stream.left(Leave::Next(pc));
            Ok(())
        })
    }

    fn planned(&self, identifier: u64) -> Result<BlockId, Error> {
        let unknown = Error::Misuse("a raw buffer names a block that was never registered");
        self.plans.get(&identifier).copied().ok_or(unknown)
    }
}

impl Stream {
    fn left(&mut self, leave: Leave) {
        if let Some(packer) = &mut self.packer {
            packer.left(leave);
        }
    }

    fn start_raw<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        entry: GuestVa,
        registers: &[(Register, u64)],
    ) -> Result<(), Error> {
        if registers.iter().any(|(r, _)| usize::from(r.0) >= Register::COUNT)
            || registers.len() > Register::COUNT
        {
            return Err(Error::Misuse("a raw buffer names a register that does not exist"));
        }
        self.settle(tools)?;
        self.left(Leave::Next(entry));
        self.close_if_full(tools)?;
        self.open(tools).snapshot(registers);
        Ok(())
    }

    /// Packs one execution; answers how many words it took, or nothing if
    /// there are too few.
    fn raw_execution<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        id: BlockId,
        words: &[u64],
    ) -> Result<Option<usize>, Error> {
        let mut taken = std::mem::take(&mut self.words);
        taken.clear();
        let packer = self.open(tools);
        let used = pack_raw(packer, &tools.book.roadmap, (id, words), &mut taken);
        self.words = taken;
        used
    }
}

fn pack_raw(
    packer: &mut Packer,
    roadmap: &Roadmap,
    (id, words): (BlockId, &[u64]),
    taken: &mut Vec<u64>,
) -> Result<Option<usize>, Error> {
    let Some(entry) = roadmap.get(id) else { return Ok(None) };
    let mut used = 0;
    let mut flexes: Vec<(Slot, Vec<Record>)> = Vec::new();
    for step in entry.block.steps.iter().filter(|s| s.takes()) {
        let Some(word) = words.get(used) else { return Ok(None) };
        used += 1;
        let Step::Flex { slot } = step else {
            taken.push(*word);
            continue;
        };
        let count = usize::try_from(*word).unwrap_or(usize::MAX);
        let Some(pairs) = count.checked_mul(2).and_then(|n| words.get(used..used.checked_add(n)?))
        else {
            return Ok(None);
        };
        let accesses: Option<Vec<_>> = pairs.chunks(2).map(|p| described(p[0], p[1])).collect();
        let accesses = accesses.ok_or(Error::Misuse("a raw buffer describes no access"))?;
        used += pairs.len();
        flexes.push((*slot, accesses));
    }
    packer.grow(roadmap);
    for (slot, accesses) in &flexes {
        packer.flex(*slot, accesses);
    }
    packer.execute(id, taken, Leave::Silent);
    Ok(Some(used))
}
