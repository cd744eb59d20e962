//! Traces in the formats of the field: readers are [`Source`]s, writers are
//! [`Sink`]s, so any format can be turned into a `.ichnos` file, simulated, or
//! turned into another format.
//!
//! `docs/CONVERT.md` says for each format what is kept and what is lost. Readers
//! take foreign bytes: bad ones end in an [`Error`] with a place, never in a
//! panic, and memory does not grow with the input (drmemtrace and ChampSim
//! readers remember a bounded amount per static instruction).
//!
//! [`Source`]: ichnos_base::Source
//! [`Sink`]: ichnos_base::Sink
//!
//! ```
//! use ichnos_base::{Null, Source};
//! use ichnos_convert::{Format, ReadOptions, reader_source};
//!
//! let text = b"I  00401000,3\n L 1ffeffe3f0,8\n";
//! let mut source = reader_source(Format::Lackey, Box::new(&text[..]), &ReadOptions::default())?;
//! source.drive(&mut Null)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod any;
mod bbv;
mod champsim_read;
mod champsim_record;
mod champsim_regs;
mod champsim_write;
mod code_map;
mod digits;
mod din_read;
mod dr_entry;
mod dr_marker;
mod dr_read;
mod dr_story;
mod dr_thread;
mod dr_write;
mod error;
mod feed;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod gem5;
mod input;
mod lackey_read;
mod options;
mod output;
mod text_write;
mod wire;

pub use any::{AnySink, AnySource, create_sink, open_source, reader_source, writer_sink};
pub use bbv::BbvSink;
pub use champsim_read::ChampSimSource;
pub use champsim_record::{
    ChampSimRecord, FLAGS, INSTRUCTION_POINTER, Layout, SOURCES, STACK_POINTER,
};
pub use champsim_write::ChampSimSink;
pub use din_read::DinSource;
pub use dr_read::{DrMemtraceSource, ReadSeek};
pub use dr_write::DrMemtraceSink;
pub use error::{Error, Result};
pub use format::{Direction, Format, UnknownFormat};
pub use gem5::{Gem5Sink, Gem5Source};
pub use input::{Stream, decompress, open_stream};
pub use lackey_read::LackeySource;
pub use options::{DinStyle, Excess, PacketIds, ReadOptions, Repeats, WriteOptions};
pub use output::{Compression, Output, thread_path};
pub use text_write::{DinSink, LackeySink};
