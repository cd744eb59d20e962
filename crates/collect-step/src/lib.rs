//! The oracle: traces a whole process tree by single-stepping it with ptrace.
//!
//! Every thread of the program and of the processes it makes is executed one
//! instruction at a time; before each one the registers tell, through
//! `isa-x86`, what it will touch. That is slow (tens of thousands of
//! instructions a second) and simple, and depends on nothing clever: what other
//! collectors record is tested for equality with what this one does. What is
//! recorded, and in which order, is written in `docs/EVENTS.md`.
//!
//! # What the program can notice
//!
//! Its output, exit status, signals and files are as without tracing. It can
//! notice, if it looks: that it is slow; its tracer's number in
//! `/proc/self/status`; that restartable sequences (rseq) with a critical
//! section and hardware transactions never get through, since every step
//! interrupts them; and that set-user-id programs it executes do not gain
//! privilege.
//!
//! # How it ends
//!
//! A collection lasts until the whole tree has ended: a daemon left behind is
//! traced until it ends, or until the stop flag is set. If the process that
//! collects dies, the kernel kills the tree.
//!
//! # Example
//!
//! ```
//! use ichnos_base::{EndStatus, Null};
//! use ichnos_collect_step::{Config, run};
//!
//! let outcome = run(&Config::new("true"), &mut Null)?;
//! assert_eq!(outcome.status, EndStatus::Exited(0));
//! assert!(outcome.insns > 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

mod auxv;
mod code;
mod collector;
mod config;
mod disposition;
mod emit;
mod ending;
mod engine;
mod error;
mod events;
mod images;
mod launch;
mod live;
mod maps;
mod step;
mod stop;
mod sys;
mod tracee;

pub use collector::{Collector, Ending, Outcome, run};
pub use config::{Aslr, Config, OnStop, Values, Vdso};
pub use error::Error;
