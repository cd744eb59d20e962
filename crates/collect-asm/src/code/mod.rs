//! From a program and its notes to its second copy: functions, plans, layout, roadmap.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod convention;
mod copy;
mod emit;
mod flex;
mod function;
mod hook;
mod image;
mod patch;
mod region;
mod roadmap;
mod turns;
mod unwind;

pub use copy::CodeSize;
pub(crate) use copy::{Copy, Patch};
pub(crate) use emit::{ENTERED, ENTERED_LEN, TAG};
pub(crate) use hook::{ENOUGH as HOOKED, NAME as FIND_OBJECT, hook};
pub(crate) use image::{Image, symbol};
pub(crate) use roadmap::{Block, Exit, Op};
pub(crate) use turns::of_tag as turns_of_tag;

pub use image::{has_notes, noted};
