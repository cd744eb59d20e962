//! What often follows what: for a handler the ones that it asks for by name before it
//! looks the next one up.
//!
//! A host remembers where some 1,500 computed jumps lead, of as many turns of the
//! program as differ, and ten times as many branches. Behind the former each jump costs
//! fifty cycles: a program with a few thousand instructions in its inner loops then runs
//! at a third of its speed. So handlers compare the next number with a few, most
//! frequent first, and go on there by a jump that is not computed.
//!
//! These are the most frequent ones of bzip2, lua, sqlite3, a quicksort and a matrix
//! product (`xtask bench simics`), seven in ten or more of what follows there. Others are
//! found as well, only not so fast.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::Op;

use super::number::{NUMBERS, number, pair_number};

/// How many are asked for at most. With sixteen, lua and sqlite3 are no faster.
pub(crate) const GUESSES: usize = 8;
/// Nothing is asked for.
pub(crate) const NONE: u16 = u16::MAX;
/// Whatever begins a line.
pub(crate) const LINE: u16 = u16::MAX - 1;

/// The number of one instruction or two, each with its length.
macro_rules! unit {
    (line) => {
        LINE
    };
    ($a:ident $al:literal) => {
        number(Op::$a, $al)
    };
    ($a:ident $al:literal $b:ident $bl:literal) => {
        pair_number((Op::$a, $al), (Op::$b, $bl))
    };
}

macro_rules! followers {
    ($([$($one:tt)*]: $([$($next:tt)*])*;)*) => {{
        let mut all = [[NONE; GUESSES]; NUMBERS];
        $(all[unit!($($one)*) as usize] = some(&[$(unit!($($next)*)),*]);)*
        all
    }};
}

const fn some(numbers: &[u16]) -> [u16; GUESSES] {
    let mut all = [NONE; GUESSES];
    let mut at = 0;
    while at < numbers.len() {
        all[at] = numbers[at];
        at += 1;
    }
    all
}

/// For each number those that often follow it, the most frequent first.
pub(crate) const FOLLOWERS: [[u16; GUESSES]; NUMBERS] = followers! {
    [Add 2]: [line] [Bne 4] [Bltu 4] [Addiw 4] [Xor 2] [Or 4] [Andi 2] [Xor 4];
    [Add 2 Add 2]: [Lbu 4 Lbu 4] [Add 2 Add 2] [Jal 4] [line] [Bne 2 Ld 2] [Bgeu 4]
        [Addw 4 Add 2] [Add 2 Add 4];
    [Add 2 Add 4]: [Add 4 Blt 4] [Sw 4] [Beq 2];
    [Add 2 Addi 2]: [Jal 4] [Srli 2] [Addi 2 Blt 4] [Add 2 Add 2] [Sd 2 Sd 2] [Addi 2 Jal 4]
        [Blt 4] [Beq 2 Add 2];
    [Add 2 Addi 4]: [Bne 4 Jal 4] [line] [Add 2 Add 2] [Slli 2 Add 2] [Jal 4] [Ld 4 Ld 4]
        [Add 2 Sd 2] [Bne 2];
    [Add 2 Addiw 2]: [Sw 4] [Sh 4] [Beq 2] [Srliw 4] [Addiw 2];
    [Add 2 Addw 4]: [Add 2 Add 2] [Addw 4] [Sd 2 Ld 2] [line] [Ld 2 Slli 2] [Ld 2 Add 2] [Ld 2];
    [Add 2 Andi 4]: [Slli 2 Add 2] [Add 2 Add 2] [Add 2 Sb 4];
    [Add 2 Beq 2]: [Jal 4] [Blt 4] [Ld 4] [Add 2 Jal 4] [Auipc 4 Ld 4] [Sub 2];
    [Add 2 Beq 4]: [Add 2 Addi 4] [Lw 4] [Ld 2] [Jal 4];
    [Add 2 Bge 4]: [Jal 4] [Add 2 Ld 2] [Add 2 Addiw 2] [Lw 2 Add 2] [Lui 4] [Ld 2 Ld 2] [Addi 2]
        [Slli 4 Add 2];
    [Add 2 Bgeu 4]: [Lwu 4] [Lbu 4 Addi 2] [Ld 2];
    [Add 2 Blt 4]: [Sw 4 Addi 2] [Slli 4 Add 4] [Lw 2 Ld 2] [Ld 2 Bne 2] [Addiw 4];
    [Add 2 Bne 2]: [Jal 4] [Add 2 Jal 4] [Lw 2 Lw 2] [Ld 2] [Lw 2] [line] [Lhu 4] [Ld 4];
    [Add 2 Lbu 4]: [Lbu 4 Bne 4] [Lbu 4 Beq 4] [Subw 4 Beq 2] [Jalr 2] [line] [Sb 4 Bne 4];
    [Add 2 Ld 2]: [Jalr 2] [Addi 2 Jalr 2] [Sd 2 Lbu 4] [Slli 2] [Ld 2 Ld 2] [Ld 2 Addi 4]
        [Addi 2 Jal 4] [Sw 2];
    [Add 2 Ld 4]: [Sd 2 Addi 2] [Beq 4] [Andi 2] [Sd 2 Add 2] [Slli 4] [Jal 2] [Jal 4]
        [Auipc 4 Ld 4];
    [Add 2 Lhu 4]: [Lhu 4] [Srli 4] [Add 2 Lw 4] [Lw 4 Add 2] [Andi 4] [Andi 2];
    [Add 2 Lw 2]: [Lw 4] [Add 2 Jalr 2] [Add 4 Add 4] [Sw 2] [Addiw 4];
    [Add 2 Lw 4]: [Add 2 Slli 2] [Addi 2 Add 2] [Addiw 2 Sw 4] [line] [Add 2 Lw 4] [Add 2] [Lw 4]
        [Slli 2 Add 2];
    [Add 2 Sb 4]: [Addi 2 Jal 4] [Add 2 Add 2] [Lw 2 Ld 2] [Lhu 4] [Lw 4 Lw 4] [Lbu 4 Addi 2]
        [Bltu 4];
    [Add 2 Sd 2]: [line] [Jal 4] [Sd 2 Add 2] [Sd 2 Sd 2] [Sd 2 Jal 4] [Ld 2 Add 2] [Add 2 Sd 2]
        [Add 2 Jalr 2];
    [Add 2 Slli 2]: [Add 2] [Addiw 2] [Add 2 Addi 4] [Add 2 Lw 4] [line] [Add 2 Lw 2]
        [Add 2 Add 2] [Or 2];
    [Add 2 Srliw 4]: [Lbu 4 Andi 4] [Ld 2] [Sb 4 Sb 4];
    [Add 2 Sw 4]: [Add 2 Lhu 4] [Add 2 Lw 4] [Beq 2] [Add 2] [line];
    [Add 4]: [line] [Sw 4] [Srli 4 Add 2] [Bgeu 4] [Add 2 Addi 4] [Bne 2] [Slli 2 Add 2] [Bge 4];
    [Add 4 Add 4]: [Lbu 4 Lbu 4] [Addi 2] [Bge 4] [line] [Lbu 4];
    [Add 4 Addi 2]: [Lw 4 Add 2];
    [Add 4 Beq 2]: [Lbu 4 Addi 2] [Sb 4] [Add 2 Addi 2];
    [Add 4 Blt 4]: [Lbu 4 Addi 4] [Lw 4 Ld 2];
    [Add 4 Lbu 4]: [Lbu 4 Addi 2] [Lbu 4 Bne 4];
    [Add 4 Lw 4]: [Lui 4] [Add 4] [Ld 2];
    [Add 4 Sb 4]: [Bne 4 Ld 2];
    [Addi 2]: [line] [Sw 2] [Auipc 4 Ld 4] [Addiw 4] [Slli 2] [Sd 4] [Sw 4] [And 2];
    [Addi 2 Add 2]: [Add 2 Add 2] [Add 2 Bgeu 4] [Addiw 2 Sw 4] [Bgeu 4] [Ld 2 Lw 2] [Sd 2 Sd 2]
        [Jal 4] [Jalr 2];
    [Addi 2 Add 4]: [Sd 2 Add 2] [Mulhu 4] [Sb 4 Bne 4] [Sraiw 4];
    [Addi 2 Addi 2]: [Blt 4] [FmaddD 4] [line] [Add 2] [Addw 2];
    [Addi 2 Addiw 2]: [Addiw 2] [Beq 4] [Sw 4] [Slli 4] [Addi 2] [Bne 2];
    [Addi 2 Andi 4]: [Slli 2 Add 2] [line] [Beq 2] [Sd 2 Jal 4];
    [Addi 2 Beq 4]: [Lbu 4 Andi 4] [Ld 2 Ld 2] [Sb 4] [line] [Addi 2 Beq 4];
    [Addi 2 Blt 4]: [Lw 4 Addiw 2] [Bge 4] [Add 2 Blt 4] [Addi 2 Sd 2];
    [Addi 2 Bltu 4]: [Slli 4 Add 2] [Ld 2 Ld 4];
    [Addi 2 Bne 2]: [Ld 2 Ld 2] [Ld 2 Lw 2] [Add 2 Ld 2] [Ld 2 Addi 2];
    [Addi 2 Bne 4]: [Ld 2 Ld 2] [Lw 4 Ld 4] [Jal 4] [Jalr 2] [Subw 4];
    [Addi 2 Sd 2]: [Sd 2 Sd 2] [Addi 2 Add 2] [Sd 2 Add 2] [Sd 2] [line] [Auipc 4 Ld 4];
    [Addi 2 Sub 4]: [Sd 2] [Beq 4] [Bltu 4];
    [Addi 4]: [Beq 4] [Jal 2] [Sub 2 Add 2] [Beq 2 Add 2] [Slli 4 Add 2] [Addi 4] [Bne 4]
        [Slliw 4];
    [Addi 4 Add 2]: [Lw 2 Add 2] [Add 2 Add 2] [Lbu 4] [line] [Addi 4 Add 2] [Addi 4] [Jalr 2]
        [Jal 4];
    [Addi 4 Addi 2]: [Andi 4 Slli 2] [Beq 4] [Bltu 4 Slli 4] [line] [Add 2 Jal 4] [Addi 2]
        [Add 2 Add 2] [Jal 4];
    [Addi 4 Sd 2]: [Beq 2] [Lbu 4 Beq 4] [Ld 2 Addi 4] [Lbu 4 Bne 4] [Sd 2 Sd 2] [Beq 4]
        [Slli 2 Add 2] [Slli 4 Add 2];
    [Addiw 2]: [line] [Srliw 4] [Beq 2] [Ld 2 Ld 4] [Sd 2] [Andi 4] [Add 2 Beq 2] [Add 2 Bgeu 4];
    [Addiw 2 Addi 2]: [Jal 2] [Bne 4] [Beq 4] [Bge 4] [line] [Addi 2 Jal 4] [Jalr 2];
    [Addiw 2 Addiw 2]: [Addiw 4] [Bgeu 4] [line];
    [Addiw 2 Sw 4]: [Bgeu 4] [line] [Sh 4] [Ld 2 Add 2] [Sd 4] [Sw 4] [Lhu 4 Lhu 4] [Add 2 Lhu 4];
    [Addiw 4]: [line] [Addi 4] [Blt 4] [Bge 4 Ld 2] [Bne 4 Jal 4] [Ld 4 Ld 4] [Andi 4]
        [Slli 4 Srli 4];
    [Addiw 4 Addiw 4]: [Slli 2 Slli 2] [Add 2 Addi 2];
    [Addiw 4 Slli 2]: [Slli 2 Srli 4] [Srli 2];
    [Addw 2]: [Add 2 Add 2] [Srliw 4] [Addw 2] [Add 2] [Addi 4] [Sw 2] [Slliw 4];
    [Addw 4]: [Sd 2 Add 2] [Sraiw 4] [Addw 4] [Slli 4] [Ld 2] [line] [Blt 4] [Sw 2];
    [Addw 4 Add 2]: [Add 2 Jal 4] [Sd 2 Sd 2] [Ld 2] [Lw 4];
    [Addw 4 Slli 2]: [Srli 2 Add 2] [Add 4 Lw 4] [Slli 2 Srli 2] [Sw 2] [Lw 4];
    [And 2]: [Or 2] [Add 4] [Ori 4] [Sh 4] [Slli 2 Add 2] [Or 4] [Addi 4 Add 2] [Add 2 Sd 2];
    [And 4]: [Add 2] [Or 4] [Beq 2] [Addi 4] [Slli 2] [Slli 4 Srli 4] [Ld 2 Addi 4] [line];
    [Andi 2]: [Bne 2] [Beq 2] [Bne 4 Lw 4] [line] [Sb 4] [Bne 4] [Sd 2] [Beq 4];
    [Andi 4]: [line] [Bne 2] [Beq 2] [Xori 4] [Andi 4] [Auipc 4 Addi 4] [Bltu 4] [Mul 4];
    [Andi 4 Add 2]: [Addiw 2] [Bne 2] [Andi 4] [Addi 4 Add 2] [Lbu 4] [Add 2];
    [Andi 4 Slli 2]: [Add 2 Ld 2] [Srliw 4];
    [Auipc 4]: [line] [Lbu 4] [Lbu 4 Addi 2] [Lw 4] [Lw 4 Addi 4] [Jalr 4] [Fld 4];
    [Auipc 4 Addi 4]: [Slli 2 Add 2] [Addi 2] [Beq 2] [Add 2 Jal 4] [Bltu 4] [Slli 4 Add 2]
        [Ld 2 Add 2] [Add 2];
    [Auipc 4 Ld 4]: [Jalr 4] [Ld 4 Sd 2] [Add 2 Lbu 4];
    [Beq 2]: [Jal 4] [Slli 2 Add 2] [Ld 4 Add 2] [Xor 4] [line] [Addi 2 Sd 2] [Ld 4] [Auipc 4];
    [Beq 2 Add 2]: [Sub 2] [Addi 4] [Jal 4];
    [Beq 2 Lbu 4]: [Andi 4] [Add 2 Beq 2] [Beq 4] [Andi 2] [Lbu 4 Beq 4] [Lbu 4 Lbu 4] [Beq 2]
        [Bne 2 Ld 2];
    [Beq 2 Ld 2]: [Lw 2 Lw 2] [Ld 2] [Ld 2 Ld 2] [Lbu 4] [Bgeu 4] [Ld 2 Sd 2] [Jal 4] [Bne 2];
    [Beq 4]: [Add 4 Lbu 4] [Beq 4] [Ld 4 Sd 2] [Bne 4 Ld 2] [Lw 2] [Lw 2 Addiw 2] [Ld 2] [Lbu 4];
    [Bge 4]: [Lw 2 Add 2] [Addi 4 Add 2] [Lb 4] [Sd 4] [Addiw 4] [Add 2 Add 2] [Lbu 4 Slliw 4]
        [Addi 2 Sd 2];
    [Bge 4 Ld 2]: [Addi 2] [Ld 2 Slli 2] [Lw 2] [Jalr 2] [Ld 2] [Ld 2 Addi 2];
    [Bgeu 4]: [Rem 4] [line] [Ld 2] [Jal 4] [Sub 4] [Andi 2] [Ld 4] [Lui 2];
    [Blt 4]: [Add 2 Blt 4] [Bge 4] [Slli 4] [Jal 4] [Sd 2 Jal 4] [Addw 4] [Addi 2 Blt 4]
        [Sd 2 Sd 2];
    [Blt 4 Lw 2]: [Add 2 Bge 4] [Ld 2 Sd 2] [Ld 2 Addi 4];
    [Blt 4 Sw 4]: [Addi 2 Addi 2];
    [Bltu 4]: [Auipc 4 Addi 4] [Sd 2 Sd 2] [line] [Sb 4] [Jal 4] [Add 2 Lbu 4] [Slli 2] [Sd 2];
    [Bltu 4 Slli 4]: [Srli 4 Add 2] [Add 2 Lw 2];
    [Bne 2]: [Jal 4] [Ld 4 Ld 4] [Lhu 4] [Subw 4] [Jalr 2] [Addi 2 Sd 2] [Add 2 Jal 4] [line];
    [Bne 2 Ld 2]: [Ld 2 Ld 2] [Ld 2] [Ld 2 Addi 2];
    [Bne 4]: [line] [Lbu 4 Beq 4] [Addiw 2] [Addiw 2 Addiw 2] [Lbu 4] [Sd 2 Sd 2] [Slli 2 Add 2]
        [Slli 4];
    [Bne 4 Addiw 4]: [Addiw 4 Slli 2] [Addiw 4] [Addw 4];
    [Bne 4 Ld 2]: [Addi 2 Jalr 2] [Ld 2 Add 2] [Sd 2 Ld 2] [Ld 2 Ld 2] [Addi 4] [Beq 2] [Bne 4]
        [Addi 2];
    [Bne 4 Lw 4]: [Addi 4 Addi 2] [Addi 2 Andi 4] [Add 2 Andi 4] [Lui 4] [line];
    [FaddD 4]: [Fsd 2] [FaddD 4] [Bne 4];
    [FcvtDL 4]: [Jalr 2] [Fld 2];
    [FcvtDW 4]: [FdivD 4] [Addiw 4];
    [FcvtLD 4]: [Jalr 2];
    [FdivD 4]: [Fsd 4] [line] [FaddD 4];
    [FeqD 4]: [Xori 4] [Beq 2] [Bne 4];
    [Fld 2]: [Fsd 2] [Jalr 2] [FaddD 4] [FsubD 4] [Jal 4] [FeqD 4] [Addiw 2 Addi 2] [Add 2 Add 2];
    [Fld 2 Addi 2]: [Jal 2] [Addi 2];
    [Fld 2 Fld 2]: [Addi 2 Addi 2];
    [Fld 4]: [FltD 4];
    [FltD 4]: [Bne 2] [Beq 2];
    [FmaddD 4]: [Fsd 4];
    [FmvDX 4]: [Addi 2] [FeqD 4];
    [Fsd 2]: [Fld 2] [line] [Fld 2 Fld 2] [Addi 2 Jalr 2] [Sh 4];
    [Fsd 4]: [Bne 4];
    [FsgnjD 4]: [Jal 4] [Sd 2 Jal 4];
    [FsgnjxD 4]: [FltD 4] [FsgnjxD 4];
    [FsubD 4]: [Fld 2];
    [Lb 4]: [Bge 4] [Andi 4] [Blt 4] [Add 2 Blt 4] [Addi 2] [Lbu 4 Addi 2] [Slli 2];
    [Lbu 4]: [line] [Beq 2] [Ld 2] [Bne 2] [Andi 2] [Addiw 4] [Auipc 4 Ld 4] [Sltu 4 Jalr 2];
    [Lbu 4 Add 2]: [Lbu 4 Lbu 4] [Beq 4] [Lbu 4 Beq 4] [Sb 4] [Addi 4 Add 2] [Ld 2 Ld 2] [Addi 4]
        [Add 2 Jal 4];
    [Lbu 4 Addi 2]: [Sub 4 Beq 4] [Add 4 Sb 4] [Sd 2 Sd 2];
    [Lbu 4 Addi 4]: [Addi 2 Bltu 4] [Sw 2] [Addiw 4] [Addi 4] [Bltu 4] [Add 2] [Addiw 2];
    [Lbu 4 Andi 4]: [Srliw 4] [Ori 4] [Beq 4] [Beq 2 Ld 2] [Beq 2 Lbu 4] [Sb 4] [And 4]
        [Bne 4 Ld 2];
    [Lbu 4 Beq 4]: [Beq 4] [Sltu 4 Jalr 2] [Bne 2] [Addiw 4] [Bne 4] [Lbu 4 Andi 4];
    [Lbu 4 Bne 4]: [Addiw 4 Addiw 4] [Slli 4] [line] [Lbu 4];
    [Lbu 4 Lbu 4]: [Bne 4 Addiw 4] [line] [Auipc 4 Ld 4] [Sub 4] [Bne 4] [Lbu 4 Lbu 4] [Beq 4]
        [Lbu 4];
    [Lbu 4 Sb 4]: [Sd 4] [Sb 4 Sb 4] [Beq 4] [Jal 2] [Bne 4 Lw 4] [Jalr 2];
    [Lbu 4 Slliw 4]: [Srliw 4] [Andi 4] [Or 4] [Or 2] [line];
    [Lbu 4 Subw 4]: [Bne 2] [Beq 2];
    [Ld 2]: [line] [Slliw 4] [Lbu 4] [Jal 2] [Sw 2] [Add 4] [Bge 4] [Srliw 4];
    [Ld 2 Add 2]: [Ld 2 Addi 2] [Sb 4] [Beq 4] [Jal 4] [Ld 2 Ld 2] [Bge 4 Ld 2] [Beq 2] [Andi 2];
    [Ld 2 Addi 2]: [Jalr 2] [Sd 4] [Ld 2] [Jal 4] [Addi 2 Jalr 2] [line];
    [Ld 2 Addi 4]: [Sub 2 Add 2] [Sd 2] [Addi 2] [Ld 4] [Sd 4] [Addi 2 Beq 4] [Lbu 4 Bne 4];
    [Ld 2 Bne 2]: [Lbu 4] [Ld 2 Ld 2] [Jal 4];
    [Ld 2 Ld 2]: [Ld 2 Ld 2] [Addi 2 Jalr 2] [Ld 2 Addi 2] [Add 2 Ld 2] [Ld 2] [Ld 2 Add 2]
        [Xor 2 Addi 2] [Addi 2 Addi 2];
    [Ld 2 Ld 4]: [Xor 2 Addi 2] [Add 4];
    [Ld 2 Lw 2]: [Sw 4] [Addiw 2] [Addi 2] [Lw 2 Ld 2] [Addi 4 Addi 2] [Addi 2 Sd 2] [Ld 2 Lw 2]
        [Add 2 Sd 2];
    [Ld 2 Sd 2]: [Addw 4] [Sd 2 Ld 2] [Addi 2 Addi 2] [Sd 2 Sd 2] [Ld 2 Ld 2] [Add 2 Ld 2]
        [Ld 2 Addi 2] [Sd 2 Jal 4];
    [Ld 2 Slli 2]: [Add 2 Ld 2] [Add 2] [Add 2 Lhu 4] [Slli 2 Add 2] [Add 2 Bgeu 4] [Add 2 Ld 4]
        [Add 4] [Addi 2];
    [Ld 4]: [Lw 2 Lw 2] [Lh 4] [Srliw 4 Andi 4] [line] [Addi 2 Add 2] [Addi 4] [Jal 4] [Srli 2];
    [Ld 4 Add 2]: [Jal 2] [Jal 4] [Addi 2 Jal 4] [Add 2] [Addi 2] [Addi 4] [Lbu 4 Lbu 4] [Beq 2];
    [Ld 4 Ld 2]: [Bne 2] [Sd 2 Sd 2] [Ld 2] [Ld 4 Xor 2] [Xor 2 Addi 2] [Add 2 Addi 2];
    [Ld 4 Ld 4]: [Ld 4 Ld 4] [Bne 4 Lw 4] [Jal 2] [Ld 4] [Beq 2] [Addi 4 Sd 2];
    [Ld 4 Sd 2]: [Addi 2 Sd 2] [Addi 2] [Sh 4] [Addi 2 Add 2] [Auipc 4 Ld 4] [line] [Ld 4];
    [Ld 4 Xor 2]: [Addi 2 Bne 2] [Addi 2] [Addi 2 Bne 4];
    [Lh 4]: [Addi 4 Sd 2] [Bge 4 Ld 2] [Add 2 Add 2];
    [Lhu 4]: [Andi 2] [Lui 2] [Slli 4] [Andi 4] [Srli 4] [Addi 2 Bltu 4] [Bne 4 Addiw 4] [Bgeu 4];
    [Lhu 4 Add 2]: [Lhu 4 Lhu 4] [Andi 4] [Beq 2] [Bgeu 4] [Ld 4] [Ld 2 Slli 2];
    [Lhu 4 Lhu 4]: [Lbu 4] [Ld 2] [Addi 2] [Add 2 Slli 2] [Lhu 4] [Or 4] [Lhu 4 Lhu 4] [Ld 4];
    [Lui 2]: [Addi 4 Add 2] [Addi 4] [Addi 2] [Lui 2] [line] [Add 2 Add 2] [Slli 2] [And 4];
    [Lui 4]: [Addi 4] [Andi 4] [Lw 4 Addi 2] [Addiw 4] [Addw 2] [Lw 4 Addi 4] [Addi 2] [And 2];
    [Lw 2]: [Lw 4] [Beq 2 Ld 2] [Addi 2] [Addi 2 Addiw 2] [Slliw 4] [Bne 2] [Beq 2] [Sraw 4];
    [Lw 2 Add 2]: [Addi 2 Addi 2] [Jalr 2] [Add 2 Blt 4] [Add 2 Add 2];
    [Lw 2 Addiw 2]: [Bge 4] [Sw 2] [Slli 4] [Subw 2];
    [Lw 2 Ld 2]: [Lw 4 Addiw 2] [Addi 4 Add 2] [Addiw 2] [Ld 2] [Ld 2 Addi 2] [Add 2 Sb 4]
        [Jal 4] [line];
    [Lw 2 Lw 2]: [Add 2 Add 2] [line] [Bltu 4] [Subw 2] [Addw 2] [Slliw 4];
    [Lw 4]: [line] [Addiw 4] [Beq 2] [Slli 2 Add 2] [FmvDX 4] [Andi 4] [Bge 4] [Sraiw 4];
    [Lw 4 Add 2]: [Bge 4] [Sw 4] [Andi 4 Slli 2] [Lw 4 Ld 4] [Addiw 2];
    [Lw 4 Addi 2]: [Andi 4 Slli 2] [Srliw 4] [Sd 2] [Sd 2 Add 2] [Sd 4] [Sd 2 Sd 2] [And 2];
    [Lw 4 Addi 4]: [Andi 4 Slli 2] [Addi 2] [Sub 4] [Bgeu 4] [Bne 4] [Bne 2] [Ld 4] [Add 2 Jal 4];
    [Lw 4 Addiw 2]: [Addiw 2] [Addw 4 Slli 2] [Addi 2 Blt 4] [Ld 2 Lw 2] [Sw 4] [line];
    [Lw 4 Addw 4]: [Slli 2 Srli 2] [Ld 2];
    [Lw 4 Ld 2]: [Add 2 Add 2] [Addiw 2 Sw 4];
    [Lw 4 Ld 4]: [Lw 4] [Beq 4] [Slli 4] [Addi 2] [Lbu 4] [Slli 2 Add 2] [Lw 4 Ld 4] [Addi 4];
    [Lw 4 Lw 4]: [Addi 2] [Lw 4] [Bltu 4] [line] [Slli 4 Slli 4] [Ld 4] [Sd 2] [Lw 4 Addw 4];
    [Lw 4 Slli 4]: [line] [Add 2 Ld 2] [Sub 4] [Add 2 Addiw 2] [Sub 2];
    [Lwu 4]: [Ld 4] [Bgeu 4] [Lw 4 Lw 4] [Bltu 4] [Beq 4] [Addi 4] [Slli 4];
    [Mul 4]: [Add 2] [Sd 2 Jal 4] [line] [Ld 4];
    [Mulh 4]: [Srai 4];
    [Mulhu 4]: [line] [Sb 4] [Add 2 Add 2];
    [Mulw 4]: [Addi 2 Addi 2] [line];
    [Or 2]: [And 2] [Slli 2 Srli 2] [Andi 4] [Beq 4] [Addi 2 Jal 2] [Sd 2] [Slli 2] [Slliw 4];
    [Or 4]: [Slli 4 Add 2] [Or 2] [Beq 2] [Slliw 4] [Sh 4] [Or 4] [Sd 2] [Slli 2];
    [Ori 4]: [Sb 4] [Sh 4] [Sd 4] [Sd 2] [Addi 4 Add 2] [Sw 4] [Ld 4] [Fsd 4];
    [Rem 4]: [Beq 2] [Addiw 4] [Jal 4];
    [Remuw 4]: [Slli 4 Srli 4] [Ld 4];
    [Remw 4]: [Addi 2 Addi 2] [Fld 2] [FcvtDW 4];
    [Sb 4]: [Beq 4] [Ld 2 Add 2] [Lw 2 Ld 2] [Lhu 4] [Bltu 4] [Sd 2 Sd 2] [Ld 2 Ld 2] [Srli 2];
    [Sb 4 Add 2]: [Addi 2 Beq 4] [Sd 2] [Jal 4] [Add 2 Beq 4] [Ld 2];
    [Sb 4 Bne 4]: [Add 4] [Sub 4] [Ld 2 Ld 4] [Ld 2 Ld 2];
    [Sb 4 Sb 4]: [Sb 4 Sb 4] [Sb 4] [Srli 2] [Lhu 4] [Add 2 Sb 4] [Jal 2] [Srliw 4] [Sb 4 Add 2];
    [Sd 2]: [line] [Jalr 2] [Beq 4] [Sd 4] [Sw 2] [Sub 4] [Auipc 4 Ld 4] [Sb 4];
    [Sd 2 Add 2]: [Lbu 4 Add 2] [Add 2 Add 2] [Srliw 4 Lbu 4] [Sd 2 Add 2] [Jal 4] [Add 2 Jal 4]
        [Sd 2] [Beq 2];
    [Sd 2 Addi 2]: [line] [Jal 4] [Sw 4] [Sd 2 Sd 2] [Add 2 Add 2] [Sd 2] [Addi 2] [Bne 4];
    [Sd 2 Lbu 4]: [Sb 4] [Addi 4] [Ld 4] [Addi 2 Add 2] [Ori 4] [Add 2 Ld 2] [Ld 4 Add 2] [Bne 4];
    [Sd 2 Ld 2]: [Ld 4 Ld 2] [Ld 2 Addi 2] [Ld 2 Ld 2] [Add 2 Add 2] [Sd 2 Addi 2] [Ld 4 Xor 2]
        [Addi 2 Jalr 2] [Auipc 4 Ld 4];
    [Sd 2 Sd 2]: [Sd 2 Sd 2] [Sd 2 Add 2] [Addi 2 Add 2] [Sd 2] [Add 2 Add 2] [Addi 2 Andi 4]
        [Lbu 4 Lbu 4] [Blt 4];
    [Sd 4]: [Ld 2] [Sd 4] [Add 2 Jal 4] [Lbu 4 Sb 4] [Sd 2 Sd 2] [Blt 4] [Slli 2] [Add 2 Addi 4];
    [Sh 4]: [Sh 4] [Sd 4] [Ld 2 Ld 2] [Beq 4] [Lbu 4 Slliw 4] [Jal 4] [Andi 2] [Jalr 2];
    [Sll 4]: [Or 4];
    [Slli 2]: [line] [Srliw 4] [Ld 2 Add 2] [Sd 2 Add 2] [Sub 2 Add 2] [Addi 2 Add 2] [Slli 4]
        [Add 4];
    [Slli 2 Add 2]: [Ld 2 Jalr 2] [Lw 2 Add 2] [Ld 2] [Srliw 4 Lbu 4] [Sd 2] [Lw 2] [Ld 2 Addi 2]
        [Lbu 4];
    [Slli 2 Slli 2]: [Srli 4 Srli 4] [Add 2 Add 2] [Add 4] [Srli 4] [Add 2 Addi 4];
    [Slli 2 Srli 2]: [Add 2 Lbu 4] [Sub 4] [Slli 4 Add 2] [Addi 2 Sd 2] [Jal 2];
    [Slli 2 Srli 4]: [Srli 4 Add 2] [Srli 4] [Add 2 Add 2];
    [Slli 4]: [Sub 2] [Slli 2 Srli 2] [Srli 2] [Sw 2] [Srliw 4] [Sub 4] [Slli 2 Add 2]
        [Srli 2 Add 2];
    [Slli 4 Add 2]: [Lw 4 Addiw 2] [Lw 2 Add 2] [Slli 2] [And 4] [Lw 2] [Andi 4] [Lw 4]
        [Slli 2 Add 2];
    [Slli 4 Add 4]: [Lw 4 Slli 4] [Jal 2] [Beq 2 Ld 2];
    [Slli 4 Slli 4]: [Srli 4 Srli 4] [Slli 4] [Sub 4] [Sub 2] [Srli 2];
    [Slli 4 Srli 4]: [Add 2 Lw 2] [Add 2 Ld 2] [Add 2] [Add 2 Ld 4] [Slli 2 Add 2] [Lhu 4];
    [Slliw 4]: [line] [Srli 2] [Lhu 4 Add 2] [And 2] [Srl 4] [Or 2] [Sraiw 4] [Srliw 4];
    [Sllw 4]: [Addiw 2] [Bltu 4] [Or 4] [Addw 4] [line];
    [Slt 4]: [Jal 4] [Add 2 Addi 2] [Slti 4];
    [Slti 4]: [Sub 2];
    [Sltiu 4]: [Jalr 2] [Beq 4] [Add 2 Sd 2] [Add 2 Jal 4] [Sw 2];
    [Sltu 4]: [line] [Sub 4] [Slli 2] [Add 2 Jalr 2];
    [Srai 2]: [Jal 4] [Slli 2 Add 2] [Addiw 4] [Mulw 4] [And 2];
    [Srai 4]: [Srai 2] [Xor 4] [Sd 2];
    [Sraiw 4]: [Jal 2] [Addiw 2 Sw 4] [Xor 2] [Addi 2] [Addi 2 Addiw 2] [Andi 4] [Bne 4] [Sb 4];
    [Sraw 4]: [Slli 2] [Ld 2];
    [Srl 4]: [Bne 2] [Sll 4];
    [Srli 2]: [Slli 4 Add 2] [Xor 2] [Srli 4] [Sub 4] [Addiw 4] [Sb 4] [line] [Bltu 4];
    [Srli 2 Add 2]: [line] [Sh 4] [Add 2 Sd 2] [Lbu 4 Subw 4] [Jal 4] [Slli 2] [Addi 2 Addiw 2];
    [Srli 4]: [line] [Andi 2] [Slli 2] [Add 4] [Add 4 Add 4] [Addi 2] [Or 2] [Bgeu 4];
    [Srli 4 Add 2]: [Add 2 Lbu 4] [Srai 2] [Lwu 4] [Add 2 Bne 2];
    [Srli 4 Srli 4]: [Add 2 Add 2] [line] [Add 4];
    [Srliw 4]: [Addw 2] [line] [Slli 2 Slli 2] [Or 2] [Sw 4] [Add 2] [Slli 2] [Andi 2];
    [Srliw 4 Andi 4]: [Slli 2 Add 2] [Srliw 4] [Slli 2] [Addiw 4] [Ld 2 Slli 2] [Sd 4]
        [Slli 2 Slli 2];
    [Srliw 4 Lbu 4]: [Andi 4 Slli 2] [Srliw 4 Andi 4] [Andi 4];
    [Srlw 4]: [Srl 4] [Or 4];
    [Sub 2]: [Jal 2] [Srai 4] [Ld 2 Slli 2] [Slli 4] [Slli 2 Add 2] [Ld 2] [line] [Blt 4];
    [Sub 2 Add 2]: [Add 4 Beq 2] [Lbu 4 Add 2] [Add 2] [line];
    [Sub 4]: [Sub 4] [Addi 2 Addi 2] [Bge 4] [Sub 2] [Ld 2 Slli 2] [Sd 2] [Beq 2] [Add 2 Add 2];
    [Sub 4 Beq 4]: [Addiw 2];
    [Subw 2]: [Add 2 Add 2] [line] [Addiw 4] [Beq 4] [Add 2 Bge 4];
    [Subw 4]: [Bne 2] [Subw 4] [Sllw 4] [Bge 4] [Sraiw 4] [Add 2 Addi 2] [Add 2 Slli 2]
        [Add 2 Add 4];
    [Subw 4 Beq 2]: [Bge 4];
    [Sw 2]: [line] [Blt 4 Lw 2] [Addi 4] [Add 4] [Sw 2 Addi 2] [Ld 2] [Sw 4] [Lw 4 Addi 2];
    [Sw 2 Addi 2]: [Jal 2] [Bne 2];
    [Sw 4]: [Sw 2 Addi 2] [Jal 2] [Blt 4] [Sh 4] [Sb 4] [Add 4 Blt 4] [Sw 4] [Sw 2];
    [Sw 4 Addi 2]: [Addi 2] [Bne 4];
    [Sw 4 Bge 4]: [Sub 4];
    [Xor 2]: [line] [Add 4] [Slli 2 Add 2] [Sd 2 Sd 2] [Blt 4] [Jal 2];
    [Xor 2 Addi 2]: [Bne 2 Ld 2] [Bne 4 Ld 2] [Bne 4] [Beq 2] [Addiw 4];
    [Xor 4]: [Blt 4] [And 4] [Sub 4];
    [Xori 4]: [Slliw 4] [Srai 2] [Jalr 2] [Add 2 Slli 2];
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::number::LEAVE;

    #[test]
    fn followers_have_handlers_and_are_asked_for_once() {
        for (number, all) in FOLLOWERS.iter().enumerate() {
            let named = all.iter().filter(|&&follower| follower != NONE);
            assert!(named.clone().all(|&n| n < LEAVE || n == LINE), "{number}: {all:?}");
            let twice = |n: &u16| all.iter().filter(|m| *m == n).count() > 1;
            assert!(!named.clone().any(twice), "{number}: {all:?}");
        }
    }
}
