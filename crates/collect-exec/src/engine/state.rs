//! What all threads of a process share.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use ichnos_base::Sieve;

use super::cache::Cache;
use super::ctx::{Ctx, JUMP_TABLE, RET_TABLE};
use super::fragment::PadKind;
use super::lock::Lock;
use super::sys;
use super::{glue, guards};
use crate::boot::Paths;

/// The state of a process.
pub struct State {
    /// The code cache.
    pub cache: Lock<Cache>,
    /// The contexts of all threads, as addresses.
    pub threads: Lock<Vec<u64>>,
    /// The trace's number of the process. A child that shares the memory (vfork) has another, which
    /// only its thread knows.
    pub process: AtomicU32,
    /// Whether what runs is recorded.
    pub traced: bool,
    /// Whether it is counted, because not all is recorded.
    pub counted: bool,
    /// What is kept back of it, because somebody need not see it.
    pub sieve: Option<Sieve>,
    /// Whether the program goes on untraced where the engine cannot.
    pub fallback: bool,
    /// Which paths are made.
    pub paths: Paths,
    /// Diagnostics.
    pub debug: u64,
    /// How often the cache was left for the dispatcher.
    pub exits: AtomicU64,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the state, once.
pub fn set(state: State) {
    STATE.store(Box::leak(Box::new(state)), Ordering::Release);
}

/// The state.
pub fn get() -> &'static State {
    let state = STATE.load(Ordering::Acquire);
    if state.is_null() {
        sys::die("the engine was used before it was set up");
    }
    // SAFETY: set once to a leaked box.
    unsafe { &*state }
}

impl State {
    /// Makes the guarded pages of a range writable again, and takes out the code that was
    /// translated from their memory; whether there were any.
    pub fn open(&self, start: u64, len: u64) -> bool {
        if len == 0 || !guards::any() {
            return false;
        }
        let end = start.saturating_add(len - 1);
        let code = self.cache.lock().pages.guards.open(start >> 12, end >> 12);
        code.iter().for_each(|&page| self.invalidate(page << 12, 1 << 12));
        !code.is_empty()
    }

    /// The trace's number of the process.
    pub fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    /// Takes out translated code of a range, in the cache and in every thread's tables.
    pub fn invalidate(&self, start: u64, len: u64) {
        let mut cache = self.cache.lock();
        if cache.invalidate(start, len) {
            self.forget_removed(&mut cache);
        }
    }

    /// Takes what was removed from the cache out of every thread's tables.
    pub fn forget_removed(&self, cache: &mut Cache) {
        let removed = std::mem::take(&mut cache.removed);
        if removed.is_empty() {
            return;
        }
        for &thread in self.threads.lock().iter() {
            // SAFETY: registered contexts stay mapped until they are taken off the list.
            let ctx = unsafe { &*(thread as *const Ctx) };
            for pad in &removed {
                let (table, miss) = match pad.kind {
                    PadKind::Jump => (JUMP_TABLE, glue::address(glue::ichnos_miss_jump)),
                    PadKind::Ret => (RET_TABLE, glue::address(glue::ichnos_miss_ret)),
                };
                // SAFETY: the block holds the tables; a word is replaced as a whole, and its
                // thread may read the old or the new one.
                unsafe {
                    let slot = AtomicU64::from_ptr(ctx.table_slot(table, pad.tag));
                    let _ =
                        slot.compare_exchange(pad.at, miss, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }
}
