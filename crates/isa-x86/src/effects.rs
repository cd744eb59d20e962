//! Registers and flags that an instruction reads and writes.
//!
//! iced says which registers an instruction names and implies and how much of
//! each it uses. Added here: how parts of registers relate to the whole, MXCSR,
//! the x87 state as a unit, what the Linux kernel does to registers in a system
//! call, and the difference between a value that is an input and one that is only
//! named (`xor eax,eax`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{
    CpuidFeature, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::flags::FlagEffects;
use crate::{Flow, Gpr, Reg, RegSet, StateOp, fp, idiom, operands};

/// What an instruction does with registers and flags.
///
/// For a backward liveness analysis: live before = (live after - `replaced`) +
/// `inputs`. For a dependence analysis that treats a register as a whole:
/// reads are [`Effects::reads`], writes are `written`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Registers whose value has an influence: on a result, an address, a flag,
    /// a trap or control flow. Includes conditional reads.
    pub inputs: RegSet,
    /// Registers that are named as sources but have no influence: the sources of
    /// `xor eax,eax`, `sub`, `pxor`, `pcmpeq` and the like of a register with
    /// itself.
    pub named_only: RegSet,
    /// Registers that may hold something else afterwards, in whole or in part.
    pub written: RegSet,
    /// Those of `written` of which every bit is surely replaced, so that the old
    /// value is gone unless it is an input too. Writing `eax` replaces `rax`;
    /// writing `ax`, `al` or `ah` does not.
    pub replaced: RegSet,
    /// Those of `written` that some executions leave alone altogether: `cmov`,
    /// `cmpxchg`, repeated strings, `bsf` of zero.
    pub conditional: RegSet,
    /// Those of `replaced` whose upper half becomes zero, because the instruction
    /// names 32 bits of them as a result.
    pub zero_extended: RegSet,
    /// Flags.
    pub flags: FlagEffects,
    read_parts: Parts,
    written_parts: Parts,
}

impl Effects {
    /// Registers of which an old bit survives into the new value: partial and
    /// conditional writes.
    #[must_use]
    pub const fn merged(&self) -> RegSet {
        self.written.without(self.replaced)
    }

    /// Every register on whose old value anything depends in the widest sense:
    /// inputs, sources only named, and registers of which a part is kept.
    #[must_use]
    pub const fn reads(&self) -> RegSet {
        self.inputs.or(self.named_only).or(self.merged())
    }

    /// The bits of a general register that are inputs.
    #[must_use]
    pub const fn input_bits(&self, reg: Gpr) -> u64 {
        self.read_parts.bits(reg)
    }

    /// The bits of a general register that may change.
    #[must_use]
    pub const fn written_bits(&self, reg: Gpr) -> u64 {
        self.written_parts.bits(reg)
    }

    pub(crate) fn of(raw: &Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let info = factory.info(raw);
        let mut effects = Self { flags: FlagEffects::of(raw), ..Self::default() };
        let legacy = raw.code().encoding() == EncodingKind::Legacy;
        for used in info.used_registers() {
            effects.add(used.register(), used.access(), legacy);
        }
        effects.named(raw);
        effects.units(raw);
        effects.special(raw);
        effects.zero_extended = named_registers(raw, Register::is_gpr32)
            .without(named_registers(raw, Register::is_gpr64))
            .and(effects.replaced);
        effects
    }

    fn add(&mut self, register: Register, access: OpAccess, legacy: bool) {
        let (reads, writes, surely) = match access {
            OpAccess::Read | OpAccess::CondRead => (true, false, false),
            OpAccess::Write => (false, true, true),
            OpAccess::CondWrite => (false, true, false),
            OpAccess::ReadWrite => (true, true, true),
            OpAccess::ReadCondWrite => (true, true, false),
            _ => return,
        };
        if reads {
            self.read(register);
        }
        if writes {
            self.write(register, legacy);
            if surely {
                self.replaced = self.replaced.or(whole_parts(register, legacy));
            } else {
                self.conditional = self.conditional.or(members(register));
            }
        }
    }

    fn read(&mut self, register: Register) {
        self.inputs = self.inputs.or(members(register));
        self.read_parts.add(register);
    }

    fn write(&mut self, register: Register, legacy: bool) {
        let mut set = members(register);
        if register.is_vector_register() && !legacy {
            set = RegSet::vector(number(register));
        }
        self.written = self.written.or(set);
        // A write of the low half clears the high one.
        let written = if register.is_gpr32() { register.full_register() } else { register };
        self.written_parts.add(written);
    }

    /// Sets apart the sources that are named but have no influence. For some of
    /// them iced reports no read in the first place.
    fn named(&mut self, raw: &Instruction) {
        if idiom::ignores_sources(raw) {
            self.inputs = RegSet::EMPTY;
            self.read_parts = Parts::default();
        }
        let sources: RegSet = (1..raw.op_count())
            .filter(|op| raw.op_kind(*op) == OpKind::Register)
            .fold(RegSet::EMPTY, |set, op| set.or(members(raw.op_register(op))));
        self.named_only = sources.without(self.inputs).without(self.only_written(raw));
    }

    /// Registers that an operand after the first names as a further result.
    fn only_written(&self, raw: &Instruction) -> RegSet {
        match raw.mnemonic() {
            Mnemonic::Mulx => members(raw.op1_register()),
            _ => RegSet::EMPTY,
        }
    }

    /// State that iced does not model as registers.
    fn units(&mut self, raw: &Instruction) {
        if is_x87(raw) || self.reads().or(self.written).has(Reg::X87) {
            // Even reading an MMX register resets the x87 tags and top of stack.
            self.touch(RegSet::only(Reg::X87));
        }
        if has_feature(
            raw,
            &[CpuidFeature::AMX_TILE, CpuidFeature::AMX_INT8, CpuidFeature::AMX_BF16],
        ) {
            // The configuration belongs to the tiles and decides what is done.
            self.touch(RegSet::only(Reg::TILES));
        }
        if fp::uses_mxcsr(raw) {
            self.touch(RegSet::only(Reg::MXCSR));
        }
    }

    /// Reads and, keeping some of it, writes.
    fn touch(&mut self, set: RegSet) {
        self.inputs = self.inputs.or(set);
        self.written = self.written.or(set);
        self.replaced = self.replaced.without(set);
        self.named_only = self.named_only.without(set);
    }

    fn special(&mut self, raw: &Instruction) {
        match raw.mnemonic() {
            Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr => self.replace(Reg::MXCSR),
            Mnemonic::Stmxcsr | Mnemonic::Vstmxcsr => self.inputs.insert(Reg::MXCSR),
            // The destination keeps its value when the source is zero.
            Mnemonic::Bsf | Mnemonic::Bsr => {
                self.maybe(members(raw.op0_register()));
            }
            // No operation unless the system has enabled shadow stacks.
            Mnemonic::Rdsspd | Mnemonic::Rdsspq => self.maybe(members(raw.op0_register())),
            Mnemonic::Vzeroupper => {
                self.inputs = RegSet::EMPTY;
                self.written = (0..16).map(Reg::vector_upper).collect();
                self.replaced = self.written;
            }
            Mnemonic::Rdfsbase => self.inputs.insert(Reg::FS_BASE),
            Mnemonic::Rdgsbase => self.inputs.insert(Reg::GS_BASE),
            Mnemonic::Wrfsbase => self.replace(Reg::FS_BASE),
            Mnemonic::Wrgsbase => self.replace(Reg::GS_BASE),
            Mnemonic::Rdpkru | Mnemonic::Xgetbv => self.inputs.insert(Reg::SYSTEM),
            Mnemonic::Wrpkru | Mnemonic::Xsetbv => self.touch(RegSet::only(Reg::SYSTEM)),
            Mnemonic::Wait => self.inputs.insert(Reg::X87),
            Mnemonic::Fxsave | Mnemonic::Fxsave64 => self.inputs = self.inputs.or(legacy_state()),
            Mnemonic::Fxrstor | Mnemonic::Fxrstor64 => self.touch(legacy_state()),
            _ => {}
        }
        self.extended_state(raw);
        if Flow::of(raw) == Flow::Syscall {
            self.syscall(raw);
        }
    }

    fn replace(&mut self, reg: Reg) {
        self.written.insert(reg);
        self.replaced.insert(reg);
    }

    /// The write may not happen.
    fn maybe(&mut self, set: RegSet) {
        self.replaced = self.replaced.without(set);
        self.conditional = self.conditional.or(set);
    }

    /// Which components the xsave family handles is known only at run time: each
    /// may be, none must be.
    fn extended_state(&mut self, raw: &Instruction) {
        match operands::state_op(raw.mnemonic()) {
            None => {}
            Some(StateOp::Xrstor | StateOp::Xrstors) => {
                self.written = self.written.or(all_state());
                self.maybe(all_state());
            }
            Some(_) => self.inputs = self.inputs.or(all_state()),
        }
    }

    /// The kernel's interface: number and arguments in, result out; the
    /// instruction itself destroys `rcx` and `r11`. The kernel restores the flags
    /// that the instruction put into `r11`.
    fn syscall(&mut self, raw: &Instruction) {
        use Gpr::{R8, R9, R10, R11, Rax, Rbp, Rbx, Rcx, Rdi, Rdx, Rsi};
        let (inputs, written): (&[Gpr], &[Gpr]) = match raw.mnemonic() {
            Mnemonic::Syscall => (&[Rax, Rdi, Rsi, Rdx, R10, R8, R9], &[Rax, Rcx, R11]),
            _ => (&[Rax, Rbx, Rcx, Rdx, Rsi, Rdi, Rbp], &[Rax]),
        };
        self.flags = FlagEffects { read: self.flags.read, ..FlagEffects::default() };
        for reg in inputs {
            self.inputs.insert(Reg::gpr(*reg));
            self.read_parts.add_all(*reg);
        }
        for reg in written {
            self.written.insert(Reg::gpr(*reg));
            self.replaced.insert(Reg::gpr(*reg));
            self.written_parts.add_all(*reg);
        }
    }
}

/// The members of a set that stand for a register or the part of it that iced
/// names.
fn members(register: Register) -> RegSet {
    if let Some(gpr) = Gpr::of(register) {
        return RegSet::only(Reg::gpr(gpr));
    }
    if register.is_xmm() {
        return RegSet::only(Reg::vector(number(register)));
    }
    if register.is_vector_register() {
        return RegSet::vector(number(register));
    }
    if register.is_k() {
        return RegSet::only(Reg::opmask(number(register)));
    }
    if register.is_st() || register.is_mm() {
        return RegSet::only(Reg::X87);
    }
    if register.is_tmm() {
        return RegSet::only(Reg::TILES);
    }
    match register {
        Register::None | Register::RIP | Register::EIP => RegSet::EMPTY,
        Register::FS => RegSet::only(Reg::FS_BASE),
        Register::GS => RegSet::only(Reg::GS_BASE),
        _ => RegSet::only(Reg::SYSTEM),
    }
}

/// The members of which a write of this register surely replaces every bit.
fn whole_parts(register: Register, legacy: bool) -> RegSet {
    if register.is_gpr() {
        let whole = register.is_gpr32() || register.is_gpr64();
        return if whole { members(register) } else { RegSet::EMPTY };
    }
    if register.is_vector_register() {
        return if legacy { members(register) } else { RegSet::vector(number(register)) };
    }
    if register.is_k() {
        return members(register);
    }
    // Units made of several registers keep what is not written.
    RegSet::EMPTY
}

/// The registers that operands of a kind name. `movsxd rbx,ebx` names one register
/// in two widths.
fn named_registers(raw: &Instruction, kind: impl Fn(Register) -> bool) -> RegSet {
    (0..raw.op_count())
        .filter(|op| raw.op_kind(*op) == OpKind::Register && kind(raw.op_register(*op)))
        .fold(RegSet::EMPTY, |set, op| set.or(members(raw.op_register(op))))
}

/// What `fxsave` saves.
fn legacy_state() -> RegSet {
    (0..16).map(Reg::vector).chain([Reg::X87, Reg::MXCSR]).collect()
}

/// What the xsave family can save.
fn all_state() -> RegSet {
    let vectors = (0..32).fold(legacy_state(), |set, n| set.or(RegSet::vector(n)));
    (0..8).map(Reg::opmask).chain([Reg::TILES, Reg::SYSTEM]).fold(vectors, |mut set, reg| {
        set.insert(reg);
        set
    })
}

fn number(register: Register) -> u8 {
    operands::low(register.number())
}

fn is_x87(raw: &Instruction) -> bool {
    use CpuidFeature::{FPU, FPU287, FPU387, MMX};
    has_feature(raw, &[FPU, FPU287, FPU387, MMX])
}

fn has_feature(raw: &Instruction, wanted: &[CpuidFeature]) -> bool {
    raw.code().cpuid_features().iter().any(|feature| wanted.contains(feature))
}

/// For each general register four bits: its first byte, its second, the rest of
/// the low half, the high half.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Parts(u64);

impl Parts {
    fn add(&mut self, register: Register) {
        let Some(gpr) = Gpr::of(register) else { return };
        let parts = match register {
            Register::AH | Register::BH | Register::CH | Register::DH => 2,
            r if r.is_gpr8() => 1,
            r if r.is_gpr16() => 3,
            r if r.is_gpr32() => 7,
            _ => 15,
        };
        self.0 |= parts << (4 * gpr.number());
    }

    fn add_all(&mut self, reg: Gpr) {
        self.0 |= 15 << (4 * reg.number());
    }

    const fn bits(self, reg: Gpr) -> u64 {
        const BITS: [u64; 4] = [0xff, 0xff00, 0xffff_0000, 0xffff_ffff_0000_0000];
        let parts = self.0 >> (4 * reg.number());
        let mut bits = 0;
        let mut part = 0;
        while part < BITS.len() {
            if parts >> part & 1 != 0 {
                bits |= BITS[part];
            }
            part += 1;
        }
        bits
    }
}
