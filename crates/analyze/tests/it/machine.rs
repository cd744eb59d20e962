//! A small imaginary machine that runs random programs and tells valid traces:
//! calls, branches, signals, system calls, mappings, locks, threads and forks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::*;

use crate::script::{Script, Step};

/// A small generator of numbers, so that a trace follows from one seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % below
    }
}

#[derive(Clone, Copy)]
struct Insn {
    pc: GuestVa,
    len: u8,
    kind: InsnKind,
    /// For fixed transfers: an instruction's index.
    target: usize,
}

/// What may happen in a run besides instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tears {
    Never,
    Sometimes,
}

const TEXT: u64 = 0x40_0000;
const RODATA: u64 = 0x50_0000;
const HEAP: u64 = 0x60_0000;
const STACK: u64 = 0x7ffe_0000_0000;
const SIZE: u64 = 0x1_0000;
pub const READ_ONLY: GuestVa = GuestVa(RODATA + 0x80);

pub fn map(start: u64, len: u64, protection: u8) -> Event<'static> {
    Event::Map(Map {
        start: GuestVa(start),
        len,
        protection: Protection(protection),
        kind: MapKind::OTHER,
        offset: FileOff(0),
        bias: 0,
        path: "",
        build_id: &[],
    })
}

/// A program: functions one after the other, each ending in a return, and a
/// signal handler at the end.
fn program(dice: &mut Dice) -> Vec<Insn> {
    let mut insns = Vec::new();
    let mut pc = TEXT;
    let count = 40 + dice.roll(60) as usize;
    for i in 0..count {
        let kind = match dice.roll(12) {
            0 => InsnKind::JUMP,
            1 => InsnKind::JUMP_INDIRECT,
            2 | 3 => InsnKind::BRANCH,
            4 => InsnKind::CALL,
            5 => InsnKind::CALL_INDIRECT,
            6 => InsnKind::RETURN,
            7 => InsnKind::SYSCALL,
            _ => InsnKind::OTHER,
        };
        let len = 1 + dice.roll(8) as u8;
        let kind = if i + 1 == count { InsnKind::RETURN } else { kind };
        let target = dice.roll(count as u64) as usize;
        insns.push(Insn { pc: GuestVa(pc), len, kind, target });
        pc += u64::from(len);
    }
    // The handler lies apart, so that it is only reached by signals.
    pc += 64;
    for kind in [InsnKind::OTHER, InsnKind::SYSCALL] {
        insns.push(Insn { pc: GuestVa(pc), len: 3, kind, target: 0 });
        pc += 3;
    }
    insns
}

struct Walker<'a> {
    dice: &'a mut Dice,
    program: &'a [Insn],
    out: Vec<Step>,
    me: ThreadId,
    tears: Tears,
    stack: Vec<usize>,
    locks: Vec<GuestVa>,
    maps: Vec<u64>,
    clock: u64,
}

impl Walker<'_> {
    fn ev(&mut self, event: Event<'static>) {
        self.out.push(Step::Ev(self.me, event));
    }

    fn rec(&mut self, record: Record) {
        self.out.push(Step::Rec(self.me, record));
    }

    fn somewhere(&mut self) -> usize {
        self.dice.roll(self.program.len() as u64 - 2) as usize
    }

    fn accesses(&mut self) {
        for _ in 0..self.dice.roll(3) {
            let size = 1 << self.dice.roll(5);
            let within = self.dice.roll(SIZE - 64);
            let area = match (self.dice.roll(4), self.maps.last()) {
                (0, _) => RODATA,
                (1, Some(&mapped)) => mapped,
                (2, _) => STACK,
                _ => HEAP,
            };
            let addr = GuestVa(area + within);
            if area != RODATA && self.dice.roll(2) == 0 {
                self.rec(Record::store(addr, size));
            } else {
                self.rec(Record::load(addr, size));
            }
        }
        if self.dice.roll(20) == 0 {
            let addr = GuestVa(self.dice.roll(u64::MAX));
            self.rec(Record::Prefetch { flags: AccessFlags::NONE, size: 0, addr });
        }
    }

    /// One instruction; answers the next one's index.
    fn step(&mut self, at: usize) -> usize {
        let insn = self.program[at];
        self.rec(Record::insn(insn.pc, insn.len, insn.kind));
        self.accesses();
        let (taken, to) = match insn.kind {
            InsnKind::BRANCH => (self.dice.roll(2) == 0, insn.target),
            InsnKind::RETURN => {
                let to = self.stack.pop().unwrap_or(insn.target);
                (true, to)
            }
            InsnKind::JUMP_INDIRECT | InsnKind::CALL_INDIRECT => (true, self.somewhere()),
            _ => (true, insn.target),
        };
        if matches!(insn.kind, InsnKind::CALL | InsnKind::CALL_INDIRECT) {
            self.stack.push(at + 1);
        }
        if insn.kind == InsnKind::SYSCALL {
            let number = self.dice.roll(300);
            self.ev(Event::Syscall { number, args: [0; 6] });
            self.ev(Event::SyscallReturn { number, result: 0 });
        }
        if insn.kind.transfers() {
            self.rec(Record::branch(taken, self.program[to].pc));
        }
        if insn.kind.transfers() && taken { to } else { at + 1 }
    }

    /// Something between two instructions; answers the next one's index.
    fn happening(&mut self, at: usize) -> usize {
        match self.dice.roll(9) {
            0 => self.signal(at),
            1 => {
                let start = 0x1000_0000 + SIZE * self.dice.roll(16);
                self.ev(map(start, SIZE, 3));
                self.maps.retain(|&m| m != start);
                self.maps.push(start);
            }
            2 => {
                if let Some(start) = self.maps.pop() {
                    self.ev(Event::Unmap { start: GuestVa(start), len: SIZE });
                }
            }
            3 => self.lock(),
            4 => {
                let addr = GuestVa(HEAP + 8 * self.dice.roll(4));
                self.ev(Event::Barrier { phase: BarrierPhase::Enter, addr });
                self.ev(Event::Barrier { phase: BarrierPhase::Leave, addr });
                self.ev(Event::Cond { op: CondOp::Wait, addr });
                self.ev(Event::Cond { op: CondOp::Wake, addr });
            }
            5 => {
                self.clock += self.dice.roll(1000);
                self.ev(Event::Timestamp { ns: self.clock });
            }
            6 if self.tears == Tears::Sometimes => {
                self.ev(Event::Gap { reason: GapReason::Sampling, insns: None, skipped: None });
                return self.somewhere();
            }
            7 if self.tears == Tears::Sometimes => {
                self.ev(Event::ModeSwitch { mode: Mode::Exec });
                self.ev(Event::ModeSwitch { mode: Mode::Inst });
                return self.somewhere();
            }
            _ => self.ev(Event::Marker { id: 1, text: "here" }),
        }
        at
    }

    fn lock(&mut self) {
        let kind = LockKind::Mutex;
        if let Some(addr) = self.locks.pop() {
            self.ev(Event::Lock { op: LockOp::Release, kind, addr });
        } else {
            let addr = GuestVa(HEAP + 0x100 + 8 * self.dice.roll(4));
            self.ev(Event::Lock { op: LockOp::Acquire, kind, addr });
            self.locks.push(addr);
        }
    }

    fn signal(&mut self, at: usize) {
        let (interrupted, handler) = (self.program[at].pc, self.program.len() - 2);
        let to = self.program[handler].pc;
        let info = SignalInfo { number: 10, code: 0, interrupted, handler: to };
        self.ev(Event::Signal(info));
        for insn in [self.program[handler], self.program[handler + 1]] {
            self.rec(Record::insn(insn.pc, insn.len, insn.kind));
        }
        self.ev(Event::Syscall { number: 15, args: [0; 6] });
        self.ev(Event::SignalReturn { pc: interrupted });
    }

    fn walk(&mut self, insns: u64) {
        let mut at = self.somewhere();
        for _ in 0..insns {
            if self.dice.roll(10) == 0 {
                at = self.happening(at);
            }
            at = self.step(at);
        }
    }
}

/// A valid trace of `threads` threads, each of about `insns` instructions.
pub fn run(seed: u64, threads: u32, insns: u64, tears: Tears) -> Script {
    let mut dice = Dice::new(seed);
    let program = program(&mut dice);
    let mut script = Script::new();
    script.batch = 1 + dice.roll(40) as usize;
    script.about.values = dice.roll(2) == 0;
    let mut streams = Vec::new();
    for t in 0..threads {
        let me = ThreadId(t);
        let forked = t > 0 && dice.roll(2) == 0;
        let mut walker = Walker {
            dice: &mut dice,
            program: &program,
            out: Vec::new(),
            me,
            tears,
            stack: Vec::new(),
            locks: Vec::new(),
            maps: Vec::new(),
            clock: 0,
        };
        let process = ProcessId(if forked { t } else { 0 });
        let creator = (t > 0).then_some(ThreadId(0));
        let start = ThreadStart { process, creator, os_pid: 1, os_tid: 1 + t };
        walker.ev(Event::ThreadStart(start));
        if t == 0 {
            first_words(&mut walker, threads);
        }
        walker.walk(insns);
        walker.ev(Event::ThreadEnd(EndStatus::Exited(0)));
        streams.push(walker.out);
    }
    script.steps = shuffle(streams, &mut dice);
    script
}

/// The first thread maps memory, tells the code and makes the other threads.
fn first_words(walker: &mut Walker<'_>, threads: u32) {
    for (start, protection) in [(TEXT, 5), (RODATA, 1), (HEAP, 3), (STACK, 3)] {
        walker.ev(map(start, SIZE, protection));
    }
    let last = walker.program[walker.program.len() - 1];
    let bytes = vec![0x90; (last.pc.since(GuestVa(TEXT)) + u64::from(last.len)) as usize];
    walker.out.push(Step::Code(walker.me, ProcessId(0), GuestVa(TEXT), bytes));
    for child in 1..threads {
        walker.ev(Event::ThreadCreate { child: ThreadId(child) });
    }
}

/// Any order between threads that keeps each thread's own, with the first
/// thread's first words first, because code must be told before it is run.
fn shuffle(streams: Vec<Vec<Step>>, dice: &mut Dice) -> Vec<Step> {
    let mut streams: Vec<_> = streams.into_iter().map(|s| s.into_iter().peekable()).collect();
    let mut steps = Vec::new();
    while let Some(step) = streams[0].next_if(|s| !matches!(s, Step::Rec(..))) {
        steps.push(step);
    }
    while !streams.is_empty() {
        let which = dice.roll(streams.len() as u64) as usize;
        for _ in 0..1 + dice.roll(50) {
            let Some(step) = streams[which].next() else {
                drop(streams.swap_remove(which));
                break;
            };
            steps.push(step);
        }
    }
    steps
}
