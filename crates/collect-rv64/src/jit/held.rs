//! Floating-point registers that vector registers hold besides, inside one block:
//! every result is stored in the hart as well, so that leaving a block, or a helper
//! that spoils vector registers, loses nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::jit::block::Block;
use crate::jit::cold::Area;
use crate::jit::state::f_place;
use crate::jit::x86::Xmm;

/// The first vector register that holds one.
const FIRST: u8 = 2;
/// How many do.
const COUNT: usize = 6;
const DOUBLE: u8 = 0xf2;
const LOAD: u8 = 0x10;

/// What vector registers hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    registers: [Option<u8>; COUNT],
    next: usize,
}

impl Held {
    fn place(&self, register: u8) -> Option<usize> {
        self.registers.iter().position(|&held| held == Some(register))
    }

    /// The vector register that holds a register.
    fn find(&self, register: u8) -> Option<Xmm> {
        self.place(register).map(|place| Xmm(FIRST + place as u8))
    }

    /// Forgets a register whose value changed.
    pub(crate) fn forget(&mut self, register: u8) {
        if let Some(place) = self.place(register) {
            self.registers[place] = None;
        }
    }

    /// A vector register that is to hold a register.
    fn take(&mut self, register: u8) -> Xmm {
        let place = self.place(register).unwrap_or_else(|| {
            self.next = (self.next + 1) % COUNT;
            self.next
        });
        self.registers[place] = Some(register);
        Xmm(FIRST + place as u8)
    }
}

impl Block<'_> {
    /// A vector register with the value of a register; none in the far area, where
    /// nothing is known of them.
    pub(crate) fn float_source(&mut self, register: u8) -> Option<Xmm> {
        if self.area == Area::Far {
            return None;
        }
        if let Some(held) = self.held.find(register) {
            return Some(held);
        }
        let xmm = self.held.take(register);
        self.code.scalar(DOUBLE, LOAD, xmm, f_place(register));
        Some(xmm)
    }

    /// The vector register that holds a register already.
    pub(crate) fn float_held(&self, register: u8) -> Option<Xmm> {
        self.held.find(register).filter(|_| self.area == Area::Near)
    }

    /// A vector register that gets a register's new value; none in the far area.
    pub(crate) fn float_target(&mut self, register: u8) -> Option<Xmm> {
        (self.area == Area::Near).then(|| self.held.take(register))
    }

    /// Lets vector registers hold what they did.
    pub(crate) fn reload(&mut self, held: Held) {
        for (place, register) in held.registers.into_iter().enumerate() {
            if let Some(register) = register {
                let xmm = Xmm(FIRST + place as u8);
                self.code.scalar(DOUBLE, LOAD, xmm, f_place(register));
            }
        }
    }
}
