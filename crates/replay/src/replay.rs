//! The replay: a stored trace as a [`Source`].
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ichnos_base::{DriveError, Sink, Source, ThreadId};
use ichnos_trace::{Error, Reader, Thread};

use crate::announce::Announcer;
use crate::merge::merge;
use crate::player::{ALL, Flow, PlayError, Player, Window};
use crate::ways::Ways;

/// In which order the threads come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// One thread after the other, by id: the fastest.
    #[default]
    ByThread,
    /// All threads together, switching at timestamps so that these do not go
    /// backwards. What lies between two timestamps of a thread stays together.
    ByTime,
}

/// Replays a trace into a sink.
#[derive(Clone, Debug)]
pub struct Replay<'r> {
    pub(crate) reader: &'r Reader,
    threads: Option<Vec<ThreadId>>,
    pub(crate) range: Window,
    order: Order,
    ways: OnceLock<Arc<Ways<'r>>>,
}

impl<'r> Replay<'r> {
    /// The whole trace, one thread after the other.
    #[must_use]
    pub const fn new(reader: &'r Reader) -> Self {
        let ways = OnceLock::new();
        Self { reader, threads: None, range: ALL, order: Order::ByThread, ways }
    }

    /// Only these threads.
    #[must_use]
    pub fn threads(mut self, threads: impl IntoIterator<Item = ThreadId>) -> Self {
        self.threads = Some(threads.into_iter().collect());
        self
    }

    /// Only the instructions of these numbers, counted from 0 in each thread, and
    /// the events behind them. Chunks before the range are not even read.
    #[must_use]
    pub const fn insns(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// In this order.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What the numbers mean that sinks are told by [`Sink::blocks`]: always the same, for every replay of the trace.
    #[must_use]
    pub fn ways(&self) -> Arc<Ways<'r>> {
        Arc::clone(self.ways.get_or_init(|| Arc::new(Ways::new(self.reader.roadmap()))))
    }

    /// The chosen threads.
    pub(crate) fn chosen(&self) -> Result<Vec<&'r Thread>, Error> {
        match &self.threads {
            None => Ok(self.reader.threads().iter().collect()),
            Some(ids) => ids.iter().map(|id| self.reader.thread(*id)).collect(),
        }
    }

    fn play<S: Sink>(&self, sink: &mut S) -> Result<Flow, PlayError<S>> {
        let threads = self.chosen().map_err(DriveError::Source)?;
        let mut announcer = Announcer::new(self.reader.roadmap());
        if self.order == Order::ByTime {
            return merge(self, &threads, (&mut announcer, sink));
        }
        let mut player = Player::new(self.reader, self.ways()).map_err(DriveError::Source)?;
        for thread in threads {
            for chunk in chunks_in(self.reader, thread, &self.range) {
                let playing = open(self.reader, &mut player, thread, chunk, &self.range);
                let mut playing = playing.map_err(DriveError::Source)?;
                if player.play(&mut playing, &mut announcer, sink)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
        }
        Ok(Flow::More)
    }
}

impl Source for Replay<'_> {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        let more = self.reader.about().with(|about| sink.begin(about)).map_err(DriveError::Sink)?;
        if more {
            self.play(sink)?;
        }
        sink.finish().map_err(DriveError::Sink)
    }
}

/// The chunks of a thread that hold something of the range.
pub(crate) fn chunks_in<'r>(
    reader: &'r Reader,
    thread: &'r Thread,
    range: &Window,
) -> impl Iterator<Item = usize> + use<'r> {
    let range = range.clone();
    thread.chunks.iter().copied().filter(move |chunk| {
        let Some(place) = reader.chunks().get(*chunk) else { return false };
        let first = place.header.first;
        let last = first + place.header.totals.insns;
        let inside = last > range.start || (last == 0 && range.start == 0);
        inside && first <= range.end && range.start < range.end
    })
}

/// Starts a player on a chunk, unless the chunk before it is missing.
pub(crate) fn open(
    reader: &Reader,
    player: &mut Player<'_>,
    thread: &Thread,
    chunk: usize,
    range: &Window,
) -> Result<crate::player::Playing, Error> {
    reader.check_sequence(thread, chunk)?;
    player.open(chunk, range.clone())
}
