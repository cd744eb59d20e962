//! Blocks that were left in no usual way.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind, Record};
use ichnos_trace::{RefKind, Register, Sum};

use super::{Done, Made, Out, Played, Shadow, Until};
use crate::code::{Block, Exit, Op};

const ENTRY: GuestVa = GuestVa(0x1000);

/// An instruction, another that loads, and this transfer.
fn block(exit: Exit) -> Block {
    let stack = Sum { base: Some(Register(4)), index: None, disp: 0 };
    let ops = vec![
        Op::Insn(4, InsnKind::OTHER),
        Op::Insn(2, InsnKind::OTHER),
        Op::Ref(RefKind::Load, AccessFlags::NONE, 8, stack),
        Op::Exit(exit),
    ];
    Block { entry: ENTRY, ops, len: 0, turns: 1, code: Vec::new(), payload: None }
}

fn play(exit: Exit, until: Until) -> (Out, Played) {
    let (block, mut out) = (block(exit), Out::new(Made::All));
    let played = Shadow::new().play(&block, &[], (Done::nothing(&block), 0), until, &mut out);
    (out, played)
}

#[test]
fn a_transfer_of_which_nobody_knows_the_end_is_not_told() {
    let target = GuestVa(0x2000);
    for (exit, until) in [
        (Exit::Cond(target), Until::Unknown),
        (Exit::Computed, Until::Unknown),
        (Exit::Computed, Until::Outside),
        (Exit::Return, Until::Unknown),
        (Exit::Return, Until::Outside),
    ] {
        let (out, played) = play(exit, until);
        let first = Record::Insn { len: 4, kind: InsnKind::OTHER, pc: ENTRY };
        assert_eq!((played, out.insns, out.records), (Played::Over(None), 1, vec![first]));
    }
}

#[test]
fn a_transfer_that_can_lead_to_one_place_is_told() {
    let target = GuestVa(0x2000);
    let branch = Record::Branch { taken: true, target };
    for (exit, until) in [
        (Exit::Direct(target), Until::Unknown),
        (Exit::Cond(target), Until::Outside),
        (Exit::Computed, Until::Next(target)),
        (Exit::Return, Until::Next(target)),
    ] {
        let (out, played) = play(exit, until);
        assert_eq!((played, out.insns), (Played::Over(Some(target)), 2));
        assert_eq!((out.records.len(), out.records.last()), (4, Some(&branch)));
    }
}
