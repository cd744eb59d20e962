//! An inventory by blocks, whole and in shares, against one by records.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_analyze::inventory::{Inventory, Share};
use ichnos_base::*;
use proptest::prelude::*;

/// Blocks; where they lie, what they do and how they end is drawn.
#[derive(Clone, Debug)]
struct Program(Vec<Vec<Record>>);

impl Shapes for Program {
    fn records(&self, block: BlockId) -> &[Record] {
        self.0.get(block.index()).map_or(&[], Vec::as_slice)
    }
}

/// What a thread does.
#[derive(Clone, Debug)]
enum Act {
    /// Runs a block at this place in memory, told as a block or by its records.
    Run {
        block: usize,
        place: u64,
        as_block: bool,
        taken: bool,
    },
    Tell(Event<'static>),
    /// A share ends.
    Cut,
}

fn block() -> impl Strategy<Value = Vec<Record>> {
    let insn = (0u64..400, 1u8..16, 0u8..10, 0u8..6, prop::sample::select(vec![0u32, 1, 8, 200]));
    prop::collection::vec(insn, 0..6).prop_map(|insns| {
        let mut records = Vec::new();
        for (at, len, kind, access, size) in insns {
            let (flags, addr) = (AccessFlags::NONE, GuestVa(0));
            records.push(Record::insn(GuestVa(0x1000 + at * 5), len, InsnKind(kind)));
            records.extend(match access {
                0 => Some(Record::load(addr, size)),
                1 => Some(Record::store(addr, size)),
                2 => Some(Record::Prefetch { flags, size, addr }),
                3 => Some(Record::Flush { flags, size, addr }),
                4 => Some(Record::branch(true, GuestVa(0x1000))),
                _ => None,
            });
        }
        records
    })
}

fn start(process: u32) -> Event<'static> {
    let process = ProcessId(process);
    Event::ThreadStart(ThreadStart { process, creator: None, os_pid: 1, os_tid: 1 })
}

fn map(start: u64) -> Event<'static> {
    let (protection, kind, offset) = (Protection(5), MapKind::IMAGE, FileOff(0));
    let (start, path) = (GuestVa(start << 20), "a program");
    Event::Map(Map { start, len: 4096, protection, kind, offset, bias: 0, path, build_id: &[1] })
}

fn act() -> impl Strategy<Value = Act> {
    let run = (0usize..8, 0u64..0x8_0000, any::<bool>(), any::<bool>())
        .prop_map(|(block, place, as_block, taken)| Act::Run { block, place, as_block, taken });
    let event = prop_oneof![
        (0u64..60).prop_map(map),
        (0u32..3).prop_map(start),
        (0u64..9).prop_map(|ns| Event::Timestamp { ns }),
        (0u64..4).prop_map(|number| Event::Syscall { number, args: [0; 6] }),
        (0i32..3).prop_map(|status| Event::ThreadEnd(EndStatus::Exited(status))),
        Just(Event::Gap { reason: GapReason::Cut, insns: None, skipped: None }),
    ];
    prop_oneof![6 => run, 2 => event.prop_map(Act::Tell), 1 => Just(Act::Cut)]
}

/// One run of a block: its records and the addresses in them.
fn run(program: &Program, block: usize, place: u64, taken: bool) -> (Vec<Record>, Vec<u64>) {
    let (mut records, mut words) = (program.0[block].clone(), Vec::new());
    for record in &mut records {
        match record {
            Record::Load { addr, .. }
            | Record::Store { addr, .. }
            | Record::Prefetch { addr, .. }
            | Record::Flush { addr, .. } => {
                *addr = GuestVa(place + 60 * words.len() as u64);
                words.push(addr.0);
            }
            Record::Branch { taken: outcome, .. } => *outcome = taken,
            Record::Insn { .. } => {}
        }
    }
    (records, words)
}

/// Tells an act; a sink that takes blocks gets blocks.
fn tell<S: Sink>(sink: &mut S, program: &Program, thread: ThreadId, act: &Act)
where
    S::Error: std::fmt::Debug,
{
    match *act {
        Act::Run { block, place, as_block, taken } => {
            let (records, words) = run(program, block, place, taken);
            if as_block && sink.takes_blocks() {
                let (blocks, words) = (&[BlockId(block as u32)][..], &words[..]);
                let told = Blocks { thread, insns_before: 0, blocks, words, shapes: program };
                assert!(sink.blocks(&told).unwrap());
            } else {
                assert!(sink.records(&Batch::new(thread, 0, &records)).unwrap());
            }
        }
        Act::Tell(ref event) => assert!(sink.event(thread, event).unwrap()),
        Act::Cut => {}
    }
}

proptest! {
    #[test]
    fn blocks_and_shares_come_to_what_records_come_to(
        blocks in prop::collection::vec(block(), 8),
        threads in prop::collection::vec(prop::collection::vec(act(), 0..40), 1..4),
    ) {
        let program = Program(blocks);
        let threads: Vec<_> = (0..).map(ThreadId).zip(&threads).collect();
        let mut by_records = Inventory::new();
        for (thread, acts) in &threads {
            acts.iter().for_each(|act| tell(&mut by_records, &program, *thread, act));
        }
        let wanted = by_records.into_stock(5);
        let known: Vec<_> = wanted.threads.iter().map(|(id, t)| (*id, t.totals)).collect();

        // Threads by turns, so that blocks of one come between those of another.
        let mut by_blocks = Inventory::with_totals(known.clone());
        let longest = threads.iter().map(|(_, acts)| acts.len()).max().unwrap_or(0);
        let by_turns = (0..longest).flat_map(|at| threads.iter().map(move |(t, acts)| (*t, acts.get(at))));
        for (thread, act) in by_turns {
            act.into_iter().for_each(|act| tell(&mut by_blocks, &program, thread, act));
        }
        let got = by_blocks.into_stock(5);
        // Which parts make an image depends on the order of threads.
        prop_assert_eq!(told(got, false), told(wanted.clone(), false));

        let mut in_shares = Inventory::with_totals(known);
        for (thread, acts) in &threads {
            for acts in acts.split(|act| matches!(act, Act::Cut)) {
                let mut share = Share::new();
                acts.iter().for_each(|act| tell(&mut share, &program, *thread, act));
                in_shares.add(share);
            }
        }
        prop_assert_eq!(told(in_shares.into_stock(5), true), told(wanted, true));
    }
}

/// All that was found, in words.
fn told(mut stock: ichnos_analyze::inventory::Stock, with_images: bool) -> String {
    if !with_images {
        stock.images.clear();
    }
    format!("{stock:#?}")
}
