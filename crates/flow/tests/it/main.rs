//! The planner against a machine that executes random programs.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod lift;
mod program;
mod random;
mod real;
mod replayer;
mod shapes;
