//! What a cache hierarchy is made of: plain data, checked as a whole by
//! [`HierarchyConfig::check`] before anything is built from it.
//!
//! # Rules that hold for every checked configuration
//!
//! * Lines are a power of two of 8 bytes to 64 KiB; a lower level's lines are
//!   never shorter than those of the level above it.
//! * `size = sets * ways * line` exactly. The number of sets need not be a power
//!   of two with [`Placement::Modulo`].
//! * Below a shared level nothing is private; below a unified level nothing is
//!   split.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::{conflict, power_of_two, range};
use crate::prefetch::PrefetchConfig;
use crate::{Error, Replacement};

/// One cache: its geometry and its policies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Capacity in bytes.
    pub size: u64,
    /// Lines per set.
    pub ways: u32,
    /// Bytes per line.
    pub line: u32,
    /// Which line of a full set has to go.
    pub replacement: Replacement,
    /// In which set a line lives.
    pub placement: Placement,
    /// What a store does.
    pub write: WritePolicy,
    /// What a store that misses does.
    pub allocate: Allocate,
    /// How the contents relate to those of the levels above.
    pub inclusion: Inclusion,
    /// Lines of the fully associative victim cache behind this one (Jouppi,
    /// ISCA 1990); 0 for none.
    pub victim_lines: u32,
    /// Parts of a line that are fetched and written back singly; 1 for none.
    pub sectors: u32,
    /// Whether misses are sorted into compulsory, capacity and conflict ones.
    pub classify: Classify,
    /// What is fetched before it is asked for.
    pub prefetch: PrefetchConfig,
}

impl CacheConfig {
    /// A write-back, write-allocate, non-inclusive LRU cache.
    #[must_use]
    pub const fn new(size: u64, ways: u32, line: u32) -> Self {
        Self {
            size,
            ways,
            line,
            replacement: Replacement::Lru,
            placement: Placement::Modulo,
            write: WritePolicy::Back,
            allocate: Allocate::OnWrite,
            inclusion: Inclusion::NonInclusive,
            victim_lines: 0,
            sectors: 1,
            classify: Classify::No,
            prefetch: PrefetchConfig::None,
        }
    }

    /// How many sets the geometry has, for a checked configuration.
    #[must_use]
    pub const fn sets(&self) -> u64 {
        self.size / (self.ways as u64 * self.line as u64)
    }

    /// How many lines the cache holds, for a checked configuration.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.size / self.line as u64
    }

    /// Checks this cache by itself; `name` begins the field names in errors.
    ///
    /// # Errors
    ///
    /// The first field that makes no sense.
    pub fn check(&self, name: &str) -> Result<(), Error> {
        let field = |f: &str| format!("{name}.{f}");
        range(&field("line"), u64::from(self.line), 8, 1 << 16)?;
        power_of_two(&field("line"), u64::from(self.line))?;
        range(&field("ways"), u64::from(self.ways), 1, 1 << 20)?;
        range(&field("size"), self.size, 1, 1 << 40)?;
        let way = u64::from(self.ways) * u64::from(self.line);
        if !self.size.is_multiple_of(way) {
            return Err(Error::Multiple {
                field: field("size"),
                got: self.size,
                of: way,
                why: "ways times line",
            });
        }
        // Tags take eight bytes a line: two gibibytes for the largest cache.
        range(&field("lines"), self.lines(), 1, 1 << 28)?;
        self.replacement.check(name, self.ways)?;
        if self.placement != Placement::Modulo && !self.sets().is_power_of_two() {
            let setting = if self.placement == Placement::XorHash { "xor" } else { "skewed" };
            let (field, got) = (field("sets"), self.sets());
            return Err(Error::Unsuited { field, got, needs: "a power of two", setting });
        }
        let skewable = matches!(self.replacement, Replacement::Lru | Replacement::Random { .. });
        if self.placement == Placement::Skewed && !skewable {
            return Err(conflict(
                &field("placement"),
                "a skewed cache has no sets to order, so its replacement must be lru or random",
            ));
        }
        range(&field("victim"), u64::from(self.victim_lines), 0, 1 << 16)?;
        range(&field("sectors"), u64::from(self.sectors), 1, 64)?;
        power_of_two(&field("sectors"), u64::from(self.sectors))?;
        range(&field("sectors"), u64::from(self.sectors), 1, u64::from(self.line) / 8)?;
        self.prefetch.check(&field("prefetch"))
    }
}

/// In which set a line lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Placement {
    /// Line number modulo the number of sets.
    #[default]
    Modulo,
    /// The line number folded onto the set number by exclusive-or, so that
    /// large powers of two as strides do not collide.
    XorHash,
    /// Each way has an index function of its own (Seznec, ISCA 1993).
    Skewed,
}

/// What a store does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WritePolicy {
    /// Marks the line dirty; the next level hears of it when the line goes.
    #[default]
    Back,
    /// Passes every store on to the next level at once.
    Through,
    /// Counts the store and otherwise treats it as a load: no dirty lines and no
    /// traffic from them, as in cachegrind.
    Ignore,
}

/// What a store that misses does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Allocate {
    /// Brings the line in, like a load.
    #[default]
    OnWrite,
    /// Passes the store on to the next level and leaves the cache as it is.
    OnReadOnly,
}

/// How the contents relate to those of the levels above.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Inclusion {
    /// Lines are filled here on the way up, and each level evicts as it likes.
    #[default]
    NonInclusive,
    /// A line that goes here also goes from all caches above.
    Inclusive,
    /// A line comes here only when a cache directly above evicts it, and moves
    /// up again when it is asked for.
    Exclusive,
}

/// Whether misses are sorted by their cause.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Classify {
    /// Only counted.
    #[default]
    No,
    /// Sorted into compulsory, capacity and conflict misses (Hill, 1987). Costs
    /// a fully associative twin, and memory for each line ever seen.
    ThreeC,
}

/// One level of a hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelConfig {
    /// The level's name in fields and reports, such as `l1`.
    pub name: String,
    /// Its caches.
    pub caches: Caches,
    /// Who uses them.
    pub sharing: Sharing,
}

/// The caches of one level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caches {
    /// One for instructions and data.
    Unified(CacheConfig),
    /// One for each.
    Split {
        /// Instructions.
        code: CacheConfig,
        /// Data.
        data: CacheConfig,
    },
    /// Instructions only: data goes to the next level directly.
    Code(CacheConfig),
    /// Data only: instructions go to the next level directly.
    Data(CacheConfig),
}

/// Who uses the caches of a level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sharing {
    /// Each core has its own.
    #[default]
    Private,
    /// All cores use the same.
    Shared,
}

/// What an access that does not lie in one line means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Straddle {
    /// It is as many accesses as it touches lines of the first level, each with
    /// a hit or miss of its own, as in Dinero IV.
    #[default]
    Split,
    /// It is one access: all lines are touched, it is one miss if any of them
    /// misses, and then the next level is asked for the whole of it. An access
    /// longer than the shortest line of the hierarchy is cut to that length, so
    /// there are never more than two lines. This is what cachegrind does.
    One,
}

/// What the load and the store of one read-modify-write mean.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Modify {
    /// A load and a store.
    #[default]
    Both,
    /// A load only: a store directly after a load of the same bytes by the same
    /// instruction is not counted and touches nothing, as in cachegrind.
    LoadOnly,
}

/// What becomes of prefetch and flush records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Hints {
    /// Prefetches fill lines and flushes drop them.
    #[default]
    Obey,
    /// Both do nothing, as in cachegrind.
    Ignore,
}

/// A whole hierarchy, nearest level first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HierarchyConfig {
    /// The levels, nearest first.
    pub levels: Vec<LevelConfig>,
    /// What an access across lines means.
    pub straddle: Straddle,
    /// What a read-modify-write means.
    pub modify: Modify,
    /// What becomes of prefetch and flush records.
    pub hints: Hints,
    /// How many cores the threads run on: thread `t` runs on core `t` modulo
    /// this, until a migration event says otherwise. 0 gives each living thread
    /// a core of its own.
    pub cores: u32,
}

impl HierarchyConfig {
    /// The configuration whose counts equal those of `valgrind
    /// --tool=cachegrind --cache-sim=yes` with the same three caches: LRU, every
    /// store allocates, nothing is written back, everything shared.
    #[must_use]
    pub fn cachegrind(i1: CacheConfig, d1: CacheConfig, ll: CacheConfig) -> Self {
        let plain = |c: CacheConfig| CacheConfig {
            write: WritePolicy::Ignore,
            ..CacheConfig::new(c.size, c.ways, c.line)
        };
        let level = |name: &str, caches| LevelConfig {
            name: name.to_owned(),
            caches,
            sharing: Sharing::Shared,
        };
        Self {
            levels: vec![
                level("l1", Caches::Split { code: plain(i1), data: plain(d1) }),
                level("ll", Caches::Unified(plain(ll))),
            ],
            straddle: Straddle::One,
            modify: Modify::LoadOnly,
            hints: Hints::Ignore,
            cores: 0,
        }
    }

    /// Checks the hierarchy as a whole.
    ///
    /// # Errors
    ///
    /// The first field that makes no sense, by itself or beside the others.
    pub fn check(&self) -> Result<(), Error> {
        super::check::hierarchy(self)
    }
}
