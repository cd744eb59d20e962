//! Who stores into which buffer, and what happens when one is full or none is free.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::Mode;
use ichnos_rt::{Context, Regs, Thread as Task};

use super::follow::Tracer;
use super::message::{Message, Moment};
use super::process::{Frame, Lane};
use super::setup::TAP;
use crate::Error;
use crate::code::{COUNT, IN_TOOL, Midway, STATE, TURNS};

const PAGE: u64 = 4096;

/// Whether it is seen that an interrupted thread goes on where it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Returns {
    /// It is, or it never does.
    Seen,
    /// Nobody looks.
    Unseen,
}

impl Tracer<'_> {
    /// A new context with a buffer.
    pub(super) fn new_lane(&mut self, frame: Option<Frame>) -> Result<Lane, Error> {
        let most = self.pool.layout().contexts;
        let context = self.contexts.pop().ok_or(Error::TooManyThreads { most })?;
        let buffer = self.take_buffer(None)?;
        self.fill(context, buffer);
        self.reset(context);
        Ok(Lane { context, buffer, frame })
    }

    /// A context's words about switching are those of a thread that begins.
    pub(super) fn reset(&self, context: Context) {
        let at = self.pool.layout().context(context);
        let first = self.config.first_count();
        for (word, value) in [(STATE, 0), (COUNT, first), (TURNS, 0), (IN_TOOL, 0)] {
            self.pool.set_word(at + word.unsigned_abs(), value);
        }
    }

    /// A context goes on as another one is.
    pub(super) fn inherit(&self, context: Context, from: Context) {
        let layout = self.pool.layout();
        let (to, from) = (layout.context(context), layout.context(from));
        for word in [STATE, COUNT, TURNS].map(i64::unsigned_abs) {
            self.pool.set_word(to + word, self.pool.word(from + word));
        }
    }

    fn switching_word(&self, context: Context, word: i64) -> u64 {
        self.pool.word(self.pool.layout().context(context) + word.unsigned_abs())
    }

    /// The mode that a context says its thread is in, and how many events are left until that changes.
    pub(super) fn mode(&self, context: Context) -> (Mode, u64) {
        match self.switching_word(context, STATE) {
            0 => (Mode::Exec, self.left(context)),
            _ => (Mode::Inst, self.switching_word(context, TURNS)),
        }
    }

    /// How many events a context has left until it is recorded.
    pub(super) fn left(&self, context: Context) -> u64 {
        self.switching_word(context, COUNT)
    }

    /// Whether a thread with these registers is in a function of a tool, or on the way to or from one.
    pub(super) fn in_tool(&self, task: Task, regs: &Regs) -> bool {
        let Some(thread) = self.threads.get(&task.0) else { return false };
        let Some(process) = self.processes.get(&thread.pid) else { return false };
        let mut tools = process.images.all().iter().filter(|c| c.tool.is_some()).peekable();
        if tools.peek().is_none() {
            return false;
        }
        let inside = |lane: &Lane| self.switching_word(lane.context, IN_TOOL) != 0;
        let on_page = |page: u64| (page..page + PAGE).contains(&regs.rip);
        tools.any(|c| on_page(c.tool_page())) || thread.lanes.last().is_some_and(inside)
    }

    /// Lets a context store into a buffer.
    pub(super) fn fill(&self, context: Context, buffer: u32) {
        let layout = self.pool.layout();
        self.pool.set_word(layout.context(context), TAP + layout.buffer(buffer));
    }

    /// How much of its buffer a context has filled.
    pub(super) fn filled(&self, context: Context, buffer: u32) -> u64 {
        let layout = self.pool.layout();
        let at = self.pool.word(layout.context(context));
        at.saturating_sub(TAP + layout.buffer(buffer)).min(layout.buffer_len)
    }

    /// A free buffer; if there is none all threads stop until there is.
    pub(super) fn take_buffer(&mut self, task: Option<Task>) -> Result<u32, Error> {
        self.buffers.extend(self.listener.freed());
        if let Some(buffer) = self.buffers.pop() {
            return Ok(buffer);
        }
        self.seen.waits += 1;
        let most = self.pool.layout().buffers;
        let held: usize = self.threads.values().map(|t| t.lanes.len()).sum();
        if held >= most as usize {
            return Err(Error::TooManyThreads { most });
        }
        self.stop_all(task);
        self.listener.next_freed().ok_or(Error::TooManyThreads { most })
    }

    /// Stops all threads of all processes; they go on when their stops are noticed, which is after
    /// whatever the caller does next.
    pub(super) fn stop_all(&self, but: Option<Task>) {
        let others = self.threads.iter().filter(|(tid, t)| t.begun && but != Some(Task(**tid)));
        // One that is gone needs no stopping.
        others.for_each(|(tid, _)| drop(Task(*tid).interrupt()));
    }

    /// Tells what a thread has stored so far.
    pub(super) fn flush(&mut self, task: Task) -> Result<(), Error> {
        let Some(thread) = self.threads.get(&task.0) else { return Ok(()) };
        let Some(lane) = thread.lanes.last() else { return Ok(()) };
        let (thread, lane, buffer) = (thread.id, lane.context, lane.buffer);
        let to = self.filled(lane, buffer);
        self.tell(Message::Words { thread, lane, buffer, to, last: false });
        Ok(())
    }

    /// A signal comes: a thread's place in its buffer becomes that behind what it has done. Answers how many bytes it goes on by
    /// when the thread goes on. If it is not known whether that will be seen, nothing is taken back.
    pub(super) fn interrupted(&self, task: Task, regs: &Regs, returns: Returns) -> u64 {
        let Some(thread) = self.threads.get(&task.0) else { return 0 };
        let process = self.processes.get(&thread.pid);
        let Some((process, lane)) = process.zip(thread.lanes.last()) else { return 0 };
        match process.images.midway(regs.rip) {
            Some(Midway::Behind { .. }) => {
                self.carried(task, regs);
                0
            }
            Some(Midway::Ahead { bytes }) if returns == Returns::Seen => {
                self.goes_on(lane.context, bytes.wrapping_neg());
                bytes
            }
            _ => 0,
        }
    }

    /// If a thread carries its place in the buffer in a register, memory learns it: the register, and how far it is behind.
    pub(super) fn carried(&self, task: Task, regs: &Regs) -> Option<(u8, u64)> {
        let thread = self.threads.get(&task.0)?;
        let process = self.processes.get(&thread.pid)?;
        let Some(Midway::Behind { pointer, bytes }) = process.images.midway(regs.rip) else {
            return None;
        };
        let place = register(regs, pointer).wrapping_add(bytes);
        self.pool.set_word(self.pool.layout().context(thread.lanes.last()?.context), place);
        Some((pointer, bytes))
    }

    /// A context's place in its buffer goes on by so many bytes.
    pub(super) fn goes_on(&self, context: Context, bytes: u64) {
        let at = self.pool.layout().context(context);
        self.pool.set_word(at, self.pool.word(at).wrapping_add(bytes));
    }

    /// Whether a fault means that a buffer is full; if so, there is a new one.
    pub(super) fn buffer_full(&mut self, task: Task) -> Result<bool, Error> {
        let failed = |source| Error::Process { pid: task.0, what: "changing buffers", source };
        let Some(thread) = self.threads.get(&task.0) else { return Ok(false) };
        let Some(lane) = thread.lanes.last() else { return Ok(false) };
        let (id, context, buffer) = (thread.id, lane.context, lane.buffer);
        let guard = TAP + self.pool.layout().guard(buffer);
        let source = task.signal_source().map_err(failed)?;
        if source.code <= 0 || !(guard..guard + PAGE).contains(&source.addr) {
            return Ok(false);
        }
        let mut regs = task.regs().map_err(failed)?;
        let process = self.processes.get(&thread.pid);
        let again = process.and_then(|p| p.images.restart(regs.rip));
        let Some(again) = again else { return Ok(false) };
        let carried = self.carried(task, &regs);
        let to = self.filled(context, buffer);
        self.tell(Message::Words { thread: id, lane: context, buffer, to, last: true });
        let waits = self.seen.waits;
        let buffer = self.take_buffer(Some(task))?;
        self.seen.changes += 1;
        let cpu = self.threads.get_mut(&task.0).and_then(|t| t.processor(task));
        let moment = Moment { ns: self.clock.now(), cpu, starved: self.seen.waits > waits };
        self.tell(Message::Turnover { thread: id, moment });
        self.fill(context, buffer);
        let lane = self.threads.get_mut(&task.0).and_then(|t| t.lanes.last_mut());
        if let Some(lane) = lane {
            lane.buffer = buffer;
        }
        if let Some((pointer, bytes)) = carried {
            let place = TAP + self.pool.layout().buffer(buffer);
            *register_mut(&mut regs, pointer) = place.wrapping_sub(bytes);
        }
        regs.rip = again;
        task.set_regs(&regs).map_err(failed)?;
        Ok(true)
    }
}

/// A general register by its number.
fn register(regs: &Regs, number: u8) -> u64 {
    let mut regs = *regs;
    *register_mut(&mut regs, number)
}

const fn register_mut(regs: &mut Regs, number: u8) -> &mut u64 {
    match number {
        0 => &mut regs.rax,
        1 => &mut regs.rcx,
        2 => &mut regs.rdx,
        3 => &mut regs.rbx,
        4 => &mut regs.rsp,
        5 => &mut regs.rbp,
        6 => &mut regs.rsi,
        7 => &mut regs.rdi,
        8 => &mut regs.r8,
        9 => &mut regs.r9,
        10 => &mut regs.r10,
        11 => &mut regs.r11,
        12 => &mut regs.r12,
        13 => &mut regs.r13,
        14 => &mut regs.r14,
        _ => &mut regs.r15,
    }
}
