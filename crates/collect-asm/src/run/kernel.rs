//! System calls that copied code makes itself into events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Event, Sink};

use super::collect::{Lane, Result, Thread, Told};
use super::reading::{Place, Reading};
use super::syncing::is_passed_over;

impl Reading<'_> {
    /// The block that is held made a system call.
    pub(super) fn asked<S: Sink>(
        &mut self,
        [number, args @ ..]: [u64; 7],
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        // The call ends its block.
        if let Some(block) = place.block(of).and_then(|number| self.images.block(number)) {
            let next = block.entry.offset(block.code.len() as u64);
            self.close(next, place, (state, of), told)?;
        }
        of.asked = Some(number).filter(|_| !is_passed_over(of, told));
        match of.asked {
            Some(_) => told.event(place.thread, Some(state), &Event::Syscall { number, args }),
            None => Ok(()),
        }
    }

    /// A system call came back. A process that it made comes back from it, too, and did not ask.
    pub(super) fn answered<S: Sink>(
        &self,
        result: u64,
        place: &Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let Some(number) = of.asked.take() else { return Ok(()) };
        let event = Event::SyscallReturn { number, result: result as i64 };
        told.event(place.thread, Some(state), &event)
    }
}
