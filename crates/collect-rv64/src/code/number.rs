//! Numbers of handlers: one for each operation in four bytes, one for each in two, and
//! one for each pair of instructions that often follow one another.
//!
//! A pair has a handler of its own, because hosts remember many more branches than
//! computed jumps, of which a program has one for each handler it comes to.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{COMPRESSED, Op, TABLE};

/// Numbers there may be. A power of two.
pub(crate) const NUMBERS: usize = 512;

/// The number of what is not decoded.
pub(crate) const LEAVE: u16 = NUMBERS as u16 - 1;

/// Operations that instructions of two bytes have. Their handlers, numbered behind
/// those for four bytes, are others: the next slot's place is then a constant away,
/// which no load is waited for.
pub(crate) const SHORT: [Op; 25] = [
    Op::Addi,
    Op::Fld,
    Op::Lw,
    Op::Ld,
    Op::Fsd,
    Op::Sw,
    Op::Sd,
    Op::Addiw,
    Op::Lui,
    Op::Srli,
    Op::Srai,
    Op::Andi,
    Op::Sub,
    Op::Xor,
    Op::Or,
    Op::And,
    Op::Subw,
    Op::Addw,
    Op::Jal,
    Op::Beq,
    Op::Bne,
    Op::Slli,
    Op::Jalr,
    Op::Add,
    Op::Ebreak,
];
/// The first number of a short handler.
pub(crate) const FIRST_SHORT: usize = TABLE.len();
/// The first number of a pair.
pub(crate) const FIRST_PAIR: usize = FIRST_SHORT + SHORT.len();
const _: () = assert!(FIRST_PAIR + PAIRS.len() < LEAVE as usize);

/// Calls a macro with all pairs, each as operation and length of the first and of the
/// second. The first never leads elsewhere for sure, and neither is of the sort that a
/// handler seldom does by itself. These are the most frequent ones of bzip2, lua,
/// sqlite3, a quicksort and a matrix product (`xtask bench simics`), which make up 43
/// to 69 in a hundred of what follows one another there within a line.
macro_rules! for_each_pair {
    ($name:ident!($($before:tt)*)) => {
        $name! { $($before)*
            Add 2 Add 2; Add 2 Add 4; Add 2 Addi 2; Add 2 Addi 4; Add 2 Addiw 2; Add
            2 Addw 4; Add 2 Andi 4; Add 2 Beq 2; Add 2 Beq 4; Add 2 Bge 4; Add 2
            Bgeu 4; Add 2 Blt 4; Add 2 Bne 2; Add 2 Jal 2; Add 2 Jal 4; Add 2 Jalr
            2; Add 2 Lbu 4; Add 2 Ld 2; Add 2 Ld 4; Add 2 Lhu 4; Add 2 Lw 2; Add 2
            Lw 4; Add 2 Sb 4; Add 2 Sd 2; Add 2 Slli 2; Add 2 Srai 2; Add 2 Srliw 4;
            Add 2 Sw 4; Add 4 Add 4; Add 4 Addi 2; Add 4 Beq 2; Add 4 Blt 4; Add 4
            Lbu 4; Add 4 Lw 4; Add 4 Sb 4; Addi 2 Add 2; Addi 2 Add 4; Addi 2 Addi
            2; Addi 2 Addiw 2; Addi 2 Andi 4; Addi 2 Beq 4; Addi 2 Blt 4; Addi 2
            Bltu 4; Addi 2 Bne 2; Addi 2 Bne 4; Addi 2 Jal 2; Addi 2 Jal 4; Addi 2
            Jalr 2; Addi 2 Lw 4; Addi 2 Sd 2; Addi 2 Sub 4; Addi 4 Add 2; Addi 4
            Addi 2; Addi 4 Sd 2; Addiw 2 Addi 2; Addiw 2 Addiw 2; Addiw 2 Sw 4;
            Addiw 4 Addiw 4; Addiw 4 Slli 2; Addw 4 Add 2; Addw 4 Slli 2; Andi 4 Add
            2; Andi 4 Slli 2; Auipc 4 Addi 4; Auipc 4 Ld 4; Beq 2 Add 2; Beq 2 Lbu
            4; Beq 2 Ld 2; Bge 4 Ld 2; Blt 4 Lw 2; Blt 4 Sw 4; Bltu 4 Slli 4; Bne 2
            Ld 2; Bne 4 Addiw 4; Bne 4 Jal 4; Bne 4 Ld 2; Bne 4 Lw 4; Fld 2 Addi 2;
            Fld 2 Fld 2; Lbu 4 Add 2; Lbu 4 Addi 2; Lbu 4 Addi 4; Lbu 4 Andi 4; Lbu
            4 Beq 4; Lbu 4 Bne 4; Lbu 4 Lbu 4; Lbu 4 Sb 4; Lbu 4 Slliw 4; Lbu 4 Subw
            4; Ld 2 Add 2; Ld 2 Addi 2; Ld 2 Addi 4; Ld 2 Bne 2; Ld 2 Jalr 2; Ld 2
            Ld 2; Ld 2 Ld 4; Ld 2 Lw 2; Ld 2 Sd 2; Ld 2 Slli 2; Ld 4 Add 2; Ld 4
            Jalr 4; Ld 4 Ld 2; Ld 4 Ld 4; Ld 4 Sd 2; Ld 4 Xor 2; Lhu 4 Add 2; Lhu 4
            Lhu 4; Lw 2 Add 2; Lw 2 Addiw 2; Lw 2 Ld 2; Lw 2 Lw 2; Lw 4 Add 2; Lw 4
            Addi 2; Lw 4 Addi 4; Lw 4 Addiw 2; Lw 4 Addw 4; Lw 4 Ld 2; Lw 4 Ld 4; Lw
            4 Lw 4; Lw 4 Slli 4; Sb 4 Add 2; Sb 4 Bne 4; Sb 4 Sb 4; Sd 2 Add 2; Sd 2
            Addi 2; Sd 2 Jal 4; Sd 2 Lbu 4; Sd 2 Ld 2; Sd 2 Sd 2; Slli 2 Add 2; Slli
            2 Slli 2; Slli 2 Srli 2; Slli 2 Srli 4; Slli 4 Add 2; Slli 4 Add 4; Slli
            4 Slli 4; Slli 4 Srli 4; Sltu 4 Jalr 2; Srli 2 Add 2; Srli 4 Add 2; Srli
            4 Srli 4; Srliw 4 Andi 4; Srliw 4 Lbu 4; Sub 2 Add 2; Sub 4 Beq 4; Subw
            4 Beq 2; Sw 2 Addi 2; Sw 4 Addi 2; Sw 4 Bge 4; Xor 2 Addi 2;
        }
    };
}
pub(crate) use for_each_pair;

/// An operation and a length.
pub(crate) type Short = (Op, u8);

macro_rules! list {
    ($($a:ident $al:literal $b:ident $bl:literal;)*) => {
        &[$(((Op::$a, $al), (Op::$b, $bl)),)*]
    };
}

/// The pairs, in the order of their numbers.
pub(crate) const PAIRS: &[(Short, Short)] = for_each_pair!(list!());

/// The numbers of operations in two bytes.
const SHORT_NUMBERS: [u16; TABLE.len()] = {
    let mut all = [LEAVE; TABLE.len()];
    let mut at = 0;
    while at < SHORT.len() {
        all[SHORT[at] as usize] = (FIRST_SHORT + at) as u16;
        at += 1;
    }
    all
};

/// The number of an operation's handler; [`LEAVE`] if there is none.
pub(crate) const fn number(op: Op, len: u8) -> u16 {
    if len == 4 { op as u16 } else { SHORT_NUMBERS[op as usize] }
}

/// The number of a pair; [`LEAVE`] if it is none.
pub(crate) const fn pair_number(one: Short, two: Short) -> u16 {
    let mut at = 0;
    while at < PAIRS.len() {
        let (a, b) = PAIRS[at];
        if a.0 as u8 == one.0 as u8 && b.0 as u8 == two.0 as u8 && a.1 == one.1 && b.1 == two.1 {
            return (FIRST_PAIR + at) as u16;
        }
        at += 1;
    }
    LEAVE
}

/// For each number that of the first, or only, instruction.
const FIRST: [u16; NUMBERS] = {
    let mut first = [0; NUMBERS];
    let mut at = 0;
    while at < NUMBERS {
        first[at] = at as u16;
        at += 1;
    }
    let mut at = 0;
    while at < PAIRS.len() {
        first[FIRST_PAIR + at] = number(PAIRS[at].0.0, PAIRS[at].0.1);
        at += 1;
    }
    first
};

/// The number of the first, or only, instruction of what has a number.
#[inline(always)]
pub(crate) const fn first(number: u16) -> u16 {
    FIRST[number as usize & (NUMBERS - 1)]
}

/// For each number the pairs that begin with it, which stand together: their places from
/// one up to another, and the number of each pair's second instruction.
const BEGUN: [(u8, u8); FIRST_PAIR] = {
    let mut begun = [(0, 0); FIRST_PAIR];
    let mut at = 0;
    while at < PAIRS.len() {
        let one = number(PAIRS[at].0.0, PAIRS[at].0.1) as usize;
        let (from, to) = begun[one];
        assert!(from == to || to as usize == at, "pairs with the same first stand together");
        begun[one] = (if from == to { at as u8 } else { from }, at as u8 + 1);
        at += 1;
    }
    begun
};
const SECOND: [u16; PAIRS.len()] = {
    let mut second = [0; PAIRS.len()];
    let mut at = 0;
    while at < PAIRS.len() {
        second[at] = number(PAIRS[at].1.0, PAIRS[at].1.1);
        at += 1;
    }
    second
};
const _: () = assert!(PAIRS.len() < u8::MAX as usize);

/// The number of two instructions, of which each has a number of its own; that of the
/// first if they are no pair.
pub(crate) fn joined(one: u16, two: u16) -> u16 {
    let (from, to) = BEGUN.get(usize::from(one)).copied().unwrap_or_default();
    let mut seconds = SECOND.get(from.into()..to.into()).unwrap_or_default().iter();
    let place = seconds.position(|&second| second == two);
    place.map_or(one, |place| (FIRST_PAIR + usize::from(from) + place) as u16)
}

/// Every instruction has a handler.
const _: () = {
    let mut at = 0;
    while at < COMPRESSED.len() {
        assert!(number(COMPRESSED[at].op, 2) != LEAVE);
        at += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_their_parts() {
        for (at, &((a, al), (b, bl))) in PAIRS.iter().enumerate() {
            let (one, two) = (number(a, al), number(b, bl));
            assert_eq!(
                usize::from(joined(one, two)),
                FIRST_PAIR + at,
                "{a:?} {b:?} is twice there"
            );
            assert_eq!(first(joined(one, two)), one);
            assert!(one != LEAVE && two != LEAVE, "{a:?} {b:?}");
        }
        let (one, two) = (number(Op::Ecall, 4), number(Op::Add, 2));
        assert_eq!((joined(one, two), first(LEAVE)), (one, LEAVE));
    }
}
