//! Privilege levels.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A privilege level, numbered as in `mstatus.MPP`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Privilege {
    /// Programs.
    User = 0,
    /// The operating system.
    Supervisor = 1,
    /// Firmware.
    Machine = 3,
}

impl Privilege {
    /// The level with this number; the reserved one counts as the lowest.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            3 => Self::Machine,
            1 => Self::Supervisor,
            _ => Self::User,
        }
    }
}
