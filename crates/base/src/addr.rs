//! Addresses, one newtype per space, so that a guest address can never be
//! dereferenced by the host or compared with a file offset by accident.
//!
//! Arithmetic wraps: guest code computes addresses modulo 2^64, and so do we.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// This address moved up by `bytes`, modulo 2^64.
            #[inline]
            #[must_use]
            pub const fn offset(self, bytes: u64) -> Self {
                Self(self.0.wrapping_add(bytes))
            }

            /// The distance from `start` up to this address, modulo 2^64.
            #[inline]
            #[must_use]
            pub const fn since(self, start: Self) -> u64 {
                self.0.wrapping_sub(start.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// A virtual address as the traced program sees it.
    GuestVa
}
address! {
    /// A physical address of a simulated machine.
    GuestPa
}
address! {
    /// An address in the memory of the process that runs ichnos.
    HostAddr
}
address! {
    /// A byte offset in a file.
    FileOff
}
address! {
    /// An address of translated code in a code cache.
    CacheAddr
}
address! {
    /// A guest address divided by the line size of the cache that asks.
    LineAddr
}
address! {
    /// A guest address divided by the page size of the TLB that asks.
    PageNum
}

impl GuestVa {
    /// The line that holds this address, for lines of `1 << line_shift` bytes.
    #[inline]
    #[must_use]
    pub const fn line(self, line_shift: u32) -> LineAddr {
        LineAddr(self.0 >> line_shift)
    }

    /// The page that holds this address, for pages of `1 << page_shift` bytes.
    #[inline]
    #[must_use]
    pub const fn page(self, page_shift: u32) -> PageNum {
        PageNum(self.0 >> page_shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_wraps_like_the_guest() {
        assert_eq!(GuestVa(u64::MAX).offset(2), GuestVa(1));
        assert_eq!(GuestVa(1).since(GuestVa(u64::MAX)), 2);
        assert_eq!(GuestVa(0x1fff).line(6), LineAddr(0x7f));
        assert_eq!(GuestVa(0x1fff).page(12), PageNum(1));
    }
}
