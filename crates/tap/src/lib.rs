//! The shared-memory channel from a traced program to its collector.
//!
//! One file in memory, mapped by the collector and by every process of the traced tree: a
//! [`Header`] with counters, switches, requests and buffer descriptors, then the buffers. This
//! crate is the layout and the moves that keep it consistent; mapping it, and what the words in a
//! buffer mean, are its users' business. All moves are atomic operations on shared words, so either side
//! may die at any moment and the other still finds a consistent state.
//!
//! # Buffers
//!
//! A buffer is free, owned by a thread that fills it, or full. [`Header::take`] makes a free
//! one owned; [`Header::submit`] makes it full and gives it a ticket; the collector handles full buffers in
//! the order of tickets ([`Header::next_full`]) and frees them. A thread that finds none free
//! waits on [`Header::room`]; so does every other one that needs a buffer: nothing is lost, all
//! stop until the collector has caught up.
//!
//! # Processes
//!
//! Every process of the tree has a [`Life`], claimed by its parent before it exists, so that the collector
//! always sees one while anybody lives.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

mod buffer;
mod exec;
mod header;
mod life;

pub use buffer::{BufferKind, Descriptor, Taken};
pub use exec::{ExecSlot, ExecState};
pub use header::{Header, Layout, MAGIC, MOST_BUFFERS, VERSION};
pub use life::{Life, LifeState};
