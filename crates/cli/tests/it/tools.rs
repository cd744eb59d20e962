//! Tools of users that run in the program: what they are called with is what the trace of the same run says.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use ichnos_base::{AccessFlags, Batch, Record, Sink};
use ichnos_collect_asm as asm;
use ichnos_testkit::{guest, tool};

use crate::support::{Folder, good, ichnos, native};

/// Counts what the example tool counts, but for blocks.
#[derive(Default, PartialEq, Eq, Debug)]
struct Counts {
    insns: u64,
    loads: (u64, u64),
    stores: (u64, u64),
}

impl Sink for Counts {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            match *record {
                Record::Insn { .. } => self.insns += 1,
                Record::Load { flags, size, .. } if !varies(flags) => {
                    self.loads = (self.loads.0 + 1, self.loads.1 + u64::from(size));
                }
                Record::Store { flags, size, .. } if !varies(flags) => {
                    self.stores = (self.stores.0 + 1, self.stores.1 + u64::from(size));
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

/// Accesses that vary are not told one by one.
fn varies(flags: AccessFlags) -> bool {
    flags.has(AccessFlags::LANE) || flags.has(AccessFlags::STRING)
}

/// Builds the example tool, with or without the promise to leave vector registers alone.
fn counting(folder: &Folder, name: &str, flags: &[&str]) {
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin");
    let (include, source) = (plugin.join("include"), plugin.join("examples/counting.c"));
    let line = ["-O2", "-shared", "-fPIC", "-I", include.to_str().unwrap(), "-o", name];
    good(native(folder, "cc", &[&line[..], flags, &[source.to_str().unwrap()]].concat()));
}

/// Runs a program with a tool and shows its trace to a sink; what the tool wrote to the file that the variable names.
fn told<S: Sink<Error = Infallible>>(
    folder: &Folder,
    variable: &str,
    (args, choice): (&[&str], Option<asm::Choice>),
    sink: &mut S,
) -> String {
    let file = folder.path().join("told");
    let program = folder.path().join("prog");
    let words = [&[program.to_str().unwrap()], args].concat();
    let variable = format!("{variable}={}", file.display());
    let line = ["-i", variable.as_str()];
    let mut config =
        asm::Config::new("env", line.iter().chain(&words).map(|w| std::ffi::OsString::from(*w)));
    config.choice = choice;
    let outcome = asm::record(&config, sink).expect("it can be recorded");
    assert_eq!(outcome.status, ichnos_base::EndStatus::Exited(0));
    std::fs::read_to_string(&file).expect("the tool told its counts")
}

/// What the example tool and the trace counted.
fn both(folder: &Folder, args: &[&str], choice: Option<asm::Choice>) -> (Vec<u64>, Counts) {
    let mut counts = Counts::default();
    let told = told(folder, "ICHNOS_COUNTS", (args, choice), &mut counts);
    (told.split_whitespace().map(|w| w.parse().unwrap()).collect(), counts)
}

#[track_caller]
fn agree((told, counts): &(Vec<u64>, Counts)) {
    let Counts { insns, loads, stores } = *counts;
    assert!(told[0] > 0 && told[0] < told[1], "{told:?}");
    assert_eq!(told[1..6], [insns, loads.0, loads.1, stores.0, stores.1], "{told:?}");
}

#[test]
fn tools_in_the_program_count_what_the_trace_has() {
    let folder = Folder::new();
    counting(&folder, "libgeneral.so", &["-mgeneral-regs-only"]);
    counting(&folder, "libvectors.so", &["-Dichnos_tool_general_registers_only=other"]);
    for (library, source, compiler, args) in [
        ("libgeneral.so", "fft.c", "gcc", "2 6 1"),
        ("libvectors.so", "fft.c", "gcc", "2 6 1"),
        ("libvectors.so", "ocean.c", "gcc", "2 15 1"),
        ("libgeneral.so", "objects.cc", "g++", "20"),
    ] {
        let source = guest::folder().join(source);
        let line = ["cc", "--tool", library, "--", compiler, "-O2", "-pthread", "-o", "prog"];
        good(ichnos(&folder, &[&line[..], &[source.to_str().unwrap(), "-lm"]].concat()));
        let args: Vec<&str> = args.split(' ').collect();
        let program = folder.path().join("prog");
        let alone = native(&folder, program.to_str().unwrap(), &args);
        agree(&both(&folder, &args, None));
        let samples = both(&folder, &args, Some(asm::Choice::sample(1, 2)));
        agree(&samples);
        assert!(samples.1.insns > 100);
        // What the program computes does not change.
        let line = ["record", "-q", "-o", "none", "--", program.to_str().unwrap()];
        let traced = ichnos(&folder, &[&line[..], &args].concat());
        assert_eq!((traced.status, traced.stdout), (0, alone.stdout), "{}", traced.stderr);
    }
}

/// Instructions, and for each size loads and stores, all that do not vary.
#[derive(Default)]
struct Sizes(u64, BTreeMap<u32, (u64, u64)>);

impl Sink for Sizes {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            match *record {
                Record::Insn { .. } => self.0 += 1,
                Record::Load { flags, size, .. } if !varies(flags) => {
                    self.1.entry(size).or_default().0 += 1;
                }
                Record::Store { flags, size, .. } if !varies(flags) => {
                    self.1.entry(size).or_default().1 += 1;
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

/// The example in Rust, built by the compiler alone, as its users would.
#[test]
fn a_tool_in_rust_counts_what_the_trace_has() {
    if !tool::have("tools in Rust", &["rustc"]) {
        return;
    }
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin/examples/sizes.rs");
    let line = ["--edition", "2024", "-O", "--crate-type", "cdylib", "-o", "libsizes.so"];
    good(native(&folder, "rustc", &[&line[..], &[source.to_str().unwrap()]].concat()));
    for (source, compiler, args) in [("fft.c", "gcc", "2 8 1"), ("objects.cc", "g++", "20")] {
        let source = guest::folder().join(source);
        let line = ["cc", "--tool", "libsizes.so", "--", compiler, "-O2", "-pthread", "-o", "prog"];
        good(ichnos(&folder, &[&line[..], &[source.to_str().unwrap(), "-lm"]].concat()));
        let args: Vec<&str> = args.split(' ').collect();
        let alone = good(native(&folder, folder.path().join("prog").to_str().unwrap(), &args));
        assert_eq!(alone.stderr, "", "who is not recorded calls no tool");
        for choice in [None, Some(asm::Choice::sample(1, 2))] {
            let mut sizes = Sizes::default();
            let told = told(&folder, "ICHNOS_SIZES", (&args, choice), &mut sizes);
            let (head, table) = told.split_once("size loads stores\n").expect("a table");
            assert!(head.contains(&format!("\ninstructions {}\n", sizes.0)), "{told}");
            for (size, (loads, stores)) in &sizes.1 {
                let row = format!("{size} {loads} {stores}");
                assert!(table.lines().any(|line| line == row), "{row}: {told}");
            }
            let counted = table.lines().filter(|line| !line.ends_with(" 0 0")).count();
            assert_eq!(counted, sizes.1.len(), "{told}");
        }
        // What ichnos itself counts of the same run.
        let line = ["record", "--trace", "count", "--", "./prog"];
        let run = good(ichnos(&folder, &[&line[..], &args].concat()));
        assert_eq!(run.stdout, alone.stdout);
        let of = |name: &str| run.stderr.lines().find_map(|l| l.strip_prefix(name));
        let number = |text: &str| text.replace(',', "").parse::<u64>().expect("a number");
        let (insns, varying) = (of("instructions ").map(number), of("varying ").map(number));
        let table = run.stderr.lines().skip_while(|l| *l != "size loads stores").skip(1).take(8);
        let references: u64 = table.flat_map(|l| l.split(' ').skip(1).map(number)).sum();
        let count = of("ichnos: ").expect("what ichnos counted").replace(',', "");
        let count: Vec<u64> = count.split(' ').filter_map(|w| w.parse().ok()).collect();
        assert_eq!(insns, Some(count[0]), "{}", run.stderr);
        assert!(varying != Some(0) || references == count[1], "{}", run.stderr);
    }
}

/// The caches that a program simulates itself miss what the same caches miss on its trace.
#[test]
fn six_caches_in_the_program_are_those_beside_it() {
    let folder = Folder::new();
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin");
    let (include, source) = (plugin.join("include"), plugin.join("examples/six.c"));
    let line = ["-O2", "-shared", "-fPIC", "-I", include.to_str().unwrap(), "-o", "libsix.so"];
    good(native(&folder, "cc", &[&line[..], &[source.to_str().unwrap()]].concat()));
    let source = guest::folder().join("fft.c");
    let line = ["cc", "--tool", "libsix.so", "--", "gcc", "-O2", "-pthread", "-o", "prog"];
    good(ichnos(&folder, &[&line[..], &[source.to_str().unwrap(), "-lm"]].concat()));
    let line = ["record", "-q", "-o", "t.ichnos", "--", "./prog", "2", "8", "1"];
    let inside = good(ichnos(&folder, &line)).stderr;
    let beside = good(ichnos(&folder, &["sim", "--model", "./libsix.so", "--json", "t.ichnos"]));
    let beside = beside.json();
    let mut compared = 0;
    for line in inside.lines().filter_map(|l| l.strip_prefix("  ")) {
        let (name, count) = line.rsplit_once(": ").expect("a name and a count");
        let count: u64 = count.parse().expect("a count");
        let same = format!("{{\"key\":\"{name}\",\"value\":{count}}}");
        assert!(beside.to_string().contains(&same), "{line}: {beside}");
        compared += 1;
    }
    assert_eq!(compared, 7, "{inside}");
}

/// Samples of a program that was not built by `ichnos cc` lie between gaps, and are counted.
#[test]
fn tools_see_the_samples_of_any_program() {
    let folder = Folder::new();
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin");
    let (include, source) = (plugin.join("include"), plugin.join("examples/six.c"));
    let line = ["-O2", "-shared", "-fPIC", "-I", include.to_str().unwrap(), "-o", "libsix.so"];
    good(native(&folder, "cc", &[&line[..], &[source.to_str().unwrap()]].concat()));
    let program = guest::build("bare_sort.c", guest::Link::Bare, &[]);
    let line = ["record", "--tool", "./libsix.so", "--sample", "3K:1K"];
    let words = ["--", program.to_str().unwrap()];
    let told = good(ichnos(&folder, &[&line[..], &words].concat())).stderr;
    let samples =
        told.lines().find_map(|l| l.split_once("samples: ")?.1.replace(',', "").parse().ok());
    // As many as the trace of the same run has parts.
    let line = ["record", "-q", "--sample", "3K:1K", "-o", "t.ichnos"];
    good(ichnos(&folder, &[&line[..], &words].concat()));
    let dump = good(ichnos(&folder, &["dump", "--format", "jsonl", "t.ichnos"])).stdout;
    let (mut parts, mut inside) = (0u64, false);
    for line in dump.lines() {
        if line.contains("\"event\":\"gap\"") {
            inside = false;
        } else if line.contains("\"type\":\"insn\"") && !inside {
            (parts, inside) = (parts + 1, true);
        }
    }
    assert!(parts > 1, "{dump:.300}");
    assert_eq!(samples, Some(parts), "{told}");
    assert!(told.contains(", ratio 0."), "{told}");
}

/// Signals, exceptions and jumps while tools are called.
#[test]
fn tools_do_not_meet_signals() {
    let folder = Folder::new();
    counting(&folder, "libgeneral.so", &["-mgeneral-regs-only"]);
    let source = guest::folder().join("turmoil.cc");
    let line = ["cc", "--tool", "libgeneral.so", "--", "g++", "-O2", "-pthread", "-o", "prog"];
    good(ichnos(&folder, &[&line[..], &[source.to_str().unwrap()]].concat()));
    let program = folder.path().join("prog");
    let program = program.to_str().unwrap();
    let alone = native(&folder, program, &["4", "100"]);
    let traced = ichnos(&folder, &["record", "-q", "-o", "none", "--", program, "4", "100"]);
    assert_eq!((traced.status, traced.stdout), (0, alone.stdout), "{}", traced.stderr);
    // A handler that jumps away leaves a block unfinished of which the tool was told: counts are not those of the trace.
    let (told, counts) = both(&folder, &["4", "100"], Some(asm::Choice::sample(5, 5)));
    assert!(told[1] > 0 && counts.insns > 0, "{told:?} {counts:?}");
}
