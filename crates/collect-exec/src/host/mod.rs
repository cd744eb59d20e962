//! The host side: starts programs and puts the engine into them.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod backlog;
mod book;
mod channel;
mod choice;
mod collect;
mod control;
mod family;
mod follow;
mod gather;
mod images;
mod inject;
mod launch;
mod maps;
mod program;
mod raw;
mod remote;
mod self_image;
mod sifted;
mod spooled;
mod stream;
mod told;
mod varying;
mod vdso;

pub use crate::boot::Paths;
pub use backlog::{Place as SpoolPlace, When};
pub use choice::{Choice, Function};
pub use collect::{CollectError, Outcome, Watch};
pub use control::{Switch, control};
pub use ichnos_spool::remove as remove_spool;
pub use launch::{Fallback, Launch, Randomize, Record, Tracee, Vdso};
pub use spooled::{Packed, Spooled, Spooling};
