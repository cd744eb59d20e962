//! Where translated code keeps the address of the next word of trace.
//!
//! From one fragment of a recorded program to the next it goes in r11, and the program's own r11 waits in
//! the context (*the convention*, [`Home::SHARED`]). A fragment whose instructions leave r11 alone keeps it so: its save
//! points are stores and one addition. Another one moves the address, where it is entered, to a
//! register that it does not use, or, if there is none, to the context, and back where it is left. Ways out in
//! the middle do so behind the fragment's code; a way back to the fragment's own beginning skips both.
//!
//! Nothing here changes flags.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, InstructionInfoFactory};

use super::ctx::at;
use super::emit::Gp;
use super::mangle;
use super::superblock::Decoded;
use super::translate::Draft;

/// Where the address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// There is none: nothing is recorded.
    Nowhere,
    /// In a register, whose value for the program is in the context.
    Register(Gp),
    /// In the context; all registers are the program's.
    Context,
    /// Behind a sieve it is in the context, too; this register, whose value for the program is in the context, may
    /// be used for anything.
    Scratch(Gp),
}

/// The register of the convention.
const R11: Gp = Gp(11);
/// Others that can hold the address, the likeliest unused first: none that indirect transfers need, that
/// `mangle` borrows, or whose encoding as a base is longer.
const OTHERS: [Gp; 6] = [Gp(10), Gp(9), Gp(15), Gp(14), Gp(13), Gp(5)];

impl Home {
    /// Where it is between fragments.
    pub const SHARED: Self = Self::Register(R11);

    /// Where it is best kept while these instructions run.
    pub fn of(insns: &[Decoded]) -> Self {
        let mut factory = InstructionInfoFactory::new();
        let mut used = 0_u16;
        // A system call leaves the cache; what it does to r11 is done in the context.
        for decoded in insns.iter().filter(|d| d.insn.code() != Code::Syscall) {
            let registers = factory.info(&decoded.insn).used_registers().iter();
            let numbers = registers.filter_map(|u| mangle::number(u.register().full_register()));
            used |= numbers.fold(0, |set, reg| set | 1 << reg.0);
        }
        let free = |reg: &Gp| used >> reg.0 & 1 == 0;
        let choice = std::iter::once(R11).chain(OTHERS).find(free);
        choice.map_or(Self::Context, Self::Register)
    }

    /// What is between fragments behind a sieve.
    pub const SHARED_SCRATCH: Self = Self::Scratch(R11);

    /// What is best used freely while these instructions run.
    pub fn scratch_of(insns: &[Decoded]) -> Self {
        match Self::of(insns) {
            Self::Register(reg) => Self::Scratch(reg),
            other => other,
        }
    }

    /// The register that holds it.
    pub const fn register(self) -> Option<Gp> {
        match self {
            Self::Register(reg) => Some(reg),
            _ => None,
        }
    }

    /// The registers of the program, as bits, that are in the context because of it.
    pub const fn lost(self) -> u16 {
        match self {
            Self::Register(reg) | Self::Scratch(reg) => 1 << reg.0,
            _ => 0,
        }
    }
}

/// Where the context keeps a register.
const fn slot(reg: Gp) -> u32 {
    at::REGS + 8 * reg.0 as u32
}

impl Draft {
    /// Moves the address from where it is between fragments to where this one keeps it.
    pub fn settle(&mut self) {
        if self.home != self.shared {
            match self.home {
                Home::Register(reg) => {
                    self.emit.save(slot(reg), reg);
                    self.emit.copy(reg, R11);
                }
                Home::Scratch(reg) => self.emit.save(slot(reg), reg),
                _ if self.shared == Home::SHARED_SCRATCH => {}
                _ => self.emit.save(at::BUFFER, R11),
            }
            self.emit.load(R11, slot(R11));
        }
        self.now = self.home;
    }

    /// Moves it back.
    pub fn unsettle(&mut self) {
        if self.now != self.shared {
            self.emit.save(slot(R11), R11);
            match self.now {
                Home::Register(reg) => {
                    self.emit.copy(R11, reg);
                    self.emit.load(reg, slot(reg));
                }
                Home::Scratch(reg) => self.emit.load(reg, slot(reg)),
                _ if self.shared == Home::SHARED_SCRATCH => {}
                _ => self.emit.load(R11, at::BUFFER),
            }
        }
        self.now = self.shared;
    }
}
