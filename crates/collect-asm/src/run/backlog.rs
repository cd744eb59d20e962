//! Between the tracer and the collector: what was told and nobody has read yet, in order.
//!
//! The first full buffers stay in memory. While so many wait there, others go to a file on disk, squeezed, and are given back at
//! once, so that threads do not wait for whoever reads. When the file takes no more, they stay in memory, too, until there are no
//! more free buffers.
//!
//! If the trace is to be made *later*, few stay in memory, and then all go to the file, with what was told of them (`journal.rs`): it says
//! everything then, and is left when the program has ended. Only if the file takes no more is anything read while the program lives.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod taker;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichnos_flow::Level;
use ichnos_rt::{Clock, Pool};
use ichnos_spool::{Aligned, Bytes, Hidden, Hurry, Label, PAGE, Pen, Spool, Stored};

use self::taker::{Much, Taker};
use super::journal::Put;
use super::message::{Buffers, Message};

/// How long nobody looks whether the program is to end.
const PATIENCE: Duration = Duration::from_millis(100);
/// Full buffers stay in memory until they are one in so many of all, if they are read beside the program.
const KEPT: u32 = 2;

/// Where the spool goes, if one is needed.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file. If its buffers are read beside the program, it has no name as soon as it is made.
    pub path: PathBuf,
    /// The most bytes it may have.
    pub limit: u64,
    /// When it is read.
    pub when: Reads,
}

/// When what lies in the spool is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reads {
    /// Also while the program lives.
    Beside,
    /// When somebody asks for it, to whom this note at the file's head says what it is.
    Later(Vec<u8>),
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
    /// Nothing is read while there is room.
    later: bool,
    /// All is in the spool, which is left.
    left: bool,
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
            later: false,
            left: false,
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

    /// Whether all is left in the spool.
    pub(super) fn is_left(&self) -> bool {
        self.lock().left
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
        (place, known): (Place, (Level, Clock)),
        stop: &AtomicBool,
    ) {
        let mut taker = Taker::new(Arc::clone(self), place, known);
        loop {
            match messages.recv_timeout(PATIENCE) {
                Ok(message) => {
                    if !taker.take(message) {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => taker.keep_notes(Much::Enough),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                taker.kill();
            }
        }
        // Whoever tells hears that nobody takes any more.
        drop(messages);
        taker.end();
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
            let rests = reader == Reader::Aside && state.later;
            if let Some(at) = first.filter(|_| !rests)
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

    /// Puts something into the spool.
    fn write(&self, pen: &mut Pen, room: &mut Aligned, (number, job): (u64, Job), hurry: Hurry) {
        let stored = match job {
            Job::Full(full) => return self.write_full(pen, room, (number, full), hurry),
            Job::Put(Put::Notes(notes)) => write_bytes(pen, room, (number, [NOTES, 0, 0]), &notes),
            Job::Put(Put::File(nth, copy)) => copy.source.as_ref().is_some_and(|source| {
                write_bytes(pen, room, (number, [FILE, nth, 0]), &source.file)
            }),
        };
        if !stored {
            self.lock().has_room = false;
            self.more.notify_all();
        }
    }

    /// Puts a full buffer into the spool and gives it back; it stays where it is if there is no room.
    fn write_full(
        &self,
        pen: &mut Pen,
        room: &mut Aligned,
        (number, full): (u64, Full),
        hurry: Hurry,
    ) {
        let Full { filling, buffer, len } = full;
        // No buffer ends within a page.
        let whole = (len as usize).next_multiple_of(PAGE as usize);
        let bytes = &mut room.with_room(whole)[..whole];
        let label = Label { numbers: [WORDS, filling as u32, (filling >> 32) as u32], len };
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

impl State {
    /// Takes the spool's name away. Buffers are still read from it.
    fn hide(&mut self, spool: &Spool) {
        self._hidden = spool.hide().ok();
    }
}

/// A full buffer on its way to the spool.
#[derive(Clone, Copy, Debug)]
struct Full {
    filling: u64,
    buffer: u32,
    len: u64,
}

/// What is on its way to the spool.
enum Job {
    Full(Full),
    Put(Put),
}

/// What an entry of the spool is: a buffer's words, with the number of their filling, notes, or the file of a copy, with its number.
pub(super) const WORDS: u32 = 0;
pub(super) const NOTES: u32 = 1;
pub(super) const FILE: u32 = 2;

/// Puts bytes into the spool; whether they are there.
fn write_bytes(
    pen: &mut Pen,
    room: &mut Aligned,
    (number, numbers): (u64, [u32; 3]),
    bytes: &[u8],
) -> bool {
    let whole = bytes.len().next_multiple_of(PAGE as usize);
    let pages = &mut room.with_room(whole)[..whole];
    pages[..bytes.len()].copy_from_slice(bytes);
    let label = Label { numbers, len: bytes.len() as u64 };
    pen.put(number, label, pages, Hurry::None).is_ok()
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
