//! A bar for long work, on a terminal only, and only when it really is long.
//!
//! `Progress` is a sink that passes everything on and counts instructions; the
//! clock is looked at once a batch, never per record. Gaps are counted, too, for
//! those who have to say what is missing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ichnos_base::{
    About, Batch, Blocks, Chain, Code, Event, Held, Line, Plan, Raw, Sieve, Sink, ThreadId,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::gaps::Gaps;

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(700);
/// How often the bar is redrawn.
const REDRAW: Duration = Duration::from_millis(100);

/// A sink that shows how far the sink behind it has come.
pub struct Progress<S> {
    inner: S,
    meter: Option<Meter>,
    gaps: Gaps,
}

struct Meter {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    started: Instant,
    drawn: Instant,
    insns: u64,
    threads: HashMap<ThreadId, u64>,
    verb: &'static str,
}

impl<S> Progress<S> {
    /// Wraps `inner`. `total` is the number of instructions to come, if known;
    /// `verb` says what is being done to them.
    pub fn new(inner: S, total: Option<u64>, verb: &'static str) -> Self {
        let now = Instant::now();
        let (bar, threads) = (None, HashMap::new());
        let meter = Meter { bar, total, started: now, drawn: now, insns: 0, threads, verb };
        let meter = std::io::stderr().is_terminal().then_some(meter);
        Self { inner, meter, gaps: Gaps::default() }
    }

    /// The sink behind, when all was told; says on standard error what the trace leaves out.
    pub fn into_answer(self) -> S {
        let note = self.gaps.note();
        let inner = self.into_inner();
        if let Some(note) = note {
            eprintln!("ichnos: {note}");
        }
        inner
    }

    /// The sink behind, where it hears by another way that a thread has come so far.
    pub fn come(&mut self, thread: ThreadId, insns: u64) -> &mut S {
        if let Some(meter) = &mut self.meter {
            meter.advance(thread, insns);
        }
        &mut self.inner
    }

    /// The sink behind; no bar is drawn any more.
    pub fn rest(&mut self) -> &mut S {
        if let Some(bar) = self.meter.take().and_then(|m| m.bar) {
            bar.finish_and_clear();
        }
        &mut self.inner
    }

    /// The sink behind.
    pub fn into_inner(mut self) -> S {
        self.rest();
        self.inner
    }
}

impl Meter {
    /// A thread has come so far: what is told now is counted when the next comes.
    fn advance(&mut self, thread: ThreadId, insns_before: u64) {
        let known = self.threads.entry(thread).or_default();
        self.insns += insns_before.saturating_sub(*known);
        *known = insns_before;
        self.draw();
    }

    fn draw(&mut self) {
        let now = Instant::now();
        if now - self.started < PATIENCE || now - self.drawn < REDRAW {
            return;
        }
        self.drawn = now;
        let (total, verb) = (self.total, self.verb);
        let bar = self.bar.get_or_insert_with(|| new_bar(total, verb));
        bar.set_position(self.insns);
    }
}

fn new_bar(total: Option<u64>, verb: &'static str) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{msg} {wide_bar} {human_pos}/{human_len} instructions, {eta} left",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {msg} {human_pos} instructions, {per_sec} ({elapsed})",
        ),
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.with_style(style).with_message(verb)
}

impl<S: Sink> Sink for Progress<S> {
    type Error = S::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, S::Error> {
        if let Some(meter) = &mut self.meter {
            meter.advance(batch.thread, batch.insns_before);
        }
        self.inner.records(batch)
    }

    fn takes_blocks(&self) -> bool {
        self.inner.takes_blocks()
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, S::Error> {
        if let Some(meter) = &mut self.meter {
            meter.advance(blocks.thread, blocks.insns_before);
        }
        self.inner.blocks(blocks)
    }

    fn sieve(&self) -> Option<Sieve> {
        self.inner.sieve()
    }

    fn sifted(&mut self, thread: ThreadId, lines: &[Line]) -> Result<bool, S::Error> {
        self.inner.sifted(thread, lines)
    }

    fn held(&mut self, thread: ThreadId, held: &Held) -> Result<bool, S::Error> {
        self.inner.held(thread, held)
    }

    fn takes_raw(&self) -> bool {
        self.inner.takes_raw()
    }

    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool, S::Error> {
        self.inner.plan(plan)
    }

    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool, S::Error> {
        self.inner.chain(chain)
    }

    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool, S::Error> {
        if let Some(meter) = &mut self.meter {
            meter.advance(raw.thread, raw.insns_before);
        }
        self.inner.raw(raw)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, S::Error> {
        self.gaps.event(event);
        self.inner.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, S::Error> {
        self.inner.code(thread, code)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, S::Error> {
        self.gaps.begin(about);
        self.inner.begin(about)
    }

    fn finish(&mut self) -> Result<(), S::Error> {
        self.inner.finish()
    }
}
