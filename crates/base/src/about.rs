//! Where a trace comes from.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The provenance of a trace: told once, before anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct About<'a> {
    /// The instruction set of the traced program.
    pub isa: Isa,
    /// Which collector, or which converted format, and its version.
    pub collector: &'a str,
    /// The traced command, program first; empty if unknown.
    pub command: &'a [&'a str],
    /// The folder in which the command ran; empty if unknown.
    pub folder: &'a str,
    /// Host name, kernel and processor in words; empty if unknown.
    pub host: &'a str,
    /// When collection started, in nanoseconds since 1970; 0 if unknown.
    pub started_ns: u64,
    /// Whether batches carry the bytes loaded and stored.
    pub values: bool,
    /// Whether the collector tells branch outcomes. Address-only formats do not.
    pub branches: bool,
}

/// An instruction set. Values not known to this version survive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Isa(pub u16);

impl Isa {
    /// Not known: an address trace in a format that does not say.
    pub const UNKNOWN: Self = Self(0);
    /// x86-64.
    pub const X86_64: Self = Self(1);
    /// RISC-V, 64 bits.
    pub const RV64: Self = Self(2);

    /// The name in text and JSON output, if it has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::UNKNOWN => Some("unknown"),
            Self::X86_64 => Some("x86-64"),
            Self::RV64 => Some("rv64"),
            _ => None,
        }
    }
}
