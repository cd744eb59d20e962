//! Harts that take turns, a clock made of instructions, and devices.
//!
//! Time: each round gives every hart one quantum of instructions and moves the
//! clock by a quantum; a machine with a single hart runs up to its next timer
//! instead. When all harts wait, the clock jumps to the next timer. So time is
//! a function of what was executed, and runs repeat exactly.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use ichnos_base::{
    DriveError, EndStatus, Event, GuestPa, GuestVa, HartId, SignalInfo, ThreadId, ThreadStart,
};

use crate::engine::Engine;
use crate::error::{Error, RunError};
use crate::exec::Exit;
use crate::system::bus::{Bus, Power};
use crate::system::console::Console;
use crate::system::csr::irq;
use crate::system::hart::{Hart, State, SystemWorld, Taken};
use crate::system::loader::Start;
use crate::system::privilege::Privilege;
use crate::system::tree::TIMEBASE;
use crate::system::{Boot, Config, Ending, Outcome};
use crate::tracer::{More, Tracer};
use crate::trap::{Access, Trap};

/// Instructions of one hart per tick of the clock: at 10 MHz, a billion a second.
const INSNS_PER_TICK: u64 = 100;
/// A single hart comes back at least this often, to look at the console.
const LONGEST_RUN: u64 = 200_000;
/// The interrupt bit of a cause.
const INTERRUPT: u64 = 1 << 63;

/// Who answers `ecall` from supervisor mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Firmware {
    BuiltIn,
    Guest,
}

/// A whole machine.
pub(crate) struct Machine<C, T> {
    pub(super) bus: Bus,
    pub(super) harts: Vec<Hart>,
    engine: Engine,
    pub(super) tracer: T,
    console: C,
    pub(super) firmware: Firmware,
    tohost: Option<u64>,
    quantum: u64,
    limit: u64,
    /// Exceptions taken.
    traps: u64,
    /// The clock in instructions: rounds so far.
    slots: u64,
    /// By how much a single hart is ahead of that in its present turn.
    in_turn: u64,
}

pub(super) type Flow<T> = Result<More, RunError<<T as Tracer>::Error>>;

impl<C: Console, T: Tracer> Machine<C, T> {
    pub(crate) fn new(
        config: &Config,
        (bus, start): (Bus, Start),
        console: C,
        tracer: T,
    ) -> Result<Self, Error> {
        if config.quantum == 0 {
            return Err(Error::Config("a quantum of no instructions lets no hart run".to_owned()));
        }
        let mut harts: Vec<Hart> = (0..u64::from(config.harts)).map(Hart::new).collect();
        let firmware = match config.boot {
            Boot::Kernel { .. } => Firmware::BuiltIn,
            Boot::Bare(_) => Firmware::Guest,
        };
        for (id, hart) in harts.iter_mut().enumerate() {
            if firmware == Firmware::Guest {
                hart.cpu.pc = start.entry;
                hart.cpu.set_x(10, id as u64);
                hart.cpu.set_x(11, start.device_tree);
            } else if id == 0 {
                hart.start(0, start.entry, start.device_tree);
            } else {
                hart.state = State::Stopped;
            }
        }
        Ok(Self {
            bus,
            harts,
            engine: Engine::new(config.speed),
            tracer,
            console,
            firmware,
            tohost: start.tohost,
            quantum: config.quantum,
            limit: config.limit.unwrap_or(u64::MAX),
            traps: 0,
            slots: 0,
            in_turn: 0,
        })
    }

    /// Lets at most so many more instructions retire or trap.
    pub(crate) fn set_limit(&mut self, insns: u64) {
        self.limit = self.spent().saturating_add(insns);
    }

    /// Instructions retired, and those that trapped instead: a guest that only
    /// traps must come to its limit too.
    fn spent(&self) -> u64 {
        self.retired() + self.traps
    }

    pub(crate) fn hart(&self, n: HartId) -> Option<&Hart> {
        self.harts.get(n.index())
    }

    /// The physical address of a hart's virtual one, without touching anything.
    pub(crate) fn translate(&mut self, n: HartId, va: GuestVa, access: Access) -> Option<GuestPa> {
        let hart = self.harts.get(n.index())?;
        SystemWorld { bus: &mut self.bus, csrs: &hart.csrs }.peek(va, access)
    }

    /// Copies physical memory; false if part of it is not RAM.
    pub(crate) fn read_memory(&self, at: GuestPa, bytes: &mut [u8]) -> bool {
        let index = self.bus.ram_index(at.0, bytes.len());
        let from = index.and_then(|index| self.bus.ram.slice(index, bytes.len()));
        from.map(|from| bytes.copy_from_slice(from)).is_some()
    }

    pub(crate) fn retired(&self) -> u64 {
        self.harts.iter().map(|h| h.cpu.retired).sum()
    }

    /// Runs until the guest ends the machine, the limit is reached, nothing can
    /// happen any more, or the sink has seen enough.
    pub(crate) fn run(&mut self) -> Result<Outcome, RunError<T::Error>> {
        let mut more = self.tell_start()?;
        let ending = loop {
            if more == More::Enough {
                break Ending::SinkHasEnough;
            }
            if let Some(ending) = self.ending() {
                break ending;
            }
            self.talk();
            if !self.anyone_runs() {
                if !self.idle() {
                    break Ending::NothingToDo;
                }
                continue;
            }
            more = self.round()?;
        };
        self.talk();
        for hart in 0..self.harts.len() {
            if ending != Ending::SinkHasEnough {
                self.event(hart, &Event::ThreadEnd(EndStatus::Unknown))?;
            }
        }
        Ok(Outcome { ending, retired: self.retired(), ticks: self.slots / INSNS_PER_TICK })
    }

    fn ending(&mut self) -> Option<Ending> {
        if let Some(power) = self.bus.power {
            return Some(match power {
                Power::Off => Ending::PowerOff,
                Power::Reset => Ending::Reset,
                Power::Failed(code) => Ending::Failed(code),
            });
        }
        let told =
            self.tohost.and_then(|pa| self.bus.ram_index(pa, 8)).map(|i| self.bus.ram.read::<8>(i));
        if let Some(value) = told.filter(|v| v & 1 != 0) {
            return Some(Ending::ToHost(value >> 1));
        }
        (self.spent() >= self.limit).then_some(Ending::Limit)
    }

    /// Exchanges bytes with the console.
    fn talk(&mut self) {
        if self.bus.uart.has_output() {
            let bytes = self.bus.uart.take_output();
            self.console.output(&bytes);
        }
        if !self.bus.uart.has_input() {
            let bytes = self.console.input();
            if !bytes.is_empty() {
                self.bus.receive(&bytes);
            }
        }
    }

    /// Every hart's turn.
    fn round(&mut self) -> Flow<T> {
        let single = self.harts.len() == 1;
        let length = if single { self.run_length() } else { self.quantum };
        for hart in 0..self.harts.len() {
            self.bus.clock = self.slots / INSNS_PER_TICK;
            self.in_turn = 0;
            let ran = self.turn(hart, length)?;
            if ran.1 == More::Enough {
                return Ok(More::Enough);
            }
            if single {
                self.slots += ran.0;
            }
            if self.bus.power.is_some() {
                break;
            }
        }
        if !single {
            self.slots += length;
        }
        Ok(More::Yes)
    }

    /// How long a single hart may run before its timer comes.
    fn run_length(&self) -> u64 {
        let until = self.next_timer().map_or(u64::MAX, |tick| {
            tick.saturating_mul(INSNS_PER_TICK).saturating_sub(self.slots)
        });
        until.clamp(1, LONGEST_RUN.min(self.limit.saturating_sub(self.spent()).max(1)))
    }

    /// The clock's tick at which the next timer of any hart comes.
    fn next_timer(&self) -> Option<u64> {
        let clint = &self.bus.clint;
        let of = |(n, hart): (usize, &Hart)| {
            let supervisor = hart.timer.map(|t| t.saturating_sub(clint.time(0)));
            // A timer that has come and still stands does not come again.
            let ahead = |tick: &u64| *tick > self.slots / INSNS_PER_TICK;
            [supervisor.filter(ahead), clint.deadline(n).filter(ahead)].into_iter().flatten().min()
        };
        self.harts.iter().enumerate().filter_map(of).min()
    }

    /// What devices assert towards a hart.
    fn update_lines(&mut self, n: usize) {
        let (clock, bus) = (self.bus.clock, &self.bus);
        let hart = &mut self.harts[n];
        let mut lines = 0;
        let mut set = |high: bool, bit: u64| lines |= if high { bit } else { 0 };
        set(bus.clint.software(n), irq::MACHINE_SOFTWARE);
        set(bus.clint.timer(n, clock), irq::MACHINE_TIMER);
        set(bus.plic.line(2 * n), irq::MACHINE_EXTERNAL);
        set(bus.plic.line(2 * n + 1), irq::SUPERVISOR_EXTERNAL);
        set(hart.timer.is_some_and(|t| bus.clint.time(clock) >= t), irq::SUPERVISOR_TIMER);
        hart.csrs.lines = lines;
    }

    /// Whether a hart can run now; a pending interrupt ends its wait.
    fn can_run(&mut self, n: usize) -> bool {
        self.update_lines(n);
        let hart = &mut self.harts[n];
        if hart.state == State::Waiting && hart.csrs.pending() & hart.csrs.mie != 0 {
            hart.state = State::Running;
        }
        hart.state == State::Running
    }

    fn anyone_runs(&mut self) -> bool {
        self.bus.clock = self.slots / INSNS_PER_TICK;
        (0..self.harts.len()).any(|n| self.can_run(n))
    }

    /// All wait: the clock jumps to the next timer. False if nothing will happen.
    fn idle(&mut self) -> bool {
        let timer = self.next_timer();
        let ticks = timer.map(|tick| tick.saturating_sub(self.slots / INSNS_PER_TICK));
        let time = ticks
            .map(|t| Duration::from_nanos(t.saturating_mul(1_000_000_000 / u64::from(TIMEBASE))));
        let waits_on = self.console.idle(time);
        let input = self.console.input();
        if !input.is_empty() {
            self.bus.receive(&input);
            return true;
        }
        match timer {
            Some(tick) => self.slots = self.slots.max(tick.saturating_mul(INSNS_PER_TICK)),
            None => return waits_on,
        }
        true
    }

    /// One hart's turn; the result is how many instructions' time it took.
    fn turn(&mut self, n: usize, length: u64) -> Result<(u64, More), RunError<T::Error>> {
        let thread = ThreadId(n as u32);
        let mut left = length;
        while left > 0 && self.bus.power.is_none() {
            if !self.can_run(n) {
                break;
            }
            if self.harts[n].next_interrupt().is_some() && self.interrupt(n)? == More::Enough {
                return Ok((length - left, More::Enough));
            }
            let hart = &mut self.harts[n];
            let before = hart.cpu.retired;
            let mut world = SystemWorld { bus: &mut self.bus, csrs: &hart.csrs };
            let exit =
                self.engine.drive(&mut hart.cpu, &mut world, self.tracer.watch(thread), left);
            let ran = hart.cpu.retired - before;
            left -= ran;
            self.pass(ran);
            let more = match exit {
                Exit::Limit => More::Yes,
                Exit::Fetch | Exit::Look => self.drain(n)?,
                // A trap takes an instruction's time, so that a hart that only
                // traps does not hold up the others.
                Exit::Trap(trap) => {
                    left = left.saturating_sub(1);
                    self.pass(1);
                    self.trap(n, trap)?
                }
                Exit::System(insn) => {
                    left = left.saturating_sub(1);
                    self.pass(1);
                    self.system(n, &insn)?
                }
            };
            if more == More::Enough {
                return Ok((length - left, More::Enough));
            }
        }
        self.share_opened(n);
        Ok((length - left, self.drain(n)?))
    }

    /// Lets time pass inside a turn. With several harts the clock stands still
    /// during a round: no hart may see a time before one that another has seen.
    fn pass(&mut self, insns: u64) {
        if self.harts.len() == 1 {
            self.in_turn += insns;
            self.bus.clock = (self.slots + self.in_turn) / INSNS_PER_TICK;
        }
    }

    fn share_opened(&mut self, n: usize) {
        for page in self.engine.take_opened() {
            for (other, hart) in self.harts.iter_mut().enumerate() {
                if other != n {
                    hart.cpu.tlb.protect(page);
                }
            }
        }
    }

    pub(super) fn drain(&mut self, n: usize) -> Flow<T> {
        let world = &mut SystemWorld { bus: &mut self.bus, csrs: &self.harts[n].csrs };
        self.tracer.drain(ThreadId(n as u32), world).map_err(DriveError::Sink)
    }

    pub(super) fn event(&mut self, n: usize, event: &Event<'_>) -> Flow<T> {
        let world = &mut SystemWorld { bus: &mut self.bus, csrs: &self.harts[n].csrs };
        self.tracer.event(ThreadId(n as u32), event, world).map_err(DriveError::Sink)
    }

    fn tell_start(&mut self) -> Flow<T> {
        for n in 0..self.harts.len() {
            let start = ThreadStart { os_tid: n as u32, ..ThreadStart::default() };
            if self.event(n, &Event::ThreadStart(start))? == More::Enough {
                return Ok(More::Enough);
            }
            self.tell_mode(n)?;
        }
        Ok(More::Yes)
    }

    /// Takes the interrupt that is due.
    fn interrupt(&mut self, n: usize) -> Flow<T> {
        // What ran so far ran in the old mode.
        self.drain(n)?;
        match self.harts[n].interrupt() {
            Some(taken) => self.tell_trap(n, taken),
            None => Ok(More::Yes),
        }
    }

    pub(super) fn trap(&mut self, n: usize, trap: Trap) -> Flow<T> {
        // What ran so far ran in the old mode.
        self.drain(n)?;
        self.traps += 1;
        let taken = self.harts[n].trap(trap);
        self.tell_trap(n, taken)
    }

    /// A trap is told like a signal: control went to a handler.
    fn tell_trap(&mut self, n: usize, taken: Taken) -> Flow<T> {
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
