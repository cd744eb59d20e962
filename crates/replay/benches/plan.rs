//! Speed of replay where blocks were planned, beside the same records in plain blocks.
//!
//! Makes up a program of superblocks with seven instructions, two side exits, two taken words and three
//! accesses each, walks through it, stores the walk once as a plan with raw words and once as records, and replays both in turn,
//! as records and as blocks:
//!
//! ```text
//! cargo bench -p ichnos-replay --bench plan -- [executions in millions [superblocks [surprise]]]
//! ```
//!
//! One execution in `surprise` (8 without it) goes where its history does not say, and half as many have an address like no other.
//! Prints millions of executions per second of processor time, the best of five. Strength: both files hold the same records, so what
//! differs is the replay. Weakness: the walk goes everywhere alike, so that a program of 200 superblocks always fits into a cache, and one of 20,000 never does.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

use std::convert::Infallible;

use ichnos_base::{
    AccessFlags, Batch, Blocks, GuestVa, InsnKind, Leave, Null, Plan, ProcessId, Raw, Sink, Source,
    ThreadId,
};
use ichnos_replay::Replay;
use ichnos_trace::{
    Address, Block, ExitKind, Exits, Options, Reader, Ref, RefKind, Register, Slot, Step, Sum,
    Value, Width, Writer,
};

const RUNS: usize = 5;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let (millions, blocks) = (numbers.next().unwrap_or(5), numbers.next().unwrap_or(200));
    let surprise = numbers.next().unwrap_or(8).max(1);
    let planned = Program { blocks, surprise }.plan(millions * 1_000_000);
    let planned = Reader::from_bytes(planned).expect("a trace just written opens");
    let mut copy = Copy(writer());
    Replay::new(&planned).drive(&mut copy).expect("a trace just written replays");
    let plain = Reader::from_bytes(copy.0.into_inner()).expect("a trace just written opens");
    assert_eq!(planned.totals(), plain.totals(), "both hold the same");
    let mut best = [[f64::MAX; 2]; 2];
    for _ in 0..RUNS {
        for (reader, [records, told]) in [&planned, &plain].into_iter().zip(&mut best) {
            let by_records = timed(|| Replay::new(reader).drive(&mut Null).expect("replayed"));
            let by_blocks = timed(|| Replay::new(reader).drive(&mut Told(0)).expect("replayed"));
            *records = records.min(by_records);
            *told = told.min(by_blocks);
        }
    }
    println!("{:>10} {:>12} {:>14} {:>14}", "", "bytes", "records M/s", "blocks M/s");
    for (name, reader, times) in [("planned", &planned, best[0]), ("plain", &plain, best[1])] {
        let [records, told] = times.map(|seconds| millions as f64 / seconds);
        println!("{name:>10} {:>12} {records:>14.1} {told:>14.1}", reader.file_bytes());
    }
}

/// Seconds of this process for some work.
fn timed(work: impl FnOnce()) -> f64 {
    let start = processor_time();
    work();
    processor_time() - start
}

fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    ns.unwrap_or(0.0) / 1e9
}

fn writer() -> Writer<Vec<u8>> {
    let mut options = Options::default();
    // Chunks are as long as on a machine that has nothing else to do.
    options.chunk_time = std::time::Duration::MAX;
    Writer::new(Vec::new(), options).expect("a writer")
}

/// Bytes that a thread stores before they are taken.
const BUFFER: usize = 1 << 20;

/// Where a block begins.
const fn entry(block: u64) -> GuestVa {
    GuestVa(0x40_0000 + block * 64)
}

#[derive(Clone, Copy)]
struct Program {
    blocks: u64,
    surprise: u64,
}

impl Program {
    /// Where a block goes by its first exit, its last, and otherwise.
    const fn ways(self, block: u64) -> [u64; 3] {
        let blocks = self.blocks;
        [(block + 57) % blocks, (block + 131) % blocks, (block + 1) % blocks]
    }

    fn block(self, number: u64) -> Block {
        let [first, last, _] = self.ways(number);
        let (a, b, c) = (Register(0), Register(1), Register(2));
        let other = Step::Insn { len: 4, kind: InsnKind::OTHER };
        let branch = Step::Insn { len: 2, kind: InsnKind::BRANCH };
        let exit = |to| Step::Exit { kind: ExitKind::Conditional, target: entry(to) };
        let at = |kind, base, disp| {
            let address = Address::Known(Sum { base: Some(base), index: None, disp });
            Step::Ref(Ref { kind, flags: AccessFlags::NONE, size: 8, address })
        };
        let up = Value::Sum(Sum { base: Some(a), index: Some((b, 1)), disp: 8 });
        let steps = vec![
            Step::Take { register: a, width: Width::Eight, slot: Slot(0) },
            Step::Take { register: b, width: Width::Eight, slot: Slot(0) },
            other,
            at(RefKind::Load, a, 16),
            other,
            Step::Derive { register: c, value: up },
            branch,
            exit(first),
            other,
            at(RefKind::Store, c, -8),
            other,
            at(RefKind::Load, b, 0),
            other,
            branch,
            exit(last),
        ];
        let (process, entry) = (ProcessId(0), entry(number));
        Block { process, entry, exits: Exits::Side, steps: steps.into(), code: [].into() }
    }

    /// A walk through the program, as it is stored.
    fn plan(self, executions: u64) -> Vec<u8> {
        let (mut writer, process) = (writer(), ProcessId(0));
        for number in 0..self.blocks {
            let Block { entry, steps, code, .. } = &self.block(number);
            let (identifier, entry) = (number as u32, *entry);
            let plan = Plan { identifier, process, entry, steps, code };
            writer.plan(&plan).expect("a valid block");
        }
        let (mut random, mut at, mut turns) = (1u64, 0u64, vec![0u64; self.blocks as usize]);
        let (mut bytes, thread) = (Vec::new(), ThreadId(0));
        for execution in 1..=executions {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (turn, dice) = (&mut turns[at as usize], random >> 33);
            *turn += 1;
            let odd =
                if dice.is_multiple_of(2 * self.surprise) { dice * 8 } else { *turn % 4096 * 8 };
            bytes.extend((at as u32).to_le_bytes());
            for word in [0x7f00_0000 + at * 4096, 0x10_0000_0000 + (at << 24) + odd] {
                bytes.extend(word.to_le_bytes());
            }
            let is_odd = dice / 64 % self.surprise == 0;
            let way = if is_odd { dice / 8 % 3 } else { *turn / 3 % 3 };
            at = self.ways(at)[way as usize];
            if bytes.len() >= BUFFER || execution == executions {
                let (insns, leave) = (bytes.len() as u64 / 4, Leave::Next(entry(at)));
                let raw = Raw {
                    thread,
                    process,
                    insns_before: 0,
                    insns,
                    registers: Some(&[]),
                    follows: None,
                    bytes: [&bytes, &[]],
                    leave,
                };
                writer.raw(&raw).expect("gathered");
                bytes.clear();
            }
        }
        writer.finish().expect("finished");
        writer.into_inner()
    }
}

/// The records of another trace, as records.
struct Copy(Writer<Vec<u8>>);

impl Sink for Copy {
    type Error = ichnos_trace::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.0.records(batch)
    }

    fn finish(&mut self) -> Result<(), Self::Error> {
        self.0.finish()
    }
}

/// Takes blocks and looks at none of them.
struct Told(usize);

impl Sink for Told {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        true
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        self.0 += blocks.blocks.len();
        Ok(true)
    }
}
