//! Worked examples from the literature.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::Record;
use ichnos_model::{CacheConfig, Caches, Optimal, Placement, Replacement};

use super::drive::{access, feed, loads};

/// One set of `ways` lines.
fn one_set(ways: u32, replacement: Replacement) -> CacheConfig {
    CacheConfig { replacement, ..CacheConfig::new(u64::from(ways) * 64, ways, 64) }
}

fn faults(ways: u32, replacement: Replacement, string: &[u64]) -> u64 {
    loads(one_set(ways, replacement), string).misses.total()
}

fn optimal_faults(ways: u32, string: &[u64]) -> u64 {
    let caches = Caches::Data(one_set(ways, Replacement::Lru));
    let mut optimal = Optimal::new(&caches, usize::MAX).expect("the geometry is right");
    let records: Vec<Record> = string.iter().map(|&line| access(line, false)).collect();
    feed(&mut optimal, &records);
    optimal.report().misses.total()
}

/// The reference string of Silberschatz, Galvin and Gagne, "Operating System
/// Concepts", chapter on page replacement, with three frames: FIFO has 15
/// faults, the optimal policy 9, LRU 12.
#[test]
fn textbook_string() {
    let string = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
    assert_eq!(faults(3, Replacement::Fifo, &string), 15);
    assert_eq!(faults(3, Replacement::Lru, &string), 12);
    assert_eq!(optimal_faults(3, &string), 9);
}

/// Belady, Nelson and Shedler, "An Anomaly in Space-Time Characteristics of
/// Certain Programs Running in a Paging Machine", CACM 1969: FIFO has 9 faults
/// with three frames and 10 with four.
#[test]
fn beladys_anomaly() {
    let string = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
    assert_eq!(faults(3, Replacement::Fifo, &string), 9);
    assert_eq!(faults(4, Replacement::Fifo, &string), 10);
    // A stack algorithm has no such anomaly.
    assert_eq!(faults(3, Replacement::Lru, &string), 10);
    assert_eq!(faults(4, Replacement::Lru, &string), 8);
}

/// Jaleel et al., "High Performance Cache Replacement Using Re-Reference
/// Interval Prediction", ISCA 2010, the illustration of a mixed pattern: a1 a2 a2 a1,
/// a scan b1 to b4, then a1 a2, on a set of four lines. LRU keeps b1 to b4 and
/// misses both a1 and a2 after the scan; two-bit RRIP with hit priority keeps
/// a1 and a2.
#[test]
fn rrip_survives_a_scan() {
    let string = [1, 2, 2, 1, 11, 12, 13, 14, 1, 2];
    assert_eq!(faults(4, Replacement::Lru, &string), 8);
    assert_eq!(faults(4, Replacement::Srrip, &string), 6);
}

/// The same paper, section 3: a cyclic pattern larger than the cache gets no
/// hits from LRU and SRRIP; BRRIP keeps part of it.
#[test]
fn brrip_survives_thrashing() {
    let string: Vec<u64> = (0..2000).map(|at| at % 5).collect();
    assert_eq!(faults(4, Replacement::Lru, &string), 2000);
    assert_eq!(faults(4, Replacement::Srrip, &string), 2000);
    assert!(faults(4, Replacement::Brrip, &string) < 1200);
}

/// DRRIP follows the better side: near SRRIP on a scan mix, near BRRIP on
/// thrashing, with 512 sets to duel in.
#[test]
fn drrip_finds_the_better_side() {
    let thrash: Vec<u64> = (0..40).flat_map(|_| 0..5 * 512).collect();
    let mixed: Vec<u64> = (0..40)
        .flat_map(|turn| {
            let scan = 100_000 + turn * 2048;
            (0..1024).chain(0..1024).chain(scan..scan + 2048)
        })
        .collect();
    let misses = |replacement, lines: &[u64]| {
        loads(CacheConfig { replacement, ..CacheConfig::new(512 * 4 * 64, 4, 64) }, lines)
            .misses
            .total()
    };
    for string in [thrash, mixed] {
        let [srrip, brrip, drrip] = [Replacement::Srrip, Replacement::Brrip, Replacement::Drrip]
            .map(|p| misses(p, &string));
        assert!(drrip <= srrip.max(brrip), "{srrip} {brrip} {drrip}");
        assert!(drrip as f64 <= srrip.min(brrip) as f64 * 1.25, "{srrip} {brrip} {drrip}");
    }
}

/// Tree pseudo-LRU is not LRU: the standard example. After 0 1 2 3 and a hit on
/// 0, LRU would evict 1; the tree points at the other half first and evicts 2.
#[test]
fn tree_plru_by_hand() {
    assert_eq!(faults(4, Replacement::TreePlru, &[0, 1, 2, 3, 0, 9, 1]), 5);
    assert_eq!(faults(4, Replacement::TreePlru, &[0, 1, 2, 3, 0, 9, 2]), 6);
    assert_eq!(faults(4, Replacement::Lru, &[0, 1, 2, 3, 0, 9, 1]), 6);
}

/// Seznec's point: strides that collide in one set of a two-way cache do not in
/// a skewed one. Eight lines, all in set 0 of 64.
#[test]
fn skewing_spreads_collisions() {
    let round: Vec<u64> = (0..8).map(|i| i * 64).collect();
    let string: Vec<u64> = round.iter().copied().cycle().take(800).collect();
    let base = CacheConfig::new(64 * 2 * 64, 2, 64);
    let misses =
        |placement| loads(CacheConfig { placement, ..base.clone() }, &string).misses.total();
    assert_eq!(misses(Placement::Modulo), 800);
    assert_eq!(misses(Placement::XorHash), 8);
    assert_eq!(misses(Placement::Skewed), 8);
}

/// Jouppi, "Improving Direct-Mapped Cache Performance", ISCA 1990: lines that
/// alternate in one set of a direct-mapped cache miss every time; a victim
/// cache of one line turns all but the first misses into swaps.
#[test]
fn a_victim_cache_ends_ping_pong() {
    let string: Vec<u64> = [0, 64].into_iter().cycle().take(100).collect();
    let direct = CacheConfig::new(64 * 64, 1, 64);
    let with_victim = CacheConfig { victim_lines: 1, ..direct.clone() };
    assert_eq!(loads(direct, &string).misses.total(), 100);
    let records: Vec<Record> = string.iter().map(|&line| access(line, false)).collect();
    let config = super::drive::single(with_victim);
    let mut model = ichnos_model::Hierarchy::new(&config).expect("the geometry is right");
    feed(&mut model, &records);
    let report = model.report();
    let victim = report.total("l1d-victim").expect("it has one");
    assert_eq!(report.total("l1d").expect("it exists").misses.total(), 100);
    assert_eq!((victim.accesses.total(), victim.misses.total()), (100, 2));
    assert_eq!(report.memory.reads.total(), 2);
}
