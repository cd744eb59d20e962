//! Which references a locality model looks at, and as which lines.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Blocks, GuestVa, LineAddr, Record};

use crate::Kind;
use crate::outline::{Outlines, What};
#[cfg(doc)]
use crate::spaces::Spaces;

/// Which references count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum References {
    /// Instruction fetches.
    Code,
    /// Loads and stores.
    #[default]
    Data,
    /// Both.
    All,
}

impl References {
    /// Whether references of a kind count.
    #[inline]
    #[must_use]
    pub const fn takes(self, kind: Kind) -> bool {
        match self {
            Self::All => true,
            Self::Code => matches!(kind, Kind::Fetch),
            Self::Data => !matches!(kind, Kind::Fetch),
        }
    }
}

/// From records to the lines they reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    /// Which references count.
    pub(crate) references: References,
    /// The line size, as a power of two.
    pub(crate) shift: u32,
    /// What tells the process apart; see [`Spaces`].
    pub(crate) space: u64,
}

impl Lines {
    /// Whether executions can be looked at as blocks: without fetches nothing is left out.
    pub(crate) const fn by_blocks(self) -> bool {
        matches!(self.references, References::Data)
    }

    /// As [`Lines::each`], for the data accesses of blocks. Gives the number of instructions.
    #[inline(always)]
    pub(crate) fn each_of_blocks(
        self,
        told: &Blocks<'_>,
        outlines: &mut Outlines,
        mut each: impl FnMut(Kind, LineAddr),
    ) -> u64 {
        let mut instructions = 0;
        let space = self.space >> self.shift;
        let mut words = told.words.iter();
        for &id in told.blocks {
            let outline = outlines.get(id, told.shapes);
            instructions += u64::from(outline.insns);
            for (step, &word) in outlines.steps(&outline).iter().zip(&mut words) {
                let kind = match step.what {
                    What::Load => Kind::Load,
                    What::Store => Kind::Store,
                    What::Fetch | What::Prefetch | What::Flush => continue,
                };
                let addr = GuestVa(word);
                lines_of(addr, step.size, self.shift, |l| each(kind, LineAddr(l.0 ^ space)));
            }
        }
        instructions
    }

    /// Calls `each` with the kind and every line that a record references, in
    /// order; a reference across lines counts once for each line. Gives the number of
    /// instructions.
    #[inline(always)]
    pub(crate) fn each(self, records: &[Record], mut each: impl FnMut(Kind, LineAddr)) -> u64 {
        let mut instructions = 0;
        let space = self.space >> self.shift;
        for record in records {
            let (kind, addr, size) = match *record {
                Record::Insn { len, pc, .. } => {
                    instructions += 1;
                    (Kind::Fetch, pc, u32::from(len))
                }
                Record::Load { size, addr, .. } => (Kind::Load, addr, size),
                Record::Store { size, addr, .. } => (Kind::Store, addr, size),
                _ => continue,
            };
            if self.references.takes(kind) {
                lines_of(addr, size, self.shift, |line| each(kind, LineAddr(line.0 ^ space)));
            }
        }
        instructions
    }
}

#[inline(always)]
fn lines_of(addr: GuestVa, size: u32, line_shift: u32, mut each: impl FnMut(LineAddr)) {
    let offset = addr.0 & ((1 << line_shift) - 1);
    let more = (offset + u64::from(size.max(1)) - 1) >> line_shift;
    let first = addr.line(line_shift);
    each(first);
    for step in 1..=more {
        each(LineAddr(first.0.wrapping_add(step) & (u64::MAX >> line_shift)));
    }
}
