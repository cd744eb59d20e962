//! The vocabulary that every other crate speaks: addresses and ids, what a
//! trace says ([`Record`], [`Event`], [`Code`]), who listens ([`Sink`]) and who
//! tells ([`Source`]).
//!
//! Nothing here stores, packs, prints or decides. The crate is `no_std`, has no
//! dependencies and never allocates, so that code running inside a traced
//! program can use it too.
//!
//! # Example
//!
//! A sink that counts store bytes, and two instructions pushed into it:
//!
//! ```
//! use core::convert::Infallible;
//! use ichnos_base::*;
//!
//! #[derive(Default)]
//! struct StoredBytes(u64);
//!
//! impl Sink for StoredBytes {
//!     type Error = Infallible;
//!     fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
//!         for record in batch.records {
//!             if let Record::Store { size, .. } = record {
//!                 self.0 += u64::from(*size);
//!             }
//!         }
//!         Ok(true)
//!     }
//! }
//!
//! let mut sink = StoredBytes::default();
//! let records = [
//!     Record::insn(GuestVa(0x401000), 1, InsnKind::OTHER),
//!     Record::store(GuestVa(0x7ffe_0ff8), 8),
//!     Record::insn(GuestVa(0x401001), 3, InsnKind::OTHER),
//! ];
//! sink.records(&Batch::new(ThreadId(0), 0, &records))?;
//! assert_eq!(sink.0, 8);
//! # Ok::<(), Infallible>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

mod about;
mod addr;
mod batch;
mod blocks;
mod event;
mod id;
mod raw;
mod record;
mod sieve;
mod sink;
mod source;
mod step;
mod tee;
mod totals;

pub use about::{About, Isa};
pub use addr::{CacheAddr, FileOff, GuestPa, GuestVa, HostAddr, LineAddr, PageNum};
pub use batch::{Batch, Code};
pub use blocks::{Blocks, Shapes};
pub use event::{
    BarrierPhase, CondOp, EndStatus, Event, GapReason, LockKind, LockOp, Map, MapKind, Mode,
    Privilege, Protection, SignalInfo, ThreadStart, TrapInfo,
};
pub use id::{BlockId, HartId, InsnId, ProcessId, ThreadId};
pub use raw::{Chain, Leave, Plan, Raw};
pub use record::{AccessFlags, InsnKind, Record};
pub use sieve::{Gone, Held, Known, Line, Lines, Sieve, Use};
pub use sink::{Null, Sink};
pub use source::{DriveError, Source};
pub use step::{Address, ExitKind, Ref, RefKind, Register, Slot, Step, Sum, Value, Width};
pub use tee::{Tee, TeeError};
pub use totals::Totals;
