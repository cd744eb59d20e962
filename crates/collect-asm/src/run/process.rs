//! What the tracer knows of processes and threads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;

use ichnos_base::Register;
use ichnos_rt::{Context, Regs, Thread as Task};

use super::images::Images;
use super::library::Libraries;
use super::message::Where;
use super::tail::Kept;

/// A process.
pub(crate) struct Process {
    /// Its number in the trace.
    pub(crate) id: u32,
    /// The copies of its code; none if it has no notes.
    pub(crate) images: Images,
    /// What is known of its libraries.
    pub(crate) libraries: Libraries,
    /// The byte at the program's beginning, until that is reached.
    pub(crate) first: Option<u8>,
}

/// A thread.
pub(crate) struct Thread {
    /// Its number in the trace.
    pub(crate) id: u32,
    /// Its process, by the system's number.
    pub(crate) pid: i32,
    /// Where it stores; more than one while it handles signals, the innermost last.
    pub(crate) lanes: Vec<Lane>,
    /// Whether it has been let go for the first time.
    pub(crate) begun: bool,
    /// Whether the next stop at a system call is the end of one.
    pub(crate) in_call: bool,
    /// Whether that call is a return from a signal handler.
    pub(crate) returns: bool,
    /// Its registers, while it waits for a child that has its memory.
    pub(crate) waits: Option<Regs>,
    /// Where the kernel keeps the number of its processor, if that was looked for and is so.
    pub(crate) processor: Option<Option<u64>>,
    /// Whether its end was told.
    pub(crate) ended: bool,
}

/// A context that a thread stores by.
pub(crate) struct Lane {
    pub(crate) context: Context,
    /// Its buffer; nothing until it needs one, if none was free or another thread needed it more.
    pub(crate) buffer: Option<u32>,
    /// The signal frame under which it runs.
    pub(crate) frame: Option<Frame>,
}

/// A signal frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// The stack pointer with which the handler began.
    pub(crate) stack: u64,
    /// The stack pointer of what was interrupted.
    pub(crate) outer: u64,
    /// The interrupted instruction: its address in the frame, and where it really is.
    pub(crate) pc: (u64, u64),
    /// Bytes by which the place in the buffer goes on if the thread goes on there.
    pub(crate) ahead: u64,
    /// What it may lie over.
    pub(crate) kept: Option<Kept>,
    /// The registers of what was interrupted.
    pub(crate) registers: [u64; 16],
    /// Whether the handler blocks SIGSEGV, which the kernel does not know.
    pub(crate) blocks: bool,
}

const RSP: Register = Register(4);

/// The general registers in the order of their numbers.
pub(crate) const fn general(regs: &Regs) -> [u64; 16] {
    [
        regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi, regs.r8,
        regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
    ]
}

impl Frame {
    /// Which registers a handler has changed, if a thread has these behind it, and what they hold. The stack pointer is not its
    /// to change.
    pub(crate) fn changed(&self, regs: &Regs) -> Vec<(Register, u64)> {
        let pairs = (0..).map(Register).zip(self.registers.into_iter().zip(general(regs)));
        let is_changed =
            |(register, (before, now)): &(Register, (u64, u64))| before != now && *register != RSP;
        pairs.filter(is_changed).map(|(register, (_, now))| (register, now)).collect()
    }

    /// Whether a thread with this stack pointer, which is about to do anything but return from
    /// the handler, has left it by a jump. Not every such thread can be recognised.
    pub(crate) const fn is_left(&self, rsp: u64) -> bool {
        const SAME_STACK: u64 = 8 << 20;
        if self.stack.abs_diff(self.outer) < SAME_STACK {
            rsp > self.returning() && rsp - self.stack < SAME_STACK
        } else {
            rsp.abs_diff(self.outer) < SAME_STACK
        }
    }

    /// The stack pointer with which the handler's return is asked for.
    pub(crate) const fn returning(&self) -> u64 {
        self.stack + 8
    }
}

impl Process {
    /// Where a thread with these registers is.
    pub(crate) fn place(&self, regs: &Regs) -> Where {
        self.images.place(regs.rip)
    }
}

/// The process of a thread.
pub(crate) fn process_of(tid: i32) -> Option<i32> {
    status(tid, "Tgid:")?.parse().ok()
}

impl Thread {
    /// The processor that it was last on, if it is this stopped one. Threads of most C libraries let the kernel keep its number in their
    /// memory; of others it is found in a file, which takes longer than all else that a new buffer needs.
    pub(crate) fn processor(&mut self, task: Task) -> Option<u32> {
        let place = *self.processor.get_or_insert_with(|| task.processor_word());
        let kept = place.and_then(|at| task.peek(at).ok()).map(|word| word as u32);
        // Negative while nobody keeps it.
        kept.filter(|number| i32::try_from(*number).is_ok()).or_else(|| processor_of(task.0))
    }
}

/// The processor that a thread was last on.
fn processor_of(tid: i32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // The name, in brackets, may hold anything; the processor is the 37th word behind it.
    text.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

/// Whether a thread's process handles a signal.
pub(crate) fn handles(tid: i32, signal: i32) -> bool {
    let mask = status(tid, "SigCgt:").and_then(|m| u64::from_str_radix(&m, 16).ok());
    let bit = u32::try_from(signal - 1).unwrap_or(63);
    mask.is_some_and(|m| m.checked_shr(bit).unwrap_or(0) & 1 != 0)
}

fn status(tid: i32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().to_owned())
}
