//! Who listens to a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::convert::Infallible;

use crate::{About, Batch, Blocks, Chain, Code, Event, Held, Line, Plan, Raw, Sieve, ThreadId};

/// A consumer of a trace: a file writer, a cache model, a counter.
///
/// Only [`records`](Sink::records) must be written. Calls come in this order:
/// [`begin`](Sink::begin) once; then, per thread in program order and between
/// threads in any order, [`event`](Sink::event), [`code`](Sink::code) and
/// `records`; [`finish`](Sink::finish) once.
///
/// Every method but `finish` answers whether to go on. After `Ok(false)` the
/// source stops and calls `finish`: the sink has seen enough, and that is no
/// error. After `Err` the source stops at once, does not call `finish`, and
/// hands the error to whoever drives it.
pub trait Sink {
    /// What can go wrong in this sink.
    type Error;

    /// Takes consecutive records of one thread.
    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error>;

    /// Whether executions may be told as [`blocks`](Sink::blocks) instead of records. A source
    /// may ask at any time, and may tell records all the same.
    #[inline]
    fn takes_blocks(&self) -> bool {
        false
    }

    /// Takes consecutive executions of one thread. Called only while
    /// [`takes_blocks`](Sink::takes_blocks) says so, in the place of `records`.
    #[inline]
    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Self::Error> {
        let _ = blocks;
        Ok(true)
    }

    /// Whether references alone are wanted: a source may leave instructions and branches out of `records`, whose batches still
    /// say how many instructions came before. It asks before it begins, and may tell everything all the same.
    #[inline]
    fn takes_references(&self) -> bool {
        false
    }

    /// What a source may keep back, if anything. A source that does so tells lines by [`sifted`](Sink::sifted) in the place
    /// of records, and how many references are missing by [`held`](Sink::held), before the thread's end. A
    /// source asks before it begins, and may tell everything all the same.
    #[inline]
    fn sieve(&self) -> Option<Sieve> {
        None
    }

    /// Takes consecutive lines of one thread. Called only if [`sieve`](Sink::sieve) asked for it.
    #[inline]
    fn sifted(&mut self, thread: ThreadId, lines: &[Line]) -> Result<bool, Self::Error> {
        let _ = (thread, lines);
        Ok(true)
    }

    /// Takes how many references of a thread were kept back since it was last said.
    #[inline]
    fn held(&mut self, thread: ThreadId, held: &Held) -> Result<bool, Self::Error> {
        let _ = (thread, held);
        Ok(true)
    }

    /// Whether executions may be told as [`raw`](Sink::raw) instead of records; as with
    /// [`takes_blocks`](Sink::takes_blocks).
    #[inline]
    fn takes_raw(&self) -> bool {
        false
    }

    /// Takes a planned block, before the first execution of it. Called only while
    /// [`takes_raw`](Sink::takes_raw) says so.
    #[inline]
    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool, Self::Error> {
        let _ = plan;
        Ok(true)
    }

    /// Takes a chain of planned blocks, before the first execution of it. Called only while
    /// [`takes_raw`](Sink::takes_raw) says so.
    #[inline]
    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool, Self::Error> {
        let _ = chain;
        Ok(true)
    }

    /// Takes consecutive executions of one thread as they were stored. Called only while
    /// [`takes_raw`](Sink::takes_raw) says so, in the place of `records`.
    #[inline]
    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool, Self::Error> {
        let _ = raw;
        Ok(true)
    }

    /// Takes an event at the present point of a thread's stream.
    #[inline]
    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Self::Error> {
        let _ = (thread, event);
        Ok(true)
    }

    /// Takes machine code that `thread` is about to execute.
    #[inline]
    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Self::Error> {
        let _ = (thread, code);
        Ok(true)
    }

    /// Takes the trace's provenance, before anything else.
    #[inline]
    fn begin(&mut self, about: &About<'_>) -> Result<bool, Self::Error> {
        let _ = about;
        Ok(true)
    }

    /// Nothing more will come.
    #[inline]
    fn finish(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    type Error = S::Error;

    #[inline]
    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, S::Error> {
        (**self).records(batch)
    }

    #[inline]
    fn takes_blocks(&self) -> bool {
        (**self).takes_blocks()
    }

    #[inline]
    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, S::Error> {
        (**self).blocks(blocks)
    }

    #[inline]
    fn takes_references(&self) -> bool {
        (**self).takes_references()
    }

    #[inline]
    fn sieve(&self) -> Option<Sieve> {
        (**self).sieve()
    }

    #[inline]
    fn sifted(&mut self, thread: ThreadId, lines: &[Line]) -> Result<bool, S::Error> {
        (**self).sifted(thread, lines)
    }

    #[inline]
    fn held(&mut self, thread: ThreadId, held: &Held) -> Result<bool, S::Error> {
        (**self).held(thread, held)
    }

    #[inline]
    fn takes_raw(&self) -> bool {
        (**self).takes_raw()
    }

    #[inline]
    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool, S::Error> {
        (**self).plan(plan)
    }

    #[inline]
    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool, S::Error> {
        (**self).chain(chain)
    }

    #[inline]
    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool, S::Error> {
        (**self).raw(raw)
    }

    #[inline]
    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, S::Error> {
        (**self).event(thread, event)
    }

    #[inline]
    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, S::Error> {
        (**self).code(thread, code)
    }

    #[inline]
    fn begin(&mut self, about: &About<'_>) -> Result<bool, S::Error> {
        (**self).begin(about)
    }

    #[inline]
    fn finish(&mut self) -> Result<(), S::Error> {
        (**self).finish()
    }
}

/// A sink that takes everything and keeps nothing, to measure a source alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Null;

impl Sink for Null {
    type Error = Infallible;

    #[inline]
    fn records(&mut self, _batch: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }
}
