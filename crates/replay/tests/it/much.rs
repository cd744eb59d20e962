//! Chunks that would have too much: more records than were told, or than usual executions have.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::*;
use ichnos_replay::Replay;
use ichnos_trace::*;

use crate::plan::{RCX, RSP, at, block, insn, put, raw, tell, writer};

/// A chunk's worth by what was told, but too much for one by far: every chunk goes on where the one before ended.
#[test]
fn more_instructions_than_were_told_become_more_chunks() {
    const INSNS: u64 = 240;
    const TURNS: u64 = 900_000;
    let mut steps = vec![insn(1, InsnKind::OTHER); INSNS as usize];
    let sum = Sum { base: Some(RSP), index: None, disp: 8 };
    steps.push(Step::Derive { register: RSP, value: Value::Sum(sum) });
    let address = at(RSP, 0);
    let store = Ref { kind: RefKind::Store, flags: AccessFlags::NONE, size: 8, address };
    steps.push(Step::Ref(store));
    steps.push(Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) });
    let mut writer = writer(u64::MAX);
    tell(&mut writer, 7, &block(0x1000, Exits::Side, steps)).expect("a valid block");
    let again = Leave::Next(GuestVa(0x1000));
    let mut bytes = Vec::new();
    (0..TURNS / 10).for_each(|_| put(&mut bytes, 7, &[]));
    for turn in 0..10 {
        let known = [(RCX, turn / 4)];
        let told = raw(&known, &bytes, again);
        writer.raw(&Raw { follows: Some(RSP), ..told }).expect("gathered");
    }
    writer.finish().expect("finished");
    let reader = Reader::from_bytes(writer.into_inner()).expect("readable");
    let all = INSNS * TURNS;
    assert_eq!((reader.totals().insns, reader.totals().stores), (all, TURNS));
    let chunks: Vec<_> = reader.chunks().iter().filter(|c| c.header.totals.insns > 0).collect();
    assert!(chunks.len() > 1, "{}", chunks.len());
    for chunk in &chunks {
        let Totals { insns, stores, branches, .. } = chunk.header.totals;
        assert!(insns + stores + branches < MAX_INSNS);
        // The last turn before it, and its first.
        let first = chunk.header.first.max(INSNS);
        let mut got = Stores::default();
        Replay::new(&reader).insns(first - INSNS..first + INSNS).drive(&mut got).expect("replayed");
        let turn = first / INSNS;
        assert_eq!(got.0, [8 * turn, 8 * turn + 8]);
    }
}

#[derive(Default)]
struct Stores(Vec<u64>);

impl Sink for Stores {
    type Error = std::convert::Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.0.extend(batch.records.iter().filter_map(|record| match record {
            Record::Store { addr, .. } => Some(addr.0),
            _ => None,
        }));
        Ok(true)
    }
}

/// A repeated string instruction has as many accesses as it likes: the chunk ends behind it, before the next executions.
#[test]
fn one_instruction_has_more_accesses_than_a_chunk_has_instructions() {
    const FILLS: [u32; 3] = [(MAX_INSNS + 17) as u32, 200 << 20, 60];
    const TO: u64 = 0x5000_0000;
    /// So that enough lies between them.
    const TURNS: u64 = 1100;
    let mut writer = writer(u64::MAX);
    let exit = Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) };
    let plan = [
        block(0x1000, Exits::Side, vec![insn(2, InsnKind::OTHER), Step::Flex { slot: Slot(0) }]),
        block(0x1002, Exits::Side, vec![insn(5, InsnKind::JUMP), exit]),
    ];
    for (identifier, block) in (3..).zip(&plan) {
        tell(&mut writer, identifier, block).expect("a valid block");
    }
    for turns in FILLS {
        let mut bytes = 3_u32.to_le_bytes().to_vec();
        for number in [1, turns, 1] {
            bytes.extend(number.to_le_bytes());
        }
        for word in [RefKind::Store.describe(AccessFlags::STRING, 1), TO, 1] {
            bytes.extend(word.to_le_bytes());
        }
        (0..TURNS).for_each(|_| put(&mut bytes, 4, &[]));
        writer.raw(&raw(&[], &bytes, Leave::Next(GuestVa(0x1000)))).expect("gathered");
    }
    writer.finish().expect("finished");
    let reader = Reader::from_bytes(writer.into_inner()).expect("readable");
    let stores: Vec<_> = reader.chunks().iter().map(|c| c.header.totals.stores).collect();
    let stores: Vec<_> = stores.into_iter().filter(|n| *n > 0).collect();
    assert_eq!(stores, FILLS.map(u64::from));
    let Totals { insns, branches, taken, .. } = reader.totals();
    assert_eq!((insns, branches, taken), (3 * (TURNS + 1), 3 * TURNS, 3 * TURNS));
    let mut got = Stores::default();
    Replay::new(&reader).insns(2 * TURNS..3 * TURNS).drive(&mut got).expect("replayed");
    assert_eq!(got.0, (TO..TO + 60).collect::<Vec<_>>());
    // They come piece by piece, and who has seen enough waits for no more.
    let mut got = First::default();
    Replay::new(&reader).drive(&mut got).expect("replayed");
    assert!((1..1 << 16).contains(&got.0.len()), "{}", got.0.len());
    assert_eq!(got.0, (TO..).take(got.0.len()).collect::<Vec<_>>());
}

/// What is stored to by the first records.
#[derive(Default)]
struct First(Vec<u64>);

impl Sink for First {
    type Error = std::convert::Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        let mut stores = Stores::default();
        stores.records(batch)?;
        self.0 = stores.0;
        Ok(self.0.is_empty())
    }
}
