//! Din: what is written is read back, and what it says is right.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, InsnKind, Record, ThreadId};
use ichnos_convert::{DinStyle, Error, Format, ReadOptions, WriteOptions};
use proptest::prelude::*;

use crate::program::{execution, step};
use crate::tape::{Item, Tape, read, written};

/// What din keeps of a record: nothing but instructions, loads and stores, and of
/// these addresses and, in the sized style, sizes; else they end with their word of
/// four bytes, as Dinero has it.
fn kept(record: &Record, style: DinStyle) -> Option<Record> {
    let sized = style == DinStyle::Sized;
    let size = |addr: GuestVa, n: u32| if sized { n } else { 4 - (addr.0 % 4) as u32 };
    Some(match *record {
        Record::Insn { pc, len, .. } => {
            Record::insn(pc, size(pc, u32::from(len)) as u8, InsnKind::OTHER)
        }
        Record::Load { addr, size: n, .. } => Record::load(addr, size(addr, n)),
        Record::Store { addr, size: n, .. } => Record::store(addr, size(addr, n)),
        _ => return None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn din_is_read_back(steps in proptest::collection::vec(step(), 0..200)) {
        let tape = execution(&steps);
        for style in [DinStyle::Traditional, DinStyle::Sized] {
            let mut write = WriteOptions::default();
            write.din = style;
            let mut options = ReadOptions::default();
            options.din = style;
            let text = written(Format::Din, &tape, &write);
            let back = read(Format::Din, &text, &options).expect("our own text");
            let expected: Vec<_> =
                tape.records().iter().filter_map(|r| kept(r, style)).collect();
            prop_assert_eq!(back.records(), expected);
        }
    }
}

#[test]
fn the_published_example_is_read() {
    // The format's description gives lines of this shape, with a rest that is
    // ignored.
    let text = b"2 0 This is an instruction fetch at hex address 0\n\
        0 1000 a read\n1 70f60888 a write\n2 4\n3 0\n4 0\n\n";
    let tape = read(Format::Din, text, &ReadOptions::default()).expect("good text");
    let insn = |pc| Record::insn(GuestVa(pc), 4, InsnKind::OTHER);
    assert_eq!(
        tape.records(),
        [
            insn(0),
            Record::load(GuestVa(0x1000), 4),
            Record::store(GuestVa(0x70f6_0888), 4),
            insn(4)
        ]
    );
    assert!(!tape.branches);
}

#[test]
fn bad_lines_are_named() {
    for (text, line) in [
        (&b"2 10\nhello\n"[..], 2),
        (b"2 10\n7 10\n", 2),
        (b"2 10\n2 \n", 2),
        (b"2\n", 1),
        (b"210\n", 1),
        (b"2 10\n\n0 11112222333344445\n", 3),
        (b"0 12g4\n", 1),
        (b"\xff\xfe\n", 1),
    ] {
        match read(Format::Din, text, &ReadOptions::default()) {
            Err(Error::Line { line: found, format: Format::Din, .. }) => {
                assert_eq!(found, line, "{text:?}");
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

#[test]
fn one_thread_can_be_chosen() {
    let mut tape = Tape::default();
    for (thread, addr) in [(0, 1), (1, 2), (0, 3)] {
        let record = Record::load(GuestVa(addr), 4);
        tape.items.push((ThreadId(thread), Item::Record(record)));
    }
    assert_eq!(written(Format::Din, &tape, &WriteOptions::default()), b"0 1\n0 2\n0 3\n");
    let mut only = WriteOptions::default();
    only.thread = Some(ThreadId(1));
    assert_eq!(written(Format::Din, &tape, &only), b"0 2\n");
}
