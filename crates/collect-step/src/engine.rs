//! The collector's heart: whose turn it is, and what is known of everyone.
//!
//! One thread of the whole tree executes user code at a time, for a quantum of
//! instructions or until it sleeps in the kernel; a sleeping thread stops at the
//! end of its system call and queues again. So records are told in the order in
//! which they happened, spinning threads let others on, and nobody who sleeps
//! keeps the rest waiting.
//!
//! Only threads known by number are ever waited for, so that other children of
//! the calling process are left alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ichnos_base::{
    DriveError, EndStatus, Event, FileOff, GuestVa, Map, ProcessId, Record, Sink, ThreadId,
    ThreadStart,
};

use crate::emit::Emitter;
use crate::images::Images;
use crate::live::Host;
use crate::maps::{self, Change, Vma};
use crate::stop::Stop;
use crate::sys::{self, Patience, Resume, Tid};
use crate::tracee::{Call, Number, Process, State, Told, Tracee};
use crate::{Config, Ending, Error};

/// What an operation of the engine may fail with.
pub(crate) type Fail<S> = DriveError<Error, <S as Sink>::Error>;
/// An operation that answers nothing.
pub(crate) type Done<S> = Result<(), Fail<S>>;

/// What became of a thread after something happened to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It is ready to execute its next instruction.
    Go,
    /// It is in the kernel's hands, or no more.
    Away,
}

/// Everything about one collection.
pub(crate) struct Engine<'a, S> {
    pub(crate) config: &'a Config,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) out: Emitter<'a, S>,
    pub(crate) tracees: Vec<Tracee>,
    pub(crate) processes: Vec<Process>,
    /// The threads not yet reaped.
    pub(crate) alive: Vec<ThreadId>,
    pub(crate) ready: VecDeque<ThreadId>,
    pub(crate) images: Images,
    pub(crate) host: Host,
    pub(crate) scratch: Scratch,
    /// The process number of the program itself, and how it ended.
    pub(crate) root: Tid,
    pub(crate) end: EndStatus,
}

/// The accesses of the instruction being stepped, and their bytes.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) records: Vec<Record>,
    pub(crate) values: Vec<u8>,
}

impl<'a, S: Sink> Engine<'a, S> {
    /// Takes charge of a process that is stopped at its exec.
    pub(crate) fn new(
        config: &'a Config,
        stop: &'a AtomicBool,
        sink: &'a mut S,
        root: Tid,
    ) -> Self {
        let mut engine = Self {
            config,
            stop,
            out: Emitter::new(sink, config.values),
            tracees: Vec::new(),
            processes: Vec::new(),
            alive: Vec::new(),
            ready: VecDeque::new(),
            images: Images::default(),
            host: Host::new(),
            scratch: Scratch::default(),
            root,
            end: EndStatus::Unknown,
        };
        let process = engine.add_process(root);
        engine.add_thread(root, process);
        engine
    }

    /// Runs the tree until it has ended, or collection shall end.
    pub(crate) fn run(&mut self) -> Result<Ending, Fail<S>> {
        let first = ThreadId(0);
        self.go_on(first, Resume::Syscall, 0)?;
        let mut pause = Duration::ZERO;
        while !self.alive.is_empty() && !self.shall_end() {
            if let Some(id) = self.ready.pop_front() {
                pause = Duration::ZERO;
                self.quantum(id)?;
            } else {
                pause = (pause * 2).clamp(Duration::from_micros(20), Duration::from_millis(1));
                thread::sleep(pause);
            }
            self.poll()?;
        }
        let ending = match self.reason_to_end() {
            Some(reason) if !self.alive.is_empty() => reason,
            _ => Ending::Complete,
        };
        self.end_early()?;
        self.out.flush()?;
        Ok(ending)
    }

    /// Whether collection shall end before the program does.
    #[inline]
    fn shall_end(&self) -> bool {
        self.reason_to_end().is_some()
    }

    #[inline]
    fn reason_to_end(&self) -> Option<Ending> {
        if self.stop.load(Ordering::Relaxed) {
            Some(Ending::Stopped)
        } else if !self.out.is_open() {
            Some(Ending::Enough)
        } else if self.config.limit.is_some_and(|limit| self.out.total() >= limit) {
            Some(Ending::Limit)
        } else {
            None
        }
    }

    /// One thread's turn.
    fn quantum(&mut self, id: ThreadId) -> Done<S> {
        if self.tracees[id.index()].state != State::Ready {
            return Ok(()); // It died, or was renamed by an exec, while it queued.
        }
        self.ensure_started(id)?;
        for _ in 0..self.config.quantum.max(1) {
            if self.shall_end() {
                break;
            }
            if self.advance(id)? == Turn::Away {
                return Ok(());
            }
        }
        self.ready.push_back(id);
        Ok(())
    }

    /// Asks after everyone: who sleeps may have woken, who queues may have died.
    pub(crate) fn poll(&mut self) -> Done<S> {
        let mut at = 0;
        while let Some(id) = self.alive.get(at).copied() {
            let queued = self.tracees[id.index()].state == State::Ready;
            if let Some(stop) = self.ask(id, Patience::Ask)?
                && self.handle_stop(id, stop)? == Turn::Go
                && !queued
            {
                self.queue(id);
            }
            // A thread that went away took itself off the list.
            if self.alive.get(at) == Some(&id) {
                at += 1;
            }
        }
        Ok(())
    }

    /// Puts a thread at the end of the queue, if it is not in it.
    pub(crate) fn queue(&mut self, id: ThreadId) {
        if !self.ready.contains(&id) {
            self.ready.push_back(id);
        }
    }

    /// The next report about a thread.
    pub(crate) fn ask(
        &mut self,
        id: ThreadId,
        patience: Patience,
    ) -> Result<Option<Stop>, Fail<S>> {
        let tid = self.tracees[id.index()].tid;
        let wait = match patience {
            Patience::Sleep if self.leads_others(id) => self.wait_watchfully(tid),
            _ => sys::wait(tid, patience),
        };
        match wait {
            Ok(status) => Ok(status.map(Stop::from_status)),
            // It has taken the number of its process's first thread, under which
            // its exec is about to be reported.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) && self.executes(id) => {
                Ok(None)
            }
            // Reaped behind our back: its end was not seen.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                self.bury(id, EndStatus::Unknown)?;
                Ok(None)
            }
            Err(source) => {
                Err(DriveError::Source(Error::Os { what: "waiting", tid: tid.0, source }))
            }
        }
    }

    /// Whether a thread is the first of several in its process.
    #[inline]
    fn leads_others(&self, id: ThreadId) -> bool {
        let tracee = &self.tracees[id.index()];
        let process = &self.processes[tracee.process.index()];
        process.threads > 1 && process.pid == tracee.tid
    }

    /// Waits for the first of several threads. When another one ends the process
    /// or replaces its program, the first may pass its exit stop unseen, and is
    /// then not reported until all others are reaped: to sleep would be forever.
    fn wait_watchfully(&self, tid: Tid) -> io::Result<Option<i32>> {
        for tries in 1u32.. {
            if let Some(status) = sys::wait(tid, Patience::Ask)? {
                return Ok(Some(status));
            }
            if tries.is_multiple_of(1024) && is_zombie(tid) {
                break;
            }
            thread::yield_now();
        }
        Ok(None)
    }

    /// The number of a thread's process.
    pub(crate) fn pid_of(&self, id: ThreadId) -> Tid {
        self.processes[self.tracees[id.index()].process.index()].pid
    }

    /// Whether a thread that is not its process's first is inside an exec.
    fn executes(&self, id: ThreadId) -> bool {
        let tracee = &self.tracees[id.index()];
        let Call::Inside(Number::Of64(number)) = tracee.call else { return false };
        let execs = [libc::SYS_execve as u64, libc::SYS_execveat as u64].contains(&number);
        execs && tracee.tid != self.pid_of(id)
    }

    /// Resumes a stopped thread, which is then in the kernel's hands.
    pub(crate) fn go_on(
        &mut self,
        id: ThreadId,
        how: Resume,
        signal: i32,
    ) -> Result<Turn, Fail<S>> {
        let tracee = &mut self.tracees[id.index()];
        tracee.state = State::Busy;
        let tid = tracee.tid;
        self.attempt(tid, "resuming", sys::resume(tid, how, signal))?;
        Ok(Turn::Away)
    }

    /// Passes on whether a request reached its thread. A thread that is being
    /// killed answers "no such process" to everything; its end will be reported.
    pub(crate) fn attempt(
        &self,
        tid: Tid,
        what: &'static str,
        result: io::Result<()>,
    ) -> Result<bool, Fail<S>> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(source) => Err(DriveError::Source(Error::Os { what, tid: tid.0, source })),
        }
    }

    /// A new thread of a known process.
    pub(crate) fn add_thread(&mut self, tid: Tid, process: ProcessId) -> ThreadId {
        let id = ThreadId(self.tracees.len() as u32);
        self.tracees.push(Tracee::new(tid, process));
        self.processes[process.index()].threads += 1;
        self.alive.push(id);
        id
    }

    /// A new process.
    pub(crate) fn add_process(&mut self, pid: Tid) -> ProcessId {
        let id = ProcessId(self.processes.len() as u32);
        self.processes.push(Process::new(id, pid));
        id
    }

    /// Tells a thread's beginning before anything else about it.
    pub(crate) fn ensure_started(&mut self, id: ThreadId) -> Done<S> {
        let tracee = &mut self.tracees[id.index()];
        if tracee.told != Told::Nothing {
            return Ok(());
        }
        tracee.told = Told::Start;
        let process = &self.processes[tracee.process.index()];
        let start = ThreadStart {
            process: process.id,
            creator: tracee.creator,
            os_pid: process.pid.0.cast_unsigned(),
            os_tid: tracee.tid.0.cast_unsigned(),
        };
        self.out.start(id, &Event::ThreadStart(start))?;
        if process.maps.is_empty() {
            self.refresh_maps(id)?;
        }
        self.out.stamp(id)
    }

    /// Tells a thread's end, once.
    pub(crate) fn tell_end(&mut self, id: ThreadId, end: EndStatus) -> Done<S> {
        self.ensure_started(id)?;
        let tracee = &mut self.tracees[id.index()];
        if tracee.told == Told::End {
            return Ok(());
        }
        tracee.told = Told::End;
        self.out.event(id, &Event::ThreadEnd(end))
    }

    /// A thread is gone for good.
    pub(crate) fn bury(&mut self, id: ThreadId, end: EndStatus) -> Done<S> {
        self.tell_end(id, end)?;
        let tracee = &mut self.tracees[id.index()];
        if tracee.tid == self.root {
            self.end = end;
        }
        self.forget(id);
        Ok(())
    }

    /// Takes a thread off the lists.
    pub(crate) fn forget(&mut self, id: ThreadId) {
        let tracee = &mut self.tracees[id.index()];
        if tracee.state != State::Gone {
            tracee.state = State::Gone;
            self.processes[tracee.process.index()].threads -= 1;
            self.alive.retain(|other| *other != id);
        }
    }

    /// Tells what changed in a process's memory, in the stream of the thread
    /// that changed it.
    pub(crate) fn refresh_maps(&mut self, id: ThreadId) -> Done<S> {
        let process = &mut self.processes[self.tracees[id.index()].process.index()];
        let new = maps::read(process.pid);
        let changes = maps::changes(&process.maps, &new);
        if !changes.is_empty() {
            process.code.doubt();
        }
        process.maps = new;
        for change in &changes {
            match change {
                Change::Gone { start, end } => {
                    let gone = Event::Unmap { start: GuestVa(*start), len: end - start };
                    self.out.event(id, &gone)?;
                }
                Change::New(vma) => self.tell_map(id, vma)?,
            }
        }
        Ok(())
    }

    fn tell_map(&mut self, id: ThreadId, vma: &Vma) -> Done<S> {
        let behind = self.images.describe(vma);
        let map = Map {
            start: GuestVa(vma.start),
            len: vma.end - vma.start,
            protection: vma.protection,
            kind: behind.kind,
            offset: FileOff(vma.offset),
            bias: behind.bias,
            path: &vma.path,
            build_id: behind.build_id,
        };
        self.out.event(id, &Event::Map(map))
    }
}

/// Whether a thread has ended but is not reaped.
fn is_zombie(tid: Tid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{0}/task/{0}/stat", tid.0)).unwrap_or_default();
    // The state follows the name, which is in parentheses and may hold others.
    stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['Z', 'X']))
}
