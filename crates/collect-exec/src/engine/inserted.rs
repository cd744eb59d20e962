//! What is inserted into a superblock: nothing, save points, or a sieve.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::probe::Probes;
use super::sift::Sifter;
use super::superblock::Decoded;
use super::translate::{Draft, Surroundings, Told, Tracing};

/// See the module.
pub enum Inserted {
    /// Nothing.
    Nothing,
    /// Save points.
    Probes(Probes),
    /// A sieve.
    Sifter(Sifter),
}

impl Inserted {
    /// For a superblock, which may become shorter.
    pub fn new(around: &mut dyn Surroundings, insns: &mut Vec<Decoded>) -> Self {
        match around.tracing() {
            Tracing::Not => Self::Nothing,
            Tracing::Whole => Self::Probes(Probes::new(around, insns)),
            Tracing::Sifted(sieve) => Self::Sifter(Sifter::new(around, insns, sieve)),
        }
    }

    /// What the host must know.
    pub fn told(&self, insns: &[Decoded]) -> Option<Told> {
        match self {
            Self::Nothing => None,
            Self::Probes(probes) => Some(probes.told(insns)),
            Self::Sifter(sifter) => Some(sifter.told(insns)),
        }
    }

    /// Writes what stands before an instruction; false if that cannot be done.
    pub fn before(&self, draft: &mut Draft, insn: usize, pc: u64) -> bool {
        match self {
            Self::Nothing => true,
            Self::Probes(probes) => probes.before(draft, insn, pc),
            Self::Sifter(sifter) => {
                sifter.before(draft, insn, pc);
                true
            }
        }
    }

    /// Writes what stands behind an instruction that goes on to `next`.
    pub fn after(&self, draft: &mut Draft, insn: usize, next: u64) {
        if let Self::Probes(probes) = self {
            probes.after(draft, insn, next);
        }
    }
}
