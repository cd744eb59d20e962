//! Every replacement policy and placement against a twin that is written from
//! the policy's definition alone, as simply as it can be.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;

use ichnos_model::{CacheConfig, Classify, Hierarchy, Placement, Random, Replacement};
use proptest::prelude::*;

use super::drive::{access, feed, single};

/// A way: the line, whether it is dirty, and the policy's note on it.
#[derive(Clone, Copy)]
struct Way {
    line: u64,
    dirty: bool,
    note: u64,
}

struct Naive {
    policy: Replacement,
    sets: Vec<Vec<Option<Way>>>,
    /// For tree-PLRU: per set, the bit of each inner node by its range of ways.
    trees: Vec<Vec<(usize, usize, bool)>>,
    clock: u64,
    random: Random,
    bimodal: u64,
    selector: i64,
    misses: u64,
    write_backs: u64,
}

impl Naive {
    fn new(policy: Replacement, sets: usize, ways: usize) -> Self {
        let seed = if let Replacement::Random { seed } = policy { seed } else { 0 };
        Self {
            policy,
            sets: vec![vec![None; ways]; sets],
            trees: vec![Vec::new(); sets],
            clock: 0,
            random: Random::new(seed),
            bimodal: 0,
            selector: 511,
            misses: 0,
            write_backs: 0,
        }
    }

    fn access(&mut self, set: usize, line: u64, store: bool) {
        self.clock += 1;
        let found = self.sets[set].iter().position(|way| way.is_some_and(|way| way.line == line));
        let at = match found {
            Some(at) => {
                self.hit(set, at);
                at
            }
            None => {
                self.misses += 1;
                self.fill(set, line)
            }
        };
        if let Some(way) = &mut self.sets[set][at] {
            way.dirty |= store;
        }
    }

    fn note(&mut self, set: usize, at: usize, note: u64) {
        if let Some(way) = &mut self.sets[set][at] {
            way.note = note;
        }
    }

    fn hit(&mut self, set: usize, at: usize) {
        match self.policy {
            Replacement::Lru => self.note(set, at, self.clock),
            Replacement::TreePlru => self.point_away(set, at),
            Replacement::Fifo | Replacement::Random { .. } => {}
            Replacement::Nru => self.mark_used(set, at),
            Replacement::Srrip | Replacement::Brrip | Replacement::Drrip => self.note(set, at, 0),
        }
    }

    fn mark_used(&mut self, set: usize, at: usize) {
        self.note(set, at, 1);
        let full = self.sets[set].iter().all(|way| way.is_some_and(|way| way.note == 1));
        if full {
            for other in (0..self.sets[set].len()).filter(|&other| other != at) {
                self.note(set, other, 0);
            }
        }
    }

    fn point_away(&mut self, set: usize, at: usize) {
        let (mut low, mut high) = (0, self.sets[set].len());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let right_is_next = at < middle;
            self.trees[set].retain(|&(l, h, _)| (l, h) != (low, high));
            self.trees[set].push((low, high, right_is_next));
            if at < middle { high = middle } else { low = middle }
        }
    }

    fn follow_tree(&self, set: usize) -> usize {
        let (mut low, mut high) = (0, self.sets[set].len());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let right = self.trees[set].iter().any(|&(l, h, right)| (l, h) == (low, high) && right);
            if right { low = middle } else { high = middle }
        }
        low
    }

    fn victim(&mut self, set: usize) -> usize {
        let ways = self.sets[set].len();
        let note = |naive: &Self, at: usize| naive.sets[set][at].map_or(0, |way| way.note);
        match self.policy {
            Replacement::Lru | Replacement::Fifo => {
                (0..ways).min_by_key(|&at| note(self, at)).expect("a set has ways")
            }
            Replacement::TreePlru => self.follow_tree(set),
            Replacement::Random { .. } => self.random.below(ways as u64) as usize,
            Replacement::Nru => (0..ways).find(|&at| note(self, at) == 0).unwrap_or(0),
            Replacement::Srrip | Replacement::Brrip | Replacement::Drrip => loop {
                if let Some(at) = (0..ways).find(|&at| note(self, at) == 3) {
                    break at;
                }
                for at in 0..ways {
                    let older = note(self, at) + 1;
                    self.note(set, at, older);
                }
            },
        }
    }

    fn first_note(&mut self, set: usize) -> u64 {
        let group = (self.sets.len() / 32).max(2);
        let bimodal = match self.policy {
            Replacement::Srrip => false,
            Replacement::Brrip => true,
            Replacement::Drrip if set.is_multiple_of(group) => {
                self.selector = (self.selector + 1).min(1023);
                false
            }
            Replacement::Drrip if set % group == group - 1 => {
                self.selector = (self.selector - 1).max(0);
                true
            }
            Replacement::Drrip => self.selector > 511,
            _ => return self.clock,
        };
        if !bimodal {
            return 2;
        }
        self.bimodal += 1;
        if self.bimodal.is_multiple_of(32) { 2 } else { 3 }
    }

    fn fill(&mut self, set: usize, line: u64) -> usize {
        let empty = self.sets[set].iter().position(Option::is_none);
        let at = empty.unwrap_or_else(|| self.victim(set));
        if let Some(old) = self.sets[set][at] {
            self.write_backs += u64::from(old.dirty);
        }
        self.sets[set][at] = Some(Way { line, dirty: false, note: 0 });
        let note = self.first_note(set);
        self.note(set, at, note);
        match self.policy {
            Replacement::TreePlru => self.point_away(set, at),
            Replacement::Nru => self.mark_used(set, at),
            _ => {}
        }
        at
    }
}

fn naive_set(placement: Placement, sets: u64, line: u64) -> usize {
    let set = match placement {
        Placement::XorHash if sets > 1 => {
            let mut fields = line;
            let mut set = 0;
            while fields > 0 {
                set ^= fields % sets;
                fields /= sets;
            }
            set
        }
        _ => line % sets,
    };
    set as usize
}

fn policy() -> impl Strategy<Value = Replacement> {
    prop::sample::select(Replacement::ALL.to_vec()).prop_map(|policy| match policy {
        Replacement::Random { .. } => Replacement::Random { seed: 77 },
        other => other,
    })
}

/// Lines with locality: many repeats, some strides, some far ones.
pub fn lines(most: usize) -> impl Strategy<Value = Vec<(u64, bool)>> {
    let line = prop_oneof![4 => 0u64..12, 2 => (0u64..40).prop_map(|l| l * 4), 1 => 0u64..4000];
    let burst = (line, any::<bool>(), 1usize..3);
    prop::collection::vec(burst, 1..most).prop_map(|bursts| {
        bursts.into_iter().flat_map(|(line, store, n)| vec![(line, store); n]).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn policies_equal_their_twins(
        policy in policy(),
        log_ways in 0u32..4,
        log_sets in 0u32..7,
        xor in any::<bool>(),
        stream in lines(400),
    ) {
        let (ways, sets) = (1u64 << log_ways, 1u64 << log_sets);
        let placement = if xor { Placement::XorHash } else { Placement::Modulo };
        let config = CacheConfig {
            replacement: policy,
            placement,
            ..CacheConfig::new(sets * ways * 64, ways as u32, 64)
        };
        let mut naive = Naive::new(policy, sets as usize, ways as usize);
        for &(line, store) in &stream {
            naive.access(naive_set(placement, sets, line), line, store);
        }
        let mut model = Hierarchy::new(&single(config)).unwrap();
        let records: Vec<_> = stream.iter().map(|&(line, store)| access(line, store)).collect();
        feed(&mut model, &records);
        let stats = model.report().total("l1d").unwrap();
        prop_assert_eq!(stats.misses.total(), naive.misses);
        prop_assert_eq!(stats.write_backs, naive.write_backs);
        prop_assert_eq!(stats.accesses.total(), stream.len() as u64);
    }

    #[test]
    fn any_number_of_sets_and_ways_equals_its_twin(
        ways in 1u64..50,
        sets in 1u64..20,
        sectored in any::<bool>(),
        stream in lines(400),
    ) {
        // Sectors make the cache use time stamps, one large set a hash table:
        // all must be the same LRU. With whole lines loaded, sectors never miss.
        let config = CacheConfig {
            sectors: if sectored { 2 } else { 1 },
            ..CacheConfig::new(sets * ways * 64, ways as u32, 64)
        };
        let mut naive = Naive::new(Replacement::Lru, sets as usize, ways as usize);
        for &(line, _) in &stream {
            naive.access((line % sets) as usize, line, false);
        }
        let mut model = Hierarchy::new(&single(config)).unwrap();
        let records: Vec<_> = stream
            .iter()
            .map(|&(line, _)| ichnos_base::Record::load(ichnos_base::GuestVa(line * 64), 64))
            .collect();
        feed(&mut model, &records);
        let stats = model.report().total("l1d").unwrap();
        prop_assert_eq!(stats.misses.total(), naive.misses);
        prop_assert_eq!(stats.sector_misses, 0);
    }

    #[test]
    fn causes_follow_their_definitions(ways in 1u64..5, sets in 1u64..9, stream in lines(300)) {
        let config = CacheConfig {
            classify: Classify::ThreeC,
            ..CacheConfig::new(sets * ways * 64, ways as u32, 64)
        };
        let mut cache = Naive::new(Replacement::Lru, sets as usize, ways as usize);
        let mut full = Naive::new(Replacement::Lru, 1, (sets * ways) as usize);
        let mut seen = HashSet::new();
        let mut want = (0, 0, 0);
        for &(line, _) in &stream {
            let before = (cache.misses, full.misses);
            cache.access((line % sets) as usize, line, false);
            full.access(0, line, false);
            let new = seen.insert(line);
            if cache.misses > before.0 {
                match (new, full.misses > before.1) {
                    (true, _) => want.0 += 1,
                    (false, true) => want.1 += 1,
                    (false, false) => want.2 += 1,
                }
            }
        }
        let mut model = Hierarchy::new(&single(config)).unwrap();
        let records: Vec<_> = stream.iter().map(|&(line, _)| access(line, false)).collect();
        feed(&mut model, &records);
        let stats = model.report().total("l1d").unwrap();
        let got = (stats.compulsory.total(), stats.capacity.total(), stats.conflict.total());
        prop_assert_eq!(got, want);
    }

    #[test]
    fn a_skewed_cache_of_one_set_is_an_lru_cache(ways in 1u64..9, stream in lines(300)) {
        let config = CacheConfig {
            placement: Placement::Skewed,
            ..CacheConfig::new(ways * 64, ways as u32, 64)
        };
        let mut naive = Naive::new(Replacement::Lru, 1, ways as usize);
        for &(line, store) in &stream {
            naive.access(0, line, store);
        }
        let mut model = Hierarchy::new(&single(config)).unwrap();
        let records: Vec<_> = stream.iter().map(|&(line, store)| access(line, store)).collect();
        feed(&mut model, &records);
        let stats = model.report().total("l1d").unwrap();
        prop_assert_eq!(stats.misses.total(), naive.misses);
        prop_assert_eq!(stats.write_backs, naive.write_backs);
    }
}
