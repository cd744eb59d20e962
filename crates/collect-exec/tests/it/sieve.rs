//! Behind a sieve a cache counts what it counts without one.
//!
//! The cache is a naive one of this test's own: sets of lines in the order of their use.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;

use ichnos_base::{Batch, Gone, Held, Known, Line, Lines, Record, Sieve, Sink, ThreadId, Use};
use ichnos_collect_exec::{Launch, Paths, Record as What, Vdso};

use super::{Link, PINNED, guest};

const LINE: u64 = 64;

/// What a cache has counted: uses of lines, misses, and lines that went dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    uses: u64,
    misses: u64,
    write_backs: u64,
}

/// A cache: for each set its lines, the one used last at the end, and whether each is dirty.
struct Cache {
    sets: Vec<Vec<(u64, bool)>>,
    ways: usize,
    counts: Counts,
}

impl Cache {
    fn new(sets: usize, ways: usize) -> Self {
        Self { sets: vec![Vec::new(); sets], ways, counts: Counts::default() }
    }

    /// Uses the lines of a reference; how many.
    fn touch(&mut self, addr: u64, size: u64, store: bool) -> u64 {
        let before = self.counts.uses;
        for line in addr / LINE..=(addr + size.max(1) - 1) / LINE {
            self.counts.uses += 1;
            let at = line as usize % self.sets.len();
            let set = &mut self.sets[at];
            let mut dirty = store;
            match set.iter().position(|&(l, _)| l == line) {
                Some(i) => dirty |= set.remove(i).1,
                None => {
                    self.counts.misses += 1;
                    if set.len() == self.ways {
                        self.counts.write_backs += u64::from(set.remove(0).1);
                    }
                }
            }
            set.push((line, dirty));
        }
        self.counts.uses - before
    }

    /// A line comes that nobody asked for.
    fn prefetch(&mut self, addr: u64) {
        let before = self.counts;
        let at = (addr / LINE) as usize % self.sets.len();
        if self.sets[at].iter().all(|&(line, _)| line != addr / LINE) {
            self.touch(addr, 1, false);
        }
        self.counts = Counts { write_backs: self.counts.write_backs, ..before };
    }

    /// A line comes in the place of another one, as long as it is a miss.
    fn exchange(&mut self, addr: u64, store: bool, goes: Gone) {
        let (gone, stored) = match goes {
            Gone::Clean(gone) => (gone, false),
            Gone::Dirty(gone) => (gone, true),
        };
        let at = (addr / LINE) as usize % self.sets.len();
        let set = &mut self.sets[at];
        assert!(set.iter().all(|&(line, _)| line != addr / LINE), "{addr:#x} is there already");
        assert_eq!(set.len(), self.ways, "nothing has to go yet");
        let found = set.iter().position(|&(line, _)| line == gone.0 / LINE);
        let (_, dirty) = set.remove(found.expect("it is there"));
        self.counts.uses += 1;
        self.counts.misses += 1;
        self.counts.write_backs += u64::from(dirty || stored);
        set.push((addr / LINE, store));
    }
}

/// The caches of one thread, and how many instructions, and lines of loads and stores, there were.
struct Core {
    code: Cache,
    data: Cache,
    insns: u64,
    accesses: [u64; 2],
}

struct Machine {
    sieve: Sieve,
    ways: usize,
    cores: BTreeMap<u32, Core>,
    told: u64,
}

impl Machine {
    fn new(sets: [u32; 2], ways: usize, known: Known) -> Self {
        let lines = |sets| Lines { shift: LINE.trailing_zeros(), sets, ways: ways as u32, known };
        let sieve = Sieve { code: lines(sets[0]), data: lines(sets[1]) };
        Self { sieve, ways, cores: BTreeMap::new(), told: 0 }
    }

    fn core(&mut self, id: ThreadId) -> &mut Core {
        let cache = |lines: Lines| Cache::new(1 << lines.sets, self.ways);
        let (code, data) = (cache(self.sieve.code), cache(self.sieve.data));
        self.cores.entry(id.0).or_insert(Core { code, data, insns: 0, accesses: [0; 2] })
    }

    fn counts(&self) -> Vec<(u64, [u64; 2], Counts, Counts)> {
        let counts = |c: &Core| (c.insns, c.accesses, c.code.counts, c.data.counts);
        self.cores.values().map(counts).collect()
    }
}

impl Sink for Machine {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.told += batch.records.len() as u64;
        let core = self.core(batch.thread);
        for record in batch.records {
            match *record {
                Record::Insn { pc, len, .. } => {
                    core.insns += 1;
                    core.code.touch(pc.0, len.into(), false);
                }
                Record::Load { addr, size, .. } => {
                    core.accesses[0] += core.data.touch(addr.0, size.into(), false);
                }
                Record::Store { addr, size, .. } => {
                    core.accesses[1] += core.data.touch(addr.0, size.into(), true);
                }
                // These act on the cache, if anything does.
                Record::Prefetch { addr, .. } => core.data.prefetch(addr.0),
                _ => {}
            }
        }
        Ok(true)
    }

    fn sieve(&self) -> Option<Sieve> {
        Some(self.sieve)
    }

    fn sifted(&mut self, thread: ThreadId, lines: &[Line]) -> Result<bool, Infallible> {
        self.told += lines.len() as u64;
        let core = self.core(thread);
        for line in lines {
            match *line {
                Line::Fetch(addr) => {
                    core.insns += 1;
                    core.code.touch(addr.0, 1, false);
                }
                Line::Load(addr) => core.accesses[0] += core.data.touch(addr.0, 1, false),
                Line::Store(addr) => core.accesses[1] += core.data.touch(addr.0, 1, true),
                Line::Prefetch(addr) => core.data.prefetch(addr.0),
                Line::Instead { comes: Use::Fetch, line, goes } => {
                    core.insns += 1;
                    core.code.exchange(line.0, false, goes);
                }
                Line::Instead { comes, line, goes } => {
                    core.accesses[usize::from(comes == Use::Store)] += 1;
                    core.data.exchange(line.0, comes == Use::Store, goes);
                }
                Line::Flush(_) => {}
            }
        }
        Ok(true)
    }

    fn held(&mut self, thread: ThreadId, held: &Held) -> Result<bool, Infallible> {
        let core = self.core(thread);
        core.insns = core.insns.wrapping_add(held.insns);
        let fetches = held.insns.wrapping_add(held.across);
        core.code.counts.uses = core.code.counts.uses.wrapping_add(fetches);
        core.accesses[0] += held.loads;
        core.accesses[1] += held.stores;
        core.data.counts.uses += held.loads + held.stores;
        Ok(true)
    }
}

fn run(program: &Path, machine: Machine, what: What) -> Machine {
    run_padded(program, machine, (what, Paths::default()), "")
}

/// Runs a program with something in its environment.
fn run_padded(
    program: &Path,
    mut machine: Machine,
    (what, paths): (What, Paths),
    pad: &str,
) -> Machine {
    let mut launch = Launch::new(program);
    launch.record(what).paths(paths).vdso(Vdso::Hidden);
    let command = launch.command();
    command
        .env_clear()
        .env(PINNED.0, PINNED.1)
        .env("PAD", pad)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let tracee = launch.spawn().expect("it starts");
    let outcome = tracee.collect(&mut machine).expect("it is collected");
    let insns: u64 = machine.cores.values().map(|core| core.insns).sum();
    assert_eq!(outcome.insns, insns);
    machine
}

/// The same counts of all threads, of programs that do the same each time.
#[test]
fn a_sieve_changes_no_count() {
    for (name, link) in [
        ("small", Link::Static),
        ("small", Link::Dynamic),
        ("varying", Link::Static),
        ("faults", Link::Static),
        ("strings", Link::Static),
        ("jit", Link::Static),
    ] {
        let program = guest(name, link);
        // With whole sets known, with one line of each, and with sets that share a place of the tables.
        let shapes = [
            ([6, 6], 8, Known::All),
            ([5, 6], 12, Known::All),
            ([4, 3], 2, Known::All),
            ([0, 0], 4, Known::All),
            ([12, 12], 2, Known::All),
            ([5, 5], 4, Known::Last),
            ([13, 13], 1, Known::Last),
        ];
        for (sets, ways, known) in shapes {
            let machine = || Machine::new(sets, ways, known);
            let whole = run(&program, machine(), What::All);
            let sifted = run(&program, machine(), What::Sifted(machine().sieve));
            assert_eq!(sifted.counts(), whole.counts(), "{name} {sets:?} {ways} {known:?}");
            assert!(sifted.told < whole.told, "{name}: nothing was kept back");
        }
    }
}

/// The same wherever the stack lies: what a function saves there may begin and end anywhere in a line, and buffers may end
/// anywhere in what is told. They are small where many paths would be made.
#[test]
fn a_sieve_changes_no_count_wherever_the_stack_lies() {
    for (name, link, sets, ways) in [
        ("small", Link::Dynamic, [4, 3], 2),
        ("small", Link::Static, [0, 0], 4),
        ("varying", Link::Static, [0, 0], 4),
        ("faults", Link::Static, [0, 0], 4),
        ("strings", Link::Static, [4, 3], 2),
        ("jit", Link::Static, [0, 0], 4),
    ] {
        let program = guest(name, link);
        for pad in (0..64).step_by(8) {
            let pad = "x".repeat(pad);
            let machine = || Machine::new(sets, ways, Known::All);
            let counts =
                |what| run_padded(&program, machine(), (what, Paths::Eager), &pad).counts();
            let sifted = counts(What::Sifted(machine().sieve));
            assert_eq!(sifted, counts(What::All), "{name}, {} bytes", pad.len());
        }
    }
}

/// Programs with signals, threads and children behave as natively, and nothing of them is lost.
#[test]
fn behind_a_sieve_programs_do_what_they_do() {
    for name in ["signals", "processes", "threads", "jit", "faults", "strings"] {
        let program = guest(name, Link::Dynamic);
        let want = super::native(&program, &[]);
        let mut launch = super::piped(&program, &[]);
        let mut machine = Machine::new([6, 6], 8, Known::All);
        launch.record(What::Sifted(machine.sieve));
        launch.command().stdout(Stdio::null()).stderr(Stdio::null());
        let outcome = launch.spawn().expect("it starts").collect(&mut machine).expect("collected");
        assert_eq!(outcome.status, want.status, "{name}");
        assert!(outcome.insns > 10_000, "{name}: {}", outcome.insns);
    }
}
