//! The trace file: roadmap, streams, chunks and index; written, read, salvaged.
//!
//! What is stored and what consumers see are different things: this crate turns
//! records into block executions and words and back into the latter;
//! `ichnos-replay` turns those into records. Nothing here knows an instruction
//! set. `docs/FORMAT.md` is normative for every byte.
//!
//! Two ways in, both through [`Writer`]: records pushed into it as a
//! [`Sink`](ichnos_base::Sink), from which it builds the roadmap itself; or blocks that a collector
//! planned ([`Sink::plan`](ichnos_base::Sink::plan)) with what its threads stored
//! ([`Sink::raw`](ichnos_base::Sink::raw)). The first makes the smaller files, the second is several times faster.
//!
//! # Example
//!
//! ```
//! use ichnos_base::*;
//! use ichnos_trace::{Condition, Options, Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), Options::default())?;
//! writer.begin(&About { isa: Isa::X86_64, collector: "example", ..About::default() })?;
//! writer.event(ThreadId(0), &Event::ThreadStart(ThreadStart::default()))?;
//! let records = [Record::insn(GuestVa(0x401000), 1, InsnKind::OTHER)];
//! writer.records(&Batch::new(ThreadId(0), 0, &records))?;
//! writer.finish()?;
//!
//! let reader = Reader::from_bytes(writer.into_inner())?;
//! assert_eq!(*reader.condition(), Condition::Complete);
//! assert_eq!(reader.totals().insns, 1);
//! assert!(reader.threads()[0].start.is_some());
//! # Ok::<(), ichnos_trace::Error>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod block;
mod book;
mod bytes;
mod chain;
mod chunk;
mod code_store;
mod coder;
mod columns;
mod copy;
mod digest;
mod error;
mod event_codec;
pub mod flat;
mod flex;
mod followed;
mod hash;
mod header;
mod index;
mod input;
mod learn;
mod lore;
mod mark;
mod mend;
mod misses;
mod numbered;
mod onward;
mod output;
mod pack;
mod path;
mod places;
mod plan;
mod predict;
mod raw_flex;
mod raw_line;
mod raw_pack;
mod raw_unpack;
mod reader;
mod roadmap;
mod roadmap_codec;
mod salvage;
mod scan;
mod sequence;
mod slot;
mod stream;
mod study;
mod tables;
mod tile;
mod token;
mod twins;
mod unpack;
mod values;
mod wire;
mod writer;

pub use block::{Block, Exits, LeftAt, MAX_STEPS, Shape, Tally, Word};
pub use chain::MAX_CHAINS;
pub use chunk::{ChunkHeader, ChunkKind, MAX_INSNS, MAX_RAW, MAX_RECORDS};
pub use error::Error;
pub use flex::{Lane, Run};
pub use header::{Provenance, VERSION};
pub use ichnos_base::{
    Address, ExitKind, Leave, Ref, RefKind, Register, Slot, Step, Sum, Value, Width,
};
pub use index::ChunkPlace;
pub use mark::Loose;
#[doc(hidden)]
pub use mend::mend_checksums;
pub use numbered::Numbered;
pub use places::Taken;
pub use raw_flex::{put_raw_accesses, put_raw_runs};
pub use reader::{Condition, Decoder, Reader, Thread};
pub use roadmap::{Entry, MAX_BLOCKS, MAX_ROADMAP, MAX_SLOTS, Roadmap};
pub use salvage::{Lost, Salvaged, salvage, salvage_bytes};
pub use scan::Hole;
pub use unpack::{Burst, Item};
pub use writer::{Options, Writer};
