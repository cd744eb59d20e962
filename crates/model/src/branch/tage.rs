//! TAGE (Seznec and Michaud, "A case for (partially) TAgged GEometric history
//! length branch prediction", JILP 2006).
//!
//! A bimodal table backs several tagged tables whose indices use histories of
//! geometrically growing length. The longest history with a matching tag
//! provides the prediction; the next shorter one is the alternative. As in the
//! paper:
//!
//! * A provider that is new (useless and weak) is passed over for the
//!   alternative while a small counter says that this pays.
//! * The provider's counter learns the outcome; its usefulness grows when it
//!   was right and the alternative wrong, and shrinks in the opposite case.
//! * A misprediction allocates an entry in one longer table whose entry there is
//!   useless: the shortest such table, or, with a chance of one half each, a
//!   longer one. If there is none, all longer entries become less useful.
//! * Usefulness is aged: every 256 Ki branches its high or its low bit is
//!   cleared, alternately.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use super::counter::Counters;
use super::history::{Folded, History};
use super::{Conditional, Direction};
use crate::Random;

/// Branches between two agings of usefulness.
const AGING: u32 = 1 << 18;

/// The tables of a TAGE predictor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TageConfig {
    /// Tagged tables.
    pub tables: u32,
    /// Entries of each tagged table, as a power of two.
    pub log_entries: u32,
    /// Entries of the bimodal table, as a power of two.
    pub log_bimodal: u32,
    /// Bits of a tag.
    pub tag_bits: u32,
    /// The shortest history.
    pub shortest: u32,
    /// The longest history.
    pub longest: u32,
}

impl Default for TageConfig {
    /// Eight tables of 1024 entries: about 16 KiB, histories from 4 to 256.
    fn default() -> Self {
        Self {
            tables: 8,
            log_entries: 10,
            log_bimodal: 13,
            tag_bits: 10,
            shortest: 4,
            longest: 256,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u32,
    /// Three bits, signed: taken from 0 up.
    counter: i8,
    useful: u8,
}

impl Entry {
    const fn taken(self) -> bool {
        self.counter >= 0
    }

    const fn new_and_weak(self) -> bool {
        self.useful == 0 && (self.counter == 0 || self.counter == -1)
    }

    fn train(&mut self, taken: bool) {
        self.counter = if taken { (self.counter + 1).min(3) } else { (self.counter - 1).max(-4) };
    }
}

#[derive(Debug)]
struct Table {
    entries: Box<[Entry]>,
    index: Folded,
    tag: [Folded; 2],
}

/// A TAGE predictor.
#[derive(Debug)]
pub struct Tage {
    config: TageConfig,
    base: Counters,
    tables: Vec<Table>,
    history: History,
    /// From -8 to 7: whether new entries are passed over.
    pass_over_new: i8,
    random: Random,
    branches: u32,
    clear_high: bool,
}

/// Where a prediction comes from: a table and an entry, or the base.
type Place = Option<(usize, usize)>;

impl Tage {
    /// A cold predictor. Numbers outside sensible ranges are moved into them.
    #[must_use]
    pub fn new(config: TageConfig) -> Self {
        let tables = config.tables.clamp(1, 20);
        let (shortest, longest) = (config.shortest.max(1), config.longest.max(config.shortest + 1));
        let ratio = f64::from(longest) / f64::from(shortest);
        let lengths = (0..tables).map(|at| {
            let share = f64::from(at) / f64::from((tables - 1).max(1));
            (f64::from(shortest) * ratio.powf(share) + 0.5) as usize
        });
        let tag_bits = config.tag_bits.clamp(2, 30);
        let log_entries = config.log_entries.clamp(1, 24);
        let tables = lengths
            .map(|length| Table {
                entries: vec![Entry::default(); 1 << log_entries].into_boxed_slice(),
                index: Folded::new(length, log_entries),
                tag: [Folded::new(length, tag_bits), Folded::new(length, tag_bits - 1)],
            })
            .collect();
        Self {
            base: Counters::new(config.log_bimodal.clamp(1, 28)),
            tables,
            history: History::new(longest as usize + 1),
            pass_over_new: 0,
            random: Random::new(1),
            branches: 0,
            clear_high: true,
            config: TageConfig { tag_bits, log_entries, ..config },
        }
    }

    /// The entry of a branch in a table, and the tag it must have.
    fn locate(&self, table: usize, pc: GuestVa) -> (usize, u32) {
        let TageConfig { log_entries, tag_bits, .. } = self.config;
        let of = &self.tables[table];
        let pc = pc.0;
        let index = pc
            ^ (pc >> (log_entries as u64 + 1).wrapping_add(table as u64))
            ^ u64::from(of.index.value);
        let tag = pc as u32 ^ of.tag[0].value ^ (of.tag[1].value << 1);
        (index as usize & ((1 << log_entries) - 1), tag & ((1 << tag_bits) - 1))
    }

    /// The longest and the second longest match.
    fn matches(&self, pc: GuestVa) -> (Place, Place) {
        let mut found = (None, None);
        for table in (0..self.tables.len()).rev() {
            let (at, tag) = self.locate(table, pc);
            if self.tables[table].entries[at].tag == tag {
                if found.0.is_none() {
                    found.0 = Some((table, at));
                } else {
                    found.1 = Some((table, at));
                    break;
                }
            }
        }
        found
    }

    fn says(&self, place: Place, pc: GuestVa) -> bool {
        match place {
            Some((table, at)) => self.tables[table].entries[at].taken(),
            None => self.base.get(pc.0),
        }
    }

    /// The provider's counters learn, and the alternative's if the provider is
    /// not proven yet.
    fn train(&mut self, provider: Place, alternative: Place, branch: &Conditional) {
        let Some((table, at)) = provider else {
            self.base.train(branch.pc.0, branch.taken);
            return;
        };
        let other = self.says(alternative, branch.pc);
        let entry = &mut self.tables[table].entries[at];
        let own = entry.taken();
        let unproven = entry.useful == 0;
        entry.train(branch.taken);
        if own != other {
            entry.useful = if own == branch.taken {
                (entry.useful + 1).min(3)
            } else {
                entry.useful.saturating_sub(1)
            };
        }
        if unproven {
            match alternative {
                Some((table, at)) => self.tables[table].entries[at].train(branch.taken),
                None => self.base.train(branch.pc.0, branch.taken),
            }
        }
    }

    /// Gives a mispredicted branch an entry with a longer history.
    fn allocate(&mut self, provider: Place, branch: &Conditional) {
        let from = provider.map_or(0, |(table, _)| table + 1);
        let mut chosen = None;
        for table in from..self.tables.len() {
            let (at, tag) = self.locate(table, branch.pc);
            if self.tables[table].entries[at].useful == 0 {
                chosen = Some((table, at, tag));
                if self.random.next() & 1 == 0 {
                    break;
                }
            }
        }
        if let Some((table, at, tag)) = chosen {
            let counter = if branch.taken { 0 } else { -1 };
            self.tables[table].entries[at] = Entry { tag, counter, useful: 0 };
            return;
        }
        for table in from..self.tables.len() {
            let (at, _) = self.locate(table, branch.pc);
            let entry = &mut self.tables[table].entries[at];
            entry.useful = entry.useful.saturating_sub(1);
        }
    }

    fn age(&mut self) {
        self.branches += 1;
        if self.branches < AGING {
            return;
        }
        self.branches = 0;
        let keep = if self.clear_high { 1 } else { 2 };
        self.clear_high = !self.clear_high;
        for table in &mut self.tables {
            table.entries.iter_mut().for_each(|entry| entry.useful &= keep);
        }
    }

    fn remember(&mut self, taken: bool) {
        self.history.push(taken);
        for table in &mut self.tables {
            table.index.update(&self.history);
            table.tag[0].update(&self.history);
            table.tag[1].update(&self.history);
        }
    }
}

impl Direction for Tage {
    fn predict(&mut self, branch: &Conditional) -> bool {
        let (provider, alternative) = self.matches(branch.pc);
        let own = self.says(provider, branch.pc);
        let other = self.says(alternative, branch.pc);
        let new = provider.is_some_and(|(table, at)| self.tables[table].entries[at].new_and_weak());
        let predicted = if new && self.pass_over_new >= 0 { other } else { own };
        if new && own != other {
            let step = if other == branch.taken { 1 } else { -1 };
            self.pass_over_new = (self.pass_over_new + step).clamp(-8, 7);
        }
        // An entry that was right needs no successor, even if it was passed over.
        let allocate = predicted != branch.taken && !(new && own == branch.taken);
        self.train(provider, alternative, branch);
        if allocate {
            self.allocate(provider, branch);
        }
        self.age();
        self.remember(branch.taken);
        predicted
    }
}
