//! Recording by way of a spool: the program does not wait for whoever reads what it stores, as long as there is room.
//!
//! While the program lives its words are read at a low priority; when it has ended, or there is no more room, as fast as that goes. If
//! they are to be read later, all is left in the spool.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;

use ichnos_base::{GapReason, Sink};
use ichnos_rt::Clock;
use ichnos_spool::aside;

use super::backlog::{Backlog, Desk, Place, Reader, Reads};
use super::collect::{Collector, Result as Read};
use super::message::{Buffers, Listener};
use super::{Config, Outcome, form, run};
use crate::code::Form;
use crate::{Error, RecordError};

/// How a recording by way of a spool goes on.
pub struct Spooling<'a, S: Sink> {
    /// Where the spool goes.
    pub place: Place,
    /// Ends the program once it is set.
    pub stop: &'a AtomicBool,
    /// Hears that the program waits from now on for what is told to the sink, and who tells it does not stand back any more.
    pub hurried: &'a mut (dyn FnMut(&mut S) + Send),
    /// Hears that the program has ended, and has the sink to itself.
    pub ended: &'a mut dyn FnMut(&mut S) -> Result<(), S::Error>,
    /// Hears how many bytes of those that were left at the end have been read, and how many there were. Says whether to go on.
    pub progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl<S: Sink> std::fmt::Debug for Spooling<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spooling").field("place", &self.place).finish_non_exhaustive()
    }
}

/// As [`super::record`], but the program does not wait for the sink while there is room in a spool.
///
/// # Errors
///
/// As [`super::record`], or if what lies in the spool cannot be read.
pub fn record_spooled<S>(
    config: &Config,
    sink: &mut S,
    spooling: Spooling<'_, S>,
) -> Result<Outcome, RecordError<S::Error>>
where
    S: Sink + Send,
    S::Error: Send,
{
    let clock = Clock::start();
    let (tell, messages) = channel();
    let (give, freed) = channel();
    let later = matches!(spooling.place.when, Reads::Later(_));
    let config = &Config { keeps_files: later, ..config.clone() };
    // Who reads it later may take anything.
    let form = if later { Form::Blocks } else { form(config, sink) };
    let (mut spooled, mut left) = (0, false);
    let listener = Listener::Collector { tell, freed };
    let outcome = run((config, form, clock), listener, |pool| {
        let Spooling { place, stop, hurried, ended, progress } = spooling;
        let backlog = Backlog::new(Arc::clone(&pool), Buffers::new(give));
        let known = (config.level, clock);
        let collector = Collector::new(sink, Some(pool), (config, clock));
        thread::scope(|scope| {
            let taker = scope.spawn(|| backlog.take(messages, (place, known), stop));
            let mut reading = Reading { backlog: &backlog, collector, desk: Desk::default() };
            let reader = ReaderGone(&backlog);
            let read = reading.beside(hurried);
            if matches!(read, Ok(true)) {
                std::mem::forget(reader);
            } else {
                drop(reader);
            }
            // It ends when all was told, or nobody reads.
            drop(taker.join());
            spooled = backlog.spooled();
            left = backlog.is_left();
            if read? && !left {
                ended(reading.collector.sink()).map_err(RecordError::Sink)?;
                reading.behind(progress)?;
            }
            if left { Ok(0) } else { reading.collector.finish() }
        })
    })?;
    Ok(Outcome { spooled, left, ..outcome })
}

/// If nobody reads any more, for whatever reason, nobody waits for that.
struct ReaderGone<'b>(&'b Backlog);

impl Drop for ReaderGone<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// What was told is being read.
struct Reading<'b, 'a, S: Sink> {
    backlog: &'b Backlog,
    collector: Collector<'a, S>,
    desk: Desk,
}

impl<S> Reading<'_, '_, S>
where
    S: Sink + Send,
    S::Error: Send,
{
    /// Reads while the program lives; whether the sink wants more.
    fn beside(&mut self, hurried: &mut (dyn FnMut(&mut S) + Send)) -> Read<bool, S::Error> {
        let goes_on = aside(|| self.all(Reader::Aside))?;
        if !goes_on || self.backlog.is_over() {
            return Ok(goes_on);
        }
        hurried(self.collector.sink());
        self.all(Reader::Beside)
    }

    /// Reads as long as there is something for this reader; whether the sink wants more.
    fn all(&mut self, reader: Reader) -> Read<bool, S::Error> {
        loop {
            match self.one(reader)? {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => return Ok(true),
            }
        }
    }

    /// Reads what is left when the program has ended.
    fn behind(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Read<(), S::Error> {
        let all = self.backlog.bytes();
        while let Some(true) = self.one(Reader::Behind)? {
            if !progress(all - self.backlog.bytes().min(all), all) {
                return self.collector.break_off(GapReason::Overflow);
            }
        }
        Ok(())
    }

    fn one(&mut self, reader: Reader) -> Read<Option<bool>, S::Error> {
        let Self { backlog, collector, desk } = self;
        let read = backlog.read(reader, desk, |message, words| collector.message(message, words));
        match read {
            Ok(read) => read.transpose(),
            Err(source) => Err(Error::Spool { source }.into()),
        }
    }
}
