//! What a user wants recorded when it is not everything.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, Instant};

use super::channel::Channel;
use crate::boot::Gate;

/// What is recorded. Counts are of each thread's own instructions, from its beginning (or since its
/// process last executed a program); it changes at the next block after each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// From this count on.
    pub start: u64,
    /// Until this count.
    pub stop: u64,
    /// In turns: so many instructions not recorded, then so many recorded.
    pub sample: Option<(u64, u64)>,
    /// From this time after the program's start on.
    pub start_after: Option<Duration>,
    /// Until this time after the program's start.
    pub stop_after: Option<Duration>,
    /// Nothing until somebody switches it on.
    pub paused: bool,
    /// What each thread runs from where it enters the first of these functions to where it enters the second.
    pub functions: [Option<Function>; 2],
}

/// The name of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function(Gate);

impl Function {
    /// By its symbol; nothing if that has a thousand letters and more.
    #[must_use]
    pub fn new(symbol: &str) -> Option<Self> {
        Gate::new(symbol).map(Self)
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            start: 0,
            stop: u64::MAX,
            sample: None,
            start_after: None,
            stop_after: None,
            paused: false,
            functions: [None; 2],
        }
    }
}

impl Choice {
    /// As the engine is told.
    pub(super) fn plan(&self) -> [u64; 4] {
        let (plain, recorded) = self.sample.unwrap_or((0, 0));
        [self.start, self.stop, plain, recorded]
    }

    /// The functions, as the engine is told.
    pub(super) fn gates(&self) -> [Gate; 2] {
        self.functions.map(|function| function.map_or(Gate::NONE, |function| function.0))
    }

    /// Whether nothing is recorded at first.
    pub(super) fn begins_paused(&self) -> bool {
        self.paused || self.start_after.is_some()
    }
}

/// Switches recording on and off when it is time.
#[derive(Debug)]
pub struct Clock {
    begun: Instant,
    start: Option<Duration>,
    stop: Option<Duration>,
}

impl Clock {
    /// Begins now.
    pub fn new(choice: Option<Choice>) -> Self {
        let choice = choice.unwrap_or_default();
        Self { begun: Instant::now(), start: choice.start_after, stop: choice.stop_after }
    }

    /// Does what it is time for, once.
    pub fn look(&mut self, channel: &Channel) {
        let past = |time: &Duration| self.begun.elapsed() >= *time;
        if self.start.take_if(|time| past(time)).is_some() {
            channel.header().resume();
        }
        if self.stop.take_if(|time| past(time)).is_some() {
            channel.header().pause();
        }
    }
}
