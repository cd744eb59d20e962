//! Profiles are right: executions deduced from arcs are those counted one by
//! one, and instructions are as many as QEMU counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::process::{Command, Stdio};

use ichnos_base::{Batch, Event, Record, Sink, ThreadId};
use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::profile::{
    Detail, Gone, Models, Pass, Profile, Reference, ReferenceKind, Shape, Stamps, Transfer,
};
use ichnos_collect_rv64::user::{run, run_profiled, run_untraced};
use ichnos_testkit::tool;

use crate::guests::{Folder, compile, config};

/// A direct-mapped cache for code and data alike; of few lines, they come and go
/// all the time.
#[derive(Debug)]
pub(crate) struct Small {
    lines: Vec<u64>,
    /// All lines that ever had to go.
    evicted: BTreeSet<u64>,
    told: u64,
    pub(crate) misses: u64,
}

const LINE: u64 = 64;

impl Small {
    fn new() -> Self {
        Self::of(64)
    }

    pub(crate) fn of(lines: usize) -> Self {
        Self { lines: vec![u64::MAX; lines], evicted: BTreeSet::new(), told: 0, misses: 0 }
    }
}

impl Models for Small {
    fn shape(&mut self) -> Shape {
        Shape {
            code_line: LINE,
            data_line: LINE,
            page: 4096,
            detail: Detail::Lines,
            transfers: false,
        }
    }

    fn stamps(&mut self, _: ThreadId, _: ReferenceKind) -> Option<Stamps> {
        None
    }

    fn resume(&mut self, _: ThreadId, gone: &mut Gone) {
        // All threads share it, and none knows what the others did to it.
        for line in &self.evicted {
            gone.data.push(ichnos_base::GuestVa(line * LINE));
            gone.code.push(ichnos_base::GuestVa(line * LINE));
        }
    }

    fn translate(&mut self, _: &Reference, _: &mut Gone) -> bool {
        true
    }

    fn reference(&mut self, r: &Reference, gone: &mut Gone) -> Pass {
        self.told += 1;
        let last = (r.addr.0 + u64::from(r.size) - 1) / LINE;
        for line in r.addr.0 / LINE..=last {
            let place = line as usize % self.lines.len();
            let old = std::mem::replace(&mut self.lines[place], line);
            if old != line {
                self.misses += 1;
            }
            if old != line && old != u64::MAX {
                self.evicted.insert(old);
                gone.data.push(ichnos_base::GuestVa(old * LINE));
                gone.code.push(ichnos_base::GuestVa(old * LINE));
            }
        }
        if last == r.addr.0 / LINE { Pass::All(0) } else { Pass::Nothing }
    }

    fn transfer(&mut self, _: ThreadId, _: &Transfer) {}
    fn event(&mut self, _: ThreadId, _: &Event<'_>) {}
}

/// Executions, loads and stores of each instruction, counted one by one, and
/// the misses of the same cache that sees everything.
#[derive(Default)]
struct Direct {
    counts: BTreeMap<u64, [u64; 3]>,
    pc: u64,
    cache: Option<Small>,
}

impl Direct {
    fn refer(&mut self, addr: u64, size: u32) {
        let cache = self.cache.get_or_insert_with(Small::new);
        let (thread, pc, addr) =
            (ThreadId(0), ichnos_base::GuestVa(self.pc), ichnos_base::GuestVa(addr));
        let kind = ReferenceKind::Load;
        cache.reference(&Reference { thread, pc, addr, size, kind, now: 0 }, &mut Gone::default());
    }
}

impl Sink for Direct {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            match *record {
                Record::Insn { pc, len, .. } => {
                    self.pc = pc.0;
                    self.counts.entry(pc.0).or_default()[0] += 1;
                    self.refer(pc.0, len.into());
                }
                Record::Load { addr, size, .. } => {
                    self.counts.entry(self.pc).or_default()[1] += 1;
                    self.refer(addr.0, size);
                }
                Record::Store { addr, size, .. } => {
                    self.counts.entry(self.pc).or_default()[2] += 1;
                    self.refer(addr.0, size);
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

fn profiled(program: &Path, args: &[&str], folder: &Folder, speed: Speed) -> (Profile, Small) {
    let (mut config, _file) = config(program, args, folder, None);
    config.speed = speed;
    let (_, profile, cache) = run_profiled(&config, Small::new()).expect("the simulator runs");
    (profile, cache)
}

#[test]
fn arcs_deduce_what_direct_counting_counts() {
    let folder = Folder::new("arcs");
    for (name, args) in [
        ("quicksort", &["2000"][..]),
        ("matrix", &["12"]),
        ("hello", &[]),
        ("unix", &[]),
        ("threads", &[]),
    ] {
        let Some(program) = compile(&folder, name, &["-static"]) else { return };
        let (config, _file) = config(&program, args, &folder, None);
        let mut direct = Direct::default();
        let outcome = run(&config, &mut direct).expect("the simulator runs");
        for speed in [Speed::Generated, Speed::Interpreted] {
            let (profile, cache) = profiled(&program, args, &folder, speed);
            assert_eq!(profile.retired, outcome.retired, "{name} {speed:?}");
            let mut deduced = BTreeMap::<u64, [u64; 3]>::new();
            for one in &profile.executed {
                let sums = deduced.entry(one.pc.0).or_default();
                for (sum, by) in sums.iter_mut().zip([one.count, one.loads, one.stores]) {
                    *sum += by;
                }
            }
            for (pc, counts) in &direct.counts {
                assert_eq!(deduced.get(pc), Some(counts), "{name} {speed:?} at {pc:#x}");
            }
            assert_eq!(deduced.len(), direct.counts.len(), "{name} {speed:?}");
            let all = direct.cache.as_ref().expect("something ran");
            assert_eq!(cache.misses, all.misses, "{name} {speed:?}");
            assert!(cache.told < all.told, "{name} {speed:?}: nothing passed");
        }
    }
}

/// The instructions that QEMU counts; none, with a word on why, if it cannot.
fn qemu_counts(folder: &Folder, program: &Path, args: &[&str]) -> Option<u64> {
    let test = "collect-rv64: QEMU's counts";
    if !tool::have(test, &["gcc", "qemu-riscv64"]) {
        return None;
    }
    let plugin = folder.0.join("count.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu/count.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&plugin).arg(source);
    assert!(gcc.status().expect("gcc runs").success(), "the plugin does not compile");
    let mut qemu = Command::new("qemu-riscv64");
    qemu.env_clear().arg("-plugin").arg(&plugin).arg(program).args(args).stdin(Stdio::null());
    let output = qemu.output().expect("qemu runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = text.lines().find_map(|line| line.strip_prefix("instructions: ")?.parse().ok());
    if count.is_none() {
        tool::skip(test, "this QEMU takes no plugins");
    }
    count
}

/// The instructions that we count.
fn our_counts(folder: &Folder, program: &Path, args: &[&str]) -> u64 {
    let (mut config, _file) = config(program, args, folder, None);
    config.env.clear();
    let outcome = run_untraced(&config).expect("the simulator runs");
    let (profile, _) = profiled(program, args, folder, Speed::Generated);
    let deduced: u64 = profile.executed.iter().map(|one| one.count).sum();
    assert_eq!(deduced, profile.retired);
    outcome.retired
}

#[test]
fn instructions_are_as_many_as_qemu_counts() {
    let folder = Folder::new("counts");
    let flags = ["-static", "-nostdlib", "-ffreestanding"];
    let Some(program) = compile(&folder, "alone", &flags) else { return };
    let Some(theirs) = qemu_counts(&folder, &program, &[]) else { return };
    assert_eq!(our_counts(&folder, &program, &[]), theirs);
}

/// What a C library does before `main` depends on what the kernel tells of
/// itself, which is ours to choose; what follows does not. So two runs of
/// different length must differ by the same number.
#[test]
fn programs_with_a_library_grow_as_under_qemu() {
    let folder = Folder::new("growth");
    for (name, sizes) in [("quicksort", ["3000", "9000"]), ("matrix", ["12", "31"])] {
        let Some(program) = compile(&folder, name, &["-static"]) else { return };
        let ours = sizes.map(|size| our_counts(&folder, &program, &[size]));
        let [Some(less), Some(more)] = sizes.map(|size| qemu_counts(&folder, &program, &[size]))
        else {
            return;
        };
        assert_eq!(ours[1] - ours[0], more - less, "{name}");
    }
}
