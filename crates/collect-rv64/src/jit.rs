//! Generated code: blocks of guest instructions as x86-64, for harts that
//! nobody watches. What a block cannot do it leaves to the interpreter, so the
//! interpreter's semantics are the only complete ones, and both retire exactly
//! the same instructions at the same counts.
//!
//! Blocks are found by place in RAM and guest address. Jumps inside a page are
//! linked for good, jumps to fixed places of other pages while translations stay
//! what they are, and computed ones go through the hart's table of jumps. In profiled code a
//! jump inside a line enters by the side door: the line was fetched last, and is
//! not touched again. When code is
//! overwritten, the entries of its blocks become jumps to their own way out;
//! when memory is full, everything is forgotten.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod block;
mod bring;
mod cold;
mod enter;
mod float;
mod group;
mod held;
mod integer;
mod profiled;
mod state;
mod thunks;
mod transfer;
mod turn;
mod x86;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ichnos_base::CacheAddr;
use ichnos_codemem::CodeMem;
use ichnos_isa_rv64::{Insn, Op};

use crate::code::{Code, Decoded};
use crate::observe::Observer;
use crate::ram::{CodeWrite, PAGE_SHIFT, PAGE_SIZE, Ram};
use block::{Block, Door, Far, Translated};
pub(crate) use state::{Reason, Shared};
use thunks::Thunks;

/// Bytes of generated code: at about 100 a guest instruction, room for more than
/// half a million.
const MEMORY: usize = 64 << 20;
/// No block is longer, in guest instructions.
const LONGEST: usize = 48;
/// Bytes that neither area of a block can exceed.
const BLOCK_MOST: usize = 1 << 15;
/// Bytes that are set aside at once for what hardly ever runs.
const FAR_BYTES: usize = 1 << 18;
/// A block is translated when it has been reached so often. Measured on a kernel
/// boot: at 1 translation dominates, above 10 the interpreter does.
const HOT: u8 = 4;
const HEAT: usize = 1 << 16;
/// Nothing is set aside.
const NO_FAR: (CacheAddr, CacheAddr) = (CacheAddr(0), CacheAddr(0));
/// A jump to another page is linked so often: code that many address spaces share
/// goes through the table of jumps in the end.
const RELINKS: u8 = 64;

/// Where a block stands in the guest: index into RAM, and guest address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    index: usize,
    va: u64,
}

/// A block of generated code.
#[derive(Clone, Copy, Debug)]
struct Known {
    at: CacheAddr,
    limit_exit: CacheAddr,
    /// The entry for jumps from its first line.
    side: u32,
    insns: u32,
    /// Guest bytes.
    len: u32,
}

/// A jump that can be linked.
#[derive(Clone, Copy, Debug)]
struct Site {
    displacement: CacheAddr,
    target: u64,
    door: Door,
    /// What makes a jump to another page valid, and how often that may still
    /// change.
    far: Option<(Far, u8)>,
}

/// What to do at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// Run this block, which has so many instructions; jumps from its first line
    /// may enter it at `side`.
    Block { at: CacheAddr, side: CacheAddr, insns: u64 },
    /// Interpret.
    Nothing,
}

/// Mixes numbers; keys are already well spread but for their low bits.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

/// All generated code.
#[derive(Debug)]
pub(crate) struct Jit {
    memory: CodeMem,
    thunks: Thunks,
    /// Memory that is set aside for what hardly ever runs: from here up to there.
    far: (CacheAddr, CacheAddr),
    blocks: HashMap<Key, Option<Known>, BuildHasherDefault<Mix>>,
    by_page: HashMap<usize, Vec<Key>, BuildHasherDefault<Mix>>,
    sites: Vec<Site>,
    heat: Vec<u8>,
    /// Grows when everything is forgotten: harts' tables of jumps are stale then.
    generation: u64,
}

impl Jit {
    /// None if the host gives no executable memory: then all is interpreted.
    pub(crate) fn new() -> Option<Self> {
        let mut memory = CodeMem::new(MEMORY).ok()?;
        let (bytes, thunks) = Thunks::generate();
        memory.append(&bytes)?;
        Some(Self {
            memory,
            thunks,
            far: NO_FAR,
            blocks: HashMap::default(),
            by_page: HashMap::default(),
            sites: Vec::new(),
            heat: vec![0; HEAT],
            generation: 0,
        })
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The processor's address of a block.
    pub(crate) fn address(&self, at: CacheAddr) -> u64 {
        self.memory.address(at) as u64
    }

    /// The block at a place, translated if it has become hot.
    pub(crate) fn find<O: Observer>(
        &mut self,
        (index, va): (usize, u64),
        (code, ram): (&mut Code, &Ram),
        watch: &mut O,
    ) -> Found {
        let key = Key { index, va };
        if let Some(known) = self.blocks.get(&key) {
            return found(*known);
        }
        let heat = &mut self.heat[(index >> 1) & (HEAT - 1)];
        *heat = heat.saturating_add(1);
        if *heat < HOT || code.page(index & !(PAGE_SIZE - 1)).is_none() {
            return Found::Nothing;
        }
        self.translate(key, (code, ram), watch)
    }

    fn translate<O: Observer>(
        &mut self,
        key: Key,
        (code, ram): (&mut Code, &Ram),
        watch: &mut O,
    ) -> Found {
        let words_left = watch.book().is_none_or(|book| book.has_room());
        if self.memory.free() < BLOCK_MOST + FAR_BYTES || !words_left {
            self.forget_all();
            watch.forget_generated();
        }
        if self.far.1.since(self.far.0) < BLOCK_MOST as u64
            && let Some(at) = self.memory.append(&[0xcc; FAR_BYTES])
        {
            self.far = (at, at.offset(FAR_BYTES as u64));
        }
        let (insns, len) = block_at(key.index, code, ram);
        let first = (key.va, self.sites.len() as u64);
        let block = Block::new(&self.thunks, (self.memory.next(), self.far.0), first, watch.book());
        let known = block.translate(&insns).and_then(|t| self.add(&t, len));
        if let (Some(known), Some(book)) = (known, watch.book()) {
            let translated = insns.iter().take(known.insns as usize);
            let mut at = 0;
            book.translated.extend(translated.map(|insn| {
                let index = key.index + at;
                let word = match insn.len {
                    2 => ram.read::<2>(index),
                    _ => ram.read::<4>(index),
                };
                let pc = key.va + at as u64;
                at += usize::from(insn.len);
                (pc, word as u32)
            }));
            watch.translated();
        }
        self.blocks.insert(key, known);
        self.by_page.entry(key.index >> PAGE_SHIFT).or_default().push(key);
        found(known)
    }

    fn add(&mut self, t: &Translated, len: usize) -> Option<Known> {
        let far = self.far.0.offset(t.far.len() as u64);
        if far.0 > self.far.1.0 || !self.memory.patch(self.far.0, &t.far) {
            return None;
        }
        let at = self.memory.append(&t.bytes)?;
        self.far.0 = far;
        self.sites.extend(t.links.iter().map(|l| Site {
            displacement: at.offset(l.displacement as u64),
            target: l.target,
            door: l.door,
            far: l.far.map(|far| (far, RELINKS)),
        }));
        Some(Known {
            at,
            limit_exit: t.limit_exit,
            side: t.side as u32,
            insns: t.insns as u32,
            len: len as u32,
        })
    }

    /// Lets a jump go straight to the block that it was found to reach, if it stays
    /// in its page, else under this state of translations.
    pub(crate) fn link(
        &mut self,
        (number, va): (u64, u64),
        (at, side): (CacheAddr, CacheAddr),
        state: Option<u32>,
    ) {
        let Some(site) = self.sites.get_mut(number as usize).filter(|s| s.target == va) else {
            return;
        };
        let to = if site.door == Door::Side { side } else { at };
        let mut patches = [None; 3];
        patches[0] = Some((site.displacement, displacement(site.displacement, to)));
        if let Some((far, left)) = &mut site.far {
            let Some(state) = state.filter(|_| *left > 0) else { return };
            *left -= 1;
            patches[1] = Some((far.state, state as i32));
            if *left == 0 {
                patches[2] = Some((far.other, displacement(far.other, far.by_table)));
            }
        }
        for (at, value) in patches.into_iter().flatten() {
            self.memory.patch(at, &value.to_le_bytes());
        }
    }

    /// Ends blocks that contain code which was overwritten.
    pub(crate) fn forget(&mut self, write: CodeWrite) {
        let end = write.start + write.len;
        for page in write.start >> PAGE_SHIFT..=(end.max(1) - 1) >> PAGE_SHIFT {
            let Some(keys) = self.by_page.get_mut(&page) else { continue };
            let (memory, blocks) = (&mut self.memory, &mut self.blocks);
            keys.retain(|key| {
                let known = blocks.get(key).copied().flatten();
                let len = known.map_or(4, |k| k.len as usize);
                if key.index >= end || key.index + len <= write.start {
                    return true;
                }
                blocks.remove(key);
                if let Some(k) = known {
                    for entry in [0, k.side] {
                        let at = k.at.offset(entry.into());
                        let displacement = displacement(at.offset(1), k.limit_exit);
                        let mut jump = [0xe9, 0, 0, 0, 0];
                        jump[1..].copy_from_slice(&displacement.to_le_bytes());
                        memory.patch(at, &jump);
                    }
                }
                false
            });
        }
    }

    fn forget_all(&mut self) {
        let (bytes, thunks) = Thunks::generate();
        self.memory.truncate(CacheAddr(bytes.len() as u64));
        self.thunks = thunks;
        self.far = NO_FAR;
        self.blocks.clear();
        self.by_page.clear();
        self.sites.clear();
        self.generation += 1;
    }
}

/// What a jump whose displacement stands at `from` needs to reach `to`.
const fn displacement(from: CacheAddr, to: CacheAddr) -> i32 {
    (to.0 as i64 - (from.0 as i64 + 4)) as i32
}

/// What is known of a place, as an answer.
fn found(known: Option<Known>) -> Found {
    known.map_or(Found::Nothing, |k| Found::Block {
        at: k.at,
        side: k.at.offset(k.side.into()),
        insns: k.insns.into(),
    })
}

/// The instructions of a block and how many bytes they are. Their slots are filled, so
/// that a page without slots has no blocks either.
fn block_at(index: usize, code: &mut Code, ram: &Ram) -> (Vec<Insn>, usize) {
    let mut insns = Vec::with_capacity(LONGEST);
    let mut at = index;
    while insns.len() < LONGEST && at >> PAGE_SHIFT == index >> PAGE_SHIFT {
        let slot = |code: &Code| {
            code.page(at & !(PAGE_SIZE - 1)).and_then(|page| page[at % PAGE_SIZE / 2].insn())
        };
        let filled = slot(code).or_else(|| match code.decode(at, ram) {
            Decoded::Insn(_) => slot(code),
            _ => None,
        });
        let Some(insn) = filled else { break };
        at += usize::from(insn.len);
        insns.push(insn);
        if matches!(insn.op, Op::Jal | Op::Jalr) {
            break;
        }
    }
    (insns, at - index)
}
