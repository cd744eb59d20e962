//! The roadmap under construction from pushed records: finds the block that a
//! path of records is an execution of, or makes it.
//!
//! A path is a stretch of instructions that follow each other in memory, each
//! with its accesses and perhaps a branch, of which only the last may be taken. Each
//! instruction is a *site*; its accesses have slots that all blocks
//! through the site share. A site whose accesses change from one execution to the
//! next becomes flexible, for all blocks made from then on.
//!
//! When code at a known place changes, the blocks over it are retired: they are
//! found again only by a path whose code is theirs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use ichnos_base::{
    Address, BlockId, Code, ExitKind, GuestVa, InsnKind, ProcessId, Record, Ref, RefKind, Slot,
    Step,
};

use crate::block::{Block, Exits};
use crate::code_store::CodeStore;
use crate::error::{Error, Flaw};
use crate::hash::QuickMap;
use crate::roadmap::{Entry, Roadmap};
use crate::roadmap_codec::{RoadmapEncoder, Seen};

/// An instruction with more accesses than this is flexible from the start.
const MAX_FIXED: usize = 8;

/// The roadmap and all that helps to find and make its blocks.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) roadmap: Roadmap,
    pub(crate) encoder: RoadmapEncoder,
    code: CodeStore,
    sites: QuickMap<(u32, u64), Site>,
    by_entry: QuickMap<(u32, u64), Vec<BlockId>>,
    by_page: QuickMap<(u32, u64), Vec<BlockId>>,
    successor: Vec<BlockId>,
    retired: Vec<bool>,
    slots: u32,
}

#[derive(Debug)]
struct Site {
    len: u8,
    kind: InsnKind,
    accesses: Accesses,
    seen: Seen,
}

#[derive(Debug)]
enum Accesses {
    Fixed(Vec<Ref>),
    Flex(Slot),
}

impl Book {
    /// The block that `path` is an execution of, made if need be. `previous` is the
    /// block before it in the same thread.
    #[inline]
    pub(crate) fn find(
        &mut self,
        process: ProcessId,
        previous: BlockId,
        path: &[Record],
    ) -> Result<Option<BlockId>, Error> {
        if let Some(guess) = self.successor.get(previous.index())
            && self.is_execution(*guess, process, path)
        {
            return Ok(Some(*guess));
        }
        let found = self.find_slowly(process, path)?;
        if let (Some(id), Some(successor)) = (found, self.successor.get_mut(previous.index())) {
            *successor = id;
        }
        Ok(found)
    }

    #[inline]
    fn is_execution(&self, id: BlockId, process: ProcessId, path: &[Record]) -> bool {
        let Some(entry) = self.roadmap.get(id) else { return false };
        !self.retired[id.index()] && entry.block.process == process && entry.matches(path)
    }

    #[cold]
    fn find_slowly(
        &mut self,
        process: ProcessId,
        path: &[Record],
    ) -> Result<Option<BlockId>, Error> {
        let Some(Record::Insn { pc, .. }) = path.first() else { return Ok(None) };
        let known = self.by_entry.get(&(process.0, pc.0)).map_or(&[][..], Vec::as_slice);
        let hit = known.iter().position(|id| self.is_execution(*id, process, path));
        if let Some(at) = hit {
            let known = self.by_entry.entry((process.0, pc.0)).or_default();
            known.swap(at, at / 2);
            return Ok(known.get(at / 2).copied());
        }
        let mut code = Vec::new();
        if !self.gather_code(process, path, &mut code) {
            return Ok(None);
        }
        let revived = known.iter().copied().find(|id| {
            let entry = self.roadmap.get(*id);
            self.retired[id.index()]
                && entry.is_some_and(|e| *e.block.code == *code && e.matches(path))
        });
        if let Some(id) = revived {
            self.retired[id.index()] = false;
            return Ok(Some(id));
        }
        self.make(process, *pc, path, code).map(Some)
    }

    /// The code of a path; false if it is known for some of its instructions only.
    fn gather_code(&self, process: ProcessId, path: &[Record], code: &mut Vec<u8>) -> bool {
        self.uniform(process, path, code) == path.len()
    }

    /// How many records of a path belong to instructions whose code is all known, or all
    /// unknown, like the first one's.
    pub(crate) fn uniform(&self, process: ProcessId, path: &[Record], code: &mut Vec<u8>) -> usize {
        let mut first = None;
        for (i, record) in path.iter().enumerate() {
            if let Record::Insn { len, pc, .. } = *record {
                let known = len > 0 && self.code.get(process, pc, len, code);
                if known != *first.get_or_insert(known) {
                    return i;
                }
            }
        }
        path.len()
    }

    fn make(
        &mut self,
        process: ProcessId,
        entry: GuestVa,
        path: &[Record],
        code: Vec<u8>,
    ) -> Result<BlockId, Error> {
        let id = self.roadmap.len() as u32;
        let mut steps = Vec::new();
        let mut sites = Vec::new();
        for insn in split(path) {
            let Some(Record::Insn { len, kind, pc }) = insn.first().copied() else { continue };
            let step = steps.len() as u32;
            sites.push((steps.len(), self.site(process, insn, Seen { block: id, step })));
            steps.push(Step::Insn { len, kind });
            match self.sites.get(&(process.0, pc.0)).map(|s| &s.accesses) {
                Some(Accesses::Fixed(refs)) => steps.extend(refs.iter().copied().map(Step::Ref)),
                Some(Accesses::Flex(slot)) => steps.push(Step::Flex { slot: *slot }),
                None => {}
            }
            if let Some(Record::Branch { taken, target }) = insn.last().copied() {
                steps.push(exit(kind, taken, target));
            }
        }
        let (steps, code) = (steps.into(), code.into());
        let block = Block { process, entry, exits: Exits::Last, steps, code };
        self.encoder.add(&self.roadmap, &block, |i| {
            sites.binary_search_by_key(&i, |s| s.0).ok().and_then(|at| sites[at].1)
        });
        let pages = pages(entry, block.code.len() as u64, path);
        let id = self.push(block).map_err(|f| Error::Misuse(f.0))?;
        self.by_entry.entry((process.0, entry.0)).or_default().push(id);
        for page in pages {
            self.by_page.entry((process.0, page)).or_default().push(id);
        }
        Ok(id)
    }

    /// Adds a block that a plan made, perhaps as a twin of another.
    pub(crate) fn push_plan(
        &mut self,
        block: Arc<Block>,
        twin: Option<BlockId>,
    ) -> Result<BlockId, Error> {
        block.check().map_err(|f| Error::Misuse(f.0))?;
        self.encoder.add(&self.roadmap, &block, |_| None);
        let id = self.roadmap.push_planned(block, twin).map_err(|f| Error::Misuse(f.0))?;
        self.number();
        Ok(id)
    }

    /// Adds a chain of planned blocks; its number.
    pub(crate) fn push_chain(&mut self, blocks: &[BlockId]) -> Result<u32, Error> {
        let number = self.roadmap.push_chain(blocks).map_err(|f| Error::Misuse(f.0))?;
        self.encoder.add_chain(blocks);
        Ok(number)
    }

    fn push(&mut self, block: Block) -> Result<BlockId, Flaw> {
        let id = self.roadmap.push(block)?;
        self.number();
        Ok(id)
    }

    /// A block was added to the roadmap.
    fn number(&mut self) {
        self.slots = self.slots.max(self.roadmap.slots());
        self.successor.push(BlockId(0));
        self.retired.push(false);
    }

    /// A slot that no block uses yet.
    pub(crate) fn new_slot(&mut self) -> Slot {
        let slot = Slot(self.slots);
        self.slots += 1;
        slot
    }

    /// Makes sure that the site of an instruction can describe this execution;
    /// answers where in the roadmap its steps stand already.
    fn site(&mut self, process: ProcessId, insn: &[Record], here: Seen) -> Option<Seen> {
        let Some(Record::Insn { len, kind, pc }) = insn.first().copied() else { return None };
        let accesses: Vec<_> = insn.iter().filter_map(RefKind::of).collect();
        let key = (process.0, pc.0);
        if let Some(site) = self.sites.get_mut(&key)
            && (site.len, site.kind) == (len, kind)
        {
            let same = match &site.accesses {
                Accesses::Flex(_) => true,
                Accesses::Fixed(refs) => {
                    let sorts = refs.iter().map(|r| (r.kind, r.flags, r.size));
                    sorts.eq(accesses.iter().map(|a| (a.0, a.1, a.2)))
                }
            };
            if same {
                return Some(std::mem::replace(&mut site.seen, here));
            }
            site.seen = here;
            let slot = self.new_slot();
            if let Some(site) = self.sites.get_mut(&key) {
                site.accesses = Accesses::Flex(slot);
            }
            return None;
        }
        let accesses = if accesses.len() > MAX_FIXED {
            Accesses::Flex(self.new_slot())
        } else {
            let fixed = accesses.iter().map(|&(kind, flags, size, _)| Ref {
                kind,
                flags,
                size,
                address: Address::Word(self.new_slot()),
            });
            Accesses::Fixed(fixed.collect())
        };
        self.sites.insert(key, Site { len, kind, accesses, seen: here });
        None
    }

    /// Whether this code says nothing new.
    pub(crate) fn knows(&self, code: &Code<'_>) -> bool {
        self.code.knows(code)
    }

    /// Keeps code that was told; retires blocks that were made over other code.
    pub(crate) fn learn(&mut self, code: &Code<'_>) {
        self.code.learn(code);
        let last = code.pc.offset((code.bytes.len() as u64).saturating_sub(1));
        let mut now = Vec::new();
        for page in [code.pc.page(12).0, last.page(12).0] {
            let Some(blocks) = self.by_page.get(&(code.process.0, page)) else { continue };
            for id in blocks {
                let Some(entry) = self.roadmap.get(*id) else { continue };
                // Most blocks of a page lie elsewhere on it: what is told is new for few.
                if !overlap(entry, code) {
                    continue;
                }
                now.clear();
                let path = &entry.shape.template;
                let same = self.uniform(code.process, path, &mut now) == path.len()
                    && *now == *entry.block.code;
                self.retired[id.index()] = !same;
            }
        }
    }
}

impl Entry {
    /// Whether `path` is an execution of this block.
    #[inline]
    fn matches(&self, path: &[Record]) -> bool {
        if !self.shape.plain {
            return self.block.exits == Exits::Last && self.matches_flex(path);
        }
        let template = &self.shape.template;
        if path.len() != template.len() {
            return false;
        }
        let body = template.len() - usize::from(self.shape.last_exit.is_some());
        path[..body].iter().zip(&template[..body]).all(|(a, b)| same(a, b))
            && self.matches_exit(path.get(body))
    }

    #[inline]
    fn matches_exit(&self, record: Option<&Record>) -> bool {
        match (self.shape.last_exit, record) {
            (None, None) => true,
            (Some((kind, to)), Some(&Record::Branch { taken, target })) => match kind {
                ExitKind::Direct => taken && target == to,
                ExitKind::Conditional => target == to,
                ExitKind::Indirect => taken,
            },
            _ => false,
        }
    }

    #[cold]
    fn matches_flex(&self, path: &[Record]) -> bool {
        let mut rest = path;
        let mut pc = self.block.entry;
        let mut steps = &*self.block.steps;
        while let Some((step, later)) = steps.split_first() {
            steps = later;
            let ok = match *step {
                Step::Insn { len, kind } => {
                    let here = pc;
                    pc = pc.offset(u64::from(len));
                    rest.first() == Some(&Record::Insn { len, kind, pc: here })
                }
                Step::Ref(r @ Ref { address: Address::Word(_), .. }) => rest
                    .first()
                    .is_some_and(|a| same(a, &r.kind.record(r.flags, r.size, GuestVa(0)))),
                Step::Exit { .. } if later.is_empty() => {
                    return rest.len() == 1 && self.matches_exit(rest.first());
                }
                Step::Exit { target, .. } => {
                    rest.first() == Some(&Record::Branch { taken: false, target })
                }
                Step::Flex { .. } => {
                    rest = &rest[rest.iter().take_while(|r| RefKind::of(r).is_some()).count()..];
                    continue;
                }
                _ => false,
            };
            if !ok {
                return false;
            }
            rest = &rest[1..];
        }
        rest.is_empty()
    }
}

/// Whether two records are the same but for the address of an access.
#[inline]
fn same(a: &Record, b: &Record) -> bool {
    match (a, b) {
        (Record::Load { flags: f, size: s, .. }, Record::Load { flags: g, size: t, .. })
        | (Record::Store { flags: f, size: s, .. }, Record::Store { flags: g, size: t, .. })
        | (
            Record::Prefetch { flags: f, size: s, .. },
            Record::Prefetch { flags: g, size: t, .. },
        )
        | (Record::Flush { flags: f, size: s, .. }, Record::Flush { flags: g, size: t, .. }) => {
            f == g && s == t
        }
        (Record::Insn { .. }, _) | (Record::Branch { .. }, _) => a == b,
        _ => false,
    }
}

/// Whether a block lies over told code, or the other way round.
fn overlap(entry: &Entry, code: &Code<'_>) -> bool {
    let (start, len) = (entry.block.entry, entry.shape.end.since(entry.block.entry));
    code.pc.since(start) < len || start.since(code.pc) < code.bytes.len() as u64
}

/// The instructions of a path, each with its accesses and branch.
fn split(path: &[Record]) -> impl Iterator<Item = &[Record]> {
    path.chunk_by(|_, next| !matches!(next, Record::Insn { .. }))
}

/// The exit step of a branch record.
fn exit(kind: InsnKind, taken: bool, target: GuestVa) -> Step {
    let direct = matches!(kind, InsnKind::JUMP | InsnKind::CALL);
    match (kind, taken) {
        (InsnKind::BRANCH, _) | (_, false) => Step::Exit { kind: ExitKind::Conditional, target },
        (_, true) if direct => Step::Exit { kind: ExitKind::Direct, target },
        _ => Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) },
    }
}

/// The pages that a path's instructions begin on, and the last one's end.
fn pages(entry: GuestVa, code_len: u64, path: &[Record]) -> Vec<u64> {
    let starts = path.iter().filter_map(|r| match r {
        Record::Insn { pc, .. } => Some(pc.page(12).0),
        _ => None,
    });
    let mut pages: Vec<u64> = starts.chain([entry.offset(code_len).page(12).0]).collect();
    pages.dedup();
    pages
}
