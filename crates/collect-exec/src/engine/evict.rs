//! Empties a full code cache.
//!
//! All fragments go at once, in three steps. First they are taken off the books: no link and no table leads
//! to one any more, so a thread that runs translated code comes to the dispatcher at the end of
//! its fragment at the latest. Then everybody waits there until nobody is left inside. Only then is the memory
//! used again.
//!
//! Invariants: a thread whose `outside` is set enters the cache only by asking for a
//! fragment under the lock, and then has its own tables emptied if the cache was filled anew since it last
//! asked; exit numbers are looked up before `outside` is set, so none outlives its filling.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::Ordering;

use super::cache::Cache;
use super::ctx::Ctx;
use super::lock::Guard;
use super::state::State;
use super::sys;

/// How long the last thread may take to come out, in naps.
const MOST_NAPS: u32 = 300_000;
/// A nap, in nanoseconds.
const NAP: u64 = 100_000;

impl State {
    /// Empties the cache, or waits until another thread has. The calling thread is outside.
    pub fn refill<'a>(&'a self, mut cache: Guard<'a, Cache>) -> Guard<'a, Cache> {
        let filling = cache.filling();
        cache.retire();
        let mut naps = 0;
        while cache.filling() == filling {
            if self.nobody_inside() {
                cache.empty();
                break;
            }
            drop(cache);
            if naps == MOST_NAPS {
                sys::die("the code cache is full, and a thread does not come out of it");
            }
            naps += 1;
            sys::nap(NAP);
            cache = self.cache.lock();
        }
        cache
    }

    /// Whether no thread can be in translated code. Those that are find no way on there.
    fn nobody_inside(&self) -> bool {
        let threads = self.threads.lock();
        // SAFETY: registered contexts stay mapped until they are taken off the list.
        let contexts = threads.iter().map(|&at| unsafe { &*(at as *const Ctx) });
        let inside = contexts.filter(|ctx| ctx.outside.load(Ordering::Acquire) == 0);
        inside.map(Ctx::forget_targets).count() == 0
    }
}
