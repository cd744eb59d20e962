//! A user's model as a sink: from batches and events to the C interface.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use ichnos_base::{Batch, Event, GapReason, Mode, Sink, ThreadId};

use crate::Error;
use crate::abi::RawRecord;
use crate::library::{Alive, Loaded, Told};

/// One result of a user's model.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// What it is.
    pub key: String,
    /// How much it is.
    pub value: Value,
}

/// A result's value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A count.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// Words.
    Text(String),
}

/// A model in a shared library.
#[derive(Debug)]
pub struct UserModel {
    path: PathBuf,
    loaded: Loaded,
    threads: HashMap<ThreadId, Known>,
    records: Vec<RawRecord>,
    wants_more: bool,
}

/// What is known of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    process: u32,
    /// Whether its samples begin where its mode says so, not behind gaps.
    is_switched: bool,
}

impl UserModel {
    /// Loads `PATH` or `PATH:ARGS` and makes its model. A path without a slash is
    /// looked for where the system looks for libraries.
    ///
    /// # Errors
    ///
    /// If the library cannot be loaded, is no model of this version, or refuses
    /// its arguments.
    pub fn load(text: &str) -> Result<Self, Error> {
        let (path, args) = text.split_once(':').unwrap_or((text, ""));
        let path = PathBuf::from(path);
        let loaded = Loaded::new(&path, args)?;
        let (threads, records) = Default::default();
        Ok(Self { path, loaded, threads, records, wants_more: true })
    }

    /// What the model calls itself.
    #[must_use]
    pub fn name(&self) -> &str {
        self.loaded.name()
    }

    /// The library's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends a warm-up; whether the model can.
    pub fn reset_counts(&mut self) -> bool {
        self.loaded.reset()
    }

    /// What the model has found so far.
    pub fn findings(&mut self) -> Vec<Finding> {
        self.loaded.report()
    }

    /// The counts among what the model has found so far, in their order; without names, so that they can be asked for
    /// after every sample.
    pub fn counts(&mut self, counts: &mut Vec<u64>) {
        self.loaded.counts(counts);
    }
}

impl UserModel {
    /// A sample of a thread begins, or what is between two of them was told in pieces.
    fn sample(&mut self, thread: ThreadId) {
        let process = self.known(thread).process;
        self.loaded.thread(thread.0, process, Alive::Sampled);
    }

    fn known(&self, thread: ThreadId) -> Known {
        self.threads.get(&thread).copied().unwrap_or_default()
    }
}

impl Sink for UserModel {
    type Error = Infallible;

    fn takes_references(&self) -> bool {
        self.loaded.takes_references()
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        if self.wants_more {
            self.records.clear();
            self.records.extend(batch.records.iter().map(RawRecord::from));
            let process = self.known(batch.thread).process;
            self.wants_more = self.loaded.records(&Told {
                thread: batch.thread.0,
                process,
                insns_before: batch.insns_before,
                records: &self.records,
            });
        }
        Ok(self.wants_more)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::ThreadStart(start) => {
                let known = Known { process: start.process.0, is_switched: false };
                self.threads.insert(thread, known);
                self.loaded.thread(thread.0, start.process.0, Alive::Begins);
            }
            Event::ThreadEnd(_) => {
                let process = self.threads.remove(&thread).unwrap_or_default().process;
                self.loaded.thread(thread.0, process, Alive::Ended);
            }
            Event::ModeSwitch { mode } => {
                self.threads.entry(thread).or_default().is_switched = true;
                if *mode == Mode::Inst {
                    self.sample(thread);
                }
            }
            Event::Gap { reason: GapReason::Sampling | GapReason::Window, .. }
                if !self.known(thread).is_switched =>
            {
                self.sample(thread);
            }
            _ => {}
        }
        Ok(self.wants_more)
    }
}
