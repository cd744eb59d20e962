//! The laws of inclusion, checked on the contents of all caches after every
//! access: what the counts alone cannot show.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Batch, GuestVa, InsnKind, Record, Sink, ThreadId};
use proptest::prelude::*;

use super::config::{
    CacheConfig, Caches, HierarchyConfig, Inclusion, LevelConfig, Sharing, WritePolicy,
};
use super::graph::MEMORY;
use super::hierarchy::Hierarchy;
use crate::prefetch::PrefetchConfig;

/// Addresses stay below this many bytes.
const REACH: u64 = 200 * 64;

fn three_levels(second: Inclusion, third: Inclusion, prefetch: PrefetchConfig) -> HierarchyConfig {
    let cache =
        |size, ways, inclusion| CacheConfig { inclusion, ..CacheConfig::new(size, ways, 64) };
    let first = |ways| CacheConfig { prefetch, ..CacheConfig::new(512, ways, 64) };
    let level =
        |name: &str, caches, sharing| LevelConfig { name: name.to_owned(), caches, sharing };
    HierarchyConfig {
        levels: vec![
            level("l1", Caches::Split { code: first(1), data: first(2) }, Sharing::Private),
            level("l2", Caches::Unified(cache(1024, 4, second)), Sharing::Private),
            level("l3", Caches::Unified(cache(4096, 4, third)), Sharing::Shared),
        ],
        ..HierarchyConfig::default()
    }
}

/// Every line of every cache above an inclusive cache is in that cache.
fn included(model: &Hierarchy) -> Result<(), TestCaseError> {
    let nodes = &model.graph().nodes;
    for node in nodes {
        let mut below = node.next;
        while below != MEMORY {
            let lower = &nodes[below];
            if lower.inclusion == Inclusion::Inclusive {
                for line in 0..REACH / 64 + 16 {
                    prop_assert!(!node.contains(line) || lower.contains(line), "line {}", line);
                }
            }
            below = lower.next;
        }
    }
    Ok(())
}

/// No line of a cache is in the exclusive cache right behind it, unless another
/// cache in front of that evicted it.
fn excluded(model: &Hierarchy) -> Result<(), TestCaseError> {
    let nodes = &model.graph().nodes;
    for node in nodes {
        let Some(lower) = nodes.get(node.next) else { continue };
        let alone = nodes.iter().filter(|other| other.next == node.next).count() == 1;
        if lower.inclusion == Inclusion::Exclusive && alone {
            for line in 0..REACH / 64 + 16 {
                prop_assert!(!node.contains(line) || !lower.contains(line), "line {}", line);
            }
        }
    }
    Ok(())
}

fn inclusion() -> impl Strategy<Value = Inclusion> {
    prop::sample::select(vec![Inclusion::NonInclusive, Inclusion::Inclusive, Inclusion::Exclusive])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn inclusion_holds_at_every_moment(
        second in inclusion(),
        third in inclusion(),
        prefetch in prop::sample::select(vec![
            PrefetchConfig::None,
            PrefetchConfig::NextLine { degree: 2 },
        ]),
        accesses in prop::collection::vec((0u32..2, 0u64..REACH, 0u8..6), 1..150),
    ) {
        let config = three_levels(second, third, prefetch);
        let mut model = Hierarchy::new(&config).unwrap();
        for (thread, addr, what) in accesses {
            let addr = GuestVa(addr);
            let record = match what {
                0 | 1 => Record::load(addr, 4),
                2 | 3 => Record::store(addr, 4),
                4 => Record::insn(addr, 4, InsnKind::OTHER),
                _ => Record::Flush { flags: ichnos_base::AccessFlags::NONE, size: 0, addr },
            };
            model.records(&Batch::new(ThreadId(thread), 0, &[record])).unwrap();
            included(&model)?;
            // A prefetch into the first level may leave a copy behind.
            if prefetch == PrefetchConfig::None {
                excluded(&model)?;
            }
        }
    }

    /// Nothing written is lost: every store reaches memory when all lines are
    /// flushed, as a write-back of its line.
    #[test]
    fn no_dirty_line_is_lost(
        second in inclusion(),
        third in inclusion(),
        write in prop::sample::select(vec![WritePolicy::Back, WritePolicy::Through]),
        accesses in prop::collection::vec((0u64..REACH, any::<bool>()), 1..200),
    ) {
        prop_assume!(write == WritePolicy::Back || second != Inclusion::Exclusive);
        let mut config = three_levels(second, third, PrefetchConfig::None);
        config.cache_mut("l1d").unwrap().write = write;
        let mut model = Hierarchy::new(&config).unwrap();
        let mut written = std::collections::BTreeSet::new();
        for (addr, store) in accesses {
            let at = GuestVa(addr & !7);
            let record = if store { Record::store(at, 8) } else { Record::load(at, 8) };
            if store {
                written.insert(addr / 64);
            }
            model.records(&Batch::new(ThreadId(0), 0, &[record])).unwrap();
        }
        let before = model.report().memory.write_backs;
        for line in 0..REACH / 64 + 1 {
            let at = GuestVa(line * 64);
            let dirty = model.report().memory.write_backs;
            let flush = Record::Flush { flags: ichnos_base::AccessFlags::NONE, size: 0, addr: at };
            model.records(&Batch::new(ThreadId(0), 0, &[flush])).unwrap();
            let now = model.report().memory.write_backs;
            prop_assert!(now == dirty || written.contains(&line), "clean line {} written", line);
            written.retain(|&other| other != line || now == dirty);
        }
        // What was not dirty any more had gone to memory before.
        prop_assert!(written.len() as u64 <= before);
    }
}
