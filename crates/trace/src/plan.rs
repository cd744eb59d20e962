//! The second way in: a collector plans blocks itself ([`Plan`]), perhaps in [chains](Chain), and hands over what its threads stored
//! ([`Raw`]). All is gathered here, and packed elsewhere when there is enough for a chunk.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};

use ichnos_base::{BlockId, Chain, Event, Plan, ProcessId, Raw, Step, Totals};

use crate::block::{Block, Exits};
use crate::chunk::{ChunkHeader, ChunkKind};
use crate::error::Error;
use crate::event_codec::put_event;
use crate::hash::QuickMap;
use crate::lore::{Chained, Planned, Told};
use crate::raw_line::{Chunk, Done};
use crate::raw_pack::{Gathered, Piece};
use crate::roadmap::Entry;
use crate::roadmap_codec::MAX_UNFOLDED;
use crate::stream::{Stream, Tools};
use crate::twins::Parts;
use crate::writer::Writer;

/// Slots beyond this are used again, by blocks that were planned long after each other.
const MOST_SLOTS: u32 = 1 << 20;

/// So many bytes close a chunk, and so many instructions that it could have more records than a reader accepts. If there are more than were told,
/// the packer makes several chunks of it.
const CLOSE_BYTES: usize = 24 << 20;
const CLOSE_INSNS: u64 = 1 << 26;

/// What a thread tells raw, until it is enough for a chunk.
#[derive(Debug)]
pub(crate) struct Gathering {
    gathered: Gathered,
    insns: u64,
    first_ns: u64,
    last_ns: u64,
}

impl<W: Write> Writer<W> {
    /// Takes a planned block.
    pub(crate) fn put_plan(&mut self, plan: &Plan<'_>) -> Result<(), Error> {
        let number = (plan.process, plan.identifier);
        if self.plans.by_number.contains_key(&number) {
            return Err(Error::Misuse("two planned blocks have the same identifier"));
        }
        let Tools { book, line, next_slot, .. } = &mut self.tools;
        let (process, entry, exits) = (plan.process, plan.entry, Exits::Side);
        let twin = book.roadmap.twin(&Parts { entry, exits, steps: plan.steps, code: plan.code });
        let (steps, code) = match twin.and_then(|id| book.roadmap.get(id)) {
            // No chunk is of two processes, so that their blocks may have the same slots.
            Some(Entry { block, .. }) => (Arc::clone(&block.steps), Arc::clone(&block.code)),
            None => {
                let mut steps = plan.steps.to_vec();
                for slot in steps.iter_mut().filter_map(Step::slot_mut) {
                    slot.0 = *next_slot;
                    *next_slot = (*next_slot + 1) % MOST_SLOTS;
                }
                (steps.into(), plan.code.into())
            }
        };
        let block = Arc::new(Block { process, entry, exits, steps, code });
        let id = book.push_plan(Arc::clone(&block), twin)?;
        let identifier = plan.identifier;
        let mut plans = line.plans().write().unwrap_or_else(PoisonError::into_inner);
        self.plans.by_number.insert(number, Known { place: plans.len() as u32, id: Some(id) });
        plans.push(Told::Block(Planned { id, process, identifier, block }));
        drop(plans);
        self.tools.put_large_roadmap()
    }

    /// Takes a chain of planned blocks.
    pub(crate) fn put_chain(&mut self, chain: &Chain<'_>) -> Result<(), Error> {
        let Chain { identifier, process, blocks } = *chain;
        let Planning { by_number, last } = &mut self.plans;
        if by_number.contains_key(&(process, identifier)) {
            return Err(Error::Misuse("a chain has the identifier of a block or another chain"));
        }
        let none = Error::Misuse("a chain has a block that was not planned");
        let known = blocks.iter().map(|block| {
            let known = by_number.get(&(process, *block))?;
            Some((known.id?, known.place))
        });
        let (ids, places): (Vec<_>, Vec<_>) =
            known.collect::<Option<Vec<_>>>().ok_or(none)?.into_iter().unzip();
        let Tools { book, line, .. } = &mut self.tools;
        let number = book.push_chain(&ids)?;
        let shared = last.iter().zip(&ids).take_while(|(a, b)| a == b).count();
        let more = places[shared..].into();
        *last = ids;
        let mut plans = line.plans().write().unwrap_or_else(PoisonError::into_inner);
        by_number.insert((process, identifier), Known { place: plans.len() as u32, id: None });
        plans.push(Told::Chain(Chained { number, process, identifier, shared, more }));
        drop(plans);
        self.tools.put_large_roadmap()
    }
}

/// What a writer knows of planned blocks and chains.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// By their collector's identifiers.
    by_number: QuickMap<(ProcessId, u32), Known>,
    /// The blocks of the last chain.
    last: Vec<BlockId>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Where it is in the list of all plans.
    place: u32,
    /// Nothing for a chain.
    id: Option<BlockId>,
}

impl Planning {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }
}

impl Stream {
    /// Gathers executions.
    pub(crate) fn raw<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        raw: &Raw<'_>,
    ) -> Result<(), Error> {
        if raw.bytes.iter().all(|piece| piece.is_empty()) {
            return Ok(());
        }
        let most = tools.options.chunk_insns.min(CLOSE_INSNS);
        let is_over = |open: &Gathering| {
            let gathered = &open.gathered;
            let moved = !gathered.bytes.is_empty() && gathered.process != raw.process;
            let full = open.insns >= most || gathered.bytes.len() >= CLOSE_BYTES;
            let fuller = open.insns + raw.insns > CLOSE_INSNS;
            moved || ((full || fuller) && raw.registers.is_some())
        };
        if self.raw.as_ref().is_some_and(is_over) {
            self.close_raw(tools)?;
        }
        let open = self.open_raw(tools)?;
        let can_begin = raw.registers.is_some_and(|known| open.gathered.know(known));
        let Gathered { process, registers, follows, bytes, pieces, .. } = &mut open.gathered;
        if bytes.is_empty() {
            let none = Error::Misuse("raw executions begin where not all registers are known");
            *process = raw.process;
            *follows = raw.follows;
            registers.extend_from_slice(raw.registers.ok_or(none)?);
        }
        raw.bytes.iter().for_each(|piece| bytes.extend_from_slice(piece));
        pieces.push(Piece::Executions(bytes.len(), raw.leave, can_begin));
        open.insns += raw.insns;
        Ok(())
    }

    /// Gathers an event.
    pub(crate) fn raw_event<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        event: &Event<'_>,
    ) -> Result<(), Error> {
        if let Event::ThreadStart(start) = event {
            self.process = start.process;
        }
        let open = self.open_raw(tools)?;
        let Gathered { events, pieces, .. } = &mut open.gathered;
        put_event(events, event)?;
        pieces.push(Piece::Event(events.len()));
        if let Event::Timestamp { ns } = *event {
            if open.first_ns == 0 {
                open.first_ns = ns;
            }
            open.last_ns = ns;
        }
        Ok(())
    }

    fn open_raw<W: Write>(&mut self, tools: &mut Tools<W>) -> Result<&mut Gathering, Error> {
        if self.packer.is_some() {
            self.close(tools)?;
        }
        if self.raw.is_none() {
            self.opened = std::time::Instant::now();
        }
        Ok(self.raw.get_or_insert_with(|| Gathering {
            gathered: tools.line.fresh(),
            insns: 0,
            first_ns: 0,
            last_ns: 0,
        }))
    }

    /// Hands what was gathered to a packer.
    pub(crate) fn close_raw<W: Write>(&mut self, tools: &mut Tools<W>) -> Result<(), Error> {
        let Some(Gathering { gathered, first_ns, last_ns, .. }) = self.raw.take() else {
            return Ok(());
        };
        if gathered.pieces.is_empty() {
            tools.line.reuse(gathered);
            return Ok(());
        }
        let thread = self.thread;
        let (before, after) = self.pass_on(&gathered);
        tools.line.put(Chunk { thread, first_ns, last_ns, gathered, before, after })?;
        while let Some(done) = tools.line.next_if_full() {
            tools.put_raw(done?)?;
        }
        Ok(())
    }
}

impl Stream {
    /// From whom the packer of a chunk learns what a register holds that is followed, and whom it tells.
    fn pass_on(&mut self, gathered: &Gathered) -> (Option<Receiver<u64>>, Option<Sender<u64>>) {
        if gathered.follows.is_none() {
            return (None, None);
        }
        let (after, next) = channel();
        (self.followed.replace(next), Some(after))
    }
}

impl<W: Write> Tools<W> {
    /// Hands the planned blocks and chains to the file if they are as many as a chunk may well have.
    fn put_large_roadmap(&mut self) -> Result<(), Error> {
        if self.book.encoder.unfolded() < MAX_UNFOLDED / 2 {
            return Ok(());
        }
        self.put_roadmap()
    }

    /// Writes all chunks that are being packed.
    pub(crate) fn drain(&mut self) -> Result<(), Error> {
        while let Some(done) = self.line.next() {
            self.put_raw(done?)?;
        }
        Ok(())
    }

    fn put_raw(&mut self, done: Done) -> Result<(), Error> {
        let (chunk, all) = (done.chunk, done.packed?);
        self.line.reuse(chunk.gathered);
        self.put_roadmap()?;
        for packed in all {
            let header = ChunkHeader {
                first_ns: chunk.first_ns,
                last_ns: chunk.last_ns,
                raw_len: packed.raw_len as u32,
                packed_len: packed.payload.len() as u32,
                payload_crc: crc32fast::hash(&packed.payload),
                ..self.stream_header(chunk.thread, &packed.totals, packed.blocks)
            };
            self.output.put_packed(header, &packed.payload)?;
        }
        Ok(())
    }

    /// The header of a thread's next chunk, but for times and lengths.
    pub(crate) fn stream_header(
        &mut self,
        thread: ichnos_base::ThreadId,
        totals: &Totals,
        blocks: u32,
    ) -> ChunkHeader {
        let (insns, sequence) = self.ends.entry(thread.0).or_default();
        let header = ChunkHeader {
            kind: ChunkKind::STREAM,
            thread,
            sequence: *sequence,
            first: *insns,
            totals: *totals,
            first_ns: 0,
            last_ns: 0,
            blocks,
            raw_len: 0,
            packed_len: 0,
            payload_crc: 0,
        };
        *insns += totals.insns;
        *sequence += 1;
        header
    }
}
