//! Generated code brings lines and pages in by itself, and does it as a cache and a TLB
//! would that see every reference.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ichnos_base::{Batch, Event, GuestVa, Record, Sink, ThreadId};
use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::profile::{
    Detail, Gone, Models, Pass, Reference, ReferenceKind, Ring, Sets, Shape, Stamps, Transfer,
    WRITTEN,
};
use ichnos_collect_rv64::user::{run, run_profiled};

use crate::guests::{Folder, compile, config};

const LINE: u64 = 64;
const PAGE: u64 = 4096;
const WAYS: usize = 8;
/// So few sets and pages that lines and pages come and go all the time, and those of the
/// code that runs among them.
const SETS: usize = 4;
const PAGES: usize = 6;

/// Misses of lines and of pages, by sort of reference and instruction.
type Misses = BTreeMap<(u8, u64), [u64; 2]>;

fn atomics(count: usize) -> Stamps {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// A cache of data and a TLB for both whose insides can be shared.
#[derive(Debug)]
struct Own {
    words: Stamps,
    stamps: Stamps,
    ring: Stamps,
    shares: bool,
    told: u64,
    misses: Misses,
    evictions: u64,
    write_backs: u64,
}

impl Own {
    fn new(shares: bool) -> Self {
        Self {
            words: atomics(SETS * WAYS),
            stamps: atomics(SETS * WAYS),
            ring: atomics(Ring::WORDS),
            shares,
            told: 0,
            misses: Misses::new(),
            evictions: 0,
            write_backs: 0,
        }
    }

    fn count(&mut self, (kind, pc): (ReferenceKind, GuestVa), which: usize, count: u64) {
        self.misses.entry((kind as u8, pc.0)).or_default()[which] += count;
    }

    /// Changes how many pages have the lowest bits of this one.
    fn count_page(&self, number: u64, change: impl Fn(u64, u64) -> u64) {
        let at = number as usize % Ring::COUNTED;
        let word = &self.ring[Ring::COUNTS + at / 8];
        word.store(change(word.load(Relaxed), 1 << (8 * (at % 8))), Relaxed);
    }

    /// Uses a page: the one that had to go, if it was absent and another had to.
    fn use_page(&mut self, number: u64, who: (ReferenceKind, GuestVa)) -> Option<u64> {
        let word = 8 * number + 1;
        if self.ring[..PAGES].iter().any(|one| one.load(Relaxed) == word) {
            return None;
        }
        self.count(who, 1, 1);
        let next = self.ring[Ring::NEXT].load(Relaxed);
        self.ring[Ring::NEXT].store((next + 1) % PAGES as u64, Relaxed);
        let old = self.ring[next as usize].swap(word, Relaxed);
        self.count_page(number, |counts, one| counts + one);
        if old != 0 {
            self.count_page(old / 8, |counts, one| counts - one);
        }
        (old != 0).then_some(old / 8)
    }

    /// Uses a line: where it is, and the line that had to go.
    fn use_line(&mut self, line: u64, r: &Reference) -> (usize, Option<u64>) {
        let first = WAYS * (line as usize % SETS);
        let slots = first..first + WAYS;
        let dirty = if r.kind == ReferenceKind::Store { WRITTEN } else { 0 };
        let word = 8 * line + 1;
        let is_it = |slot: &usize| self.words[*slot].load(Relaxed) & !WRITTEN == word;
        let found = slots.clone().find(is_it);
        let oldest = || slots.clone().min_by_key(|&slot| self.stamps[slot].load(Relaxed));
        let slot = found.or_else(oldest).expect("a set has slots");
        self.stamps[slot].store(r.now, Relaxed);
        if found.is_some() {
            self.words[slot].fetch_or(dirty, Relaxed);
            return (slot, None);
        }
        self.count((r.kind, r.pc), 0, 1);
        let old = self.words[slot].swap(word | dirty, Relaxed);
        self.evictions += u64::from(old != 0);
        self.write_backs += u64::from(old & WRITTEN != 0);
        (slot, (old != 0).then_some(old / 8))
    }
}

impl Models for Own {
    fn shape(&mut self) -> Shape {
        let detail = Detail::Lines;
        Shape { code_line: LINE, data_line: LINE, page: PAGE, detail, transfers: false }
    }

    fn stamps(&mut self, _: ThreadId, kind: ReferenceKind) -> Option<Stamps> {
        (kind != ReferenceKind::Fetch).then(|| Arc::clone(&self.stamps))
    }

    fn resume(&mut self, _: ThreadId, _: &mut Gone) {}

    fn translate(&mut self, r: &Reference, gone: &mut Gone) -> bool {
        self.told += 1;
        for number in r.addr.0 / PAGE..=(r.addr.0 + u64::from(r.size) - 1) / PAGE {
            let old = self.use_page(number, (r.kind, r.pc));
            gone.pages.extend(old.map(|number| GuestVa(number * PAGE)));
        }
        true
    }

    fn reference(&mut self, r: &Reference, gone: &mut Gone) -> Pass {
        self.told += 1;
        if r.kind == ReferenceKind::Fetch {
            return Pass::Loads(0);
        }
        let (first, last) = (r.addr.0 / LINE, (r.addr.0 + u64::from(r.size) - 1) / LINE);
        let mut slot = 0;
        for line in first..=last {
            let (place, old) = self.use_line(line, r);
            gone.data.extend(old.map(|line| GuestVa(line * LINE)));
            slot = place;
        }
        let written = self.words[slot].load(Relaxed) & WRITTEN != 0;
        match (first == last, written) {
            (false, _) => Pass::Nothing,
            (true, true) => Pass::All(slot as u32),
            (true, false) => Pass::Loads(slot as u32),
        }
    }

    fn marks(&mut self, _: ThreadId) -> Option<Stamps> {
        self.shares.then(|| Arc::clone(&self.words))
    }

    fn sets(&mut self, _: ThreadId) -> Option<Sets> {
        let (words, stamps) = (Arc::clone(&self.words), Arc::clone(&self.stamps));
        self.shares.then_some(Sets { words, stamps, mask: SETS as u64 - 1, space: 0 })
    }

    fn missed(&mut self, _: ThreadId, who: (ReferenceKind, GuestVa), count: u64) {
        self.count(who, 0, count);
    }

    fn evicted(&mut self, _: ThreadId, evictions: u64, write_backs: u64) {
        self.evictions += evictions;
        self.write_backs += write_backs;
    }

    fn ring(&mut self, _: ThreadId) -> Option<Ring> {
        let words = Arc::clone(&self.ring);
        self.shares.then_some(Ring { words, capacity: PAGES as u64, space: 0, tag: 1 })
    }

    fn walked(&mut self, _: ThreadId, who: (ReferenceKind, GuestVa), count: u64) {
        self.count(who, 1, count);
    }

    fn transfer(&mut self, _: ThreadId, _: &Transfer) {}
    fn event(&mut self, _: ThreadId, _: &Event<'_>) {}
}

/// The same, told everything, in lists.
#[derive(Default)]
struct Naive {
    pc: u64,
    pages: VecDeque<u64>,
    /// Lines of each set, the one used last at the end, and whether they were written.
    sets: [Vec<(u64, bool)>; SETS],
    misses: Misses,
    evictions: u64,
    write_backs: u64,
}

impl Naive {
    fn refer(&mut self, kind: ReferenceKind, addr: u64, size: u64) {
        let pc = self.pc;
        let mut missed = |which: usize| {
            self.misses.entry((kind as u8, pc)).or_default()[which] += 1;
        };
        for page in addr / PAGE..=(addr + size - 1) / PAGE {
            if !self.pages.contains(&page) {
                missed(1);
                self.pages.push_back(page);
                if self.pages.len() > PAGES {
                    self.pages.pop_front();
                }
            }
        }
        if kind == ReferenceKind::Fetch {
            return;
        }
        for line in addr / LINE..=(addr + size - 1) / LINE {
            let set = &mut self.sets[line as usize % SETS];
            let place = set.iter().position(|one| one.0 == line);
            let old = place.map(|place| set.remove(place));
            if old.is_none() {
                missed(0);
                if set.len() == WAYS {
                    self.evictions += 1;
                    self.write_backs += u64::from(set.remove(0).1);
                }
            }
            let written = kind == ReferenceKind::Store || old.is_some_and(|one| one.1);
            set.push((line, written));
        }
    }
}

impl Sink for Naive {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            match *record {
                Record::Insn { pc, len, .. } => {
                    self.pc = pc.0;
                    self.refer(ReferenceKind::Fetch, pc.0, len.into());
                }
                Record::Load { addr, size, .. } => {
                    self.refer(ReferenceKind::Load, addr.0, size.into());
                }
                Record::Store { addr, size, .. } => {
                    self.refer(ReferenceKind::Store, addr.0, size.into());
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

#[test]
fn generated_code_replaces_lines_and_pages_as_models_do() {
    let folder = Folder::new("bring");
    for (name, args) in [("quicksort", &["3000"][..]), ("matrix", &["20"]), ("hello", &[])] {
        let Some(program) = compile(&folder, name, &["-static"]) else { return };
        let mut naive = Naive::default();
        {
            let (config, _file) = config(&program, args, &folder, None);
            run(&config, &mut naive).expect("the simulator runs");
        }
        let told =
            [(false, Speed::Interpreted), (false, Speed::Generated), (true, Speed::Generated)].map(
                |(shares, speed)| {
                    let (mut config, _file) = config(&program, args, &folder, None);
                    config.speed = speed;
                    let (_, _, own) = run_profiled(&config, Own::new(shares)).expect("it runs");
                    let what = format!("{name}, shared: {shares}, {speed:?}");
                    assert_eq!(own.misses, naive.misses, "{what}");
                    let ends = (own.evictions, own.write_backs);
                    assert_eq!(ends, (naive.evictions, naive.write_backs), "{what}");
                    own.told
                },
            );
        assert!(name == "hello" || 2 * told[2] < told[1], "{name}: {told:?}");
    }
}
