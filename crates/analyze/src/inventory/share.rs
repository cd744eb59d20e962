//! Shares of an inventory: what stretches of threads come to, each found apart from the others,
//! on any processor, and added up in the order of the threads' streams.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Batch, Blocks, Event, ProcessId, Sink, ThreadId};

use super::{Image, Inventory, Thread};

/// What a stretch of one thread's stream adds to an inventory that knows what threads count.
#[derive(Debug)]
pub struct Share {
    /// What comes before the thread's start, if that is told at all. In which process this was is
    /// known to whoever heard what came before.
    before: Inventory,
    /// What comes from there on.
    after: Option<Inventory>,
}

impl Default for Share {
    fn default() -> Self {
        Self::new()
    }
}

impl Share {
    /// A share of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { before: listing(), after: None }
    }

    fn part(&mut self) -> &mut Inventory {
        self.after.as_mut().unwrap_or(&mut self.before)
    }
}

/// An inventory that leaves it to others what images are.
fn listing() -> Inventory {
    Inventory { lists_maps: true, ..Inventory::new() }
}

impl Sink for Share {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.part().records(batch)
    }

    fn takes_blocks(&self) -> bool {
        true
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        self.part().blocks(blocks)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if matches!(event, Event::ThreadStart(_)) {
            self.after.get_or_insert_with(listing);
        }
        self.part().event(thread, event)
    }
}

impl Inventory {
    /// Adds the next stretch of a thread.
    pub fn add(&mut self, share: Share) {
        let Share { before, after } = share;
        if let Some(thread) = before.threads.keys().next() {
            let home = self.home(*thread);
            self.join(before, |_| home);
        }
        if let Some(after) = after {
            self.join(after, |process| process);
        }
    }

    /// Adds what comes next; `home` says what processes are called here.
    fn join(&mut self, next: Self, home: impl Fn(ProcessId) -> ProcessId) {
        for (id, thread) in &next.threads {
            self.threads.entry(*id).or_default().go_on(thread);
        }
        for (process, memory) in &next.processes {
            let own = self.processes.entry(home(*process)).or_default();
            own.code.join(&memory.code);
            own.data.join(&memory.data);
        }
        for (&(process, pc), times) in next.counts.pcs.keys().iter().zip(&next.counts.executions) {
            self.counts.add(home(process), pc, *times);
        }
        if let Some((thread, process)) = next.runner {
            self.run_by(thread, home(process));
            self.executed.join(&next.executed);
        }
        for image in next.images {
            self.add_image(Image { process: home(image.process), ..image });
        }
        for (number, calls) in next.syscalls {
            *self.syscalls.entry(number).or_default() += calls;
        }
        self.events += next.events;
        self.gaps += next.gaps;
    }
}

impl Thread {
    /// The thread goes on like this.
    fn go_on(&mut self, next: &Self) {
        let clock = self.clock;
        self.add(next);
        self.start = next.start.or(self.start);
        self.end = next.end.or(self.end);
        self.clock = match (clock, next.clock) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (before, next) => next.or(before),
        };
    }
}
