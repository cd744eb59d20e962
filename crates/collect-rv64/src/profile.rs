//! Profiling: every taken transfer counted, and only those references told to
//! models whose outcome the tables here do not know.
//!
//! ```text
//!   code      touch a line ── known to hit? ── write its time of use ── on
//!   data      reach a line ── known to hit? ── write its time of use ── on
//!                                 │ no
//!                                 ▼
//!                         Models::reference ──► which lines may pass henceforth
//!   transfers count an arc (from, to) ──► Counts deduces executions from arcs
//! ```
//!
//! The collector knows no model: whoever runs a profile brings [`Models`].
//! Times of use are written where the models say, so that an LRU cache is exact
//! though it sees misses only.
//!
//! A fetch is told once for each run of instructions in one line. An instruction
//! that traps has been fetched, although it does not retire.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod arcs;
mod book;
mod coarse;
mod deduce;
mod host;
mod line;
mod lines;
mod models;
mod pages;
mod profiler;
mod reach;
mod tables;
mod tracer;
mod views;
mod watch;
mod words;

pub(crate) use book::{Book, EVICTIONS, PAGES_SEEN, RECENT, Recent, WRITE_BACKS};
pub(crate) use line::{CLEAN, HIDDEN, LINE_SHIFT, Line, NO_LINE};
pub(crate) use lines::{ABSENT, LINE_ENTRIES, PAGE_RECORD_SHIFT, PAGES, Page};
pub(crate) use pages::HIDDEN as HIDDEN_FRAME;
pub(crate) use tables::{INDIRECT_ENTRIES, Indirect, Own, Site, Start, site_mix};
pub(crate) use tracer::Profiled;

pub use deduce::{Arc, Executed, Profile};
pub use models::{
    Detail, Gone, Models, Pass, Reference, ReferenceKind, Ring, Sets, Shape, Stamps, Transfer,
    WRITTEN,
};
