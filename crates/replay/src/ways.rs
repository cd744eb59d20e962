//! The blocks of a roadmap as executions are told by number: plain blocks by their own numbers, and planned ones, laid out flat,
//! by the numbers of their *ways*, which come behind those of all blocks. A way is a block left at one of its
//! exits, or run to its end. Blocks of several processes that are the same have the same ways.
//!
//! A planned block is laid out unless it tells its accesses apart (`Step::Flex`) or uses a register that it has
//! itself forgotten. What it does to registers that are known is worked out once, under the
//! assumption that all those it reads before it sets them are known (*needs*); where that does not hold, the
//! block is walked step by step, which finds out what is wrong. That a register is forgotten is a bit and no operation, of which
//! it would often be every third or second: its value stays and is not looked at, but by a block that takes the lower half of it alone
//! (*halves*), before which it becomes 0.
//!
//! Memory: about as much as the planned blocks take in the roadmap, and 48 bytes for each block before the last of them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{BlockId, GuestVa, Record, Shapes, Totals};
use ichnos_trace::flat::{Brief, Flat, Sort};
use ichnos_trace::{Address, Entry, Exits, Register, Roadmap, Step, Sum, Tally, Value, Width};

/// What the numbers of told [`Blocks`](ichnos_base::Blocks) mean.
#[derive(Debug)]
pub struct Ways<'r> {
    roadmap: &'r Roadmap,
    pub(crate) flat: Flat<[u64]>,
    /// What each block expects.
    needs: Vec<Needs>,
    ways: Vec<Way>,
    /// The records of each block that get addresses, in order.
    places: Vec<u16>,
}

/// What a block expects of registers, as bits.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Needs {
    /// Those that must be known before it.
    pub(crate) known: u64,
    /// Those whose upper halves must be 0 before it unless they are known.
    pub(crate) halves: u64,
}

/// A way through a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The registers that are known and not known behind it, whatever they were before, as bits.
    pub(crate) known: u64,
    pub(crate) unknown: u64,
    block: BlockId,
    /// How many of the block's records belong to it.
    pub(crate) records: u16,
    /// What the last of them is.
    pub(crate) end: End,
    /// What they count.
    pub(crate) tally: Tally,
    first_place: u32,
}

/// What a way's last record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// No branch that could be taken.
    Plain,
    /// A branch that is taken.
    Taken,
    /// A branch that is not.
    Fell,
}

impl<'r> Ways<'r> {
    /// The ways through the blocks of a roadmap.
    pub(crate) fn new(roadmap: &'r Roadmap) -> Self {
        let (flat, needs) = (Flat::default(), Vec::new());
        let mut ways = Self { roadmap, flat, needs, ways: Vec::new(), places: Vec::new() };
        let mut firsts: HashMap<*const Step, BlockId> = HashMap::new();
        for (id, block) in roadmap.iter() {
            let Some(entry) = roadmap.get(id).filter(|entry| !entry.shape.plain) else { continue };
            match *firsts.entry(block.steps.as_ptr()).or_insert(id) {
                first if first == id => ways.add(id, entry),
                first => ways.add_twin(id, first),
            }
        }
        ways
    }

    /// Adds a block whose steps are those of another one: its executions are told by that one's ways.
    fn add_twin(&mut self, id: BlockId, first: BlockId) {
        let Some((&brief, needs)) = self.get(first) else { return };
        self.expects(id, needs);
        self.flat.name(id.0, brief);
    }

    fn expects(&mut self, id: BlockId, needs: Needs) {
        self.needs.resize(id.index(), Needs::default());
        self.needs.push(needs);
    }

    /// A block that is laid out, and what it expects.
    #[inline]
    pub(crate) fn get(&self, id: BlockId) -> Option<(&Brief, Needs)> {
        Some((self.flat.get(id.0)?, *self.needs.get(id.index())?))
    }

    /// A way, by its number.
    #[inline]
    pub(crate) fn way(&self, number: u32) -> Option<&Way> {
        self.ways.get((number as usize).wrapping_sub(self.roadmap.len()))
    }

    /// The records of a way that get addresses, and perhaps more.
    #[inline]
    pub(crate) fn places(&self, way: &Way) -> &[u16] {
        self.places.get(way.first_place as usize..).unwrap_or_default()
    }

    fn add(&mut self, id: BlockId, entry: &Entry) {
        let Entry { block, shape, .. } = entry;
        // In a block that was executed to its end the exits before that are records and no more.
        let is_inner = |at: usize, step: &Step| {
            let last = at + 1 == block.steps.len();
            block.exits == Exits::Last && !last && matches!(step, Step::Exit { .. })
        };
        let mut study = Study::default();
        for (at, step) in block.steps.iter().enumerate() {
            if study.step(step, is_inner(at, step)).is_none() {
                return;
            }
        }
        let last = if shape.last_exit.is_some() { End::Fell } else { End::Plain };
        study.leave(last);
        let Ok(first_way) = u32::try_from(self.roadmap.len() + self.ways.len()) else { return };
        let first_place = self.places.len() as u32;
        let Study { needs, halved, ways, places, .. } = study;
        self.ways.extend(ways.iter().map(|way| Way { block: id, first_place, ..*way }));
        self.places.extend(places);
        self.expects(id, needs);
        let is_idle =
            |step: &Step| matches!(step, Step::Forget { register } if bit(*register) & halved == 0);
        let steps = block.steps.iter().enumerate();
        let steps = steps.filter(|(at, step)| !is_inner(*at, step) && !is_idle(step));
        let steps: Vec<_> = steps.map(|(_, step)| *step).collect();
        let brief = Brief::new(block.entry, first_way, shape.words.len() as u32, Sort::Plain);
        self.flat.add(id.0, &steps, brief);
    }
}

impl Shapes for Ways<'_> {
    fn records(&self, block: BlockId) -> &[Record] {
        let template = |id| self.roadmap.get(id).map_or(&[][..], |entry| &entry.shape.template);
        match self.way(block.0) {
            Some(way) => template(way.block).get(..way.records.into()).unwrap_or_default(),
            None => template(block),
        }
    }
}

/// What a block's steps come to.
#[derive(Default)]
struct Study {
    needs: Needs,
    /// The registers of which only lower halves are taken, once or more.
    halved: u64,
    known: u64,
    unknown: u64,
    records: u16,
    totals: Totals,
    ways: Vec<Way>,
    places: Vec<u16>,
}

impl Study {
    /// Takes another step; nothing if the block cannot be laid out.
    fn step(&mut self, step: &Step, is_inner: bool) -> Option<()> {
        match *step {
            Step::Insn { .. } => {
                self.records += 1;
                self.totals.insns += 1;
            }
            Step::Take { register, width, .. } => {
                if width == Width::Four {
                    self.halved |= bit(register);
                    self.needs.halves |= bit(register) & !self.known;
                }
                self.set(register);
            }
            Step::Derive { register, value } => {
                self.read(value_registers(value))?;
                self.set(register);
            }
            Step::Forget { register } => {
                self.known &= !bit(register);
                self.unknown |= bit(register);
            }
            Step::Ref(r) => {
                if let Address::Known(sum) = r.address {
                    self.read(sum_registers(sum))?;
                }
                self.places.push(self.records);
                self.records += 1;
                self.totals.count(&r.kind.record(r.flags, r.size, GuestVa(0)));
            }
            Step::Flex { .. } => return None,
            Step::Exit { .. } => {
                self.records += 1;
                self.totals.branches += 1;
                if !is_inner {
                    self.totals.taken += 1;
                    self.leave(End::Taken);
                    self.totals.taken -= 1;
                }
            }
        }
        Some(())
    }

    fn set(&mut self, register: Register) {
        self.known |= bit(register);
        self.unknown &= !bit(register);
    }

    /// Registers are read; nothing if the block has forgotten one of them.
    fn read(&mut self, registers: u64) -> Option<()> {
        self.needs.known |= registers & !self.known;
        (registers & self.unknown == 0).then_some(())
    }

    /// The block may be left here.
    fn leave(&mut self, end: End) {
        let Self { known, unknown, records, .. } = *self;
        let (block, first_place, tally) = (BlockId(0), 0, Tally::new(&self.totals));
        self.ways.push(Way { known, unknown, block, records, end, tally, first_place });
    }
}

const fn bit(register: Register) -> u64 {
    1 << (register.0 as usize % Register::COUNT)
}

fn sum_registers(sum: Sum) -> u64 {
    sum.base.map_or(0, bit) | sum.index.map_or(0, |(register, _)| bit(register))
}

/// The registers that a value is made of.
fn value_registers(value: Value) -> u64 {
    match value {
        Value::Sum(sum) => sum_registers(sum),
        Value::Difference(a, b) => bit(a) | bit(b),
        Value::And(r, _)
        | Value::ShiftLeft(r, _)
        | Value::ShiftRight(r, _)
        | Value::ShiftRightSigned(r, _)
        | Value::Low32(r)
        | Value::Low32Signed(r) => bit(r),
    }
}
