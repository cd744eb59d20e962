//! A trace file for each process of a run: `-o name.%p.ichnos`.
//!
//! Threads and processes keep the numbers that they would have in one file, so that what refers to another
//! process (who made a thread) can still be followed; a marker ([`Event::APART`]) says so. Each file is a whole trace otherwise: it begins as
//! the run did, has the code of its process, and of a forked one first what it found mapped.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ichnos_base::{
    About, Batch, Chain, Code, Event, GuestVa, Plan, ProcessId, Raw, Sink, ThreadId, ThreadStart,
};
use ichnos_trace::{Options, Provenance};

use crate::output::TraceFile;
use crate::pattern::{is_pattern, named};

/// Where a trace goes.
pub enum Traces {
    /// Into one file.
    One(Box<TraceFile>),
    /// Into a file of each process.
    Each(Box<Each>),
}

/// The files of processes.
pub struct Each {
    pattern: PathBuf,
    options: Options,
    about: Option<Provenance>,
    files: BTreeMap<ProcessId, Own>,
    threads: HashMap<ThreadId, ProcessId>,
    paths: HashSet<PathBuf>,
    /// What each process has mapped now, and what threads that are still to start will find mapped.
    mapped: HashMap<ProcessId, Vec<Mapped>>,
    unborn: HashMap<ThreadId, Vec<Mapped>>,
    /// Code that was told before the first thread of its process.
    early: HashMap<ProcessId, Vec<(GuestVa, Vec<u8>)>>,
}

/// The file of a process. It is closed when all threads of the process have ended and all that they made have started:
/// nobody can make another one.
struct Own {
    file: TraceFile,
    alive: usize,
    awaited: HashSet<ThreadId>,
}

impl Own {
    fn is_over(&self) -> bool {
        self.alive == 0 && self.awaited.is_empty()
    }
}

/// Something that is mapped: the event without its texts, and those.
#[derive(Clone)]
struct Mapped {
    map: Event<'static>,
    range: Range<u64>,
    text: String,
    bytes: Vec<u8>,
}

impl Traces {
    /// By the name that a user gave: `%p` stands for the number of a process.
    pub fn new(path: PathBuf, options: Options) -> Self {
        if is_pattern(&path) {
            Self::Each(Box::new(Each {
                pattern: path,
                options,
                about: None,
                files: BTreeMap::new(),
                threads: HashMap::new(),
                paths: HashSet::new(),
                mapped: HashMap::new(),
                unborn: HashMap::new(),
                early: HashMap::new(),
            }))
        } else {
            Self::One(Box::new(TraceFile::new(path, options)))
        }
    }

    /// The files that were made.
    pub fn files(&self) -> Vec<&TraceFile> {
        match self {
            Self::One(file) => vec![file],
            Self::Each(each) => each.files.values().map(|own| &own.file).collect(),
        }
    }

    /// What comes next is packed at the priority of whoever tells it.
    pub fn renew_packers(&mut self) {
        match self {
            Self::One(file) => file.renew_packers(),
            Self::Each(each) => {
                each.files.values_mut().for_each(|own| own.file.renew_packers());
            }
        }
    }
}

impl Each {
    /// A process begins to run its first thread.
    fn start(&mut self, thread: ThreadId, start: &ThreadStart) -> Result<()> {
        self.threads.insert(thread, start.process);
        if let Some(own) = self.files.get_mut(&start.process) {
            self.unborn.remove(&thread);
            own.alive += 1;
            own.file.event(thread, &Event::ThreadStart(*start))?;
            return self.is_awaited_no_more(thread, start);
        }
        let number = start.os_pid.to_string();
        let mut path = named(self.pattern.as_os_str(), &number);
        if !self.paths.insert(path.clone()) {
            // The system has given the number away again.
            path = named(self.pattern.as_os_str(), &format!("{number}.{}", start.process.0));
        }
        let mut file = TraceFile::new(path, self.options);
        if let Some(about) = &self.about {
            about.with(|about| file.begin(about))?;
        }
        for (pc, bytes) in self.early.remove(&start.process).unwrap_or_default() {
            file.code(thread, &Code { process: start.process, pc, bytes: &bytes })?;
        }
        file.event(thread, &Event::ThreadStart(*start))?;
        file.event(thread, &Event::Marker { id: Event::APART, text: "one process of several" })?;
        let maker = start.creator.and_then(|maker| self.threads.get(&maker));
        let found = self.unborn.remove(&thread).or_else(|| self.mapped.get(maker?).cloned());
        for mapped in found.iter().flatten() {
            file.event(thread, &mapped.map.with_texts(&mapped.text, &mapped.bytes))?;
        }
        self.mapped.insert(start.process, found.unwrap_or_default());
        self.files.insert(start.process, Own { file, alive: 1, awaited: HashSet::new() });
        self.is_awaited_no_more(thread, start)
    }

    /// A thread has started: who made it need not wait for it.
    fn is_awaited_no_more(&mut self, thread: ThreadId, start: &ThreadStart) -> Result<()> {
        let maker = start.creator.and_then(|maker| self.threads.get(&maker)).copied();
        let Some((maker, own)) = maker.and_then(|m| Some((m, self.files.get_mut(&m)?))) else {
            return Ok(());
        };
        own.awaited.remove(&thread);
        self.close_if_over(maker)
    }

    /// Closes the file of a process of which nothing more can come, and forgets what it had mapped.
    fn close_if_over(&mut self, process: ProcessId) -> Result<()> {
        let Some(own) = self.files.get_mut(&process).filter(|own| own.is_over()) else {
            return Ok(());
        };
        self.mapped.remove(&process);
        own.file.close()
    }

    /// Tells an event that is no start.
    fn tell(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        self.follow(thread, event);
        let more = self.of(thread)?.event(thread, event)?;
        let process = self.threads.get(&thread).copied().unwrap_or_default();
        let Some(own) = self.files.get_mut(&process) else { return Ok(more) };
        match event {
            Event::ThreadCreate { child } if !self.threads.contains_key(child) => {
                own.awaited.insert(*child);
            }
            Event::ThreadEnd(_) => {
                own.alive = own.alive.saturating_sub(1);
                self.close_if_over(process)?;
            }
            _ => {}
        }
        Ok(more)
    }

    /// Takes note of what an event changes of what is mapped.
    fn follow(&mut self, thread: ThreadId, event: &Event<'_>) {
        let Some(process) = self.threads.get(&thread) else { return };
        let now = self.mapped.entry(*process).or_default();
        let (start, len) = match event {
            Event::Exec { .. } => return now.clear(),
            Event::ThreadCreate { child } => {
                if !self.threads.contains_key(child) {
                    self.unborn.insert(*child, now.clone());
                }
                return;
            }
            Event::Unmap { start, len } => (start.0, *len),
            Event::Map(map) => (map.start.0, map.len),
            _ => return,
        };
        // What is covered in part is told whole before what covers it.
        let range = start..start.saturating_add(len);
        now.retain(|old| old.range.start < range.start || old.range.end > range.end);
        let overlaps = |old: &Mapped| old.range.start < range.end && range.start < old.range.end;
        if matches!(event, Event::Unmap { .. }) && !now.iter().any(overlaps) {
            return;
        }
        let (text, bytes) = event.texts();
        let (map, text, bytes) = (event.with_texts("", &[]), text.to_owned(), bytes.to_vec());
        now.push(Mapped { map, range, text, bytes });
    }

    fn of(&mut self, thread: ThreadId) -> Result<&mut TraceFile> {
        let process = self.threads.get(&thread).copied();
        process
            .and_then(|process| self.files.get_mut(&process))
            .map(|own| &mut own.file)
            .with_context(|| format!("thread {} was told of before its start", thread.0))
    }
}

impl Sink for Traces {
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        match self {
            Self::One(file) => file.records(batch),
            Self::Each(each) => each.of(batch.thread)?.records(batch),
        }
    }

    fn takes_raw(&self) -> bool {
        true
    }

    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool> {
        match self {
            Self::One(file) => file.plan(plan),
            Self::Each(each) => match each.files.get_mut(&plan.process) {
                // Nobody runs it any more.
                Some(own) if own.is_over() => Ok(true),
                Some(own) => own.file.plan(plan),
                None => bail!("process {} was told of before its start", plan.process.0),
            },
        }
    }

    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool> {
        match self {
            Self::One(file) => file.chain(chain),
            Self::Each(each) => match each.files.get_mut(&chain.process) {
                // Nobody runs it any more.
                Some(own) if own.is_over() => Ok(true),
                Some(own) => own.file.chain(chain),
                None => bail!("process {} was told of before its start", chain.process.0),
            },
        }
    }

    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool> {
        match self {
            Self::One(file) => file.raw(raw),
            Self::Each(each) => each.of(raw.thread)?.raw(raw),
        }
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        match self {
            Self::One(file) => file.event(thread, event),
            Self::Each(each) => {
                if let Event::ThreadStart(start) = event {
                    return each.start(thread, start).map(|()| true);
                }
                each.tell(thread, event)
            }
        }
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        match self {
            Self::One(file) => file.code(thread, code),
            Self::Each(each) => {
                if let Some(own) = each.files.get_mut(&code.process) {
                    // Nobody runs it any more.
                    return if own.is_over() { Ok(true) } else { own.file.code(thread, code) };
                }
                each.early.entry(code.process).or_default().push((code.pc, code.bytes.to_vec()));
                Ok(true)
            }
        }
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        match self {
            Self::One(file) => file.begin(about),
            Self::Each(each) => {
                each.about = Some(Provenance::new(about));
                Ok(true)
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        match self {
            Self::One(file) => file.finish(),
            Self::Each(each) => each.files.values_mut().try_for_each(|own| own.file.finish()),
        }
    }
}
