//! Collecting by way of a spool: the program never waits for whoever makes the trace, as long as there is room.
//!
//! While the program lives, one thread takes full buffers and puts them into the backlog, and another one, whose priority is low, makes
//! the trace of them. When the program has ended, the first thread makes the rest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ichnos_base::{GapReason, Sink};
use ichnos_spool::{Label, Left, Next, aside, remove};
use ichnos_tap::{BufferKind, Taken};

use super::backlog::{Backlog, Place, Reader, Taker, When};
use super::collect::{CollectError, Outcome, Run, Watch};
use super::gather::Gather;
use super::launch::{Tracee, end_of};
use crate::Error;

/// Who hears of a program's end, and may fail at it.
type Ended<'a, S> = &'a mut dyn FnMut(&mut S, ExitStatus) -> Result<(), <S as Sink>::Error>;

/// How a collection by way of a spool goes on.
pub struct Spooling<'a, S: Sink> {
    /// Where the spool goes.
    pub place: Place,
    /// When what lies there is read.
    pub when: When,
    /// Hears that the program waits from now on for what was told to the sink, and who tells it does not stand back any more.
    pub hurried: &'a mut (dyn FnMut(&mut S) + Send),
    /// Hears that the program has ended like this, and has the sink to itself.
    pub ended: Ended<'a, S>,
    /// Hears how many bytes of those that were left at the end have been read, and how many there were.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

impl<S: Sink> std::fmt::Debug for Spooling<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spooling").field("place", &self.place).finish_non_exhaustive()
    }
}

type Read<S> = Result<Option<u64>, CollectError<<S as Sink>::Error>>;

impl Tracee {
    /// As [`Tracee::collect_watched`], but the program does not wait for the sink while there is room in a spool. If somebody asks for the end
    /// after the program's own, what was told is finished and the spool is left. It is also left, and the sink is told nothing, if it is to be
    /// read later, and held all at the end.
    ///
    /// # Errors
    ///
    /// As [`Tracee::collect`]; a spool that holds all from the beginning is left then.
    pub fn collect_spooled<S>(
        self,
        sink: &mut S,
        watch: Watch<'_>,
        spooling: Spooling<'_, S>,
    ) -> Result<Outcome, CollectError<S::Error>>
    where
        S: Sink + Send,
        S::Error: Send,
    {
        let (outcome, spool) = self.collect_and_leave(sink, watch, spooling)?;
        // Now that nobody has it open.
        if let Some(path) = spool {
            let _ = remove(&path);
        }
        Ok(outcome)
    }

    /// The same, but answers with the spool, if there is one that is not needed any more.
    fn collect_and_leave<S>(
        mut self,
        sink: &mut S,
        watch: Watch<'_>,
        spooling: Spooling<'_, S>,
    ) -> Result<(Outcome, Option<PathBuf>), CollectError<S::Error>>
    where
        S: Sink + Send,
        S::Error: Send,
    {
        let Spooling { place, when, hurried, ended, progress } = spooling;
        let (channel, stop) = (self.channel(), watch.stop);
        let backlog = Arc::new(Backlog::new(Arc::clone(&channel), when));
        let mut run = Run::new(Arc::clone(&channel), watch);
        run.failed = Some(backlog.failed());
        let mut taker = Taker::new(Arc::clone(&backlog), place);
        let gather = Gather::new(sink, None);
        let (read, status) = thread::scope(|scope| {
            let reader = scope.spawn(|| read_beside(gather, &backlog, hurried));
            let Ok(()) = run.until_the_end(&mut self, |_, taken| {
                taker.take(taken);
                Ok::<_, Infallible>(())
            });
            let status = self.wait();
            taker.end(status.as_ref().ok().copied());
            let left = backlog.end();
            (reader.join().map(|(gather, read)| (gather, read.map(|()| left))), status)
        });
        let failed = |source| CollectError::Host(Error::Channel { source });
        let status = status.map_err(failed)?;
        let (mut gather, read) =
            read.map_err(|_| failed(std::io::Error::other("the reader panicked")))?;
        let heard = ended(gather.sink(), status).map_err(CollectError::Sink);
        let rest = read.and_then(|all| heard.map(|()| all)).and_then(|all| {
            // Whoever interrupted the program wants its trace; who interrupts now does not.
            let later = AtomicBool::new(when == When::Later);
            let stop = if run.stopped || when == When::Later { &later } else { stop };
            read_behind(&mut gather, &backlog, stop, &mut |done| progress(done, all))
        });
        let left = matches!(rest, Ok(Rest::Left));
        let finished = match left {
            true if when == When::Later => Ok(()),
            true => gather.break_off(GapReason::Overflow),
            false => gather.finish(end_of(status)),
        };
        // What went wrong first says why.
        rest.and(finished)?;
        let spool = backlog.any_spool().filter(|_| !left);
        let waits = channel.header().waits.load(Ordering::Relaxed);
        let (insns, raw_bytes, stopped) = (gather.insns(), run.raw_bytes, run.stopped);
        Ok((Outcome { status, insns, raw_bytes, waits, stopped, left }, spool))
    }
}

/// Reads while the program lives: as long as that need not wait, at the lowest priority.
fn read_beside<'s, S>(
    gather: Gather<'s, S>,
    backlog: &Backlog,
    hurried: &mut (dyn FnMut(&mut S) + Send),
) -> (Gather<'s, S>, Result<(), CollectError<S::Error>>)
where
    S: Sink + Send,
    S::Error: Send,
{
    let (mut gather, read) = aside(|| read_all(gather, backlog, Reader::aside()));
    if read.is_err() || backlog.is_over() {
        return (gather, read);
    }
    hurried(gather.sink());
    read_all(gather, backlog, Reader::beside())
}

/// Reads as long as there is something for this reader.
fn read_all<'s, S: Sink>(
    mut gather: Gather<'s, S>,
    backlog: &Backlog,
    mut reader: Reader,
) -> (Gather<'s, S>, Result<(), CollectError<S::Error>>) {
    loop {
        match read_one(&mut gather, backlog, &mut reader) {
            Ok(Some(_)) => {}
            Ok(None) => return (gather, Ok(())),
            Err(error) => return (gather, Err(error)),
        }
    }
}

/// What became of the rest.
enum Rest {
    /// It was read.
    Read,
    /// It is left in the spool.
    Left,
}

/// Reads what is left when the program has ended.
fn read_behind<S: Sink>(
    gather: &mut Gather<'_, S>,
    backlog: &Backlog,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Rest, CollectError<S::Error>> {
    let (mut reader, mut done) = (Reader::behind(), 0);
    loop {
        if stop.load(Ordering::Relaxed) && backlog.spool().is_some() {
            return Ok(Rest::Left);
        }
        match read_one(gather, backlog, &mut reader)? {
            Some(len) => done += len,
            None => return Ok(Rest::Read),
        }
        progress(done);
    }
}

fn read_one<S: Sink>(
    gather: &mut Gather<'_, S>,
    backlog: &Backlog,
    reader: &mut Reader,
) -> Read<S> {
    reader.read(backlog, |taken, bytes, opened| {
        if let Some(opened) = opened {
            gather.images().add(opened);
        }
        let path = || backlog.any_spool().unwrap_or_default().display().to_string();
        let spool = |source| CollectError::Host(Error::Spool { path: path(), source });
        gather.buffer(taken, bytes.map_err(spool)?)
    })
}

/// A spool that a collection left behind.
pub struct Spooled {
    left: Left,
    path: PathBuf,
}

/// What came of making the trace of such a spool.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Packed {
    /// How the first program ended; nothing if the collection did not see it, so that what came last is missing.
    pub status: Option<ExitStatus>,
    /// Instructions recorded, as [`Outcome::insns`].
    pub insns: u64,
    /// Whether somebody asked for the end.
    pub stopped: bool,
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spooled").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Spooled {
    /// Opens a spool.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no spool of this version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let left = Left::open(path)
            .map_err(|source| Error::Spool { path: path.display().to_string(), source })?;
        Ok(Self { left, path: path.to_owned() })
    }

    /// The note that [`Place::note`] was.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        self.left.note()
    }

    /// The spool itself, for whoever's it is if it is not one of ours.
    #[must_use]
    pub fn into_spool(self) -> Left {
        self.left
    }

    /// Gives all that is in it to a sink, until `stop` is set; `progress` hears how many bytes have been read, and how many there are. Nobody
    /// else can open it as long as this one is there, so it can be removed before anybody packs it again.
    ///
    /// # Errors
    ///
    /// As [`Tracee::collect`].
    pub fn pack<S: Sink>(
        &mut self,
        sink: &mut S,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Packed, CollectError<S::Error>> {
        let mut gather = Gather::new(sink, None);
        let path = self.path.display().to_string();
        let spool = |source| CollectError::Host(Error::Spool { path: path.clone(), source });
        let read = loop {
            if stop.load(Ordering::Relaxed) {
                break Ok(None);
            }
            let read = self.left.next_entry().map_err(spool).and_then(|next| match next {
                Next::Buffer(label, bytes) => gather.buffer(&of(label), bytes).map(|()| None),
                Next::End(status) => Ok(Some(Some(status))),
                Next::Cut => Ok(Some(None)),
            });
            match read {
                Ok(None) => {}
                end => break end,
            }
            let (done, all) = self.left.place();
            progress(done, all);
        };
        let status = match &read {
            Ok(Some(Some(status))) => Some(*status),
            _ => None,
        };
        let stopped = matches!(read, Ok(None));
        let finished = match status {
            Some(status) => gather.finish(end_of(status)),
            None if stopped => gather.break_off(GapReason::Overflow),
            None => gather.break_off(GapReason::Damage),
        };
        // What went wrong first says why.
        read.and(finished)?;
        Ok(Packed { status, insns: gather.insns(), stopped })
    }
}

/// The buffer that got this label.
const fn of(label: Label) -> Taken {
    let [kind, thread, process] = label.numbers;
    let (index, kind) = (0, BufferKind(kind));
    Taken { index, kind, thread, process, len: label.len, noted: false }
}
