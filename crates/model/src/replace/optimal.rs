//! The optimal replacement (Belady, 1966): the line whose next use lies
//! farthest in the future goes. No policy without knowledge of the future has
//! fewer misses, which makes it the yardstick for the others.
//!
//! # Method
//!
//! The sink keeps the references to one cache, each as the dense number of its
//! line, and [`Optimal::report`] then walks them: backwards to find each
//! reference's next use, forwards to simulate, and forwards once more under LRU.
//! Ties between lines never used again do not change the count.
//!
//! Memory: five bytes a reference while collecting (references to the line of
//! the previous one are counted but not kept: they hit under any policy) and
//! four more in the report, so a stated limit stops the collection; beside them
//! some forty bytes for each line ever referenced.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;
use std::convert::Infallible;

use ichnos_base::{Batch, Event, GuestVa, Record, Sink, ThreadId};

use crate::cache::{CacheConfig, Caches, Placement};
use crate::error::conflict;
use crate::line_map::LineMap;
use crate::spaces::Spaces;
use crate::{ByKind, Error, Kind};

/// A line that is never used again.
const NEVER: u32 = u32::MAX;

/// The lines of a set by what they are filed under.
type Filed = BTreeSet<(u32, u32)>;

/// Collects the references to one cache and gives its fewest possible misses.
#[derive(Debug)]
pub struct Optimal {
    config: CacheConfig,
    takes: [bool; 3],
    shift: u32,
    numbers: LineMap,
    lines: Vec<u64>,
    /// The number of each reference's line, and beside it the kind.
    references: Vec<u32>,
    kinds: Vec<Kind>,
    accesses: ByKind,
    last: Option<u32>,
    limit: usize,
    /// Whether a reference was left out.
    cut: bool,
    spaces: Spaces,
}

/// The optimal counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OptimalReport {
    /// References.
    pub accesses: ByKind,
    /// The misses of the optimal policy.
    pub misses: ByKind,
    /// The misses of LRU in the same cache over the same references.
    pub lru: ByKind,
    /// Whether the limit was reached and later references were not seen.
    pub cut: bool,
}

impl Optimal {
    /// For the first-level cache that `caches` describes (of a split level, the
    /// data cache), keeping at most `limit` references. Only size, ways, line and
    /// placement count.
    ///
    /// # Errors
    ///
    /// See [`CacheConfig::check`]; and a skewed cache has no sets to be optimal in.
    pub fn new(caches: &Caches, limit: usize) -> Result<Self, Error> {
        let (config, takes) = match caches {
            Caches::Unified(cache) => (cache, [true, true, true]),
            Caches::Code(cache) => (cache, [true, false, false]),
            Caches::Data(cache) | Caches::Split { data: cache, .. } => (cache, [false, true, true]),
        };
        config.check("optimal")?;
        if config.placement == Placement::Skewed {
            return Err(conflict(
                "optimal.placement",
                "a skewed cache has no sets to be optimal in",
            ));
        }
        Ok(Self {
            config: config.clone(),
            takes,
            shift: config.line.trailing_zeros(),
            numbers: LineMap::with_capacity(1024),
            lines: Vec::new(),
            references: Vec::new(),
            kinds: Vec::new(),
            accesses: ByKind::default(),
            last: None,
            limit: limit.min(NEVER as usize - 1),
            cut: false,
            spaces: Spaces::default(),
        })
    }

    /// Takes one reference; whether there is room for more.
    pub fn reference(&mut self, kind: Kind, addr: GuestVa, size: u32) -> bool {
        if self.cut {
            return false;
        }
        let first = addr.0 >> self.shift;
        let last = addr.offset(u64::from(size.max(1)) - 1).0 >> self.shift;
        let mut line = first;
        loop {
            if !self.line(kind, line) {
                return false;
            }
            if line == last {
                return true;
            }
            line = line.wrapping_add(1) & (u64::MAX >> self.shift);
        }
    }

    fn line(&mut self, kind: Kind, line: u64) -> bool {
        let number = match self.numbers.get(line) {
            Some(number) => number,
            None => {
                let number = self.lines.len() as u32;
                self.numbers.insert(line, number);
                self.lines.push(line);
                number
            }
        };
        if self.last == Some(number) {
            self.accesses[kind] += 1;
            return true;
        }
        if self.references.len() >= self.limit {
            self.cut = true;
            return false;
        }
        self.accesses[kind] += 1;
        self.last = Some(number);
        self.references.push(number);
        self.kinds.push(kind);
        true
    }

    /// For each reference, the position of the next one to the same line.
    fn next_uses(&self) -> Vec<u32> {
        let mut seen = vec![NEVER; self.lines.len()];
        let mut next = vec![NEVER; self.references.len()];
        for (at, &line) in self.references.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut seen[line as usize], at as u32);
        }
        next
    }

    /// The counts of what was collected.
    #[must_use]
    pub fn report(&self) -> OptimalReport {
        let next = self.next_uses();
        let misses = self.misses(|at| next[at], BTreeSet::pop_last);
        let lru = self.misses(|at| at as u32, BTreeSet::pop_first);
        OptimalReport { accesses: self.accesses, misses, lru, cut: self.cut }
    }

    /// The misses of a policy that files each line of a set under `key` of its last
    /// reference, and lets `victim` take one of them out.
    fn misses(
        &self,
        key: impl Fn(usize) -> u32,
        victim: fn(&mut Filed) -> Option<(u32, u32)>,
    ) -> ByKind {
        let index = crate::cache::Index::new(&self.config);
        let ways = self.config.ways as usize;
        let mut sets: Vec<Filed> = vec![BTreeSet::new(); self.config.sets() as usize];
        // What each line is filed under, if it is present.
        let mut filed: Vec<Option<u32>> = vec![None; self.lines.len()];
        let mut misses = ByKind::default();
        for (at, &line) in self.references.iter().enumerate() {
            let set = &mut sets[index.set(self.lines[line as usize])];
            if let Some(old) = filed[line as usize] {
                set.remove(&(old, line));
            } else {
                misses[self.kinds[at]] += 1;
                if set.len() == ways
                    && let Some((_, gone)) = victim(set)
                {
                    filed[gone as usize] = None;
                }
            }
            let key = key(at);
            set.insert((key, line));
            filed[line as usize] = Some(key);
        }
        misses
    }
}

impl Sink for Optimal {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let space = self.spaces.of(batch.thread);
        for record in batch.records {
            let (kind, addr, size) = match *record {
                Record::Insn { len, pc, .. } => (Kind::Fetch, pc, u32::from(len)),
                Record::Load { size, addr, .. } => (Kind::Load, addr, size),
                Record::Store { size, addr, .. } => (Kind::Store, addr, size),
                _ => continue,
            };
            let addr = GuestVa(addr.0 ^ space);
            if self.takes[kind as usize] && !self.reference(kind, addr, size) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.spaces.event(thread, event);
        Ok(true)
    }
}
