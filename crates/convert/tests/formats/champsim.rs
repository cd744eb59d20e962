//! ChampSim's records: read back, and inferred by ChampSim's rules to be what
//! they are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{Code, GuestVa, InsnKind, Isa, ProcessId, Record, Sink, ThreadId};
use ichnos_convert::{
    ChampSimRecord, ChampSimSink, Error, Excess, FLAGS, Format, INSTRUCTION_POINTER, Layout,
    ReadOptions, STACK_POINTER, WriteOptions,
};
use proptest::prelude::*;

use crate::program::{execution, step};
use crate::tape::{Item, Tape, read, read_file, scratch, write_file};

/// One record as ChampSim has it, without registers.
struct Plain {
    pc: GuestVa,
    kind: InsnKind,
    taken: bool,
    loads: Vec<GuestVa>,
    stores: Vec<GuestVa>,
}

/// What ChampSim keeps: cut to pieces of four loads and `stores` stores, with
/// lengths and targets as the following piece shows them.
fn kept(records: &[Record], stores: usize, excess: Excess) -> Vec<Record> {
    let mut pieces: Vec<Plain> = Vec::new();
    for record in records {
        match *record {
            Record::Insn { pc, kind, .. } => {
                let kind = if kind == InsnKind::SYSCALL { InsnKind::OTHER } else { kind };
                pieces.push(Plain {
                    pc,
                    kind,
                    taken: kind.transfers(),
                    loads: vec![],
                    stores: vec![],
                });
            }
            Record::Branch { taken, .. } => {
                pieces.last_mut().expect("an instruction").taken = taken
            }
            Record::Load { addr, .. } | Record::Store { addr, .. } if addr.0 != 0 => {
                let is_load = matches!(record, Record::Load { .. });
                let last = pieces.last().expect("an instruction");
                let full =
                    if is_load { last.loads.len() == 4 } else { last.stores.len() == stores };
                if full && excess == Excess::Drop {
                    continue;
                }
                if full {
                    let (pc, kind, taken) = (last.pc, last.kind, last.taken);
                    pieces.push(Plain { pc, kind, taken, loads: vec![], stores: vec![] });
                }
                let piece = pieces.last_mut().expect("an instruction");
                if is_load { piece.loads.push(addr) } else { piece.stores.push(addr) }
            }
            _ => {}
        }
    }
    let mut lengths: HashMap<GuestVa, u8> = HashMap::new();
    let mut expected = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        let next = pieces.get(i + 1).map(|p| p.pc);
        let distance = next.filter(|_| !piece.taken).map(|n| n.since(piece.pc));
        if let Some(len @ 1..=15) = distance {
            lengths.insert(piece.pc, len as u8);
        }
        let len = lengths.get(&piece.pc).copied().unwrap_or(4);
        expected.push(Record::insn(piece.pc, len, piece.kind));
        expected.extend(piece.loads.iter().map(|a| Record::load(*a, 4)));
        expected.extend(piece.stores.iter().map(|a| Record::store(*a, 4)));
        if piece.kind.transfers() {
            let target = next.filter(|_| piece.taken).unwrap_or_default();
            expected.push(Record::branch(piece.taken, target));
        }
    }
    expected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn records_are_read_back(steps in proptest::collection::vec(step(), 1..150), known: bool) {
        let mut tape = execution(&steps);
        if !known {
            tape.items.retain(|(_, item)| !matches!(item, Item::Code(..)));
        }
        for (format, stores, excess) in [
            (Format::ChampSim, 2, Excess::Split),
            (Format::ChampSim, 2, Excess::Drop),
            (Format::CloudSuite, 4, Excess::Split),
        ] {
            let mut options = WriteOptions::default();
            options.excess = excess;
            let path = scratch("property.champsim.zst");
            write_file(format, &tape, &path, &options);
            let back = read_file(format, &path, &ReadOptions::default()).expect("our own bytes");
            prop_assert_eq!(back.records(), kept(&tape.records(), stores, excess));
        }
    }
}

/// The branch kinds as ChampSim's source tells them apart, rule by rule.
fn champsim_rules(src: &[u8], dest: &[u8], taken: bool) -> (InsnKind, bool) {
    let writes_sp = dest.contains(&STACK_POINTER);
    let writes_ip = dest.contains(&INSTRUCTION_POINTER);
    let reads_sp = src.contains(&STACK_POINTER);
    let reads_flags = src.contains(&FLAGS);
    let reads_ip = src.contains(&INSTRUCTION_POINTER);
    let special = [0, STACK_POINTER, FLAGS, INSTRUCTION_POINTER];
    let reads_other = src.iter().any(|r| !special.contains(r));
    if !reads_sp && !reads_flags && writes_ip && !reads_other {
        (InsnKind::JUMP, true)
    } else if !reads_sp && !reads_ip && !reads_flags && writes_ip && reads_other {
        (InsnKind::JUMP_INDIRECT, true)
    } else if !reads_sp && reads_ip && !writes_sp && writes_ip && (reads_flags || reads_other) {
        (InsnKind::BRANCH, taken)
    } else if reads_sp && reads_ip && writes_sp && writes_ip && !reads_flags && !reads_other {
        (InsnKind::CALL, true)
    } else if reads_sp && reads_ip && writes_sp && writes_ip && !reads_flags && reads_other {
        (InsnKind::CALL_INDIRECT, true)
    } else if reads_sp && !reads_ip && writes_sp && writes_ip {
        (InsnKind::RETURN, true)
    } else if writes_ip {
        // ChampSim's "other"; the nearest of ours.
        (InsnKind::BRANCH, taken)
    } else {
        (InsnKind::OTHER, false)
    }
}

#[test]
fn kinds_are_inferred_by_champsims_rules() {
    let sources = [STACK_POINTER, FLAGS, INSTRUCTION_POINTER, 10];
    for bits in 0..128_u8 {
        let pick = |n: usize| if bits >> n & 1 == 1 { sources[n] } else { 0 };
        let src_regs = [pick(0), pick(1), pick(2), pick(3)];
        let dest = |n: u8, reg| if bits >> n & 1 == 1 { reg } else { 0 };
        let dest_regs = [dest(4, STACK_POINTER), dest(5, INSTRUCTION_POINTER), 0, 0];
        let taken = bits >> 6 == 1;
        let record = ChampSimRecord { src_regs, dest_regs, taken, ..ChampSimRecord::default() };
        let expected = champsim_rules(&src_regs, &dest_regs, taken);
        assert_eq!(record.kind(), expected, "{src_regs:?} {dest_regs:?}");
    }
}

/// Writes one instruction with its code and reads the raw record.
fn written(kind: InsnKind, code: &[u8]) -> ChampSimRecord {
    let path = scratch("one.champsim");
    let mut sink =
        ChampSimSink::create(&path, Layout::Standard, &WriteOptions::default()).expect("writable");
    let pc = GuestVa(0x40_1000);
    let mut tape = Tape::default();
    tape.isa = Isa::X86_64;
    tape.branches = true;
    let mut push = |item| tape.items.push((ThreadId(0), item));
    push(Item::Code(pc, code.to_vec()));
    push(Item::Record(Record::insn(pc, code.len() as u8, kind)));
    if kind.transfers() {
        push(Item::Record(Record::branch(true, GuestVa(0x40_2000))));
    }
    tape.play(&mut sink).expect("the disk is not full");
    let bytes = std::fs::read(&path).expect("just written");
    ChampSimRecord::decode(Layout::Standard, &bytes).expect("one record")
}

#[test]
fn every_sort_of_branch_is_inferred_from_what_is_written() {
    use InsnKind as K;
    for (kind, code) in [
        (K::JUMP, &[0xeb, 0x10][..]),
        (K::JUMP, &[0xe9, 1, 0, 0, 0]),
        (K::JUMP_INDIRECT, &[0xff, 0xe0]),
        (K::JUMP_INDIRECT, &[0xff, 0x25, 1, 0, 0, 0]),
        (K::JUMP_INDIRECT, &[0xff, 0x64, 0x24, 0x08]),
        (K::JUMP_INDIRECT, &[0xff, 0x24, 0xc5, 0, 0, 0, 0]),
        (K::BRANCH, &[0x74, 0x10]),
        (K::BRANCH, &[0x0f, 0x8f, 1, 0, 0, 0]),
        (K::BRANCH, &[0xe2, 0xfe]),
        (K::BRANCH, &[0xe1, 0xfe]),
        (K::BRANCH, &[0xe3, 0x10]),
        (K::BRANCH, &[0xc7, 0xf8, 1, 0, 0, 0]),
        (K::CALL, &[0xe8, 1, 0, 0, 0]),
        (K::CALL_INDIRECT, &[0xff, 0xd0]),
        (K::CALL_INDIRECT, &[0xff, 0x15, 1, 0, 0, 0]),
        (K::CALL_INDIRECT, &[0xff, 0x54, 0x24, 0x08]),
        (K::CALL_INDIRECT, &[0x64, 0xff, 0x14, 0x25, 0x10, 0, 0, 0]),
        (K::CALL_INDIRECT, &[0x41, 0xff, 0x14, 0xc4]),
        (K::RETURN, &[0xc3]),
        (K::RETURN, &[0xc2, 8, 0]),
        (K::OTHER, &[0x55]),
        (K::OTHER, &[0x5d]),
        (K::OTHER, &[0xc9]),
        (K::OTHER, &[0x48, 0x01, 0xc8]),
        (K::OTHER, &[0x48, 0x8d, 0x05, 1, 0, 0, 0]),
        (K::SYSCALL, &[0x0f, 0x05]),
    ] {
        let record = written(kind, code);
        let (found, taken) = record.kind();
        let expected = if kind == K::SYSCALL { K::OTHER } else { kind };
        assert_eq!(found, expected, "{code:x?} gives {record:?}");
        assert_eq!(taken, kind.transfers());
        assert_eq!(record.is_branch, kind.transfers());
        // Without code the kinds are right too.
        let bare = written(kind, &[0x06]);
        assert_eq!(bare.kind().0, expected, "{bare:?}");
    }
}

#[test]
fn registers_have_pins_numbers() {
    // add %rcx,%rax reads both and writes rax and flags.
    let add = written(InsnKind::OTHER, &[0x48, 0x01, 0xc8]);
    assert_eq!((add.dest_regs, add.src_regs), ([10, FLAGS, 0, 0], [10, 9, 0, 0]));
    // push %r8
    let push = written(InsnKind::OTHER, &[0x41, 0x50]);
    assert_eq!(
        (push.dest_regs, push.src_regs),
        ([STACK_POINTER, 0, 0, 0], [11, STACK_POINTER, 0, 0])
    );
    // vaddps %ymm2,%ymm1,%ymm0 names each register once.
    let vector = written(InsnKind::OTHER, &[0xc5, 0xf4, 0x58, 0xc2]);
    assert_eq!(vector.dest_regs[0], 64);
    assert!(vector.src_regs.starts_with(&[65, 66]));
}

#[test]
fn threads_have_files_and_sizes_must_fit() {
    let path = scratch("two.champsim.gz");
    let mut tape = Tape::default();
    for (thread, pc) in [(4, 1), (2, 2), (4, 3)] {
        let record = Record::insn(GuestVa(pc), 1, InsnKind::OTHER);
        tape.items.push((ThreadId(thread), Item::Record(record)));
    }
    write_file(Format::ChampSim, &tape, &path, &WriteOptions::default());
    let pcs = |path| -> Vec<u64> {
        let tape = read_file(Format::ChampSim, path, &ReadOptions::default()).expect("ours");
        let pc = |r: &Record| match r {
            Record::Insn { pc, .. } => pc.0,
            other => panic!("{other:?}"),
        };
        tape.records().iter().map(pc).collect()
    };
    assert_eq!(pcs(&path), [1, 3]);
    assert_eq!(pcs(&scratch("two.t2.champsim.gz")), [2]);
    match read(Format::ChampSim, &[1; 100], &ReadOptions::default()) {
        Err(Error::Bytes { offset: 64, what, .. }) => assert!(what.contains("36 of 64"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sink_takes_code_before_it_is_needed() {
    let path = scratch("code.champsim");
    let mut sink =
        ChampSimSink::create(&path, Layout::Standard, &WriteOptions::default()).expect("writable");
    let code = Code { process: ProcessId(0), pc: GuestVa(1), bytes: &[0x90] };
    assert!(sink.code(ThreadId(0), &code).expect("nothing is written yet"));
    sink.finish().expect("an empty trace is one");
    assert_eq!(std::fs::read(&path).expect("made at once").len(), 0);
}
