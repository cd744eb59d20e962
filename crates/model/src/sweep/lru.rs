//! All LRU caches of many sizes and ways in one pass (Mattson et al., 1970;
//! Hill and Smith, 1989).
//!
//! # Method
//!
//! For each line size and each number of sets asked for there is a *layer*: one
//! list per set, most recent line first, as long as the most ways asked for. The
//! position at which a reference finds its line says for every number of ways
//! whether that cache hits. Layers stand in order of their number of sets, each
//! number dividing the next.
//!
//! *Early end.* If a line is first in its list, it is also first in its list in
//! every later layer: the lists of a later layer are sublists of earlier ones
//! (its sets divide the earlier sets), and the first of a list is first of its
//! sublist. There nothing changes, so the walk ends, and the reference hits in
//! all later layers. A reference to the line of the reference before ends before
//! the first layer.
//!
//! So the cost grows with how far the locality reaches, not with the number of
//! caches. Stores allocate like loads; write-backs are not counted. An access
//! across lines counts once for each line, as with
//! [`Straddle::Split`](crate::Straddle::Split).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{About, Batch, Blocks, Event, Sink, ThreadId};

use crate::cache::{CacheConfig, Placement};
use crate::error::{conflict, power_of_two};
use crate::locality::{Lines, References};
use crate::outline::Outlines;
use crate::spaces::Spaces;
use crate::{ByKind, Error, Kind, Replacement};

/// The counts of one cache of a sweep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SweepPoint {
    /// The cache.
    pub config: CacheConfig,
    /// Its accesses.
    pub accesses: ByKind,
    /// Its misses.
    pub misses: ByKind,
}

/// Simulates many LRU caches at once.
#[derive(Debug)]
pub struct LruSweep {
    configs: Vec<CacheConfig>,
    references: References,
    spaces: Spaces,
    chains: Vec<Chain>,
    outlines: Outlines,
    instructions: u64,
}

/// All layers of one line size.
#[derive(Debug)]
struct Chain {
    shift: u32,
    last: u64,
    accesses: [u64; 3],
    layers: Vec<Layer>,
}

/// One number of sets.
#[derive(Debug)]
struct Layer {
    mask: u64,
    ways: usize,
    /// Line number plus one; zero is empty.
    lists: Box<[u64]>,
    /// For each position, and one more for absent, how many references of each
    /// kind were found there. The first position is not counted: whatever is
    /// not found elsewhere was there, or ended earlier.
    found: Box<[[u64; 3]]>,
}

impl LruSweep {
    /// For these caches, of which only size, ways and line count.
    ///
    /// # Errors
    ///
    /// If a cache makes no sense, is not LRU, or the number of its sets is not a
    /// power of two; the field names begin with `sweep` and its number.
    pub fn new(configs: &[CacheConfig], references: References) -> Result<Self, Error> {
        let mut chains: Vec<Chain> = Vec::new();
        for (at, config) in configs.iter().enumerate() {
            let name = format!("sweep{at}");
            config.check(&name)?;
            Self::applies(&name, config)?;
            let shift = config.line.trailing_zeros();
            let chain = match chains.iter().position(|chain| chain.shift == shift) {
                Some(at) => at,
                None => {
                    let layers = Vec::new();
                    chains.push(Chain { shift, last: u64::MAX, accesses: [0; 3], layers });
                    chains.len() - 1
                }
            };
            chains[chain].ask(config.sets(), config.ways as usize);
        }
        for chain in &mut chains {
            chain.layers.sort_by_key(|layer| layer.mask);
            for layer in &mut chain.layers {
                let lists = (layer.mask as usize + 1) * layer.ways;
                layer.lists = vec![0; lists].into_boxed_slice();
                layer.found = vec![[0; 3]; layer.ways + 1].into_boxed_slice();
            }
        }
        let (spaces, outlines) = (Spaces::default(), Outlines::default());
        let (configs, instructions) = (configs.to_vec(), 0);
        Ok(Self { configs, references, spaces, chains, outlines, instructions })
    }

    /// Whether a cache is one that a sweep can simulate.
    fn applies(name: &str, config: &CacheConfig) -> Result<(), Error> {
        power_of_two(&format!("{name}.sets"), config.sets())?;
        let plain = config.replacement == Replacement::Lru
            && config.placement == Placement::Modulo
            && config.sectors == 1
            && config.victim_lines == 0
            && config.prefetch == crate::prefetch::PrefetchConfig::None;
        if plain {
            Ok(())
        } else {
            Err(conflict(name, "one pass for many caches needs plain LRU caches"))
        }
    }

    /// Instructions so far; none if there are no caches to show them to.
    #[must_use]
    pub const fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The counts so far, in the order in which the caches were given.
    #[must_use]
    pub fn report(&self) -> Vec<SweepPoint> {
        self.configs.iter().map(|config| self.point(config)).collect()
    }

    fn point(&self, config: &CacheConfig) -> SweepPoint {
        let shift = config.line.trailing_zeros();
        let mut point = SweepPoint {
            config: config.clone(),
            accesses: ByKind::default(),
            misses: ByKind::default(),
        };
        let Some(chain) = self.chains.iter().find(|chain| chain.shift == shift) else {
            return point;
        };
        let Some(layer) = chain.layers.iter().find(|layer| layer.mask + 1 == config.sets()) else {
            return point;
        };
        for kind in Kind::ALL {
            let beyond = layer.found.iter().skip(config.ways as usize);
            point.misses[kind] = beyond.map(|counts| counts[kind as usize]).sum();
            point.accesses[kind] = chain.accesses[kind as usize];
        }
        point
    }
}

impl Chain {
    /// Makes room for a cache with so many sets and ways.
    fn ask(&mut self, sets: u64, ways: usize) {
        match self.layers.iter_mut().find(|layer| layer.mask + 1 == sets) {
            Some(layer) => layer.ways = layer.ways.max(ways),
            None => {
                let (lists, found) = (Box::default(), Box::default());
                self.layers.push(Layer { mask: sets - 1, ways, lists, found });
            }
        }
    }

    #[inline]
    fn reference(&mut self, kind: Kind, line: u64) {
        self.accesses[kind as usize] += 1;
        if line != self.last {
            self.last = line;
            self.walk(kind, line);
        }
    }

    #[inline]
    fn walk(&mut self, kind: Kind, line: u64) {
        for layer in &mut self.layers {
            if layer.reference(kind, line) {
                break;
            }
        }
    }
}

impl Layer {
    /// Uses a line; whether it was first in its list already.
    #[inline]
    fn reference(&mut self, kind: Kind, line: u64) -> bool {
        let key = line.wrapping_add(1);
        let start = (line & self.mask) as usize * self.ways;
        let list = &mut self.lists[start..start + self.ways];
        if list[0] == key {
            return true;
        }
        let mut carried = key;
        let mut position = 0;
        for word in list.iter_mut() {
            std::mem::swap(word, &mut carried);
            if carried == key {
                break;
            }
            position += 1;
        }
        self.found[position][kind as usize] += 1;
        false
    }
}

impl Sink for LruSweep {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let space = self.spaces.of(batch.thread);
        let mut instructions = 0;
        for chain in &mut self.chains {
            let lines = Lines { references: self.references, shift: chain.shift, space };
            // The same for each line size.
            instructions = lines.each(batch.records, |kind, line| chain.reference(kind, line.0));
        }
        self.instructions += instructions;
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        self.references == References::Data
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        let space = self.spaces.of(blocks.thread);
        let mut instructions = 0;
        for chain in &mut self.chains {
            let lines = Lines { references: self.references, shift: chain.shift, space };
            instructions = lines.each_of_blocks(blocks, &mut self.outlines, |kind, line| {
                chain.reference(kind, line.0);
            });
        }
        self.instructions += instructions;
        Ok(true)
    }

    fn begin(&mut self, _: &About<'_>) -> Result<bool, Infallible> {
        self.outlines.forget();
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.spaces.event(thread, event);
        Ok(true)
    }
}
