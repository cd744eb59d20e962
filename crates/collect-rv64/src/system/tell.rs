//! What a machine's doings are called in a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Event, Privilege as Level, ThreadStart, TrapInfo};

use crate::system::console::Console;
use crate::system::hart::Taken;
use crate::system::machine::{Flow, Machine};
use crate::system::privilege::Privilege;
use crate::tracer::{More, Tracer};

/// What the trace knows of a hart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Told {
    privilege: Privilege,
    space: u64,
}

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

    /// A trap or interrupt that was taken, and the mode that it leads to.
    pub(super) fn tell_trap(&mut self, n: usize, taken: Taken) -> Flow<T> {
        let Taken { cause, value, interrupted, handler } = taken;
        let told = TrapInfo { cause, value, interrupted, handler };
        if self.event(n, &Event::Trap(told))? == More::Enough {
            return Ok(More::Enough);
        }
        self.tell_mode(n)
    }

    /// Tells a hart's privilege and address space where they changed.
    pub(super) fn tell_mode(&mut self, n: usize) -> Flow<T> {
        let csrs = &self.harts[n].csrs;
        let now = Told { privilege: csrs.privilege, space: csrs.satp };
        let before = self.told[n].replace(now);
        if before.is_none_or(|b| b.privilege != now.privilege) {
            let level = match now.privilege {
                Privilege::User => Level::USER,
                Privilege::Supervisor => Level::SUPERVISOR,
                Privilege::Machine => Level::MACHINE,
            };
            if self.event(n, &Event::Privilege { level })? == More::Enough {
                return Ok(More::Enough);
            }
        }
        if before.is_none_or(|b| b.space != now.space) {
            return self.event(n, &Event::AddressSpace { id: now.space });
        }
        Ok(More::Yes)
    }
}
