//! Functions that begin and end what is recorded: a thread that enters the one is recorded from there on, until it enters the
//! other.
//!
//! As with marks (`sync`), a fragment that begins at such a function leaves the cache first, in both kinds of
//! fragments. Whether a thread is inside is its own; a new thread, and a program that takes another's place, begin
//! outside if there is a function that begins it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ctx::Ctx;
use super::hash::Fast;
use super::lock::Lock;
use super::symbols::{self, Tables};
use super::{count, state};
use crate::boot::Gate;

struct Gates {
    /// What begins, and what ends.
    names: [Gate; 2],
    entries: HashMap<u64, Side, Fast>,
}

/// What entering a function does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Begins,
    Ends,
}

static GATES: Lock<Option<Gates>> = Lock::new(None);
/// Whether there are any, so that others need not look.
static ANY: AtomicBool = AtomicBool::new(false);

/// Sets the functions, before there are any threads.
pub fn set(names: [Gate; 2]) {
    if names.iter().any(|name| !name.is_none()) {
        *GATES.lock() = Some(Gates { names, entries: HashMap::default() });
        ANY.store(true, Ordering::Release);
    }
}

/// Whether functions say what is recorded.
pub fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Whether threads are inside at first: nothing begins what is recorded.
pub fn begins_inside() -> bool {
    GATES.lock().as_ref().is_none_or(|gates| gates.names[0].is_none())
}

/// Looks for the functions in a file whose executable part is newly mapped at `start`, from `offset` on.
pub fn learn(path: &[u8], start: u64, offset: u64) {
    let mut gates = GATES.lock();
    let Some(gates) = gates.as_mut() else { return };
    let names = gates.names.each_ref().map(Gate::name);
    for (which, addr) in symbols::find(path, Tables::All, &names, (start, offset)) {
        let side = if which == 0 { Side::Begins } else { Side::Ends };
        gates.entries.insert(addr, side);
    }
}

/// Whether such a function begins at an address.
pub fn is_gate(pc: u64) -> bool {
    any() && GATES.lock().as_ref().is_some_and(|gates| gates.entries.contains_key(&pc))
}

/// A thread stands at an address, perhaps of such a function; whether it must go on in the other kind of fragments.
pub fn at(ctx: &mut Ctx, pc: u64) -> bool {
    let side = GATES.lock().as_ref().and_then(|gates| gates.entries.get(&pc).copied());
    let Some(side) = side.filter(|_| state::get().counted) else { return false };
    // SAFETY: the thread's data lives as long as its context.
    unsafe { (*ctx.thread).inside = side == Side::Begins };
    let before = ctx.recorded;
    count::expired(ctx);
    ctx.recorded != before
}

/// For a fork: nobody changes the functions while `during` runs.
pub fn held<T>(during: impl FnOnce() -> T) -> T {
    let _gates = GATES.lock();
    during()
}
