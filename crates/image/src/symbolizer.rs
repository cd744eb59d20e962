//! Which image, function and line a run-time address belongs to, for all the
//! processes of a trace.
//!
//! A symbolizer is a [`Sink`]: fed the trace's events it keeps every process's
//! memory map, and answers for the present point of the trace. A hit in its small
//! cache costs a comparison; a miss two binary searches. The cache is emptied
//! when a map changes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;

use ichnos_base::{Batch, Event, GuestVa, Map, ProcessId, Sink, ThreadId};

use crate::store::Store;
use crate::{AddressSpace, DebugFolders, Frame, ImageId, ImageVa, Problem, SymbolAt};

/// Slots of the cache: enough that the hot code of a loop nest stays.
const SLOTS: usize = 1024;

/// What is known about a run-time address without reading source lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// The image's path, or a name such as `[vdso]` or `[stack]`; empty for
    /// memory without a name.
    pub image: &'a str,
    /// Which image; `None` for memory without a name.
    pub id: Option<ImageId>,
    /// The image's own number for the address. Without an image: the distance
    /// from address 0, the run-time address itself.
    pub addr: ImageVa,
    /// The function, if the image has a symbol for it.
    pub symbol: Option<SymbolAt<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    id: Option<ImageId>,
    addr: ImageVa,
    /// The symbol's position in the image's table.
    symbol: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    process: ProcessId,
    addr: GuestVa,
    epoch: u64,
    found: Option<Found>,
}

/// Memory maps of traced processes, and the names behind their addresses.
#[derive(Debug)]
pub struct Symbolizer {
    store: Store,
    spaces: HashMap<ProcessId, AddressSpace>,
    threads: HashMap<ThreadId, ProcessId>,
    slots: Vec<Slot>,
    /// Raised when a map changes: slots of earlier epochs are empty.
    epoch: u64,
}

impl Default for Symbolizer {
    fn default() -> Self {
        Self::new(DebugFolders::default())
    }
}

impl Symbolizer {
    /// A symbolizer that looks for separate debug files under `folders`.
    #[must_use]
    pub fn new(folders: DebugFolders) -> Self {
        let empty = Slot { process: ProcessId(0), addr: GuestVa(0), epoch: 0, found: None };
        Self {
            store: Store::new(folders),
            spaces: HashMap::new(),
            threads: HashMap::new(),
            slots: vec![empty; SLOTS],
            epoch: 1,
        }
    }

    /// Memory appeared in a process.
    pub fn map(&mut self, process: ProcessId, map: &Map<'_>) {
        let image = self.store.id(map.path, map.build_id, map.kind);
        self.spaces.entry(process).or_default().map(map, image);
        self.epoch += 1;
    }

    /// Memory went away from a process.
    pub fn unmap(&mut self, process: ProcessId, start: GuestVa, len: u64) {
        if let Some(space) = self.spaces.get_mut(&process) {
            space.unmap(start, len);
            self.epoch += 1;
        }
    }

    /// A process replaced its program.
    pub fn exec(&mut self, process: ProcessId) {
        if let Some(space) = self.spaces.get_mut(&process) {
            space.clear();
            self.epoch += 1;
        }
    }

    /// Takes note of an event. A process that begins by a fork has its maker's
    /// map until its own events change it.
    pub fn note(&mut self, thread: ThreadId, event: &Event<'_>) {
        match event {
            Event::ThreadStart(start) => {
                self.threads.insert(thread, start.process);
                let maker = start.creator.and_then(|t| self.threads.get(&t));
                if let Some(space) = maker.and_then(|p| self.spaces.get(p)).cloned() {
                    self.spaces.entry(start.process).or_insert(space);
                }
            }
            Event::Map(map) => self.map(self.process_of(thread), map),
            Event::Unmap { start, len } => self.unmap(self.process_of(thread), *start, *len),
            Event::Exec { .. } => self.exec(self.process_of(thread)),
            _ => {}
        }
    }

    /// The process a thread runs in; that of id 0 for a thread whose start was
    /// not told.
    #[must_use]
    pub fn process_of(&self, thread: ThreadId) -> ProcessId {
        self.threads.get(&thread).copied().unwrap_or_default()
    }

    /// The present memory map of a process.
    #[must_use]
    pub fn space(&self, process: ProcessId) -> Option<&AddressSpace> {
        self.spaces.get(&process)
    }

    /// Image and function of a run-time address; `None` if nothing is mapped.
    pub fn place(&mut self, process: ProcessId, addr: GuestVa) -> Option<Place<'_>> {
        let Found { id, addr, symbol } = self.find(process, addr)?;
        let symbol = match (id.and_then(|id| self.store.opened(id)), symbol) {
            (Some(image), Some(index)) => image.symbols().ok()?.at(index, addr),
            _ => None,
        };
        Some(Place { image: id.map_or("", |id| self.store.name(id)), id, addr, symbol })
    }

    /// The source of a run-time address: innermost inlined function first.
    /// Empty if nothing is known.
    pub fn frames(&mut self, process: ProcessId, addr: GuestVa) -> &[Frame] {
        match self.find(process, addr) {
            Some(Found { id: Some(id), addr, .. }) => self.store.frames(id, addr),
            _ => &[],
        }
    }

    /// The name of an image of this trace.
    #[must_use]
    pub fn image_name(&self, id: ImageId) -> &str {
        self.store.name(id)
    }

    /// Which images gave no names so far, and why. Each is told once.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        self.store.problems()
    }

    fn find(&mut self, process: ProcessId, addr: GuestVa) -> Option<Found> {
        // Instructions are a few bytes long: the low bits tell neighbours apart.
        let index = (addr.0 ^ (addr.0 >> 10) ^ u64::from(process.0)) as usize % SLOTS;
        if let Some(slot) = self.slots.get(index)
            && slot.epoch == self.epoch
            && slot.addr == addr
            && slot.process == process
        {
            return slot.found;
        }
        let found = self.search(process, addr);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot { process, addr, epoch: self.epoch, found };
        }
        found
    }

    #[cold]
    fn search(&mut self, process: ProcessId, addr: GuestVa) -> Option<Found> {
        let mapping = self.spaces.get(&process)?.find(addr)?;
        let Some(id) = mapping.image else {
            return Some(Found { id: None, addr: ImageVa(addr.0), symbol: None });
        };
        let own = mapping.to_image(addr);
        let table = self.store.image(id).and_then(|image| image.symbols().ok());
        Some(Found { id: Some(id), addr: own, symbol: table.and_then(|t| t.find_index(own)) })
    }
}

impl Sink for Symbolizer {
    type Error = Infallible;

    fn records(&mut self, _batch: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.note(thread, event);
        Ok(true)
    }
}
