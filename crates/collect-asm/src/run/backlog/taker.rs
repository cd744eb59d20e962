//! Who takes what the tracer tells, and decides what of it goes to disk.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ichnos_base::EndStatus;
use ichnos_flow::Level;
use ichnos_rt::Clock;
use ichnos_spool::{Aligned, Bytes, Pen, Spool, Writers};
use rustix::process::{Pid, Signal, kill_process};

use super::super::journal::Writer;
use super::super::message::Message;
use super::{At, Backlog, Entry, Full, Job, KEPT, Place, Reads, State};

/// When so many full buffers wait to be read later, there is a file: what fits into this is read at the end.
const FEW: usize = 64;
/// Notes go to the file when there are so many bytes of them, or when they have been there for so long.
const MANY_NOTES: usize = 64 << 10;
const LONG: Duration = Duration::from_secs(1);

/// Who takes what the tracer tells.
pub(super) struct Taker {
    backlog: Arc<Backlog>,
    /// Where the spool goes, as long as there is none.
    place: Option<Place>,
    /// The fillings of buffers into which threads store.
    open: HashMap<u32, u64>,
    /// The number of the next one.
    next: u64,
    writers: Option<Writers<Job>>,
    /// The processes of threads that live.
    alive: HashMap<u32, u32>,
    /// If all is to be read later.
    journal: Option<Journal>,
}

/// What goes to a spool that is read later.
struct Journal {
    writer: Writer,
    /// When notes last went there.
    kept: Instant,
    /// The full buffers that wait for a file.
    full: Vec<Full>,
    spool: Option<Arc<Spool>>,
    /// How the first thread ended.
    status: EndStatus,
}

/// Which notes go to the spool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Much {
    /// Those that are many, or have been there for long.
    Enough,
    /// All.
    All,
}

impl Taker {
    /// Nothing taken yet.
    pub(super) fn new(backlog: Arc<Backlog>, place: Place, (level, clock): (Level, Clock)) -> Self {
        let later = matches!(place.when, Reads::Later(_));
        backlog.lock().later = later;
        let journal = later.then(|| Journal {
            writer: Writer::new(level, &clock),
            kept: Instant::now(),
            full: Vec::new(),
            spool: None,
            status: EndStatus::Unknown,
        });
        let (open, alive) = (HashMap::new(), HashMap::new());
        Self { backlog, place: Some(place), open, next: 0, writers: None, alive, journal }
    }

    /// Takes a message; no if nobody reads.
    pub(super) fn take(&mut self, message: Message) -> bool {
        match &message {
            Message::Start { thread, start, .. } => drop(self.alive.insert(*thread, start.os_pid)),
            Message::End { thread, .. } => drop(self.alive.remove(thread)),
            _ => {}
        }
        if matches!(message, Message::Starved {}) {
            self.give_back();
            return true;
        }
        let filling = self.filling(&message);
        if let Some(journal) = &mut self.journal {
            journal.message(&message, filling);
        }
        let backlog = Arc::clone(&self.backlog);
        let mut state = backlog.lock();
        if state.free.is_none() {
            return false;
        }
        if let (Some(filling), &Message::Words { buffer, to: len, last, .. }) = (filling, &message)
        {
            state.bytes += if last { len } else { 0 };
            let full = Full { filling, buffer, len };
            let at = match last && self.goes_to_disk(&mut state, full) {
                true => At::Under,
                false => At::Memory,
            };
            state.fillings.insert(filling, at);
            match at {
                At::Under => self.give(Job::Full(full)),
                _ => state.kept += u32::from(last),
            }
        }
        state.waiting.push_back(Entry { message, filling });
        drop(state);
        self.keep_notes(Much::Enough);
        backlog.more.notify_all();
        true
    }

    /// Threads wait for the buffers that are kept to be read later.
    fn give_back(&mut self) {
        let backlog = Arc::clone(&self.backlog);
        let mut state = backlog.lock();
        if self.journal.as_ref().is_some_and(|journal| !journal.full.is_empty()) {
            self.begin_once(&mut state);
        }
        drop(state);
        backlog.more.notify_all();
    }

    /// Ends the program.
    pub(super) fn kill(&self) {
        for pid in self.alive.values() {
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            // One that is gone needs no killing.
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
    }

    /// Puts notes into the spool, if there is one that is read later.
    pub(super) fn keep_notes(&mut self, much: Much) {
        let Some(journal) = &mut self.journal else { return };
        let enough = journal.writer.len() >= MANY_NOTES || journal.kept.elapsed() >= LONG;
        if journal.spool.is_none() || !(enough || much == Much::All) {
            return;
        }
        journal.kept = Instant::now();
        let puts: Vec<_> = journal.writer.take().collect();
        puts.into_iter().for_each(|put| self.give(Job::Put(put)));
    }

    /// All was told.
    pub(super) fn end(mut self) {
        self.keep_notes(Much::All);
        self.writers.take().into_iter().for_each(Writers::end);
        let spool = self.journal.as_ref().and_then(|j| Some((j.spool.as_ref()?, j.status)));
        let Some((spool, status)) = spool else { return };
        let mut state = self.backlog.lock();
        state.left = state.has_room && spool.end(raw(status)).is_ok();
        if !state.left {
            // It holds the beginning, and all is read now.
            state.hide(spool);
        }
    }

    /// The number of the filling that a message tells of.
    fn filling(&mut self, message: &Message) -> Option<u64> {
        let Message::Words { buffer, last, .. } = message else { return None };
        let filling = *self.open.entry(*buffer).or_insert(self.next);
        if filling == self.next {
            self.next += 1;
        }
        if *last {
            self.open.remove(buffer);
        }
        Some(filling)
    }

    fn give(&mut self, job: Job) {
        if let Some(writers) = &mut self.writers {
            writers.give(job);
        }
    }

    /// Whether a buffer that has just been filled goes to disk; if it is the first, the spool is made.
    fn goes_to_disk(&mut self, state: &mut State, full: Full) -> bool {
        let stays = match &mut self.journal {
            Some(journal) if journal.spool.is_none() => {
                let most = FEW.min(self.backlog.pool.layout().buffers as usize);
                let stays = journal.full.len() + 1 < most;
                journal.full.extend(stays.then_some(full));
                stays
            }
            Some(_) => false,
            None => {
                let kept = self.backlog.pool.layout().buffers / KEPT;
                state.kept < kept || state.read == Some(full.filling)
            }
        };
        if stays || !state.has_room {
            return false;
        }
        self.begin_once(state);
        state.has_room
    }

    fn begin_once(&mut self, state: &mut State) {
        if let Some(place) = self.place.take() {
            // Without a file all waits in memory.
            let _ = self.begin(&place, state);
        }
        state.has_room &= self.writers.is_some();
    }

    fn begin(&mut self, place: &Place, state: &mut State) -> io::Result<()> {
        let note = match &place.when {
            Reads::Beside => &[][..],
            Reads::Later(note) => note,
        };
        let spool = Spool::create(&place.path, note, place.limit)?;
        let file = Bytes::open(&place.path);
        let writers = Writers::start(&spool, 0, || {
            let (backlog, mut room) = (Arc::clone(&self.backlog), Aligned::default());
            move |pen: &mut Pen, number, job, hurry| {
                backlog.write(pen, &mut room, (number, job), hurry);
            }
        });
        state.file = Some(file?);
        let nobody = || io::Error::other("there is nobody who writes");
        self.writers = Some(writers.ok_or_else(nobody)?);
        let Some(journal) = &mut self.journal else {
            state.hide(&spool);
            return Ok(());
        };
        journal.spool = Some(spool);
        let full = std::mem::take(&mut journal.full);
        state.kept = 0;
        for full in full {
            state.fillings.insert(full.filling, At::Under);
            self.give(Job::Full(full));
        }
        Ok(())
    }
}

impl Journal {
    fn message(&mut self, message: &Message, filling: Option<u64>) {
        self.writer.message(message, filling);
        if let Message::End { thread: 0, status, .. } = message {
            self.status = *status;
        }
    }
}

/// How the system tells that a process ended like this.
fn raw(status: EndStatus) -> ExitStatus {
    ExitStatus::from_raw(match status {
        EndStatus::Exited(status) => (status & 0xff) << 8,
        EndStatus::Killed(signal) => signal,
        _ => 0,
    })
}
