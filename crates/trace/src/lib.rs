//! The trace file: roadmap, streams, chunks and index; written, read, salvaged.
//!
//! What is stored and what consumers see are different things: this crate turns
//! records into block executions and words and back into the latter;
//! `ichnos-replay` turns those into records. Nothing here knows an instruction
//! set. `docs/FORMAT.md` is normative for every byte.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod block;
mod book;
mod bytes;
mod chunk;
mod code_store;
mod columns;
mod error;
mod event_codec;
mod flex;
mod hash;
mod header;
mod index;
mod input;
mod mark;
mod output;
mod pack;
mod path;
mod plan;
mod predict;
mod reader;
mod roadmap;
mod roadmap_codec;
mod salvage;
mod scan;
mod sequence;
mod step;
mod stream;
mod unpack;
mod values;
mod writer;

pub use block::{Block, Exits, MAX_STEPS, Shape, Word};
pub use chunk::{ChunkHeader, ChunkKind, MAX_RAW, MAX_RECORDS};
pub use error::Error;
pub use flex::{Lane, Run};
pub use header::{Provenance, VERSION};
pub use index::ChunkPlace;
pub use mark::{Leave, Loose};
pub use plan::{MAX_RAW_WORDS, Raw, describe};
pub use reader::{Condition, Decoder, Reader, Thread};
pub use roadmap::{Entry, LeftAt, MAX_BLOCKS, MAX_SLOTS, Roadmap};
pub use salvage::{Lost, Salvaged, salvage};
pub use scan::Hole;
pub use step::{Address, ExitKind, Ref, RefKind, Register, Slot, Step, Sum, Value, Width};
pub use unpack::{Burst, Item};
pub use writer::{Options, Writer};
