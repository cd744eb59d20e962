//! Where a machine's observations go: nowhere, or to a sink. The machine is
//! compiled once for each.
//!
//! Order is kept by handing a thread's records over before any event of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;

use ichnos_base::{Code, Event, GuestVa, ProcessId, Record, Sink, ThreadId};

use crate::observe::{Blind, Observer};
use crate::ram::PAGE_SIZE;
use crate::recorder::{Recorder, Values};

/// Reads guest code for the trace: up to four bytes at an address.
pub(crate) trait Fetch {
    fn fetch(&mut self, pc: GuestVa, bytes: &mut [u8]) -> bool;
}

/// Whether the sink wants more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum More {
    Yes,
    Enough,
}

impl From<bool> for More {
    fn from(more: bool) -> Self {
        if more { Self::Yes } else { Self::Enough }
    }
}

/// Receives what threads do.
pub(crate) trait Tracer {
    type Watch: Observer;
    type Error;

    /// The observer of a thread.
    fn watch(&mut self, thread: ThreadId) -> &mut Self::Watch;

    /// An event at the present point of a thread; records go first.
    fn event(
        &mut self,
        thread: ThreadId,
        event: &Event<'_>,
        code: &mut dyn Fetch,
    ) -> Result<More, Self::Error>;

    /// Hands a thread's records on. Code is told first, so this must happen
    /// while the code that ran is still mapped where it ran.
    fn drain(&mut self, thread: ThreadId, code: &mut dyn Fetch) -> Result<More, Self::Error>;

    /// Code in this range of a process may have changed: it is told again. Drain
    /// first.
    fn code_changed(&mut self, process: ProcessId, start: GuestVa, len: u64);

    /// Says which process a thread runs in.
    fn assign(&mut self, thread: ThreadId, process: ProcessId);
}

/// Observes nothing.
#[derive(Debug, Default)]
pub(crate) struct Untraced(Blind);

impl Tracer for Untraced {
    type Watch = Blind;
    type Error = Infallible;

    #[inline]
    fn watch(&mut self, _: ThreadId) -> &mut Blind {
        &mut self.0
    }
    #[inline]
    fn event(&mut self, _: ThreadId, _: &Event<'_>, _: &mut dyn Fetch) -> Result<More, Infallible> {
        Ok(More::Yes)
    }
    #[inline]
    fn drain(&mut self, _: ThreadId, _: &mut dyn Fetch) -> Result<More, Infallible> {
        Ok(More::Yes)
    }
    fn code_changed(&mut self, _: ProcessId, _: GuestVa, _: u64) {}
    fn assign(&mut self, _: ThreadId, _: ProcessId) {}
}

/// One bit per halfword of a page.
type Halfwords = [u64; PAGE_SIZE / 128];

/// Hands records to a sink.
#[derive(Debug)]
pub(crate) struct Traced<'a, S> {
    sink: &'a mut S,
    values: Values,
    threads: Vec<(Recorder, ProcessId)>,
    /// Which instructions the sink knows, by page.
    told: HashMap<(ProcessId, u64), Halfwords>,
    /// What it was told last: code that only went away and came back unchanged
    /// (another address space was current meanwhile) is not told again.
    last: HashMap<(ProcessId, GuestVa), [u8; 4]>,
}

impl<'a, S: Sink> Traced<'a, S> {
    pub(crate) fn new(sink: &'a mut S, values: Values) -> Self {
        Self { sink, values, threads: Vec::new(), told: HashMap::new(), last: HashMap::new() }
    }

    fn reserve(&mut self, thread: ThreadId) {
        while self.threads.len() <= thread.index() {
            let id = ThreadId(self.threads.len() as u32);
            self.threads.push((Recorder::new(id, self.values), ProcessId(0)));
        }
    }

    /// Tells the sink the code of instructions it has not seen.
    fn tell_code(&mut self, thread: ThreadId, code: &mut dyn Fetch) -> Result<More, S::Error> {
        let (recorder, process) = &self.threads[thread.index()];
        let mut page_number = u64::MAX;
        let mut bits = [0; PAGE_SIZE / 128];
        let mut changed = false;
        for record in recorder.records() {
            let Record::Insn { len, pc, .. } = *record else { continue };
            if pc.0 / PAGE_SIZE as u64 != page_number {
                if changed {
                    self.told.insert((*process, page_number), bits);
                }
                page_number = pc.0 / PAGE_SIZE as u64;
                bits = self.told.get(&(*process, page_number)).copied().unwrap_or_default();
                changed = false;
            }
            let half = pc.0 as usize % PAGE_SIZE / 2;
            if bits[half / 64] >> (half % 64) & 1 != 0 {
                continue;
            }
            bits[half / 64] |= 1 << (half % 64);
            changed = true;
            let mut word = [0; 4];
            let len = usize::from(len).min(4);
            if !code.fetch(pc, &mut word[..len])
                || self.last.insert((*process, pc), word) == Some(word)
            {
                continue;
            }
            let bytes = &word[..len];
            if !self.sink.code(thread, &Code { process: *process, pc, bytes })? {
                return Ok(More::Enough);
            }
        }
        if changed {
            self.told.insert((*process, page_number), bits);
        }
        Ok(More::Yes)
    }
}

impl<S: Sink> Tracer for Traced<'_, S> {
    type Watch = Recorder;
    type Error = S::Error;

    fn watch(&mut self, thread: ThreadId) -> &mut Recorder {
        self.reserve(thread);
        &mut self.threads[thread.index()].0
    }

    fn event(
        &mut self,
        thread: ThreadId,
        event: &Event<'_>,
        code: &mut dyn Fetch,
    ) -> Result<More, S::Error> {
        if self.drain(thread, code)? == More::Enough {
            return Ok(More::Enough);
        }
        Ok(self.sink.event(thread, event)?.into())
    }

    fn drain(&mut self, thread: ThreadId, code: &mut dyn Fetch) -> Result<More, S::Error> {
        self.reserve(thread);
        if self.tell_code(thread, code)? == More::Enough {
            return Ok(More::Enough);
        }
        Ok(self.threads[thread.index()].0.hand_over(self.sink)?.into())
    }

    fn code_changed(&mut self, process: ProcessId, start: GuestVa, len: u64) {
        let first = start.0 / PAGE_SIZE as u64;
        let last = start.0.saturating_add(len.max(1) - 1) / PAGE_SIZE as u64;
        self.told.retain(|&(p, page), _| p != process || page < first || page > last);
    }

    fn assign(&mut self, thread: ThreadId, process: ProcessId) {
        self.reserve(thread);
        self.threads[thread.index()].1 = process;
    }
}
