//! The other threads of a process at rest, while its libraries change.
//!
//! What is told of a library that is gone must come behind all that was done in it, and what is told of one that came before
//! anything is. So the others stop first, and what they have done is told, with the block that each has not finished as far as
//! it is done. Stored traces keep the order between threads by timestamps: each has one when it begins, the thread that tells
//! of libraries has one before it does, the others one behind.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;
use std::io;

use ichnos_rt::{Regs, Thread as Task, wait};

use super::buffers::Returns;
use super::follow::Tracer;
use super::message::{Message, Where};
use crate::Error;

/// `ESRCH`: a thread is gone.
const GONE: i32 = 3;

/// Threads at rest, by their numbers in the trace. They go on when what they stopped for is noticed, which is after whatever
/// the tracer does now.
pub(super) struct Halted(Vec<u32>);

impl Tracer<'_> {
    /// Stops all other threads of a process and tells what they have done.
    pub(super) fn halt(&mut self, task: Task, pid: i32) -> Result<Halted, Error> {
        let is_other = |(tid, t): &(&i32, &super::process::Thread)| {
            t.pid == pid && **tid != task.0 && !t.ended
        };
        let mut all: Vec<Task> =
            self.threads.iter().filter(is_other).map(|(tid, _)| Task(*tid)).collect();
        all.sort_unstable();
        // One that is about to begin has done nothing yet.
        let mut others = all.clone();
        others.retain(|other| self.threads.get(&other.0).is_some_and(|t| t.begun));
        self.await_stops(&others, task)?;
        for other in &others {
            self.rests(*other)?;
        }
        let numbers = all.iter().filter_map(|other| self.threads.get(&other.0));
        Ok(Halted(numbers.map(|t| t.id).collect()))
    }

    /// Stops threads and waits until they have, for the sake of one that is stopped. What is seen meanwhile is noticed later.
    pub(super) fn await_stops(&mut self, others: &[Task], task: Task) -> Result<(), Error> {
        let failed =
            |source| Error::Process { pid: task.0, what: "stopping other threads", source };
        // Who waits for a child that has its memory does nothing meanwhile, and does not stop either.
        let waits = |other: &Task| self.threads.get(&other.0).is_some_and(|t| t.waits.is_some());
        let stopped: HashSet<Task> = self.later.iter().map(|(of, _)| *of).collect();
        let run = others.iter().filter(|other| !waits(other) && !stopped.contains(other));
        // One that is gone needs no stopping.
        let mut awaited: HashSet<Task> = run.copied().filter(|o| o.interrupt().is_ok()).collect();
        while !awaited.is_empty()
            && let Some((who, change)) = wait(None).map_err(failed)?
        {
            self.later.push_back((who, change));
            if who == task {
                // The process ends, or another thread of it begins a new program.
                return Err(failed(io::Error::from_raw_os_error(GONE)));
            }
            awaited.remove(&who);
        }
        Ok(())
    }

    /// Tells what a thread has done that is at rest.
    fn rests(&mut self, task: Task) -> Result<(), Error> {
        let Some(thread) = self.threads.get(&task.0) else { return Ok(()) };
        let Some(lane) = thread.lanes.last().map(|l| l.context) else { return Ok(()) };
        let id = thread.id;
        let regs: Option<Regs> = thread.waits.or_else(|| task.regs().ok());
        let at = regs.as_ref().and_then(|regs| self.place(task, regs));
        let ahead = regs.map_or(0, |regs| self.interrupted(task, &regs, Returns::Seen));
        self.flush(task)?;
        self.goes_on(lane, ahead);
        self.tell(Message::Rests { thread: id, lane, at: at.unwrap_or(Where::Unknown) });
        Ok(())
    }

    /// A thread is about to tell of libraries: that is behind all that was told, and before what others do then.
    pub(super) fn stamp(&mut self, task: Task) {
        // Where there was never another thread there is no order to keep.
        if let Some(thread) = self.threads.get(&task.0).filter(|_| self.has_threads()) {
            self.stamp_one(thread.id);
        }
    }

    /// What these threads do from now on comes behind all that was told.
    pub(super) fn stamp_others(&mut self, halted: &Halted) {
        halted.0.iter().for_each(|thread| self.stamp_one(*thread));
    }

    /// A thread begins: that comes behind all that was told. The first one begins at the same time in equal runs.
    pub(super) fn stamp_begin(&mut self, thread: u32) {
        if thread > 0 {
            return self.stamp_one(thread);
        }
        self.stamped = 1;
        self.tell(Message::Stamp { thread, ns: self.stamped });
    }

    /// Says when it is in a thread's stream.
    fn stamp_one(&mut self, thread: u32) {
        self.stamped = self.clock.now().max(self.stamped + 1);
        self.tell(Message::Stamp { thread, ns: self.stamped });
    }
}
