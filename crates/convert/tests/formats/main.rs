//! The formats as a user meets them: what is written is read back, bad input is
//! refused with its place, and judges that are not ours agree.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bbv;
mod champsim;
mod damage;
mod drmemtrace;
mod gem5;
mod lackey;
mod program;
mod tape;
mod text;
