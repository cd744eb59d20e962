//! One pass for many caches against each cache alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZeroUsize;

use ichnos_base::{GuestVa, InsnKind, Record};
use ichnos_model::{
    CacheConfig, Caches, Grid, Hierarchy, HierarchyConfig, Hints, LevelConfig, LruSweep, Parallel,
    Random, References, Sharing, Sweep, SweepCache,
};
use proptest::prelude::*;

use super::drive::{feed, single};

fn configs() -> Vec<CacheConfig> {
    let mut configs = Vec::new();
    for line in [32, 64] {
        for ways in [1u32, 2, 3, 4, 8] {
            for log_sets in [0, 1, 3, 4, 6] {
                let size = u64::from(ways * line) << log_sets;
                configs.push(CacheConfig::new(size, ways, line));
            }
        }
    }
    configs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_sweep_equals_each_cache_alone(
        accesses in prop::collection::vec((0u64..3000, 1u32..20, any::<bool>()), 1..300),
    ) {
        let mut records = Vec::new();
        for (addr, size, store) in accesses {
            records.push(Record::insn(GuestVa(addr), 4, InsnKind::OTHER));
            let addr = GuestVa(addr * addr % 5000);
            records.push(if store { Record::store(addr, size) } else { Record::load(addr, size) });
        }
        let configs = configs();
        let mut sweep = LruSweep::new(&configs, References::Data).unwrap();
        feed(&mut sweep, &records);
        for (point, config) in sweep.report().iter().zip(&configs) {
            let mut alone = Hierarchy::new(&single(config.clone())).unwrap();
            feed(&mut alone, &records);
            let stats = alone.report().total("l1d").unwrap();
            prop_assert_eq!(point.accesses, stats.accesses, "{:?}", config);
            prop_assert_eq!(point.misses, stats.misses, "{:?}", config);
        }
    }
}

#[test]
fn models_in_parallel_equal_models_alone() {
    let mut random = Random::new(3);
    let records: Vec<Record> =
        (0..20_000).map(|_| Record::load(GuestVa(random.below(1 << 16)), 4)).collect();
    let models: Vec<Hierarchy> = (0..7)
        .map(|at| {
            let words = ["lru", "plru", "fifo", "random=5", "nru", "srrip", "drrip"][at];
            let config = CacheConfig::parse("l1d", &format!("8K,4,64,{words}")).expect("right");
            Hierarchy::new(&single(config)).expect("right")
        })
        .collect();
    let alone: Vec<_> = (0..7)
        .map(|at| {
            let words = ["lru", "plru", "fifo", "random=5", "nru", "srrip", "drrip"][at];
            let config = CacheConfig::parse("l1d", &format!("8K,4,64,{words}")).expect("right");
            let mut model = Hierarchy::new(&single(config)).expect("right");
            feed(&mut model, &records);
            model.report()
        })
        .collect();
    let mut parallel = Parallel::new(models, NonZeroUsize::new(3).expect("not zero"));
    feed(&mut parallel, &records);
    let together: Vec<_> = parallel.into_models().iter().map(Hierarchy::report).collect();
    assert_eq!(together, alone);
}

#[test]
fn errors_name_the_cache() {
    let odd = CacheConfig::new(3 * 64, 1, 64);
    let message = LruSweep::new(&[CacheConfig::new(64, 1, 64), odd], References::Data)
        .expect_err("three sets")
        .to_string();
    assert_eq!(message, "sweep1.sets must be a power of two, but is 3");
}

/// A whole sweep gives the same counts by either method.
#[test]
fn both_methods_agree() {
    let mut random = Random::new(8);
    let records: Vec<Record> = (0..20_000)
        .flat_map(|_| {
            let pc = GuestVa(0x1000 + random.below(5000));
            let addr = GuestVa(random.below(1 << 14) * random.below(3));
            [Record::insn(pc, 5, InsnKind::OTHER), Record::store(addr, 8)]
        })
        .collect();
    let cache = || CacheConfig::new(8 << 10, 2, 64);
    let mut base = HierarchyConfig {
        levels: vec![LevelConfig {
            name: "l1".to_owned(),
            caches: Caches::Split { code: cache(), data: cache() },
            sharing: Sharing::Shared,
        }],
        hints: Hints::Ignore,
        ..HierarchyConfig::default()
    };
    let grid = Grid::parse("l1d.size=1K..32K,l1d.ways=1,2,l1i.ways=1,4").expect("right");
    let threads = NonZeroUsize::new(2).expect("not zero");
    let run = |base: &HierarchyConfig| {
        let points = grid.points(base).expect("right");
        let configs: Vec<HierarchyConfig> = points.into_iter().map(|point| point.config).collect();
        let mut sweep = Sweep::new(&configs, threads).expect("right");
        feed(&mut sweep, &records);
        (sweep.is_one_pass(), sweep.into_results())
    };
    let (one_pass, fast) = run(&base);
    assert!(one_pass && fast.len() == 24);
    // Obeying hints that never come changes nothing but the method.
    base.hints = Hints::Obey;
    let (one_pass, slow) = run(&base);
    assert!(!one_pass);
    assert_eq!(fast.len(), slow.len());
    for (fast, slow) in fast.iter().flatten().zip(slow.iter().flatten()) {
        assert!(fast.stats.is_none() && slow.stats.is_some());
        assert_eq!(*fast, SweepCache { stats: None, ..slow.clone() });
        assert!(fast.instructions > 0);
    }
    // Misses are the same, but one pass does not know what write-through sends on.
    let mut through = base.clone();
    through.hints = Hints::Ignore;
    through.set("l1d.write", "write-through").expect("it exists");
    let (one_pass, through) = run(&through);
    assert!(!one_pass);
    let sent = |caches: &Vec<SweepCache>| caches[1].stats.expect("counted").write_throughs;
    assert!(through.iter().all(|caches| sent(caches) > 0));
}
