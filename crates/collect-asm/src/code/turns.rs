//! Loops that are one block: several turns of them share one record.
//!
//! A short loop would spend more time on moving its thread's place in the buffer than on itself.
//! So the copy holds its body several times over, one record tells of as many turns, and
//! it has room for the words of all. Which turn the loop is left from cannot be seen from where it goes
//! on; so on every way out, except those of the first turn, a tag says it ([`tag`]). A record after
//! which the loop begins again without such a tag tells of all turns.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_flow::{Across, Options, Piece};
use ichnos_isa_x86::{Flow, Inst};

/// The most turns of one record. More made no difference.
const MOST: usize = 8;
/// The most turns if each stores words, which are in vain where the loop ends earlier.
const MOST_WITH_WORDS: usize = 4;
/// The most instructions of all turns together.
const MOST_INSTRUCTIONS: usize = 96;
/// The tag's upper bits.
const TAG: u32 = 0xffff_fe00;

/// The tag that says how many turns were finished before the loop was left.
pub(crate) const fn tag(turns: usize) -> u32 {
    TAG | turns as u32 & 0xff
}

/// How many turns a tag tells, if it is such a tag.
pub(crate) const fn of_tag(tag: u32) -> Option<usize> {
    if tag & !0xff == TAG { Some((tag & 0xff) as usize) } else { None }
}

/// How many turns a piece's record has: one if it is no such loop. `copied` says whether there
/// is a copy of what lies at an address.
pub(crate) fn turns(
    piece: &Piece,
    insts: &[&Inst],
    options: &Options,
    copied: impl Fn(GuestVa) -> bool,
) -> usize {
    let Some((last, body)) = insts.split_last() else { return 1 };
    let plain = |inst: &&Inst| match inst.flow() {
        Flow::Next => true,
        Flow::Cond(to) => to != piece.entry && copied(to) && can_negate(inst),
        _ => false,
    };
    let turns_back = match last.flow() {
        Flow::Jump(to) => to == piece.entry,
        Flow::Cond(to) => to == piece.entry && copied(last.next_pc()) && can_negate(last),
        _ => false,
    };
    let varies = piece.steps.iter().any(|s| matches!(s, ichnos_trace::Step::Flex { .. }));
    if options.across != Across::All || !turns_back || varies || !body.iter().all(plain) {
        return 1;
    }
    let mut turns = if piece.bytes() == 0 { MOST } else { MOST_WITH_WORDS };
    while turns > 1 && turns * insts.len() > MOST_INSTRUCTIONS {
        turns /= 2;
    }
    turns
}

/// Whether an instruction is a branch on flags, which has an opposite.
fn can_negate(inst: &Inst) -> bool {
    inst.raw().is_jcc_short_or_near()
}
