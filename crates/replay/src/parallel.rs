//! Parallel replay: every chunk, or every range asked for, into a sink of its own, on several processors,
//! with the results in order. For consumers whose answers can be joined.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

use ichnos_base::{DriveError, Sink, Source, ThreadId, Totals};
use ichnos_trace::{Error, Roadmap};
use rayon::prelude::*;

use crate::announce::Announcer;
use crate::player::{Flow, PlayError, Player};
use crate::replay::{Replay, chunks_in, open};

/// One chunk of a thread, and where in the thread it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Whose chunk.
    pub thread: ThreadId,
    /// The chunk's number in the file.
    pub chunk: usize,
    /// Instructions of the thread before it.
    pub first_insn: u64,
    /// What the chunk's records count.
    pub totals: Totals,
    /// The first timestamp in it; 0 if it has none.
    pub first_ns: u64,
}

/// Players and announcers that are at leisure. Each keeps its memory, of which some is in proportion to all blocks of the trace.
struct Stage<'r> {
    first: Announcer,
    spare: Mutex<Vec<(Player<'r>, Announcer)>>,
}

impl<'r> Stage<'r> {
    fn new(roadmap: &Roadmap) -> Self {
        Self { first: Announcer::new(roadmap), spare: Mutex::default() }
    }

    fn take(&self, replay: &Replay<'r>) -> Result<(Player<'r>, Announcer), Error> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match spare {
            Some(spare) => Ok(spare),
            None => Ok((Player::new(replay.reader, replay.ways())?, self.first.clone())),
        }
    }

    fn give(&self, player: Player<'r>, mut announcer: Announcer) {
        announcer.forget();
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push((player, announcer));
    }
}

impl<'r> Replay<'r> {
    /// Replays every chunk of the chosen threads and range into a sink of its own, on `jobs`
    /// processors. Each sink is told a whole trace, from `begin` to `finish`, that
    /// happens to be one chunk long; code is told anew to each. The
    /// results come thread by thread, in the order of each stream.
    ///
    /// A sink that has seen enough ends its own chunk only. The first error in order
    /// is the answer if there is any.
    pub fn map_chunks<S, T>(
        &self,
        jobs: usize,
        make: impl Fn(&Piece) -> S + Sync,
        done: impl Fn(&Piece, S) -> T + Sync,
    ) -> Result<Vec<T>, DriveError<Error, S::Error>>
    where
        S: Sink,
        S::Error: Send,
        T: Send,
    {
        let pieces = self.pieces().map_err(DriveError::Source)?;
        let stage = Stage::new(self.reader.roadmap());
        let work = |piece: &Piece| {
            let mut sink = make(piece);
            self.play_piece(piece, &stage, &mut sink)?;
            Ok(done(piece, sink))
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.max(1)).build();
        let results: Vec<_> = match &pool {
            Ok(pool) => pool.install(|| pieces.par_iter().map(work).collect()),
            // No threads to be had: the answer is the same without.
            Err(_) => pieces.iter().map(work).collect(),
        };
        results.into_iter().collect()
    }

    /// As [`Replay::map_chunks`], for consumers whose answers cannot be joined: `each` gets the
    /// results one after the other, in order, on the calling thread, while later chunks are
    /// replayed on `jobs` others, each of which waits with its chunk until that is consumed. `each`
    /// says whether to go on.
    pub fn map_chunks_in_order<S, T>(
        &self,
        jobs: NonZeroUsize,
        make: impl Fn(&Piece) -> S + Sync,
        done: impl Fn(&Piece, S) -> T + Sync,
        mut each: impl FnMut(T) -> bool,
    ) -> Result<(), DriveError<Error, S::Error>>
    where
        S: Sink,
        S::Error: Send,
        T: Send,
    {
        let pieces = self.pieces().map_err(DriveError::Source)?;
        let stage = Stage::new(self.reader.roadmap());
        let (pieces, stage, make, done) = (&pieces, &stage, &make, &done);
        let jobs = jobs.get().min(pieces.len().max(1));
        thread::scope(|scope| {
            let mut results = Vec::new();
            for first in 0..jobs {
                let (sender, receiver) = sync_channel(0);
                results.push(receiver);
                scope.spawn(move || {
                    for piece in pieces.iter().skip(first).step_by(jobs) {
                        let mut sink = make(piece);
                        let played = self.play_piece(piece, stage, &mut sink);
                        let failed = played.is_err();
                        let told = sender.send(played.map(|()| done(piece, sink)));
                        if failed || told.is_err() {
                            return;
                        }
                    }
                });
            }
            // A thread that has gone without a result has panicked; the scope says so.
            for receiver in (0..pieces.len()).filter_map(|at| results.get(at % jobs)) {
                let Ok(result) = receiver.recv() else { break };
                if !each(result?) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Replays ranges of instructions of the chosen threads, each into a sink of its
    /// own, on `jobs` processors; the results come in the order of the ranges. Chunks
    /// outside all ranges are not read. Each sink is told a whole trace, from `begin` to
    /// `finish`, as by [`Replay::insns`].
    ///
    /// The first error in order is the answer if there is any.
    pub fn map_ranges<S, T>(
        &self,
        jobs: usize,
        ranges: &[Range<u64>],
        make: impl Fn(usize) -> S + Sync,
        done: impl Fn(usize, S) -> T + Sync,
    ) -> Result<Vec<T>, DriveError<Error, S::Error>>
    where
        S: Sink,
        S::Error: Send,
        T: Send,
    {
        // Found out once, for all of them.
        let _ = self.ways();
        let work = |(at, range): (usize, &Range<u64>)| {
            let mut sink = make(at);
            self.clone().insns(range.clone()).drive(&mut sink)?;
            Ok(done(at, sink))
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.max(1)).build();
        let results: Vec<_> = match &pool {
            Ok(pool) => pool.install(|| ranges.par_iter().enumerate().map(work).collect()),
            // No threads to be had: the answer is the same without.
            Err(_) => ranges.iter().enumerate().map(work).collect(),
        };
        results.into_iter().collect()
    }

    fn pieces(&self) -> Result<Vec<Piece>, Error> {
        let mut pieces = Vec::new();
        for thread in self.chosen()? {
            for chunk in chunks_in(self.reader, thread, &self.range) {
                let Some(place) = self.reader.chunks().get(chunk) else { continue };
                pieces.push(Piece {
                    thread: thread.id,
                    chunk,
                    first_insn: place.header.first,
                    totals: place.header.totals,
                    first_ns: place.header.first_ns,
                });
            }
        }
        Ok(pieces)
    }

    fn play_piece<S: Sink>(
        &self,
        piece: &Piece,
        stage: &Stage<'r>,
        sink: &mut S,
    ) -> Result<(), PlayError<S>> {
        let more = self.reader.about().with(|about| sink.begin(about)).map_err(DriveError::Sink)?;
        if more {
            let (mut player, mut announcer) = stage.take(self).map_err(DriveError::Source)?;
            let thread = self.reader.thread(piece.thread).map_err(DriveError::Source)?;
            let playing = open(self.reader, &mut player, thread, piece.chunk, &self.range);
            let mut playing = playing.map_err(DriveError::Source)?;
            // Whoever broke off is in the middle of something.
            if player.play(&mut playing, &mut announcer, sink)? == Flow::More {
                stage.give(player, announcer);
            }
        }
        sink.finish().map_err(DriveError::Sink)
    }
}
