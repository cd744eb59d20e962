//! A trace written down step by step, which can be changed and played.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{
    About, Batch, Code, DriveError, Event, GuestVa, Isa, ProcessId, Record, Sink, Source, ThreadId,
    ThreadStart,
};

/// One thing that a source tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rec(ThreadId, Record),
    Ev(ThreadId, Event<'static>),
    Code(ThreadId, ProcessId, GuestVa, Vec<u8>),
}

impl Step {
    pub fn thread(&self) -> ThreadId {
        match self {
            Self::Rec(t, _) | Self::Ev(t, _) | Self::Code(t, ..) => *t,
        }
    }
}

/// A whole trace.
#[derive(Clone, Debug)]
pub struct Script {
    pub about: About<'static>,
    pub steps: Vec<Step>,
    /// Batches end after so many records, so that they end in odd places.
    pub batch: usize,
    /// Batches that lie about the instructions before them.
    pub lie: Option<usize>,
}

pub const T0: ThreadId = ThreadId(0);

impl Script {
    pub fn new() -> Self {
        let about = About { isa: Isa::X86_64, branches: true, ..About::default() };
        Self { about, steps: Vec::new(), batch: 1000, lie: None }
    }

    /// A script of one thread that has started.
    pub fn started() -> Self {
        let mut script = Self::new();
        script.ev(Event::ThreadStart(ThreadStart::default()));
        script
    }

    pub fn ev(&mut self, event: Event<'static>) -> &mut Self {
        self.steps.push(Step::Ev(T0, event));
        self
    }

    pub fn rec(&mut self, record: Record) -> &mut Self {
        self.steps.push(Step::Rec(T0, record));
        self
    }

    /// Tells everything to a sink, or until it has seen enough.
    pub fn play<S: Sink>(&self, sink: &mut S)
    where
        S::Error: std::fmt::Debug,
    {
        self.tell(sink).unwrap();
    }

    fn tell<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        sink.begin(&self.about)?;
        let mut insns = std::collections::HashMap::<ThreadId, u64>::new();
        let mut number = 0;
        let mut i = 0;
        while i < self.steps.len() {
            let go_on = match &self.steps[i] {
                Step::Ev(thread, event) => sink.event(*thread, event)?,
                Step::Code(thread, process, pc, bytes) => {
                    let code = Code { process: *process, pc: *pc, bytes };
                    sink.code(*thread, &code)?
                }
                Step::Rec(thread, _) => {
                    let records = self.batch_at(i, *thread);
                    i += records.len() - 1;
                    let before = insns.entry(*thread).or_default();
                    let lie = u64::from(self.lie == Some(number));
                    let len: usize = records.iter().map(Record::value_len).sum();
                    let values = vec![7; len];
                    let values = self.about.values.then_some(&values[..]);
                    let batch = Batch { values, ..Batch::new(*thread, *before + lie, &records) };
                    *before += records.iter().filter(|r| is_insn(r)).count() as u64;
                    number += 1;
                    sink.records(&batch)?
                }
            };
            if !go_on {
                break;
            }
            i += 1;
        }
        sink.finish()
    }

    fn batch_at(&self, at: usize, thread: ThreadId) -> Vec<Record> {
        let mine = self.steps[at..].iter().map_while(|step| match step {
            Step::Rec(t, record) if *t == thread => Some(*record),
            _ => None,
        });
        mine.take(self.batch).collect()
    }
}

pub fn is_insn(record: &Record) -> bool {
    matches!(record, Record::Insn { .. })
}

/// A script as a source that can be driven again and again.
impl Source for Script {
    type Error = Infallible;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Infallible, S::Error>> {
        self.tell(sink).map_err(DriveError::Sink)
    }
}
