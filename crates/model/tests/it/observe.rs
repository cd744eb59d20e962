//! Observers add up to the counts of the caches they observe.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZeroU64;

use ichnos_base::{
    Batch, EndStatus, Event, GuestVa, InsnKind, ProcessId, Record, Sink, ThreadId, ThreadStart,
};
use ichnos_model::{
    ByKind, CacheConfig, Caches, Hierarchy, HierarchyConfig, LevelConfig, PerPc, PerRegion,
    PerThread, Random, Region, Sharing, Windowed,
};

use super::drive::{data_level, feed};

fn config() -> HierarchyConfig {
    let split =
        Caches::Split { code: CacheConfig::new(512, 2, 64), data: CacheConfig::new(1024, 2, 64) };
    let first = LevelConfig { name: "l1".to_owned(), caches: split, sharing: Sharing::Private };
    let second = LevelConfig {
        name: "l2".to_owned(),
        caches: Caches::Unified(CacheConfig::new(4096, 4, 64)),
        sharing: Sharing::Shared,
    };
    HierarchyConfig { levels: vec![first, second], ..HierarchyConfig::default() }
}

fn records(seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed);
    (0..2000)
        .flat_map(|_| {
            let pc = GuestVa(0x1000 + random.below(300) * 4);
            let addr = GuestVa(0x8000 + random.below(1 << 12) * 8);
            let data =
                if random.below(3) == 0 { Record::store(addr, 8) } else { Record::load(addr, 8) };
            [Record::insn(pc, 4, InsnKind::OTHER), data]
        })
        .collect()
}

#[test]
fn observers_add_up() {
    let regions = vec![
        Region { start: GuestVa(0x8000), len: 0x1000, name: "low".to_owned() },
        Region { start: GuestVa(0xa000), len: 0x1000, name: "high".to_owned() },
    ];
    let by_region = PerRegion::new(regions).expect("no overlap");
    let observer = (PerPc::new(2), (PerThread::default(), by_region));
    let mut model = Hierarchy::observed(&config(), observer).expect("right");
    for thread in 0..3 {
        let records = records(u64::from(thread));
        model.records(&Batch::new(ThreadId(thread), 0, &records)).expect("models cannot fail");
    }
    let report = model.report();
    let (l1i, l1d) = (report.total("l1i").expect("it"), report.total("l1d").expect("it"));
    let l2 = report.total("l2").expect("it");
    let want = (l1i.accesses + l1d.accesses, l1i.misses + l1d.misses, l2.misses);
    assert!(want.2.total() > 100 && want.2.total() < want.1.total());

    let (per_pc, (per_thread, per_region)) = model.observer();
    let sum = |parts: &mut dyn Iterator<Item = (ByKind, &[ByKind])>| {
        let mut sum = (ByKind::default(), ByKind::default(), ByKind::default());
        for (accesses, misses) in parts {
            sum.0 += accesses;
            sum.1 += misses.first().copied().unwrap_or_default();
            sum.2 += misses.get(1).copied().unwrap_or_default();
        }
        sum
    };
    let pcs = per_pc.counts();
    assert_eq!(sum(&mut pcs.iter().map(|c| (c.accesses, &c.misses[..]))), want);
    assert!(pcs.is_sorted_by_key(|c| c.pc) && pcs.len() <= 300);
    assert_eq!(sum(&mut per_thread.counts().map(|(_, c)| (c.accesses, &c.misses[..]))), want);
    let elsewhere = per_region.elsewhere();
    let regions = per_region.counts().map(|(_, c)| c).chain([elsewhere]);
    assert_eq!(sum(&mut regions.map(|c| (c.accesses, &c.misses[..]))), want);
    assert_eq!(elsewhere.accesses.fetch, want.0.fetch);
}

#[test]
fn windows_add_up_and_are_exact() {
    let records = records(7);
    let mut seen = Vec::new();
    let mut windowed = Windowed::new(
        Hierarchy::new(&config()).expect("right"),
        NonZeroU64::new(300).expect("not zero"),
        |model: &mut Hierarchy, instructions| {
            let report = model.report();
            assert_eq!(report.instructions, instructions);
            seen.push((instructions, report.total("l1d").expect("it").accesses.total()));
        },
    );
    feed(&mut windowed, &records);
    let mut alone = Hierarchy::new(&config()).expect("right");
    feed(&mut alone, &records);
    assert_eq!(windowed.into_sink().report(), alone.report());
    assert_eq!(seen.len(), 7);
    assert!(seen.iter().all(|&(instructions, accesses)| instructions == accesses));
}

/// Two processes with the same addresses do not share lines, two threads of one
/// process do, and a fork of cores gives each its own private caches.
#[test]
fn processes_are_told_apart() {
    let level = data_level("l1", CacheConfig::new(4096, 4, 64));
    let config = HierarchyConfig { levels: vec![level], ..HierarchyConfig::default() };
    let load = [Record::load(GuestVa(0x1000), 8)];
    let run = |process: u32| {
        let mut model = Hierarchy::new(&config).expect("right");
        for thread in 0..2 {
            let process = ProcessId(if thread == 0 { 0 } else { process });
            let start = ThreadStart { process, ..ThreadStart::default() };
            let id = ThreadId(thread);
            model.event(id, &Event::ThreadStart(start)).expect("models cannot fail");
            model.records(&Batch::new(id, 0, &load)).expect("models cannot fail");
        }
        model.report().total("l1d").expect("it").misses.load
    };
    assert_eq!((run(0), run(1)), (1, 2));
}

/// Ten thousand threads, one after the other, use the caches of one core.
#[test]
fn ended_threads_leave_their_core_to_others() {
    let load = [Record::load(GuestVa(0x1000), 8)];
    let mut model = Hierarchy::new(&config()).expect("right");
    for thread in 0..10_000 {
        let id = ThreadId(thread);
        let start = Event::ThreadStart(ThreadStart::default());
        model.event(id, &start).expect("models cannot fail");
        model.records(&Batch::new(id, 0, &load)).expect("models cannot fail");
        let end = Event::ThreadEnd(EndStatus::Exited(0));
        model.event(id, &end).expect("models cannot fail");
    }
    let report = model.report();
    assert_eq!(report.caches.iter().filter(|cache| cache.name == "l1d").count(), 1);
    assert_eq!(report.total("l1d").expect("it").misses.load, 1);
}

#[test]
fn private_caches_are_per_core_and_migration_moves_threads() {
    let load = [Record::load(GuestVa(0x1000), 8)];
    let run = |cores: u32, migrate: bool| {
        let mut model = Hierarchy::new(&HierarchyConfig { cores, ..config() }).expect("right");
        for thread in 0..4 {
            let id = ThreadId(thread);
            if migrate {
                model.event(id, &Event::Migrate { cpu: 0 }).expect("models cannot fail");
            }
            model.records(&Batch::new(id, 0, &load)).expect("models cannot fail");
        }
        let report = model.report();
        (report.total("l1d").expect("it").misses.load, report.total("l2").expect("it").misses.load)
    };
    assert_eq!(run(0, false), (4, 1));
    assert_eq!(run(2, false), (2, 1));
    assert_eq!(run(2, true), (1, 1));
}
