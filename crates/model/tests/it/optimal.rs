//! Belady's policy against a twin that looks for the farthest next use.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::Record;
use ichnos_model::{CacheConfig, Caches, Hierarchy, Optimal};
use proptest::prelude::*;

use super::drive::{access, feed, single};
use super::replacement::lines;

fn naive(stream: &[u64], sets: u64, ways: usize) -> u64 {
    let mut present: Vec<u64> = Vec::new();
    let mut misses = 0;
    for (at, &line) in stream.iter().enumerate() {
        if present.contains(&line) {
            continue;
        }
        misses += 1;
        let rivals: Vec<u64> =
            present.iter().copied().filter(|&other| other % sets == line % sets).collect();
        if rivals.len() == ways {
            let next = |other: u64| {
                stream[at..].iter().position(|&later| later == other).unwrap_or(usize::MAX)
            };
            let victim = rivals.into_iter().max_by_key(|&other| next(other)).expect("a full set");
            present.retain(|&other| other != victim);
        }
        present.push(line);
    }
    misses
}

proptest! {
    #[test]
    fn equals_its_twin_and_beats_lru(ways in 1u64..5, sets in 1u64..6, stream in lines(200)) {
        let config = CacheConfig::new(sets * ways * 64, ways as u32, 64);
        let mut optimal = Optimal::new(&Caches::Data(config.clone()), usize::MAX).unwrap();
        let mut lru = Hierarchy::new(&single(config)).unwrap();
        let records: Vec<Record> = stream.iter().map(|&(line, store)| access(line, store)).collect();
        feed(&mut optimal, &records);
        feed(&mut lru, &records);
        let lines: Vec<u64> = stream.iter().map(|&(line, _)| line).collect();
        let report = optimal.report();
        prop_assert_eq!(report.misses.total(), naive(&lines, sets, ways as usize));
        prop_assert_eq!(report.accesses.total(), lines.len() as u64);
        prop_assert!(!report.cut);
        let lru = lru.report().total("l1d").unwrap().misses;
        prop_assert_eq!(report.lru, lru);
        prop_assert!(report.misses.total() <= lru.total());
    }
}

#[test]
fn stops_at_its_limit() {
    let config = CacheConfig::new(4096, 1, 64);
    let mut optimal = Optimal::new(&Caches::Data(config), 3).unwrap();
    let records: Vec<Record> = (0..10).map(|line| access(line, false)).collect();
    feed(&mut optimal, &records);
    let report = optimal.report();
    assert!(report.cut);
    assert_eq!(report.accesses.total(), 3);
    // Nothing counts behind the limit, not even what would have hit.
    feed(&mut optimal, &[access(2, false)]);
    assert_eq!(optimal.report(), report);
    let mut full = Optimal::new(&Caches::Data(CacheConfig::new(4096, 1, 64)), 3).unwrap();
    feed(&mut full, &records[..3]);
    assert!(!full.report().cut);
}
