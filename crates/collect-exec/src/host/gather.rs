//! What the engines store becomes records and events for a sink, thread by thread.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use ichnos_base::{
    Batch, Blocks, Chain, Code, EndStatus, Event, GapReason, GuestVa, Leave, Line, Plan, ProcessId,
    Raw, Record, Sink, Slot, Step as PlanStep, ThreadId, ThreadStart, Use, Width,
};
use ichnos_tap::{BufferKind, Taken};

use super::book::{Book, Known, Uses};
use super::collect::CollectError;
use super::images::Images;
use super::raw::{SILENT, Visited};
use super::sifted::{Sifted, Stays, Step};
use super::stream::{Broken, Form, Gathered, Item, Stream};
use super::told::Told;
use crate::Error;
use crate::plan::STACK;

/// How many blocks and chains are told for each buffer, at most, though nobody has come to them: they take room in whatever is made of them.
const TOLD_AHEAD: usize = 64;

type Done<S> = Result<(), CollectError<<S as Sink>::Error>>;

/// Everything about one collection.
pub struct Gather<'a, S: Sink> {
    out: Out<'a, S>,
    book: Book,
    streams: HashMap<u32, Stream>,
    /// Where processes have been, by their numbers.
    visited: HashMap<u32, Visited>,
}

/// The way to the sink.
struct Out<'a, S: Sink> {
    sink: &'a mut S,
    /// What is known of programs behind a sieve, if they are.
    sifted: Option<Sifted>,
    images: Images,
    threads: HashMap<u32, Thread>,
    processes: HashMap<ProcessId, Process>,
    /// How parents say that their children ended, by the system's numbers. What a killed child left comes later
    /// than its parent's word, so this waits.
    reaped: HashMap<u32, EndStatus>,
    insns: u64,
    /// The sink's own error, which the reading of a stream must not swallow.
    error: Option<S::Error>,
}

struct Thread {
    process: ProcessId,
    insns: u64,
    started: bool,
    ended: bool,
}

/// A process as far as the streams tell.
#[derive(Default)]
struct Process {
    /// The blocks whose code was told.
    told: HashSet<u64>,
    /// The blocks and chains that were told, by identifier.
    planned: HashSet<u32>,
    /// Whether the silent ones were.
    silent: bool,
    /// Whether all that it runs was described as its own: it is the first, or has a program of its own and not its parent's.
    is_own: bool,
    /// What was described since all of it was told, how much that is, and how much of it may be told ahead.
    ahead: Vec<Range<u32>>,
    untold: usize,
    allowed: usize,
    os: u32,
    end: Option<EndStatus>,
}

impl<'a, S: Sink> Gather<'a, S> {
    /// Nothing gathered yet.
    pub fn new(sink: &'a mut S, sifted: Option<Sifted>) -> Self {
        let out = Out {
            sink,
            sifted,
            images: Images::default(),
            threads: HashMap::new(),
            processes: HashMap::new(),
            reaped: HashMap::new(),
            insns: 0,
            error: None,
        };
        let uses = if out.sink.takes_raw() { Uses::Tells } else { Uses::Runs };
        Self { out, book: Book::new(uses), streams: HashMap::new(), visited: HashMap::new() }
    }

    /// Instructions so far; of what was passed on unread, about so many.
    pub fn insns(&self) -> u64 {
        self.out.insns
    }

    /// The sink.
    pub fn sink(&mut self) -> &mut S {
        self.out.sink
    }

    /// The files behind mappings.
    pub fn images(&mut self) -> &mut Images {
        &mut self.out.images
    }

    /// Takes what a full buffer holds.
    pub fn buffer(&mut self, taken: &Taken, bytes: &[u8]) -> Done<S> {
        if taken.kind == BufferKind::ROADMAP {
            match &mut self.out.sifted {
                Some(sifted) => sifted.read_roadmap(bytes),
                None if !self.out.sink.takes_raw() => self.book.read(bytes, |_, _| {}),
                None => self.book.read(bytes, |process, identifiers| {
                    let process = self.out.processes.entry(ProcessId(process)).or_default();
                    process.untold += identifiers.len();
                    process.ahead.push(identifiers);
                }),
            }
            return Ok(());
        }
        let id = ThreadId(taken.thread);
        let fresh =
            || Thread { process: ProcessId(taken.process), insns: 0, started: false, ended: false };
        self.out.threads.entry(taken.thread).or_insert_with(fresh);
        if self.out.sifted.is_some() {
            let read = self.out.sift(id, bytes).map_err(CollectError::Sink)?;
            return unless_dying(read, taken);
        }
        let (out, book) = (&mut self.out, &self.book);
        // Who died may have said what was not so.
        let is_whole = taken.kind != BufferKind::LEFT && out.sink.takes_raw();
        let all_told = is_whole && out.tell_ahead(id, book).map_err(CollectError::Sink)?;
        let stream = self.streams.entry(taken.thread).or_insert_with(Stream::new);
        stream.all_told = all_told;
        stream.form = match () {
            () if out.sink.takes_raw() => Form::Raw,
            () if out.sink.takes_blocks() => Form::Blocks,
            () => Form::Records,
        };
        let mut tell = |gathered: &mut Gathered, item: Item<'_>| {
            if out.error.is_none()
                && let Err(error) = out.item(id, (gathered, book), item)
            {
                out.error = Some(error);
            }
        };
        let visited = self.visited.entry(taken.process).or_default();
        let read = stream.read(bytes, (book, visited), &mut tell);
        if taken.kind == BufferKind::LEFT {
            // Its thread may have died inside its last block, before all was stored.
            stream.drop_held();
        }
        let rest = stream.take_stretch(bytes);
        let flushed = self.out.flush_all(id, (&mut stream.gathered, rest), book);
        if let Some(error) = self.out.error.take() {
            return Err(CollectError::Sink(error));
        }
        flushed.map_err(CollectError::Sink)?;
        unless_dying(read, taken)
    }

    /// Everybody has ended, the first process like this.
    pub fn finish(&mut self, first: EndStatus) -> Done<S> {
        self.out.processes.entry(ProcessId(0)).or_default().end = Some(first);
        for id in self.settle_all()? {
            self.out.end(ThreadId(id), None).map_err(CollectError::Sink)?;
        }
        let finished = self.out.sink.finish().map_err(CollectError::Sink);
        self.put_away();
        finished
    }

    /// Frees what was known of the program, which takes long for one with much code, beside whatever the caller does next.
    fn put_away(&mut self) {
        let book = std::mem::replace(&mut self.book, Book::new(Uses::Tells));
        let (visited, processes) = (take(&mut self.visited), take(&mut self.out.processes));
        let all = (book, visited, processes);
        // If there is no thread for it, it is freed here.
        let _ = std::thread::Builder::new().name("tidy".to_owned()).spawn(move || drop(all));
    }

    /// More was recorded but is not told, for this reason.
    pub fn break_off(&mut self, reason: GapReason) -> Done<S> {
        // How their last blocks were left is what comes next and is not told: these blocks are left out whole.
        self.streams.values_mut().for_each(Stream::drop_held);
        let gap = Event::Gap { reason, insns: None, skipped: None };
        for id in self.settle_all()? {
            let goes_on = |thread: &&Thread| thread.started && !thread.ended;
            if self.out.threads.get(&id).filter(goes_on).is_some() {
                self.out.sink.event(ThreadId(id), &gap).map_err(CollectError::Sink)?;
            }
        }
        self.out.sink.finish().map_err(CollectError::Sink)
    }

    /// Tells all threads' last blocks as far as they are certain; the threads in order.
    fn settle_all(&mut self) -> Result<Vec<u32>, CollectError<S::Error>> {
        let mut ids: Vec<u32> = self.out.threads.keys().copied().collect();
        ids.sort_unstable();
        for id in &ids {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.end(&self.book);
                let gathered = &mut stream.gathered;
                let flushed = self.out.flush(ThreadId(*id), gathered, &self.book);
                flushed.map_err(CollectError::Sink)?;
            }
        }
        Ok(ids)
    }
}

/// What a dying thread did not finish is no error.
fn unless_dying<E>(read: Result<(), Broken>, taken: &Taken) -> Result<(), CollectError<E>> {
    match read {
        Err(Broken { why, at }) if taken.kind != BufferKind::LEFT => {
            Err(CollectError::Host(Error::Stream { thread: taken.thread, why, at }))
        }
        _ => Ok(()),
    }
}

impl<S: Sink> Out<'_, S> {
    /// Takes a buffer of a thread behind a sieve.
    fn sift(&mut self, id: ThreadId, bytes: &[u8]) -> Result<Result<(), Broken>, S::Error> {
        let mut at = 0;
        loop {
            let Some(sifted) = &mut self.sifted else { return Ok(Ok(())) };
            let step = sifted.read(id.0, bytes, &mut at);
            let stays = match &step {
                // A buffer begins with it, and may begin between what an instruction tells and its fault.
                Ok(Step::Told(Told::Time(_))) => Stays::AllButLast,
                Ok(Step::Told(_)) => Stays::All,
                _ => Stays::AllButLast,
            };
            let lines = sifted.take_lines(id.0, stays);
            self.lines(id, &lines)?;
            match step {
                Ok(Step::Many) => {}
                Ok(Step::Told(told)) => self.told(id, &told)?,
                Ok(Step::End) => return Ok(Ok(())),
                Err(broken) => return Ok(Err(broken)),
            }
        }
    }

    fn lines(&mut self, id: ThreadId, lines: &[Line]) -> Result<(), S::Error> {
        if !lines.is_empty() {
            self.sink.sifted(id, lines)?;
            let fetches =
                |l: &&Line| matches!(l, Line::Fetch(_) | Line::Instead { comes: Use::Fetch, .. });
            self.count(id, lines.iter().filter(fetches).count() as u64);
        }
        Ok(())
    }

    /// The last of a thread behind a sieve: what it still had to tell, and what was kept back.
    fn settle(&mut self, id: ThreadId) -> Result<(), S::Error> {
        let Some(sifted) = &mut self.sifted else { return Ok(()) };
        let (lines, held) = sifted.end(id.0);
        self.lines(id, &lines)?;
        self.sink.held(id, &held)?;
        self.count(id, held.insns);
        Ok(())
    }

    fn count(&mut self, id: ThreadId, insns: u64) {
        self.insns = self.insns.wrapping_add(insns);
        if let Some(thread) = self.threads.get_mut(&id.0) {
            thread.insns = thread.insns.wrapping_add(insns);
        }
    }

    fn item(
        &mut self,
        id: ThreadId,
        (gathered, book): (&mut Gathered, &Book),
        item: Item<'_>,
    ) -> Result<(), S::Error> {
        match item {
            Item::Block(identifier, block) if self.sink.takes_raw() => {
                self.plan(id, identifier, &block)
            }
            Item::Block(_, block) => self.block(id, (gathered, book), &block),
            Item::Chain(identifier, blocks) if self.sink.takes_raw() => {
                self.chain(id, (identifier, blocks), book)
            }
            Item::Chain(_, blocks) => blocks
                .filter_map(|block| book.get(block))
                .try_for_each(|block| self.block(id, (gathered, book), block)),
            Item::Many => self.flush(id, gathered, book),
            Item::Told(told) => {
                self.flush(id, gathered, book)?;
                self.told(id, &told)
            }
        }
    }

    fn block(
        &mut self,
        id: ThreadId,
        (gathered, book): (&mut Gathered, &Book),
        block: &Arc<Known>,
    ) -> Result<(), S::Error> {
        let process = self.process_of(id);
        let known = &mut self.processes.entry(process).or_default().told;
        if !known.insert(Arc::as_ptr(block) as u64) {
            return Ok(());
        }
        self.flush(id, gathered, book)?;
        let code = Code { process, pc: block.entry, bytes: &block.code };
        self.sink.code(id, &code).map(drop)
    }

    /// Tells a block that a thread comes to for the first time, if nobody of its process has been there.
    fn plan(&mut self, id: ThreadId, identifier: u32, block: &Known) -> Result<(), S::Error> {
        let process = self.process_of(id);
        if !self.processes.entry(process).or_default().planned.insert(identifier) {
            return Ok(());
        }
        let (entry, steps, code) = (block.entry, &*block.steps, &*block.code);
        self.sink.plan(&Plan { identifier, process, entry, steps, code }).map(drop)
    }

    /// Tells a chain that a thread comes to for the first time, if nobody of its process has been there, and before it those of its
    /// blocks that were not told.
    fn chain(
        &mut self,
        id: ThreadId,
        (identifier, blocks): (u32, Range<u32>),
        book: &Book,
    ) -> Result<(), S::Error> {
        let process = self.process_of(id);
        if !self.processes.entry(process).or_default().planned.insert(identifier) {
            return Ok(());
        }
        let blocks: Vec<u32> = blocks.collect();
        for &block in &blocks {
            if let Some(known) = book.get(block) {
                self.plan(id, block, known)?;
            }
        }
        self.sink.chain(&Chain { identifier, process, blocks: &blocks }).map(drop)
    }

    /// Tells all that was described of a thread's process and not told yet, unless there is too much of it: then what its threads come to is
    /// told, and the rest later. Whether all was told.
    fn tell_ahead(&mut self, id: ThreadId, book: &Book) -> Result<bool, S::Error> {
        let process = self.process(id);
        if !process.is_own {
            return Ok(false);
        }
        process.allowed += TOLD_AHEAD;
        if process.untold > process.allowed {
            return Ok(false);
        }
        (process.untold, process.allowed) = (0, 0);
        for identifier in take(&mut process.ahead).into_iter().flatten() {
            if let Some(blocks) = book.chain(identifier) {
                self.chain(id, (identifier, blocks), book)?;
            } else if let Some(block) = book.get(identifier) {
                self.plan(id, identifier, block)?;
            }
        }
        Ok(true)
    }

    /// Tells the silent blocks of a process, once.
    fn plan_silent(&mut self, process: ProcessId) -> Result<(), S::Error> {
        let known = self.processes.entry(process).or_default();
        if !self.sink.takes_raw() || std::mem::replace(&mut known.silent, true) {
            return Ok(());
        }
        for (identifier, register) in SILENT {
            let steps = &[PlanStep::Take { register, width: Width::Eight, slot: Slot(0) }];
            let (entry, code) = (GuestVa(0), &[]);
            self.sink.plan(&Plan { identifier, process, entry, steps, code })?;
        }
        Ok(())
    }

    fn process_of(&self, id: ThreadId) -> ProcessId {
        self.threads.get(&id.0).map_or(ProcessId(0), |thread| thread.process)
    }

    fn process(&mut self, id: ThreadId) -> &mut Process {
        let process = self.process_of(id);
        self.processes.entry(process).or_default()
    }

    fn told(&mut self, id: ThreadId, told: &Told<'_>) -> Result<(), S::Error> {
        let event = match *told {
            Told::Start(start) => return self.start(id, start),
            Told::End(status) => return self.end(id, Some(exited(status))),
            Told::EndAll(status) => {
                self.process(id).end = Some(exited(status));
                return self.end(id, None);
            }
            Told::Default(signal) => {
                self.process(id).end = Some(EndStatus::Killed(signal));
                return Ok(());
            }
            Told::Reaped(os, status) => {
                self.reaped(os, status);
                return Ok(());
            }
            Told::Exec(ref path) => {
                self.replaced(id)?;
                Event::Exec { path }
            }
            Told::Map(ref vma) => {
                let map = self.images.describe(vma);
                return self.sink.event(id, &Event::Map(map)).map(drop);
            }
            Told::Unmap(start, end) => {
                Event::Unmap { start: GuestVa(start), len: end.saturating_sub(start) }
            }
            Told::Create(child) => Event::ThreadCreate { child },
            Told::Time(ns) => Event::Timestamp { ns },
            Told::Syscall(number, args) => Event::Syscall { number, args },
            Told::Return(number, result) => Event::SyscallReturn { number, result },
            Told::Signal(info) => Event::Signal(info),
            Told::Join(child) => Event::ThreadJoin { child },
            Told::Sync(event) => event,
            Told::SignalReturn(pc) => Event::SignalReturn { pc },
            Told::Gap(insns, reason) => Event::Gap { reason, insns: Some(insns), skipped: None },
            Told::Untraced => {
                Event::Gap { reason: GapReason::Untraced, insns: None, skipped: None }
            }
        };
        self.sink.event(id, &event).map(drop)
    }

    fn start(&mut self, id: ThreadId, start: ThreadStart) -> Result<(), S::Error> {
        let Some(thread) = self.threads.get_mut(&id.0) else { return Ok(()) };
        thread.process = start.process;
        thread.started = true;
        let process = self.processes.entry(start.process).or_default();
        process.os = start.os_pid;
        process.is_own |= start.creator.is_none();
        self.sink.event(id, &Event::ThreadStart(start))?;
        self.plan_silent(start.process)
    }

    /// The process of a thread has a new program: its other threads are no more.
    fn replaced(&mut self, id: ThreadId) -> Result<(), S::Error> {
        let process = self.process_of(id);
        let of = |(other, thread): (&u32, &Thread)| {
            (*other != id.0 && thread.process == process).then_some(ThreadId(*other))
        };
        let mut others: Vec<ThreadId> = self.threads.iter().filter_map(of).collect();
        others.sort_unstable();
        others.into_iter().try_for_each(|other| self.end(other, Some(EndStatus::Exited(0))))?;
        let process = self.process(id);
        process.told.clear();
        process.is_own = true;
        process.end = None;
        Ok(())
    }

    fn reaped(&mut self, os: u32, status: i32) {
        if libc::WIFSIGNALED(status) {
            self.reaped.insert(os, EndStatus::Killed(libc::WTERMSIG(status)));
        } else if libc::WIFEXITED(status) {
            self.reaped.insert(os, EndStatus::Exited(libc::WEXITSTATUS(status)));
        }
    }

    /// Tells a thread's end, once: as it ended itself, or as its process did.
    fn end(&mut self, id: ThreadId, status: Option<EndStatus>) -> Result<(), S::Error> {
        let process = self.process(id);
        let (end, os) = (process.end, process.os);
        let reaped = || self.reaped.get(&os).copied();
        let status = status.or(end).or_else(reaped).unwrap_or(EndStatus::Unknown);
        let Some(thread) = self.threads.get_mut(&id.0) else { return Ok(()) };
        if std::mem::replace(&mut thread.ended, true) {
            return Ok(());
        }
        let started = std::mem::replace(&mut thread.started, true);
        let process = thread.process;
        if !started {
            let start = ThreadStart { process, ..ThreadStart::default() };
            self.sink.event(id, &Event::ThreadStart(start))?;
        }
        self.settle(id)?;
        self.sink.event(id, &Event::ThreadEnd(status)).map(drop)
    }

    /// Tells what was gathered.
    fn flush(
        &mut self,
        id: ThreadId,
        gathered: &mut Gathered,
        book: &Book,
    ) -> Result<(), S::Error> {
        self.flush_all(id, (gathered, &[]), book)
    }

    /// The same, and what lies behind it in a buffer.
    fn flush_all(
        &mut self,
        id: ThreadId,
        (gathered, rest): (&mut Gathered, &[u8]),
        book: &Book,
    ) -> Result<(), S::Error> {
        let is_any = !gathered.raw.is_empty() || !rest.is_empty();
        if is_any {
            self.plan_silent(self.process_of(id))?;
        }
        let Some(thread) = self.threads.get_mut(&id.0) else { return Ok(()) };
        if is_any {
            self.sink.raw(&Raw {
                thread: id,
                process: thread.process,
                insns_before: thread.insns,
                insns: gathered.insns,
                registers: gathered.registers.as_deref(),
                follows: Some(STACK),
                bytes: [&gathered.raw, rest],
                leave: gathered.leave,
            })?;
            gathered.leave = Leave::Silent;
        }
        let Gathered { records, ways, words, insns, raw, .. } = gathered;
        if !ways.is_empty() {
            let (blocks, words) = (ways.as_slice(), words.as_slice());
            let insns_before = thread.insns;
            let blocks = Blocks { thread: id, insns_before, blocks, words, shapes: book };
            self.sink.blocks(&blocks)?;
        }
        if !records.is_empty() {
            self.sink.records(&Batch::new(id, thread.insns, records))?;
            *insns += records.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
        }
        thread.insns += *insns;
        self.insns += take(insns);
        records.clear();
        ways.clear();
        words.clear();
        raw.clear();
        Ok(())
    }
}

fn exited(status: u64) -> EndStatus {
    EndStatus::Exited((status & 0xff) as i32)
}

#[cfg(test)]
mod tests;
