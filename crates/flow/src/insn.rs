//! What the analysis needs to know about instructions, whatever their set.
//!
//! Registers are numbers, the same as in the roadmap. Some of them are the
//! machine's ([`Region::takeable`]); others an adapter may use as temporaries
//! within an instruction, to spell out addresses that are no simple sum.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};
use ichnos_trace::{RefKind, Register, Sum, Value};

use crate::{Error, Set};

/// A stretch of code that is analysed together: a function, or a trace of blocks.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// The instructions, in order of address; there may be gaps.
    pub insns: Vec<Insn>,
    /// Where control can come in from outside or by a computed jump: function
    /// entries, targets of jump tables, landing pads. An address that is missing
    /// here makes the plan wrong; one too many only makes it dearer.
    pub entries: Vec<GuestVa>,
    /// The registers that a save point can store.
    pub takeable: Set,
    /// The registers that carry a procedure's frame: stack and frame pointer.
    pub frame: Set,
    /// The registers that replay knows wherever control comes in: at entries and after
    /// calls. Where all code is traced, the stack pointer is such: the call or
    /// return that led there told it.
    pub known_outside: Set,
    /// Entries and return points where that does not hold for the frame's registers:
    /// landing pads, and where code that is not traced comes back.
    pub strange: Vec<GuestVa>,
    /// What is live where control leaves for parts unknown.
    pub live_outside: Live,
}

/// Registers and flags whose values are still wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Live {
    /// Registers.
    pub registers: Set,
    /// Flags, by bits that the adapter chose.
    pub flags: u8,
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Insn {
    /// Its address.
    pub pc: GuestVa,
    /// Its length in bytes.
    pub len: u8,
    /// The kind under which it is recorded.
    pub kind: InsnKind,
    /// Where it sends control.
    pub control: Control,
    /// What it, or the callee it stands for, reads.
    pub uses: Live,
    /// What it, or the callee it stands for, surely replaces.
    pub kills: Live,
    /// What it does to memory and to registers that form addresses, in order.
    pub effects: Vec<Effect>,
}

/// Where an instruction sends control.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// To the next instruction.
    Next,
    /// To the target.
    Jump(GuestVa),
    /// To the target or to the next instruction.
    Cond(GuestVa),
    /// To a callee, at a fixed place or not, which comes back to the next
    /// instruction.
    Call(Option<GuestVa>),
    /// To somewhere: a computed jump, one of the region's entries or outside.
    Indirect,
    /// Back to a caller.
    Return,
    /// Into the kernel and back to the next instruction. Events may follow, so a
    /// block ends here.
    Kernel,
    /// Nowhere that is known: a trap.
    Stop,
}

/// One thing that an instruction does. Effects happen one after the other:
/// registers in an effect are what earlier effects of the instruction left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Refers to memory.
    Ref(Reference),
    /// Makes accesses that differ from one execution to the next: the collector
    /// tells them itself.
    Flex,
    /// Gives a register a value that follows from registers.
    Set(Register, Value),
    /// Gives a register a value that does not.
    Lose(Register, Loss),
}

/// A memory reference of fixed sort and size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reference {
    /// What it does.
    pub kind: RefKind,
    /// What else is known.
    pub flags: AccessFlags,
    /// Bytes.
    pub size: u32,
    /// Where.
    pub address: Sum,
}

/// How much of a register is lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Loss {
    /// All of it.
    All,
    /// The low half; the upper half becomes zero.
    ZeroUpper,
    /// Something in the low half; the upper half stays.
    KeepUpper,
}

impl Insn {
    /// The address after it.
    #[must_use]
    pub const fn end(&self) -> GuestVa {
        self.pc.offset(self.len as u64)
    }

    /// The registers that must be known before the instruction for all its
    /// addresses to be computable.
    pub(crate) fn needs(&self, takeable: Set) -> Result<Set, Error> {
        let mut needs = Set::EMPTY;
        for effect in self.effects.iter().rev() {
            match *effect {
                Effect::Ref(reference) => needs = needs.or(sum_registers(reference.address)),
                Effect::Set(register, value) => {
                    if needs.has(register) {
                        needs = needs.without(Set::only(register)).or(value_registers(value));
                    }
                }
                Effect::Lose(register, _) if needs.has(register) => {
                    return Err(Error::LostInside { pc: self.pc, register: register.0 });
                }
                Effect::Lose(..) | Effect::Flex => {}
            }
        }
        match needs.without(takeable).iter().next() {
            Some(register) => Err(Error::Untakeable { pc: self.pc, register: register.0 }),
            None => Ok(needs),
        }
    }
}

/// The registers of a sum.
pub(crate) fn sum_registers(sum: Sum) -> Set {
    sum.base.into_iter().chain(sum.index.map(|(register, _)| register)).collect()
}

/// The registers of a value; all there are if its sort is not known here.
#[must_use]
pub fn value_registers(value: Value) -> Set {
    match value {
        Value::Sum(sum) => sum_registers(sum),
        Value::Difference(a, b) => Set::only(a).or(Set::only(b)),
        Value::And(r, _)
        | Value::ShiftLeft(r, _)
        | Value::ShiftRight(r, _)
        | Value::ShiftRightSigned(r, _)
        | Value::Low32(r)
        | Value::Low32Signed(r) => Set::only(r),
    }
}
