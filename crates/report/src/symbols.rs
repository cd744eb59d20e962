//! Names for addresses in dumps, asked of the caller once per instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{Event, GuestVa, ProcessId, ThreadId};

/// Knows the names of instructions.
pub trait Symbolize {
    /// Whether there are any names. A dump without names asks for none.
    const ACTIVE: bool = true;

    /// A name for the instruction at `pc`, such as `main+0x4 (main.c:12)`.
    fn name(&mut self, process: ProcessId, pc: GuestVa) -> Option<String>;

    /// The process of a thread whose start lies before what is dumped.
    fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        let _ = thread;
        None
    }

    /// Takes every event of the trace, to follow what is mapped where.
    fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        let _ = (thread, event);
    }
}

/// No names.
impl Symbolize for () {
    const ACTIVE: bool = false;

    fn name(&mut self, _: ProcessId, _: GuestVa) -> Option<String> {
        None
    }
}

/// Remembers the answers, and which process each thread belongs to.
#[derive(Debug, Default)]
pub(crate) struct Names<Y> {
    symbols: Y,
    homes: HashMap<ThreadId, ProcessId>,
    known: HashMap<(ProcessId, GuestVa), Option<String>>,
}

/// Names beyond this are forgotten and asked for anew.
const MOST_KNOWN: usize = 1 << 20;

impl<Y: Symbolize> Names<Y> {
    pub fn new(symbols: Y) -> Self {
        Self { symbols, homes: HashMap::new(), known: HashMap::new() }
    }

    pub fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        if !Y::ACTIVE {
            return;
        }
        self.symbols.event(thread, event);
        match event {
            Event::ThreadStart(start) => drop(self.homes.insert(thread, start.process)),
            Event::Map(_) | Event::Unmap { .. } | Event::Exec { .. } => self.known.clear(),
            _ => {}
        }
    }

    pub fn name(&mut self, thread: ThreadId, pc: GuestVa) -> Option<&str> {
        if !Y::ACTIVE {
            return None;
        }
        let told = self.homes.get(&thread).copied();
        let process = told.or_else(|| self.symbols.process_of(thread)).unwrap_or_default();
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let symbols = &mut self.symbols;
        let name = self.known.entry((process, pc)).or_insert_with(|| symbols.name(process, pc));
        name.as_deref()
    }
}
