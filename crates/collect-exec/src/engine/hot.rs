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

/// How many blocks are looked at in a buffer.
const SAMPLE: usize = 3000;
/// How often a block must begin an item there.
const OFTEN: usize = 6;
/// In how many of ten cases a path must go on in the same way.
const MOSTLY: usize = 6;
/// The most blocks of a path.
const MOST_BLOCKS: usize = 40;
/// The most paths that are made of one sample.
const MOST_PATHS: usize = 16;
/// How often a path may be made anew.
const MOST_TRIES: u8 = 4;
/// The most buffers between two looks.
const LONGEST: u32 = 256;

/// What is known of paths.
pub struct Hot {
    /// Buffers until the next look, and from one look to the next.
    wait: u32,
    period: u32,
    /// The paths that were made, by where they begin: their blocks, and how often.
    made: HashMap<u64, (Vec<u64>, u8), Fast>,
}

impl State {
    /// A thread's buffer is full: these bytes. It is still the thread's own.
    pub fn look_for_paths(&self, bytes: &[u8]) {
        if !self.traced || self.counted || self.sieve.is_some() {
            return;
        }
        let mut cache = self.cache.lock();
        cache.hot.wait = cache.hot.wait.saturating_sub(1);
        if cache.hot.wait > 0 {
            return;
        }
        let ran = cache.items.read(bytes, SAMPLE);
        let routes = cache.hot.routes(&ran);
        let made = routes.iter().filter(|route| make(&mut cache, route)).count();
        cache.hot.period = if made > 0 { 1 } else { (cache.hot.period * 2).min(LONGEST) };
        cache.hot.wait = cache.hot.period;
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
        Self { wait: 2, period: 1, made: HashMap::default() }
    }

    /// Where paths should be made.
    fn routes(&self, ran: &[Ran]) -> Vec<Route> {
        let mut begins: HashMap<u64, Vec<u32>, Fast> = HashMap::default();
        for (i, _) in ran.iter().enumerate().filter(|(_, r)| r.begins && r.entry != 0) {
            begins.entry(ran[i].entry).or_default().push(i as u32);
        }
        let mut often: Vec<(u64, Vec<u32>)> =
            begins.into_iter().filter(|(_, places)| places.len() >= OFTEN).collect();
        often.sort_unstable_by_key(|(entry, places)| (usize::MAX - places.len(), *entry));
        let wanted = often.into_iter().filter_map(|(entry, places)| {
            let route = route(ran, entry, places);
            (route.entries.len() > 1 && self.is_new(&route)).then_some(route)
        });
        wanted.take(MOST_PATHS).collect()
    }

    /// Whether there is no such path yet: none that begins there, or one that goes another way.
    fn is_new(&self, route: &Route) -> bool {
        let Some((blocks, tries)) = self.made.get(&route.entries[0]) else { return true };
        let same = blocks.iter().zip(&route.entries).take_while(|(a, b)| a == b).count();
        *tries < MOST_TRIES && same < blocks.len().min(route.entries.len())
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
        let mut counts: HashMap<u64, usize, Fast> = HashMap::default();
        places.iter().for_each(|place| *counts.entry(next(place)).or_default() += 1);
        let best = counts.into_iter().max_by_key(|&(entry, count)| (count, entry));
        let Some((best, count)) = best else { break };
        if best == 0 || count * 10 < places.len() * MOSTLY || count * 4 < all {
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
