//! From a program and its notes to its second copy: functions, plans, layout, roadmap.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod carry;
mod chain;
mod clone;
mod convention;
mod copier;
mod copy;
mod emit;
mod encode;
mod flex;
mod function;
mod hook;
mod image;
mod kernel;
mod patch;
mod plot;
mod points;
mod reference;
mod region;
mod returning;
mod roadmap;
mod spread;
mod switch;
mod sync;
mod tool;
mod turns;
mod unwind;
mod ways;

pub use copy::{CodeSize, event_places};
pub(crate) use copy::{Copy, Patch, Source, Switched};
pub(crate) use emit::{ENTERED, ENTERED_LEN, TAG};
pub(crate) use flex::Payload;
pub(crate) use hook::{ENOUGH as HOOKED, HOOK_LEN, Listed, NAME as FIND_OBJECT, hook};
pub(crate) use image::{Image, Loading, imports, may_have_notes, symbol};
pub(crate) use kernel::{ANSWERED, ANSWERED_LEN, ASKED, ASKED_LEN};
pub(crate) use plot::{Numbers, PAGE, Plot, Room};
pub(crate) use reference::{Form, Kind, Midway, REFERENCE_LEN, kind_of_tag};
pub(crate) use region::TARGET;
pub(crate) use roadmap::{Block, Exit, Op};
pub(crate) use switch::{
    BACK, BACK_LEN, COUNT, RESUMED, RESUMED_LEN, STATE, SWITCHED_OFF, SWITCHED_OFF_LEN,
    SWITCHED_ON, SWITCHED_ON_LEN, Switching, TURNS, Trigger,
};
pub(crate) use sync::{CALLED, CALLED_LEN, RETURNED, RETURNED_LEN, Site as SyncSite, TAIL_LEN};
pub(crate) use tool::{Call, IN_TOOL, Tool};
pub(crate) use turns::of_tag as turns_of_tag;

pub use image::{entries, has_notes, noted};
