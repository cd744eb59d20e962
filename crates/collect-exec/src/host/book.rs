//! The roadmap as the host knows it: every block by its identifier.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use ichnos_base::{BlockId, GuestVa, Record, Shapes};
use ichnos_flow::Piece;
use ichnos_isa_x86::Inst;
use ichnos_trace::flat::{Brief, Flat, Sort};
use ichnos_trace::{MAX_STEPS, Step};

use super::program::Program;
use super::varying::Varying;
use crate::plan::{decode_all, plan_path, plan_superblock};
use crate::words::Described;

/// Instructions that code has at most; the engine makes it shorter by far.
pub const MOST_INSNS: usize = 0x7fff;

/// A block.
#[derive(Debug)]
pub struct Known {
    /// Where it begins.
    pub entry: GuestVa,
    /// What its execution comes to.
    pub program: Program,
    /// How its accesses vary.
    pub varies: Varies,
    /// Its machine code.
    pub code: Vec<u8>,
    /// What replay does.
    pub steps: Vec<Step>,
    /// Its instructions.
    insns: u16,
    /// The number of its first way, as sinks know it; the others follow.
    pub first_way: u32,
}

impl Known {
    /// Bytes of the stream that an execution takes, but for what is told of its accesses.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.varies {
            Varies::No => self.program.len(),
            Varies::Stored(varying) => varying.len(),
            Varies::Told => 0,
        }
    }
}

/// Whether a block's accesses vary from one execution to the next; then it is one instruction.
#[derive(Debug)]
pub enum Varies {
    /// They do not.
    No,
    /// The engine stored what they depend on.
    Stored(Varying),
    /// The engine tells them.
    Told,
}

/// The blocks of a chain: the first is so many identifiers before the chain's own, the others follow it. No blocks: that is no chain.
#[derive(Clone, Copy, Default, Debug)]
struct Links {
    back: u16,
    blocks: u16,
}

/// All blocks, and the chains of them that are the items of paths.
#[derive(Debug)]
pub struct Book {
    uses: Uses,
    blocks: Vec<Option<Arc<Known>>>,
    /// By identifier.
    chains: Vec<Links>,
    /// The blocks of all ways.
    ways: Vec<Arc<Known>>,
    /// What code was told to be, by a hash of it. Processes of a tree often run the same programs at the same addresses.
    codes: HashMap<u64, Coded>,
    hash: RandomState,
    /// The blocks as most executions need them. A chain is here with its entry and length, and cannot be run.
    pub flat: Flat<[u8]>,
}

/// Code that was told.
#[derive(Debug)]
struct Coded {
    is_path: bool,
    known: u16,
    /// Where its stretches are, and how long.
    stretches: Box<[(u64, u32)]>,
    /// Its blocks, one behind the other.
    blocks: Box<[Arc<Known>]>,
}

impl Coded {
    /// Whether it is this code.
    fn is(&self, described: &Described<'_>) -> bool {
        let Described { head, stretches, code } = described;
        let mut rest = *code;
        let is_next = |block: &Arc<Known>| {
            let own = rest.strip_prefix(&*block.code);
            own.inspect(|later| rest = later).is_some()
        };
        (self.is_path, self.known) == (head.is_path, head.known)
            && self.blocks.len() == head.blocks as usize
            && stretches
                .iter()
                .map(|(pc, code)| (*pc, code.len() as u32))
                .eq(self.stretches.iter().copied())
            && self.blocks.iter().all(is_next)
            && rest.is_empty()
    }
}

/// What is done with blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uses {
    /// They are run.
    Runs,
    /// Somebody is told of them, and what was stored; only those whose accesses vary are run.
    Tells,
}

impl Shapes for Book {
    fn records(&self, way: BlockId) -> &[Record] {
        let known = self.ways.get(way.index());
        known.map_or(&[], |known| known.program.records((way.0 - known.first_way) as usize))
    }
}

impl Book {
    /// No blocks, with which this is to be done.
    pub fn new(uses: Uses) -> Self {
        let (codes, hash) = (HashMap::new(), RandomState::new());
        let flat = Flat::default();
        Self { uses, blocks: vec![], chains: vec![], ways: vec![], codes, hash, flat }
    }

    /// A block.
    #[inline]
    pub fn get(&self, identifier: u32) -> Option<&Arc<Known>> {
        self.blocks.get(identifier as usize)?.as_ref()
    }

    /// The identifiers of a chain's blocks; nothing if there is no such chain.
    #[inline]
    pub fn chain(&self, identifier: u32) -> Option<Range<u32>> {
        let links = self.chains.get(identifier as usize).filter(|links| links.blocks != 0)?;
        let first = identifier - u32::from(links.back);
        Some(first..first + u32::from(links.blocks))
    }

    /// The instructions of a block or chain, of which there are at most [`MOST_INSNS`].
    pub fn insns(&self, identifier: u32) -> Option<u16> {
        match self.chain(identifier) {
            Some(mut blocks) => blocks.try_fold(0, |sum, block| Some(sum + self.get(block)?.insns)),
            None => self.get(identifier).map(|known| known.insns),
        }
    }

    /// Takes a buffer of roadmap messages; what cannot be understood is left out. Of everything else, `add` hears whose it is, and the
    /// identifiers of its blocks and chains.
    pub fn read(&mut self, mut bytes: &[u8], mut add: impl FnMut(u32, Range<u32>)) {
        while let Some(described) = Described::take(&mut bytes) {
            if let Some(last) = self.add(&described) {
                add(described.head.process, described.head.first..last);
            }
        }
    }

    /// Adds blocks, and the chains of them if they are a path; behind the last identifier.
    fn add(&mut self, described: &Described<'_>) -> Option<u32> {
        let Described { head, stretches, .. } = described;
        let (is_path, known) = (head.is_path, head.known);
        // Who runs blocks knows them apart by their ways.
        let sort = (is_path, known);
        let key = (self.uses == Uses::Tells).then(|| self.hash.hash_one((sort, stretches)));
        let told = key.and_then(|key| self.codes.get(&key)).filter(|told| told.is(described));
        let blocks = match told {
            Some(told) => told.blocks.clone(),
            None => {
                let blocks: Box<[_]> = self.plan(described)?.into();
                if let Some(key) = key {
                    let stretches = stretches.iter().map(|(pc, code)| (*pc, code.len() as u32));
                    let (stretches, blocks) = (stretches.collect(), blocks.clone());
                    self.codes.insert(key, Coded { is_path, known, stretches, blocks });
                }
                blocks
            }
        };
        let last = head.first as usize + blocks.len();
        if self.blocks.len() < last {
            self.blocks.resize(last, None);
        }
        for (i, (identifier, block)) in (head.first..).zip(&blocks).enumerate() {
            let sort = match block.varies {
                Varies::No => Sort::Plain,
                Varies::Stored(_) => Sort::Records,
                Varies::Told => Sort::Told,
            };
            let mut brief = Brief::new(block.entry, block.first_way, block.len() as u32, sort);
            // No item begins inside a path; one that needs registers comes behind another.
            brief.goes_on = if is_path { known != 0 } else { i > 0 };
            match self.uses {
                Uses::Runs => self.flat.add(identifier, &block.steps, brief),
                Uses::Tells => self.flat.name(identifier, brief),
            }
            self.blocks[identifier as usize] = Some(Arc::clone(block));
        }
        if is_path { self.add_chains(head.first, blocks.len()) } else { Some(last as u32) }
    }

    /// The blocks of code that was not told before.
    fn plan(&mut self, described: &Described<'_>) -> Option<Vec<Arc<Known>>> {
        let &Described { head, ref stretches, mut code } = described;
        let insts = decode_all(stretches)?;
        let plan = match head.is_path {
            true => plan_path(&insts, head.known)?,
            false => plan_superblock(&insts)?,
        };
        let is_long = |piece: &Piece| piece.steps.len() > MAX_STEPS;
        let as_told = plan.pieces.len() == head.blocks as usize;
        if insts.len() > MOST_INSNS || !as_told || plan.pieces.iter().any(is_long) {
            return None;
        }
        let mut blocks = Vec::with_capacity(plan.pieces.len());
        for piece in &plan.pieces {
            let insts = insts.get(piece.insns.clone()).unwrap_or_default();
            let len: usize = insts.iter().map(|i| usize::from(i.length())).sum();
            let own;
            (own, code) = code.split_at_checked(len)?;
            let varies = varies(&piece.steps, insts);
            let is_run = self.uses == Uses::Runs || !matches!(varies, Varies::No);
            let program = match is_run {
                true => Program::new(piece.entry, &piece.steps),
                false => Program::unable(&piece.steps),
            };
            let known = Arc::new(Known {
                entry: piece.entry,
                program,
                varies,
                code: own.to_vec(),
                steps: told_steps(&piece.steps),
                insns: insts.len() as u16,
                first_way: self.ways.len() as u32,
            });
            if self.uses == Uses::Runs {
                self.ways.extend((0..known.program.ways()).map(|_| Arc::clone(&known)));
            }
            blocks.push(known);
        }
        Some(blocks)
    }

    /// Adds the chains of a path whose blocks are known: the first two, the first three, and so on. Nothing if there is something
    /// special about one of them. Behind the last identifier.
    fn add_chains(&mut self, first: u32, blocks: usize) -> Option<u32> {
        let blocks = u16::try_from(blocks).ok()?;
        let &Brief { entry, goes_on, .. } = self.flat.get(first)?;
        let mut len = 0;
        for i in 0..blocks {
            let block = first + u32::from(i);
            let brief = self.flat.get(block).filter(|brief| brief.sort == Sort::Plain)?;
            len += brief.len;
            let Some(before) = i.checked_sub(1) else { continue };
            let back = blocks.checked_add(before)?;
            let identifier = first + u32::from(back);
            let mut chain = Brief::new(entry, 0, len, Sort::Records);
            chain.goes_on = goes_on;
            self.flat.name(identifier, chain);
            let at = identifier as usize;
            if self.chains.len() <= at {
                self.chains.resize(at + 1, Links::default());
            }
            self.chains[at] = Links { back, blocks: i + 1 };
        }
        Some(first + (2 * u32::from(blocks)).saturating_sub(1))
    }
}

/// A block's steps for those who are told raw words. The accesses of an instruction that vary are told together, whichever operands they
/// belong to and whatever they were worked out from.
fn told_steps(steps: &[Step]) -> Vec<Step> {
    let mut steps = steps.to_vec();
    if steps.iter().any(|step| matches!(step, Step::Flex { .. })) {
        steps.retain(|s| matches!(s, Step::Insn { .. } | Step::Flex { .. } | Step::Exit { .. }));
        steps.dedup_by(|a, b| matches!((a, b), (Step::Flex { .. }, Step::Flex { .. })));
    }
    steps
}

fn varies(steps: &[Step], insts: &[Inst]) -> Varies {
    match insts.first() {
        Some(inst) if steps.iter().any(|s| matches!(s, Step::Flex { .. })) => {
            Varying::new(inst).map_or(Varies::Told, Varies::Stored)
        }
        _ => Varies::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::RoadmapHead;

    /// push rbx; mov rbx, [rdi]; ret
    const CODE: &[u8] = &[0x53, 0x48, 0x8b, 0x1f, 0xc3];

    fn tell(book: &mut Book, first: u32, pc: u64, code: &[u8]) {
        let (blocks, process, code_len) = (1, first, code.len() as u32);
        let head = RoadmapHead {
            first,
            blocks,
            process,
            code_len,
            stretches: 1,
            is_path: false,
            known: 0,
        };
        book.add(&Described { head, stretches: vec![(pc, code)], code }).unwrap();
    }

    #[test]
    fn code_that_was_told_before_is_planned_once() {
        let mut book = Book::new(Uses::Tells);
        tell(&mut book, 1, 0x1000, CODE);
        tell(&mut book, 9, 0x1000, CODE);
        // Elsewhere, or other code.
        tell(&mut book, 17, 0x2000, CODE);
        tell(&mut book, 25, 0x1000, &[0x53, 0x48, 0x8b, 0x1e, 0xc3]);
        let [first, same, elsewhere, other] = [1, 9, 17, 25].map(|id| book.get(id).unwrap());
        assert!(Arc::ptr_eq(first, same));
        assert_eq!((elsewhere.entry, &*elsewhere.code), (GuestVa(0x2000), CODE));
        assert_eq!((first.code.as_slice(), other.code[3]), (CODE, 0x1e));
        assert_eq!(book.flat.get(9).map(|brief| brief.len), book.flat.get(1).map(|b| b.len));
        // Who runs them tells them apart.
        let mut book = Book::new(Uses::Runs);
        tell(&mut book, 1, 0x1000, CODE);
        tell(&mut book, 9, 0x1000, CODE);
        assert!(book.get(1).unwrap().first_way < book.get(9).unwrap().first_way);
    }

    #[test]
    fn code_with_the_same_hash_is_not_taken_for_the_same() {
        let mut book = Book::new(Uses::Tells);
        tell(&mut book, 1, 0x1000, CODE);
        let told = book.codes.drain().next().unwrap().1;
        let is = |pc, code: &[u8], (is_path, known), blocks| {
            let (first, process, code_len) = (1, 0, code.len() as u32);
            let stretches = 1;
            let head = RoadmapHead { first, blocks, process, code_len, stretches, is_path, known };
            told.is(&Described { head, stretches: vec![(pc, code)], code })
        };
        assert!(is(0x1000, CODE, (false, 0), 1));
        assert!(!is(0x1001, CODE, (false, 0), 1));
        assert!(!is(0x1000, CODE, (true, 0), 1));
        assert!(!is(0x1000, CODE, (false, 8), 1));
        assert!(!is(0x1000, CODE, (false, 0), 2));
        assert!(!is(0x1000, &CODE[..4], (false, 0), 1));
        assert!(!is(0x1000, &[0x53, 0x48, 0x8b, 0x1f, 0x90], (false, 0), 1));
    }
}
