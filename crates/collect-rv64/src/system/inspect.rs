//! A machine that stops where it is told and can be looked into: what debuggers
//! and extractors of threads need.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{DriveError, GuestPa, GuestVa, HartId};

use crate::error::Error;
use crate::system::machine::Machine;
use crate::system::{Config, Console, Ending, Outcome, Privilege, assemble};
use crate::tracer::Untraced;
use crate::trap::Access;

/// A machine between instructions.
///
/// # Example
///
/// ```no_run
/// use ichnos_base::HartId;
/// use ichnos_collect_rv64::system::{Boot, Config, Inspected, Terminal};
///
/// let config = Config::new(Boot::Bare("program.elf".into()));
/// let mut machine = Inspected::new(&config, Terminal::default())?;
/// while machine.run_for(1000)?.is_none() {
///     println!("{:?}", machine.stack_pointer(HartId(0)));
/// }
/// # Ok::<(), ichnos_collect_rv64::Error>(())
/// ```
pub struct Inspected<C> {
    machine: Machine<C, Untraced>,
}

impl<C: Console> Inspected<C> {
    /// A machine that has not started yet.
    pub fn new(config: &Config, console: C) -> Result<Self, Error> {
        let machine = Machine::new(config, assemble(config)?, console, Untraced::default())?;
        Ok(Self { machine })
    }

    /// Lets all harts together retire `insns` more instructions: exactly so many
    /// with one hart, and up to the end of the round with several. The outcome if
    /// the machine has ended.
    pub fn run_for(&mut self, insns: u64) -> Result<Option<Outcome>, Error> {
        self.machine.set_limit(insns);
        let outcome = self.machine.run().map_err(|e| match e {
            DriveError::Source(error) => error,
            DriveError::Sink(never) => match never {},
        })?;
        Ok((outcome.ending != Ending::Limit).then_some(outcome))
    }

    /// Instructions retired by all harts.
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.machine.retired()
    }

    /// Where a hart is; none if there is no such hart.
    #[must_use]
    pub fn pc(&self, hart: HartId) -> Option<GuestVa> {
        self.machine.hart(hart).map(|h| GuestVa(h.cpu.pc))
    }

    /// A hart's integer register.
    #[must_use]
    pub fn register(&self, hart: HartId, number: u8) -> Option<u64> {
        self.machine.hart(hart).filter(|_| number < 32).map(|h| h.cpu.x(number))
    }

    /// A hart's stack pointer.
    #[must_use]
    pub fn stack_pointer(&self, hart: HartId) -> Option<GuestVa> {
        self.register(hart, 2).map(GuestVa)
    }

    /// A hart's privilege level.
    #[must_use]
    pub fn privilege(&self, hart: HartId) -> Option<Privilege> {
        self.machine.hart(hart).map(|h| h.csrs.privilege)
    }

    /// The physical address behind a hart's virtual one, if an access of that
    /// kind is allowed now. Changes nothing.
    pub fn translate(&mut self, hart: HartId, va: GuestVa, access: Access) -> Option<GuestPa> {
        self.machine.translate(hart, va, access)
    }

    /// Copies physical memory; false if part of it is not RAM.
    pub fn read_memory(&self, at: GuestPa, bytes: &mut [u8]) -> bool {
        self.machine.read_memory(at, bytes)
    }
}

impl<C> std::fmt::Debug for Inspected<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspected").finish_non_exhaustive()
    }
}
