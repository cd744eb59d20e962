//! A sink that works on a processor of its own: what it is told is gathered in portions and told to it there, in
//! order, while the collector goes on.
//!
//! A collector that plans blocks tells what was stored, which the sink packs on processors of its own anyway: from the first plan on it is told at
//! once, here.
//!
//! Memory: a few portions, each of some megabytes. An error, or that the sink has seen enough, is heard of a
//! few portions late; nothing is told to the sink after it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use ichnos_base::{
    About, Batch, Chain, Code, Event, GuestVa, Plan, ProcessId, Raw, Record, Sink, ThreadId,
};

/// Records after which a portion is handed over: some milliseconds of work.
const MANY: usize = 1 << 16;

/// Portions on their way.
const PORTIONS: usize = 4;

/// A sink on a processor of its own.
pub struct Behind<S>
where
    S: Sink<Error = anyhow::Error> + Send + 'static,
{
    sink: Where<S>,
    /// Whether it takes raw executions.
    raw: bool,
    portion: Portion,
    /// Whether the sink has seen enough.
    enough: bool,
    /// Whether it is told at once.
    at_once: bool,
}

/// Where the sink is.
enum Where<S> {
    /// Not begun, or finished.
    Here(S),
    There(Line<S>),
    /// It failed, and the error was told.
    Lost,
}

struct Line<S> {
    full: SyncSender<Portion>,
    empty: Receiver<Portion>,
    worker: JoinHandle<(S, Result<bool>)>,
}

impl<S> Behind<S>
where
    S: Sink<Error = anyhow::Error> + Send + 'static,
{
    /// A sink that begins its work over there with the first portion.
    pub fn new(sink: S) -> Self {
        Self {
            raw: sink.takes_raw(),
            sink: Where::Here(sink),
            portion: Portion::default(),
            enough: false,
            at_once: false,
        }
    }

    /// The sink, unless it failed. All that it was told it has heard after `finish`.
    pub fn into_inner(mut self) -> Option<S> {
        self.call_back().ok()?;
        match mem::replace(&mut self.sink, Where::Lost) {
            Where::Here(sink) => Some(sink),
            _ => None,
        }
    }

    /// Waits until the sink has heard everything. What comes next is told by another thread, started by the one that then tells.
    pub fn rest(&mut self) -> Result<()> {
        if self.at_once {
            return Ok(());
        }
        self.hand_over()?;
        self.call_back().map(drop)
    }

    /// The sink, if it is told at once.
    pub fn told_at_once(&mut self) -> Option<&mut S> {
        self.here().ok()
    }

    /// The sink that is told at once.
    fn here(&mut self) -> Result<&mut S> {
        match &mut self.sink {
            Where::Here(sink) if self.at_once => Ok(sink),
            _ => Err(anyhow!(
                "the trace was told of executions before their plans, or after an error"
            )),
        }
    }

    /// Hands over what was gathered, if it is enough.
    fn gathered(&mut self) -> Result<bool> {
        let much = self.portion.records.len() >= MANY || self.portion.told.len() >= MANY / 16;
        if much { self.hand_over() } else { Ok(true) }
    }

    fn hand_over(&mut self) -> Result<bool> {
        if self.enough {
            self.portion.clear();
            return Ok(false);
        }
        if let Where::Here(_) = &self.sink
            && let Where::Here(sink) = mem::replace(&mut self.sink, Where::Lost)
        {
            self.sink = Where::There(Line::new(sink)?);
        }
        let Where::There(line) = &self.sink else {
            return Err(anyhow!("the trace was written to after an error"));
        };
        let next = line.empty.try_recv().unwrap_or_default();
        let portion = mem::replace(&mut self.portion, next);
        if line.full.send(portion).is_ok() {
            return Ok(true);
        }
        // It has stopped: of an error, or because it has seen enough.
        self.call_back()
    }

    /// Waits until the sink has heard everything and brings it back; whether it wants more.
    fn call_back(&mut self) -> Result<bool> {
        match mem::replace(&mut self.sink, Where::Lost) {
            Where::There(line) => {
                drop(line.full);
                let joined = line.worker.join();
                let joined = joined.map_err(|_| anyhow!("the writing thread panicked"))?;
                let (sink, done) = joined;
                self.enough = !done?;
                self.sink = Where::Here(sink);
                Ok(!self.enough)
            }
            other => {
                self.sink = other;
                Ok(true)
            }
        }
    }
}

/// A collector that failed does not call `finish`: what it had told is still told.
impl<S> Drop for Behind<S>
where
    S: Sink<Error = anyhow::Error> + Send + 'static,
{
    fn drop(&mut self) {
        let begun = matches!(self.sink, Where::There(_)) || !self.portion.told.is_empty();
        if begun && !matches!(self.sink, Where::Lost) {
            // Whoever failed says why.
            let _ = self.hand_over().and_then(|_| self.call_back());
        }
    }
}

impl<S> Line<S>
where
    S: Sink<Error = anyhow::Error> + Send + 'static,
{
    fn new(sink: S) -> Result<Self> {
        let (full, portions) = sync_channel(PORTIONS);
        let (back, empty) = channel();
        let worker = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || work(sink, &portions, &back))
            .context("cannot start a thread that writes the trace")?;
        Ok(Self { full, empty, worker })
    }
}

/// Tells portions until there are no more, or the sink wants none.
fn work<S>(mut sink: S, portions: &Receiver<Portion>, back: &Sender<Portion>) -> (S, Result<bool>)
where
    S: Sink<Error = anyhow::Error>,
{
    while let Ok(mut portion) = portions.recv() {
        match portion.tell(&mut sink) {
            Ok(true) => {}
            done => return (sink, done),
        }
        portion.clear();
        // Nobody takes the last ones.
        let _ = back.send(portion);
    }
    (sink, Ok(true))
}

/// What a sink is told, in order.
#[derive(Default)]
struct Portion {
    told: Vec<(ThreadId, Told)>,
    records: Vec<Record>,
    bytes: Vec<u8>,
}

enum Told {
    Records {
        insns_before: u64,
        records: Range<usize>,
        values: Option<Range<usize>>,
    },
    Event(Event<'static>),
    /// One with texts.
    Text(Event<'static>, Box<str>, Box<[u8]>),
    Code {
        process: ProcessId,
        pc: GuestVa,
        bytes: Range<usize>,
    },
}

impl Portion {
    fn clear(&mut self) {
        let Self { told, records, bytes } = self;
        told.clear();
        records.clear();
        bytes.clear();
    }

    /// Tells it all; whether the sink wants more.
    fn tell<S: Sink>(&self, sink: &mut S) -> Result<bool, S::Error> {
        for (thread, told) in &self.told {
            if !self.tell_one(*thread, told, sink)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn tell_one<S: Sink>(
        &self,
        thread: ThreadId,
        told: &Told,
        sink: &mut S,
    ) -> Result<bool, S::Error> {
        match told {
            Told::Records { insns_before, records, values } => {
                let records = &self.records[records.clone()];
                let values = values.clone().map(|range| &self.bytes[range]);
                sink.records(&Batch { thread, insns_before: *insns_before, records, values })
            }
            Told::Event(event) => sink.event(thread, event),
            Told::Text(event, text, bytes) => sink.event(thread, &event.with_texts(text, bytes)),
            Told::Code { process, pc, bytes } => {
                let bytes = &self.bytes[bytes.clone()];
                sink.code(thread, &Code { process: *process, pc: *pc, bytes })
            }
        }
    }
}

/// Appends to a list; where it lies there.
fn append<T: Copy>(list: &mut Vec<T>, more: &[T]) -> Range<usize> {
    let start = list.len();
    list.extend_from_slice(more);
    start..list.len()
}

impl<S> Sink for Behind<S>
where
    S: Sink<Error = anyhow::Error> + Send + 'static,
{
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        if self.at_once {
            return self.here()?.records(batch);
        }
        let Portion { records, bytes, told, .. } = &mut self.portion;
        let records = append(records, batch.records);
        let values = batch.values.map(|values| append(bytes, values));
        let insns_before = batch.insns_before;
        told.push((batch.thread, Told::Records { insns_before, records, values }));
        self.gathered()
    }

    fn takes_raw(&self) -> bool {
        self.raw
    }

    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool> {
        if !self.at_once {
            self.rest()?;
            self.at_once = true;
        }
        self.here()?.plan(plan)
    }

    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool> {
        self.here()?.chain(chain)
    }

    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool> {
        self.here()?.raw(raw)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        if self.at_once {
            return self.here()?.event(thread, event);
        }
        let bare = event.with_texts("", &[]);
        self.portion.told.push((
            thread,
            match event.texts() {
                ("", []) => Told::Event(bare),
                (text, bytes) => Told::Text(bare, text.into(), bytes.into()),
            },
        ));
        self.gathered()
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        if self.at_once {
            return self.here()?.code(thread, code);
        }
        let bytes = append(&mut self.portion.bytes, code.bytes);
        let told = Told::Code { process: code.process, pc: code.pc, bytes };
        self.portion.told.push((thread, told));
        self.gathered()
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        match &mut self.sink {
            Where::Here(sink) => sink.begin(about),
            _ => Err(anyhow!("the trace was begun twice")),
        }
    }

    fn finish(&mut self) -> Result<()> {
        if !self.at_once {
            self.rest()?;
        }
        match &mut self.sink {
            Where::Here(sink) => sink.finish(),
            _ => Err(anyhow!("the trace was finished after an error")),
        }
    }
}

#[cfg(test)]
mod tests;
