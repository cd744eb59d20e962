//! Which handler each number is: the table that handlers go to the next one by.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Op, TABLE};

use super::handler::{Handler, enter_line, handle, leave, pair};
use super::step::COARSE;
use crate::code::HANDLERS;
use crate::code::number::{FIRST_PAIR, FIRST_SHORT, NUMBERS, PAIRS, SHORT, first, for_each_pair};
use crate::memory::World;
use crate::observe::Observer;

/// All handlers, by what slots call them.
pub(super) struct Handlers<const MODE: u8, W, O>(std::marker::PhantomData<(W, O)>);

/// A handler for each number: sixteen for each that is given.
macro_rules! sixteens {
    ($all:ident: $($high:literal)*) => {$(sixteens!(@ $all $high
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);)*};
    (@ $all:ident $high:literal $($low:literal)*) => {$(
        $all[16 * $high + $low] = handle::<{ 16 * $high + $low }, 4, MODE, W, O>;
    )*};
}

/// A handler for each operation that is given, in order.
macro_rules! shorts {
    ($all:ident: $($op:ident)*) => {
        let mut at = 0;
        $(
            assert!(SHORT[at] as u8 == Op::$op as u8);
            $all[FIRST_SHORT + at] = handle::<{ Op::$op as u8 }, 2, MODE, W, O>;
            at += 1;
        )*
        assert!(at == SHORT.len());
    };
}

const _: () = assert!(TABLE.len() <= 16 * 13);

/// A handler for each pair, in order.
macro_rules! pairs {
    ($all:ident $($a:ident $al:literal $b:ident $bl:literal;)*) => {
        let mut at = 0;
        $(
            $all[FIRST_PAIR + at] =
                pair::<{ Op::$a as u8 }, $al, { Op::$b as u8 }, $bl, W, O>;
            at += 1;
        )*
        assert!(at == PAIRS.len());
    };
}

impl<const MODE: u8, W: World, O: Observer> Handlers<MODE, W, O> {
    pub(super) const ALL: [Handler<W, O>; HANDLERS] = {
        let mut all: [Handler<W, O>; HANDLERS] = [leave::<W, O>; HANDLERS];
        sixteens!(all: 0 1 2 3 4 5 6 7 8 9 10 11 12);
        shorts!(all: Addi Fld Lw Ld Fsd Sw Sd Addiw Lui Srli Srai Andi Sub Xor Or And Subw Addw
            Jal Beq Bne Slli Jalr Add Ebreak);
        if MODE == COARSE {
            for_each_pair!(pairs!(all));
            let mut at = NUMBERS;
            while at < HANDLERS {
                all[at] = enter_line::<W, O>;
                at += 1;
            }
        } else {
            // Instructions are announced one by one.
            let mut at = FIRST_PAIR;
            while at < FIRST_PAIR + PAIRS.len() {
                all[at] = all[first(at as u16) as usize];
                at += 1;
            }
        }
        all
    };
}
