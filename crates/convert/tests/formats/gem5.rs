//! gem5's packets: read back, and laid out as the published messages are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, InsnKind, Record, ThreadId};
use ichnos_convert::{Error, Format, PacketIds, ReadOptions, WriteOptions};
use proptest::prelude::*;

use crate::program::{execution, step};
use crate::tape::{Item, Tape, read, written};

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
    fn packets_are_read_back(
        steps in proptest::collection::vec(step(), 0..200),
        threads in proptest::collection::vec(0..3_u32, 20),
    ) {
        let mut tape = execution(&steps);
        for (i, (thread, _)) in tape.items.iter_mut().enumerate() {
            *thread = ThreadId(threads[(i / 3) % threads.len()]);
        }
        let bytes = written(Format::Gem5, &tape, &WriteOptions::default());
        let mut options = ReadOptions::default();
        options.packet_ids = PacketIds::Threads;
        let back = read(Format::Gem5, &bytes, &options).expect("our own bytes");
        // Threads are numbered as they appear.
        let mut order: Vec<ThreadId> = Vec::new();
        let mut expected = Vec::new();
        for (thread, record) in tape.threads_records() {
            let Some(record) = kept(&record) else { continue };
            let number = order.iter().position(|t| *t == thread).unwrap_or_else(|| {
                order.push(thread);
                order.len() - 1
            });
            expected.push((ThreadId(number as u32), record));
        }
        prop_assert_eq!(back.threads_records(), expected);
        let one = read(Format::Gem5, &bytes, &ReadOptions::default()).expect("our own bytes");
        let expected: Vec<_> = tape.records().iter().filter_map(kept).collect();
        prop_assert_eq!(one.records(), expected);
    }
}

#[test]
fn bytes_are_as_published() {
    let mut tape = Tape::default();
    let insn = Record::insn(GuestVa(0x96), 3, InsnKind::OTHER);
    tape.items.push((ThreadId(2), Item::Record(insn)));
    tape.items.push((ThreadId(2), Item::Record(Record::store(GuestVa(1), 8))));
    let bytes = written(Format::Gem5, &tape, &WriteOptions::default());
    let mut expected = b"gem5".to_vec();
    // PacketHeader: obj_id = 1, ver = 2, tick_freq = 3 (10^12 as a varint).
    expected.extend_from_slice(b"\x11\x0a\x06ichnos\x10\x00\x18\x80\xa0\x94\xa5\x8d\x1d");
    // Packet: tick 500, cmd 1, addr 0x96, size 3, flags 0x100, pkt_id 2, pc 0x96.
    expected.extend_from_slice(
        b"\x12\x08\xf4\x03\x10\x01\x18\x96\x01\x20\x03\x28\x80\x02\x30\x02\x38\x96\x01",
    );
    expected
        .extend_from_slice(b"\x10\x08\xf4\x03\x10\x04\x18\x01\x20\x08\x28\x00\x30\x02\x38\x96\x01");
    assert_eq!(bytes, expected);
}

#[test]
fn commands_without_a_fixed_number_are_left_out() {
    // tick 1, cmd 2 (a response), addr 0, size 0.
    let bytes = b"gem5\x02\x18\x01\x08\x08\x01\x10\x02\x18\x00\x20\x00";
    let tape = read(Format::Gem5, bytes, &ReadOptions::default()).expect("good bytes");
    assert!(tape.records().is_empty());
}

#[test]
fn bad_bytes_are_named() {
    for (bytes, at) in [
        (&b"gem4"[..], 0),
        (b"ge", 0),
        (b"gem5", 4),
        (b"gem5\x02\x10\x01", 7),
        (b"gem5\x02\x18\x01\x02\x08", 8),
        (b"gem5\x02\x18\x01\xff\xff\xff\xff\xff", 12),
        (b"gem5\x02\x18\x01\xff\xff\xff\xff\x0f", 12),
        (b"gem5\x02\x18\x01\x02\x08\x01", 10),
        (b"gem5\x02\x18\x01\x80", 8),
    ] {
        match read(Format::Gem5, bytes, &ReadOptions::default()) {
            Err(Error::Bytes { offset, .. }) => assert_eq!(offset, at, "{bytes:?}"),
            other => panic!("{bytes:?} gave {other:?}"),
        }
    }
}
