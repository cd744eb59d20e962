//! The engine side: runs inside the traced program.
//!
//! Rules for everything here: no thread-local state (all threads share the engine's one
//! libc thread area), no libc calls that block, allocate or keep state, no unwinding. Code
//! that a signal handler may run takes no lock that the interrupted code can hold.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod alloc;
mod cache;
mod count;
mod ctx;
mod decoded;
mod dispatch;
mod emit;
mod entry;
mod evict;
mod exits;
mod expect;
mod fallback;
mod flexible;
mod fragment;
mod gates;
mod glue;
mod group;
mod guards;
mod halfway;
mod hash;
mod home;
mod hot;
mod index;
mod inserted;
mod items;
mod lanes;
mod lean;
mod lock;
mod mangle;
mod maps;
mod native;
mod needed;
mod nowhere;
mod pages;
mod path;
mod places;
mod probe;
mod reach;
mod sieved;
mod sift;
mod signals;
mod sites;
mod slots;
mod snapshot;
mod state;
mod superblock;
mod symbols;
mod sync;
mod sys;
mod syscalls;
mod tap;
mod tell;
mod thread;
mod trace;
mod translate;
mod vmas;
mod xstate;

pub use entry::keep;
pub use sieved::fits;
