//! Against judges not written here: Valgrind's lackey must have seen the same
//! references in the same order, and callgrind the same number of instructions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use ichnos_base::{Event, Record};
use ichnos_testkit::callgrind::{self, Tool};
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::lackey::Line;
use ichnos_testkit::{Item, Recording, lackey, tool};

use crate::lackey_form::{Translator, compare};
use crate::layout::Layout;
use crate::subject::Subject;

fn judge(program: PathBuf) {
    let subject = Subject::bare(program);
    let recording = subject.record();
    let ours = Translator::translate(&recording, &subject);
    let program = &subject.program;
    let insns =
        compare(&ours, &lackey::run(program, &[], &[])).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(insns, callgrind::run(Tool::Cachegrind, program, &[], &[]));
    let counted = callgrind::run(Tool::Callgrind, program, &[], &[]);
    assert_eq!(insns - last_block(&recording), counted);
}

/// How many instructions follow the last transfer or returned system call:
/// callgrind counts a block when the next one begins, and so never the last.
fn last_block(recording: &Recording) -> u64 {
    let mut insns = 0;
    for (_, item) in &recording.items {
        match item {
            Item::Record(Record::Insn { .. }, _) => insns += 1,
            Item::Record(Record::Branch { .. }, _) => insns = 0,
            Item::Event(event) if matches!(event.event(), Event::SyscallReturn { .. }) => insns = 0,
            _ => {}
        }
    }
    insns
}

fn judge_bare(source: &str) {
    if tool::have(source, &["valgrind", "gcc"]) {
        judge(guest::build(source, Link::Bare, &["-DQUIET"]));
    }
}

#[test]
fn sort() {
    judge_bare("bare_sort.c");
}

#[test]
fn crc() {
    judge_bare("bare_crc.c");
}

#[test]
fn sieve() {
    judge_bare("bare_sieve.c");
}

#[test]
fn strings() {
    judge_bare("bare_strings.c");
}

#[test]
fn atomics() {
    judge_bare("bare_atomics.c");
}

#[test]
fn calls() {
    judge_bare("bare_calls.c");
}

#[test]
fn library() {
    judge_library("library.c");
}

#[test]
fn heap() {
    judge_library("heap.c");
}

#[test]
fn busybox_awk() {
    judge_busybox(&[
        "awk",
        "BEGIN { for (i = 0; i < 9; i++) s = s sprintf(\"%5.2f %s|\", i / 7, i i) }",
    ]);
}

#[test]
fn busybox_sort() {
    judge_busybox(&["sort", "-t:", "-k3n", "-o", "/dev/null", "/etc/passwd"]);
}

#[test]
fn busybox_grep() {
    judge_busybox(&["grep", "-q", "-E", "^[a-z]+x?:.*(never|nowhere)$", "/etc/passwd"]);
}

#[test]
fn busybox_sed() {
    judge_busybox(&["sed", "-n", "s/\\(.*\\):x:\\([0-9]*\\)/\\2 \\1/;/^none/p", "/etc/passwd"]);
}

fn judge_library(source: &str) {
    if tool::have(source, &["valgrind", "gcc"]) {
        judge_from_main(&guest::build(source, Link::Static, &["-lm"]).display().to_string(), &[]);
    }
}

/// A real program: Debian's static busybox, which has most of the C library in it.
fn judge_busybox(args: &[&str]) {
    if !tool::have(args[0], &["valgrind", "busybox"]) {
        return;
    }
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("busybox"))
        .find(|path| path.is_file())
        .expect("busybox is there");
    if Layout::of(&path).is_static() {
        judge_from_main(&path.display().to_string(), args);
    } else {
        tool::skip(args[0], "this busybox is not linked statically");
    }
}

/// Judges a program of the C library from its `main` on: what comes before asks
/// the processor, which is another one under Valgrind.
///
/// The library goes other ways for what lies near the end of a page. The texts on the stack lie as under Valgrind, but what the
/// program puts there does not: Valgrind gives it a shorter list of facts. How near it comes depends on how long paths
/// are; so the stack is moved if the two differ. What is wrong is wrong wherever that lies.
fn judge_from_main(program: &str, args: &[&str]) {
    let mut found = Ok(0);
    for moved in [0, 0x300, 0x700] {
        found = judge_moved(program, args, moved);
        if found.is_ok() {
            break;
        }
    }
    let insns = found.unwrap_or_else(|why| panic!("{why}"));
    assert!(insns > 10_000, "{insns}");
}

/// The same with the stack so much lower; how many instructions are equal, or where they differ.
fn judge_moved(program: &str, args: &[&str], moved: usize) -> Result<u64, String> {
    // The library picks its string functions by what the processor says, and
    // Valgrind's processor says less: with both told to do without, they pick
    // the same.
    let tunables = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-AVX_Fast_Unaligned_Load,\
        -ERMS,-FSRM,-BMI2,-LZCNT,-MOVBE,-RTM,-SSE4_2,-SSE4_1,-SSSE3,-FMA,-FMA4,-POPCNT:\
        glibc.cpu.x86_non_temporal_threshold=0xc0000:glibc.cpu.x86_rep_movsb_threshold=0x800:\
        glibc.cpu.x86_rep_stosb_threshold=0x800:glibc.pthread.rseq=0";
    let filler = "x".repeat(moved);
    let env = [("GLIBC_TUNABLES", tunables), ("FILLER", &*filler)];
    // Before main the library takes blocks for the vdso and for the folders of
    // `LD_LIBRARY_PATH`. Valgrind hides the one and sets the other.
    let subject = Subject::as_under_lackey(program, args, &env);
    let main = Layout::of(&subject.program).main();
    let ours = Translator::translate(&subject.record(), &subject);
    let theirs = lackey::run(&subject.program, args, &env);
    let is_main = |line: &Line| line.addr.0 == main;
    let first = ours.iter().position(|our| is_main(&our.line)).expect("main is reached");
    let their_first = theirs.iter().position(is_main).expect("main is reached");
    compare(&ours[first..], &theirs[their_first..])
}
