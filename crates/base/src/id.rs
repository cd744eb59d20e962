//! Dense ids: small integers that index tables, each with a type of its own.
//!
//! Ids are given by ichnos in order of appearance, starting at zero. The
//! operating system's numbers (pid, tid) are data in events, never ids, because
//! the system reuses them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a table.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// One thread of the traced program, over its whole life.
    ThreadId
}
id! {
    /// One address space of the traced program. `exec` replaces what is in it
    /// but not its id; `fork` makes a new one.
    ProcessId
}
id! {
    /// One superblock of the roadmap.
    BlockId
}
id! {
    /// One static instruction of the roadmap.
    InsnId
}
id! {
    /// One hardware thread of a simulated machine.
    HartId
}
