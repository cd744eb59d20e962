//! Lackey's text: read back, and the same as Valgrind prints it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::process::Command;

use ichnos_base::{AccessFlags, GuestVa, InsnKind, Record};
use ichnos_convert::{Error, Format, ReadOptions, Repeats, WriteOptions};
use proptest::prelude::*;

use crate::program::{execution, step};
use crate::tape::{read, scratch, written};

/// What lackey keeps of a record.
fn kept(record: &Record) -> Option<Record> {
    Some(match *record {
        Record::Insn { pc, len, .. } => Record::insn(pc, len, InsnKind::OTHER),
        Record::Load { addr, size, .. } => Record::load(addr, size),
        Record::Store { addr, size, .. } => Record::store(addr, size),
        _ => return None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lackey_text_is_read_back(steps in proptest::collection::vec(step(), 0..200)) {
        let tape = execution(&steps);
        let mut write = WriteOptions::default();
        write.repeats = Repeats::Merged;
        let text = written(Format::Lackey, &tape, &write);
        let back = read(Format::Lackey, &text, &ReadOptions::default()).expect("our own text");
        let expected: Vec<_> = tape.records().iter().filter_map(kept).collect();
        prop_assert_eq!(back.records(), expected);
    }
}

const COPY: u64 = 0x40_1000;

/// `rep movsb` of three bytes between two other instructions.
const TURNS: &[u8] = b"I  00400fff,1\nI  00401000,2\n L 00001000,1\n S 00002000,1\n\
    I  00401000,2\n L 00001001,1\n S 00002001,1\nI  00401000,2\n L 00001002,1\n S 00002002,1\n\
    I  00401000,2\nI  00401002,1\n";

#[test]
fn turns_are_instructions_or_one() {
    let apart = read(Format::Lackey, TURNS, &ReadOptions::default()).expect("good text");
    let insns =
        |records: &[Record]| records.iter().filter(|r| matches!(r, Record::Insn { .. })).count();
    assert_eq!(insns(&apart.records()), 6, "as lackey counts");
    let mut merged = ReadOptions::default();
    merged.repeats = Repeats::Merged;
    let tape = read(Format::Lackey, TURNS, &merged).expect("good text");
    let flags = AccessFlags::STRING;
    let mut expected = vec![
        Record::insn(GuestVa(COPY - 1), 1, InsnKind::OTHER),
        Record::insn(GuestVa(COPY), 2, InsnKind::OTHER),
    ];
    for i in 0..3 {
        expected.push(Record::Load { flags, size: 1, addr: GuestVa(0x1000 + i) });
        expected.push(Record::Store { flags, size: 1, addr: GuestVa(0x2000 + i) });
    }
    expected.push(Record::insn(GuestVa(COPY + 2), 1, InsnKind::OTHER));
    assert_eq!(tape.records(), expected);
    // Writing gives a line a turn again; the one that only finds the count at
    // zero is not written.
    let text = written(Format::Lackey, &tape, &WriteOptions::default());
    let again = read(Format::Lackey, &text, &merged).expect("our own text");
    assert_eq!(again.records(), expected);
    assert_eq!(text.len() + b"I  00401000,2\n".len(), TURNS.len());
}

#[test]
fn a_jump_to_itself_is_no_repeat() {
    let mut merged = ReadOptions::default();
    merged.repeats = Repeats::Merged;
    let text = b"I  1000,2\nI  1000,2\nI  1000,2\n";
    let tape = read(Format::Lackey, text, &merged).expect("good text");
    assert_eq!(tape.records().len(), 3);
}

#[test]
fn valgrinds_own_lines_are_skipped_and_others_named() {
    let text = b"==12== Lackey, an example Valgrind tool\n--12-- warning\n**12** text\n\n\
        SB 00401000\nI  00401000,3\r\n M 1ffeffe3f0,4";
    let tape = read(Format::Lackey, text, &ReadOptions::default()).expect("good text");
    assert_eq!(
        tape.records(),
        [
            Record::insn(GuestVa(0x40_1000), 3, InsnKind::OTHER),
            Record::load(GuestVa(0x1f_feff_e3f0), 4),
            Record::store(GuestVa(0x1f_feff_e3f0), 4),
        ]
    );
    for (bad, line) in [
        (&b"I  10,2\nI 10,2\n"[..], 2),
        (b"I  10,2\n\n L 10;2\n", 3),
        (b"I  10,2 \n", 1),
        (b"I  10,256\n", 1),
        (b"I  10,99999999999\n", 1),
        (b" L ,4\n", 1),
        (b"hello from the program\n", 1),
    ] {
        match read(Format::Lackey, bad, &ReadOptions::default()) {
            Err(Error::Line { line: found, .. }) => assert_eq!(found, line, "{bad:?}"),
            other => panic!("{bad:?} gave {other:?}"),
        }
    }
}

#[test]
fn valgrinds_text_is_reproduced() {
    if !ichnos_testkit::tool::have("convert::valgrinds_text_is_reproduced", &["valgrind"]) {
        return;
    }
    let log = scratch("lackey.log");
    let status = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(format!("--log-file={}", log.display()))
        .arg("/bin/true")
        .status()
        .expect("valgrind is installed");
    assert!(status.success());
    let text = std::fs::read(&log).expect("valgrind wrote it");
    let tape = read(Format::Lackey, &text, &ReadOptions::default()).expect("valgrind's text");
    let again = written(Format::Lackey, &tape, &WriteOptions::default());
    let ours: Vec<&[u8]> = again.split_inclusive(|&b| b == b'\n').collect();
    let valgrinds: Vec<&[u8]> = text
        .split_inclusive(|&b| b == b'\n')
        .filter(|l| l.starts_with(b"I ") || l.starts_with(b" "))
        .collect();
    assert!(valgrinds.len() > 50_000, "true executes more than that");
    // A load and a store of one address by different operands is a modification
    // in our text and two lines in Valgrind's: same references, other spelling.
    let split = |lines: &[&[u8]]| -> Vec<Vec<u8>> {
        lines
            .iter()
            .flat_map(|l| match l {
                [b' ', b'M', rest @ ..] => {
                    vec![[b" L", rest].concat(), [b" S", rest].concat()]
                }
                line => vec![line.to_vec()],
            })
            .collect()
    };
    assert_eq!(split(&ours), split(&valgrinds));
    let same = ours.len() as f64 / valgrinds.len() as f64;
    assert!(same > 0.99, "nearly all lines are spelled the same");
}
