//! Finds the paths that a thread takes most often, and has them translated as one.
//!
//! Nothing is counted for that: what a thread stores says which way it went. When a buffer is full, a part of it is looked at now and
//! then; less often if nothing new was found, because then all that is hot has its path, or nothing is. Where a block
//! begins an item often enough, and mostly goes on in one way, there begins a path. What is then part of a path begins no item
//! any more: of a loop of many blocks few paths are made, not one for each of its blocks. One that is mostly left before its end is made
//! anew, a few times, unless the new one would go less far: of the ways that lead out of it each may be the one that is mostly taken for a while.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cmp::Reverse;
use std::collections::HashMap;

use super::cache::Cache;
use super::hash::Fast;
use super::items::Ran;
use super::path::Route;
use super::state::State;
use super::sys;
use super::translate::Draft;
use crate::boot::Paths;

/// How many blocks are looked at in a buffer.
const SAMPLE: usize = 10_000;
/// How often a block must begin an item there.
const OFTEN: usize = 6;
/// The same where paths are made of all that comes again soon; then less is looked at, but of every buffer.
const FEW: usize = 2;
const SMALL_SAMPLE: usize = 2000;
/// In how many of ten cases a path must go on in the same way.
const MOSTLY: usize = 3;
/// The most blocks of a path.
const MOST_BLOCKS: usize = 40;
/// The most turns of a loop that are in one path, and in how many of twenty cases it must go on for that: a loop that is left at
/// various places is not the same path each time.
const MOST_TURNS: usize = 4;
const NEARLY_ALWAYS: usize = 19;
/// The most paths that are made of one sample: one for so many of its blocks.
const BLOCKS_PER_PATH: usize = 150;
/// The most blocks of all paths of a process: whoever reads its trace has to know each of them.
const MOST_KNOWN: usize = 1 << 18;
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
    /// How many blocks all paths have that were made.
    known: usize,
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
        if cache.hot.known >= MOST_KNOWN {
            return;
        }
        let (sample, least) = if is_eager { (SMALL_SAMPLE, FEW) } else { (SAMPLE, OFTEN) };
        let ran = cache.items.read(bytes, sample);
        let mut search = Search::new(&ran, least);
        let mut made = 0;
        while made < sample / BLOCKS_PER_PATH
            && let Some(found) = search.next(&cache.hot)
        {
            let is_worth = |blocks: &[u64]| search.is_worth(&found.places, blocks);
            if let Some(blocks) = make(&mut cache, &found.route, is_worth) {
                search.cover(blocks);
                made += 1;
            }
        }
        for (from, to) in pairs(&ran, least) {
            if made >= sample / BLOCKS_PER_PATH {
                break;
            }
            let blocks = cache.follow(from, to);
            cache.hot.known += blocks;
            made += usize::from(blocks > 0);
        }
        cache.hot.period = if made > 0 { 1 } else { (cache.hot.period * 2).min(LONGEST) };
        cache.hot.wait = cache.hot.period;
        let ended = sys::now();
        cache.hot.not_before = ended + (SHARE - 1) * ended.saturating_sub(begun);
        self.forget_removed(&mut cache);
    }
}

/// Which items often come behind which, by where they begin; the most frequent first.
fn pairs(ran: &[Ran], least: usize) -> Vec<(u64, u64)> {
    let begun: Vec<u64> =
        ran.iter().filter(|block| block.begins).map(|block| block.entry).collect();
    let both = begun.iter().zip(begun.iter().skip(1)).map(|(from, to)| (*from, *to));
    let mut pairs: Vec<(u64, u64)> = both.filter(|(from, to)| *from != 0 && *to != 0).collect();
    pairs.sort_unstable();
    let same = pairs.chunk_by(|a, b| a == b).filter(|same| same.len() >= least);
    let mut often: Vec<(usize, (u64, u64))> = same.map(|same| (same.len(), same[0])).collect();
    often.sort_unstable_by_key(|(count, pair)| (Reverse(*count), *pair));
    often.into_iter().map(|(_, pair)| pair).collect()
}

/// Makes a path, if it is worth it; its blocks, if that was done.
fn make<'c>(
    cache: &'c mut Cache,
    route: &Route,
    is_worth: impl Fn(&[u64]) -> bool,
) -> Option<&'c [u64]> {
    let entry = route.entries[0];
    let draft = cache.draft_path(route, 0);
    let blocks = draft.as_ref().map(Draft::blocks);
    let (_, tries) = cache.hot.made.entry(entry).or_default();
    // What cannot be made is not tried again.
    *tries = if draft.is_some() { *tries + 1 } else { MOST_TRIES };
    let tries = *tries;
    let (draft, blocks) = draft.zip(blocks.filter(|blocks| is_worth(blocks)))?;
    cache.place_whole(route, draft);
    cache.hot.known += blocks.len();
    cache.hot.made.insert(entry, (blocks, tries));
    cache.hot.made.get(&entry).map(|(blocks, _)| &**blocks)
}

/// A path that might be made, and where its first block was run.
struct Found {
    route: Route,
    places: Vec<u32>,
}

/// The search for paths in what a thread ran.
struct Search<'a> {
    ran: &'a [Ran],
    /// The items of each block that begins enough of them, by their places; what comes most often is last, and of those the
    /// one that came first.
    often: Vec<(u64, Vec<u32>)>,
    /// How many items are enough.
    least: usize,
    /// What is part of a path that was made.
    covered: Vec<bool>,
    /// What mostly comes behind the last path.
    goes_on: Option<u64>,
}

impl<'a> Search<'a> {
    fn new(ran: &'a [Ran], least: usize) -> Self {
        let mut begins: Vec<(u64, u32)> = (0_u32..)
            .zip(ran)
            .filter(|(_, block)| block.begins && block.entry != 0)
            .map(|(place, block)| (block.entry, place))
            .collect();
        begins.sort_unstable();
        let items = |items: &[(u64, u32)]| (items[0].0, items.iter().map(|item| item.1).collect());
        let blocks = begins.chunk_by(|a, b| a.0 == b.0).filter(|items| items.len() >= least);
        let mut often: Vec<(u64, Vec<u32>)> = blocks.map(items).collect();
        often.sort_unstable_by_key(|(_, places)| (places.len(), Reverse(places[0])));
        Self { ran, often, least, covered: vec![false; ran.len()], goes_on: None }
    }

    /// Where the next path should be made: where the last one goes on, or else wherever most items begin.
    fn next(&mut self, hot: &Hot) -> Option<Found> {
        while let Some((entry, mut places)) = self.behind().or_else(|| self.often.pop()) {
            places.retain(|place| !self.covered[*place as usize]);
            if places.len() < self.least || !hot.may_be_made(self.ran, entry, &places) {
                continue;
            }
            let route = route(self.ran, entry, places.clone());
            let is_long = route.entries.len() > 1 && hot.is_new(&route);
            if is_long && self.is_worth(&places, &route.entries) {
                return Some(Found { route, places });
            }
        }
        None
    }

    /// Whether a path of these blocks would have gone as far, from these places on, as items did.
    fn is_worth(&self, places: &[u32], blocks: &[u64]) -> bool {
        let same = |place: &u32| {
            let ran = self.ran[*place as usize..].iter();
            ran.zip(blocks).take_while(|(r, block)| r.entry == **block).count()
        };
        places.iter().map(same).sum::<usize>() >= went(self.ran, places)
    }

    /// The items of the block that mostly comes behind the last path, if they are to be looked at and have not been.
    fn behind(&mut self) -> Option<(u64, Vec<u32>)> {
        let entry = self.goes_on.take()?;
        let place = self.often.iter().position(|(block, _)| *block == entry)?;
        Some(self.often.remove(place))
    }

    /// A path was made of these blocks: as far as it would have been taken, nothing else begins there.
    fn cover(&mut self, path: &[u64]) {
        let mut at = 0;
        let mut behind: Vec<&Ran> = Vec::new();
        while at < self.ran.len() {
            let same = self.ran[at..].iter().zip(path).take_while(|(r, p)| r.entry == **p).count();
            let is_entered = same > 0 && self.ran[at].begins && !self.covered[at];
            if is_entered {
                self.covered[at..at + same].fill(true);
                behind.extend(self.ran.get(at + same).filter(|_| same == path.len()));
            }
            at += if is_entered { same } else { 1 };
        }
        behind.sort_unstable_by_key(|block| block.entry);
        let most = behind.chunk_by(|a, b| a.entry == b.entry).max_by_key(|same| same.len());
        self.goes_on = most.map(|same| same[0].entry);
    }
}

impl Hot {
    /// Nothing.
    pub fn new() -> Self {
        Self { wait: 2, period: 1, not_before: 0, known: 0, made: HashMap::default() }
    }

    /// Whether a path might be made that begins with a block, which was run at these places: there is none, or that is mostly left before its end.
    fn may_be_made(&self, ran: &[Ran], entry: u64, places: &[u32]) -> bool {
        let Some((blocks, tries)) = self.made.get(&entry) else { return true };
        let is_left = || went(ran, places) * 2 < blocks.len() * places.len();
        *tries < MOST_TRIES && (blocks.is_empty() || is_left())
    }

    /// Whether there is no such path yet: none that begins there, or one that goes another way.
    fn is_new(&self, route: &Route) -> bool {
        let Some((blocks, _)) = self.made.get(&route.entries[0]) else { return true };
        let same = blocks.iter().zip(&route.entries).take_while(|(a, b)| a == b).count();
        blocks.is_empty() || same < blocks.len().min(route.entries.len())
    }

    /// The path that begins here is gone.
    pub fn forget(&mut self, entry: u64) {
        self.made.remove(&entry);
    }
}

/// How many blocks the items have that begin at these places.
fn went(ran: &[Ran], places: &[u32]) -> usize {
    let behind = |place: &u32| ran[*place as usize + 1..].iter().take_while(|r| !r.begins).count();
    places.iter().map(|place| 1 + behind(place)).sum()
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
        let turns = route.entries.iter().filter(|entry| **entry == best).count();
        if turns > 0 && (turns >= MOST_TURNS || count * 20 < all * NEARLY_ALWAYS) {
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

    /// The paths that should be made, as if none could be.
    fn routes(hot: &Hot, blocks: &str, least: usize) -> Vec<(String, Option<char>)> {
        let ran = ran(blocks);
        let mut search = Search::new(&ran, least);
        std::iter::from_fn(|| search.next(hot)).map(|found| shown(&found.route)).collect()
    }

    /// The paths that should be made, where each can be of at most so many blocks.
    fn made(blocks: &str, least: usize, most: usize) -> Vec<String> {
        let ran = ran(blocks);
        let mut search = Search::new(&ran, least);
        let mut made = Vec::new();
        while let Some(Found { route, .. }) = search.next(&Hot::new()) {
            let len = route.entries.len().min(most);
            search.cover(&route.entries[..len]);
            made.push(shown(&route).0[..len].to_owned());
        }
        made
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
    fn loops_that_are_nearly_always_gone_round_again_are_unrolled() {
        let turns = "AB".repeat(100);
        assert_eq!(routes(&Hot::new(), &turns, 6)[0], ("abababab".to_owned(), Some('a')));
        // Every tenth time it is left.
        let turns = format!("{}.", "AB".repeat(10)).repeat(20);
        assert_eq!(routes(&Hot::new(), &turns, 6)[0], ("ab".to_owned(), Some('a')));
    }

    #[test]
    fn what_is_in_a_path_begins_none() {
        assert_eq!(made(&"ABCDEF".repeat(10), 6, 40), ["abcdef"]);
        let found = made(&"ABCDEF".repeat(10), 6, 4);
        assert_eq!(found, ["abcd", "efab"]);
        // Every other time it goes elsewhere behind its second block, and there others begin.
        let found = made(&"ABCDZABXYZ".repeat(10), 6, 40);
        assert_eq!(found, ["abxyz", "zabxyz", "cdzabxyz"]);
        // What begins seldom but for that begins no path.
        assert_eq!(made(&format!("{}XBCXBC", "ABC".repeat(9)), 6, 40), ["bca"]);
    }

    #[test]
    fn paths_are_not_made_anew_to_go_less_far() {
        let blocks = |path: &str| path.chars().map(|c| u64::from(c as u32)).collect::<Vec<_>>();
        // Each item went two blocks of four.
        let ran = ran(&"AbX.".repeat(6));
        let search = Search::new(&ran, 6);
        let places: Vec<u32> = (0..6).map(|item| 4 * item).collect();
        assert!(search.is_worth(&places, &blocks("abx")));
        assert!(search.is_worth(&places, &blocks("ab")));
        assert!(!search.is_worth(&places, &blocks("ax")));
    }

    #[test]
    fn what_often_comes_behind_an_item_is_found() {
        let letters = |(from, to): (u64, u64)| (char::from(from as u8), char::from(to as u8));
        let found = |blocks: &str, least| -> Vec<(char, char)> {
            pairs(&ran(blocks), least).into_iter().map(letters).collect()
        };
        // Whatever lies between, as long as it is part of an item.
        assert_eq!(found("AbcDAbDADABAB", 3), [('a', 'd'), ('d', 'a')]);
        assert_eq!(found("AbcDAbDADABAB", 2), [('a', 'd'), ('d', 'a'), ('a', 'b')]);
        // Across anything else nothing is known.
        assert_eq!(found("A.A.A.A", 1), []);
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
