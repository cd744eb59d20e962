//! Damage, exhaustively: every byte of a small trace changed in several ways, and every
//! truncation. What comes out is an error or a prefix of each thread's
//! records, never anything else; what salvage keeps is made of records that
//! were pushed, in order.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use crate::twin::{Input, Twin};
use ichnos_base::{GuestVa, InsnKind, Record, Sink, Source};
use ichnos_replay::Replay;
use ichnos_trace::{Condition, Error, Options, Reader, Writer, salvage_bytes};

type Lists = BTreeMap<u32, Vec<String>>;

/// A trace with everything in it: two threads, events, code, values, flexible
/// instructions, several chunks of each.
fn inputs() -> Vec<Input> {
    let mut inputs = vec![Input::Event(0, 0), Input::Event(1, 22)];
    inputs.push(Input::Code(0, 0x1000, (0..40).collect()));
    for turn in 0..12u64 {
        let mut records = Vec::new();
        for i in 0..3 {
            let pc = GuestVa(0x1000 + i * 4);
            records.push(Record::insn(
                pc,
                4,
                if i == 2 { InsnKind::BRANCH } else { InsnKind::OTHER },
            ));
            records.push(Record::load(GuestVa(0x8000 + turn * 8 + i), 4));
        }
        records.push(Record::branch(turn % 4 != 3, GuestVa(0x1000)));
        let thread = (turn % 2) as u32;
        for i in 0..turn % 3 {
            records.push(Record::insn(GuestVa(0x2000), 2, InsnKind::OTHER));
            records.extend((0..i * 5).map(|j| Record::store(GuestVa(0x9000 + j), 1)));
        }
        inputs.push(Input::Records(thread, records, (turn > 7).then_some(turn as u8)));
        inputs.push(Input::Event(thread, turn * 7 + 3));
    }
    inputs
}

fn small_trace() -> (Vec<u8>, Lists) {
    let mut options = Options::default();
    options.chunk_insns = 12;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    crate::twin::push(&inputs(), &mut writer).expect("written");
    writer.finish().expect("finished");
    let mut all = Twin::default();
    crate::twin::push(&inputs(), &mut all).expect("infallible");
    (writer.into_inner(), all.by_thread)
}

/// What a file gives: each thread's records up to the first error, if the file opens.
fn read(bytes: &[u8]) -> Option<(Lists, bool)> {
    let reader = Reader::from_bytes(bytes.to_vec()).ok()?;
    let mut lists = Lists::new();
    let mut failed = false;
    for thread in reader.threads() {
        let mut twin = Twin::default();
        failed |= Replay::new(&reader).threads([thread.id]).drive(&mut twin).is_err();
        lists.extend(twin.by_thread);
    }
    let complete = *reader.condition() == Condition::Complete && !failed;
    Some((lists, complete))
}

fn assert_prefixes(got: &Lists, all: &Lists, what: &str) {
    for (thread, list) in got {
        let whole = all.get(thread).unwrap_or_else(|| panic!("{what}: thread {thread} is made up"));
        assert!(whole.starts_with(list), "{what}: thread {thread} has a wrong record");
    }
}

/// Kept records are pushed records in order, with gaps only where one is told.
fn assert_pieces(got: &Lists, all: &Lists, what: &str) {
    for (thread, list) in got {
        let whole = all.get(thread).unwrap_or_else(|| panic!("{what}: thread {thread} is made up"));
        let mut rest = whole.as_slice();
        for piece in list.split(|text| text.starts_with("Gap { reason: Damage")) {
            let at = (0..=rest.len()).find(|at| rest[*at..].starts_with(piece));
            let at = at.unwrap_or_else(|| panic!("{what}: thread {thread} has a wrong record"));
            rest = &rest[at + piece.len()..];
        }
    }
}

fn check_salvage(bytes: &[u8], all: &Lists, what: &str) -> bool {
    let mut out = Vec::new();
    match salvage_bytes(bytes.to_vec(), &mut out) {
        Ok(_) => {
            let (lists, complete) = read(&out).unwrap_or_else(|| panic!("{what}: not readable"));
            assert!(complete, "{what}: what was salvaged is not good");
            assert_pieces(&lists, all, what);
            true
        }
        Err(Error::NotATrace | Error::Version { .. } | Error::Isa(_)) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn the_small_trace_is_good() {
    let (bytes, all) = small_trace();
    let (lists, complete) = read(&bytes).expect("readable");
    assert!(complete);
    assert_eq!(lists, all);
    assert!(bytes.len() < 20_000, "small enough for what follows: {}", bytes.len());
}

/// The smallest trace with all sorts of chunks: one thread, an event, two stream chunks.
fn tiny_trace() -> (Vec<u8>, Lists) {
    let mut records = Vec::new();
    for turn in 0..4 {
        records.push(Record::insn(GuestVa(0x1000), 4, InsnKind::OTHER));
        records.push(Record::load(GuestVa(0x8000 + turn * turn), 4));
        records.push(Record::insn(GuestVa(0x1004), 2, InsnKind::BRANCH));
        records.push(Record::branch(turn != 3, GuestVa(0x1000)));
    }
    let inputs = [Input::Event(0, 0), Input::Records(0, records, None)];
    let mut options = Options::default();
    options.chunk_insns = 4;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    crate::twin::push(&inputs, &mut writer).expect("written");
    writer.finish().expect("finished");
    let mut all = Twin::default();
    crate::twin::push(&inputs, &mut all).expect("infallible");
    (writer.into_inner(), all.by_thread)
}

#[test]
fn every_other_value_of_every_byte_is_found_out() {
    let (bytes, all) = tiny_trace();
    assert_eq!(read(&bytes), Some((all.clone(), true)));
    assert!(bytes.len() < 1500, "small enough for what follows: {}", bytes.len());
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        for flip in 1..=255 {
            damaged[at] = bytes[at] ^ flip;
            if let Some((lists, complete)) = read(&damaged) {
                let what = format!("byte {at} xor {flip:#x}");
                assert_prefixes(&lists, &all, &what);
                assert!(!complete, "{what}: nobody noticed");
            }
        }
        damaged[at] = bytes[at];
    }
}

#[test]
fn a_lost_header_is_taken_from_the_index() {
    let (bytes, _) = small_trace();
    let about = format!("{:?}", Reader::from_bytes(bytes.clone()).expect("good").about());
    // Magic, version, instruction set, body.
    for at in [0, 8, 10, 17] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let mut out = Vec::new();
        let salvaged = salvage_bytes(damaged, &mut out).expect("salvaged");
        assert!(matches!(salvaged.lost[..], [ichnos_trace::Lost::Header(_)]), "{salvaged:?}");
        let reader = Reader::from_bytes(out).expect("good again");
        assert_eq!(format!("{:?}", reader.about()), about);
    }
}

#[test]
fn every_changed_byte_is_found_out() {
    let (bytes, all) = small_trace();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let what = format!("byte {at} xor {flip:#x}");
            if let Some((lists, complete)) = read(&damaged) {
                assert_prefixes(&lists, &all, &what);
                assert!(!complete, "{what}: nobody noticed");
            }
            if flip == 0x80 {
                check_salvage(&damaged, &all, &what);
            }
        }
    }
}

#[test]
fn every_truncation_gives_a_prefix() {
    let (bytes, all) = small_trace();
    let mut best = 0;
    for len in 0..bytes.len() {
        let cut = &bytes[..len];
        let what = format!("first {len} bytes");
        if let Some((lists, complete)) = read(cut) {
            assert_prefixes(&lists, &all, &what);
            assert!(!complete, "{what}: nobody noticed");
            let records = lists.values().map(Vec::len).sum();
            assert!(records >= best, "{what}: less than from a shorter file");
            best = records;
            assert!(check_salvage(cut, &all, &what));
        }
    }
    assert_eq!(best, all.values().map(Vec::len).sum::<usize>(), "only the index is missing");
}

#[test]
fn zeroed_and_doubled_stretches_are_found_out() {
    let (bytes, all) = small_trace();
    for start in (0..bytes.len()).step_by(13) {
        let end = (start + 200).min(bytes.len());
        let mut zeroed = bytes.clone();
        zeroed[start..end].fill(0);
        let mut doubled = bytes.clone();
        doubled.splice(end..end, bytes[start..end].iter().copied());
        for (damaged, how) in [(zeroed, "zeroed"), (doubled, "doubled")] {
            let what = format!("{start}..{end} {how}");
            if let Some((lists, complete)) = read(&damaged) {
                assert_prefixes(&lists, &all, &what);
                assert!(!complete, "{what}: nobody noticed");
            }
            check_salvage(&damaged, &all, &what);
        }
    }
}

#[test]
fn a_full_disk_leaves_a_readable_file() {
    let (bytes, all) = small_trace();
    for room in (0..bytes.len()).step_by(17) {
        let mut options = Options::default();
        options.chunk_insns = 12;
        let mut writer = Writer::new(Disk { room, bytes: Vec::new() }, options).expect("a writer");
        let pushed = crate::twin::push(&inputs(), &mut writer).and_then(|()| writer.finish());
        assert!(matches!(pushed, Err(Error::Write { .. })), "no room is an error");
        if let Some((lists, complete)) = read(&writer.into_inner().bytes) {
            assert!(!complete);
            assert_prefixes(&lists, &all, "a full disk");
        }
    }
}

/// A disk with little room.
struct Disk {
    room: usize,
    bytes: Vec<u8>,
}

impl std::io::Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.room - self.bytes.len();
        if left == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        let len = bytes.len().min(left);
        self.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn other_files_are_refused_in_words() {
    let error = |bytes: &[u8]| Reader::from_bytes(bytes.to_vec()).expect_err("refused").to_string();
    assert!(error(b"").contains("not an ichnos trace"));
    assert!(error(b"\x7fELF and so on and on and on").contains("not an ichnos trace"));
    let (mut bytes, _) = small_trace();
    bytes[8] = 200;
    assert!(error(&bytes).contains("version 200"), "{}", error(&bytes));
}
