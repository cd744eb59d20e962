//! The planner against a machine that executes random programs.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod program;
mod random;
mod real;
mod replayer;
mod shapes;
mod stepped;
