//! Which stores copy what loads found: remembers stores over known memory, and when a
//! later use tells what the place holds, votes for the loads that had found the same.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::learn::Ring;
use crate::wire::Told;

/// Stores that wait for their outcome: two to this.
const WAITING_BITS: u32 = 12;

/// How many loads a store may have copied from.
const SOURCES: usize = 6;

/// A copy may differ by less than this from what was loaded.
const CLOSE: u64 = 5;

/// After these many outcomes there is a verdict if votes are clear.
const CHECKS: [u32; 3] = [16, 64, 256];

/// The most votes of one store.
const VOTES: usize = 64;

/// The most stores that are studied at a time.
const STUDIES: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    place: u32,
    store: u32,
    sources: [(u32, u64); SOURCES],
}

#[derive(Debug)]
struct Study {
    store: u32,
    outcomes: u32,
    votes: Vec<(u32, u64, u32)>,
    chosen: Option<(u32, u64)>,
}

/// The search for copies.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    waiting: Vec<Waiting>,
    studies: Vec<Study>,
}

impl Copies {
    /// Forgets what waits: a chunk begins.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// A store at a place, with the loads before it.
    pub(crate) fn stored(&mut self, store: u32, place: u32, ring: &Ring) {
        let mut waiting = Waiting { place, store, ..Waiting::default() };
        let mut free = waiting.sources.iter_mut();
        for seen in ring.back().filter(|s| s.value != 0) {
            match free.next() {
                Some(source) => *source = (seen.slot, seen.value),
                None => break,
            }
        }
        if waiting.sources[0].1 == 0 {
            return;
        }
        if self.waiting.is_empty() {
            self.waiting.resize(1 << WAITING_BITS, Waiting::default());
        }
        self.waiting[place as usize % (1 << WAITING_BITS)] = waiting;
    }

    /// What a place holds was told: a store, and the load and difference that it copies, or
    /// nothing if it copies no load, if that is now clear.
    pub(crate) fn resolve(&mut self, told: Told) -> Option<(u32, Option<(u32, u64)>)> {
        let waiting = self.waiting.get_mut(told.place as usize % (1 << WAITING_BITS))?;
        if waiting.place != told.place {
            return None;
        }
        let waiting = std::mem::take(waiting);
        let at = match self.studies.iter().position(|s| s.store == waiting.store) {
            Some(at) => at,
            None if self.studies.len() >= STUDIES => return None,
            None => {
                self.studies.push(Study {
                    store: waiting.store,
                    outcomes: 0,
                    votes: Vec::new(),
                    chosen: None,
                });
                self.studies.len() - 1
            }
        };
        let study = &mut self.studies[at];
        study.outcome(&waiting, told.value);
        let verdict = study.verdict()?;
        study.chosen = verdict.or(study.chosen);
        // Early votes are few, and contents get known only by and by: ask again.
        (study.outcomes, study.votes) = (0, Vec::new());
        Some((waiting.store, verdict))
    }
}

impl Study {
    fn outcome(&mut self, waiting: &Waiting, value: u64) {
        self.outcomes += 1;
        let mut voted = [0; SOURCES];
        for (i, (load, found)) in waiting.sources.iter().enumerate() {
            let difference = value.wrapping_sub(*found);
            let is_close = difference.wrapping_add(CLOSE) < 2 * CLOSE;
            if *found == 0 || !is_close || voted[..i].contains(load) {
                continue;
            }
            voted[i] = *load;
            let same = |v: &(u32, u64, u32)| (v.0, v.1) == (*load, difference);
            match self.votes.iter().position(same) {
                Some(at) => self.votes[at].2 += 1,
                None if self.votes.len() < VOTES => self.votes.push((*load, difference, 1)),
                None => {}
            }
        }
    }

    /// Nothing if it is too early; else the source, if there is one.
    fn verdict(&self) -> Option<Option<(u32, u64)>> {
        if !CHECKS.contains(&self.outcomes) {
            return None;
        }
        let best = self.votes.iter().max_by_key(|v| v.2);
        let others = self.votes.iter().filter(|v| best.is_some_and(|b| (b.0, b.1) != (v.0, v.1)));
        let second = others.map(|v| v.2).max().unwrap_or(0);
        let last = self.outcomes == CHECKS[CHECKS.len() - 1];
        if let (Some(best), Some(chosen)) = (best, self.chosen) {
            let kept = self.votes.iter().find(|v| (v.0, v.1) == chosen).map_or(0, |v| v.2);
            if kept * 5 >= best.2 * 4 {
                return last.then_some(Some(chosen));
            }
        }
        match best {
            Some(best) if best.2 * 5 >= self.outcomes * 2 && (last || best.2 * 5 > second * 6) => {
                Some(Some((best.0, best.1)))
            }
            _ if last => Some(None),
            _ => None,
        }
    }
}
