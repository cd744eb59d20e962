//! Where to store what so that replay can reconstruct every address.
//!
//! One analysis for assembly text and machine code of any instruction set. In go
//! instructions in neutral terms ([`Region`]): what they read and write, the
//! addresses they form, the values that follow from others. Out comes a [`Plan`]:
//! the code cut into superblocks ([`Piece`]), for each the few registers to store
//! and where ([`SavePoint`], with what is dead there and free to use), and the
//! roadmap steps by which replay turns the stored words back into addresses.
//!
//! The method is MPTRACE's (Eggers, Keppel, Koldinger, Levy, 1990, section 3) with
//! data flow over whole functions: an identifier per superblock, registers stored once
//! and followed through moves and arithmetic, several in one save point, nothing
//! for addresses that are constant or follow from what is known. [`Options`]
//! switches each of these singly; [`Level`] names the paper's combinations.
//!
//! # What the caller promises
//!
//! - Every address that control can reach other than by the region's own direct
//!   branches and fall-throughs is in [`Region::entries`] or follows a call.
//! - Shadow registers survive what interrupts a thread (a signal handler) by being
//!   snapshotted around it.
//!
//! The crate depends on `ichnos-trace` for the step types alone.
//!
//! # Example
//!
//! `push` twice, in a set of two registers of which number 1 is the stack pointer:
//! it is stored once, at the entry, and followed.
//!
//! ```
//! use ichnos_base::{AccessFlags, GuestVa, InsnKind};
//! use ichnos_flow::{Control, Effect, Insn, Level, Live, Reference, Region, Set, plan};
//! use ichnos_trace::{RefKind, Register, Slot, Sum, Value};
//!
//! let sp = Register(1);
//! let below = Sum { base: Some(sp), index: None, disp: -8 };
//! let push = |pc| Insn {
//!     pc: GuestVa(pc),
//!     len: 1,
//!     kind: InsnKind::OTHER,
//!     control: Control::Next,
//!     uses: Live { registers: Set::only(sp), flags: 0 },
//!     kills: Live { registers: Set::only(sp), flags: 0 },
//!     effects: vec![
//!         Effect::Ref(Reference {
//!             kind: RefKind::Store,
//!             flags: AccessFlags::STACK,
//!             size: 8,
//!             address: below,
//!         }),
//!         Effect::Set(sp, Value::Sum(below)),
//!     ],
//! };
//! let region = Region {
//!     insns: vec![push(0x1000), push(0x1001)],
//!     entries: vec![GuestVa(0x1000)],
//!     takeable: Set(0b11),
//!     ..Region::default()
//! };
//! let planned = plan(&region, &Level::Flow.into(), Slot(0))?;
//! assert_eq!(planned.pieces.len(), 1);
//! assert_eq!(planned.pieces[0].saves[0].stores[0].register, sp);
//! assert_eq!(planned.pieces[0].words(), 1);
//! # Ok::<(), ichnos_flow::Error>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod cycle;
mod emit;
mod error;
mod graph;
mod insn;
mod known;
mod line;
mod liveness;
mod options;
mod place;
mod plan;
mod search;
mod set;
mod summary;

pub use error::Error;
pub use insn::{Control, Effect, Insn, Live, Loss, Reference, Region, value_registers};
pub use line::{plan_line, plan_path};
pub use options::{Across, Follow, Halves, Level, Options, Piece as Granularity};
pub use plan::{Piece, Plan, SavePoint, Store, plan};
pub use set::Set;
