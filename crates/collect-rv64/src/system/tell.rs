//! What a machine's doings are called in a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Event, SignalInfo, ThreadStart};

use crate::system::console::Console;
use crate::system::hart::Taken;
use crate::system::machine::{Flow, Machine};
use crate::system::privilege::Privilege;
use crate::tracer::{More, Tracer};

/// The interrupt bit of a cause.
const INTERRUPT: u64 = 1 << 63;

impl<C: Console, T: Tracer> Machine<C, T> {
    /// Harts are there from the start.
    pub(super) fn tell_start(&mut self) -> Flow<T> {
        for n in 0..self.harts.len() {
            let start = ThreadStart { os_tid: n as u32, ..ThreadStart::default() };
            if self.event(n, &Event::ThreadStart(start))? == More::Enough {
                return Ok(More::Enough);
            }
            self.tell_mode(n)?;
        }
        Ok(More::Yes)
    }

    /// A trap is told like a signal: control went to a handler.
    pub(super) fn tell_trap(&mut self, n: usize, taken: Taken) -> Flow<T> {
        let told = SignalInfo {
            number: (taken.cause & 63) as i32,
            code: i32::from(taken.cause & INTERRUPT != 0),
            interrupted: taken.interrupted,
            handler: taken.handler,
        };
        self.event(n, &Event::Signal(told))?;
        self.tell_mode(n)
    }

    /// Marks the privilege, with the address space in the upper bits' place.
    pub(super) fn tell_mode(&mut self, n: usize) -> Flow<T> {
        let text = match self.harts[n].csrs.privilege {
            Privilege::User => "user",
            Privilege::Supervisor => "supervisor",
            Privilege::Machine => "machine",
        };
        let id = self.harts[n].csrs.satp;
        self.event(n, &Event::Marker { id, text })
    }
}
