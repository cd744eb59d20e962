//! Sinks of many kinds as one: their errors become `anyhow::Error`.
//!
//! One virtual call per batch is nothing beside the batch's work; per record it
//! would be everything, and there is none.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    About, Batch, Blocks, Chain, Code, Event, Held, Line, Plan, Raw, Sieve, Sink, Tee, TeeError,
    ThreadId,
};

/// Any sink, behind a pointer.
pub type AnySink<'a> = dyn Sink<Error = anyhow::Error> + 'a;

/// A sink whose errors are `anyhow::Error`.
pub struct Erase<S>(pub S);

impl<S> Sink for Erase<S>
where
    S: Sink,
    S::Error: Into<anyhow::Error>,
{
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> anyhow::Result<bool> {
        self.0.records(batch).map_err(Into::into)
    }

    fn takes_blocks(&self) -> bool {
        self.0.takes_blocks()
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> anyhow::Result<bool> {
        self.0.blocks(blocks).map_err(Into::into)
    }

    fn takes_references(&self) -> bool {
        self.0.takes_references()
    }

    fn sieve(&self) -> Option<Sieve> {
        self.0.sieve()
    }

    fn sifted(&mut self, thread: ThreadId, lines: &[Line]) -> anyhow::Result<bool> {
        self.0.sifted(thread, lines).map_err(Into::into)
    }

    fn held(&mut self, thread: ThreadId, held: &Held) -> anyhow::Result<bool> {
        self.0.held(thread, held).map_err(Into::into)
    }

    fn takes_raw(&self) -> bool {
        self.0.takes_raw()
    }

    fn plan(&mut self, plan: &Plan<'_>) -> anyhow::Result<bool> {
        self.0.plan(plan).map_err(Into::into)
    }

    fn chain(&mut self, chain: &Chain<'_>) -> anyhow::Result<bool> {
        self.0.chain(chain).map_err(Into::into)
    }

    fn raw(&mut self, raw: &Raw<'_>) -> anyhow::Result<bool> {
        self.0.raw(raw).map_err(Into::into)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> anyhow::Result<bool> {
        self.0.event(thread, event).map_err(Into::into)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> anyhow::Result<bool> {
        self.0.code(thread, code).map_err(Into::into)
    }

    fn begin(&mut self, about: &About<'_>) -> anyhow::Result<bool> {
        self.0.begin(about).map_err(Into::into)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.0.finish().map_err(Into::into)
    }
}

/// Either side's error of a tee of erased sinks.
fn either(error: TeeError<anyhow::Error, anyhow::Error>) -> anyhow::Error {
    match error {
        TeeError::First(e) | TeeError::Second(e) => e,
    }
}

/// Two erased sinks side by side.
pub struct Both<A, B>(pub Tee<A, B>);

impl<A, B> Sink for Both<A, B>
where
    A: Sink<Error = anyhow::Error>,
    B: Sink<Error = anyhow::Error>,
{
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> anyhow::Result<bool> {
        self.0.records(batch).map_err(either)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> anyhow::Result<bool> {
        self.0.event(thread, event).map_err(either)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> anyhow::Result<bool> {
        self.0.code(thread, code).map_err(either)
    }

    fn begin(&mut self, about: &About<'_>) -> anyhow::Result<bool> {
        self.0.begin(about).map_err(either)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.0.finish().map_err(either)
    }
}
