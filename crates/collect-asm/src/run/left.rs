//! The trace of a recording that left all in its spool.
//!
//! What was told lies between the buffers that it is about, so where those are is found first. A recording that was killed left
//! buffers in memory that is gone: a thread's story ends before the first of its words that are missing, and the others go on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

use ichnos_base::{GapReason, Sink};
use ichnos_rt::Clock;
use ichnos_spool::{Found, Label, Left as Spool, Stored};
use rustix::fs::{MemfdFlags, memfd_create};

use super::Config;
use super::backlog::{FILE, NOTES, WORDS};
use super::collect::{Collector, Result as Read};
use super::journal::{Flaw, Note, Reader};
use super::message::Message;
use crate::{Error, RecordError};

/// A spool that a recording left behind.
pub struct Left {
    spool: Spool,
}

/// What came of making the trace of such a spool.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Packed {
    /// How the first program ended; nothing if the recording did not see it, so that what came last is missing.
    pub status: Option<ExitStatus>,
    /// Instructions recorded.
    pub insns: u64,
    /// Whether somebody asked for the end.
    pub stopped: bool,
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Left").finish_non_exhaustive()
    }
}

/// Where everything is in a spool.
#[derive(Default)]
struct Index {
    notes: Vec<(Label, Stored)>,
    fillings: HashMap<u64, (Label, Stored)>,
    files: HashMap<u32, (Label, Stored)>,
    status: Option<ExitStatus>,
    /// Bytes of all words.
    len: u64,
}

impl Left {
    /// Such a spool, which nobody has read anything from.
    #[must_use]
    pub const fn new(spool: Spool) -> Self {
        Self { spool }
    }

    /// What [`Later`](super::Reads::Later) said.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        self.spool.note()
    }

    /// Gives all that is in it to a sink that has begun, until `stop` is set; `progress` hears how many bytes have been read, and how many
    /// there are.
    ///
    /// # Errors
    ///
    /// As [`record`](super::record), or if what lies in the spool makes no sense.
    pub fn pack<S: Sink>(
        &mut self,
        sink: &mut S,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Packed, RecordError<S::Error>> {
        let index = self.index().map_err(spool)?;
        let mut packing = Packing {
            spool: &mut self.spool,
            notes: Reader::new(),
            lost: HashSet::new(),
            read: (None, Vec::new()),
            done: 0,
            index: &index,
        };
        let mut waiting = packing.notes_of(0)?;
        let clock = packing.begin(&mut waiting)?;
        let config = Config::new("", []);
        let mut collector = Collector::new(sink, None, (&config, clock));
        let mut told = Ok(Told::All);
        for nth in 0.. {
            let mut notes = waiting.as_slice();
            told = packing.tell(&mut notes, &mut collector, (stop, progress));
            if nth + 1 >= index.notes.len() || !matches!(told, Ok(Told::All)) {
                break;
            }
            waiting = packing.notes_of(nth + 1)?;
        }
        let stopped = matches!(told, Ok(Told::Stopped));
        if stopped || index.status.is_none() || told.is_err() {
            let reason = if stopped { GapReason::Overflow } else { GapReason::Damage };
            collector.break_off(reason)?;
        }
        let insns = collector.finish()?;
        told?;
        Ok(Packed { status: index.status, insns, stopped })
    }

    fn index(&mut self) -> io::Result<Index> {
        let mut index = Index::default();
        loop {
            match self.spool.find()? {
                Found::Buffer(label, stored) => match label.numbers {
                    [WORDS, low, high] => {
                        let filling = u64::from(low) | u64::from(high) << 32;
                        index.fillings.insert(filling, (label, stored));
                        index.len += label.len;
                    }
                    [FILE, number, _] => drop(index.files.insert(number, (label, stored))),
                    [NOTES, ..] => index.notes.push((label, stored)),
                    _ => {}
                },
                Found::End(status) => {
                    index.status = Some(status);
                    return Ok(index);
                }
                Found::Cut => return Ok(index),
            }
        }
    }
}

/// How far telling went.
enum Told {
    /// All notes were told.
    All,
    /// Somebody asked for the end.
    Stopped,
    /// The sink wants no more.
    Enough,
}

/// A trace that is being made.
struct Packing<'i> {
    spool: &'i mut Spool,
    notes: Reader,
    /// The threads of which nothing more is told.
    lost: HashSet<u32>,
    /// The filling that was read last, and its words.
    read: (Option<u64>, Vec<u8>),
    done: u64,
    index: &'i Index,
}

impl Packing<'_> {
    /// Some notes; none if there are not so many.
    fn notes_of<E>(&mut self, nth: usize) -> Result<Vec<u8>, RecordError<E>> {
        match self.index.notes.get(nth) {
            Some((label, stored)) => Ok(self.spool.read(label, stored).map_err(spool)?.to_vec()),
            None => Ok(Vec::new()),
        }
    }

    /// Reads the first note; of a recording that was killed before it said anything, there is none.
    fn begin<E>(&mut self, notes: &mut Vec<u8>) -> Result<Clock, RecordError<E>> {
        if notes.is_empty() {
            return Ok(Clock::start());
        }
        let mut rest = notes.as_slice();
        let first = self.notes.next(&mut rest, |_| None::<&Path>).map_err(flawed)?;
        let Some(Note::Begin(clock)) = first else { return Err(flawed(Flaw::Damaged)) };
        *notes = rest.to_vec();
        Ok(clock)
    }

    /// Tells the collector what notes say.
    fn tell<S: Sink>(
        &mut self,
        notes: &mut &[u8],
        collector: &mut Collector<'_, S>,
        (stop, progress): (&AtomicBool, &mut dyn FnMut(u64, u64)),
    ) -> Read<Told, S::Error> {
        loop {
            let Self { spool, index, .. } = self;
            let mut flaw = None;
            let file =
                |number| file_of(spool, (index, number)).map_err(|error| flaw = Some(error)).ok();
            let note = self.notes.next(notes, file);
            if let Some(source) = flaw {
                return Err(Error::Spool { source }.into());
            }
            let (message, filling) = match note.map_err(flawed)? {
                Some(Note::Message(message, filling)) => (message, filling),
                Some(Note::Begin(_)) => return Err(flawed(Flaw::Damaged)),
                None => return Ok(Told::All),
            };
            if stop.load(Ordering::Relaxed) {
                return Ok(Told::Stopped);
            }
            if !self.message(&message, filling, collector)? {
                return Ok(Told::Enough);
            }
            progress(self.done, self.index.len);
        }
    }

    /// Tells the collector a message, with its words; whether to go on.
    fn message<S: Sink>(
        &mut self,
        message: &Message,
        filling: Option<u64>,
        collector: &mut Collector<'_, S>,
    ) -> Read<bool, S::Error> {
        // What it loaded is its process's.
        let is_own = !matches!(message, Message::Library { .. });
        if is_own && message.thread().is_some_and(|thread| self.lost.contains(&thread)) {
            return Ok(true);
        }
        let Some(filling) = filling else { return collector.message(message, None) };
        let Some((label, stored)) = self.index.fillings.get(&filling) else {
            let thread = message.thread().unwrap_or(0);
            self.lost.insert(thread);
            collector.lose(thread, GapReason::Damage)?;
            return Ok(true);
        };
        let (read, words) = &mut self.read;
        if *read != Some(filling) {
            words.clear();
            words.extend_from_slice(self.spool.read(label, stored).map_err(spool)?);
            *read = Some(filling);
        }
        if message.emptied().is_some() {
            self.done += label.len;
        }
        collector.message(message, Some(words))
    }
}

/// A file in memory, which has a path as long as it is held.
struct Kept {
    _file: File,
    path: PathBuf,
}

impl AsRef<Path> for Kept {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// The file of the copy with a number.
fn file_of(spool: &mut Spool, (index, number): (&Index, u32)) -> io::Result<Kept> {
    let gone = || io::Error::new(io::ErrorKind::InvalidData, "a program's file is missing");
    let (label, stored) = index.files.get(&number).ok_or_else(gone)?;
    let mut file = File::from(memfd_create("image", MemfdFlags::CLOEXEC)?);
    file.write_all(spool.read(label, stored)?)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    Ok(Kept { _file: file, path })
}

fn spool<E>(source: io::Error) -> RecordError<E> {
    Error::Spool { source }.into()
}

fn flawed<E>(flaw: Flaw) -> RecordError<E> {
    match flaw {
        Flaw::Damaged => Error::Notes { why: "they make no sense" },
        Flaw::Differs => Error::Notes { why: "a program's copy is not the one that was recorded" },
        Flaw::Copy(error) => error,
    }
    .into()
}
