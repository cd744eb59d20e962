//! Exports and dumps against Valgrind's own tools: what lackey traced is told
//! to our sinks, our files are read by cg_annotate and callgrind_annotate, and
//! what these print must be what they print for Valgrind's own files.
//!
//! Needs valgrind, gcc and binutils.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ichnos_analyze::profile::{Gathered, Place, PlainCounts, Profile, Space};
use ichnos_base::*;
use ichnos_report::{DumpLackey, Positions, Subject, write_cachegrind, write_callgrind};
use ichnos_testkit::tool;

const PROGRAM: &str = r#"
int table[64], turns;
__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) int twice(int n) { return 2 * n; }
__attribute__((noinline)) int fill(int (*of)(int)) {
    int sum = 0;
    for (int i = 0; i < 64; i++) { turns++; table[i] += of(i % 8); sum += table[i]; }
    return sum;
}
int (*volatile chosen)(int) = fib;
__attribute__((noinline)) int work(void) { int r = fill(chosen) + fill(twice); return r + fib(9); }
__attribute__((force_align_arg_pointer)) void _start(void) {
    long status = work() & 1;
    __asm__ volatile("syscall" : : "a"(60), "D"(status));
}
"#;

/// Runs a command that must succeed and answers its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} cannot run: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|c| c <= 1), "{command:?}: {errors}");
    assert!(!errors.contains("WARNING"), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The program built, traced and decoded, once for all tests.
struct Traced {
    folder: PathBuf,
    program: PathBuf,
    lackey: Vec<String>,
    records: Vec<Record>,
    symbols: BTreeMap<u64, String>,
}

fn traced() -> &'static Traced {
    static TRACED: OnceLock<Traced> = OnceLock::new();
    TRACED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-valgrind");
        fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("prog.c"), folder.join("prog"));
        fs::write(&source, PROGRAM).unwrap();
        let flags = ["-O1", "-g", "-nostdlib", "-static", "-no-pie", "-fno-stack-protector"];
        run(Command::new("gcc")
            .args(flags)
            .args(["-fcf-protection=none", "-o"])
            .arg(&program)
            .arg(&source));
        let log = folder.join("lackey.log");
        run(Command::new("valgrind")
            .args(["--tool=lackey", "--trace-mem=yes"])
            .arg(format!("--log-file={}", log.display()))
            .arg(&program));
        let text = fs::read_to_string(log).unwrap();
        let lackey: Vec<_> =
            text.lines().filter(|l| !l.starts_with("==")).map(String::from).collect();
        let kinds =
            decode(&run(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&program)));
        let symbols = run(Command::new("nm").arg(&program)).lines().filter_map(symbol).collect();
        Traced { records: records(&lackey, &kinds), folder, program, lackey, symbols }
    })
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

fn symbol(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let (addr, sort, name) = (words.next()?, words.next()?, words.next()?);
    matches!(sort, "T" | "t").then(|| (hex(addr), name.to_owned()))
}

/// What objdump says about each instruction: its kind and its fixed target.
fn decode(listing: &str) -> BTreeMap<u64, (InsnKind, Option<u64>)> {
    let mut insns = BTreeMap::new();
    for line in listing.lines() {
        let Some((addr, rest)) = line.trim_start().split_once(":\t") else { continue };
        let mut words = rest.split_whitespace().filter(|w| !matches!(*w, "repz" | "rep" | "bnd"));
        let (mnemonic, operand) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let fixed = u64::from_str_radix(operand, 16).ok();
        let kind = match (mnemonic, fixed) {
            ("call" | "callq", Some(_)) => InsnKind::CALL,
            ("call" | "callq", None) => InsnKind::CALL_INDIRECT,
            ("ret" | "retq", _) => InsnKind::RETURN,
            ("jmp" | "jmpq", Some(_)) => InsnKind::JUMP,
            ("jmp" | "jmpq", None) => InsnKind::JUMP_INDIRECT,
            ("syscall", _) => InsnKind::SYSCALL,
            (m, Some(_)) if m.starts_with('j') => InsnKind::BRANCH,
            _ => InsnKind::OTHER,
        };
        insns.insert(hex(addr), (kind, fixed));
    }
    insns
}

fn records(lackey: &[String], kinds: &BTreeMap<u64, (InsnKind, Option<u64>)>) -> Vec<Record> {
    let parse = |line: &str| -> (u64, u32) {
        let (addr, size) = line[3..].split_once(',').unwrap();
        (hex(addr), size.parse().unwrap())
    };
    let mut records = Vec::new();
    let mut last: Option<(GuestVa, InsnKind, Option<u64>)> = None;
    for line in lackey {
        let (addr, size) = parse(line);
        match &line[..3] {
            "I  " => {
                if let Some((next, kind, fixed)) = last.filter(|(_, kind, _)| kind.transfers()) {
                    let taken = kind != InsnKind::BRANCH || next.0 != addr;
                    let target = if taken { addr } else { fixed.unwrap_or(0) };
                    records.push(Record::branch(taken, GuestVa(target)));
                }
                let (kind, fixed) = kinds[&addr];
                records.push(Record::insn(GuestVa(addr), size as u8, kind));
                last = Some((GuestVa(addr).offset(size.into()), kind, fixed));
            }
            " L " => records.push(Record::load(GuestVa(addr), size)),
            " S " => records.push(Record::store(GuestVa(addr), size)),
            _ => records
                .extend([Record::load(GuestVa(addr), size), Record::store(GuestVa(addr), size)]),
        }
    }
    records
}

fn gathered(traced: &Traced) -> Gathered {
    let mut profile = Profile::new(PlainCounts);
    // Batches end in odd places.
    let mut before = 0;
    for part in traced.records.chunks(777) {
        profile.records(&Batch::new(ThreadId(0), before, part)).unwrap();
        before += part.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
    }
    profile.finish().unwrap();
    let (costs, _) = profile.into_costs();
    costs.gather(&mut |_: Space, pc: GuestVa| {
        let (start, name) = traced.symbols.range(..=pc.0).next_back().unwrap();
        Place {
            image: "prog".into(),
            function: name.clone(),
            file: "prog.c".into(),
            // One line per four bytes, for want of a reader of debug information.
            line: 1 + ((pc.0 - start) / 4) as u32,
        }
    })
}

/// The numbers before the name in an annotated line, by name. Recursive levels
/// that callgrind tells apart (`fib'2`) keep their names.
fn annotated(text: &str) -> BTreeMap<String, Vec<u64>> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let numbers = line.split_whitespace().map_while(|word| match word {
            "." => Some(0),
            _ => word.replace(',', "").parse().ok(),
        });
        let numbers: Vec<u64> = numbers.collect();
        let rest: Vec<_> = line.split_whitespace().skip(numbers.len()).collect();
        let Some(name) = rest.first().filter(|_| !numbers.is_empty()) else { continue };
        let name = match name.rsplit(':').next().unwrap() {
            // Valgrind's name for `_start` is `(below main)`.
            "(below" => "_start",
            name => name,
        };
        rows.entry(name.to_owned()).or_insert(numbers);
    }
    rows
}

fn annotate(tool: &str, more: &[&str], file: &Path) -> BTreeMap<String, Vec<u64>> {
    // The one tool shows what is above its threshold, the other what is below.
    let all = if tool == "cg_annotate" { "--threshold=0" } else { "--threshold=100" };
    let mut command = Command::new(tool);
    annotated(&run(command.args(["--show-percs=no", "--auto=no", all]).args(more).arg(file)))
}

#[test]
fn lackey_lines_come_back() {
    if !tool::have("report::lackey_lines_come_back", &["valgrind", "objdump", "nm", "gcc"]) {
        return;
    }
    let traced = traced();
    let mut dump = DumpLackey::new(Vec::new());
    for part in traced.records.chunks(101) {
        dump.records(&Batch::new(ThreadId(0), 0, part)).unwrap();
    }
    dump.finish().unwrap();
    let text = String::from_utf8(dump.into_inner()).unwrap();
    assert!(traced.lackey.len() > 10_000);
    assert!(traced.lackey.iter().any(|line| line.starts_with(" M")));
    for (ours, theirs) in text.lines().zip(&traced.lackey) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(text.lines().count(), traced.lackey.len());
}

#[test]
fn cg_annotate_prints_the_same_totals() {
    if !tool::have(
        "report::cg_annotate_prints_the_same_totals",
        &["valgrind", "objdump", "nm", "gcc"],
    ) {
        return;
    }
    let traced = traced();
    let all = gathered(traced);
    let file = traced.folder.join("cachegrind.out");
    let subject = Subject { command: "./prog", notes: &["I1 cache: none", "traced by lackey"] };
    let mut out = Vec::new();
    write_cachegrind(&mut out, &subject, &all).unwrap();
    fs::write(&file, out).unwrap();
    let ours = annotate("cg_annotate", &[], &file);
    assert_eq!(ours["PROGRAM"], all.total);
    for (key, row) in &all.functions {
        assert_eq!(ours[&key.function], row.costs, "{}", key.function);
    }
    // Valgrind's own counts of the same program.
    let theirs = traced.folder.join("cachegrind.theirs");
    run(Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=yes"])
        .arg(format!("--cachegrind-out-file={}", theirs.display()))
        .arg(&traced.program));
    let theirs = annotate("cg_annotate", &["--show=Ir,Dr,Dw"], &theirs);
    // Cachegrind counts a modification as a read only.
    let modified = traced.lackey.iter().filter(|l| l.starts_with(" M")).count() as u64;
    let total = &theirs["PROGRAM"];
    assert_eq!([total[0], total[1], total[2] + modified], all.total[..3]);
    for (key, row) in &all.functions {
        assert_eq!(theirs[&key.function][0], row.costs[0], "{}", key.function);
    }
}

#[test]
fn callgrind_annotate_prints_the_same_totals_and_inclusive_costs() {
    if !tool::have(
        "report::callgrind_annotate_prints_the_same_totals_and_inclusive_costs",
        &["valgrind", "objdump", "nm", "gcc"],
    ) {
        return;
    }
    let traced = traced();
    let all = gathered(traced);
    let theirs = traced.folder.join("callgrind.theirs");
    run(Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", theirs.display()))
        .arg(&traced.program));
    let their_own = annotate("callgrind_annotate", &[], &theirs);
    let their_inclusive = annotate("callgrind_annotate", &["--inclusive=yes"], &theirs);
    // Callgrind books a block when the next one begins, so it loses the last: here
    // what follows the last return, up to the system call that ends the program.
    let last = traced.records.iter().rev().take_while(|r| !matches!(r, Record::Branch { .. }));
    let lost = last.filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
    let subject = Subject { command: "./prog", notes: &["Trigger: Program termination"] };
    for positions in [Positions::Lines, Positions::Insns] {
        let file = traced.folder.join(format!("callgrind.out.{positions:?}"));
        let mut out = Vec::new();
        write_callgrind(&mut out, &subject, &all, positions).unwrap();
        fs::write(&file, out).unwrap();
        let own = annotate("callgrind_annotate", &["--show=Ir"], &file);
        let inclusive = annotate("callgrind_annotate", &["--show=Ir", "--inclusive=yes"], &file);
        assert_eq!(own["PROGRAM"], [all.total[0]]);
        assert_eq!(own["PROGRAM"][0], their_own["PROGRAM"][0] + lost);
        for name in ["fib", "twice", "fill", "work", "_start"] {
            let lost = if name == "_start" { lost } else { 0 };
            let deeper = their_own.get(&format!("{name}'2")).map_or(0, |row| row[0]);
            assert_eq!(own[name][0], their_own[name][0] + deeper + lost, "{name} itself");
            let called = their_inclusive[name][0] + lost;
            assert_eq!(inclusive[name][0], called, "{name} with all it calls");
        }
    }
}
