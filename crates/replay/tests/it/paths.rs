//! Executions told by their source's own numbers must make the same file as their records do, byte for byte if chunks are
//! long: over made-up programs that fall through, branch, jump and compute targets, with events, changing code and stretches
//! told as records in between, cut anywhere.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::{
    Batch, BlockId, Blocks, Code, Event, GuestVa, InsnKind, Paths, ProcessId, Record, Shapes, Sink,
    Source, ThreadId, ThreadStart, Totals,
};
use ichnos_replay::Replay;
use ichnos_trace::{Options, Reader, Writer};
use proptest::prelude::*;

use crate::twin::Twin;

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Falls,
    Branches(usize),
    Jumps(usize),
    Computes,
}

/// A piece of code: a source's block, with two ways through it.
struct Piece {
    entry: GuestVa,
    records: Vec<Record>,
    end: End,
}

/// A program. The source's number of a piece is twice its place, plus one if its branch is taken.
struct Program(Vec<Piece>);

impl Shapes for Program {
    fn records(&self, block: BlockId) -> &[Record] {
        self.0.get(block.index() / 2).map_or(&[], |piece| &piece.records)
    }

    fn is_taken(&self, block: BlockId) -> bool {
        block.0 % 2 == 1
    }
}

const KINDS: [InsnKind; 4] =
    [InsnKind::OTHER, InsnKind::BRANCH, InsnKind::JUMP, InsnKind::JUMP_INDIRECT];

impl Program {
    fn new(dice: &mut Dice, pieces: usize) -> Self {
        let mut pc = 0x40_0000;
        let ends: Vec<End> = (0..pieces)
            .map(|_| {
                let to = dice.below(pieces as u64) as usize;
                match dice.below(7) {
                    0..3 => End::Falls,
                    3..5 => End::Branches(to),
                    5 => End::Jumps(to),
                    _ => End::Computes,
                }
            })
            .collect();
        let mut made: Vec<Piece> = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let entry = GuestVa(pc);
            let mut records = Vec::new();
            let len = if dice.below(9) == 0 { 70 + dice.below(90) } else { 1 + dice.below(6) };
            for at in 0..len {
                let last = at + 1 == len;
                let kind = match end {
                    End::Branches(_) if last => KINDS[1],
                    End::Jumps(_) if last => KINDS[2],
                    End::Computes if last => KINDS[3],
                    _ => KINDS[0],
                };
                records.push(Record::insn(GuestVa(pc), 4, kind));
                for _ in 0..dice.below(3) {
                    let size = 1 << dice.below(4);
                    records.push(match dice.below(2) {
                        0 => Record::load(GuestVa(0), size),
                        _ => Record::store(GuestVa(0), size),
                    });
                }
                pc += 4;
            }
            made.push(Piece { entry, records, end: *end });
            // Now and then what follows does not follow in memory.
            if i % 5 == 4 {
                pc += 64;
            }
        }
        let entries: Vec<GuestVa> = made.iter().map(|piece| piece.entry).collect();
        for piece in &mut made {
            match piece.end {
                End::Branches(to) | End::Jumps(to) => {
                    piece.records.push(Record::branch(false, entries[to]));
                }
                End::Computes => piece.records.push(Record::branch(false, GuestVa(0))),
                End::Falls => {}
            }
        }
        Self(made)
    }

    /// Which piece comes next, and whether the branch is taken that leads there.
    fn next(&self, dice: &mut Dice, piece: usize) -> (usize, bool) {
        let later = (piece + 1) % self.0.len();
        match self.0[piece].end {
            End::Falls => (later, false),
            End::Branches(to) if dice.below(2) == 0 => (to, true),
            End::Branches(_) => (later, false),
            End::Jumps(to) => (to, true),
            End::Computes => (dice.below(self.0.len() as u64) as usize, true),
        }
    }

    /// The records of an execution.
    fn lay_out(&self, run: &Run, out: &mut Vec<Record>) {
        let mut words = run.words.iter();
        let records = &self.0[run.piece].records;
        for record in records {
            out.push(match *record {
                Record::Load { size, .. } => Record::load(GuestVa(*words.next().unwrap()), size),
                Record::Store { size, .. } => Record::store(GuestVa(*words.next().unwrap()), size),
                Record::Branch { .. } if run.taken => Record::branch(true, run.next),
                other => other,
            });
        }
    }
}

/// One execution.
struct Run {
    piece: usize,
    taken: bool,
    next: GuestVa,
    words: Vec<u64>,
}

/// What a source tells.
enum Told {
    Runs(u32, Vec<Run>),
    Time(u32, u64),
    Code(usize, u8),
}

fn script(dice: &mut Dice, program: &Program, length: usize) -> Vec<Told> {
    let mut told = Vec::new();
    let mut at = [0usize; 2];
    for i in 0..length {
        let thread = dice.below(2) as usize;
        match dice.below(12) {
            0 => told.push(Told::Time(thread as u32, i as u64)),
            1 => told
                .push(Told::Code(dice.below(program.0.len() as u64) as usize, dice.below(2) as u8)),
            _ => {
                let mut runs = Vec::new();
                for _ in 0..1 + dice.below(20) {
                    let piece = at[thread];
                    let (then, taken) = program.next(dice, piece);
                    let next = program.0[then].entry;
                    let accesses = program.0[piece].records.iter();
                    let accesses = accesses
                        .filter(|r| matches!(r, Record::Load { .. } | Record::Store { .. }));
                    let words = accesses.map(|_| 0x1000 + 8 * dice.below(64)).collect();
                    runs.push(Run { piece, taken, next, words });
                    at[thread] = then;
                }
                told.push(Told::Runs(thread as u32, runs));
            }
        }
    }
    told
}

/// How executions are told.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Records,
    /// By numbers, but for a stretch now and then.
    Numbers,
}

fn write(program: &Program, script: &[Told], form: Form, chunk_insns: u64) -> Vec<u8> {
    let mut options = Options::default();
    options.chunk_insns = chunk_insns;
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    for thread in 0..2 {
        let start = ThreadStart { process: ProcessId(1), ..ThreadStart::default() };
        writer.event(ThreadId(thread), &Event::ThreadStart(start)).unwrap();
    }
    for (i, told) in script.iter().enumerate() {
        match told {
            Told::Time(thread, ns) => {
                writer.event(ThreadId(*thread), &Event::Timestamp { ns: *ns }).unwrap();
            }
            Told::Code(piece, variant) => {
                let Piece { entry, records, .. } = &program.0[*piece];
                let insns = records.iter().filter(|r| matches!(r, Record::Insn { .. })).count();
                let bytes = vec![*variant; insns * 4];
                let code = Code { process: ProcessId(1), pc: *entry, bytes: &bytes };
                writer.code(ThreadId(0), &code).unwrap();
            }
            Told::Runs(thread, runs) if form == Form::Records || i % 7 == 6 => {
                let mut records = Vec::new();
                runs.iter().for_each(|run| program.lay_out(run, &mut records));
                writer.records(&Batch::new(ThreadId(*thread), 0, &records)).unwrap();
            }
            Told::Runs(thread, runs) => {
                let number = |run: &Run| BlockId(run.piece as u32 * 2 + u32::from(run.taken));
                let blocks: Vec<BlockId> = runs.iter().map(number).collect();
                let words: Vec<u64> = runs.iter().flat_map(|run| run.words.clone()).collect();
                let blocks = Blocks {
                    thread: ThreadId(*thread),
                    insns_before: 0,
                    blocks: &blocks,
                    words: &words,
                    shapes: program,
                };
                let next = runs.last().unwrap().next;
                assert!(writer.takes_paths());
                writer.paths(&Paths { blocks, next }).unwrap();
            }
        }
    }
    writer.finish().unwrap();
    writer.into_inner()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_and_records_make_the_same_file(
        seed: u64,
        pieces in 2usize..40,
        length in 1usize..120,
        chunk in prop_oneof![Just(8 << 20), 5u64..400],
    ) {
        let mut dice = Dice(seed);
        let program = Program::new(&mut dice, pieces);
        let script = script(&mut dice, &program, length);
        let by_records = write(&program, &script, Form::Records, chunk);
        let by_numbers = write(&program, &script, Form::Numbers, chunk);
        // Where a chunk ends between two blocks that one execution completes for the first time, both are in its
        // roadmap already.
        prop_assert!(by_records == by_numbers || chunk < 1000, "the files differ");
        prop_assert_eq!(replayed(by_records), replayed(by_numbers));
    }
}

/// What a file tells, thread by thread, and its counts.
fn replayed(bytes: Vec<u8>) -> (BTreeMap<u32, Vec<String>>, Totals) {
    let reader = Reader::from_bytes(bytes).unwrap();
    let mut twin = Twin { with_code: true, ..Twin::default() };
    Replay::new(&reader).drive(&mut twin).unwrap();
    (twin.by_thread, reader.totals())
}

#[test]
fn words_that_are_too_few_or_too_many_are_refused() {
    let mut dice = Dice(7);
    let program = Program::new(&mut dice, 9);
    let Some(Told::Runs(_, runs)) =
        script(&mut dice, &program, 40).into_iter().find(|t| matches!(t, Told::Runs(..)))
    else {
        panic!("nothing runs")
    };
    let blocks: Vec<BlockId> =
        runs.iter().map(|run| BlockId(run.piece as u32 * 2 + u32::from(run.taken))).collect();
    let words: Vec<u64> = runs.iter().flat_map(|run| run.words.clone()).collect();
    let mut more = words.clone();
    more.push(1);
    for wrong in [&words[..words.len() - 1], &more] {
        let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
        let blocks = Blocks {
            thread: ThreadId(0),
            insns_before: 0,
            blocks: &blocks,
            words: wrong,
            shapes: &program,
        };
        assert!(writer.paths(&Paths { blocks, next: GuestVa(0) }).is_err());
    }
}
