//! How every reader tells its records: in batches, with threads begun before
//! their first record and ended after the last.
//!
//! A reader's inner functions answer with [`Halt`] so that `?` serves for all
//! three ways to stop; [`drive`] turns it into what [`Source`] promises.
//!
//! [`Source`]: ichnos_base::Source
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    About, Batch, Code, DriveError, EndStatus, Event, Isa, Record, Sink, ThreadId, ThreadStart,
};

use crate::Error;

/// Records in a batch: 64 KiB, which stays near the processor.
const BATCH: usize = 4096;

/// Why a reader stops before its input's end.
pub(crate) enum Halt<E> {
    /// The sink has seen enough.
    Enough,
    /// The sink failed.
    Sink(E),
    /// The reader failed.
    Source(Error),
}

impl<E> From<Error> for Halt<E> {
    fn from(error: Error) -> Self {
        Self::Source(error)
    }
}

/// Runs a reader's `tell` between the sink's `begin` and `finish`.
pub(crate) fn drive<S: Sink>(
    sink: &mut S,
    tell: impl FnOnce(&mut Feed<'_, S>) -> Result<(), Halt<S::Error>>,
) -> Result<(), DriveError<Error, S::Error>> {
    let mut feed = Feed { sink, threads: Vec::new(), now: 0, records: Vec::new(), counted: 0 };
    feed.records.reserve_exact(BATCH);
    match tell(&mut feed).and_then(|()| feed.end_all()) {
        Ok(()) | Err(Halt::Enough) => {}
        Err(Halt::Sink(e)) => return Err(DriveError::Sink(e)),
        Err(Halt::Source(e)) => return Err(DriveError::Source(e)),
    }
    feed.sink.finish().map_err(DriveError::Sink)
}

/// What an address-only format says about itself.
pub(crate) fn about(collector: &'static str, isa: Isa) -> About<'static> {
    About { isa, collector, ..About::default() }
}

struct Thread {
    /// Instructions told so far.
    insns: u64,
    ended: bool,
}

/// The way from a reader to its sink.
pub(crate) struct Feed<'s, S: Sink> {
    sink: &'s mut S,
    threads: Vec<Thread>,
    /// The thread that `records` belong to.
    now: usize,
    records: Vec<Record>,
    /// Instructions among `records`.
    counted: u64,
}

impl<S: Sink> Feed<'_, S> {
    pub(crate) fn begin(&mut self, about: &About<'_>) -> Result<(), Halt<S::Error>> {
        go_on(self.sink.begin(about))
    }

    /// Begins a thread, makes it the present one and returns its id.
    pub(crate) fn start(&mut self, start: ThreadStart) -> Result<ThreadId, Halt<S::Error>> {
        self.flush()?;
        self.now = self.threads.len();
        self.threads.push(Thread { insns: 0, ended: false });
        let id = self.thread();
        go_on(self.sink.event(id, &Event::ThreadStart(start)))?;
        Ok(id)
    }

    /// The present thread.
    pub(crate) fn thread(&self) -> ThreadId {
        ThreadId(u32::try_from(self.now).unwrap_or(u32::MAX))
    }

    /// Makes a thread that has begun the present one.
    pub(crate) fn switch(&mut self, thread: ThreadId) -> Result<(), Halt<S::Error>> {
        if self.now != thread.index() {
            self.flush()?;
            self.now = thread.index();
        }
        Ok(())
    }

    /// Tells a record of the present thread.
    #[inline]
    pub(crate) fn record(&mut self, record: Record) -> Result<(), Halt<S::Error>> {
        self.counted += u64::from(matches!(record, Record::Insn { .. }));
        self.records.push(record);
        if self.records.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// The last `n` records, or fewer if the rest has been told already, for
    /// flags that become known late.
    pub(crate) fn recent(&mut self, n: usize) -> &mut [Record] {
        let from = self.records.len().saturating_sub(n);
        self.records.get_mut(from..).unwrap_or_default()
    }

    /// Tells an event of the present thread.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> Result<(), Halt<S::Error>> {
        self.flush()?;
        let thread = self.thread();
        go_on(self.sink.event(thread, event))
    }

    /// Tells machine code that the present thread is about to execute.
    pub(crate) fn code(&mut self, code: &Code<'_>) -> Result<(), Halt<S::Error>> {
        self.flush()?;
        let thread = self.thread();
        go_on(self.sink.code(thread, code))
    }

    /// Ends the present thread.
    pub(crate) fn end(&mut self, status: EndStatus) -> Result<(), Halt<S::Error>> {
        self.event(&Event::ThreadEnd(status))?;
        if let Some(thread) = self.threads.get_mut(self.now) {
            thread.ended = true;
        }
        Ok(())
    }

    /// Whether the present thread has ended.
    pub(crate) fn ended(&self) -> bool {
        self.threads.get(self.now).is_none_or(|t| t.ended)
    }

    fn end_all(&mut self) -> Result<(), Halt<S::Error>> {
        self.flush()?;
        for index in 0..self.threads.len() {
            self.now = index;
            if !self.ended() {
                self.end(EndStatus::Unknown)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Halt<S::Error>> {
        if self.records.is_empty() {
            return Ok(());
        }
        let thread = self.thread();
        let before = match self.threads.get_mut(self.now) {
            Some(t) => {
                let before = t.insns;
                t.insns += self.counted;
                before
            }
            None => 0,
        };
        let answer = self.sink.records(&Batch::new(thread, before, &self.records));
        self.records.clear();
        self.counted = 0;
        go_on(answer)
    }
}

fn go_on<E>(answer: Result<bool, E>) -> Result<(), Halt<E>> {
    match answer {
        Ok(true) => Ok(()),
        Ok(false) => Err(Halt::Enough),
        Err(e) => Err(Halt::Sink(e)),
    }
}
