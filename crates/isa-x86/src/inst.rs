//! A decoded instruction and everything its bytes alone say about it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{
    Decoder, DecoderError, DecoderOptions, Formatter, GasFormatter, Instruction,
    InstructionInfoFactory, InstructionInfoOptions, IntelFormatter, Mnemonic,
};
use ichnos_base::{GuestVa, InsnKind};

use crate::{Effects, Error, Flow, MemOperand, Moves, control, operands};

/// The longest instruction there is, in bytes.
pub const MAX_LEN: usize = 15;

/// A decoded instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inst {
    raw: Instruction,
    flow: Flow,
    memory: MemList,
}

/// Memory that looking at many instructions needs only once.
pub struct Scratch(InstructionInfoFactory);

impl Scratch {
    /// Some.
    #[must_use]
    pub fn new() -> Self {
        Self(InstructionInfoFactory::new())
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

impl Inst {
    /// Decodes the instruction that starts `bytes` and lies at `pc`.
    ///
    /// At most [`MAX_LEN`] bytes are looked at; fewer may be given if no more
    /// are readable.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the bytes end too early, [`Error::Invalid`] if
    /// they are no instruction.
    pub fn decode(bytes: &[u8], pc: GuestVa) -> Result<Self, Error> {
        let bytes = bytes.get(..MAX_LEN).unwrap_or(bytes);
        let mut decoder = Decoder::with_ip(64, bytes, pc.0, DecoderOptions::NONE);
        let raw = decoder.decode();
        if raw.is_invalid() {
            return Err(match decoder.last_error() {
                DecoderError::NoMoreBytes if bytes.len() < MAX_LEN => {
                    Error::Truncated { pc, have: bytes.len() }
                }
                _ => Error::Invalid {
                    pc,
                    first: bytes.first().copied().unwrap_or(0),
                    second: bytes.get(1).copied().unwrap_or(0),
                },
            });
        }
        Ok(Self::from_raw(raw))
    }

    /// An instruction that iced decoded for 64-bit mode.
    #[must_use]
    pub fn from_raw(raw: Instruction) -> Self {
        Self::from_raw_with(raw, &mut Scratch::new())
    }

    /// The same for one of many.
    #[must_use]
    pub fn from_raw_with(raw: Instruction, scratch: &mut Scratch) -> Self {
        let info = scratch.0.info_options(&raw, InstructionInfoOptions::NO_REGISTER_USAGE);
        Self { raw, flow: Flow::of(&raw), memory: operands::of(&raw, info) }
    }

    /// Its address.
    #[must_use]
    pub fn pc(&self) -> GuestVa {
        GuestVa(self.raw.ip())
    }

    /// Its length in bytes, from 1 to [`MAX_LEN`].
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "an instruction has at most 15 bytes")]
    pub fn length(&self) -> u8 {
        self.raw.len() as u8
    }

    /// The address after it.
    #[must_use]
    pub fn next_pc(&self) -> GuestVa {
        GuestVa(self.raw.next_ip())
    }

    /// What it does to control flow.
    #[must_use]
    pub const fn flow(&self) -> Flow {
        self.flow
    }

    /// The kind under which it is recorded.
    #[must_use]
    pub const fn kind(&self) -> InsnKind {
        self.flow.kind()
    }

    /// The fixed address it may send control to.
    #[must_use]
    pub const fn target(&self) -> Option<GuestVa> {
        self.flow.target()
    }

    /// Whether its condition holds for these flags and this count register;
    /// `None` if it has none that registers decide.
    ///
    /// Covers `jcc`, `loop` and its relatives, `jrcxz` and `jecxz`, `cmovcc` and
    /// `setcc`; not `xbegin`. `rcx` is the whole register: the address size of the
    /// instruction decides how much of it counts.
    #[must_use]
    pub fn condition_holds(&self, rflags: u64, rcx: u64) -> Option<bool> {
        control::condition_holds(&self.raw, rflags, rcx)
    }

    /// Its memory operands, in the order in which their accesses are recorded.
    #[must_use]
    pub fn memory(&self) -> &[MemOperand] {
        self.memory.as_slice()
    }

    /// What it reads and writes in registers and flags.
    #[must_use]
    pub fn effects(&self) -> Effects {
        self.effects_with(&mut Scratch::new())
    }

    /// The same for one of many.
    #[must_use]
    pub fn effects_with(&self, scratch: &mut Scratch) -> Effects {
        Effects::of(&self.raw, &mut scratch.0)
    }

    /// How the general registers that it writes follow from those before it.
    #[must_use]
    pub fn moves(&self) -> Moves {
        Moves::of(&self.raw)
    }

    /// What iced knows about it.
    #[must_use]
    pub const fn raw(&self) -> &Instruction {
        &self.raw
    }

    /// Its mnemonic as iced names it.
    #[must_use]
    pub fn mnemonic(&self) -> Mnemonic {
        self.raw.mnemonic()
    }

    /// It in words. To print many, keep a [`Printer`].
    #[must_use]
    pub fn text(&self, syntax: Syntax) -> String {
        let mut text = String::new();
        Printer::new(syntax).print(self, &mut text);
        text
    }
}

/// How assembly is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Syntax {
    /// As gcc and objdump write it: source first.
    #[default]
    Att,
    /// As the manuals write it: destination first.
    Intel,
}

/// Writes instructions as text.
pub struct Printer(Box<dyn Formatter>);

impl Printer {
    /// A printer of one syntax.
    #[must_use]
    pub fn new(syntax: Syntax) -> Self {
        let mut formatter: Box<dyn Formatter> = match syntax {
            Syntax::Att => Box::new(GasFormatter::new()),
            Syntax::Intel => Box::new(IntelFormatter::new()),
        };
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_space_after_operand_separator(false);
        Self(formatter)
    }

    /// Appends an instruction's text.
    pub fn print(&mut self, inst: &Inst, out: &mut String) {
        self.0.format(inst.raw(), out);
    }
}

impl core::fmt::Debug for Printer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Printer")
    }
}

/// Up to three operands in place: no instruction has more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemList {
    items: [MemOperand; 3],
    len: u8,
}

impl MemList {
    pub(crate) const fn new() -> Self {
        Self { items: [MemOperand::NOTHING; 3], len: 0 }
    }

    /// Appends an operand. There never is a fourth: the tests go over every form
    /// that iced knows, and would stop here.
    pub(crate) fn push(&mut self, operand: MemOperand) {
        debug_assert!(usize::from(self.len) < self.items.len(), "a fourth memory operand");
        if let Some(slot) = self.items.get_mut(usize::from(self.len)) {
            *slot = operand;
            self.len += 1;
        }
    }

    pub(crate) fn as_slice(&self) -> &[MemOperand] {
        self.items.get(..usize::from(self.len)).unwrap_or(&[])
    }
}
