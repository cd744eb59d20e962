//! Threads together, by time: a heap of threads, each with a player of its own,
//! of which the one with the earliest clock plays on to its next timestamp.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ichnos_base::{DriveError, Sink};
use ichnos_trace::{Reader, Thread};

use crate::announce::Announcer;
use crate::player::{Clock, Flow, PlayError, Player, Playing, Step, Window};
use crate::replay::{Replay, chunks_in, open};

struct Lane<'r> {
    thread: &'r Thread,
    chunks: VecDeque<usize>,
    /// Given back between threads' ends: each holds a chunk's memory.
    player: Player<'r>,
    playing: Option<Playing>,
}

/// Plays threads so that timestamps do not go backwards.
pub(crate) fn merge<'r, S: Sink>(
    replay: &Replay<'r>,
    threads: &[&'r Thread],
    (announcer, sink): (&mut Announcer, &mut S),
) -> Result<Flow, PlayError<S>> {
    let (reader, range) = (replay.reader, &replay.range);
    let mut lanes = Vec::new();
    let mut heap = BinaryHeap::new();
    for thread in threads {
        let player = Player::new(reader, replay.ways()).map_err(DriveError::Source)?;
        let chunks: VecDeque<_> = chunks_in(reader, thread, range).collect();
        // A thread waits until the time of its first timestamp has come.
        let headers = chunks.iter().filter_map(|c| reader.chunks().get(*c));
        let first = headers.map(|c| c.header.first_ns).find(|ns| *ns != 0).unwrap_or(0);
        heap.push(Reverse((first, lanes.len())));
        lanes.push(Lane { thread, chunks, player, playing: None });
    }
    while let Some(Reverse((_, at))) = heap.pop() {
        let Some(lane) = lanes.get_mut(at) else { continue };
        match lane.turn(reader, range, (announcer, sink))? {
            Some(Flow::Enough) => return Ok(Flow::Enough),
            Some(Flow::More) => {
                heap.push(Reverse((lane.time(), at)));
            }
            None => {}
        }
    }
    Ok(Flow::More)
}

impl Lane<'_> {
    /// The timestamp that is next.
    fn time(&self) -> u64 {
        match self.playing.as_ref().map(|p| p.clock) {
            Some(Clock::Stopped(ns)) => ns,
            _ => 0,
        }
    }

    /// Plays to the next timestamp; nothing if the thread is over.
    fn turn<S: Sink>(
        &mut self,
        reader: &Reader,
        range: &Window,
        (announcer, sink): (&mut Announcer, &mut S),
    ) -> Result<Option<Flow>, PlayError<S>> {
        loop {
            let playing = match &mut self.playing {
                Some(playing) => playing,
                None => {
                    let Some(chunk) = self.chunks.pop_front() else { return Ok(None) };
                    let playing = open(reader, &mut self.player, self.thread, chunk, range);
                    let playing = self.playing.insert(playing.map_err(DriveError::Source)?);
                    playing.clock = Clock::Stops;
                    playing
                }
            };
            match self.player.step(playing, announcer, sink)? {
                Step::Played => {}
                Step::Time => return Ok(Some(Flow::More)),
                Step::Enough => return Ok(Some(Flow::Enough)),
                Step::End => self.playing = None,
            }
        }
    }
}
