//! The state of a hart that any program can see: registers, program counter,
//! floating-point flags, and the caches of translations that make it fast.
//! Control registers of the privileged modes are the system machine's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::float::Rounding;
use crate::jit::Shared;
use crate::tlb::Tlb;
use crate::trap::{Cause, Stop, Trap};

/// Places for registers of a kind: any byte names one, so that none need be checked.
const PLACES: usize = 256;

/// Where writes to `x0` go: decoded instructions name this register instead.
pub(crate) const SINK: u8 = 32;

/// The upper half of a register that holds a single-precision number.
pub(crate) const BOX: u64 = 0xffff_ffff_0000_0000;

/// Whether floating point may be used, and has been: the `FS` field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum FloatState {
    Off,
    Initial,
    Clean,
    Dirty,
}

/// A reserved address and what it held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reservation {
    pub(crate) va: u64,
    pub(crate) value: u64,
}

/// One hart.
#[derive(Debug)]
pub(crate) struct Cpu {
    /// Integer registers, then [`SINK`].
    pub(crate) x: [u64; PLACES],
    /// Floating-point registers.
    pub(crate) f: [u64; PLACES],
    pub(crate) pc: u64,
    /// Instructions retired since the start.
    pub(crate) retired: u64,
    /// Accrued floating-point exceptions.
    pub(crate) fflags: u8,
    /// The dynamic rounding mode, as written.
    pub(crate) frm: u8,
    pub(crate) float_state: FloatState,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) tlb: Tlb,
    /// What generated code says when it returns.
    pub(crate) shared: Shared,
}

impl Cpu {
    pub(crate) fn new() -> Self {
        Self {
            x: [0; PLACES],
            f: [0; PLACES],
            pc: 0,
            retired: 0,
            fflags: 0,
            frm: 0,
            float_state: FloatState::Off,
            reservation: None,
            tlb: Tlb::new(),
            shared: Shared { mxcsr_clear: 0x1f80, ..Shared::default() },
        }
    }

    /// An integer register.
    #[inline(always)]
    pub(crate) fn x(&self, register: u8) -> u64 {
        self.x[usize::from(register)]
    }

    /// Writes an integer register of a decoded instruction, where `x0` has
    /// become [`SINK`].
    #[inline(always)]
    pub(crate) fn set_decoded(&mut self, register: u8, value: u64) {
        self.x[usize::from(register)] = value;
    }

    /// Writes an integer register; `x0` stays zero.
    pub(crate) fn set_x(&mut self, register: u8, value: u64) {
        if register != 0 {
            self.set_decoded(register, value);
        }
    }

    /// A floating-point register's bits.
    #[inline(always)]
    pub(crate) fn f(&self, register: u8) -> u64 {
        self.f[usize::from(register)]
    }

    /// A single-precision operand: the canonical NaN unless properly boxed.
    #[inline(always)]
    pub(crate) fn f_single(&self, register: u8) -> u64 {
        let bits = self.f(register);
        if bits >= BOX { bits & !BOX } else { 0x7fc0_0000 }
    }

    /// Writes a floating-point register and notes that there is something to save.
    #[inline(always)]
    pub(crate) fn set_f(&mut self, register: u8, bits: u64) {
        self.f[usize::from(register)] = bits;
        self.float_state = FloatState::Dirty;
    }

    /// Raises floating-point flags.
    #[inline(always)]
    pub(crate) fn raise(&mut self, flags: u8) {
        if flags & !self.fflags != 0 {
            self.fflags |= flags;
            self.float_state = FloatState::Dirty;
        }
    }

    /// The rounding mode that an instruction's field asks for.
    #[inline(always)]
    pub(crate) fn rounding(&self, field: u8) -> Result<Rounding, Stop> {
        let mode = if field == ichnos_isa_rv64::ROUND_DYNAMIC { self.frm } else { field };
        Rounding::from_bits(mode).ok_or(ILLEGAL)
    }

    /// Refuses floating point while it is off.
    #[inline(always)]
    pub(crate) fn need_float(&self) -> Result<(), Stop> {
        if self.float_state == FloatState::Off { Err(ILLEGAL) } else { Ok(()) }
    }

    /// Takes over another hart's registers, as a forked thread does.
    pub(crate) fn copy_registers(&mut self, other: &Self) {
        (self.x, self.f, self.pc) = (other.x, other.f, other.pc);
        (self.fflags, self.frm, self.float_state) = (other.fflags, other.frm, other.float_state);
    }

    /// Registers as a new program finds them.
    pub(crate) fn reset_registers(&mut self) {
        (self.x, self.f, self.fflags, self.frm) = ([0; PLACES], [0; PLACES], 0, 0);
        self.float_state = FloatState::Initial;
        self.reservation = None;
    }
}

/// An illegal instruction; whoever takes the trap fills in the word.
pub(crate) const ILLEGAL: Stop = Stop::Trap(Trap { cause: Cause::Illegal, value: 0 });
