//! Function, file and line of every instruction of a trace, also of programs
//! that have gone by the time the question comes.
//!
//! Costs are given names at the end, when processes have called exec and
//! libraries were unmapped. So each program of a process is a space of its own
//! here, and what was unmapped keeps its name until something else is mapped
//! there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_analyze::profile::{Locate, Place, Space};
use ichnos_base::{Event, GuestVa, ProcessId, ThreadId, ThreadStart};
use ichnos_image::{DebugFolders, Symbolizer};

/// What was mapped where, in every program of every process.
pub struct Images {
    symbols: Symbolizer,
    homes: HashMap<ThreadId, ProcessId>,
    /// The program that each process runs now.
    current: HashMap<ProcessId, Space>,
    /// The symbolizer's process for each program.
    numbers: HashMap<Space, ProcessId>,
}

impl Images {
    /// Nothing is mapped yet.
    pub fn new() -> Self {
        // A thread whose start was not told is in process 0, in its first program.
        let numbers = HashMap::from([(Space::default(), ProcessId(0))]);
        Self {
            symbols: Symbolizer::new(DebugFolders::default()),
            homes: HashMap::new(),
            current: HashMap::new(),
            numbers,
        }
    }

    /// Takes every event.
    pub fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        match event {
            Event::ThreadStart(start) => {
                self.homes.insert(thread, start.process);
                let process = self.number(self.space(start.process));
                let start = ThreadStart { process, ..*start };
                self.symbols.note(thread, &Event::ThreadStart(start));
            }
            Event::Exec { .. } => {
                let process = self.homes.get(&thread).copied().unwrap_or_default();
                let before = self.space(process);
                let space = Space { execs: before.execs + 1, ..before };
                self.current.insert(process, space);
                let process = self.number(space);
                let start = ThreadStart { process, creator: None, ..ThreadStart::default() };
                self.symbols.note(thread, &Event::ThreadStart(start));
            }
            Event::Map(_) => self.symbols.note(thread, event),
            _ => {}
        }
    }

    /// The program that a thread runs now.
    pub fn space_of(&self, thread: ThreadId) -> Space {
        self.space(self.homes.get(&thread).copied().unwrap_or_default())
    }

    /// All programs so far.
    pub fn spaces(&self) -> Vec<Space> {
        let mut all: Vec<_> = self.numbers.keys().copied().collect();
        all.sort();
        all
    }

    /// Function and line of an instruction in any of the programs.
    pub fn name_anywhere(&mut self, pc: GuestVa) -> Option<String> {
        let places = self.spaces();
        let place = places.into_iter().map(|space| self.locate(space, pc));
        let place = place.into_iter().find(|place| !place.function.is_empty())?;
        let file = place.file.rsplit('/').next().unwrap_or_default();
        Some(match place.line {
            0 => place.function,
            line => format!("{} ({file}:{line})", place.function),
        })
    }

    fn space(&self, process: ProcessId) -> Space {
        self.current.get(&process).copied().unwrap_or(Space { process, execs: 0 })
    }

    fn number(&mut self, space: Space) -> ProcessId {
        let next = ProcessId(self.numbers.len() as u32);
        *self.numbers.entry(space).or_insert(next)
    }
}

impl Locate for Images {
    /// The function is the one whose code it is; file and line are those of the
    /// source it was made from, which after inlining may be another function's.
    fn locate(&mut self, space: Space, pc: GuestVa) -> Place {
        let Some(&process) = self.numbers.get(&space) else { return Place::default() };
        let (file, line) = match self.symbols.frames(process, pc).first() {
            Some(frame) => (frame.file.clone().unwrap_or_default(), frame.line.unwrap_or(0)),
            None => Default::default(),
        };
        let Some(place) = self.symbols.place(process, pc) else {
            return Place { file, line, ..Place::default() };
        };
        let function = place.symbol.map(|at| ichnos_image::demangle(at.symbol.name).into_owned());
        Place { image: place.image.to_owned(), function: function.unwrap_or_default(), file, line }
    }
}
