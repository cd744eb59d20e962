//! Who stores into which buffer, and what happens when one is full or none is free.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use ichnos_base::Mode;
use ichnos_rt::{Context, Regs, Thread as Task};

use super::follow::Tracer;
use super::message::{Message, Moment, Where};
use super::process::{Frame, Lane, Thread, general};
use super::setup::TAP;
use crate::Error;
use crate::code::{COUNT, IN_TOOL, Midway, STATE, TURNS};

const PAGE: u64 = 4096;
/// For how long threads that have buffers go on before they are asked again whether they can do without.
const A_WHILE: Duration = Duration::from_millis(1);

/// Whether it is seen that an interrupted thread goes on where it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Returns {
    /// It is, or it never does.
    Seen,
    /// Nobody looks.
    Unseen,
}

/// What came of a full buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Full {
    /// There is a new one.
    Changed,
    /// None can be had now.
    Later,
}

impl Tracer<'_> {
    /// A new context, with a buffer if one is free.
    pub(super) fn new_lane(&mut self, frame: Option<Frame>) -> Result<Lane, Error> {
        let most = self.pool.layout().contexts;
        let context = self.contexts.pop().ok_or(Error::TooManyThreads { most })?;
        let buffer = self.free_buffer();
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

    /// Whether a signal's handler would see what is not the program's: a tool's function on the stack, or a stack pointer that was lowered
    /// for what is stored.
    pub(super) fn is_astray(&self, task: Task, regs: &Regs) -> bool {
        let thread = self.threads.get(&task.0);
        let process = thread.and_then(|t| self.processes.get(&t.pid));
        process.is_some_and(|p| p.images.is_lowered(regs.rip)) || self.in_tool(task, regs)
    }

    /// Lets a context store into a buffer; without one it stops where it begins to store.
    pub(super) fn fill(&self, context: Context, buffer: Option<u32>) {
        let layout = self.pool.layout();
        let place = buffer.map_or_else(|| layout.guard(0), |buffer| layout.buffer(buffer));
        self.pool.set_word(layout.context(context), TAP + place);
    }

    /// How much of its buffer a context has filled.
    pub(super) fn filled(&self, context: Context, buffer: u32) -> u64 {
        let layout = self.pool.layout();
        let at = self.pool.word(layout.context(context));
        at.saturating_sub(TAP + layout.buffer(buffer)).min(layout.buffer_len)
    }

    /// Tells what a context has stored, and that there will be no more of it in this buffer.
    pub(super) fn tell_last(&mut self, thread: u32, lane: Context, buffer: Option<u32>) {
        if let Some(buffer) = buffer {
            let to = self.filled(lane, buffer);
            self.tell(Message::Words { thread, lane, buffer, to, last: true });
        }
    }

    /// A free buffer, if there is one now.
    fn free_buffer(&mut self) -> Option<u32> {
        self.buffers.extend(self.listener.freed());
        self.buffers.pop()
    }

    /// A buffer for a thread that has none; if none is free all threads stop until one is. Nothing if that would take long: then all
    /// are to go on before this is asked again.
    fn take_buffer(&mut self, task: Task) -> Result<Option<u32>, Error> {
        if let Some(buffer) = self.free_buffer() {
            return Ok(Some(buffer));
        }
        self.seen.waits += 1;
        let held = self.threads.values().flat_map(|t| &t.lanes).filter(|l| l.buffer.is_some());
        if held.count() < self.pool.layout().buffers as usize {
            // The collector has one.
            self.stop_all(Some(task));
            self.tell(Message::Starved {});
        } else if !self.take_from_idle(task)? {
            std::thread::sleep(A_WHILE);
            return Ok(None);
        }
        let buffer = self.free_buffer().or_else(|| self.listener.next_freed());
        // If none comes the collector is gone.
        self.listened &= buffer.is_some();
        Ok(buffer)
    }

    /// Takes the buffers of all threads that are in code without notes, or about to begin a block: more threads than buffers are
    /// alive, of which most wait for others. They get new ones when they store again. Whether there were any.
    fn take_from_idle(&mut self, task: Task) -> Result<bool, Error> {
        let has = |t: &Thread| t.lanes.last().is_some_and(|l| l.buffer.is_some());
        let able = |(tid, t): &(&i32, &Thread)| {
            **tid != task.0 && t.begun && !t.ended && t.waits.is_none() && has(t)
        };
        let mut all: Vec<Task> =
            self.threads.iter().filter(able).map(|(tid, _)| Task(*tid)).collect();
        all.sort_unstable();
        self.await_stops(&all, task)?;
        let mut any = false;
        for other in all {
            any |= self.take_from(other)?;
        }
        Ok(any)
    }

    /// Takes the buffer of a stopped thread, if it can do without.
    fn take_from(&mut self, task: Task) -> Result<bool, Error> {
        // One that is gone has told all.
        let Ok(mut regs) = task.regs() else { return Ok(false) };
        let Some(place) = self.place(task, &regs) else { return Ok(false) };
        let again = match place {
            Where::Outside(_) if !self.in_tool(task, &regs) => None,
            Where::Copy { .. } => {
                let process = self.threads.get(&task.0).and_then(|t| self.processes.get(&t.pid));
                let Some(again) = process.and_then(|p| p.images.begun(regs.rip)) else {
                    return Ok(false);
                };
                Some(again)
            }
            _ => return Ok(false),
        };
        let carried = self.carried(task, &regs);
        let Some(thread) = self.threads.get_mut(&task.0) else { return Ok(false) };
        let Some(lane) = thread.lanes.last_mut() else { return Ok(false) };
        let (id, context, buffer) = (thread.id, lane.context, lane.buffer.take());
        self.tell_last(id, context, buffer);
        self.fill(context, None);
        if let Some(again) = again {
            self.store_on(task, &mut regs, (context, carried, again))?;
        }
        Ok(true)
    }

    /// A stopped thread begins a sequence again, with its context's new place.
    fn store_on(
        &self,
        task: Task,
        regs: &mut Regs,
        (context, carried, again): (Context, Option<(u8, u64)>, u64),
    ) -> Result<(), Error> {
        if let Some((pointer, bytes)) = carried {
            let place = self.pool.word(self.pool.layout().context(context));
            *register_mut(regs, pointer) = place.wrapping_sub(bytes);
        }
        regs.rip = again;
        task.set_regs(regs).map_err(|source| Error::Process {
            pid: task.0,
            what: "changing buffers",
            source,
        })
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
        let (thread, lane, Some(buffer)) = (thread.id, lane.context, lane.buffer) else {
            return Ok(());
        };
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

    /// Whether a fault means that a buffer is full; if so, there is a new one, or there will be one when all others have gone on.
    pub(super) fn buffer_full(&mut self, task: Task) -> Result<Option<Full>, Error> {
        let failed = |source| Error::Process { pid: task.0, what: "changing buffers", source };
        let Some(thread) = self.threads.get(&task.0) else { return Ok(None) };
        let Some(lane) = thread.lanes.last() else { return Ok(None) };
        let (id, context, buffer) = (thread.id, lane.context, lane.buffer);
        let source = task.signal_source().map_err(failed)?;
        if source.code <= 0 || !self.is_guard(source.addr, buffer) {
            return Ok(None);
        }
        let mut regs = task.regs().map_err(failed)?;
        let process = self.processes.get(&thread.pid);
        let again = process.and_then(|p| p.images.restart(regs.rip));
        let Some(again) = again else { return Ok(None) };
        let carried = self.carried(task, &regs);
        self.tell_last(id, context, buffer);
        self.give(task, None);
        let waits = self.seen.waits;
        let Some(buffer) = self.take_buffer(task)? else { return Ok(Some(Full::Later)) };
        self.seen.changes += 1;
        let cpu = self.threads.get_mut(&task.0).and_then(|t| t.processor(task));
        let moment = Moment { ns: self.clock.now(), cpu, starved: self.seen.waits > waits };
        self.tell(Message::Turnover { thread: id, moment });
        self.give(task, Some(buffer));
        self.fill(context, Some(buffer));
        self.store_on(task, &mut regs, (context, carried, again))?;
        Ok(Some(Full::Changed))
    }

    /// Whether an address lies in the page behind a buffer; behind any, if there is none: it may have been taken away since the fault.
    fn is_guard(&self, addr: u64, buffer: Option<u32>) -> bool {
        let layout = self.pool.layout();
        let Some(offset) = addr.checked_sub(TAP + layout.guard(0)) else { return false };
        let apart = layout.guard(1) - layout.guard(0);
        let number = offset / apart;
        offset % apart < PAGE
            && buffer.map_or(number < u64::from(layout.buffers), |b| number == u64::from(b))
    }

    /// A thread has another buffer, or none.
    fn give(&mut self, task: Task, buffer: Option<u32>) {
        let lane = self.threads.get_mut(&task.0).and_then(|t| t.lanes.last_mut());
        lane.into_iter().for_each(|lane| lane.buffer = buffer);
    }
}

/// A general register by its number.
fn register(regs: &Regs, number: u8) -> u64 {
    general(regs)[usize::from(number) % 16]
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
