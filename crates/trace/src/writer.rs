//! The writer: a [`Sink`] that packs what it is told into a trace file.
//!
//! Memory: the roadmap, a small record per thread, and at most
//! [`Options::open_chunks`] chunks under construction; nothing that grows with the
//! length of the trace. Every chunk handed to the file is complete, so
//! whatever kills the writer costs only the chunks that were still open; those are
//! bounded in instructions and in time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::Write;
use std::num::NonZero;
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use ichnos_base::{About, Batch, Chain, Code, Event, Plan, Raw, Sink, ThreadId, Totals};

use crate::book::Book;
use crate::error::Error;
use crate::hash::QuickMap;
use crate::header::Provenance;
use crate::mark::TABLE_BITS;
use crate::output::Output;
use crate::plan::Planning;
use crate::raw_line::RawLine;
use crate::stream::{Stream, Tools, check_event};

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// zstd's level.
    pub level: i32,
    /// Instructions after which a thread's chunk is closed; of what is told raw, as its collector counts them.
    pub chunk_insns: u64,
    /// Time after which a thread's chunk is closed, however short.
    pub chunk_time: Duration,
    /// How many chunks, of as many threads, are open at a time. Each takes about ten
    /// megabytes, or some 25 if it is told raw; when one more is needed, the longest unused is closed.
    pub open_chunks: usize,
    /// How many threads pack what is told raw.
    pub packers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: 3,
            chunk_insns: 8 << 20,
            chunk_time: Duration::from_secs(10),
            open_chunks: 32,
            packers: std::thread::available_parallelism().map_or(1, NonZero::get),
        }
    }
}

impl Options {
    /// How large prediction tables are for chunks of this size. Larger ones than two to
    /// the 16 gave nothing on 50 M instructions of bzip2, sqlite3 and lua;
    /// emptying large ones for short chunks only costs time.
    pub(crate) fn table_bits(&self) -> u32 {
        let bits = self.chunk_insns.max(1).ilog2();
        bits.clamp(*TABLE_BITS.start(), 16)
    }
}

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W: Write> {
    pub(crate) tools: Tools<W>,
    pub(crate) streams: QuickMap<u32, Box<Stream>>,
    /// Planned blocks and chains.
    pub(crate) plans: Planning,
    begun: bool,
    failed: bool,
    finished: bool,
    clock: u64,
    looked: Instant,
}

impl Writer<File> {
    /// Makes a new file, or empties an old one.
    pub fn create(path: &FilePath, options: Options) -> Result<Self, Error> {
        let file = File::create(path)
            .map_err(|source| Error::Open { path: path.display().to_string(), source })?;
        Self::new(file, options)
    }
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, from its present place on.
    pub fn new(out: W, options: Options) -> Result<Self, Error> {
        let output = Output::new(out, options.level)?;
        Ok(Self {
            tools: Tools {
                book: Book::default(),
                output,
                pool: Vec::new(),
                options,
                line: RawLine::new(options.level, options.packers),
                next_slot: 0,
                ends: QuickMap::default(),
            },
            streams: QuickMap::default(),
            plans: Planning::default(),
            begun: false,
            failed: false,
            finished: false,
            clock: 0,
            looked: Instant::now(),
        })
    }

    /// Bytes handed to the file so far.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.tools.output.written()
    }

    /// What the written chunks count; all of it after `finish`.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        self.tools.output.totals()
    }

    /// Packs what comes next by threads that the next caller starts, whose priority they have then.
    pub fn renew_packers(&mut self) {
        self.tools.line.renew();
    }

    /// Hands all open chunks to the file, so that they survive whatever happens.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.guarded(|this| {
            for stream in this.streams.values_mut() {
                stream.close(&mut this.tools)?;
            }
            this.tools.drain()?;
            this.tools.output.flush()
        })
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.tools.output.into_inner()
    }

    /// Runs `work`; after a failure nothing more is written.
    pub(crate) fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.failed {
            return Err(Error::Misuse("it was used again after an error"));
        }
        if self.finished {
            return Err(Error::Misuse("it was used again after it had finished"));
        }
        if !self.begun {
            self.begin_with(&About::default())?;
        }
        let done = work(self);
        self.failed |= done.is_err();
        done
    }

    fn begin_with(&mut self, about: &About<'_>) -> Result<(), Error> {
        self.begun = true;
        let done = self.tools.output.put_header(&Provenance::new(about));
        self.failed |= done.is_err();
        done
    }

    /// The stream of a thread, with an open chunk, and what it needs to work.
    pub(crate) fn stream(
        &mut self,
        thread: ThreadId,
    ) -> Result<(&mut Stream, &mut Tools<W>), Error> {
        let (stream, tools) = self.raw_stream(thread)?;
        stream.close_raw(tools)?;
        stream.open(tools);
        Ok((stream, tools))
    }

    /// The stream of a thread, with room for a chunk, and what it needs to work.
    fn raw_stream(&mut self, thread: ThreadId) -> Result<(&mut Stream, &mut Tools<W>), Error> {
        self.clock += 1;
        self.close_old()?;
        let is_open = self.streams.get(&thread.0).is_some_and(|s| s.is_open());
        if !is_open {
            self.make_room()?;
        }
        let stream = self.streams.entry(thread.0).or_insert_with(|| Box::new(Stream::new(thread)));
        stream.used = self.clock;
        Ok((stream, &mut self.tools))
    }

    fn make_room(&mut self) -> Result<(), Error> {
        let open = self.streams.values_mut().filter(|s| s.is_open());
        let mut open: Vec<_> = open.collect();
        if open.len() >= self.tools.options.open_chunks.max(1)
            && let Some(oldest) = open.iter_mut().min_by_key(|s| s.used)
        {
            oldest.close(&mut self.tools)?;
        }
        Ok(())
    }

    /// Closes chunks that have been open for too long, looking once in a while.
    fn close_old(&mut self) -> Result<(), Error> {
        if !self.clock.is_multiple_of(64) {
            return Ok(());
        }
        let now = Instant::now();
        if now.duration_since(self.looked) < self.tools.options.chunk_time / 8 {
            return Ok(());
        }
        self.looked = now;
        self.tools.drain()?;
        for stream in self.streams.values_mut() {
            if stream.is_open()
                && now.duration_since(stream.opened) >= self.tools.options.chunk_time
            {
                stream.close(&mut self.tools)?;
            }
        }
        Ok(())
    }
}

impl<W: Write> Sink for Writer<W> {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Error> {
        self.guarded(|this| {
            let (stream, tools) = this.stream(batch.thread)?;
            stream.records(tools, batch)?;
            Ok(true)
        })
    }

    fn takes_raw(&self) -> bool {
        true
    }

    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool, Error> {
        self.guarded(|this| this.put_plan(plan).map(|()| true))
    }

    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool, Error> {
        self.guarded(|this| this.put_chain(chain).map(|()| true))
    }

    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool, Error> {
        self.guarded(|this| {
            let (stream, tools) = this.raw_stream(raw.thread)?;
            stream.raw(tools, raw)?;
            Ok(true)
        })
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Error> {
        self.guarded(|this| {
            check_event(event)?;
            // Who plans blocks tells executions raw.
            if this.plans.is_empty() {
                let (stream, tools) = this.stream(thread)?;
                stream.event(tools, event)?;
            } else {
                let (stream, tools) = this.raw_stream(thread)?;
                stream.raw_event(tools, event)?;
                if matches!(event, Event::ThreadEnd(_)) {
                    // What is gathered of it takes much room, and waits for nothing.
                    stream.close_raw(tools)?;
                }
            }
            Ok(true)
        })
    }

    fn code(&mut self, _thread: ThreadId, code: &Code<'_>) -> Result<bool, Error> {
        self.guarded(|this| {
            if this.tools.book.knows(code) {
                return Ok(true);
            }
            // What was executed before was executed over the old code.
            for stream in this.streams.values_mut() {
                stream.settle_over(&mut this.tools, code)?;
            }
            this.tools.book.learn(code);
            Ok(true)
        })
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Error> {
        if self.begun {
            return Err(Error::Misuse("it was begun twice"));
        }
        self.begin_with(about)?;
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.guarded(|this| {
            let mut streams: Vec<_> = this.streams.values_mut().collect();
            streams.sort_by_key(|s| s.thread);
            for stream in streams {
                stream.close(&mut this.tools)?;
            }
            this.tools.finish()
        })?;
        self.finished = true;
        Ok(())
    }
}
