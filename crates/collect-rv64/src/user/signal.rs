//! Signals of the simulated Linux: who wants them how, and the frame on the
//! stack that a handler runs on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::io::Errno;

use crate::cpu::Cpu;
use crate::user::loader::TRAMPOLINE;
use crate::user::process::SignalStack;
use crate::user::space::View;

/// Signals are numbered from 1 to 64.
pub(crate) const SIGNALS: usize = 65;

pub(crate) const SIGILL: u32 = 4;
pub(crate) const SIGTRAP: u32 = 5;
pub(crate) const SIGBUS: u32 = 7;
pub(crate) const SIGKILL: u32 = 9;
pub(crate) const SIGSEGV: u32 = 11;
pub(crate) const SIGPIPE: u32 = 13;
pub(crate) const SIGCHLD: u32 = 17;
pub(crate) const SIGALRM: u32 = 14;
pub(crate) const SIGCONT: u32 = 18;
pub(crate) const SIGSTOP: u32 = 19;
const SIGTTOU: u32 = 22;
const SIGURG: u32 = 23;
const SIGWINCH: u32 = 28;

const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const SA_ONSTACK: u64 = 0x0800_0000;

/// A set of signals: bit n-1 stands for signal n.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SignalSet(pub(crate) u64);

impl SignalSet {
    pub(crate) const fn with(self, signal: u32) -> Self {
        Self(self.0 | 1 << (signal - 1))
    }

    pub(crate) const fn without(self, signal: u32) -> Self {
        Self(self.0 & !(1 << (signal - 1)))
    }

    pub(crate) const fn has(self, signal: u32) -> bool {
        self.0 >> (signal - 1) & 1 != 0
    }
}

/// Signals that were sent and not delivered yet. Those of the classical ones that
/// are there already are not added; real-time ones queue up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Queue(Vec<Info>);

impl Queue {
    pub(crate) fn push(&mut self, info: Info) {
        if info.signal >= FIRST_REAL_TIME || !self.set().has(info.signal) {
            self.0.push(info);
        }
    }

    pub(crate) fn set(&self) -> SignalSet {
        self.0.iter().fold(SignalSet::default(), |set, info| set.with(info.signal))
    }

    /// The lowest signal that is not blocked, the first of its number.
    pub(crate) fn take_outside(&mut self, blocked: SignalSet) -> Option<Info> {
        let open = |info: &Info| !blocked.has(info.signal);
        let lowest = self.0.iter().filter(|i| open(i)).map(|i| i.signal).min()?;
        let at = self.0.iter().position(|i| i.signal == lowest)?;
        Some(self.0.remove(at))
    }

    /// Whether a signal waits that is not blocked.
    pub(crate) fn is_open(&self, blocked: SignalSet) -> bool {
        self.0.iter().any(|info| !blocked.has(info.signal))
    }

    /// Forgets all signals of these numbers.
    pub(crate) fn remove(&mut self, signals: SignalSet) {
        self.0.retain(|info| !signals.has(info.signal));
    }
}

/// The first of the real-time signals.
const FIRST_REAL_TIME: u32 = 32;

/// What a process does on a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Action {
    /// 0 for the default, 1 to ignore, or the handler.
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) mask: u64,
}

/// What a signal comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Ignore,
    Terminate,
    /// The process stops until it is told to go on.
    Stop,
    Handle,
}

impl Action {
    pub(crate) const fn effect(&self, signal: u32) -> Effect {
        match self.handler {
            1 => Effect::Ignore,
            0 if matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH) => Effect::Ignore,
            0 if matches!(signal, SIGSTOP..=SIGTTOU) => Effect::Stop,
            0 => Effect::Terminate,
            _ => Effect::Handle,
        }
    }

    /// Whether a call that the signal interrupted is made again.
    pub(crate) const fn restarts(&self) -> bool {
        self.flags & SA_RESTART != 0
    }

    /// What becomes of the action once its handler runs.
    pub(crate) const fn after_delivery(self) -> Self {
        if self.flags & SA_RESETHAND != 0 { Self { handler: 0, ..self } } else { self }
    }

    /// The signals that are blocked while the handler runs.
    pub(crate) const fn blocked(&self, signal: u32, before: SignalSet) -> SignalSet {
        let set = SignalSet(before.0 | self.mask);
        if self.flags & SA_NODEFER != 0 { set } else { set.with(signal) }
    }
}

/// Why a signal is delivered: what `siginfo_t` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Info {
    pub(crate) signal: u32,
    pub(crate) code: i32,
    /// The faulting address, or the sender's process and user.
    pub(crate) value: u64,
    /// The child's status, or the value that goes with a queued signal.
    pub(crate) extra: u64,
}

impl Info {
    /// A signal that this process sent itself, or that nobody sent.
    pub(crate) const fn plain(signal: u32) -> Self {
        Self { signal, code: 0, value: 0, extra: 0 }
    }
}

// The layout of the kernel's `struct rt_sigframe` for riscv64.
const INFO_SIZE: usize = 128;
const STACK_AT: usize = INFO_SIZE + 16;
const MASK_AT: usize = INFO_SIZE + 40;
const REGISTERS_AT: usize = INFO_SIZE + 176;
const FLOATS_AT: usize = REGISTERS_AT + 256;
const FRAME_SIZE: usize = FLOATS_AT + 528;

/// `siginfo_t`.
pub(crate) fn info_bytes(info: &Info) -> [u8; INFO_SIZE] {
    let mut bytes = [0; INFO_SIZE];
    bytes[..4].copy_from_slice(&info.signal.to_le_bytes());
    bytes[8..12].copy_from_slice(&info.code.to_le_bytes());
    bytes[16..24].copy_from_slice(&info.value.to_le_bytes());
    bytes[24..32].copy_from_slice(&info.extra.to_le_bytes());
    bytes
}

/// Puts a frame on the stack and sends the hart to the handler.
pub(crate) fn enter(
    cpu: &mut Cpu,
    view: &mut View<'_>,
    action: &Action,
    info: Info,
    (blocked, stack): (SignalSet, SignalStack),
) -> Result<(), Errno> {
    let mut frame = vec![0; FRAME_SIZE];
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &info_bytes(&info));
    put(STACK_AT, &stack.start.to_le_bytes());
    put(STACK_AT + 8, &stack.flags.to_le_bytes());
    put(STACK_AT + 16, &stack.size.to_le_bytes());
    put(MASK_AT, &blocked.0.to_le_bytes());
    put(REGISTERS_AT, &cpu.pc.to_le_bytes());
    for n in 1..32 {
        put(REGISTERS_AT + 8 * usize::from(n), &cpu.x(n).to_le_bytes());
    }
    for n in 0..32 {
        put(FLOATS_AT + 8 * usize::from(n), &cpu.f(n).to_le_bytes());
    }
    put(FLOATS_AT + 256, &[cpu.fflags | cpu.frm << 5, 0, 0, 0]);
    let sp = cpu.x(2);
    let on_it = sp.wrapping_sub(stack.start) < stack.size;
    let wants_it = action.flags & SA_ONSTACK != 0 && stack.flags & 2 == 0 && !on_it;
    let top = if wants_it { stack.start + stack.size } else { sp };
    let at = top.wrapping_sub(FRAME_SIZE as u64) & !15;
    view.write(at, &frame)?;
    cpu.set_x(1, TRAMPOLINE);
    cpu.set_x(2, at);
    cpu.set_x(10, info.signal.into());
    cpu.set_x(11, at);
    cpu.set_x(12, at + INFO_SIZE as u64);
    cpu.pc = action.handler;
    Ok(())
}

/// Takes the frame off the stack again; the result is the set of blocked signals.
pub(crate) fn leave(cpu: &mut Cpu, view: &mut View<'_>) -> Result<SignalSet, Errno> {
    let mut frame = vec![0; FRAME_SIZE];
    view.read(cpu.x(2), &mut frame)?;
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&frame[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    cpu.pc = word(REGISTERS_AT) & !1;
    for n in 1..32 {
        cpu.set_x(n, word(REGISTERS_AT + 8 * usize::from(n)));
    }
    for n in 0..32 {
        cpu.set_f(n, word(FLOATS_AT + 8 * usize::from(n)));
    }
    let fcsr = frame[FLOATS_AT + 256];
    cpu.fflags = fcsr & 31;
    cpu.frm = fcsr >> 5;
    Ok(SignalSet(word(MASK_AT)))
}
