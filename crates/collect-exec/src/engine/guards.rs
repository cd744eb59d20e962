//! Pages that the engine keeps closed to writing so that changes of translated code are noticed.
//!
//! A page is guarded if the program may write to it and a fragment was made from the same memory: from
//! the page itself, or from another view of the same file. A store to it faults; the page is then
//! opened and the fragments go. The kernel cannot write to a guarded page either, so whatever
//! is about to let it write opens the page first (`State::open`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::hash::Fast;
use super::sys;

const PAGE_SHIFT: u32 = 12;
/// How many opened pages are remembered.
const RECENT: usize = 64;

/// How many pages are guarded, for a quick look without a lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any page is guarded.
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

struct Guard {
    /// The rights to give back.
    prot: i32,
    /// The pages whose fragments a store here makes wrong.
    code: Vec<u64>,
}

/// The guarded pages, by number.
pub struct Guards {
    pages: HashMap<u64, Guard, Fast>,
    /// The pages opened last: another thread's store may have faulted before and be told after.
    recent: [u64; RECENT],
    next: usize,
}

impl Guards {
    /// None.
    pub fn new() -> Self {
        Self { pages: HashMap::default(), recent: [0; RECENT], next: 0 }
    }

    /// Closes page `page`, whose rights are `prot`, for fragments made from page `code`; whether it was
    /// open before.
    pub fn close(&mut self, page: u64, prot: i32, code: u64) -> bool {
        if let Some(guard) = self.pages.get_mut(&page) {
            if !guard.code.contains(&code) {
                guard.code.push(code);
            }
            return false;
        }
        self.pages.insert(page, Guard { prot, code: vec![code] });
        COUNT.store(self.pages.len(), Ordering::Relaxed);
        protect(page, prot & !libc::PROT_WRITE);
        true
    }

    /// Opens what is guarded in a range of pages, and gives the pages whose fragments must go.
    pub fn open(&mut self, first: u64, last: u64) -> Vec<u64> {
        let hit: Vec<u64> = if first == last {
            self.pages.contains_key(&first).then_some(first).into_iter().collect()
        } else {
            self.pages.keys().copied().filter(|p| (first..=last).contains(p)).collect()
        };
        let mut code = Vec::new();
        for page in hit {
            let Some(guard) = self.pages.remove(&page) else { continue };
            protect(page, guard.prot);
            self.recent[self.next] = page;
            self.next = (self.next + 1) % RECENT;
            code.extend(guard.code);
        }
        COUNT.store(self.pages.len(), Ordering::Relaxed);
        code
    }

    /// The addresses of the guarded pages.
    pub fn pages(&self) -> Vec<u64> {
        self.pages.keys().map(|page| page << PAGE_SHIFT).collect()
    }

    /// The addresses of those to which the program may write.
    pub fn writable(&self) -> Vec<u64> {
        let writable = |guard: &Guard| guard.prot & libc::PROT_WRITE != 0;
        let pages = self.pages.iter().filter(|(_, guard)| writable(guard));
        pages.map(|(page, _)| page << PAGE_SHIFT).collect()
    }

    /// Whether a page was opened a short while ago.
    pub fn opened_lately(&self, page: u64) -> bool {
        self.recent.contains(&page)
    }
}

fn protect(page: u64, prot: i32) {
    let args = [page << PAGE_SHIFT, 1 << PAGE_SHIFT, prot as u64, 0, 0, 0];
    // SAFETY: the page is the program's; only what the program could do anyway is taken or given.
    unsafe { sys::call(libc::SYS_mprotect, args) };
}
