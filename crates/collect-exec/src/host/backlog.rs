//! Between the program and the making of its trace: full buffers that nobody has read yet.
//!
//! The first few stay where they are, in the tap, also when they have been read: memory first. Once there are more, all go to a spool
//! on disk, those from the beginning too, so that the spool holds the whole run and the trace can be made from it again whatever
//! happens. When the spool is full, or there can be none, buffers wait in the tap to be read, and then the program waits.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ichnos_spool::{Bytes, Hurry, Label, PAGE, Pen, Spool, Stored, Writers};
use ichnos_tap::Taken;

use super::channel::Channel;
use super::images::Images;

/// How many buffers stay in memory before there is a file.
const KEPT: usize = 64;

/// Where the spool goes, if one is needed.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The most bytes it may have; none at all if this is zero.
    pub limit: u64,
    /// What is put at its head for whoever makes the trace later.
    pub note: Vec<u8>,
}

/// When what lies in the backlog is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum When {
    /// Also while the program lives, when there is time.
    #[default]
    Beside,
    /// When somebody asks for it: while the program lives only if there is no more room. What fits into memory is read at the end.
    Later,
}

/// The backlog: who takes buffers from the program appends to it, who reads them takes from it.
pub struct Backlog {
    channel: Arc<Channel>,
    state: Mutex<State>,
    more: Condvar,
    /// Whoever reads has failed.
    failed: Arc<AtomicBool>,
    when: When,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// What is being read.
    read: Option<Entry>,
    /// What was read and stays in the tap.
    kept: Vec<Taken>,
    mode: Mode,
    /// Files that were opened early.
    opened: Option<Images>,
    /// The program has ended.
    over: bool,
}

#[derive(Clone, PartialEq, Eq, Default)]
enum Mode {
    /// All from the beginning is in the tap.
    #[default]
    Kept,
    /// All from the beginning is in the file.
    Spooled(PathBuf),
    /// The file holds the beginning only.
    Full(PathBuf),
    /// There is no file.
    Direct,
}

/// A buffer, and where it is.
#[derive(Clone, Copy)]
struct Entry {
    taken: Taken,
    at: At,
}

/// Where a buffer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// In the tap.
    Tap,
    /// On its way to the spool, in which it has this number.
    Under(u64),
    /// In the spool.
    Spool(Stored),
}

impl Backlog {
    /// An empty one.
    pub fn new(channel: Arc<Channel>, when: When) -> Self {
        let (state, more) = (Mutex::default(), Condvar::new());
        Self { channel, state, more, failed: Arc::default(), when }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Set when whoever reads has failed.
    pub fn failed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.failed)
    }

    /// Says that the program has ended: nothing more comes. How many bytes wait.
    pub fn end(&self) -> u64 {
        let mut state = self.lock();
        state.over = true;
        self.more.notify_all();
        state.waiting.iter().map(|entry| entry.taken.len).sum()
    }

    /// The spool, if it holds all from the beginning.
    pub fn spool(&self) -> Option<PathBuf> {
        match &self.lock().mode {
            Mode::Spooled(path) => Some(path.clone()),
            _ => None,
        }
    }

    /// The spool, if it holds the beginning.
    pub fn any_spool(&self) -> Option<PathBuf> {
        match &self.lock().mode {
            Mode::Spooled(path) | Mode::Full(path) => Some(path.clone()),
            _ => None,
        }
    }

    /// Whether the program has ended.
    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// The next buffer to read. While the program lives, readers wait for one; they are sent away when the program has ended, and the
    /// one who stands aside already when there is no room any more. The last one takes what is there.
    fn next(&self, reader: &Reader) -> Option<(Entry, Option<Images>)> {
        let mut state = self.lock();
        loop {
            let has_room = state.has_room();
            if (reader.waits && state.over) || (reader.stands_aside && !has_room) {
                return None;
            }
            let rests = reader.stands_aside && self.when == When::Later;
            let ready = state.waiting.front().is_some_and(|e| !matches!(e.at, At::Under(_)));
            if ready
                && !rests
                && let Some(entry) = state.waiting.pop_front()
            {
                state.read = Some(entry);
                return Some((entry, state.opened.take()));
            }
            if !reader.waits && state.waiting.is_empty() {
                return None;
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts a buffer into the spool and gives it back.
    fn write(&self, pen: &mut Pen, (number, taken): (u64, &Taken), hurry: Hurry) {
        let stored = pen.put(number, label(taken), pages(&self.channel, taken), hurry).ok();
        if stored.is_some() {
            self.channel.free(taken.index, taken.len);
        }
        self.lock().written(number, stored);
        self.more.notify_all();
    }

    /// A buffer has been read.
    fn done(&self, entry: &Entry) {
        let mut state = self.lock();
        state.read = None;
        if entry.at == At::Tap {
            if state.mode == Mode::Kept {
                state.kept.push(entry.taken);
                return;
            }
            drop(state);
            self.channel.free(entry.taken.index, entry.taken.len);
            return;
        }
        state.retire();
    }
}

impl State {
    /// Whether there may be room for more, so that the program need not wait.
    const fn has_room(&self) -> bool {
        matches!(self.mode, Mode::Kept | Mode::Spooled(_))
    }

    /// Once all that is in a full spool was read, it is of no use: the trace holds more.
    fn retire(&mut self) {
        let mut unread = self.read.iter().chain(&self.waiting);
        if let Mode::Full(path) = &self.mode
            && !unread.any(|entry| entry.at != At::Tap)
        {
            let _ = std::fs::remove_file(path);
            self.mode = Mode::Direct;
        }
    }
}

/// Who takes buffers from the program.
pub struct Taker {
    backlog: Arc<Backlog>,
    place: Place,
    /// Nobody else may touch it before it was read.
    spool: Option<Arc<Spool>>,
    writers: Option<Writers<Taken>>,
    opened: Images,
}

impl Taker {
    /// Nothing taken yet.
    pub fn new(backlog: Arc<Backlog>, place: Place) -> Self {
        if place.limit == 0 {
            backlog.lock().mode = Mode::Direct;
            backlog.channel.use_few();
        }
        let opened = Images::default();
        Self { backlog, place, spool: None, writers: None, opened }
    }

    /// Takes a full buffer over.
    pub fn take(&mut self, taken: &Taken) {
        let backlog = Arc::clone(&self.backlog);
        if taken.noted {
            self.opened.open_early(backlog.channel.bytes(taken.index, taken.len));
        }
        let mut state = backlog.lock();
        if taken.noted {
            let opened = std::mem::take(&mut self.opened);
            state.opened.get_or_insert_default().add(opened);
        }
        let spooled = matches!(state.mode, Mode::Spooled(_));
        let writers = self.writers.as_mut().filter(|_| spooled);
        let at = writers.as_ref().map_or(At::Tap, |writers| At::Under(writers.next()));
        state.waiting.push_back(Entry { taken: *taken, at });
        writers.into_iter().for_each(|writers| writers.give(*taken));
        if state.mode == Mode::Kept && state.kept.len() + state.waiting.len() >= KEPT {
            let begun = begin_spool(&backlog.channel, &self.place, &mut state);
            if let Some((spool, count)) = begun {
                self.writers = Writers::start(&spool, count, || {
                    let backlog = Arc::clone(&backlog);
                    move |pen: &mut Pen, number, taken, hurry| {
                        backlog.write(pen, (number, &taken), hurry);
                    }
                });
                self.spool = Some(spool);
            }
        }
        drop(state);
        backlog.more.notify_all();
    }

    /// The program has ended, the first process like this.
    pub fn end(&mut self, status: Option<ExitStatus>) {
        self.writers.take().into_iter().for_each(Writers::end);
        if let (Some(spool), Some(status)) = (&self.spool, status)
            && self.backlog.spool().is_some()
        {
            // Without it, who reads it later does not know the end.
            let _ = spool.end(status);
        }
    }
}

impl State {
    /// A buffer is in the spool, or could not be put there and stays in the tap.
    fn written(&mut self, number: u64, stored: Option<Stored>) {
        let under = |entry: &&mut Entry| entry.at == At::Under(number);
        if let Some(entry) = self.waiting.iter_mut().rev().find(under) {
            entry.at = stored.map_or(At::Tap, At::Spool);
        }
        if stored.is_none() {
            self.fill();
        }
    }

    /// The spool takes no more.
    fn fill(&mut self) {
        if let Mode::Spooled(path) = &self.mode {
            self.mode = Mode::Full(path.clone());
            self.retire();
        }
    }
}

/// Puts all that is kept in memory into a new file, and says how many buffers it holds then; nothing if that cannot be.
fn begin_spool(channel: &Channel, place: &Place, state: &mut State) -> Option<(Arc<Spool>, u64)> {
    let spool = Spool::create(&place.path, &place.note, place.limit).ok();
    let (mut pen, mut count) = (spool.as_ref().map(Spool::pen), 0);
    let mut put = |taken: &Taken| {
        let stored =
            pen.as_mut()?.put(count, label(taken), pages(channel, taken), Hurry::None).ok()?;
        count += 1;
        Some(stored)
    };
    let read = state.read.iter().map(|entry| &entry.taken);
    let whole = state.kept.iter().chain(read).all(|taken| put(taken).is_some());
    let mut full = !whole;
    for entry in state.waiting.iter_mut().take_while(|_| whole) {
        let Some(stored) = put(&entry.taken) else {
            full = true;
            break;
        };
        entry.at = At::Spool(stored);
        channel.free(entry.taken.index, entry.taken.len);
    }
    state.kept.drain(..).for_each(|taken| channel.free(taken.index, taken.len));
    let Some(spool) = spool else {
        state.mode = Mode::Direct;
        channel.use_few();
        return None;
    };
    state.mode = Mode::Spooled(spool.path().to_owned());
    if full {
        state.fill();
    }
    Some((spool, count))
}

/// What a buffer is called in the spool.
const fn label(taken: &Taken) -> Label {
    Label { numbers: [taken.kind.0, taken.thread, taken.process], len: taken.len }
}

/// The bytes of a buffer, up to a page's end.
fn pages<'c>(channel: &'c Channel, taken: &Taken) -> &'c [u8] {
    channel.bytes(taken.index, taken.len.next_multiple_of(PAGE))
}

/// Says that whoever reads has failed, or panicked: nobody waits for it then.
struct Failed<'b>(&'b AtomicBool);

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Who reads buffers: there are three, one while the program lives and need not wait, one while it lives and waits, and one afterwards.
pub struct Reader {
    waits: bool,
    stands_aside: bool,
    file: Option<Bytes>,
}

impl Reader {
    /// Who reads while the program lives and need not wait.
    pub const fn aside() -> Self {
        Self { waits: true, stands_aside: true, file: None }
    }

    /// Who reads while the program lives.
    pub const fn beside() -> Self {
        Self { waits: true, stands_aside: false, file: None }
    }

    /// Who reads what is left.
    pub const fn behind() -> Self {
        Self { waits: false, stands_aside: false, file: None }
    }

    /// Lets `work` have the next buffer; its length, or nothing if there is none for this reader.
    pub fn read<E>(
        &mut self,
        backlog: &Backlog,
        work: impl FnOnce(&Taken, io::Result<&[u8]>, Option<Images>) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let Some((entry, opened)) = backlog.next(self) else { return Ok(None) };
        let taken = &entry.taken;
        let bytes = match entry.at {
            At::Spool(stored) => self.spooled(backlog, &stored, taken.len),
            At::Tap | At::Under(_) => Ok(backlog.channel.bytes(taken.index, taken.len)),
        };
        let failed = Failed(&backlog.failed);
        work(taken, bytes, opened)?;
        std::mem::forget(failed);
        backlog.done(&entry);
        Ok(Some(entry.taken.len))
    }

    fn spooled(&mut self, backlog: &Backlog, stored: &Stored, len: u64) -> io::Result<&[u8]> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let path = backlog.any_spool();
                Bytes::open(&path.ok_or_else(|| io::Error::other("the spool is gone"))?)?
            }
        };
        self.file.insert(file).buffer(stored, len)
    }
}
