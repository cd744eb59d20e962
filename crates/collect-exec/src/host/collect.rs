//! Collects until the last process of the tree has ended.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ichnos_base::Sink;
use ichnos_tap::Taken;

use super::channel::Channel;
use super::choice::Clock;
use super::family::Family;
use super::gather::Gather;
use super::launch::{Tracee, end_of};
use super::sifted::Sifted;
use crate::Error;

/// How long to sleep at most before looking whether somebody has ended.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same while somebody is about to end.
const SHORT_PATIENCE: Duration = Duration::from_micros(200);
/// How long a buffer may be on its way from a thread's hands: then the thread has died.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// How long the first program is over before those are spoken of that it left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// Why a collection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError<E> {
    /// The sink failed.
    #[error("the sink failed")]
    Sink(E),
    /// Something else did.
    #[error(transparent)]
    Host(Error),
}

/// What came of a collection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How the first program ended.
    pub status: ExitStatus,
    /// Instructions recorded; about so many if the sink takes what was stored, and counts them itself.
    pub insns: u64,
    /// Bytes that came through the tap.
    pub raw_bytes: u64,
    /// How often a thread had to wait for a free buffer.
    pub waits: u32,
    /// Whether the tree was killed because somebody asked for the end.
    pub stopped: bool,
    /// Whether a spool is left, from which the trace can be made: somebody asked for the end while the rest was read, or for that it be
    /// read later.
    pub left: bool,
}

/// What a caller wants to say and hear during a collection.
pub struct Watch<'a> {
    /// When this is set, whoever lives is killed.
    pub stop: &'a AtomicBool,
    /// Hears once, when the first program has been over for a while, how many processes it left behind.
    pub left_behind: &'a mut dyn FnMut(usize),
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("stop", self.stop).finish_non_exhaustive()
    }
}

impl Tracee {
    /// Runs the program and all that it starts to the end, and gives everything to the sink.
    ///
    /// # Errors
    ///
    /// If the sink fails, or the stream of a thread cannot be understood; the sink has then been given
    /// everything up to there, and its end.
    pub fn collect<S: Sink>(self, sink: &mut S) -> Result<Outcome, CollectError<S::Error>> {
        let watch = Watch { stop: &AtomicBool::new(false), left_behind: &mut |_| () };
        self.collect_watched(sink, watch)
    }

    /// The same, watched.
    ///
    /// # Errors
    ///
    /// As [`Tracee::collect`].
    pub fn collect_watched<S: Sink>(
        mut self,
        sink: &mut S,
        watch: Watch<'_>,
    ) -> Result<Outcome, CollectError<S::Error>> {
        let channel = self.channel();
        channel.use_few();
        let sifted = self.sieve().map(|sieve| Sifted::new(Arc::clone(&channel), sieve));
        let mut gather = Gather::new(sink, sifted);
        let mut run = Run::new(Arc::clone(&channel), watch);
        let taken = run.until_the_end(&mut self, |channel, taken| {
            gather.buffer(taken, channel.bytes(taken.index, taken.len))?;
            channel.free(taken.index, taken.len);
            Ok(())
        });
        let failed = |source| CollectError::Host(Error::Channel { source });
        if taken.is_err() {
            run.family.kill();
        }
        let status = self.wait().map_err(failed)?;
        let finished = gather.finish(end_of(status));
        // What went wrong first says why.
        taken.and(finished)?;
        let waits = channel.header().waits.load(Ordering::Relaxed);
        let (insns, raw_bytes, stopped) = (gather.insns(), run.raw_bytes, run.stopped);
        Ok(Outcome { status, insns, raw_bytes, waits, stopped, left: false })
    }

    /// Runs the program and all that it starts to the end, takes what they store and drops it: what
    /// collection costs without anybody looking. No instruction is counted.
    ///
    /// # Errors
    ///
    /// What the system says about the program's end.
    pub fn drain(mut self, watch: Watch<'_>) -> Result<Outcome, Error> {
        let channel = self.channel();
        let mut run = Run::new(Arc::clone(&channel), watch);
        run.until_the_end(&mut self, |channel, taken| {
            channel.free_unseen(taken.index);
            Ok::<_, Error>(())
        })?;
        let status = self.wait().map_err(|source| Error::Channel { source })?;
        let waits = channel.header().waits.load(Ordering::Relaxed);
        let (raw_bytes, stopped) = (run.raw_bytes, run.stopped);
        Ok(Outcome { status, insns: 0, raw_bytes, waits, stopped, left: false })
    }
}

/// A collection on its way.
pub struct Run<'a> {
    channel: Arc<Channel>,
    watch: Watch<'a>,
    /// When this is set, whoever lives is killed: what they do can no longer be kept.
    pub failed: Option<Arc<AtomicBool>>,
    /// The processes of the tree.
    pub family: Family,
    ticket: u64,
    /// Since when the next ticket is missing though later ones are there.
    missing: Option<Instant>,
    /// Bytes that came through the tap.
    pub raw_bytes: u64,
    /// Whether somebody asked for the end.
    pub stopped: bool,
}

impl<'a> Run<'a> {
    /// Nothing taken yet.
    pub fn new(channel: Arc<Channel>, watch: Watch<'a>) -> Self {
        let family = Family::default();
        let (ticket, missing, raw_bytes) = (0, None, 0);
        Self { channel, watch, failed: None, family, ticket, missing, raw_bytes, stopped: false }
    }

    /// Gives every buffer to `each`, which frees it, until nobody lives.
    pub fn until_the_end<E>(
        &mut self,
        tracee: &mut Tracee,
        mut each: impl FnMut(&Channel, &Taken) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut over = None;
        let (mut ends, mut ending) = (0, None);
        let mut clock = Clock::new(tracee.choice());
        loop {
            clock.look(&self.channel);
            let seen = self.channel.header().doorbell.load(Ordering::Acquire);
            let (mut alive, mut looked) = (self.family.look(&self.channel), Instant::now());
            while let Some(taken) = self.next(alive) {
                self.raw_bytes += taken.len;
                each(&self.channel, &taken)?;
                // A program may fill buffers as fast as they are emptied, and need the places of processes that have ended.
                self.heed_stop();
                if looked.elapsed() > PATIENCE {
                    (alive, looked) = (self.family.look(&self.channel), Instant::now());
                }
            }
            let said = self.channel.header().ends.load(Ordering::Relaxed);
            if said != ends {
                (ends, ending) = (said, Some(Instant::now()));
            }
            if alive == 0 {
                return Ok(());
            }
            if over.is_none() && tracee.has_ended() {
                over = Some(Instant::now());
            }
            if over.is_some_and(|since: Instant| since.elapsed() > LEFT_BEHIND) {
                (self.watch.left_behind)(alive);
                over = Some(Instant::now() + Duration::from_secs(u32::MAX.into()));
            }
            self.heed_stop();
            let soon = ending.is_some_and(|since: Instant| since.elapsed() < PATIENCE);
            let patience = if soon { SHORT_PATIENCE } else { PATIENCE };
            self.channel.sleep(seen, patience);
        }
    }

    /// Ends the program once somebody says so.
    fn heed_stop(&mut self) {
        if self.watch.stop.load(Ordering::Relaxed) {
            self.stopped = true;
            self.family.kill();
        }
        if self.failed.as_ref().is_some_and(|failed| failed.load(Ordering::Acquire)) {
            self.family.kill();
        }
    }

    /// The next full buffer. A thread that dies between taking a ticket and saying so leaves a hole.
    fn next(&mut self, alive: usize) -> Option<Taken> {
        let header = self.channel.header();
        loop {
            if let Some(taken) = header.next_full(self.ticket) {
                self.ticket += 1;
                self.missing = None;
                return Some(taken);
            }
            if header.tickets.load(Ordering::Acquire) <= self.ticket {
                self.missing = None;
                return None;
            }
            let since = *self.missing.get_or_insert_with(Instant::now);
            if alive != 0 && since.elapsed() < ON_ITS_WAY {
                return None;
            }
            self.ticket += 1;
            self.missing = None;
        }
    }
}
