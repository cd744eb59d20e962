//! How the events of a program built by `ichnos cc` lie among its instructions: how many, and how far apart.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use ichnos_base::{Batch, Event, GuestVa, MapKind, Record, Sink, ThreadId};
use ichnos_collect_asm as asm;
use ichnos_report::number::thousands;

/// Counts events, and the instructions between each and the next of its thread.
pub struct Distances {
    /// First instructions of functions, where the program's file has them.
    own: Vec<GuestVa>,
    name: String,
    /// The same where they lie in the process.
    entries: HashSet<GuestVa>,
    /// Instructions of each thread since its last event.
    since: HashMap<u32, Option<u64>>,
    insns: u64,
    events: u64,
    distances: u64,
    least: u64,
    most: u64,
    sum: f64,
    squares: f64,
}

impl Distances {
    /// For a program.
    pub fn of(program: &OsStr) -> Result<Self> {
        let path = Path::new(program);
        let own = asm::entries(path)?;
        let name = path.canonicalize().with_context(|| path.display().to_string())?;
        let (entries, since) = Default::default();
        Ok(Self {
            entries,
            own,
            name: name.to_string_lossy().into_owned(),
            since,
            insns: 0,
            events: 0,
            distances: 0,
            least: u64::MAX,
            most: 0,
            sum: 0.0,
            squares: 0.0,
        })
    }

    fn event(&mut self, distance: u64) {
        self.distances += 1;
        self.least = self.least.min(distance);
        self.most = self.most.max(distance);
        self.sum += distance as f64;
        self.squares += (distance as f64).powi(2);
    }
}

impl Sink for Distances {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let mut since = self.since.get(&batch.thread.0).copied().flatten();
        for record in batch.records {
            let Record::Insn { pc, .. } = record else { continue };
            self.insns += 1;
            if self.entries.contains(pc) {
                self.events += 1;
                if let Some(distance) = since.replace(0) {
                    self.event(distance);
                }
            }
            since = since.map(|s| s + 1);
        }
        self.since.insert(batch.thread.0, since);
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if let Event::Map(map) = event
            && map.kind == MapKind::IMAGE
            && map.path == self.name
        {
            self.entries = self.own.iter().map(|e| e.offset(map.bias)).collect();
        }
        Ok(true)
    }
}

impl fmt::Display for Distances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = (self.distances as f64).max(1.0);
        let mean = self.sum / number;
        let deviation = (self.squares / number - mean * mean).max(0.0).sqrt();
        let least = if self.distances == 0 { 0 } else { self.least };
        write!(
            f,
            "ichnos: {} instructions, {} events; from one to the next at least {}, on average \
             {mean:.1}, at most {}, standard deviation {deviation:.1}",
            thousands(self.insns),
            thousands(self.events),
            thousands(least),
            thousands(self.most),
        )
    }
}
