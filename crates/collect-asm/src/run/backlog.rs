//! Between the tracer and the collector: what was told and nobody has read yet, in order.
//!
//! The first full buffers stay in memory. While so many wait there, others go to a file on disk, squeezed, and are given back at
//! once, so that threads do not wait for whoever reads. When the file takes no more, they stay in memory, too, until there are no
//! more free buffers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichnos_rt::Pool;
use ichnos_spool::{Aligned, Bytes, Hidden, Hurry, Label, PAGE, Pen, Spool, Stored, Writers};

use rustix::process::{Pid, Signal, kill_process};

use super::message::{Buffers, Message};

/// How long nobody looks whether the program is to end.
const PATIENCE: Duration = Duration::from_millis(100);
/// Full buffers stay in memory until they are one in so many of all.
const KEPT: u32 = 2;

/// Where the spool goes, if one is needed.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file. It has no name as soon as it is made.
    pub path: PathBuf,
    /// The most bytes it may have.
    pub limit: u64,
}

/// What was told and not read.
pub(super) struct Backlog {
    pool: Arc<Pool>,
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    waiting: VecDeque<Entry>,
    /// Where the words of buffers are of which something waits, by the numbers of their fillings.
    fillings: HashMap<u64, At>,
    /// How many full ones stay in memory.
    kept: u32,
    /// The one that is being read.
    read: Option<u64>,
    /// Bytes of full buffers that wait.
    bytes: u64,
    /// Bytes that went to disk, before they were squeezed.
    spooled: u64,
    /// Whether what does not fit into memory can go to disk.
    has_room: bool,
    /// All was told.
    over: bool,
    /// The way back for buffers, as long as somebody reads.
    free: Option<Buffers>,
    /// The spool, for whoever reads.
    file: Option<Bytes>,
    /// It goes last.
    _hidden: Option<Hidden>,
}

/// A message, and the filling of a buffer that it tells of.
struct Entry {
    message: Message,
    filling: Option<u64>,
}

/// Where words are.
#[derive(Clone, Copy)]
enum At {
    /// In their buffer.
    Memory,
    /// On their way to the spool.
    Under,
    /// In the spool: the entry, and how many they are.
    Spool(Stored, u64),
}

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reader {
    /// While the program lives and need not wait.
    Aside,
    /// While it lives.
    Beside,
    /// What is left.
    Behind,
}

impl Backlog {
    /// An empty one, from which buffers come back this way.
    pub(super) fn new(pool: Arc<Pool>, free: Buffers) -> Arc<Self> {
        let state = State {
            waiting: VecDeque::new(),
            fillings: HashMap::new(),
            kept: 0,
            read: None,
            bytes: 0,
            spooled: 0,
            has_room: true,
            over: false,
            free: Some(free),
            file: None,
            _hidden: None,
        };
        Arc::new(Self { pool, state: Mutex::new(state), more: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all was told.
    pub(super) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// How many bytes of full buffers wait.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// How many bytes went to disk, before they were squeezed.
    pub(super) fn spooled(&self) -> u64 {
        self.lock().spooled
    }

    /// Nobody reads any more: whoever waits for a buffer gets none.
    pub(super) fn give_up(&self) {
        self.lock().free = None;
    }

    /// Takes all messages, until there are no more or nobody reads them. Ends the program once somebody asks for that.
    pub(super) fn take(
        self: &Arc<Self>,
        messages: Receiver<Message>,
        place: Place,
        stop: &AtomicBool,
    ) {
        let mut taker = Taker {
            backlog: Arc::clone(self),
            place: Some(place),
            open: HashMap::new(),
            next: 0,
            writers: None,
            alive: HashMap::new(),
        };
        loop {
            match messages.recv_timeout(PATIENCE) {
                Ok(message) => {
                    if !taker.take(message) {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                taker.kill();
            }
        }
        // Whoever tells hears that nobody takes any more.
        drop(messages);
        taker.writers.into_iter().for_each(Writers::end);
        self.lock().over = true;
        self.more.notify_all();
    }

    /// Lets `work` have the next message, and the words of its buffer if they are not there any more; nothing if there is none for this
    /// reader.
    pub(super) fn read<T>(
        &self,
        reader: Reader,
        desk: &mut Desk,
        work: impl FnOnce(&Message, Option<&[u8]>) -> T,
    ) -> io::Result<Option<T>> {
        let Some((entry, at)) = self.next(reader) else { return Ok(None) };
        let words = match (at, entry.filling) {
            (At::Spool(stored, len), Some(filling)) => {
                Some(desk.words(self, filling, (&stored, len))?)
            }
            _ => None,
        };
        let done = work(&entry.message, words);
        self.done(&entry, at);
        Ok(Some(done))
    }

    /// The next message, and where its words are; nothing if there is none for this reader.
    fn next(&self, reader: Reader) -> Option<(Entry, At)> {
        let mut state = self.lock();
        loop {
            let sent_away = match reader {
                Reader::Aside => state.over || !state.has_room,
                Reader::Beside => state.over,
                Reader::Behind => state.waiting.is_empty(),
            };
            if sent_away {
                return None;
            }
            let at = |entry: &Entry| match entry.filling {
                Some(filling) => state.fillings.get(&filling).copied().unwrap_or(At::Memory),
                None => At::Memory,
            };
            let first = state.waiting.front().map(at).filter(|at| !matches!(at, At::Under));
            if let Some(at) = first
                && let Some(entry) = state.waiting.pop_front()
            {
                state.read = entry.filling;
                return Some((entry, at));
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A message has been read.
    fn done(&self, entry: &Entry, at: At) {
        let mut state = self.lock();
        state.read = None;
        let Message::Words { buffer, to, last: true, .. } = entry.message else { return };
        state.bytes = state.bytes.saturating_sub(to);
        entry.filling.map(|filling| state.fillings.remove(&filling));
        if matches!(at, At::Memory) {
            state.kept = state.kept.saturating_sub(1);
            state.free.iter().for_each(|free| free.free(buffer));
        }
    }

    /// Puts a full buffer into the spool and gives it back; it stays where it is if there is no room.
    fn write(&self, pen: &mut Pen, room: &mut Aligned, (number, full): (u64, Full), hurry: Hurry) {
        let Full { filling, buffer, thread, len } = full;
        // No buffer ends within a page.
        let whole = (len as usize).next_multiple_of(PAGE as usize);
        let bytes = &mut room.with_room(whole)[..whole];
        let label = Label { numbers: [0, thread, buffer], len };
        let read = self.pool.read(self.pool.layout().buffer(buffer), bytes);
        let stored = if read { pen.put(number, label, bytes, hurry).ok() } else { None };
        let mut state = self.lock();
        match stored {
            Some(stored) => {
                state.fillings.insert(filling, At::Spool(stored, len));
                state.spooled += len;
                state.free.iter().for_each(|free| free.free(buffer));
            }
            None => {
                state.fillings.insert(filling, At::Memory);
                state.has_room = false;
                state.kept += 1;
            }
        }
        drop(state);
        self.more.notify_all();
    }
}

/// A full buffer on its way to the spool.
#[derive(Clone, Copy, Debug)]
struct Full {
    filling: u64,
    buffer: u32,
    thread: u32,
    len: u64,
}

/// Who takes what the tracer tells.
struct Taker {
    backlog: Arc<Backlog>,
    /// Where the spool goes, as long as there is none.
    place: Option<Place>,
    /// The fillings of buffers into which threads store.
    open: HashMap<u32, u64>,
    /// The number of the next one.
    next: u64,
    writers: Option<Writers<Full>>,
    /// The processes of threads that live.
    alive: HashMap<u32, u32>,
}

impl Taker {
    /// Takes a message; no if nobody reads.
    fn take(&mut self, message: Message) -> bool {
        match &message {
            Message::Start { thread, start, .. } => drop(self.alive.insert(*thread, start.os_pid)),
            Message::End { thread, .. } => drop(self.alive.remove(thread)),
            _ => {}
        }
        let filling = self.filling(&message);
        let backlog = Arc::clone(&self.backlog);
        let mut state = backlog.lock();
        if state.free.is_none() {
            return false;
        }
        if let (Some(filling), &Message::Words { thread, buffer, to: len, last, .. }) =
            (filling, &message)
        {
            state.bytes += if last { len } else { 0 };
            let full = Full { filling, buffer, thread, len };
            let at = match last && self.goes_to_disk(&mut state, filling) {
                true => At::Under,
                false => At::Memory,
            };
            state.fillings.insert(filling, at);
            match at {
                At::Under => self.writers.iter_mut().for_each(|writers| writers.give(full)),
                _ => state.kept += u32::from(last),
            }
        }
        state.waiting.push_back(Entry { message, filling });
        drop(state);
        backlog.more.notify_all();
        true
    }

    /// Ends the program.
    fn kill(&self) {
        for pid in self.alive.values() {
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            // One that is gone needs no killing.
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
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

    /// Whether a buffer that has just been filled goes to disk; if it is the first, the spool is made.
    fn goes_to_disk(&mut self, state: &mut State, filling: u64) -> bool {
        let kept = self.backlog.pool.layout().buffers / KEPT;
        if state.kept < kept || !state.has_room || state.read == Some(filling) {
            return false;
        }
        if let Some(place) = self.place.take() {
            let begun = self.begin(&place);
            if let Ok((file, hidden)) = begun {
                (state.file, state._hidden) = (Some(file), Some(hidden));
            }
        }
        state.has_room = self.writers.is_some();
        state.has_room
    }

    fn begin(&mut self, place: &Place) -> io::Result<(Bytes, Hidden)> {
        let spool = Spool::create(&place.path, &[], place.limit)?;
        let file = Bytes::open(&place.path);
        let writers = Writers::start(&spool, 0, || {
            let (backlog, mut room) = (Arc::clone(&self.backlog), Aligned::default());
            move |pen: &mut Pen, number, full, hurry| {
                backlog.write(pen, &mut room, (number, full), hurry);
            }
        });
        let hidden = spool.hide()?;
        let file = file?;
        self.writers = writers;
        Ok((file, hidden))
    }
}

/// What a reader has before it.
#[derive(Default)]
pub(super) struct Desk {
    file: Option<Bytes>,
    /// The filling that was read last from the spool.
    filling: Option<u64>,
    words: Vec<u8>,
}

impl Desk {
    fn words(
        &mut self,
        backlog: &Backlog,
        filling: u64,
        (stored, len): (&Stored, u64),
    ) -> io::Result<&[u8]> {
        if self.filling != Some(filling) {
            let mut file = match self.file.take() {
                Some(file) => file,
                None => {
                    let file = backlog.lock().file.take();
                    file.ok_or_else(|| io::Error::other("the spool is gone"))?
                }
            };
            self.words.clear();
            self.words.extend_from_slice(file.buffer(stored, len)?);
            (self.file, self.filling) = (Some(file), Some(filling));
        }
        Ok(&self.words)
    }
}

#[cfg(test)]
mod tests;
