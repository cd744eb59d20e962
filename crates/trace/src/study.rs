//! One slot under study: for each candidate, how often it would have told the slot's
//! costly words, and the verdict once that is clear.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::learn::{RING, Ring, Seen};
use crate::wire::{MAX_SHIFT, shifted};

/// Shifts that are tried, from the most negative.
const SHIFTS: usize = 2 * MAX_SHIFT as usize + 1;

/// Contents may be off by so much: a constant that moves slowly is not another content.
const CLOSE: u64 = 64;

/// Places of the table of former visits: two to this.
const VISIT_BITS: u32 = 14;

/// How often a slot may be taken to follow from contents that are not known yet.
const FOUNDINGS: u8 = 3;

/// The most slots that are candidates, and that one candidate may be.
const CANDIDATES: usize = 64;
const CAUSES: usize = 8;
const NAMES: usize = 16;

/// The kinds of hits.
const BY_WORD: usize = 0;
const BY_VALUE: usize = 1;
const AGAIN: usize = 2;

/// After these many trials there is a verdict if the evidence is clear; after the last in any case.
const CHECKS: [u32; 4] = [64, 256, 1024, 4096];

/// What of a cause it is that a slot's words follow from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// Its word.
    Word,
    /// What memory holds there.
    Content,
}

/// What a slot's words follow from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Slots, any of which, whichever came last.
    pub(crate) causes: Vec<u32>,
    pub(crate) follows: Follows,
    pub(crate) shift: i8,
    pub(crate) add: u64,
}

/// How often one thing would have told the slot's words.
#[derive(Clone, Debug, Default)]
struct Candidate {
    /// How often its word moved as the slot's did, and what was to be added.
    by_word: [Hits; SHIFTS],
    /// How often its known contents moved, and how often as the slot's words did.
    value_moves: u32,
    by_value: [Hits; SHIFTS],
    /// How often it was where it had been before, and how often the slot was, too.
    visits: u32,
    again: u32,
    /// The slots that it was when its word or its known contents would have told the slot's word,
    /// or when it was there again; each with how often.
    slots: Vec<(u32, [u32; 3])>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    count: u32,
    /// What had to be added the last time.
    add: u64,
}

/// A slot under study.
#[derive(Debug)]
pub(crate) struct Study {
    pub(crate) slot: u32,
    /// When it last had a trial, by the learner's count of costly words and of watches.
    pub(crate) misses: u64,
    pub(crate) touched: u64,
    trials: u32,
    /// Trials in which the word was close to that of the trial before.
    smooth: u32,
    word: u64,
    before: Vec<Seen>,
    now: Vec<Seen>,
    /// Whatever stood so many words back.
    places: Vec<Candidate>,
    /// Slots, wherever they stood last.
    slots: Vec<Candidate>,
    visits: Vec<(u64, u64)>,
}

const fn close(difference: u64) -> bool {
    difference.wrapping_add(CLOSE) < 2 * CLOSE
}

impl Study {
    pub(crate) fn new(slot: u32) -> Self {
        Self {
            slot,
            misses: 0,
            touched: 0,
            trials: 0,
            smooth: 0,
            word: 0,
            before: Vec::with_capacity(RING),
            now: Vec::with_capacity(RING),
            places: vec![Candidate::default(); RING],
            slots: Vec::new(),
            visits: Vec::new(),
        }
    }

    /// The slot's word had to be written out.
    pub(crate) fn trial(&mut self, word: u64, ring: &Ring, index: impl Fn(u32) -> bool) {
        let moved = word.wrapping_sub(self.word);
        if moved == 0 {
            return;
        }
        self.now.clear();
        self.now.extend(ring.back());
        self.trials += 1;
        self.smooth += u32::from(close(moved));
        let step = Step { word, moved };
        for at in 0..self.now.len() {
            let seen = self.now[at];
            if let Some(before) = self.before.get(at) {
                self.places[at].compare(before, &seen, step);
            }
            if self.now[..at].iter().any(|s| s.slot == seen.slot) {
                continue;
            }
            self.compare_slot(&seen, step);
            if index(seen.slot)
                && self.trials >= CHECKS[0]
                && let Some(again) = self.visit(at, &seen, word)
            {
                self.places[at].visit(seen.slot, again);
            }
        }
        std::mem::swap(&mut self.before, &mut self.now);
        self.word = word;
    }

    /// Compares a slot's last word with the one it had at the trial before.
    fn compare_slot(&mut self, seen: &Seen, step: Step) {
        let Some(before) = self.before.iter().find(|s| s.slot == seen.slot) else { return };
        if seen.slot == self.slot {
            return;
        }
        let at = match self.slots.iter().position(|c| c.slots[0].0 == seen.slot) {
            Some(at) => at,
            None if self.slots.len() >= CANDIDATES => return,
            None => {
                let slots = vec![(seen.slot, [0; 3])];
                self.slots.push(Candidate { slots, ..Candidate::default() });
                self.slots.len() - 1
            }
        };
        self.slots[at].compare(before, seen, step);
    }

    /// Whether the word is as it was when a candidate was last at this address; nothing if
    /// that was never or too long ago.
    fn visit(&mut self, back: usize, seen: &Seen, word: u64) -> Option<bool> {
        if self.visits.is_empty() {
            self.visits.resize(1 << VISIT_BITS, (0, 0));
        }
        let who = u64::from(seen.slot) << 48 ^ (back as u64) << 42;
        let key = (seen.word ^ who).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &mut self.visits[(key >> (64 - VISIT_BITS)) as usize];
        let (old_key, old) = std::mem::replace(place, (key, word));
        (old_key == key).then(|| close(word.wrapping_sub(old)))
    }

    /// Nothing if it is too early; else what was found, if anything was.
    /// `founded` says how often the slot was taken to follow from contents before.
    pub(crate) fn verdict(&self, founded: u8) -> Option<Option<Found>> {
        if !CHECKS.contains(&self.trials) {
            return None;
        }
        let mut found = self.address().or_else(|| self.known());
        if found.is_none() && founded < FOUNDINGS && self.trials >= CHECKS[2] {
            found = self.unknown();
        }
        let last = self.trials >= CHECKS[CHECKS.len() - 1];
        if found.is_some() || last { Some(found) } else { None }
    }

    fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.places.iter().chain(&self.slots)
    }

    /// Words that move as the studied slot's do.
    fn address(&self) -> Option<Found> {
        let cause = self.candidates().max_by_key(|c| best(&c.by_word).1.count)?;
        let (shift, hits) = best(&cause.by_word);
        let needed = if self.trials <= CHECKS[0] { self.trials / 2 } else { self.trials / 4 };
        (hits.count >= needed).then(|| cause.found(BY_WORD, shift, hits.add))
    }

    /// Known contents that move as the studied slot's words do.
    fn known(&self) -> Option<Found> {
        let clear = |c: &&Candidate| {
            let hits = best(&c.by_value).1.count;
            hits >= 12 && hits * 2 >= c.value_moves && hits * 16 >= self.trials
        };
        let hits = |c: &Candidate| best(&c.by_value).1.count;
        let most = self.candidates().filter(clear).map(hits).max()?;
        let cause = self.candidates().filter(clear).find(|c| hits(c) * 10 >= most * 9)?;
        let (shift, hits) = best(&cause.by_value);
        Some(cause.found(BY_VALUE, shift, hits.add))
    }

    /// Loads at whose addresses the studied slot's word is what it was there before.
    fn unknown(&self) -> Option<Found> {
        if self.smooth * 8 > self.trials {
            return None;
        }
        let clear = |c: &&Candidate| c.again >= 8 && c.again * 12 >= c.visits;
        let most = self.places.iter().filter(clear).map(|c| c.again).max()?;
        // Where much stays as it was, what stood further back tells nearly as much.
        let cause = self.places.iter().filter(clear).find(|c| c.again * 10 >= most * 9)?;
        Some(cause.found(AGAIN, 0, 0))
    }
}

/// How the studied slot moved.
#[derive(Clone, Copy, Debug)]
struct Step {
    word: u64,
    moved: u64,
}

impl Candidate {
    fn compare(&mut self, before: &Seen, now: &Seen, step: Step) {
        let by = now.word.wrapping_sub(before.word);
        let mut hits = [0; 3];
        if by != 0 {
            for (shift, at) in (-MAX_SHIFT..).zip(&mut self.by_word) {
                if off(by, step.moved, shift) == 0 {
                    at.hit(step.word, now.word, shift);
                    hits[BY_WORD] = 1;
                }
            }
        }
        let by = now.value.wrapping_sub(before.value);
        if before.value != 0 && now.value != 0 && !close(by) {
            self.value_moves += 1;
            for (shift, at) in (-MAX_SHIFT..).zip(&mut self.by_value) {
                if close(off(by, step.moved, shift)) {
                    at.hit(step.word, now.value, shift);
                    hits[BY_VALUE] = 1;
                }
            }
        }
        if hits != [0; 3] {
            self.name(now.slot, hits);
        }
    }

    fn visit(&mut self, slot: u32, again: bool) {
        self.visits += 1;
        if again {
            self.again += 1;
            self.name(slot, [0, 0, 1]);
        }
    }

    fn name(&mut self, slot: u32, hits: [u32; 3]) {
        match self.slots.iter().position(|s| s.0 == slot) {
            Some(at) => self.slots[at].1.iter_mut().zip(hits).for_each(|(sum, n)| *sum += n),
            None if self.slots.len() < NAMES => self.slots.push((slot, hits)),
            None => {}
        }
    }

    /// The slots that have a good share in the hits of a kind.
    fn found(&self, kind: usize, shift: i8, add: u64) -> Found {
        let most = self.slots.iter().map(|s| s.1[kind]).max().unwrap_or(0);
        let share = self.slots.iter().filter(|s| s.1[kind] * 4 > most);
        let causes = share.map(|s| s.0).take(CAUSES).collect();
        let follows = if kind == BY_WORD { Follows::Word } else { Follows::Content };
        Found { causes, follows, shift, add }
    }
}

impl Hits {
    fn hit(&mut self, word: u64, from: u64, shift: i8) {
        self.count += 1;
        self.add = word.wrapping_sub(shifted(from, shift));
    }
}

/// By how much a distance, shifted, differs from another.
const fn off(by: u64, moved: u64, shift: i8) -> u64 {
    if shift >= 0 { moved.wrapping_sub(by << shift) } else { (moved << -shift).wrapping_sub(by) }
}

/// The shift that was right most often, and how often.
fn best(hits: &[Hits; SHIFTS]) -> (i8, Hits) {
    let (mut shift, mut most) = (0, hits[MAX_SHIFT as usize]);
    for (s, n) in (-MAX_SHIFT..).zip(hits) {
        if n.count > most.count {
            (shift, most) = (s, *n);
        }
    }
    (shift, most)
}
