//! `ichnos record`: as right as stepping, without the stepping; and riscv64
//! programs in the simulator.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::Totals;
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::tool;

use crate::support::{Folder, good, ichnos, native, shell, totals};

/// The code cache tells what single stepping tells, record by record.
#[test]
fn record_equals_step() {
    let folder = Folder::new();
    for source in ["bare_sort.c", "bare_strings.c", "bare_calls.c"] {
        let program = guest::build(source, Link::Bare, &[]);
        let program = program.to_str().unwrap();
        let step = ichnos(&folder, &["step", "-q", "-o", "s.ichnos", "--", program]);
        let record = ichnos(&folder, &["record", "-q", "-o", "r.ichnos", "--", program]);
        assert_eq!(record.stdout, step.stdout, "{source}");
        assert_eq!(record.status, step.status, "{source}: {}", record.stderr);
        let line = ["diff", "--first-only", "--only", "records", "s.ichnos", "r.ichnos"];
        let diff = ichnos(&folder, &line);
        assert_eq!(diff.status, 0, "{source}: {}{}", diff.stdout, diff.stderr);
        let info = ichnos(&folder, &["info", "--json", "r.ichnos"]).json();
        assert!(info["instructions"].as_u64().unwrap() > 1000, "{source}: {info}");
    }
}

/// A single instruction can make more accesses than other chunks have records.
#[test]
fn record_takes_instructions_of_any_length() {
    const KIB: u64 = 300 << 10;
    let folder = Folder::new();
    let program = guest::build("bare_fill.c", Link::Bare, &[]);
    let program = program.to_str().unwrap();
    good(ichnos(&folder, &["step", "-q", "-o", "s.ichnos", "--", program, "000256"]));
    good(ichnos(&folder, &["record", "-q", "-o", "r.ichnos", "--", program, "000256"]));
    let line = ["diff", "--first-only", "--only", "records", "s.ichnos", "r.ichnos"];
    good(ichnos(&folder, &line));
    let count = |file: &str| {
        let Totals { insns, loads, stores, .. } = totals(&folder, file);
        [insns, loads, stores]
    };
    let few = count("r.ichnos");
    let more = (KIB - 256) << 10;
    let wanted = [few[0], few[1] + more, few[2] + more / 8];
    let size = KIB.to_string();
    for options in [&[][..], &["--spool-limit", "0"]] {
        let line = [&["record", "-q", "-o", "m.ichnos"], options, &["--", program, &size]];
        let run = good(ichnos(&folder, &line.concat()));
        assert_eq!(run.stdout, "0\n0\n1\n");
        assert_eq!(count("m.ichnos"), wanted, "{options:?}");
    }
    // Whoever wants the first of them does not wait for all.
    let ichnos = env!("CARGO_BIN_EXE_ichnos");
    let line = format!("{ichnos} dump m.ichnos | grep ' S .* 1 string' | head -n 1");
    let first = good(shell(&folder, &line));
    assert_eq!(first.stdout.lines().count(), 1);
}

#[test]
fn record_runs_real_programs_as_they_are() {
    let folder = Folder::new();
    for (program, args) in [
        ("ls", &["-l", "/usr"][..]),
        ("sh", &["-c", "echo one two | wc -w; exit 7"]),
        ("sort", &["/etc/passwd"]),
    ] {
        let alone = native(&folder, program, args);
        let mut line = vec!["record", "-q", "-o", "t.ichnos", "--", program];
        line.extend(args);
        let traced = ichnos(&folder, &line);
        assert_eq!(traced.stdout, alone.stdout, "{program}");
        assert_eq!(traced.status, alone.status, "{program}: {}", traced.stderr);
        let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
        assert!(info["instructions"].as_u64().unwrap() > 100_000, "{program}: {info}");
    }
}

#[test]
fn record_refuses_what_it_cannot_do() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["record", "--values", "--", "true"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("--values"), "{}", run.stderr);
    let run = ichnos(&folder, &["record", "--", "no-such-program-here"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(run.stderr.contains("no-such-program-here"), "{}", run.stderr);
}

#[test]
fn record_recognises_riscv_programs() {
    if !tool::have("record::riscv", &["riscv64-linux-gnu-gcc"]) {
        return;
    }
    let folder = Folder::new();
    let source = "#include <stdio.h>\nint main(int c, char **v) { printf(\"%d %s\\n\", c, v[1]); return 5; }\n";
    folder.write("p.c", source.as_bytes());
    let built =
        native(&folder, "riscv64-linux-gnu-gcc", &["-O1", "-static", "-o", "p.riscv", "p.c"]);
    assert_eq!(built.status, 0, "{}", built.stderr);
    let run = ichnos(&folder, &["record", "-q", "-o", "t.ichnos", "--", "./p.riscv", "hello"]);
    assert_eq!((run.status, run.stdout.as_str()), (5, "2 hello\n"), "{}", run.stderr);
    let check = ichnos(&folder, &["check", "t.ichnos"]);
    assert_eq!(check.status, 0, "{}{}", check.stdout, check.stderr);
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
    assert_eq!(info["isa"], "rv64");
}

/// gdb finds a machine at a socket; the machine's end is the verb's.
#[test]
fn boot_waits_for_gdb() {
    if !tool::have("record::gdb", &["riscv64-linux-gnu-gcc", "gdb-multiarch"]) {
        return;
    }
    let folder = Folder::new();
    let source = "        .globl _start, tohost\n_start: li a0, 1\nhere:   la t0, tohost\n\
                  sd a0, 0(t0)\nloop:   j loop\n.align 3\ntohost: .dword 0\n";
    folder.write("p.S", source.as_bytes());
    let flags = [
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,-N,-Ttext=0x80000000,--build-id=none",
        "-o",
        "p",
        "p.S",
    ];
    assert_eq!(native(&folder, "riscv64-linux-gnu-gcc", &flags).status, 0);
    let socket = folder.path().join("line");
    let (run, gdb) = std::thread::scope(|scope| {
        let machine = scope.spawn(|| ichnos(&folder, &["boot", "--bare", "p", "--gdb", "./line"]));
        while !socket.exists() && !machine.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let line = ["-batch", "-nx", "-ex", "target remote ./line", "-ex", "break here"];
        let rest = ["-ex", "continue", "-ex", "set $a0 = 7", "-ex", "continue", "p"];
        let gdb = native(&folder, "gdb-multiarch", &[&line[..], &rest[..]].concat());
        (machine.join().unwrap(), gdb)
    });
    assert!(gdb.stdout.contains("Breakpoint 1, 0x"), "{}{}", gdb.stdout, gdb.stderr);
    assert!(gdb.stdout.contains("exited with code 03"), "{}{}", gdb.stdout, gdb.stderr);
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert!(run.stderr.contains("waiting for gdb: target remote ./line"), "{}", run.stderr);
    assert!(run.stderr.contains("failed with verdict 3"), "{}", run.stderr);
}

/// A machine's trace tells traps, privilege and address spaces, and keeps all rules.
#[test]
fn boot_tells_privilege_and_spaces() {
    if !tool::have("record::boot", &["riscv64-linux-gnu-gcc"]) {
        return;
    }
    let folder = Folder::new();
    let source = "        .globl _start, tohost\n_start: li t0, -1\n csrw pmpaddr0, t0\n\
                  li t0, 0x1f\n csrw pmpcfg0, t0\n la t0, trap\n csrw mtvec, t0\n\
                  la t0, user\n csrw mepc, t0\n li t0, 0x1800\n csrc mstatus, t0\n mret\n\
                  user:   nop\n ecall\n.align 2\n\
                  trap:   li t0, 1 << 44\n csrw satp, t0\n li a0, 1\n la t0, tohost\n\
                  sd a0, 0(t0)\nloop:   j loop\n.align 3\ntohost: .dword 0\n";
    folder.write("p.S", source.as_bytes());
    let flags = ["-nostdlib", "-static", "-no-pie", "-Wl,-N,-Ttext=0x80000000,--build-id=none"];
    let flags = [&flags[..], &["-o", "p", "p.S"]].concat();
    assert_eq!(native(&folder, "riscv64-linux-gnu-gcc", &flags).status, 0);
    let run = ichnos(&folder, &["boot", "--bare", "p", "-o", "t.ichnos"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let check = ichnos(&folder, &["check", "t.ichnos"]);
    assert_eq!(check.status, 0, "{}{}", check.stdout, check.stderr);
    let dump = ichnos(&folder, &["dump", "t.ichnos"]).stdout;
    let told: Vec<&str> = dump
        .lines()
        .filter_map(|line| {
            ["privilege", "trap", "address-space"]
                .iter()
                .find_map(|&name| line.find(name).map(|at| &line[at..]))
        })
        .collect();
    let wanted = ["machine", "address-space", "user", "trap", "machine", "address-space"];
    assert_eq!(told.len(), wanted.len(), "{dump}");
    for (line, part) in told.iter().zip(wanted) {
        assert!(line.contains(part), "{line} lacks {part}: {dump}");
    }
}
