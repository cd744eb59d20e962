//! Tests of a sink behind another thread.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{InsnKind, Map, MapKind, Protection};

use super::*;

/// Writes down what it is told, up to a number of things.
struct Tape {
    told: Vec<String>,
    enough: usize,
    broken: usize,
}

impl Tape {
    fn new() -> Self {
        Self { told: Vec::new(), enough: usize::MAX, broken: usize::MAX }
    }

    fn tell(&mut self, text: String) -> Result<bool> {
        self.told.push(text);
        if self.told.len() > self.broken {
            return Err(anyhow!("the tape is torn"));
        }
        Ok(self.told.len() < self.enough)
    }
}

impl Sink for Tape {
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        self.tell(format!("{batch:?}"))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        self.tell(format!("{thread:?} {event:?}"))
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        self.tell(format!("{thread:?} {code:?}"))
    }
}

/// Tells a long story, as long as the sink wants more.
fn story<S: Sink<Error = anyhow::Error>>(sink: &mut S) -> Result<()> {
    let insn = |n: u64| Record::insn(GuestVa(n), 1, InsnKind::OTHER);
    let map = Map {
        start: GuestVa(0x1000),
        len: 0x1000,
        protection: Protection::READ,
        kind: MapKind::IMAGE,
        offset: ichnos_base::FileOff(7),
        bias: 3,
        path: "/bin/true",
        build_id: &[1, 2, 3],
    };
    sink.begin(&About::default())?;
    for turn in 0..3000_u32 {
        let thread = ThreadId(turn % 3);
        let mut records = vec![insn(turn.into()), Record::load(GuestVa(9), 4)];
        records.extend((0..50).map(|n| insn(n + u64::from(turn))));
        let values = (turn % 2 == 0).then_some(&[1, 2, 3, 4][..]);
        let code =
            Code { process: ProcessId(1), pc: GuestVa(turn.into()), bytes: &[turn as u8; 5] };
        let more = sink.records(&Batch { thread, insns_before: 8, records: &records, values })?
            && sink.event(thread, &Event::Map(map))?
            && sink.event(thread, &Event::Marker { id: 4, text: "here" })?
            && sink.event(thread, &Event::Timestamp { ns: turn.into() })?
            && sink.code(thread, &code)?;
        if !more {
            break;
        }
    }
    sink.finish()
}

#[test]
fn the_sink_hears_what_it_would_hear_alone() {
    let mut alone = Tape::new();
    story(&mut alone).unwrap();
    let mut behind = Behind::new(Tape::new());
    story(&mut behind).unwrap();
    assert_eq!(behind.into_inner().unwrap().told, alone.told);
}

#[test]
fn an_error_and_enough_are_heard_of() {
    let mut behind = Behind::new(Tape { broken: 100, ..Tape::new() });
    assert_eq!(story(&mut behind).unwrap_err().to_string(), "the tape is torn");
    assert!(behind.into_inner().is_none());
    let mut behind = Behind::new(Tape { enough: 100, ..Tape::new() });
    story(&mut behind).unwrap();
    assert_eq!(behind.into_inner().unwrap().told.len(), 100);
}

#[test]
fn it_may_rest_in_between() {
    let mut alone = Tape::new();
    story(&mut Resting(&mut alone, 0)).unwrap();
    let mut behind = Behind::new(Tape::new());
    story(&mut Resting(&mut behind, 0)).unwrap();
    assert_eq!(behind.into_inner().unwrap().told, alone.told);
}

/// Rests after some hundred events.
struct Resting<'a, S>(&'a mut S, usize);

trait Rests: Sink<Error = anyhow::Error> {
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Rests for Tape {}

impl Rests for Behind<Tape> {
    fn rest(&mut self) -> Result<()> {
        Behind::rest(self)
    }
}

impl<S: Rests> Sink for Resting<'_, S> {
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        self.0.records(batch)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        self.1 += 1;
        if self.1.is_multiple_of(700) {
            self.0.rest()?;
        }
        self.0.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        self.0.code(thread, code)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        self.0.begin(about)
    }

    fn finish(&mut self) -> Result<()> {
        self.0.finish()
    }
}

/// Counts batches where somebody can see it who no longer has the sink.
struct Counter(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Sink for Counter {
    type Error = anyhow::Error;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(true)
    }
}

/// A collector that fails leaves without a word.
#[test]
fn what_was_told_is_heard_without_an_end() {
    for batches in [0, 1, 40_000] {
        let heard = std::sync::Arc::default();
        let mut sink = Behind::new(Counter(std::sync::Arc::clone(&heard)));
        for _ in 0..batches {
            let record = Record::insn(GuestVa(1), 1, InsnKind::OTHER);
            assert!(sink.records(&Batch::new(ThreadId(0), 0, &[record])).unwrap());
        }
        drop(sink);
        assert_eq!(heard.load(std::sync::atomic::Ordering::Relaxed), batches);
    }
}
