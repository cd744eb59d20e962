//! Calls of synchronising functions into events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Event, GuestVa, Mode, Sink, ThreadId};
use ichnos_sync::{Call, Told as Said, What};

use super::collect::{Lane, Result, Thread, Told};
use super::reading::{Place, Reading};
use crate::code::SyncSite;

/// A call that has not returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Begun {
    /// The number of its site.
    site: u32,
    /// The stack pointer of the caller.
    rsp: u64,
    call: Call,
}

/// What was stored of a call: the clock, two arguments and the stack pointer.
pub(super) struct Arguments(pub(super) [u64; 4]);

/// What was stored when one came back: the clock, the result and the stack pointer.
pub(super) struct Results(pub(super) [u64; 3]);

impl Reading<'_> {
    fn site<E>(&self, number: u32, place: &Place) -> Result<SyncSite, E> {
        let site = self.images.call(number);
        site.ok_or_else(|| self.bad(place, "there is no such call"))
    }

    /// A function was called by the block that is held.
    pub(super) fn called<S: Sink>(
        &mut self,
        (number, Arguments([ticks, object, second, rsp])): (u32, Arguments),
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let site = self.site(number, place)?;
        // It ends its block, whatever comes next.
        self.close(GuestVa(0), place, (state, of), told)?;
        let operation = state.held.meant(site.function.operation, object);
        let call = Call { operation, object, second };
        of.begun = call.operation.returns().then_some(Begun { site: number, rsp, call });
        if self.alone || is_passed_over(of, told) {
            return Ok(());
        }
        let said = state.held.enter(&call);
        self.say(place.thread, (state, ticks), said, told)
    }

    /// A function came back.
    pub(super) fn returned<S: Sink>(
        &self,
        (number, Results([ticks, result, rsp])): (u32, Results),
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let site = self.site(number, place)?;
        // A call that was left by a jump has no end.
        let begun = of.begun.take().filter(|b| b.site == number && b.rsp == rsp);
        if is_passed_over(of, told) {
            return Ok(());
        }
        match site.back {
            Some(back) => {
                told.gap_unless(place.thread, state, back)?;
                state.at = Some(back);
            }
            None => {
                told.gap(place.thread, state)?;
                // Wherever it goes on: the gap is told.
                (state.at, of.side.fresh) = (None, true);
            }
        }
        let Some(begun) = begun.filter(|_| !self.alone) else { return Ok(()) };
        let result = if site.function.void { 0 } else { result as i32 };
        let said = state.held.leave(&begun.call, result);
        self.say(place.thread, (state, ticks), said, told)
    }

    fn say<S: Sink>(
        &self,
        thread: u32,
        (state, ticks): (&mut Thread, u64),
        said: [Option<Said>; 2],
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let event = |Said { what, object }| {
            let addr = GuestVa(object);
            Some(match what {
                What::Lock(op, kind) => Event::Lock { op, kind, addr },
                What::Cond(op) => Event::Cond { op, addr },
                What::Barrier(phase) => Event::Barrier { phase, addr },
                What::Join => Event::ThreadJoin { child: ThreadId(*self.handles.get(&object)?) },
            })
        };
        let mut events = said.into_iter().flatten().filter_map(event).peekable();
        if events.peek().is_some()
            && let Some(ns) = told.stamp(ticks)
        {
            told.timestamp(thread, state, ns)?;
        }
        events.try_for_each(|event| told.event(thread, Some(state), &event))
    }
}

/// Whether a thread is in the copy that records nothing.
pub(super) fn is_passed_over<S: Sink>(of: &Lane, told: &Told<'_, S>) -> bool {
    told.plan.is_some() && of.side.mode == Mode::Exec
}
