//! Names for addresses: the image crate's symbolizer as the reports want it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Batch, Event, GuestVa, ProcessId, Sink, ThreadId};
use ichnos_image::{DebugFolders, Symbolizer};
use ichnos_report::Symbolize;

/// Function and source line of an instruction, as far as its image tells.
pub struct Names(Symbolizer);

impl Names {
    /// Names from images and from the system's folder of debug files.
    pub fn new() -> Self {
        Self(Symbolizer::new(DebugFolders::default()))
    }
}

impl Symbolize for Names {
    fn name(&mut self, process: ProcessId, pc: GuestVa) -> Option<String> {
        let line = self.0.frames(process, pc).first().and_then(|frame| {
            let file = frame.file.as_deref()?;
            let file = file.rsplit('/').next().unwrap_or(file);
            Some(format!(" ({file}:{})", frame.line?))
        });
        let place = self.0.place(process, pc)?;
        let image = place.image.rsplit('/').next().unwrap_or(place.image);
        let name = match place.symbol {
            Some(at) => format!("{}+{:#x}", ichnos_image::demangle(at.symbol.name), at.offset),
            None => format!("{image}+{:#x}", place.addr.0),
        };
        Some(format!("{name}{}", line.unwrap_or_default()))
    }

    fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        Some(self.0.process_of(thread))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        self.0.note(thread, event);
    }
}

/// As a sink it takes only events: what lies where, before a part of a trace.
impl Sink for Names {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.0.note(thread, event);
        Ok(true)
    }
}
