//! The machine's observations as a profile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Event, GuestVa, ProcessId, ThreadId};
use ichnos_isa_rv64::is_compressed;

use super::deduce::Profile;
use super::models::Models;
use super::profiler::Profiler;
use crate::tracer::{Fetch, More, Tracer};

/// Profiles what threads do.
#[derive(Debug)]
pub(crate) struct Profiled<M>(Profiler<M>);

impl<M: Models> Profiled<M> {
    pub(crate) fn new(models: M) -> Self {
        Self(Profiler::new(models))
    }

    /// Whether generated code tells enough.
    pub(crate) fn allows_generated(&self) -> bool {
        self.0.allows_generated()
    }

    /// The profile, and the models.
    pub(crate) fn finish(self, retired: u64) -> (Profile, M) {
        self.0.finish(retired)
    }
}

/// The instruction at an address, as a little-endian number.
fn word_at(code: &mut dyn Fetch, pc: u64) -> Option<u32> {
    let mut low = [0; 2];
    if !code.fetch(GuestVa(pc), &mut low) {
        return None;
    }
    let low = u32::from(u16::from_le_bytes(low));
    if is_compressed(low) {
        return Some(low);
    }
    let mut all = [0; 4];
    code.fetch(GuestVa(pc), &mut all).then(|| u32::from_le_bytes(all))
}

impl<M: Models> Tracer for Profiled<M> {
    type Watch = Profiler<M>;
    type Error = Infallible;

    #[inline]
    fn watch(&mut self, thread: ThreadId) -> &mut Profiler<M> {
        self.0.switch(thread);
        &mut self.0
    }

    fn event(
        &mut self,
        thread: ThreadId,
        event: &Event<'_>,
        code: &mut dyn Fetch,
    ) -> Result<More, Infallible> {
        self.drain(thread, code)?;
        self.0.event(thread, event);
        Ok(More::Yes)
    }

    #[inline]
    fn drain(&mut self, _: ThreadId, code: &mut dyn Fetch) -> Result<More, Infallible> {
        self.0.close_run();
        while let Some((start, end)) = self.0.take_fresh() {
            let mut pc = start;
            while pc < end {
                let Some(word) = word_at(code, pc) else {
                    self.0.unreadable(pc);
                    break;
                };
                self.0.note(pc, word);
                pc = pc.wrapping_add(if is_compressed(word) { 2 } else { 4 });
            }
        }
        Ok(More::Yes)
    }

    fn code_changed(&mut self, _: ProcessId, _: GuestVa, _: u64) {}
    fn assign(&mut self, _: ThreadId, _: ProcessId) {}
}
