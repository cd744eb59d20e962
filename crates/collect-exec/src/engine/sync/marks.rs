//! Where the watched functions begin and return to, and which thread a handle of libc's is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use ichnos_sync::{FUNCTIONS, Operation};

use crate::engine::hash::Fast;
use crate::engine::lock::Lock;
use crate::engine::symbols::{self, Tables};
use crate::engine::{maps, state};

struct Marks {
    entries: HashMap<u64, Operation, Fast>,
    returns: HashSet<u64, Fast>,
    /// The trace's numbers of threads by the address of their thread areas, which is their handle.
    threads: HashMap<u64, u32, Fast>,
}

static MARKS: Lock<Option<Marks>> = Lock::new(None);
/// Whether marks count: the process has more than one thread.
static ACTIVE: AtomicBool = AtomicBool::new(false);

fn with<T>(use_marks: impl FnOnce(&mut Marks) -> T) -> T {
    let fresh = || Marks {
        entries: HashMap::default(),
        returns: HashSet::default(),
        threads: HashMap::default(),
    };
    use_marks(MARKS.lock().get_or_insert_with(fresh))
}

/// Looks for watched functions in a file whose executable part is newly mapped at `start`, from `offset`
/// on.
pub fn learn(path: &[u8], start: u64, offset: u64) {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    let libc = [&b"libc.so"[..], b"libc-", b"libpthread", b"ld-musl"];
    let library = libc.iter().any(|prefix| name.starts_with(prefix));
    if !library && path != maps::own_path() {
        return;
    }
    let names = FUNCTIONS.map(|(name, _)| name);
    let tables = if library { Tables::Offered } else { Tables::Lone };
    let found = symbols::find(path, tables, &names, (start, offset));
    with(|marks| {
        for (which, addr) in found {
            let operation = FUNCTIONS[which].1.or(marks.entries.get(&addr).copied());
            marks.entries.insert(addr, operation);
        }
    });
}

/// The process gets a second thread: from now on its functions are watched. `thread` is the new one, by its
/// handle and its number.
pub fn activate(thread: (u64, u32)) {
    let entries: Vec<u64> = with(|marks| {
        marks.threads.insert(thread.0, thread.1);
        marks.entries.keys().copied().collect()
    });
    if !ACTIVE.swap(true, Ordering::AcqRel) {
        entries.iter().for_each(|&pc| state::get().invalidate(pc, 1));
    }
}

/// The thread with a handle.
pub fn thread_of(handle: u64) -> Option<u32> {
    with(|marks| marks.threads.get(&handle).copied())
}

/// Watches an address that a function returns to.
pub fn watch_return(pc: u64) {
    if with(|marks| marks.returns.insert(pc)) {
        state::get().invalidate(pc, 1);
    }
}

/// Whether a superblock must not run over this address.
pub fn is_entry(pc: u64) -> bool {
    ACTIVE.load(Ordering::Acquire) && with(|marks| marks.entries.contains_key(&pc))
}

/// Whether a fragment at this address must tell of it.
pub fn is_mark(pc: u64) -> bool {
    ACTIVE.load(Ordering::Acquire)
        && with(|marks| marks.entries.contains_key(&pc) || marks.returns.contains(&pc))
}

/// The function that begins at a mark.
pub fn function(pc: u64) -> Option<Operation> {
    with(|marks| marks.entries.get(&pc).copied())
}

/// For a fork: nobody changes the marks while `during` runs.
pub fn held<T>(during: impl FnOnce() -> T) -> T {
    let _marks = MARKS.lock();
    during()
}
