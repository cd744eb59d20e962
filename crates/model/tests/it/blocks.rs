//! Executions told as blocks against the same told as records: every model that takes
//! blocks must count the same.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::num::NonZeroUsize;

use ichnos_base::{
    AccessFlags, Batch, BlockId, Blocks, GuestVa, InsnKind, Record, Shapes, Sink, ThreadId,
};
use ichnos_model::{
    CacheConfig, Hierarchy, HierarchyConfig, LruSweep, Parallel, Random, References, ReuseDistance,
};

/// A program: blocks, and the same blocks as a source tells them.
struct Program(Vec<Vec<Record>>);

impl Shapes for Program {
    fn records(&self, block: BlockId) -> &[Record] {
        self.0.get(block.index()).map_or(&[], Vec::as_slice)
    }
}

impl Program {
    /// Blocks of a few instructions, near enough to each other to share lines, some of which
    /// prefetch, flush, or touch several lines.
    fn new(random: &mut Random) -> Self {
        Self((0..24).map(|at| Self::block(random, 0x1000 + at * 53)).collect())
    }

    fn block(random: &mut Random, mut pc: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..1 + random.below(12) {
            let len = 1 + random.below(15) as u8;
            records.push(Record::insn(GuestVa(pc), len, InsnKind::OTHER));
            pc += u64::from(len);
            let (flags, addr) = (AccessFlags::NONE, GuestVa(0));
            let size = [1, 8, 32, 100][random.below(4) as usize];
            records.extend(match random.below(20) {
                0..=6 => Some(Record::load(addr, size)),
                7..=10 => Some(Record::store(addr, size)),
                11 => Some(Record::Prefetch { flags, size: 0, addr }),
                12 => Some(Record::Flush { flags, size: 0, addr }),
                _ => None,
            });
        }
        records.push(Record::branch(true, GuestVa(0x1000)));
        records
    }

    /// A run, as both sinks are told it.
    fn run<S: Sink<Error = Infallible>>(&self, seed: u64, by_blocks: &mut S, by_records: &mut S) {
        assert!(by_blocks.takes_blocks());
        let mut random = Random::new(seed);
        for turn in 0..60 {
            let thread = ThreadId(turn % 3);
            let (mut blocks, mut words, mut records) = (Vec::new(), Vec::new(), Vec::new());
            let mut block = BlockId(0);
            for _ in 0..random.below(30) {
                // Loops of one block and of neighbours, and jumps.
                block = match random.below(4) {
                    0 => block,
                    1 => BlockId(block.0 ^ 1),
                    _ => BlockId(random.below(self.0.len() as u64) as u32),
                };
                blocks.push(block);
                for mut record in self.records(block).iter().copied() {
                    // Mostly data; now and then the code itself.
                    let word = [0x8000, 0x1000][usize::from(random.below(8) == 0)];
                    let word = word + random.below(3) * random.below(700);
                    match &mut record {
                        Record::Load { addr, .. }
                        | Record::Store { addr, .. }
                        | Record::Prefetch { addr, .. }
                        | Record::Flush { addr, .. } => {
                            words.push(word);
                            *addr = GuestVa(word);
                        }
                        Record::Insn { .. } | Record::Branch { .. } => {}
                    }
                    records.push(record);
                }
            }
            let (insns_before, shapes) = (0, self as &dyn Shapes);
            let (blocks, words) = (&blocks[..], &words[..]);
            let told = Blocks { thread, insns_before, blocks, words, shapes };
            let Ok(_) = by_blocks.blocks(&told);
            let Ok(_) = by_records.records(&Batch::new(thread, 0, &records));
        }
    }
}

fn hierarchy(caches: &[(&str, &str)]) -> HierarchyConfig {
    HierarchyConfig::from_short(caches).expect("the test's caches are right")
}

/// The hierarchies that take blocks, one for each thing that could make a difference.
fn hierarchies() -> Vec<HierarchyConfig> {
    let l3 = ("l3", "8K,16,64");
    let mut all = vec![
        hierarchy(&[("l1i", "256,2,64"), ("l1d", "512,4,64"), ("l2", "2K,4,64"), l3]),
        hierarchy(&[("l1i", "128,1,32"), ("l1d", "256,1,64"), ("l2", "1K,2,64,stride")]),
        hierarchy(&[("l1i", "256,2,16"), ("l1d", "512,4,32,write-through"), ("l2", "2K,4,128")]),
        hierarchy(&[("l1i", "256,4,64,fifo"), ("l1d", "512,8,64,srrip"), ("l2", "2K,4,64,drrip")]),
        hierarchy(&[("l1i", "256,4,64,plru"), ("l1d", "512,4,64,next-line,victim=4"), l3]),
        hierarchy(&[
            ("l1i", "256,4,64,random"),
            ("l1d", "512,4,64,3c"),
            ("l2", "1K,4,64,exclusive"),
        ]),
        hierarchy(&[("l1i", "256,2,64,shared"), ("l1d", "512,4,64,sectors=4,shared"), l3]),
        hierarchy(&[("l1d", "512,4,64")]),
        hierarchy(&[("l1i", "512,4,64")]),
    ];
    // All of the code, and nearly all of it.
    all.push(hierarchy(&[("l1i", "2K,4,64"), ("l1d", "512,4,64"), ("l2", "4K,4,64,stride")]));
    all.push(hierarchy(&[("l1i", "1K,2,64"), ("l1d", "512,4,64"), l3]));
    for at in [0, 9, 10] {
        let few_cores = HierarchyConfig { cores: 2, ..all[at].clone() };
        let straddle = ichnos_model::Straddle::One;
        all.extend([few_cores, HierarchyConfig { straddle, ..all[at].clone() }]);
    }
    all
}

#[test]
fn hierarchies_count_the_same() {
    for (at, config) in hierarchies().iter().enumerate() {
        for seed in 0..20 {
            let program = Program::new(&mut Random::new(seed));
            let mut models = [0; 2].map(|_| Hierarchy::new(config).expect("checked before"));
            let [by_blocks, by_records] = &mut models;
            program.run(seed, by_blocks, by_records);
            assert_eq!(by_blocks.report(), by_records.report(), "hierarchy {at}, seed {seed}");
        }
    }
}

#[test]
fn hierarchies_that_must_see_all_records_say_so() {
    for caches in [
        // Data may push code out, from beside it or from below.
        &[("l1", "512,4,64")][..],
        &[("l1d", "512,4,64"), ("l2", "2K,4,64")],
        &[("l1i", "256,2,64"), ("l1d", "512,4,64"), ("l2", "2K,4,64,inclusive")],
        // The first hit after a fill changes something, or a prefetcher wants to see it.
        &[("l1i", "256,2,64,srrip"), ("l1d", "512,4,64")],
        &[("l1i", "256,2,64,next-line"), ("l1d", "512,4,64")],
        &[("l1i", "256,2,64,sectors=2"), ("l1d", "512,4,64")],
    ] {
        let model = Hierarchy::new(&hierarchy(caches)).expect("checked before");
        assert!(!model.takes_blocks(), "{caches:?}");
    }
}

#[test]
fn sweeps_distances_and_parallel_models_count_the_same() {
    let configs = [CacheConfig::new(512, 2, 64), CacheConfig::new(512, 8, 32)];
    for seed in 0..20 {
        let program = Program::new(&mut Random::new(seed));
        let sweep = || LruSweep::new(&configs, References::Data).expect("right");
        let (mut by_blocks, mut by_records) = (sweep(), sweep());
        program.run(seed, &mut by_blocks, &mut by_records);
        assert_eq!(by_blocks.report(), by_records.report());

        let reuse = || ReuseDistance::new(64, References::Data).expect("right");
        let (mut by_blocks, mut by_records) = (reuse(), reuse());
        program.run(seed, &mut by_blocks, &mut by_records);
        assert_eq!(by_blocks.histogram(), by_records.histogram());

        let models = || hierarchies().iter().map(|c| Hierarchy::new(c).expect("right")).collect();
        let two = NonZeroUsize::MIN.saturating_add(1);
        let [mut by_blocks, mut by_records] = [0; 2].map(|_| Parallel::new(models(), two));
        program.run(seed, &mut by_blocks, &mut by_records);
        let reports = |all: Parallel<Hierarchy>| {
            all.into_models().iter().map(Hierarchy::report).collect::<Vec<_>>()
        };
        assert_eq!(reports(by_blocks), reports(by_records));
    }
}
