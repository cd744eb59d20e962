//! The arithmetic flags and the direction flag, one by one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

use iced_x86::{Instruction, Mnemonic, OpKind, RflagsBits};

/// A set of flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Carry.
    pub const CF: Self = Self(1);
    /// Parity.
    pub const PF: Self = Self(2);
    /// Auxiliary carry.
    pub const AF: Self = Self(4);
    /// Zero.
    pub const ZF: Self = Self(8);
    /// Sign.
    pub const SF: Self = Self(16);
    /// Overflow.
    pub const OF: Self = Self(32);
    /// Direction.
    pub const DF: Self = Self(64);
    /// All others: trap, interrupt, nested task, alignment check, identification.
    pub const SYSTEM: Self = Self(128);
    /// The six that arithmetic sets.
    pub const ARITHMETIC: Self = Self(63);

    /// Members of either.
    #[inline]
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Members of both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members of this set that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` are members.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is a member.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits of `rflags` at which the flags lie, without [`Flags::SYSTEM`].
    #[must_use]
    pub fn rflags_mask(self) -> u64 {
        const PLACES: [u64; 7] = [1, 4, 0x10, 0x40, 0x80, 0x800, 0x400];
        (0..7).filter(|i| self.0 >> i & 1 != 0).map(|i| PLACES[i]).sum()
    }

    fn from_iced(bits: u32) -> Self {
        const MAP: [(u32, Flags); 10] = [
            (RflagsBits::CF, Flags::CF),
            (RflagsBits::PF, Flags::PF),
            (RflagsBits::AF, Flags::AF),
            (RflagsBits::ZF, Flags::ZF),
            (RflagsBits::SF, Flags::SF),
            (RflagsBits::OF, Flags::OF),
            (RflagsBits::DF, Flags::DF),
            (RflagsBits::IF, Flags::SYSTEM),
            (RflagsBits::AC, Flags::SYSTEM),
            (RflagsBits::UIF, Flags::SYSTEM),
        ];
        MAP.iter()
            .filter(|(bit, _)| bits & bit != 0)
            .fold(Self::NONE, |set, (_, flag)| set.or(*flag))
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["cf", "pf", "af", "zf", "sf", "of", "df", "system"];
        let mut space = "";
        for (i, name) in NAMES.iter().enumerate() {
            if self.0 >> i & 1 != 0 {
                write!(f, "{space}{name}")?;
                space = " ";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// What an instruction does with the flags. A flag may stand in `kept` besides
/// one of the sets that change it: then whether it changes depends on data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlagEffects {
    /// Flags whose value the instruction uses.
    pub read: Flags,
    /// Flags set according to the result.
    pub written: Flags,
    /// Flags made 0.
    pub cleared: Flags,
    /// Flags made 1.
    pub set: Flags,
    /// Flags that the manual leaves undefined afterwards.
    pub undefined: Flags,
    /// Flags among the above that keep their value in some executions: a shift
    /// by a count of zero, a repeated compare of no elements.
    pub kept: Flags,
}

impl FlagEffects {
    /// Flags that can be different afterwards.
    #[must_use]
    pub const fn changed(&self) -> Flags {
        self.written.or(self.cleared).or(self.set).or(self.undefined)
    }

    /// Flags whose old value is gone for certain: what a backward liveness
    /// analysis may kill. An undefined flag counts: no correct program reads
    /// it, whatever the processor leaves there.
    #[must_use]
    pub const fn replaced(&self) -> Flags {
        self.changed().without(self.kept)
    }

    /// As [`replaced`](Self::replaced), but an undefined flag does not count:
    /// for those who trust no program.
    #[must_use]
    pub const fn defined(&self) -> Flags {
        self.written.or(self.cleared).or(self.set).without(self.kept)
    }

    /// Those of an instruction that iced decoded for 64-bit mode, for who needs nothing else of it.
    #[must_use]
    pub fn of(raw: &Instruction) -> Self {
        let mut effects = Self {
            read: Flags::from_iced(raw.rflags_read()),
            written: Flags::from_iced(raw.rflags_written()),
            cleared: Flags::from_iced(raw.rflags_cleared()),
            set: Flags::from_iced(raw.rflags_set()),
            undefined: Flags::from_iced(raw.rflags_undefined()),
            kept: Flags::NONE,
        };
        if keeps_flags_sometimes(raw) {
            effects.kept = effects.changed();
        }
        effects
    }
}

/// Shifts and rotates by a register count change no flag when the count is zero
/// (SDM volume 2, SAL/SAR/SHL/SHR, RCL/RCR/ROL/ROR, SHLD, SHRD: "if the count is
/// 0, the flags are not affected"); `repe cmps` and `repne scas` change none
/// when the count register is zero.
fn keeps_flags_sometimes(raw: &Instruction) -> bool {
    use Mnemonic as M;
    let by_register = |op: u32| op < raw.op_count() && raw.op_kind(op) == OpKind::Register;
    match raw.mnemonic() {
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr => by_register(1),
        M::Shld | M::Shrd => by_register(2),
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq | M::Scasb | M::Scasw | M::Scasd | M::Scasq => {
            raw.has_rep_prefix() || raw.has_repne_prefix()
        }
        _ => false,
    }
}
