//! drmemtrace files: read back with events and code, chunk by chunk.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::path::Path;

use ichnos_base::{
    AccessFlags, Event, GuestVa, InsnKind, Isa, Record, SignalInfo, ThreadId, ThreadStart,
};
use ichnos_convert::{Error, Format, ReadOptions, WriteOptions};
use proptest::prelude::*;

use crate::program::{Step, execution, step};
use crate::tape::{Item, read, read_file, scratch, write_file};

fn chunks_of(insns: u64) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.chunk_insns = insns;
    options
}

/// A reader knows code by instruction: code that comes back after other code lay
/// over it is not told again.
fn without_repeats(items: Vec<Item>) -> Vec<Item> {
    let mut told: HashMap<GuestVa, Vec<u8>> = HashMap::new();
    items
        .into_iter()
        .filter(|item| match item {
            Item::Code(pc, bytes) => told.insert(*pc, bytes.clone()).as_ref() != Some(bytes),
            _ => true,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn everything_is_read_back(steps in proptest::collection::vec(step(), 0..150), chunk in 1..40_u64) {
        let tape = execution(&steps);
        let path = scratch("property.trace.zip");
        write_file(Format::DrMemtrace, &tape, &path, &chunks_of(chunk));
        let back = read_file(Format::DrMemtrace, &path, &ReadOptions::default()).expect("ours");
        prop_assert_eq!(back.isa, Isa::X86_64);
        prop_assert!(back.branches);
        prop_assert_eq!(back.thread(ThreadId(0)), without_repeats(tape.thread(ThreadId(0))));
    }

    /// Without code: system calls are plain instructions, targets come from the
    /// next instruction, and the first turn of a repeat is a plain access.
    #[test]
    fn records_without_code_are_read_back(steps in proptest::collection::vec(step(), 0..100)) {
        let calm = |s: &&Step| !matches!(
            s,
            Step::Signal { .. } | Step::SignalReturn { .. } | Step::Clock { .. }
                | Step::Migrate { .. } | Step::Gap | Step::Syscall { .. }
        );
        let steps: Vec<Step> = steps.iter().filter(calm).cloned().collect();
        let mut tape = execution(&steps);
        tape.isa = Isa::UNKNOWN;
        tape.items.retain(|(_, item)| !matches!(item, Item::Code(..)));
        let path = scratch("bare.trace.zip");
        write_file(Format::DrMemtrace, &tape, &path, &chunks_of(10));
        let back = read_file(Format::DrMemtrace, &path, &ReadOptions::default()).expect("ours");
        prop_assert_eq!(back.records(), codeless(&tape.records()));
    }
}

fn codeless(records: &[Record]) -> Vec<Record> {
    let follower = |at: usize| {
        records[at..].iter().find_map(|r| match r {
            Record::Insn { pc, .. } => Some(*pc),
            _ => None,
        })
    };
    let mut direct = false;
    let mut accesses = 0;
    let mut loaded = false;
    let mut first_turn = true;
    let mut expected = Vec::new();
    for (i, record) in records.iter().enumerate() {
        expected.push(match *record {
            Record::Insn { kind, .. } => {
                direct = matches!(kind, InsnKind::JUMP | InsnKind::CALL | InsnKind::BRANCH);
                (accesses, first_turn, loaded) = (0, true, false);
                *record
            }
            Record::Branch { taken, .. } if direct => {
                let target = follower(i).filter(|_| taken).unwrap_or_default();
                Record::branch(taken, target)
            }
            Record::Load { addr, size, flags } if flags.has(AccessFlags::STRING) => {
                first_turn &= accesses == 0;
                (accesses, loaded) = (accesses + 1, true);
                let flags = if first_turn { AccessFlags::NONE } else { flags };
                Record::Load { addr, size, flags }
            }
            Record::Store { addr, size, flags } if flags.has(AccessFlags::STRING) => {
                first_turn &= accesses == 0 || (loaded && accesses == 1);
                (accesses, loaded) = (accesses + 1, false);
                let flags = if first_turn { AccessFlags::NONE } else { flags };
                Record::Store { addr, size, flags }
            }
            other => other,
        });
    }
    expected
}

/// Type, size, address.
type Entry = (u16, u16, u64);

/// The name and the entries of each chunk.
fn chunks(path: &Path) -> Vec<(String, Vec<Entry>)> {
    let bytes = std::fs::read(path).expect("just written");
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive");
    (0..archive.len())
        .map(|i| {
            let mut member = archive.by_index(i).expect("a member");
            let mut contents = Vec::new();
            member.read_to_end(&mut contents).expect("whole");
            let two = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
            let entry = |b: &[u8]| {
                let addr = u64::from_le_bytes(b[4..12].try_into().expect("eight bytes"));
                (two(b), two(&b[2..]), addr)
            };
            (member.name().expect("text").into_owned(), contents.chunks(12).map(entry).collect())
        })
        .collect()
}

#[test]
fn a_file_is_laid_out_as_drmemtraces_own() {
    let steps = [
        Step::Plain { load: Some(0x1000), store: None },
        Step::Indirect { kind: InsnKind::RETURN, to: 0 },
        Step::Plain { load: None, store: None },
    ];
    let mut tape = execution(&steps);
    let os = ThreadStart { os_pid: 7, os_tid: 9, ..ThreadStart::default() };
    tape.items[0].1 = Item::Event(Event::ThreadStart(os));
    let path = scratch("layout.trace.zip");
    write_file(Format::DrMemtrace, &tape, &path, &chunks_of(3));
    let stamp = 11_644_473_600_000_001;
    let head = [
        (25, 0, 7),
        (28, 12, 7),
        (28, 9, 0x640),
        (22, 4, 9),
        (24, 4, 7),
        (28, 10, 64),
        (28, 20, 3),
        (28, 18, 4096),
        (28, 2, stamp),
        (28, 3, u64::MAX),
        (47, 1, 0x90),
        (10, 1, 0x40_0000),
        (47, 3, 0x08_8b48),
        (10, 3, 0x40_0001),
        (0, 8, 0x1000),
        (47, 1, 0xc3),
        (28, 29, 0x40_0000),
        (16, 1, 0x40_0004),
        (0, 8, 0x7ffe_0ff8),
        (28, 21, 0),
    ];
    // Shown to tools: all but header, thread, process, encodings, target.
    let shown = head.len() as u64 - 7;
    let tail = [
        (28, 22, shown),
        (28, 2, stamp),
        (28, 3, u64::MAX),
        (47, 1, 0x90),
        (10, 1, 0x40_0000),
        (23, 4, 9),
        (26, 0, 0),
    ];
    let expected =
        [("chunk.0000".to_owned(), head.to_vec()), ("chunk.0001".to_owned(), tail.to_vec())];
    assert_eq!(chunks(&path), expected);
}

#[test]
fn threads_have_files_in_a_folder() {
    let folder = scratch("drmemtrace.prog.dir");
    let _ = std::fs::remove_dir_all(&folder);
    let mut tape = execution(&[]);
    let other = ThreadStart { os_pid: 5, os_tid: 6, creator: None, ..ThreadStart::default() };
    tape.items.push((ThreadId(1), Item::Event(Event::ThreadStart(other))));
    let signal =
        SignalInfo { number: 10, code: 0, interrupted: GuestVa(0x55), handler: GuestVa(0x40_0000) };
    // What happened before the first instruction is kept.
    for event in [
        Event::Timestamp { ns: 5000 },
        Event::Migrate { cpu: 3 },
        Event::Signal(signal),
        Event::Timestamp { ns: 6000 },
    ] {
        tape.items.push((ThreadId(1), Item::Event(event)));
    }
    let insn = Record::insn(GuestVa(0x40_0000), 1, InsnKind::OTHER);
    tape.items.push((ThreadId(1), Item::Record(insn)));
    write_file(Format::DrMemtrace, &tape, &folder, &WriteOptions::default());
    let mut names: Vec<_> = std::fs::read_dir(folder.join("trace"))
        .expect("made")
        .map(|e| e.expect("readable").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["drmemtrace.program.1.0000.trace.zip", "drmemtrace.program.6.0001.trace.zip"]
    );
    let back = read_file(Format::DrMemtrace, &folder, &ReadOptions::default()).expect("ours");
    let start = back.items.iter().find_map(|(t, i)| match i {
        Item::Event(Event::ThreadStart(s)) if *t == ThreadId(1) => Some(*s),
        _ => None,
    });
    assert_eq!(start.map(|s| (s.os_pid, s.os_tid)), Some((5, 6)));
    let events: Vec<Item> = back.thread(ThreadId(1));
    assert_eq!(
        events.iter().filter(|i| matches!(i, Item::Event(_))).collect::<Vec<_>>(),
        [
            &Item::Event(Event::Timestamp { ns: 5000 }),
            &Item::Event(Event::Migrate { cpu: 3 }),
            &Item::Event(Event::Timestamp { ns: 6000 }),
            &Item::Event(Event::Signal(signal)),
        ],
        "a signal is told when its handler is known"
    );
}

fn bare(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, size, addr) in entries {
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(&addr.to_le_bytes());
    }
    bytes
}

#[test]
fn old_versions_show_branches_by_what_follows() {
    let bytes = bare(&[
        (25, 0, 3),
        (28, 9, 0x40),
        (22, 4, 1),
        (24, 4, 1),
        (13, 2, 0x100),
        (10, 1, 0x102),
        (13, 2, 0x103),
        (16, 1, 0x200),
        (0, 8, 0x7000),
        (10, 4, 0x300),
        (17, 2, 0x0205),
        (26, 0, 0),
    ]);
    let tape = read(Format::DrMemtrace, &bytes, &ReadOptions::default()).expect("good entries");
    let insn = |pc, len, kind| Record::insn(GuestVa(pc), len, kind);
    assert_eq!(
        tape.records(),
        [
            insn(0x100, 2, InsnKind::BRANCH),
            Record::branch(false, GuestVa(0)),
            insn(0x102, 1, InsnKind::OTHER),
            insn(0x103, 2, InsnKind::BRANCH),
            Record::branch(true, GuestVa(0x200)),
            insn(0x200, 1, InsnKind::RETURN),
            Record::load(GuestVa(0x7000), 8),
            Record::branch(true, GuestVa(0x300)),
            insn(0x300, 4, InsnKind::OTHER),
            insn(0x304, 5, InsnKind::OTHER),
            insn(0x309, 2, InsnKind::OTHER),
        ]
    );
}

#[test]
fn bad_entries_are_named() {
    let good = [(25, 0, 7), (28, 9, 0x40), (22, 4, 1), (24, 4, 1), (10, 4, 0x100)];
    let with = |more: &[Entry]| bare(&[&good[..], more].concat());
    for (bytes, at, says) in [
        (bare(&[(10, 4, 0)]), 0, "header"),
        (bare(&[(25, 0, 8)]), 0, "version 8"),
        (bare(&[(25, 0, 7), (10, 4, 0)]), 12, "before any thread"),
        (with(&[]), 60, "footer"),
        (with(&[(50, 0, 0), (26, 0, 0)]), 60, "type 50"),
        (with(&[(23, 4, 1), (10, 4, 0x104), (26, 0, 0)]), 72, "after the thread's exit"),
        (with(&[(47, 9, 0), (26, 0, 0)]), 60, "encoding"),
        (with(&[(47, 8, 0), (47, 8, 0), (47, 1, 0), (26, 0, 0)]), 84, "encoding"),
        (with(&[(17, 9, 0), (26, 0, 0)]), 60, "bundle"),
        ([with(&[(26, 0, 0)]), vec![1, 2, 3]].concat(), 72, "left over"),
    ] {
        match read(Format::DrMemtrace, &bytes, &ReadOptions::default()) {
            Err(Error::Bytes { offset, what, .. }) => {
                assert_eq!(offset, at, "{what}");
                assert!(what.contains(says), "{what}");
            }
            other => panic!("{says}: {other:?}"),
        }
    }
    let by_core = bare(&[(25, 0, 7), (28, 9, 0x1_0040)]);
    let refused = read(Format::DrMemtrace, &by_core, &ReadOptions::default());
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
}

#[test]
fn missing_code_is_named() {
    let path = scratch("missing.trace.zip");
    let mut tape = execution(&[Step::Plain { load: None, store: None }]);
    let stray = Record::insn(GuestVa(0x77), 1, InsnKind::OTHER);
    tape.items.push((ThreadId(0), Item::Record(stray)));
    let mut sink = ichnos_convert::create_sink(Format::DrMemtrace, &path, &WriteOptions::default())
        .expect("writable");
    match tape.play(&mut sink) {
        Err(Error::NoCode { pc, .. }) => assert_eq!(pc, GuestVa(0x77)),
        other => panic!("{other:?}"),
    }
}
