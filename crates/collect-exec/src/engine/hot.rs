//! Finds the paths that a thread takes most often, and has them translated as one.
//!
//! Nothing is counted for that: what a thread stores says which way it went. When a buffer is full, a part of it is looked at now and
//! then; less often if nothing new was found, because then all that is hot has its path, or nothing is. Where a block
//! begins an item often enough, and mostly goes on in one way, there begins a path. One that is mostly
//! left before its end is made anew, a few times.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use super::cache::Cache;
use super::hash::Fast;
use super::items::Ran;
use super::path::Route;
use super::state::State;
use super::sys;
use crate::boot::Paths;

/// How many blocks are looked at in a buffer.
const SAMPLE: usize = 2000;
/// How often a block must begin an item there.
const OFTEN: usize = 6;
/// The same where all paths are made.
const FEW: usize = 2;
/// In how many of ten cases a path must go on in the same way.
const MOSTLY: usize = 3;
/// The most blocks of a path.
const MOST_BLOCKS: usize = 40;
/// The most paths that are made of one sample.
const MOST_PATHS: usize = 16;
/// How often a path may be made anew.
const MOST_TRIES: u8 = 4;
/// The most buffers between two looks.
const LONGEST: u32 = 32;
/// What a look takes is this part of a process's time at most.
const SHARE: u64 = 8;

/// What is known of paths.
pub struct Hot {
    /// Buffers until the next look, and from one look to the next.
    wait: u32,
    period: u32,
    /// No look before this time, in nanoseconds.
    not_before: u64,
    /// The paths that were made, by where they begin: their blocks, and how often.
    made: HashMap<u64, (Vec<u64>, u8), Fast>,
}

impl State {
    /// Whether paths are made at all: not where parts are recorded, or behind a sieve.
    pub fn makes_paths(&self) -> bool {
        self.paths != Paths::Off && self.traced && !self.counted && self.sieve.is_none()
    }

    /// A thread's buffer is full: these bytes. It is still the thread's own.
    pub fn look_for_paths(&self, bytes: &[u8]) {
        if !self.makes_paths() {
            return;
        }
        let is_eager = self.paths == Paths::Eager;
        let mut cache = self.cache.lock();
        cache.hot.wait = cache.hot.wait.saturating_sub(1);
        let begun = sys::now();
        if !is_eager && (cache.hot.wait > 0 || begun < cache.hot.not_before) {
            return;
        }
        let ran = cache.items.read(bytes, SAMPLE);
        let routes = cache.hot.routes(&ran, if is_eager { FEW } else { OFTEN });
        let made = routes.iter().filter(|route| make(&mut cache, route)).count();
        cache.hot.period = if made > 0 { 1 } else { (cache.hot.period * 2).min(LONGEST) };
        cache.hot.wait = cache.hot.period;
        let ended = sys::now();
        cache.hot.not_before = ended + (SHARE - 1) * ended.saturating_sub(begun);
        self.forget_removed(&mut cache);
    }
}

/// Makes a path; whether that could be done.
fn make(cache: &mut Cache, route: &Route) -> bool {
    let entry = route.entries[0];
    let tries = cache.hot.made.get(&entry).map_or(0, |made| made.1) + 1;
    let blocks = cache.path(route);
    let is_made = blocks.is_some();
    // What cannot be made is not tried again.
    let made = blocks.map_or((Vec::new(), MOST_TRIES), |blocks| (blocks, tries));
    cache.hot.made.insert(entry, made);
    is_made
}

impl Hot {
    /// Nothing.
    pub fn new() -> Self {
        Self { wait: 2, period: 1, not_before: 0, made: HashMap::default() }
    }

    /// Where paths should be made.
    fn routes(&self, ran: &[Ran], least: usize) -> Vec<Route> {
        // The items that begin with a block, in the order of blocks.
        let mut begins: Vec<(u64, u32)> = (0_u32..)
            .zip(ran)
            .filter(|(_, block)| block.begins && block.entry != 0)
            .map(|(place, block)| (block.entry, place))
            .collect();
        begins.sort_unstable();
        let mut often: Vec<&[(u64, u32)]> = begins
            .chunk_by(|a, b| a.0 == b.0)
            .filter(|items| items.len() >= least && self.may_be_made(ran, items))
            .collect();
        often.sort_unstable_by_key(|items| usize::MAX - items.len());
        let routes = often.into_iter().map(|items| {
            let places = items.iter().map(|item| item.1).collect();
            route(ran, items[0].0, places)
        });
        let wanted = routes.filter(|route| route.entries.len() > 1 && self.is_new(route));
        wanted.take(MOST_PATHS).collect()
    }

    /// Whether a path might be made that begins with the block of these items: there is none, or that is mostly left before its end.
    fn may_be_made(&self, ran: &[Ran], items: &[(u64, u32)]) -> bool {
        let Some((blocks, tries)) = self.made.get(&items[0].0) else { return true };
        let run = |item: &(u64, u32)| {
            let behind = ran[item.1 as usize + 1..].iter();
            1 + behind.take_while(|block| !block.begins).count()
        };
        *tries < MOST_TRIES && items.iter().map(run).sum::<usize>() * 2 < blocks.len() * items.len()
    }

    /// Whether there is no such path yet: none that begins there, or one that goes another way.
    fn is_new(&self, route: &Route) -> bool {
        let Some((blocks, _)) = self.made.get(&route.entries[0]) else { return true };
        let same = blocks.iter().zip(&route.entries).take_while(|(a, b)| a == b).count();
        same < blocks.len().min(route.entries.len())
    }

    /// The path that begins here is gone.
    pub fn forget(&mut self, entry: u64) {
        self.made.remove(&entry);
    }
}

/// The way that is mostly taken from a block that was run at these places.
fn route(ran: &[Ran], entry: u64, mut places: Vec<u32>) -> Route {
    let mut route = Route { entries: vec![entry], end: None };
    let all = places.len();
    while route.entries.len() < MOST_BLOCKS {
        let behind = route.entries.len();
        let next = |place: &u32| ran.get(*place as usize + behind).map_or(0, |r| r.entry);
        let mut counts: Vec<(u64, usize)> = Vec::new();
        for entry in places.iter().map(next) {
            match counts.iter_mut().find(|count| count.0 == entry) {
                Some(count) => count.1 += 1,
                None => counts.push((entry, 1)),
            }
        }
        let Some(&(best, count)) = counts.iter().max_by_key(|(_, count)| *count) else { break };
        if best == 0 || count * 10 < places.len() * MOSTLY || count * 16 < all {
            break;
        }
        if route.entries.contains(&best) {
            route.end = Some(best);
            break;
        }
        places.retain(|place| next(place) == best);
        route.entries.push(best);
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that were run; those in upper case begin items.
    fn ran(blocks: &str) -> Vec<Ran> {
        let block = |c: char| {
            let entry = if c == '.' { 0 } else { u64::from(c.to_ascii_lowercase() as u32) };
            Ran { entry, begins: !c.is_ascii_lowercase() }
        };
        blocks.chars().map(block).collect()
    }

    fn shown(route: &Route) -> (String, Option<char>) {
        let letter = |entry: &u64| char::from(*entry as u8);
        (route.entries.iter().map(letter).collect(), route.end.as_ref().map(letter))
    }

    fn routes(hot: &Hot, blocks: &str, least: usize) -> Vec<(String, Option<char>)> {
        hot.routes(&ran(blocks), least).iter().map(shown).collect()
    }

    #[test]
    fn paths_go_where_most_executions_do() {
        let hot = Hot::new();
        // A loop, from wherever it is looked at.
        let found = routes(&hot, &"ABC".repeat(10), 6);
        assert_eq!(found.len(), 3);
        assert!(found.contains(&("abc".to_owned(), Some('a'))));
        assert!(found.contains(&("bca".to_owned(), Some('b'))));
        // Three of ten are enough, less are not.
        let found = routes(&hot, "ABX.ABY.ABX.ABZ.ABX.ABV.", 6);
        assert_eq!(found, [("abx".to_owned(), None), ("bx".to_owned(), None)]);
        let found = routes(&hot, "AU.AV.AW.AX.AY.AZ.", 6);
        assert_eq!(found, []);
        // Nothing goes on across what is no block, and what comes seldom is not looked at.
        assert_eq!(routes(&hot, &"A.".repeat(20), 6), []);
        assert_eq!(routes(&hot, &"ABC".repeat(5), 6), []);
    }

    #[test]
    fn paths_that_are_left_early_are_made_anew() {
        let mut hot = Hot::new();
        let entry = |c: char| u64::from(c as u32);
        hot.made.insert(entry('a'), ("abcd".chars().map(entry).collect(), 1));
        // It is run to its end.
        assert_eq!(routes(&hot, &"Abcd.".repeat(6), 6), []);
        // It is left behind its first block, always for the same one.
        let left = "AX.".repeat(6);
        let found = routes(&hot, &left, 6);
        assert!(found.contains(&("ax".to_owned(), None)), "{found:?}");
        if let Some(made) = hot.made.get_mut(&entry('a')) {
            made.1 = MOST_TRIES;
        }
        assert!(!routes(&hot, &left, 6).contains(&("ax".to_owned(), None)));
    }
}
