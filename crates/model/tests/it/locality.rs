//! Locality models against their definitions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;

use ichnos_base::{GuestVa, InsnKind, Record};
use ichnos_model::{
    BlockVectors, InsnMix, Phases, PhasesConfig, Random, References, ReuseDistance, Shards,
    StrideProfile, WorkingSet,
};
use proptest::prelude::*;

use super::drive::{access, feed};
use super::replacement::lines;

/// Distances by a list that is searched and reordered.
fn naive_distances(stream: &[u64]) -> (Vec<u64>, u64) {
    let (mut list, mut distances, mut first) = (Vec::new(), Vec::new(), 0);
    for line in stream {
        match list.iter().position(|other| other == line) {
            None => first += 1,
            Some(at) => {
                list.remove(at);
                if distances.len() <= at {
                    distances.resize(at + 1, 0);
                }
                distances[at] += 1;
            }
        }
        list.insert(0, *line);
    }
    (distances, first)
}

fn reuse(stream: &[u64]) -> ReuseDistance {
    let mut reuse = ReuseDistance::new(64, References::Data).expect("a power of two");
    let records: Vec<Record> = stream.iter().map(|&line| access(line, false)).collect();
    feed(&mut reuse, &records);
    reuse
}

proptest! {
    #[test]
    fn reuse_distances_equal_their_twin(stream in lines(600)) {
        let stream: Vec<u64> = stream.into_iter().map(|(line, _)| line).collect();
        let histogram = reuse(&stream).histogram();
        let (distances, first) = naive_distances(&stream);
        prop_assert_eq!(&histogram.distances, &distances);
        prop_assert_eq!(histogram.first, first);
        for lines in [0, 1, 2, 5, 100] {
            let ratio = histogram.misses(lines) as f64 / stream.len() as f64;
            prop_assert!((histogram.curve().at(lines) - ratio).abs() < 1e-9);
        }
    }

    #[test]
    fn working_sets_are_sets(stream in lines(200), window in 1u64..20) {
        let mut model = WorkingSet::new(64, References::Data, window).unwrap();
        let mut records = Vec::new();
        for &(line, store) in &stream {
            records.push(Record::insn(GuestVa(0), 4, InsnKind::OTHER));
            records.push(access(line, store));
        }
        feed(&mut model, &records);
        let mut seen = HashSet::new();
        let points = model.points();
        prop_assert_eq!(points.len(), stream.len().div_ceil(window as usize));
        for (point, part) in points.iter().zip(stream.chunks(window as usize)) {
            let set: HashSet<u64> = part.iter().map(|&(line, _)| line).collect();
            prop_assert_eq!(point.lines, set.len() as u64);
            prop_assert_eq!(point.new_lines, set.iter().filter(|&&line| seen.insert(line)).count() as u64);
            prop_assert_eq!(point.references, part.len() as u64);
        }
        prop_assert_eq!(model.footprint(), seen.len());
    }
}

/// A stream long enough for the moments to run out several times, with a
/// footprint that outgrows the first allocation.
#[test]
fn reuse_distances_survive_renumbering() {
    let mut random = Random::new(9);
    let stream: Vec<u64> = (0..600_000)
        .map(|_| {
            let bits = random.below(18);
            random.below(1 << bits)
        })
        .collect();
    let histogram = reuse(&stream).histogram();
    // The naive list is too slow here; a binary-indexed count by last use over
    // the whole stream, without renumbering, is independent enough.
    let mut last = std::collections::HashMap::new();
    let mut tree = vec![0i64; stream.len() + 1];
    let add = |tree: &mut Vec<i64>, at: usize, by: i64| {
        let mut at = at + 1;
        while at < tree.len() {
            tree[at] += by;
            at += at & at.wrapping_neg();
        }
    };
    let sum = |tree: &[i64], to: usize| {
        let (mut at, mut sum) = (to, 0);
        while at > 0 {
            sum += tree[at];
            at &= at - 1;
        }
        sum
    };
    let mut distances = vec![0u64; histogram.distances.len()];
    for (at, &line) in stream.iter().enumerate() {
        if let Some(before) = last.insert(line, at) {
            distances[(sum(&tree, at) - sum(&tree, before + 1)) as usize] += 1;
            add(&mut tree, before, -1);
        }
        add(&mut tree, at, 1);
    }
    assert_eq!(histogram.distances, distances);
    assert_eq!(histogram.first, last.len() as u64);
}

#[test]
fn sampled_curves_are_near_the_exact_ones() {
    let mut random = Random::new(4);
    let stream: Vec<u64> = (0..400_000)
        .map(|_| {
            let bits = 4 + random.below(13);
            random.below(1 << bits)
        })
        .collect();
    let records: Vec<Record> = stream.iter().map(|&line| access(line, false)).collect();
    let exact = reuse(&stream).histogram().curve();
    for (one_in, most) in [(1, 1 << 20), (10, 1 << 20), (1, 4000)] {
        let mut shards = Shards::new(64, References::Data, one_in, most).expect("right numbers");
        feed(&mut shards, &records);
        let off = exact.distance(&shards.curve(), 1 << 17);
        // The paper reports errors below 0.02 with a few thousand samples.
        let bound = if one_in == 1 && most > 4000 { 0.002 } else { 0.03 };
        assert!(off < bound, "one in {one_in}, at most {most}: off by {off}");
        assert!((exact.at(1 << 30) - shards.curve().at(1 << 30)).abs() < 0.02);
    }
}

#[test]
fn strides_and_mix_by_hand() {
    let mut records = Vec::new();
    for turn in 0..10u64 {
        records.push(Record::insn(GuestVa(0x100), 3, InsnKind::OTHER));
        records.push(Record::load(GuestVa(0x1000 + turn * 8), 8));
        records.push(Record::store(GuestVa(0x9000 - turn * 4), 4));
        records.push(Record::insn(GuestVa(0x103), 2, InsnKind::BRANCH));
        records.push(Record::branch(turn < 9, GuestVa(0x100)));
    }
    let mut strides = StrideProfile::new();
    feed(&mut strides, &records);
    let report = strides.report();
    assert_eq!(report[0].dominant(), Some((8, 1.0)));
    assert_eq!(report[1].dominant(), Some((-4, 1.0)));
    let mut mix = InsnMix::new();
    feed(&mut mix, &records);
    let mix = mix.report();
    assert_eq!(mix.kinds, [(InsnKind::OTHER, 10), (InsnKind::BRANCH, 10)]);
    assert_eq!(mix.lengths, [0, 0, 10, 10]);
    assert_eq!((mix.load_sizes, mix.bytes_stored), (vec![(8, 10)], 40));
    assert_eq!((mix.totals.insns, mix.totals.taken), (20, 9));
}

/// A run of three kinds of loops, interleaved in long stretches of so many intervals of 1000
/// instructions.
fn three_loops(stretches: [(u64, u64); 4]) -> BlockVectors {
    let mut records = Vec::new();
    let mut random = Random::new(1);
    for (kind, intervals) in stretches {
        for _ in 0..intervals * 100 {
            // Ten instructions: seven of one block and three of a shared one,
            // with some noise among many further blocks.
            let noise = 0x9000 + random.below(64) * 0x100;
            for (block, len) in [(0x1000 * (kind + 1), 6), (0x8000, 3), (noise, 1)] {
                for step in 0..len {
                    let last = step + 1 == len;
                    let kind = if last { InsnKind::JUMP } else { InsnKind::OTHER };
                    records.push(Record::insn(GuestVa(block + step * 4), 4, kind));
                }
            }
        }
    }
    let mut vectors = BlockVectors::new(1000).expect("not zero");
    feed(&mut vectors, &records);
    vectors
}

/// It has three phases whose weights are the shares of the loops.
#[test]
fn phases_are_found_with_their_weights() {
    let vectors = three_loops([(0, 10), (1, 5), (0, 10), (2, 25)]);
    assert_eq!(vectors.intervals().len(), 50);
    assert_eq!(vectors.leaders().len(), 3 + 1 + 64);
    let first: u64 = vectors.intervals()[0].counts.iter().map(|&(_, count)| count).sum();
    assert_eq!(first, 1000);
    let found = Phases::find(vectors.intervals(), &PhasesConfig::default());
    let mut weights: Vec<f64> = found.phases.iter().map(|phase| phase.weight).collect();
    weights.sort_by(f64::total_cmp);
    assert_eq!(found.phases.len(), 3, "{:?}", found.scores);
    for (weight, want) in weights.iter().zip([0.1, 0.4, 0.5]) {
        assert!((weight - want).abs() < 1e-9, "{weights:?}");
    }
    assert_eq!(found.of_interval[0], found.of_interval[20]);
    assert_ne!(found.of_interval[0], found.of_interval[12]);
}

/// However many phases are allowed, three are found: more describe the noise.
#[test]
fn no_more_phases_are_found_than_there_are() {
    for stretches in [[(0, 10), (1, 5), (0, 10), (2, 25)], [(0, 4), (1, 3), (2, 4), (1, 2)]] {
        let vectors = three_loops(stretches);
        let intervals = vectors.intervals().len() as u32;
        for most in [3, 10, intervals - 1, intervals, 1000] {
            for seed in 0..4 {
                let config = PhasesConfig { most, seed, ..PhasesConfig::default() };
                let found = Phases::find(vectors.intervals(), &config);
                assert_eq!(found.phases.len(), 3, "{intervals} {most}: {:?}", found.scores);
                let weight: f64 = found.phases.iter().map(|phase| phase.weight).sum();
                assert!((weight - 1.0).abs() < 1e-9);
            }
        }
    }
}
