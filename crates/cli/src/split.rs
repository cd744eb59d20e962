//! One trace file for each process of a tree, named by a pattern.
//!
//! A thread's stream goes to the file of the process that it began in. Numbers of threads and
//! processes are those of the whole tree, so files of one run can be held side by side.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ichnos_base::{About, Batch, Code, Event, Isa, ProcessId, Sink, ThreadId};
use ichnos_trace::Options;

use crate::output::TraceFile;

/// What stands for the process's number.
const NUMBER: &str = "%p";

/// The files.
pub struct Split {
    pattern: String,
    options: Options,
    origin: Origin,
    files: BTreeMap<ProcessId, TraceFile>,
    names: HashSet<PathBuf>,
    threads: HashMap<ThreadId, ProcessId>,
}

/// Where the trace comes from, kept for files that begin later.
#[derive(Default)]
struct Origin {
    isa: Isa,
    collector: String,
    command: Vec<String>,
    folder: String,
    host: String,
    started_ns: u64,
    values: bool,
    branches: bool,
}

impl Split {
    /// Whether a path is a pattern.
    pub fn is_pattern(path: &Path) -> bool {
        path.to_string_lossy().contains(NUMBER)
    }

    /// No files yet.
    pub fn new(pattern: &Path, options: Options) -> Self {
        Self {
            pattern: pattern.to_string_lossy().into_owned(),
            options,
            origin: Origin::default(),
            files: BTreeMap::new(),
            names: HashSet::new(),
            threads: HashMap::new(),
        }
    }

    /// The files that were made.
    pub fn files(&self) -> impl Iterator<Item = &TraceFile> {
        self.files.values()
    }

    /// The name of a process's file. The system may give a number twice.
    fn name(&mut self, os_pid: u32) -> PathBuf {
        let name = |number: String| PathBuf::from(self.pattern.replace(NUMBER, &number));
        let mut path = name(os_pid.to_string());
        let mut more = 2;
        while !self.names.insert(path.clone()) {
            path = name(format!("{os_pid}-{more}"));
            more += 1;
        }
        path
    }

    fn begin_process(&mut self, process: ProcessId, os_pid: u32) -> Result<()> {
        if self.files.contains_key(&process) {
            return Ok(());
        }
        let mut file = TraceFile::new(self.name(os_pid), self.options);
        let origin = &self.origin;
        let command: Vec<&str> = origin.command.iter().map(String::as_str).collect();
        file.begin(&About {
            isa: origin.isa,
            collector: &origin.collector,
            command: &command,
            folder: &origin.folder,
            host: &origin.host,
            started_ns: origin.started_ns,
            values: origin.values,
            branches: origin.branches,
        })?;
        self.files.insert(process, file);
        Ok(())
    }

    fn file(&mut self, thread: ThreadId) -> Result<&mut TraceFile> {
        let process = self.threads.get(&thread);
        let file = process.and_then(|process| self.files.get_mut(process));
        file.with_context(|| format!("thread {thread} did not begin"))
    }
}

impl Sink for Split {
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        self.file(batch.thread)?.records(batch)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        if let Event::ThreadStart(start) = event {
            self.threads.insert(thread, start.process);
            self.begin_process(start.process, start.os_pid)?;
        }
        self.file(thread)?.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        self.file(thread)?.code(thread, code)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        self.origin = Origin {
            isa: about.isa,
            collector: about.collector.to_owned(),
            command: about.command.iter().map(|&word| word.to_owned()).collect(),
            folder: about.folder.to_owned(),
            host: about.host.to_owned(),
            started_ns: about.started_ns,
            values: about.values,
            branches: about.branches,
        };
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        self.files.values_mut().try_for_each(Sink::finish)
    }
}
