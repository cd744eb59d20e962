//! Programs of every sort: each must print and end as natively, and its trace
//! must keep the rules. What a program is for stands in its source.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;

use ichnos_base::{AccessFlags, EndStatus, Event, MapKind, Record, ThreadId};
use ichnos_collect_step::{Values, Vdso};
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::{Item, Recording, tool};

use crate::run::{check_program, check_recording, scratch, trace_as};

fn check(source: &str, link: Link, args: &[&str]) -> Recording {
    check_program(&guest::build(source, link, &[]), args, Values::Omit)
}

fn count(recording: &Recording, wanted: impl Fn(&Event<'_>) -> bool) -> usize {
    recording.events().filter(|(_, event)| wanted(event)).count()
}

#[test]
fn hello_static() {
    let recording = check("hello.c", Link::Static, &["world", "moon"]);
    assert_eq!(recording.threads(), 1);
}

#[test]
fn masks_lent_by_calls() {
    let recording = check("suspend.c", Link::Static, &[]);
    let handled = |event: &Event<'_>| matches!(event, Event::Signal(s) if s.number == 17);
    assert_eq!(count(&recording, handled), 3, "a handler for each child");
}

#[test]
fn hello_dynamic() {
    let recording = check("hello.c", Link::Dynamic, &["world"]);
    let images = |event: &Event<'_>| matches!(event, Event::Map(m) if m.kind == MapKind::IMAGE && m.path.contains("libc") && !m.build_id.is_empty());
    assert!(count(&recording, images) > 0, "libc is an image with a build-id");
    let vdso = |event: &Event<'_>| matches!(event, Event::Map(m) if m.kind == MapKind::VDSO);
    assert!(count(&recording, vdso) > 0);
    let stack = |event: &Event<'_>| matches!(event, Event::Map(m) if m.kind == MapKind::STACK && m.len >= 1 << 20);
    assert!(count(&recording, stack) > 0, "the stack covers all it may grow to");
}

#[test]
fn values_are_those_in_memory() {
    let program = guest::build("hello.c", Link::Static, &[]);
    let recording = check_program(&program, &["values"], Values::Collect);
    assert!(recording.values);
    // A store's bytes are what the next load of the same place sees, unless the
    // kernel wrote between: replay all bytes and compare.
    let mut memory = std::collections::HashMap::new();
    let (mut compared, mut different) = (0u64, 0u64);
    for (_, item) in &recording.items {
        match item {
            Item::Record(Record::Store { addr, .. }, Some(bytes)) => {
                for (i, byte) in bytes.iter().enumerate() {
                    memory.insert(addr.0 + i as u64, *byte);
                }
            }
            Item::Record(Record::Load { addr, .. }, Some(bytes)) => {
                for (i, byte) in bytes.iter().enumerate() {
                    let known = memory.insert(addr.0 + i as u64, *byte);
                    compared += u64::from(known.is_some());
                    different += u64::from(known.is_some_and(|old| old != *byte));
                }
            }
            Item::Event(event) => {
                if matches!(event.event(), Event::SyscallReturn { .. } | Event::Exec { .. }) {
                    memory.clear();
                }
            }
            _ => {}
        }
    }
    assert!(compared > 10_000, "{compared}");
    assert_eq!(different, 0);
}

#[test]
fn two_threads_with_a_mutex() {
    let recording = check("mutex.c", Link::Static, &[]);
    assert_eq!(recording.threads(), 3);
    assert_eq!(count(&recording, |e| matches!(e, Event::ThreadCreate { .. })), 2);
}

#[test]
fn many_threads() {
    let recording = check("threads.c", Link::Static, &[]);
    assert_eq!(recording.threads(), 33);
}

#[test]
fn a_sleeping_thread_stops_nobody() {
    check("pipes.c", Link::Static, &[]);
}

#[test]
fn fork_and_exec() {
    let recording = check("forkexec.c", Link::Static, &[]);
    assert_eq!(recording.threads(), 4);
    let ends: Vec<_> = recording
        .events()
        .filter_map(|(thread, event)| match event {
            Event::ThreadEnd(end) => Some((thread.0, end)),
            _ => None,
        })
        .collect();
    for expected in [
        (0, EndStatus::Exited(3)),
        (1, EndStatus::Exited(0)),
        (2, EndStatus::Exited(7)),
        (3, EndStatus::Killed(9)),
    ] {
        assert!(ends.contains(&expected), "{expected:?} in {ends:?}");
    }
}

#[test]
fn vfork_and_spawn() {
    check("spawn.c", Link::Static, &[]);
}

#[test]
fn signals_of_every_sort() {
    let recording = check("signals.c", Link::Static, &[]);
    let signals = |number: i32| {
        count(&recording, |e| matches!(e, Event::Signal(info) if info.number == number))
    };
    assert_eq!((signals(10), signals(12), signals(11), signals(14)), (1, 2, 1, 3));
    let restarts = count(&recording, |e| matches!(e, Event::SyscallReturn { result: -512, .. }));
    assert!(restarts >= 2, "{restarts}");
}

#[test]
fn traps_of_the_programs_own() {
    check("trap.c", Link::Static, &[]);
}

#[test]
fn flags_that_are_loaded() {
    check("flags.c", Link::Static, &[]);
}

/// Also the breakpoint of two bytes.
#[test]
fn faults_of_every_sort() {
    check("torture_faults.c", Link::Static, &[]);
}

#[test]
fn long_jumps() {
    check("jump.c", Link::Static, &[]);
}

#[test]
fn exceptions() {
    // Its own copy of the C++ runtime: binding the shared one takes millions of
    // instructions.
    let flags = ["-static-libstdc++", "-static-libgcc"];
    check_program(&guest::build("throw.cc", Link::Dynamic, &flags), &[], Values::Omit);
}

#[test]
fn vector_strings_and_masks() {
    let level = if tool::have_cpu("avx512", &["avx512f", "avx512bw", "avx512vl", "avx512dq"]) {
        "512"
    } else if tool::have_cpu("avx2", &["avx2"]) {
        "2"
    } else {
        "0"
    };
    let program = guest::build("vector.c", Link::Static, &[]);
    let recording = check_program(&program, &[level], Values::Collect);
    let lanes = recording
        .records()
        .filter(|(_, r)| matches!(r, Record::Load { flags, .. } | Record::Store { flags, .. } if flags.has(AccessFlags::LANE)))
        .count();
    assert!(level == "0" || lanes > 20, "{lanes}");
}

#[test]
fn repeated_strings() {
    let recording = check("rep.c", Link::Static, &[]);
    let mut steps = Vec::new();
    for (_, record) in recording.records() {
        match record {
            Record::Insn { .. } => steps.push(0),
            Record::Store { flags, .. } if flags.has(AccessFlags::STRING) => {
                *steps.last_mut().unwrap() += 1;
            }
            _ => {}
        }
    }
    // 100 bytes; 5 words; 40 bytes backwards; 50 bytes up to the guard page,
    // and the remaining 70 after its fault was handled.
    for expected in [100, 5, 40, 50, 70] {
        assert!(steps.contains(&expected), "{expected}");
    }
}

#[test]
fn generated_code() {
    let recording = check("generate.c", Link::Static, &[]);
    let told = recording.items.iter().filter(|(_, item)| matches!(item, Item::Code { bytes, .. } if bytes.len() == 5 && bytes[0] == 0xb8 && bytes[2..] == [0, 0, 0]));
    assert!(told.count() >= 12, "code is told again when it changes");
}

#[test]
fn exec_from_a_thread() {
    let recording = check("execthread.c", Link::Static, &[]);
    let exec = recording.events().filter(|(_, e)| matches!(e, Event::Exec { .. })).last();
    assert!(exec.is_some_and(|(thread, _)| thread == ThreadId(2)), "{exec:?}");
}

#[test]
fn exit_with_live_threads() {
    let recording = check("exitgroup.c", Link::Static, &[]);
    assert_eq!(count(&recording, |e| *e == Event::ThreadEnd(EndStatus::Exited(9))), 3);
}

#[test]
fn calls_by_the_32_bit_interface() {
    check("compat.c", Link::Static, &[]);
}

/// A 32-bit program that ends with status 5, made by hand: the compilers of this
/// system may not make one.
fn program_32() -> std::path::PathBuf {
    let mut elf = b"\x7fELF\x01\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([2, 0, 3, 0, 1, 0, 0, 0]); // Executable, i386, version 1.
    let word = |elf: &mut Vec<u8>, n: u32| elf.extend(n.to_le_bytes());
    for n in [0x0804_8054, 52, 0, 0] {
        word(&mut elf, n); // Entry, program headers, no sections, no flags.
    }
    elf.extend([52, 0, 32, 0, 1, 0, 40, 0, 0, 0, 0, 0]);
    for n in [1, 0, 0x0804_8000, 0x0804_8000, 0x60, 0x60, 5, 0x1000] {
        word(&mut elf, n); // One segment: all of the file, to be executed.
    }
    // mov $1,%eax; mov $5,%ebx; int $0x80
    elf.extend([0xb8, 1, 0, 0, 0, 0xbb, 5, 0, 0, 0, 0xcd, 0x80]);
    let path = scratch("program32");
    guest::install(&path, &elf);
    path
}

#[test]
fn a_child_of_32_bits_runs_untraced() {
    let program = program_32();
    let shell = tool::find("sh").expect("a shell");
    let command = format!("{}; echo $?", program.display());
    let (output, _) = crate::run::native(&shell, &["-c", &command]);
    if output != b"5\n" {
        tool::skip("a_child_of_32_bits_runs_untraced", "no 32-bit programs on this kernel");
        return;
    }
    let recording = check_program(&shell, &["-c", &command], Values::Omit);
    let gap = |e: &Event<'_>| matches!(e, Event::Gap { .. });
    assert_eq!(count(&recording, gap), 1);
    let _ = fs::remove_file(program);
}

/// A text that compresses, and the file it stands in.
fn text_file() -> std::path::PathBuf {
    let path = scratch("text");
    let text: String = (0..40).map(|i| format!("line {i} of some text, {}\n", i * i)).collect();
    fs::write(&path, text).unwrap();
    path
}

fn check_tool(name: &str, args: &[&str]) {
    if let Some(program) = tool::find(name) {
        check_program(&program, args, Values::Omit);
    } else {
        tool::skip(name, "not installed");
    }
}

#[test]
fn gzip() {
    let text = text_file();
    check_tool("gzip", &["-c", "-n", text.to_str().unwrap()]);
    let _ = fs::remove_file(text);
}

#[test]
fn bzip2() {
    let text = text_file();
    check_tool("bzip2", &["-c", "-1", text.to_str().unwrap()]);
    let _ = fs::remove_file(text);
}

#[test]
#[ignore = "binding its libraries takes two million instructions, a minute of stepping"]
fn sqlite3() {
    check_tool(
        "sqlite3",
        &[":memory:", "create table t(a); insert into t values(1),(2); select sum(a) from t;"],
    );
}

#[test]
fn scripts() {
    let script = scratch("script");
    guest::install(&script, b"#!/bin/sh\necho script $1\nexit 12\n");
    let recording = check_program(&script, &["argument"], Values::Omit);
    assert!(recording.threads() == 1);
    let _ = fs::remove_file(script);
}

#[test]
fn the_time_is_asked_of_the_kernel_where_the_vdso_is_hidden() {
    // The program is executed by another one, so both ways to a new program are used.
    let program = guest::build("clock.c", Link::Dynamic, &[]);
    let asked = |vdso| {
        let traced = trace_as(&program, &[], |config| config.vdso = vdso);
        assert_eq!(traced.output, b"time goes on\n");
        check_recording(&traced.recording);
        let number = libc::SYS_clock_gettime as u64;
        count(&traced.recording, |e| matches!(e, Event::Syscall { number: n, .. } if *n == number))
    };
    assert_eq!((asked(Vdso::Shown), asked(Vdso::Hidden)), (0, 1));
}
