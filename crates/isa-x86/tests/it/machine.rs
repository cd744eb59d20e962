//! The probe's idea of a register state, and the same state as the crate sees it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_isa_x86::{Flags, Gpr, Regs, Segment};

/// Bytes of a state as the probe reads and writes it.
pub const STATE_BYTES: usize = 2816;

/// The whole register state.
#[derive(Clone, PartialEq, Eq)]
pub struct Machine {
    pub gpr: [u64; 16],
    pub rflags: u64,
    pub k: [u64; 8],
    pub z: [[u8; 64]; 32],
    pub fx: [u8; 512],
}

impl Machine {
    /// A state full of numbers that mean nothing.
    pub fn random(dice: &mut Dice) -> Self {
        let mut machine =
            Self { gpr: [0; 16], rflags: 0x202, k: [0; 8], z: [[0; 64]; 32], fx: [0; 512] };
        machine.gpr.fill_with(|| dice.next());
        machine.rflags |= dice.next() & Flags::ARITHMETIC.or(Flags::DF).rflags_mask();
        machine.k.fill_with(|| dice.mask());
        for z in &mut machine.z {
            dice.fill(z);
        }
        machine.randomise_x87(dice);
        machine.set_mxcsr(dice.mxcsr());
        machine
    }

    pub fn randomise_x87(&mut self, dice: &mut Dice) {
        // All exceptions masked, a random top of stack, all registers valid.
        self.fx[0..2].copy_from_slice(&0x037fu16.to_le_bytes());
        let status = (dice.next() as u16) & 0x7f00 & !0x8000;
        self.fx[2..4].copy_from_slice(&status.to_le_bytes());
        self.fx[4] = 0xff;
        for i in 0..8 {
            // Finite numbers: sign, exponent near the bias, explicit leading bit.
            let at = 32 + 16 * i;
            let fraction = dice.next() | 1 << 63;
            self.fx[at..at + 8].copy_from_slice(&fraction.to_le_bytes());
            let exponent = (0x3ff0 + (dice.next() as u16 & 0x1f)) | (dice.next() as u16 & 0x8000);
            self.fx[at + 8..at + 10].copy_from_slice(&exponent.to_le_bytes());
        }
    }

    pub fn mxcsr_word(&self) -> u32 {
        u32::from_le_bytes([self.fx[24], self.fx[25], self.fx[26], self.fx[27]])
    }

    pub fn set_mxcsr(&mut self, value: u32) {
        self.fx[24..28].copy_from_slice(&value.to_le_bytes());
    }

    pub fn set(&mut self, reg: Gpr, value: u64) {
        self.gpr[usize::from(reg.number())] = value;
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(STATE_BYTES);
        for word in self.gpr.iter().chain([&self.rflags, &0]).chain(&self.k) {
            out.extend(word.to_le_bytes());
        }
        for z in &self.z {
            out.extend(z);
        }
        out.extend(self.fx);
        out.resize(STATE_BYTES, 0);
        out
    }

    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap());
        Self {
            gpr: core::array::from_fn(word),
            rflags: word(16),
            k: core::array::from_fn(|i| word(18 + i)),
            z: core::array::from_fn(|i| bytes[208 + 64 * i..272 + 64 * i].try_into().unwrap()),
            fx: bytes[2256..2768].try_into().unwrap(),
        }
    }
}

impl Regs for Machine {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.gpr[usize::from(reg.number())]
    }
    fn segment_base(&self, _: Segment) -> GuestVa {
        GuestVa(0)
    }
    fn rflags(&self) -> u64 {
        self.rflags
    }
    fn vector(&self, number: u8) -> [u8; 64] {
        self.z[usize::from(number)]
    }
    fn opmask(&self, number: u8) -> u64 {
        self.k[usize::from(number)]
    }
    fn mmx(&self, number: u8) -> Option<u64> {
        let top = self.fx[3] >> 3 & 7;
        let at = 32 + 16 * usize::from(number.wrapping_sub(top) & 7);
        Some(u64::from_le_bytes(self.fx[at..at + 8].try_into().unwrap()))
    }
    fn mxcsr(&self) -> Option<u32> {
        Some(self.mxcsr_word())
    }
}

/// Numbers by xorshift: the same in every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    /// A lane mask: nothing, everything, sparse or dense.
    pub fn mask(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(16),
            3 | 4 => self.next() & self.next() & self.next(),
            _ => self.next(),
        }
    }

    /// Any MXCSR with all exceptions masked.
    pub fn mxcsr(&mut self) -> u32 {
        (self.next() as u32 & 0xe07f) | 0x1f80
    }
}
