//! Parts of a trace: parallel replay against serial, cuts against filtering, and threads
//! merged by time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use crate::twin::{Input, Twin, inputs};
use ichnos_base::*;
use ichnos_replay::{Cut, Order, Replay, cut};
use ichnos_trace::{Options, Reader, Writer};
use proptest::prelude::*;

fn write(inputs: &[Input]) -> Reader {
    let mut options = Options::default();
    options.chunk_insns = 7;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    crate::twin::push(inputs, &mut writer).expect("written");
    writer.finish().expect("finished");
    Reader::from_bytes(writer.into_inner()).expect("readable")
}

fn is_record(text: &str) -> bool {
    ["Insn", "Load", "Store", "Prefetch", "Flush", "Branch"].iter().any(|k| text.starts_with(k))
}

fn records(twin: Twin) -> Vec<(u32, Vec<String>)> {
    let only = |list: Vec<String>| list.into_iter().filter(|t| is_record(t)).collect::<Vec<_>>();
    let lists = twin.by_thread.into_iter().map(|(t, list)| (t, only(list)));
    lists.filter(|(_, list)| !list.is_empty()).collect()
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn parallel_is_serial(inputs in inputs(), jobs in 1usize..4) {
        let reader = write(&inputs);
        let mut serial = Twin::default();
        Replay::new(&reader).drive(&mut serial).expect("replayed");
        let make = |_: &ichnos_replay::Piece| Twin::default();
        let parts = Replay::new(&reader).map_chunks(jobs, make, |piece, twin| {
            assert_eq!(piece.totals, twin.totals);
            (piece.thread.0, twin.by_thread.into_values().next().unwrap_or_default())
        });
        let mut joined = Twin::default();
        for (thread, list) in parts.expect("replayed") {
            joined.by_thread.entry(thread).or_default().extend(list);
        }
        prop_assert_eq!(joined.by_thread, serial.by_thread);
    }

    #[test]
    fn chunks_come_in_order(inputs in inputs(), jobs in 1usize..4, most in 0usize..9) {
        let reader = write(&inputs);
        let make = |_: &ichnos_replay::Piece| Twin::default();
        let keep = |piece: &ichnos_replay::Piece, twin: Twin| (piece.chunk, twin.by_thread);
        let wanted = Replay::new(&reader).map_chunks(1, make, keep).expect("replayed");
        let jobs = std::num::NonZeroUsize::new(jobs).expect("not zero");
        let mut got = Vec::new();
        let each = |result| {
            got.push(result);
            got.len() <= most
        };
        Replay::new(&reader).map_chunks_in_order(jobs, make, keep, each).expect("replayed");
        prop_assert_eq!(&got[..], &wanted[..wanted.len().min(most + 1)]);
    }

    #[test]
    fn blocks_are_records(inputs in inputs(), with_code in any::<bool>()) {
        let reader = write(&inputs);
        let fresh = || Unfolded { twin: Twin { with_code, ..Twin::default() }, blocks: 0 };
        let (mut by_blocks, mut by_records) = (fresh(), Blind(fresh()));
        Replay::new(&reader).drive(&mut by_blocks).expect("replayed");
        Replay::new(&reader).drive(&mut by_records).expect("replayed");
        prop_assert_eq!(by_blocks.twin.by_thread, by_records.0.twin.by_thread);
    }

    #[test]
    fn a_cut_holds_the_range_and_counts_the_rest(inputs in inputs(), start in 0u64..30, len in 1u64..30) {
        let reader = write(&inputs);
        let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
        let range = start..start + len;
        cut(&reader, &Cut { insns: range.clone(), ..Cut::default() }, &mut writer).expect("cut");
        let part = Reader::from_bytes(writer.into_inner()).expect("readable");
        let (mut kept, mut wanted) = (Gaps::default(), Twin::default());
        Replay::new(&part).drive(&mut kept).expect("replayed");
        Replay::new(&reader).insns(range).drive(&mut wanted).expect("replayed");
        prop_assert_eq!(records(kept.twin), records(wanted));
        prop_assert_eq!(part.totals().insns + kept.missing, reader.totals().insns);
    }
}

#[test]
fn plain_code_is_told_as_blocks() {
    let turn = |i: u64| {
        let insn = |pc, kind| Record::insn(GuestVa(pc), 2, kind);
        let load = Record::load(GuestVa(0x9000 + i * 8), 8);
        let branch = Record::branch(true, GuestVa(0x10));
        [insn(0x10, InsnKind::OTHER), load, insn(0x12, InsnKind::BRANCH), branch]
    };
    let loops: Vec<Record> = (0..50).flat_map(turn).collect();
    let reader = write(&[Input::Records(0, loops, None)]);
    let mut told = Unfolded::default();
    Replay::new(&reader).drive(&mut told).expect("replayed");
    assert_eq!(told.blocks, 50);
}

/// Puts what is told as blocks back into records, except for what branches did.
#[derive(Default)]
pub struct Unfolded {
    pub twin: Twin,
    pub blocks: usize,
}

impl Sink for Unfolded {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let blind = batch.records.iter().copied().filter(|r| !matches!(r, Record::Branch { .. }));
        self.twin.records(&Batch { records: &blind.collect::<Vec<_>>(), ..*batch })
    }

    fn takes_blocks(&self) -> bool {
        true
    }

    fn blocks(&mut self, told: &Blocks<'_>) -> Result<bool, Infallible> {
        let mut words = told.words.iter();
        let mut all = Vec::new();
        for id in told.blocks {
            for mut record in told.shapes.records(*id).iter().copied() {
                if let Record::Load { addr, .. }
                | Record::Store { addr, .. }
                | Record::Prefetch { addr, .. }
                | Record::Flush { addr, .. } = &mut record
                {
                    *addr = GuestVa(*words.next().expect("a word for each access"));
                }
                all.push(record);
            }
        }
        assert_eq!(words.next(), None);
        self.blocks += told.blocks.len();
        self.records(&Batch::new(told.thread, told.insns_before, &all))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.twin.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        self.twin.code(thread, code)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.twin.begin(about)
    }
}

/// Takes blocks away again.
pub struct Blind(pub Unfolded);

impl Sink for Blind {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.records(batch)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.0.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        self.0.code(thread, code)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.0.begin(about)
    }
}

/// Adds up what cuts took out.
#[derive(Default)]
struct Gaps {
    twin: Twin,
    missing: u64,
}

impl Sink for Gaps {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.twin.records(batch)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        // The generator tells gaps of its own, with numbers far beyond any trace here.
        if let Event::Gap { reason: GapReason::Cut, insns: Some(n), skipped: None } = event {
            self.missing += if *n < 100_000 { *n } else { 0 };
        }
        self.twin.event(thread, event)
    }
}

/// Two threads with a timestamp before each instruction.
fn timed() -> Vec<Input> {
    let mut inputs = vec![Input::Event(0, 0), Input::Event(1, 0)];
    for i in 0..40u64 {
        // Event numbers 18, 40, ... are timestamps of that many nanoseconds.
        inputs.push(Input::Event((i.is_multiple_of(3)).into(), 18 + 22 * i));
        let pc = GuestVa(0x1000 + i);
        let records = vec![Record::insn(pc, 1, InsnKind::OTHER)];
        inputs.push(Input::Records((i.is_multiple_of(3)).into(), records, None));
    }
    inputs
}

#[derive(Default)]
struct Clock {
    times: Vec<u64>,
    threads: Vec<u32>,
}

impl Sink for Clock {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.threads.push(batch.thread.0);
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if let Event::Timestamp { ns } = event {
            self.times.push(*ns);
        }
        Ok(true)
    }
}

#[test]
fn merged_time_never_goes_back() {
    let reader = write(&timed());
    let mut clock = Clock::default();
    Replay::new(&reader).order(Order::ByTime).drive(&mut clock).expect("replayed");
    assert!(clock.times.is_sorted(), "{:?}", clock.times);
    assert_eq!(clock.times.len(), 40);
    let wanted: Vec<u32> = (0..40u32).map(|i| u32::from(i.is_multiple_of(3))).collect();
    assert_eq!(clock.threads, wanted);
}

#[test]
fn a_cut_by_time_and_thread() {
    let reader = write(&timed());
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    let wanted = Cut { threads: vec![ThreadId(1)], time: 200..400, ..Cut::default() };
    cut(&reader, &wanted, &mut writer).expect("cut");
    let part = Reader::from_bytes(writer.into_inner()).expect("readable");
    assert_eq!(part.threads().len(), 1);
    let inside =
        (0..40u64).filter(|i| i.is_multiple_of(3) && (200..400).contains(&(18 + 22 * i))).count();
    assert_eq!(part.totals().insns, inside as u64);
    assert!(part.threads()[0].start.is_some(), "the start is kept");
}

/// What the processor's level and space became in a part that is left out is told
/// before what is kept; what they became later is not.
#[test]
fn a_cut_knows_the_level_it_begins_in() {
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    let level = |n: u8| Event::Privilege { level: Privilege(n) };
    writer.begin(&About::default()).expect("begun");
    let tell = |writer: &mut Writer<Vec<u8>>, event: &Event<'_>| {
        writer.event(ThreadId(0), event).expect("told");
    };
    tell(&mut writer, &Event::ThreadStart(ThreadStart::default()));
    for n in 0..10u8 {
        tell(&mut writer, &level(n));
        tell(&mut writer, &Event::AddressSpace { id: 100 + u64::from(n / 3) });
        let records = [Record::insn(GuestVa(0x1000), 4, InsnKind::OTHER)];
        writer.records(&Batch::new(ThreadId(0), n.into(), &records)).expect("recorded");
    }
    writer.finish().expect("finished");
    let reader = Reader::from_bytes(writer.into_inner()).expect("readable");
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    cut(&reader, &Cut { insns: 4..6, ..Cut::default() }, &mut writer).expect("cut");
    let part = Reader::from_bytes(writer.into_inner()).expect("readable");
    #[derive(Default)]
    struct Seen(Vec<String>);
    impl Sink for Seen {
        type Error = Infallible;
        fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
            self.0.extend(batch.records.iter().map(|_| "insn".to_owned()));
            Ok(true)
        }
        fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
            match event {
                Event::Privilege { level } => self.0.push(format!("level {}", level.0)),
                Event::AddressSpace { id } => self.0.push(format!("space {id}")),
                _ => {}
            }
            Ok(true)
        }
    }
    let mut seen = Seen::default();
    Replay::new(&part).drive(&mut seen).expect("replayed");
    let wanted =
        ["level 4", "space 101", "insn", "level 5", "space 101", "insn", "level 6", "space 102"];
    assert_eq!(seen.0, wanted);
}

/// The pcs that a sink is shown.
#[derive(Default)]
struct Pcs(Vec<u64>);

impl Sink for Pcs {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.extend(batch.records.iter().filter_map(|record| match record {
            Record::Insn { pc, .. } => Some(pc.0),
            _ => None,
        }));
        Ok(true)
    }
}

#[test]
fn ranges_in_parallel_are_the_ranges_one_by_one() {
    let reader = write(&timed());
    let replay = Replay::new(&reader).threads([ThreadId(0)]);
    let ranges = [3..9, 0..2, 9..9, 20..26, 5..7];
    let one_by_one: Vec<_> = ranges
        .iter()
        .map(|range| {
            let mut pcs = Pcs::default();
            replay.clone().insns(range.clone()).drive(&mut pcs).expect("replayed");
            pcs.0
        })
        .collect();
    assert_eq!(one_by_one.iter().map(Vec::len).collect::<Vec<_>>(), [6, 2, 0, 6, 2]);
    for jobs in [1, 2, 7] {
        let all = replay.map_ranges(jobs, &ranges, |_| Pcs::default(), |at, pcs| (at, pcs.0));
        let all: Vec<_> = all.expect("replayed").into_iter().collect();
        let wanted: Vec<_> = one_by_one.iter().cloned().enumerate().collect();
        assert_eq!(all, wanted);
    }
}
