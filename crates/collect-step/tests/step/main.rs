//! The collector on real programs: against their native runs, against the
//! rules of `docs/EVENTS.md`, against Valgrind, and against adversity.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod ends;
mod judge;
mod lackey_form;
mod layout;
mod programs;
mod run;
mod subject;
