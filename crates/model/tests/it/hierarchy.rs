//! Hierarchies against a twin of two levels that keeps plain lists, and the
//! laws that hold between levels.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Batch, GuestVa, InsnKind, Record, Sink, ThreadId};
use ichnos_model::{
    Allocate, CacheConfig, Caches, Hierarchy, HierarchyConfig, Inclusion, LevelConfig, Sharing,
    Straddle, WritePolicy,
};
use proptest::prelude::*;

use super::drive::{access, data_level, feed};
use super::replacement::lines;

/// A list of lines, most recent first, cut into sets by the line number.
#[derive(Default)]
struct List {
    lines: Vec<(u64, bool)>,
    sets: u64,
    ways: usize,
    misses: u64,
    write_backs: u64,
}

impl List {
    fn new(sets: u64, ways: usize) -> Self {
        Self { sets, ways, ..Self::default() }
    }

    fn take(&mut self, line: u64) -> Option<bool> {
        let at = self.lines.iter().position(|&(other, _)| other == line)?;
        Some(self.lines.remove(at).1)
    }

    /// Puts a line first; gives the one that no longer fits.
    fn put(&mut self, line: u64, dirty: bool) -> Option<(u64, bool)> {
        self.lines.insert(0, (line, dirty));
        let same = |other: u64, sets: u64| other % sets == line % sets;
        let rivals = self.lines.iter().filter(|&&(other, _)| same(other, self.sets)).count();
        if rivals <= self.ways {
            return None;
        }
        let sets = self.sets;
        let at = self.lines.iter().rposition(|&(other, _)| same(other, sets))?;
        Some(self.lines.remove(at))
    }
}

/// Two levels.
struct Naive {
    first: List,
    second: List,
    write: WritePolicy,
    allocate: Allocate,
    inclusion: Inclusion,
    memory_writes: u64,
}

impl Naive {
    fn access(&mut self, line: u64, store: bool) {
        let dirties = store && self.write == WritePolicy::Back;
        let through = store && self.write == WritePolicy::Through;
        if let Some(dirty) = self.first.take(line) {
            self.first.put(line, dirty || dirties);
            if through {
                self.second_level(line, true);
            }
            return;
        }
        self.first.misses += 1;
        if store && self.allocate == Allocate::OnReadOnly {
            self.second_level(line, true);
            return;
        }
        let came_dirty = self.second_level(line, false);
        if let Some((old, dirty)) = self.first.put(line, came_dirty || dirties) {
            self.first.write_backs += u64::from(dirty);
            self.lower(old, dirty);
        }
        if through {
            self.second_level(line, true);
        }
    }

    /// A request of the first level; whether the line comes dirty.
    fn second_level(&mut self, line: u64, store: bool) -> bool {
        if let Some(dirty) = self.second.take(line) {
            if self.inclusion == Inclusion::Exclusive && !store {
                return dirty;
            }
            self.second.put(line, dirty || store);
            return false;
        }
        self.second.misses += 1;
        if self.inclusion == Inclusion::Exclusive {
            self.memory_writes += u64::from(store);
            return false;
        }
        self.put_second(line, store);
        false
    }

    fn put_second(&mut self, line: u64, dirty: bool) {
        if let Some((old, mut dirty)) = self.second.put(line, dirty) {
            if self.inclusion == Inclusion::Inclusive {
                dirty |= self.first.take(old).unwrap_or(false);
            }
            self.second.write_backs += u64::from(dirty);
            self.memory_writes += u64::from(dirty);
        }
    }

    /// A line that the first level evicted.
    fn lower(&mut self, line: u64, dirty: bool) {
        if !dirty && self.inclusion != Inclusion::Exclusive {
            return;
        }
        let was = self.second.take(line).unwrap_or(false);
        self.put_second(line, was || dirty);
    }
}

fn two_levels(first: CacheConfig, second: CacheConfig) -> HierarchyConfig {
    HierarchyConfig {
        levels: vec![data_level("l1", first), data_level("l2", second)],
        ..HierarchyConfig::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn two_levels_equal_their_twin(
        write in prop::sample::select(vec![WritePolicy::Back, WritePolicy::Through]),
        allocate in prop::sample::select(vec![Allocate::OnWrite, Allocate::OnReadOnly]),
        inclusion in prop::sample::select(vec![
            Inclusion::NonInclusive, Inclusion::Inclusive, Inclusion::Exclusive,
        ]),
        (log1, ways1, log2, ways2) in (0u32..3, 1u32..4, 0u32..4, 1u32..5),
        stream in lines(300),
    ) {
        prop_assume!(!(inclusion == Inclusion::Exclusive && write == WritePolicy::Through));
        let (sets1, sets2) = (1u64 << log1, 1u64 << log2);
        let config = two_levels(
            CacheConfig {
                write,
                allocate,
                ..CacheConfig::new(sets1 * u64::from(ways1) * 64, ways1, 64)
            },
            CacheConfig { inclusion, ..CacheConfig::new(sets2 * u64::from(ways2) * 64, ways2, 64) },
        );
        let mut naive = Naive {
            first: List::new(sets1, ways1 as usize),
            second: List::new(sets2, ways2 as usize),
            write,
            allocate,
            inclusion,
            memory_writes: 0,
        };
        for &(line, store) in &stream {
            naive.access(line, store);
        }
        let mut model = Hierarchy::new(&config).unwrap();
        let records: Vec<Record> = stream.iter().map(|&(line, store)| access(line, store)).collect();
        feed(&mut model, &records);
        let report = model.report();
        let (l1, l2) = (report.total("l1d").unwrap(), report.total("l2d").unwrap());
        prop_assert_eq!((l1.misses.total(), l1.write_backs), (naive.first.misses, naive.first.write_backs));
        prop_assert_eq!((l2.misses.total(), l2.write_backs), (naive.second.misses, naive.second.write_backs));
        prop_assert_eq!(report.memory.write_backs + report.memory.writes, naive.memory_writes);
    }

    #[test]
    fn splitting_and_counting_as_one_differ_only_across_lines(
        accesses in prop::collection::vec((0u64..6000, 1u32..17, any::<bool>()), 1..300),
    ) {
        let mut config = two_levels(CacheConfig::new(1024, 2, 32), CacheConfig::new(4096, 4, 32));
        let mut split = Hierarchy::new(&config).unwrap();
        config.straddle = Straddle::One;
        let mut one = Hierarchy::new(&config).unwrap();
        let records: Vec<Record> = accesses
            .iter()
            .map(|&(addr, size, store)| {
                let addr = GuestVa(addr);
                if store { Record::store(addr, size) } else { Record::load(addr, size) }
            })
            .collect();
        feed(&mut split, &records);
        feed(&mut one, &records);
        let straddling = accesses.iter().filter(|(addr, size, _)| addr % 32 + u64::from(*size) > 32);
        let straddling = straddling.count() as u64;
        let total = |model: &Hierarchy| model.report().total("l1d").unwrap();
        prop_assert_eq!(total(&one).accesses.total(), accesses.len() as u64);
        prop_assert_eq!(total(&split).accesses.total(), accesses.len() as u64 + straddling);
        // The first level's contents are the same either way, so the misses
        // differ by the accesses that missed twice.
        let (s, o) = (total(&split).misses.total(), total(&one).misses.total());
        prop_assert!(o <= s && s <= o + straddling);
        prop_assert_eq!(total(&split).evictions, total(&one).evictions);
    }

    #[test]
    fn every_prefetched_line_is_used_wasted_or_still_there(
        words in prop::sample::select(vec!["next-line=2", "stride=4", "stream=4", "best-offset"]),
        start in 0u64..1000,
        strides in prop::collection::vec((1u64..200, 5usize..60), 1..12),
    ) {
        let l1 = CacheConfig::parse("l1d", &format!("4K,4,64,{words}")).unwrap();
        let config = two_levels(l1, CacheConfig::new(16 << 10, 8, 64));
        let mut model = Hierarchy::new(&config).unwrap();
        let mut addr = start;
        let mut records = Vec::new();
        for (stride, count) in strides {
            for _ in 0..count {
                records.push(Record::insn(GuestVa(stride), 4, InsnKind::OTHER));
                records.push(Record::load(GuestVa(addr), 1));
                addr += stride;
            }
        }
        feed(&mut model, &records);
        let stats = model.report().total("l1d").unwrap();
        let gone = stats.prefetches_used + stats.prefetches_wasted;
        prop_assert!(gone <= stats.prefetches && stats.prefetches - gone <= 64);
        let fills = stats.misses.total() + stats.prefetches;
        prop_assert!(stats.evictions <= fills && fills - stats.evictions <= 64);
    }
}

#[test]
fn errors_name_the_cache_and_the_field() {
    let small = CacheConfig::new(1024, 2, 64);
    let exclusive = CacheConfig { inclusion: Inclusion::Exclusive, ..small.clone() };
    let through = CacheConfig { write: WritePolicy::Through, ..small.clone() };
    for (config, want) in [
        (two_levels(exclusive.clone(), small.clone()), "l1d.inclusion: the first level"),
        (two_levels(through, exclusive.clone()), "l2d.inclusion: an exclusive level hands"),
        (
            two_levels(small.clone(), CacheConfig::new(1024, 2, 32)),
            "l2d.line must lie between 64 and 65536, but is 32",
        ),
        (HierarchyConfig::default(), "levels must lie between 1 and 16, but is 0"),
        (
            HierarchyConfig { straddle: Straddle::One, ..two_levels(small, exclusive) },
            "l2d.straddle: counting",
        ),
    ] {
        let message = config.check().expect_err("a wrong configuration").to_string();
        assert!(message.starts_with(want), "{message}");
    }
}

/// Sectors by hand: two sectors of 32 bytes; the second is fetched when used.
#[test]
fn sectors_are_fetched_singly() {
    let config = CacheConfig { sectors: 2, ..CacheConfig::new(1024, 2, 64) };
    let mut model = Hierarchy::new(&super::drive::single(config)).expect("a right configuration");
    let load = |addr: u64, size| Record::load(GuestVa(addr), size);
    feed(&mut model, &[load(0, 8), load(8, 8), load(32, 8), load(40, 8), load(24, 16)]);
    let stats = model.report().total("l1d").expect("it exists");
    assert_eq!((stats.misses.total(), stats.sector_misses), (2, 1));
    assert_eq!(model.report().memory.reads.total(), 2);
}

/// A core's misses are seen beside its own instructions.
#[test]
fn instructions_are_known_by_core() {
    let cache = CacheConfig::new(1024, 2, 64);
    let level =
        |name: &str, caches, sharing| LevelConfig { name: name.to_owned(), caches, sharing };
    let config = HierarchyConfig {
        levels: vec![
            level("l1", Caches::Data(cache.clone()), Sharing::Private),
            level("l2", Caches::Unified(cache), Sharing::Shared),
        ],
        ..HierarchyConfig::default()
    };
    let mut model = Hierarchy::new(&config).unwrap();
    let pair = |at: u64| {
        [Record::insn(GuestVa(at * 4), 4, InsnKind::OTHER), Record::load(GuestVa(at * 64), 8)]
    };
    for (thread, count) in [(0, 30), (1, 10)] {
        let records: Vec<Record> = (0..count).flat_map(pair).collect();
        let Ok(_) = model.records(&Batch::new(ThreadId(thread), 0, &records));
    }
    let report = model.report();
    assert_eq!((report.instructions, report.by_core.as_slice()), (40, &[30, 10][..]));
    let own: Vec<u64> = report.caches.iter().map(|cache| report.instructions_of(cache)).collect();
    assert_eq!(own, [30, 10, 40]);
    model.reset_counts();
    assert_eq!(model.report().by_core, [0, 0]);
}

/// Counts are told apart by names, so these must differ.
#[test]
fn names_are_given_once() {
    let cache = || CacheConfig::new(1024, 2, 64);
    let level = |name: &str, caches| LevelConfig {
        name: name.to_owned(),
        caches,
        sharing: Sharing::Shared,
    };
    let split = || Caches::Split { code: cache(), data: cache() };
    for (first, second, want) in [
        (level("l1", split()), level("l1", split()), "l1.name: there are two of this name"),
        (
            level("l1", split()),
            level("l1i", Caches::Unified(cache())),
            "l1i.name: there are two of this name",
        ),
    ] {
        let config = HierarchyConfig { levels: vec![first, second], ..HierarchyConfig::default() };
        assert_eq!(config.check().unwrap_err().to_string(), want);
    }
}
