//! Replay: roadmap and streams back to records, exactly as they were pushed or
//! as the plan says; serial, merged by time, from any instruction on, or
//! in parallel by chunk.
//!
//! # Example
//!
//! Two instructions into a trace in memory, and counted as they come back:
//!
//! ```
//! use ichnos_base::*;
//! use ichnos_replay::Replay;
//! use ichnos_trace::{Options, Reader, Writer};
//!
//! struct Count(Totals);
//! impl Sink for Count {
//!     type Error = std::convert::Infallible;
//!     fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
//!         self.0.count_batch(batch);
//!         Ok(true)
//!     }
//! }
//!
//! let mut writer = Writer::new(Vec::new(), Options::default())?;
//! writer.begin(&About { isa: Isa::X86_64, collector: "example", ..About::default() })?;
//! let records = [
//!     Record::insn(GuestVa(0x401000), 1, InsnKind::OTHER),
//!     Record::store(GuestVa(0x7ffe_0ff8), 8),
//!     Record::insn(GuestVa(0x401001), 3, InsnKind::OTHER),
//! ];
//! writer.records(&Batch::new(ThreadId(0), 0, &records))?;
//! writer.finish()?;
//!
//! let reader = Reader::from_bytes(writer.into_inner())?;
//! assert_eq!(reader.about().collector, "example");
//! let mut count = Count(Totals::default());
//! Replay::new(&reader).drive(&mut count).expect("it was just written");
//! assert_eq!(count.0, reader.totals());
//! # Ok::<(), ichnos_trace::Error>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod announce;
mod cut;
mod expand;
#[doc(hidden)]
pub mod fuzz;
mod machine;
mod merge;
mod parallel;
mod player;
mod replay;
mod stretch;
mod ways;

pub use cut::{Cut, cut};
pub use parallel::Piece;
pub use replay::{Order, Replay};
pub use ways::Ways;
