//! Random executions of made-up programs, right in all that a trace promises:
//! flow of control, order of records, code before its first execution.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;

use ichnos_base::{
    AccessFlags, Event, GuestVa, InsnKind, Isa, Record, SignalInfo, ThreadId, ThreadStart,
};
use proptest::prelude::*;

use crate::tape::{Item, Tape};

/// What a step of an execution is.
#[derive(Clone, Debug)]
pub enum Step {
    /// `mov (%rax),%rcx`, `mov %rcx,(%rax)`, `add %rcx,(%rax)` and `nop`, by the
    /// accesses they make.
    Plain {
        load: Option<u64>,
        store: Option<u64>,
    },
    /// A direct jump, conditional branch or call by this much.
    Direct {
        kind: InsnKind,
        by: i8,
        taken: bool,
    },
    /// An indirect jump or call, or a return, to there.
    Indirect {
        kind: InsnKind,
        to: u16,
    },
    /// A system call and what it returns.
    Syscall {
        number: u16,
        result: i16,
    },
    /// `rep movsb` or `rep stosb` of so many bytes.
    Repeat {
        from: Option<u64>,
        to: u64,
        times: u8,
    },
    /// `vpgatherdd` with so many active lanes, or as many stores of a scatter.
    Lanes {
        at: u64,
        loads: u8,
        stores: u8,
    },
    /// A prefetch and a flush.
    Hints {
        at: u64,
    },
    /// The clock goes on, the processor changes.
    Clock {
        ns: u32,
    },
    Migrate {
        cpu: u8,
    },
    /// A signal handler begins, or ends.
    Signal {
        number: u8,
    },
    SignalReturn {
        to: u16,
    },
    Gap,
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![1..0x7fff_ffff_f000_u64, 0x7ffe_0000_u64..0x7ffe_0100, Just(u64::MAX - 64)]
}

/// A step; those without a place outside drmemtrace are rare.
pub fn step() -> impl Strategy<Value = Step> {
    let transfer = prop_oneof![Just(InsnKind::JUMP), Just(InsnKind::CALL)];
    let computed = prop_oneof![
        Just(InsnKind::JUMP_INDIRECT),
        Just(InsnKind::CALL_INDIRECT),
        Just(InsnKind::RETURN)
    ];
    prop_oneof![
        8 => (proptest::option::of(address()), proptest::option::of(address()))
            .prop_map(|(load, store)| Step::Plain { load, store }),
        2 => (any::<i8>(), any::<bool>())
            .prop_map(|(by, taken)| Step::Direct { kind: InsnKind::BRANCH, by, taken }),
        2 => (transfer, any::<i8>()).prop_map(|(kind, by)| Step::Direct { kind, by, taken: true }),
        2 => (computed, any::<u16>()).prop_map(|(kind, to)| Step::Indirect { kind, to }),
        1 => any::<(u16, i16)>().prop_map(|(number, result)| Step::Syscall { number, result }),
        1 => (proptest::option::of(address()), address(), 0..9_u8)
            .prop_map(|(from, to, times)| Step::Repeat { from, to, times }),
        1 => (address(), 0..10_u8, 0..6_u8)
            .prop_map(|(at, loads, stores)| Step::Lanes { at, loads, stores }),
        1 => address().prop_map(|at| Step::Hints { at }),
        1 => any::<u32>().prop_map(|ns| Step::Clock { ns }),
        1 => any::<u8>().prop_map(|cpu| Step::Migrate { cpu }),
        1 => any::<u8>().prop_map(|number| Step::Signal { number }),
        1 => any::<u16>().prop_map(|to| Step::SignalReturn { to }),
        1 => Just(Step::Gap),
    ]
}

/// One thread that executes `steps`, with its code told.
pub fn execution(steps: &[Step]) -> Tape {
    let mut run = Run::default();
    run.tape.isa = Isa::X86_64;
    run.tape.branches = true;
    run.event(Event::ThreadStart(ThreadStart::default()));
    // Files begin with a clock, so that reading one back gives the same.
    run.event(Event::Timestamp { ns: 1_000 });
    run.insn(InsnKind::OTHER, &[0x90]);
    for step in steps {
        run.step(step);
    }
    run.tape
}

#[derive(Default)]
struct Run {
    tape: Tape,
    pc: u64,
    told: HashSet<(u64, Vec<u8>)>,
    cpu: Option<u8>,
}

impl Run {
    fn push(&mut self, item: Item) {
        self.tape.items.push((ThreadId(0), item));
    }

    fn event(&mut self, event: Event<'static>) {
        self.push(Item::Event(event));
    }

    fn record(&mut self, record: Record) {
        self.push(Item::Record(record));
    }

    fn at(&self) -> u64 {
        0x40_0000 + self.pc
    }

    /// Executes an instruction with this code and goes on behind it.
    fn insn(&mut self, kind: InsnKind, code: &[u8]) {
        let pc = self.at();
        if self.told.insert((pc, code.to_vec())) {
            // Other code told before for this place is gone.
            let overlaps = |a: u64, n: usize| a < pc + code.len() as u64 && pc < a + n as u64;
            self.told.retain(|(a, c)| (*a == pc && c == code) || !overlaps(*a, c.len()));
            self.push(Item::Code(GuestVa(pc), code.to_vec()));
        }
        self.record(Record::insn(GuestVa(pc), code.len() as u8, kind));
        self.pc += code.len() as u64;
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Plain { load, store } => self.plain(load, store),
            Step::Direct { kind, by, taken } => {
                let far = i32::from(by).to_le_bytes();
                let code: &[u8] = match kind {
                    InsnKind::BRANCH => &[0x74, by as u8],
                    InsnKind::JUMP => &[0xeb, by as u8],
                    _ => &[0xe8, far[0], far[1], far[2], far[3]],
                };
                // Targets stay above the lowest address.
                self.pc = self.pc.max(0x200);
                self.insn(kind, code);
                let target = self.at().wrapping_add_signed(i64::from(by));
                if kind == InsnKind::CALL {
                    self.record(Record::store(GuestVa(0x7ffe_0ff8), 8));
                }
                self.record(Record::branch(taken, GuestVa(target)));
                if taken {
                    self.pc = target - 0x40_0000;
                }
            }
            Step::Indirect { kind, to } => self.indirect(kind, to),
            Step::Syscall { number, result } => {
                self.insn(InsnKind::SYSCALL, &[0x0f, 0x05]);
                let number = u64::from(number);
                self.event(Event::Syscall { number, args: [number, 0, 3, 0, 0, 9] });
                self.event(Event::SyscallReturn { number, result: i64::from(result) });
            }
            Step::Repeat { from, to, times } => self.repeat(from, to, times),
            Step::Lanes { at, loads, stores } => {
                self.insn(InsnKind::OTHER, &[0x0f, 0xae, 0x20]);
                for i in 0..u64::from(loads) {
                    self.record(Record::load(GuestVa(at.wrapping_add(64 * i)), 4));
                }
                for i in 0..u64::from(stores) {
                    self.record(Record::store(GuestVa(at.wrapping_add(8 * i)), 8));
                }
            }
            Step::Hints { at } => {
                self.insn(InsnKind::OTHER, &[0x0f, 0x18, 0x08]);
                let (flags, addr) = (AccessFlags::NONE, GuestVa(at));
                self.record(Record::Prefetch { flags, size: 1, addr });
                self.insn(InsnKind::OTHER, &[0x0f, 0xae, 0x38]);
                self.record(Record::Flush { flags, size: 64, addr });
            }
            Step::Clock { ns } => self.event(Event::Timestamp { ns: u64::from(ns) * 1000 }),
            Step::Migrate { cpu } => {
                if self.cpu != Some(cpu) {
                    self.cpu = Some(cpu);
                    self.event(Event::Migrate { cpu: u32::from(cpu) });
                }
            }
            Step::Signal { number } => self.signal(number),
            Step::SignalReturn { to } => {
                self.insn(InsnKind::SYSCALL, &[0x0f, 0x05]);
                self.pc = u64::from(to);
                self.event(Event::SignalReturn { pc: GuestVa(self.at()) });
                self.insn(InsnKind::OTHER, &[0x90]);
            }
            Step::Gap => {
                let reason = ichnos_base::GapReason::Sampling;
                self.event(Event::Gap { reason, insns: None, skipped: None });
            }
        }
    }

    fn plain(&mut self, load: Option<u64>, store: Option<u64>) {
        let code: &[u8] = match (load, store) {
            (None, None) => &[0x90],
            (Some(_), None) => &[0x48, 0x8b, 0x08],
            (None, Some(_)) => &[0x48, 0x89, 0x08],
            // push (%rax)
            (Some(_), Some(_)) => &[0xff, 0x30],
        };
        self.insn(InsnKind::OTHER, code);
        if let Some(addr) = load {
            self.record(Record::load(GuestVa(addr), 8));
        }
        if let Some(addr) = store {
            self.record(Record::store(GuestVa(addr), 8));
        }
    }

    fn indirect(&mut self, kind: InsnKind, to: u16) {
        let code: &[u8] = match kind {
            InsnKind::JUMP_INDIRECT => &[0xff, 0x25, 1, 2, 3, 4],
            InsnKind::CALL_INDIRECT => &[0xff, 0xd0],
            _ => &[0xc3],
        };
        self.insn(kind, code);
        self.record(match kind {
            InsnKind::CALL_INDIRECT => Record::store(GuestVa(0x7ffe_0ff8), 8),
            _ => Record::load(GuestVa(0x7ffe_0ff8), 8),
        });
        self.pc = u64::from(to);
        self.record(Record::branch(true, GuestVa(self.at())));
    }

    fn repeat(&mut self, from: Option<u64>, to: u64, times: u8) {
        let code = if from.is_some() { [0xf3, 0xa4] } else { [0xf3, 0xaa] };
        self.insn(InsnKind::OTHER, &code);
        let (flags, size) = (AccessFlags::STRING, 1);
        for i in 0..u64::from(times) {
            if let Some(from) = from {
                self.record(Record::Load { flags, size, addr: GuestVa(from.wrapping_add(i)) });
            }
            self.record(Record::Store { flags, size, addr: GuestVa(to.wrapping_add(i)) });
        }
    }

    fn signal(&mut self, number: u8) {
        let interrupted = GuestVa(self.at());
        self.pc = 0x8000;
        let handler = GuestVa(self.at());
        let number = i32::from(number);
        self.event(Event::Signal(SignalInfo { number, code: 0, interrupted, handler }));
        self.insn(InsnKind::OTHER, &[0x90]);
    }
}
