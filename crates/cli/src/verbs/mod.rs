//! The verbs, one a file: its arguments, and what it does with them.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod annotate;
pub mod boot;
pub mod cc;
pub mod check;
pub mod control;
pub mod convert;
pub mod cut;
pub mod diff;
pub mod dump;
pub mod info;
pub mod locality;
pub mod pack;
pub mod record;
pub mod salvage;
pub mod sim;
pub mod step;
