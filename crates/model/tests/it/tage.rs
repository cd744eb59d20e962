//! TAGE and the tournament against twins that keep whole histories and fold
//! them anew for each branch.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::GuestVa;
use ichnos_model::{Conditional, Direction, Random, Tage, TageConfig, Tournament};
use proptest::prelude::*;

#[derive(Clone, Copy, Default)]
struct Entry {
    tag: u64,
    counter: i32,
    useful: i32,
}

/// TAGE from the paper's description: tables are maps, absent entries are the
/// initial ones.
struct Naive {
    config: TageConfig,
    base: HashMap<u64, i32>,
    tables: Vec<HashMap<u64, Entry>>,
    /// Latest first.
    past: Vec<bool>,
    pass_over_new: i32,
    random: Random,
}

impl Naive {
    fn new(config: TageConfig) -> Self {
        Self {
            config,
            base: HashMap::new(),
            tables: vec![HashMap::new(); config.tables as usize],
            past: Vec::new(),
            pass_over_new: 0,
            random: Random::new(1),
        }
    }

    fn fold(&self, table: usize, width: u32) -> u64 {
        let (short, long) = (f64::from(self.config.shortest), f64::from(self.config.longest));
        let steps = f64::from(self.config.tables - 1);
        let length = (short * (long / short).powf(table as f64 / steps)).round() as usize;
        let window = self.past.iter().take(length).enumerate();
        window.fold(0, |sum, (age, &taken)| sum ^ (u64::from(taken) << (age as u32 % width)))
    }

    fn place(&self, table: usize, pc: u64) -> (u64, u64) {
        let TageConfig { log_entries, tag_bits, .. } = self.config;
        let index = pc ^ (pc >> (log_entries as usize + 1 + table)) ^ self.fold(table, log_entries);
        let tag = pc ^ self.fold(table, tag_bits) ^ (self.fold(table, tag_bits - 1) << 1);
        (index % (1 << log_entries), tag % (1 << tag_bits))
    }

    fn entry(&mut self, table: usize, pc: u64) -> &mut Entry {
        let (at, _) = self.place(table, pc);
        self.tables[table].entry(at).or_default()
    }

    fn base(&mut self, pc: u64) -> &mut i32 {
        self.base.entry(pc % (1 << self.config.log_bimodal)).or_insert(1)
    }

    fn says(&mut self, table: Option<usize>, pc: u64) -> bool {
        match table {
            Some(table) => self.entry(table, pc).counter >= 0,
            None => *self.base(pc) >= 2,
        }
    }

    fn learn(&mut self, table: Option<usize>, pc: u64, taken: bool) {
        let step = if taken { 1 } else { -1 };
        match table {
            Some(table) => {
                let entry = self.entry(table, pc);
                entry.counter = (entry.counter + step).clamp(-4, 3);
            }
            None => {
                let counter = self.base(pc);
                *counter = (*counter + step).clamp(0, 3);
            }
        }
    }

    fn predict(&mut self, pc: u64, taken: bool) -> bool {
        let matching: Vec<usize> = (0..self.tables.len())
            .rev()
            .filter(|&table| {
                let (at, tag) = self.place(table, pc);
                self.tables[table].get(&at).copied().unwrap_or_default().tag == tag
            })
            .collect();
        let (provider, other) = (matching.first().copied(), matching.get(1).copied());
        let (own_says, other_says) = (self.says(provider, pc), self.says(other, pc));
        let entry = provider.map(|table| *self.entry(table, pc));
        let new = entry.is_some_and(|e| e.useful == 0 && (e.counter == 0 || e.counter == -1));
        let predicted = if new && self.pass_over_new >= 0 { other_says } else { own_says };
        if new && own_says != other_says {
            let step = if other_says == taken { 1 } else { -1 };
            self.pass_over_new = (self.pass_over_new + step).clamp(-8, 7);
        }
        let allocate = predicted != taken && !(new && own_says == taken);
        self.learn(provider, pc, taken);
        if let Some(table) = provider {
            if own_says != other_says {
                let step = if own_says == taken { 1 } else { -1 };
                let entry = self.entry(table, pc);
                entry.useful = (entry.useful + step).clamp(0, 3);
            }
            if entry.is_some_and(|e| e.useful == 0) {
                self.learn(other, pc, taken);
            }
        }
        if allocate {
            self.allocate(provider.map_or(0, |table| table + 1), pc, taken);
        }
        self.past.insert(0, taken);
        predicted
    }

    fn allocate(&mut self, from: usize, pc: u64, taken: bool) {
        let longer: Vec<usize> = (from..self.tables.len()).collect();
        let mut chosen = None;
        for &table in &longer {
            if self.entry(table, pc).useful == 0 {
                chosen = Some(table);
                if self.random.next().is_multiple_of(2) {
                    break;
                }
            }
        }
        match chosen {
            Some(table) => {
                let (_, tag) = self.place(table, pc);
                let counter = if taken { 0 } else { -1 };
                *self.entry(table, pc) = Entry { tag, counter, useful: 0 };
            }
            None => {
                for table in longer {
                    let entry = self.entry(table, pc);
                    entry.useful = (entry.useful - 1).max(0);
                }
            }
        }
    }
}

/// Interleaved loops of different lengths with some noise.
fn outcomes() -> impl Strategy<Value = Vec<(u64, bool)>> {
    prop::collection::vec((0u64..6, 0u8..16), 50..500).prop_map(|draws| {
        let mut turns = [0u64; 6];
        let mut outcome = |(which, noise): (u64, u8)| {
            turns[which as usize] += 1;
            let exits = turns[which as usize].is_multiple_of(2 + which);
            (0x40_1000 + which * 0x35, noise == 0 || !exits)
        };
        draws.into_iter().map(&mut outcome).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tage_equals_its_twin(outcomes in outcomes(), log_entries in 2u32..7, tag_bits in 3u32..9) {
        let config = TageConfig {
            tables: 5, log_entries, log_bimodal: 6, tag_bits, shortest: 3, longest: 50,
        };
        let (mut tage, mut naive) = (Tage::new(config), Naive::new(config));
        for (pc, taken) in outcomes {
            let branch = Conditional { pc: GuestVa(pc), target: GuestVa(pc), taken };
            prop_assert_eq!(tage.predict(&branch), naive.predict(pc, taken));
        }
    }

    #[test]
    fn the_tournament_equals_its_twin(outcomes in outcomes()) {
        let mut tournament = Tournament::new(4, 5, 6);
        let mut past: Vec<bool> = Vec::new();
        let mut own: HashMap<u64, Vec<bool>> = HashMap::new();
        let [mut local, mut global, mut choice] = [(); 3].map(|()| HashMap::<u64, i32>::new());
        let number = |past: &[bool], length: usize| {
            past.iter().rev().take(length).rev().fold(0u64, |n, &t| n * 2 + u64::from(t))
        };
        for (pc, taken) in outcomes {
            let own_past = own.entry(pc % 16).or_default();
            let l = local.entry(number(own_past, 5)).or_insert(3);
            let g = global.entry((pc ^ number(&past, 6)) % 64).or_insert(1);
            let c = choice.entry(number(&past, 6)).or_insert(1);
            let (says_local, says_global) = (*l >= 4, *g >= 2);
            let want = if *c >= 2 { says_global } else { says_local };
            let step = if taken { 1 } else { -1 };
            *l = (*l + step).clamp(0, 7);
            *g = (*g + step).clamp(0, 3);
            if says_local != says_global {
                *c = (*c + if says_global == taken { 1 } else { -1 }).clamp(0, 3);
            }
            own_past.push(taken);
            past.push(taken);
            let branch = Conditional { pc: GuestVa(pc), target: GuestVa(pc), taken };
            prop_assert_eq!(tournament.predict(&branch), want);
        }
    }
}
