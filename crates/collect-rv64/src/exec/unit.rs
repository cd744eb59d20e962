//! What a handler asks for by name before it looks the next one up: see `code::guess`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::marker::PhantomData;

use super::handler::{Context, Handler, Onward, enter_line, follow, leave, operation};
use super::handlers::Handlers;
use super::place::At;
use super::step::COARSE;
use crate::code::guess::{FOLLOWERS, GUESSES, LINE, NONE};
use crate::code::number::{number, pair_number};
use crate::cpu::Cpu;
use crate::memory::World;
use crate::observe::Observer;

/// One instruction or two, and what a handler of them asks for.
pub(super) struct Unit<const A: u8, const AL: u8, const B: u8, const BL: u8, W, O>(
    PhantomData<(W, O)>,
);

impl<const A: u8, const AL: u8, const B: u8, const BL: u8, W: World, O: Observer>
    Unit<A, AL, B, BL, W, O>
{
    /// There is no second one if its length is zero.
    const NUMBER: u16 = match BL {
        0 => number(operation(A), AL),
        _ => pair_number((operation(A), AL), (operation(B), BL)),
    };
    const FOLLOWERS: [u16; GUESSES] = FOLLOWERS[Self::NUMBER as usize];
    const HANDLERS: [Handler<W, O>; GUESSES] = {
        let mut handlers: [Handler<W, O>; GUESSES] = [enter_line::<W, O>; GUESSES];
        let mut at = 0;
        while at < GUESSES {
            let follower = Self::FOLLOWERS[at];
            if follower != NONE && follower != LINE {
                handlers[at] = Handlers::<COARSE, W, O>::ALL[follower as usize];
            }
            at += 1;
        }
        handlers
    };

    /// Goes on with the next slot, as [`follow`] does.
    #[inline(always)]
    pub(super) fn follow<'a>(
        cpu: &mut Cpu,
        context: &mut Context<'a, W, O>,
        next: At<'a>,
        data: O::Data,
        left: u64,
    ) -> Onward {
        if left == 0 {
            return leave(cpu, context, next, data, left);
        }
        let number = next.slot().chained();
        macro_rules! ask {
            ($($at:literal)*) => {$(
                let is = match const { Self::FOLLOWERS[$at] } {
                    NONE => false,
                    LINE => next.slot().begins_line(),
                    follower => number == follower,
                };
                if is {
                    return (const { Self::HANDLERS[$at] })(cpu, context, next, data, left);
                }
            )*};
        }
        const { assert!(GUESSES == 8) };
        ask!(0 1 2 3 4 5 6 7);
        follow::<COARSE, W, O>(cpu, context, next, data, left)
    }
}
