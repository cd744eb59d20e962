//! Harts that take turns, a clock made of instructions, and devices.
//!
//! Time: each round gives every hart one quantum of instructions and moves the
//! clock by a quantum; a machine with a single hart runs up to its next timer
//! instead. When all harts wait, the clock jumps to the next timer. So time is
//! a function of what was executed, and runs repeat exactly.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use ichnos_base::{DriveError, EndStatus, Event, GuestPa, GuestVa, HartId, ThreadId};

use crate::debug::{Both, Debug};
use crate::engine::Engine;
use crate::error::{Error, RunError};
use crate::exec::Exit;
use crate::gdb::{self, GdbAt, Parting};
use crate::system::bus::{Bus, Power};
use crate::system::console::Console;
use crate::system::csr::irq;
use crate::system::hart::{Hart, State, SystemWorld};
use crate::system::loader::Start;
use crate::system::tell::Told;
use crate::system::tree::TIMEBASE;
use crate::system::{Boot, Config, Ending, Outcome};
use crate::tracer::{More, Tracer};
use crate::trap::{Access, Trap};

/// Instructions of one hart per tick of the clock: at 10 MHz, a billion a second.
const INSNS_PER_TICK: u64 = 100;
/// A single hart comes back at least this often, to look at the console.
const LONGEST_RUN: u64 = 200_000;

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
    /// A turn in which the debugger stopped the machine.
    unfinished: Option<Turn>,
    /// What a debugger wants.
    pub(super) debug: Option<Debug>,
    gdb: Option<GdbAt>,
    started: bool,
    /// What the trace was told last of each hart's mode.
    pub(super) told: Vec<Option<Told>>,
}

/// A hart's turn, as far as it has come.
#[derive(Clone, Copy, Debug)]
struct Turn {
    hart: usize,
    length: u64,
    left: u64,
}

pub(super) type Flow<T> = Result<More, RunError<<T as Tracer>::Error>>;

impl<C: Console, T: Tracer> Machine<C, T> {
    pub(crate) fn new(
        config: &Config,
        (mut bus, start): (Bus, Start),
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
        // A single hart's clock runs on during its turn: devices are reached
        // only when it is right. With several harts it stands still meanwhile.
        if config.harts == 1 {
            bus.refuse_devices();
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
            unfinished: None,
            debug: None,
            gdb: config.gdb.clone(),
            started: false,
            told: vec![None; config.harts as usize],
        })
    }

    /// Where the observations went.
    pub(crate) fn into_tracer(self) -> T {
        self.tracer
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
        let debugged = match self.gdb.take() {
            Some(at) => Some(self.serve(&at)?),
            None => None,
        };
        self.debug = None;
        let ending = match debugged {
            Some(Parting::Killed) => Ending::Killed,
            _ => loop {
                if let Some(ending) = self.step_on()? {
                    break ending;
                }
            },
        };
        self.talk();
        for hart in 0..self.harts.len() {
            if ending != Ending::SinkHasEnough {
                self.event(hart, &Event::ThreadEnd(EndStatus::Unknown))?;
            }
        }
        Ok(Outcome { ending, retired: self.retired(), ticks: self.slots / INSNS_PER_TICK })
    }

    fn serve(&mut self, at: &GdbAt) -> Result<Parting, RunError<T::Error>> {
        let line = gdb::accept(at).map_err(DriveError::Source)?;
        gdb::serve(self, line)
    }

    /// Runs every hart's turn, or lets idle time pass; says why the machine ends
    /// if it does. Inside of a turn that was interrupted it goes on with that.
    pub(super) fn step_on(&mut self) -> Result<Option<Ending>, RunError<T::Error>> {
        if !std::mem::replace(&mut self.started, true) && self.tell_start()? == More::Enough {
            return Ok(Some(Ending::SinkHasEnough));
        }
        if self.unfinished.is_none() {
            if let Some(ending) = self.ending() {
                return Ok(Some(ending));
            }
            self.talk();
            if self.console.wants_to_leave() {
                return Ok(Some(Ending::Left));
            }
            if !self.anyone_runs() {
                return Ok((!self.idle()).then_some(Ending::NothingToDo));
            }
        }
        let more = self.round()?;
        Ok((more == More::Enough).then_some(Ending::SinkHasEnough))
    }

    /// The hart whose turn it is, or was last.
    pub(super) fn hart_in_turn(&self) -> usize {
        self.unfinished.map_or(0, |turn| turn.hart)
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
        let mut turn = match self.unfinished.take() {
            Some(turn) => turn,
            None if single => self.begin_turn(0, self.run_length()),
            None => self.begin_turn(0, self.quantum),
        };
        loop {
            if self.turn(&mut turn)? == More::Enough {
                return Ok(More::Enough);
            }
            if self.debug.as_ref().is_some_and(|d| d.pause().is_some()) {
                self.unfinished = Some(turn);
                return Ok(More::Yes);
            }
            if single {
                self.slots += turn.length - turn.left;
            }
            let next = turn.hart + 1;
            if self.bus.power.is_some() || next == self.harts.len() {
                break;
            }
            turn = self.begin_turn(next, turn.length);
        }
        if !single {
            self.slots += turn.length;
        }
        Ok(More::Yes)
    }

    fn begin_turn(&mut self, hart: usize, length: u64) -> Turn {
        self.bus.clock = self.slots / INSNS_PER_TICK;
        self.in_turn = 0;
        Turn { hart, length, left: length }
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
    pub(super) fn update_lines(&mut self, n: usize) {
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

    /// One hart's turn, to its end or to where a debugger stops it.
    fn turn(&mut self, turn: &mut Turn) -> Flow<T> {
        let n = turn.hart;
        while turn.left > 0 && self.bus.power.is_none() {
            if !self.can_run(n) {
                break;
            }
            if self.harts[n].next_interrupt().is_some() && self.interrupt(n)? == More::Enough {
                return Ok(More::Enough);
            }
            let pc = self.harts[n].cpu.pc;
            if self.debug.as_mut().is_some_and(|d| d.stops_before(n, pc)) {
                break;
            }
            let before = turn.left;
            if self.run_hart(turn)? == More::Enough {
                return Ok(More::Enough);
            }
            let moved = turn.left != before;
            if moved && self.debug.as_mut().is_some_and(|d| d.stops_after(n)) {
                break;
            }
        }
        self.share_opened(n);
        self.drain(n)
    }

    /// Lets a hart run to where the machine must act, and acts.
    fn run_hart(&mut self, turn: &mut Turn) -> Flow<T> {
        let n = turn.hart;
        let before = self.harts[n].cpu.retired;
        let mut exit = self.drive(n, turn.left);
        let mut refused = self.bus.take_refused();
        if refused && self.harts[n].cpu.retired == before {
            // Nothing ran before, so the clock is right and the access can be made.
            self.bus.admit_devices();
            exit = self.drive(n, 1);
            self.bus.refuse_devices();
            refused = false;
        }
        let ran = self.harts[n].cpu.retired - before;
        turn.left -= ran;
        self.pass(ran);
        match exit {
            Exit::Limit => Ok(More::Yes),
            Exit::Fetch | Exit::Look => self.drain(n),
            // Not a trap: the access is made once the clock is right.
            Exit::Trap(_) if refused => Ok(More::Yes),
            // A trap takes an instruction's time, so that a hart that only
            // traps does not hold up the others.
            Exit::Trap(trap) => {
                turn.left = turn.left.saturating_sub(1);
                self.pass(1);
                self.trap(n, trap)
            }
            Exit::System(insn) => {
                turn.left = turn.left.saturating_sub(1);
                self.pass(1);
                self.system(n, &insn)
            }
        }
    }

    /// Runs a hart under whoever watches it.
    fn drive(&mut self, n: usize, left: u64) -> Exit {
        let left = self.debug.as_ref().map_or(left, |d| d.stride(n, left));
        let hart = &mut self.harts[n];
        let mut world = SystemWorld { bus: &mut self.bus, csrs: &hart.csrs };
        let watch = self.tracer.watch(ThreadId(n as u32));
        match self.debug.as_mut().and_then(Debug::probe) {
            Some(probe) => {
                let mut both = Both(watch, probe);
                self.engine.drive(&mut hart.cpu, &mut world, &mut both, left)
            }
            None => self.engine.drive(&mut hart.cpu, &mut world, watch, left),
        }
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
}
