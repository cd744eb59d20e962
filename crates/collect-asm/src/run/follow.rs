//! The tracer: a program's threads and children from their start to their end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet, VecDeque};
use std::process::Command;
use std::sync::Arc;

use ichnos_base::{EndStatus, ProcessId, ThreadId, ThreadStart};
use ichnos_flow::Options;
use ichnos_rt::{Change, Clock, Context, Pool, Regs, Resume, Stop, Thread as Task, spawn, wait};

use super::Config;
use super::copies::{Copies, Manner};
use super::images::Images;
use super::library::Libraries;
use super::message::{Listener, Message, Where};
use super::process::{Frame, Lane, Process, Thread, process_of};
use super::setup::{TAP, prepare};
use crate::code::Form;
use crate::{CodeSize, Error};

/// What the tracer saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    pub(crate) status: EndStatus,
    pub(crate) raw_bytes: u64,
    pub(crate) waits: u64,
    pub(crate) left_out: u64,
    pub(crate) code: CodeSize,
    pub(crate) changes: u64,
}

/// Looks after a program.
pub(crate) struct Tracer<'a> {
    pub(super) config: &'a Config,
    pub(super) options: Options,
    pub(super) form: Form,
    pub(super) pool: Arc<Pool>,
    pub(super) listener: Listener,
    pub(super) buffers: Vec<u32>,
    pub(super) contexts: Vec<Context>,
    pub(super) copies: Copies,
    pub(super) processes: HashMap<i32, Process>,
    pub(super) threads: HashMap<i32, Thread>,
    /// Threads that stopped before their maker told of them.
    newborn: HashSet<i32>,
    /// Changes that were seen and wait for their turn.
    pub(super) later: VecDeque<(Task, Change)>,
    next: (u32, u32),
    /// The last time that was told where a thread began or libraries changed.
    pub(super) stamped: u64,
    pub(super) seen: Traced,
    pub(super) listened: bool,
    pub(super) clock: Clock,
}

impl<'a> Tracer<'a> {
    pub(crate) fn new(
        (config, form, clock): (&'a Config, Form, Clock),
        pool: Arc<Pool>,
        listener: Listener,
    ) -> Self {
        let layout = pool.layout();
        Self {
            config,
            options: config.level.into(),
            form,
            pool,
            listener,
            buffers: (0..layout.buffers).rev().collect(),
            contexts: (0..layout.contexts).rev().map(Context).collect(),
            copies: Copies::default(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            newborn: HashSet::new(),
            later: VecDeque::new(),
            next: (0, 0),
            stamped: 0,
            seen: Traced {
                status: EndStatus::Unknown,
                raw_bytes: 0,
                waits: 0,
                left_out: 0,
                code: CodeSize::default(),
                changes: 0,
            },
            listened: true,
            clock,
        }
    }

    /// Runs the program to its end.
    pub(crate) fn run(mut self) -> Result<Traced, Error> {
        let program = || self.config.program.to_string_lossy().into_owned();
        let mut command = Command::new(&self.config.program);
        command.args(&self.config.args);
        let first = spawn(command, self.config.randomize)
            .map_err(|source| Error::Start { program: program(), source })?;
        self.adopt(first, None)?;
        self.begin_program(first)?;
        self.go_on(first, 0)?;
        while let Some((task, change)) = self.next_change(first)? {
            if task == first {
                match change {
                    Change::Exited(code) => self.seen.status = EndStatus::Exited(code),
                    Change::Killed(signal) => self.seen.status = EndStatus::Killed(signal),
                    Change::Stopped(_) => {}
                }
            }
            self.change(task, change)?;
            if !self.listened {
                // The program ends with this thread.
                self.threads.keys().for_each(|tid| Task(*tid).kill());
            }
        }
        let noted = self.seen.code != CodeSize::default();
        let program = self.config.program.to_string_lossy().into_owned();
        if noted {
            self.copies.all_found(self.config, program)?;
        }
        Ok(self.seen)
    }

    /// The next change of a thread; nothing if there is none left.
    fn next_change(&mut self, first: Task) -> Result<Option<(Task, Change)>, Error> {
        let failed = |source| Error::Process { pid: first.0, what: "waiting", source };
        match self.later.pop_front() {
            Some(change) => Ok(Some(change)),
            None => wait(None).map_err(failed),
        }
    }

    /// Whether there was ever more than one thread.
    pub(super) const fn has_threads(&self) -> bool {
        self.next.0 > 1
    }

    /// Takes notice of a change.
    pub(super) fn change(&mut self, task: Task, change: Change) -> Result<(), Error> {
        let done = match change {
            Change::Exited(code) => self.gone(task, EndStatus::Exited(code)),
            Change::Killed(signal) => self.gone(task, EndStatus::Killed(signal)),
            Change::Stopped(stop) => self.stopped(task, stop),
        };
        match done {
            // A thread can be killed at any moment, also while it is stopped.
            Err(Error::Process { source, .. }) if source.raw_os_error() == Some(3) => Ok(()),
            done => done,
        }
    }

    fn stopped(&mut self, task: Task, stop: Stop) -> Result<(), Error> {
        match stop {
            Stop::Signal(signal) => self.signal(task, signal),
            Stop::Syscall => self.system_call(task),
            Stop::Clone => self.made(task),
            Stop::Vfork => {
                self.waits(task, task.regs().ok());
                self.made(task)
            }
            Stop::VforkDone => {
                self.waits(task, None);
                self.go_on(task, 0)
            }
            Stop::Exec => self.exec(task),
            Stop::Exit => self.exit(task),
            Stop::Group(signal) => self.group(task, signal),
            _ => self.go_on(task, 0),
        }
    }

    /// A thread waits from now on for a child that has its memory, with these registers, or does not any more.
    fn waits(&mut self, task: Task, regs: Option<Regs>) {
        if let Some(thread) = self.threads.get_mut(&task.0) {
            thread.waits = regs;
        }
    }

    /// Sends a message. If nobody listens any more the program is ended.
    pub(super) fn tell(&mut self, message: Message) {
        if let Message::Words { last: true, to, .. } = &message {
            self.seen.raw_bytes += to;
        }
        match &self.listener {
            Listener::Collector { tell, .. } => self.listened &= tell.send(message).is_ok(),
            Listener::Nobody => self.buffers.extend(message.emptied()),
        }
    }

    /// Lets a thread go on.
    pub(super) fn go_on(&mut self, task: Task, signal: i32) -> Result<(), Error> {
        let handling = self.threads.get(&task.0).is_some_and(|t| t.lanes.len() > 1);
        let how = if handling { Resume::Syscall } else { Resume::Cont };
        task.resume(how, signal).map_err(|source| Error::Process {
            pid: task.0,
            what: "letting it go on",
            source,
        })
    }

    /// Whether a thread's program has a copy.
    pub(super) fn is_traced(&self, task: Task) -> bool {
        let process = self.threads.get(&task.0).and_then(|t| self.processes.get(&t.pid));
        process.is_some_and(|p| !p.images.is_empty())
    }

    /// Where a thread with these registers is.
    pub(super) fn place(&self, task: Task, regs: &Regs) -> Option<Where> {
        let thread = self.threads.get(&task.0)?;
        Some(self.processes.get(&thread.pid)?.place(regs))
    }

    /// A thread begins to be known.
    fn adopt(&mut self, task: Task, maker: Option<Task>) -> Result<(), Error> {
        let pid = process_of(task.0).unwrap_or(task.0);
        let parent = maker.and_then(|m| self.threads.get(&m.0)).map(|t| (t.id, t.pid));
        let fresh = !self.processes.contains_key(&pid);
        if fresh {
            let like = parent.and_then(|(_, p)| self.processes.get(&p));
            let like = like.map(|p| (p.images.clone(), p.libraries.clone()));
            let (images, libraries) = like.unwrap_or_default();
            let id = self.next.1;
            self.next.1 += 1;
            self.tell(Message::Program { process: id, images: images.clone() });
            self.processes.insert(pid, Process { id, images, libraries, first: None });
        }
        let process = self.processes.get(&pid).map_or(0, |p| p.id);
        let id = self.next.0;
        self.next.0 += 1;
        let lane = self.new_lane(None)?;
        let context = lane.context;
        // A child process goes on where its maker is.
        let maker_at = maker.and_then(|m| self.threads.get(&m.0)?.lanes.last());
        if let Some(from) = maker_at.map(|l| l.context).filter(|_| fresh) {
            self.inherit(context, from);
        }
        let start = ThreadStart {
            process: ProcessId(process),
            creator: parent.map(|(id, _)| ThreadId(id)),
            os_pid: pid.unsigned_abs(),
            os_tid: task.0.unsigned_abs(),
        };
        if let Some((maker, _)) = parent {
            self.tell(Message::Create { thread: maker, child: id });
        }
        let like = parent.filter(|_| fresh).map(|(id, _)| id);
        self.tell(Message::Start { thread: id, start, lane: context, like });
        self.stamp_begin(id);
        let lanes = vec![lane];
        let (begun, in_call, returns, ended) = (maker.is_none(), false, false, false);
        let (waits, processor) = (None, None);
        let thread = Thread { id, pid, lanes, begun, in_call, returns, waits, processor, ended };
        self.threads.insert(task.0, thread);
        Ok(())
    }

    /// A thread made another one, or a process.
    fn made(&mut self, task: Task) -> Result<(), Error> {
        let failed = |source| Error::Process { pid: task.0, what: "making a thread", source };
        let child = i32::try_from(task.message().map_err(failed)?).unwrap_or(0);
        self.flush(task)?;
        self.adopt(Task(child), Some(task))?;
        if self.newborn.remove(&child) {
            self.begin(Task(child))?;
        }
        self.go_on(task, 0)
    }

    /// A new thread begins.
    fn begin(&mut self, task: Task) -> Result<(), Error> {
        let traced = self.is_traced(task);
        let Some(thread) = self.threads.get_mut(&task.0) else { return Ok(()) };
        thread.begun = true;
        let context = thread.lanes.last().map(|l| l.context);
        let thread = thread.id;
        if let (true, Some(context)) = (traced, context) {
            let handle = self.point_at(task, context)?.fs_base;
            self.tell(Message::Handle { thread, handle });
        }
        self.go_on(task, 0)
    }

    /// Makes a thread store by a context; answers its registers.
    fn point_at(&self, task: Task, context: Context) -> Result<Regs, Error> {
        let failed = |source| Error::Process { pid: task.0, what: "setting registers", source };
        let mut regs = task.regs().map_err(failed)?;
        regs.gs_base = self.context_address(context);
        task.set_regs(&regs).map_err(failed)?;
        Ok(regs)
    }

    fn group(&mut self, task: Task, signal: i32) -> Result<(), Error> {
        const STOPS: [i32; 4] = [19, 20, 21, 22];
        match self.threads.get(&task.0) {
            None => {
                self.newborn.insert(task.0);
                Ok(())
            }
            Some(thread) if !thread.begun => self.begin(task),
            Some(_) if STOPS.contains(&signal) => task
                .resume(Resume::Listen, 0)
                .map_err(|source| Error::Process { pid: task.0, what: "stopping", source }),
            Some(_) => self.go_on(task, 0),
        }
    }

    /// A process begins to run a program.
    fn begin_program(&mut self, task: Task) -> Result<(), Error> {
        let manner = Manner { options: &self.options, form: self.form, config: self.config };
        let copy = self.copies.program(task.0, manner)?;
        let Some(process) = self.processes.get_mut(&task.0) else { return Ok(()) };
        process.images = Images::of(copy.clone());
        process.libraries = Libraries::default();
        let (process, images) = (process.id, process.images.clone());
        self.tell(Message::Program { process, images });
        if let Some(copy) = copy {
            self.seen.left_out += copy.left_out as u64;
            self.seen.code = copy.size;
            let stops = prepare(task, &copy, (&self.pool, self.config.word()))?;
            if let Some(process) = self.processes.get_mut(&task.0) {
                (process.first, process.libraries.stop) = (stops.first, stops.loader);
            }
            if stops.first.is_none() {
                self.tell_maps(task, |_| true);
            }
            let context = self.threads.get(&task.0).and_then(|t| t.lanes.last());
            if let Some(context) = context.map(|l| l.context) {
                self.reset(context);
                self.point_at(task, context)?;
            }
        }
        Ok(())
    }

    fn exec(&mut self, task: Task) -> Result<(), Error> {
        let failed = |source| Error::Process { pid: task.0, what: "a new program", source };
        let former = i32::try_from(task.message().map_err(failed)?).unwrap_or(task.0);
        if former != task.0
            && let Some(thread) = self.threads.remove(&former)
        {
            self.end_thread(task, Where::Unknown, EndStatus::Exited(0));
            self.threads.insert(task.0, thread);
        }
        self.flush(task)?;
        if let Some(thread) = self.threads.get_mut(&task.0) {
            let id = thread.id;
            // The innermost context goes on; handlers of the old program are no more.
            let outer = thread.lanes.len().saturating_sub(1);
            let gone: Vec<Lane> = thread.lanes.drain(..outer).collect();
            thread.lanes.iter_mut().for_each(|l| l.frame = None);
            (thread.in_call, thread.returns, thread.processor) = (false, false, None);
            gone.into_iter().for_each(|lane| self.drop_lane(id, &lane));
            let path = std::fs::read_link(format!("/proc/{}/exe", task.0)).unwrap_or_default();
            self.tell(Message::Exec { thread: id, path: path.to_string_lossy().into_owned() });
        }
        self.begin_program(task)?;
        self.go_on(task, 0)
    }

    /// A thread is about to end.
    fn exit(&mut self, task: Task) -> Result<(), Error> {
        let failed = |source| Error::Process { pid: task.0, what: "its end", source };
        let status = task.message().map_err(failed)?;
        let status = match status & 0x7f {
            0 => EndStatus::Exited((status >> 8 & 0xff) as i32),
            signal => EndStatus::Killed(signal as i32),
        };
        let regs = task.regs().ok();
        let at = regs.as_ref().and_then(|regs| self.place(task, regs));
        if let Some(regs) = &regs {
            self.carried(task, regs);
        }
        self.end_thread(task, at.unwrap_or(Where::Unknown), status);
        self.go_on(task, 0)
    }

    /// Tells a thread's end and frees what it had.
    fn end_thread(&mut self, task: Task, at: Where, status: EndStatus) {
        let Some(thread) = self.threads.get_mut(&task.0) else { return };
        if std::mem::replace(&mut thread.ended, true) {
            return;
        }
        let (id, mut lanes) = (thread.id, std::mem::take(&mut thread.lanes));
        let Some(innermost) = lanes.pop() else { return };
        let left = self.left(innermost.context);
        self.drop_lane(id, &innermost);
        self.tell(Message::End { thread: id, at, status, left });
        lanes.iter().for_each(|lane| self.drop_lane(id, lane));
    }

    fn drop_lane(&mut self, thread: u32, lane: &Lane) {
        self.tell_last(thread, lane.context, lane.buffer);
        self.free_context(lane.context);
    }

    /// A thread is gone.
    fn gone(&mut self, task: Task, status: EndStatus) -> Result<(), Error> {
        self.newborn.remove(&task.0);
        self.end_thread(task, Where::Unknown, status);
        if let Some(thread) = self.threads.remove(&task.0)
            && !self.threads.values().any(|t| t.pid == thread.pid)
        {
            self.processes.remove(&thread.pid);
        }
        Ok(())
    }

    pub(super) fn free_context(&mut self, context: Context) {
        self.contexts.push(context);
    }

    /// Where traced programs see a context.
    pub(super) fn context_address(&self, context: Context) -> u64 {
        TAP + self.pool.layout().context(context)
    }

    /// Gives a thread a context for a signal handler: thread, the old context, the new one.
    pub(super) fn push_lane(
        &mut self,
        task: Task,
        frame: Frame,
    ) -> Result<Option<(u32, Context, Context)>, Error> {
        let lane = self.new_lane(Some(frame))?;
        let inner = lane.context;
        let Some(thread) = self.threads.get_mut(&task.0) else { return Ok(None) };
        let outer = thread.lanes.last().map(|l| l.context);
        thread.lanes.push(lane);
        thread.in_call = false;
        Ok(outer.map(|outer| (thread.id, outer, inner)))
    }

    /// Takes the context of a handler that returned: thread, its context, the one before it.
    pub(super) fn pop_lane(&mut self, task: Task) -> Option<(u32, Context, Context, Frame)> {
        let thread = self.threads.get_mut(&task.0)?;
        let frame = thread.lanes.last()?.frame?;
        let lane = thread.lanes.pop()?;
        let (id, outer) = (thread.id, thread.lanes.last()?.context);
        self.drop_lane(id, &lane);
        Some((id, lane.context, outer, frame))
    }

    /// Takes out the context that the innermost handler interrupted, if that handler was left
    /// and will not return to it: thread, context, buffer.
    pub(super) fn left_lane(
        &mut self,
        task: Task,
        is_left: impl Fn(&Frame) -> bool,
    ) -> Option<(u32, Context, Option<u32>)> {
        let thread = self.threads.get_mut(&task.0)?;
        thread.lanes.last()?.frame.filter(is_left)?;
        let outer = thread.lanes.len().checked_sub(2)?;
        let lane = thread.lanes.remove(outer);
        let under = lane.frame;
        thread.lanes.last_mut()?.frame = under;
        Some((thread.id, lane.context, lane.buffer))
    }
}
