//! The sink behind `annotate`: costs from the models, places from the images,
//! bytes for disassembly.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_analyze::profile::{Gathered, Profile};
use ichnos_base::{About, Batch, Code, Event, GuestVa, Sink, ThreadId};

use crate::charge::Charge;
use crate::code_bytes::CodeBytes;
use crate::images::Images;

/// Whether machine code is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// No: nothing will be disassembled.
    Costs,
    /// Yes.
    CostsAndCode,
}

/// Collects all that annotation needs.
pub struct Annotation {
    profile: Profile<Charge>,
    images: Images,
    code: CodeBytes,
    keep: Keep,
    command: String,
}

/// Costs with names.
pub struct Annotated {
    /// The costs by function, line and instruction.
    pub all: Gathered,
    /// The command that was traced.
    pub command: String,
    images: Images,
    code: CodeBytes,
}

impl Annotation {
    /// Nothing yet.
    pub fn new(charge: Charge, keep: Keep) -> Self {
        Self {
            profile: Profile::new(charge),
            images: Images::new(),
            code: CodeBytes::default(),
            keep,
            command: String::new(),
        }
    }

    /// The costs, with the names of their places.
    pub fn into_annotated(mut self) -> Annotated {
        let (costs, _) = self.profile.into_costs();
        let all = costs.gather(&mut self.images);
        Annotated { all, command: self.command, images: self.images, code: self.code }
    }
}

impl Annotated {
    /// Costs that were stored, with what was mapped and the code that ran.
    pub const fn stored(all: Gathered, command: String, images: Images, code: CodeBytes) -> Self {
        Self { all, command, images, code }
    }

    /// The instruction at an address in words, where its code is known.
    pub fn text(&self, pc: GuestVa) -> Option<String> {
        self.code.text(&self.images.spaces(), pc)
    }
}

impl Sink for Annotation {
    type Error = Infallible;

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.command = about.command.join(" ");
        self.code.set_isa(about.isa);
        self.profile.begin(about)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.profile.observer_mut().simulate(batch);
        self.profile.records(batch)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.images.event(thread, event);
        self.profile.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        if self.keep == Keep::CostsAndCode {
            self.code.add(self.images.space_of(thread), code.pc, code.bytes);
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        self.profile.finish()
    }
}
