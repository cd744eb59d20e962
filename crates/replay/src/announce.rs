//! Which code a replay has told already, and which must be told before a block's
//! records.
//!
//! Told once per block at first sight, and again after an exec, which replaces
//! all code of its process. Where the roadmap holds two different codes
//! for one address, the blocks over it are looked at on every execution.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::sync::Arc;

use ichnos_base::{BlockId, Code};
use ichnos_trace::{Block, Roadmap};

const PAGE: u64 = 4096;

/// Bytes by address space and address.
#[derive(Clone, Debug, Default)]
struct Bytes {
    pages: HashMap<(u32, u64), Box<[Option<u8>]>>,
}

impl Bytes {
    /// A block's code page by page: the page, where on it, the bytes.
    fn pieces(block: &Block) -> impl Iterator<Item = ((u32, u64), usize, &[u8])> {
        let mut pc = block.entry.0;
        let mut rest = &*block.code;
        std::iter::from_fn(move || {
            let at = pc % PAGE;
            let len = rest.len().min((PAGE - at) as usize);
            let (piece, later) = rest.split_at(len);
            let key = (block.process.0, pc / PAGE);
            pc = pc.wrapping_add(len as u64);
            rest = later;
            (!piece.is_empty()).then_some((key, at as usize, piece))
        })
    }

    fn page(&mut self, key: (u32, u64)) -> &mut [Option<u8>] {
        self.pages.entry(key).or_insert_with(|| vec![None; PAGE as usize].into())
    }
}

/// What has been told.
#[derive(Clone, Debug)]
pub(crate) struct Announcer {
    /// Nothing more to tell about the block, ever. Blocks without code are settled from the start.
    settled: Vec<bool>,
    /// Those that were settled since: few of all, if a chunk is replayed by itself.
    since: Vec<BlockId>,
    contested: Arc<[bool]>,
    told: Bytes,
}

impl Announcer {
    pub(crate) fn new(roadmap: &Roadmap) -> Self {
        // Blocks without code, and numbers without block, have nothing to tell.
        let mut settled = vec![true; roadmap.len()];
        let mut contested = vec![false; roadmap.len()];
        let mut first = Bytes::default();
        let mut fought = Bytes::default();
        for (id, block) in roadmap.iter() {
            settled[id.index()] = block.code.is_empty();
            for (key, at, piece) in Bytes::pieces(block) {
                let page = first.page(key);
                for (i, byte) in piece.iter().enumerate() {
                    let known = page[at + i].get_or_insert(*byte);
                    if known != byte {
                        fought.page(key)[at + i] = Some(*byte);
                    }
                }
            }
        }
        if !fought.pages.is_empty() {
            for (id, block) in roadmap.iter() {
                contested[id.index()] = Bytes::pieces(block).any(|(key, at, piece)| {
                    let page = fought.pages.get(&key);
                    page.is_some_and(|p| p[at..at + piece.len()].iter().any(Option::is_some))
                });
            }
        }
        let (since, told) = (Vec::new(), Bytes::default());
        Self { settled, since, contested: contested.into(), told }
    }

    /// A program was replaced, or another trace is told: everything counts as untold. Code of other
    /// processes is then told once more than needed, which does no harm.
    #[cold]
    pub(crate) fn forget(&mut self) {
        for id in self.since.drain(..) {
            self.settled[id.index()] = false;
        }
        self.told = Bytes::default();
    }

    /// Whether there is nothing to tell about a block.
    #[inline]
    pub(crate) fn is_settled(&self, id: BlockId) -> bool {
        self.settled.get(id.index()).copied().unwrap_or(true)
    }

    /// The code that must be told before this block's records.
    #[cold]
    pub(crate) fn news<'a>(&mut self, id: BlockId, block: &'a Block) -> Option<Code<'a>> {
        if !self.contested[id.index()] {
            self.settled[id.index()] = true;
            self.since.push(id);
        }
        let mut known = true;
        for (key, at, piece) in Bytes::pieces(block) {
            for (told, byte) in self.told.page(key)[at..].iter_mut().zip(piece) {
                known &= told.replace(*byte) == Some(*byte);
            }
        }
        let code = Code { process: block.process, pc: block.entry, bytes: &block.code };
        (!known).then_some(code)
    }
}
