//! No record, however strange, makes a model panic, and what is counted adds up.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind, Record, Totals};
use ichnos_model::{
    BlockVectors, BranchConfig, BranchModel, CacheConfig, Caches, DirectionConfig, Hierarchy,
    HierarchyConfig, InsnMix, LruSweep, Machine, Optimal, References, ReuseDistance, Shards,
    Straddle, StrideProfile, TlbModel, WorkingSet,
};
use proptest::prelude::*;

use super::drive::{feed, single};

fn addr() -> impl Strategy<Value = GuestVa> {
    prop_oneof![
        any::<u64>(),
        (0u64..100).prop_map(|below| u64::MAX - below),
        0u64..300,
        (0u64..1 << 20).prop_map(|offset| 0x7fff_ffff_0000 + offset),
    ]
    .prop_map(GuestVa)
}

fn record() -> impl Strategy<Value = Record> {
    let size = prop_oneof![0u32..70, 0u32..70_000];
    (addr(), size, any::<u8>(), any::<u8>(), 0u8..8).prop_map(|(addr, size, a, b, which)| {
        let flags = AccessFlags(b);
        match which {
            0..=2 => Record::Insn { len: a, kind: InsnKind(b % 10), pc: addr },
            3 => Record::Load { flags, size, addr },
            4 => Record::Store { flags, size, addr },
            5 => Record::Branch { taken: a & 1 == 0, target: addr },
            6 => Record::Prefetch { flags, size, addr },
            _ => Record::Flush { flags, size, addr },
        }
    })
}

fn caches() -> impl Strategy<Value = HierarchyConfig> {
    let machines: Vec<HierarchyConfig> = Machine::all().into_iter().map(|m| m.caches).collect();
    let words = [
        "4K,4,8,srrip,stream",
        "4K,4,64,3c,best-offset,victim=4",
        "64K,8,4096,sectors=64,drrip",
        "1K,1,64,skewed,stride",
        "3K,3,64,write-through,no-allocate",
        "512,8,64,nru,next-line=16",
    ];
    let single = words.map(|text| single(CacheConfig::parse("l1d", text).expect("right")));
    let geometry = || CacheConfig::new(1024, 2, 32);
    let one = HierarchyConfig::cachegrind(geometry(), geometry(), CacheConfig::new(4096, 4, 64));
    assert_eq!(one.straddle, Straddle::One);
    prop::sample::select([machines, single.to_vec(), vec![one]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hierarchies_take_anything(config in caches(), records in prop::collection::vec(record(), 1..200)) {
        let mut model = Hierarchy::new(&config).unwrap();
        feed(&mut model, &records);
        let report = model.report();
        let mut totals = Totals::default();
        records.iter().for_each(|record| totals.count(record));
        prop_assert_eq!(report.instructions, totals.insns);
        for cache in &report.caches {
            let stats = &cache.stats;
            prop_assert!(stats.misses.total() <= stats.accesses.total());
            prop_assert!(stats.hits().total() + stats.misses.total() == stats.accesses.total());
            let causes = stats.compulsory + stats.capacity + stats.conflict;
            prop_assert!(causes.total() == 0 || causes == stats.misses);
        }
    }

    #[test]
    fn the_others_take_anything(records in prop::collection::vec(record(), 1..200)) {
        let mut totals = Totals::default();
        records.iter().for_each(|record| totals.count(record));
        for (_, direction) in DirectionConfig::ALL {
            let mut model = BranchModel::new(&BranchConfig { direction, ..BranchConfig::default() }).unwrap();
            feed(&mut model, &records);
            prop_assert_eq!(model.report().instructions, totals.insns);
        }
        for machine in Machine::all() {
            let mut model = TlbModel::new(&machine.tlbs).unwrap();
            feed(&mut model, &records);
            prop_assert_eq!(model.report().instructions, totals.insns);
        }
        let mut reuse = ReuseDistance::new(64, References::All).unwrap();
        feed(&mut reuse, &records);
        prop_assert_eq!(reuse.histogram().first, reuse.footprint() as u64);
        feed(&mut Shards::new(1, References::Data, 7, 50).unwrap(), &records);
        feed(&mut WorkingSet::new(4096, References::All, 3).unwrap(), &records);
        feed(&mut StrideProfile::new(), &records);
        let mut blocks = BlockVectors::new(5).unwrap();
        feed(&mut blocks, &records);
        let counted: u64 = blocks.intervals().iter().map(|interval| interval.instructions).sum();
        prop_assert_eq!(counted, totals.insns);
        let mut mix = InsnMix::new();
        feed(&mut mix, &records);
        prop_assert_eq!(mix.report().totals, totals);
        let small = CacheConfig::new(1024, 2, 64);
        feed(&mut LruSweep::new(std::slice::from_ref(&small), References::All).unwrap(), &records);
        let mut optimal = Optimal::new(&Caches::Unified(small), 1000).unwrap();
        feed(&mut optimal, &records);
        let report = optimal.report();
        prop_assert!(report.misses.total() <= report.accesses.total());
    }
}
