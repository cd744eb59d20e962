//! Behind a filter: answering at once comes to the same as answering at length,
//! and a filter that lets pass what it may changes no count.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::Ordering::Relaxed;

use ichnos_base::{GuestVa, ThreadId};
use ichnos_model::{
    ByKind, CacheConfig, Caches, Hierarchy, HierarchyConfig, Inclusion, Kind, LevelConfig,
    Reference, Replacement, Sharing, Standing, TlbConfig, TlbHierarchyConfig, TlbLevelConfig,
    TlbModel, Tlbs, Unobserved, WRITTEN,
};
use proptest::prelude::*;

const THREAD: ThreadId = ThreadId(0);

fn hierarchy(second: Option<Inclusion>) -> HierarchyConfig {
    let first = CacheConfig::new(1024, 2, 64);
    let level = |name: &str, caches| LevelConfig {
        name: name.to_owned(),
        caches,
        sharing: Sharing::Private,
    };
    let mut levels = vec![level("l1", Caches::Split { code: first.clone(), data: first })];
    if let Some(inclusion) = second {
        let cache = CacheConfig { inclusion, ..CacheConfig::new(4096, 4, 64) };
        levels.push(level("l2", Caches::Unified(cache)));
    }
    HierarchyConfig { levels, ..HierarchyConfig::default() }
}

/// A reference's line, kind and offset.
type Step = (u64, u8, u64);

fn reference((line, kind, offset): Step, now: u64) -> Reference {
    let kind = Kind::ALL[usize::from(kind) % 3];
    let size = if offset > 60 { 1 } else { 4 };
    Reference { pc: GuestVa(4 * now), addr: GuestVa(64 * line + offset), size, kind, now }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0u64..40, 0u8..3, 0u64..64), 1..400)
}

proptest! {
    #[test]
    fn at_once_is_as_at_length(
        steps in steps(),
        second in prop::option::of(prop::sample::select(vec![
            Inclusion::NonInclusive, Inclusion::Inclusive, Inclusion::Exclusive,
        ])),
    ) {
        let config = hierarchy(second);
        let mut quick = Hierarchy::behind_filter(&config, Unobserved).unwrap();
        let mut slow = Hierarchy::behind_filter(&config, Unobserved).unwrap();
        for (now, step) in steps.into_iter().enumerate() {
            let r = reference(step, now as u64 + 1);
            let mut gone = Vec::new();
            let want = slow.reference(THREAD, &r);
            for kind in [Kind::Fetch, Kind::Load] {
                slow.departed(THREAD, kind, |line| gone.push(line));
            }
            match quick.reference_at_once(THREAD, &r) {
                Some(answer) => {
                    prop_assert_eq!(answer.standing, want);
                    prop_assert_eq!(answer.departed.into_iter().collect::<Vec<_>>(), gone);
                }
                None => {
                    prop_assert_eq!(quick.reference(THREAD, &r), want);
                    for kind in [Kind::Fetch, Kind::Load] {
                        quick.departed(THREAD, kind, |_| {});
                    }
                }
            }
            prop_assert_eq!(quick.report(), slow.report());
        }
    }

    /// A first-level cache in the hands of a filter, which marks lines as written by
    /// itself, comes to the same as one that is told all.
    #[test]
    fn directly_is_as_at_length(
        steps in prop::collection::vec((0u64..80, 1u8..3, 0u64..60), 1..600),
    ) {
        let cache = CacheConfig::new(2048, 8, 64);
        let caches = Caches::Split { code: cache.clone(), data: cache };
        let level = LevelConfig { name: "l1".to_owned(), caches, sharing: Sharing::Private };
        let config = HierarchyConfig { levels: vec![level], ..HierarchyConfig::default() };
        let mut filtered = Hierarchy::behind_filter(&config, Unobserved).unwrap();
        let mut whole = Hierarchy::behind_filter(&config, Unobserved).unwrap();
        let stamps = filtered.stamps(THREAD, Kind::Load).unwrap();
        let marks = filtered.marks(THREAD).unwrap();
        let mut direct = filtered.direct(THREAD, Kind::Load).unwrap();
        let mut known = std::collections::HashMap::new();
        let mut passed = ByKind::default();
        for (now, step) in steps.into_iter().enumerate() {
            let r = reference(step, now as u64 + 1);
            whole.reference(THREAD, &r);
            let mut gone = Vec::new();
            whole.departed(THREAD, Kind::Load, |line| gone.push(line));
            let line = r.addr.0 / 64;
            if let Some(&slot) = known.get(&line) {
                prop_assert!(gone.is_empty());
                stamps[slot as usize].store(r.now, Relaxed);
                if r.kind == Kind::Store {
                    marks[slot as usize].fetch_or(WRITTEN, Relaxed);
                }
                passed[r.kind] += 1;
                continue;
            }
            prop_assert!(direct.is_one_line(r.addr, r.size));
            let brought = direct.bring(r.addr, r.kind, r.now);
            prop_assert_eq!(brought.departed.into_iter().collect::<Vec<_>>(), gone);
            brought.departed.map(|gone| known.remove(&(gone.0 / 64)));
            // Some are forgotten, and looked for again.
            if !r.pc.0.is_multiple_of(3) {
                known.insert(line, brought.slot);
            }
        }
        filtered.give_back(&direct, Kind::Load);
        filtered.count_hits(THREAD, 0, passed);
        prop_assert_eq!(filtered.report(), whole.report());
    }

    #[test]
    fn what_passes_changes_no_miss(steps in steps()) {
        let config = hierarchy(Some(Inclusion::NonInclusive));
        let mut filtered = Hierarchy::behind_filter(&config, Unobserved).unwrap();
        let mut whole = Hierarchy::behind_filter(&config, Unobserved).unwrap();
        let stamps = filtered.stamps(THREAD, Kind::Load).unwrap();
        let mut known = std::collections::HashMap::new();
        for (now, step) in steps.into_iter().enumerate() {
            let r = reference(step, now as u64 + 1);
            whole.reference(THREAD, &r);
            let line = r.addr.0 / 64;
            let passes = match known.get(&line) {
                Some(&Standing::All(slot)) if r.kind != Kind::Fetch => Some(slot),
                Some(&Standing::Loads(slot)) if r.kind == Kind::Load => Some(slot),
                _ => None,
            };
            if let Some(slot) = passes {
                stamps[slot as usize].store(r.now, Relaxed);
                continue;
            }
            let Some(answer) = filtered.reference_at_once(THREAD, &r) else {
                filtered.reference(THREAD, &r);
                continue;
            };
            if r.kind != Kind::Fetch {
                known.insert(line, answer.standing);
                answer.departed.map(|gone| known.remove(&(gone.0 / 64)));
            }
        }
        for (one, other) in filtered.report().caches.iter().zip(&whole.report().caches) {
            prop_assert_eq!(one.stats.misses, other.stats.misses);
            prop_assert_eq!(one.stats.write_backs, other.stats.write_backs);
        }
    }

    /// A TLB that is looked at by hash behaves like one of a few ways that is not.
    #[test]
    fn a_fifo_tlb_lets_its_pages_pass(pages in prop::collection::vec(0u64..90, 1..600)) {
        let tlb = TlbConfig { replacement: Replacement::Fifo, ..TlbConfig::new(40, 40) };
        let level = TlbLevelConfig { name: "tlb".to_owned(), tlbs: Tlbs::Unified(tlb) };
        let config = TlbHierarchyConfig { levels: vec![level], ..TlbHierarchyConfig::default() };
        let mut model = TlbModel::new(&config).unwrap();
        let mut queue = std::collections::VecDeque::new();
        let mut misses = 0;
        for page in pages {
            let mut gone = Vec::new();
            let at = (GuestVa(page << 12 | 8), 8);
            model.reference(THREAD, Kind::Load, at, |page| gone.push(page));
            let mut expected = Vec::new();
            if !queue.contains(&page) {
                misses += 1;
                queue.push_back(page);
                if queue.len() > 40 {
                    expected.extend(queue.pop_front().map(|page| GuestVa(page << 12)));
                }
            }
            prop_assert_eq!(gone, expected);
            prop_assert_eq!(model.report().tlbs[0].misses.load, misses);
            prop_assert_eq!(model.report().walks.walks.load, misses);
        }
    }
}
