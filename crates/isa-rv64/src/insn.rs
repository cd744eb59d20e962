//! A decoded instruction, and the way from words to it and back.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::compressed;
use crate::format::{File, Layout, Mode};
use crate::table::{Op, Row, TABLE};

/// A decoded instruction. Compressed ones are expanded; `len` remembers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Insn {
    /// What it does.
    pub op: Op,
    /// The destination register, 0 if there is none.
    pub rd: u8,
    /// The first source register, or the immediate of a `csrr?i`; 0 if there is none.
    pub rs1: u8,
    /// The second source register, 0 if there is none.
    pub rs2: u8,
    /// The third source register, 0 if there is none.
    pub rs3: u8,
    /// The rounding mode, or acquire (2) and release (1); 0 if there is neither.
    pub mode: u8,
    /// Bytes: 2 or 4.
    pub len: u8,
    /// The immediate, shifted and sign-extended as the instruction uses it; for
    /// CSR instructions the register's number, for `fence` its upper 12 bits.
    pub imm: i32,
}

/// A rounding mode field that says "use `frm`".
pub const ROUND_DYNAMIC: u8 = 7;

impl Insn {
    /// An instruction without operands.
    #[must_use]
    pub const fn new(op: Op) -> Self {
        Self { op, rd: 0, rs1: 0, rs2: 0, rs3: 0, mode: 0, len: 4, imm: 0 }
    }

    /// Decodes the instruction that starts with the low bits of `word`. Only the
    /// low 16 bits are looked at if they say that the instruction is compressed.
    /// Nothing if it is illegal, or of an extension that is not in the table.
    #[must_use]
    pub fn decode(word: u32) -> Option<Self> {
        if is_compressed(word) { compressed::expand(word as u16) } else { decode_word(word) }
    }

    /// The 32-bit form of this instruction, or nothing if an operand does not fit.
    #[must_use]
    pub fn encode(&self) -> Option<u32> {
        let row = self.op.row();
        let l = row.format.layout();
        let mut word = row.bits | l.imm.put(self.imm)?;
        word |= register(l.rd, self.rd)? << 7;
        word |= register(l.rs1, self.rs1)? << 15;
        word |= register(l.rs2, self.rs2)? << 20;
        word |= register(l.rs3, self.rs3)? << 27;
        word |= match l.mode {
            Mode::Absent if self.mode == 0 => 0,
            Mode::Rounding if legal_rounding(self.mode) => u32::from(self.mode) << 12,
            Mode::Ordering if self.mode < 4 => u32::from(self.mode) << 25,
            _ => return None,
        };
        Some(word)
    }
}

/// Whether the instruction that starts with the low bits of `word` has 16 bits.
#[inline]
#[must_use]
pub const fn is_compressed(word: u32) -> bool {
    word & 3 != 3
}

fn register(file: File, number: u8) -> Option<u32> {
    let fits = if file == File::Absent { number == 0 } else { number < 32 };
    fits.then_some(u32::from(number))
}

const fn legal_rounding(mode: u8) -> bool {
    mode <= 4 || mode == ROUND_DYNAMIC
}

fn decode_word(word: u32) -> Option<Insn> {
    let row = BUCKETS
        .rows(word)
        .iter()
        .map(|&i| &TABLE[usize::from(i)])
        .find(|r| word & r.mask == r.bits)?;
    operands(row, word)
}

fn operands(row: &Row, word: u32) -> Option<Insn> {
    let l: Layout = row.format.layout();
    let field =
        |file: File, at: u32| if file == File::Absent { 0 } else { (word >> at & 31) as u8 };
    let mode = match l.mode {
        Mode::Absent => 0,
        Mode::Rounding => (word >> 12 & 7) as u8,
        Mode::Ordering => (word >> 25 & 3) as u8,
    };
    if l.mode == Mode::Rounding && !legal_rounding(mode) {
        return None;
    }
    Some(Insn {
        op: row.op,
        rd: field(l.rd, 7),
        rs1: field(l.rs1, 15),
        rs2: field(l.rs2, 20),
        rs3: field(l.rs3, 27),
        mode,
        len: 4,
        imm: l.imm.take(word),
    })
}

/// The table's lines sorted by the bits 6:2 and 14:12 of the words they match,
/// worked out at compile time, so that decoding looks at a few lines only.
struct Buckets {
    starts: [u16; 257],
    rows: [u8; Buckets::LEN],
}

static BUCKETS: Buckets = Buckets::new();

impl Buckets {
    const LEN: usize = Self::count();

    const fn in_bucket(row: &Row, bucket: u32) -> bool {
        let mask = 0x707f;
        let word = (bucket & 31) << 2 | (bucket >> 5) << 12 | 3;
        word & row.mask & mask == row.bits & mask
    }

    const fn count() -> usize {
        let mut n = 0;
        let mut bucket = 0;
        while bucket < 256 {
            let mut i = 0;
            while i < TABLE.len() {
                n += Self::in_bucket(&TABLE[i], bucket) as usize;
                i += 1;
            }
            bucket += 1;
        }
        n
    }

    const fn new() -> Self {
        let mut b = Self { starts: [0; 257], rows: [0; Self::LEN] };
        let mut n = 0;
        let mut bucket = 0;
        while bucket < 256 {
            b.starts[bucket] = n as u16;
            let mut i = 0;
            while i < TABLE.len() {
                if Self::in_bucket(&TABLE[i], bucket as u32) {
                    b.rows[n] = i as u8;
                    n += 1;
                }
                i += 1;
            }
            bucket += 1;
        }
        b.starts[256] = n as u16;
        b
    }

    fn rows(&self, word: u32) -> &[u8] {
        let bucket = (word >> 2 & 31 | (word >> 12 & 7) << 5) as usize;
        &self.rows[usize::from(self.starts[bucket])..usize::from(self.starts[bucket + 1])]
    }
}
