//! What needs no simulation: the filter in front of a cache.
//!
//! After an access to a line, using that line again changes nothing in any policy
//! here: it is a hit that need only be counted. The exceptions make the filter
//! narrower, never wrong: a fill under a policy that tells the first hit from the
//! fill (RRIP), a store that would set the dirty bit or must be passed on, a
//! prefetcher that must see every access. Whatever else touches the cache (a
//! removal, a fill from elsewhere) widens nothing and clears the filter.
//!
//! The batch loop keeps the filters of both ports in registers and asks for them
//! anew after every reference that they did not settle; so most references of a
//! program cost two comparisons and no memory of the model.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The bytes for which the next access is known to be a hit that changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Settled {
    base: u64,
    /// How many bytes at `base` may be read; 0 if none.
    read: u64,
    /// How many may be written.
    write: u64,
}

impl Settled {
    /// Nothing is settled.
    pub(crate) const NONE: Self = Self { base: 0, read: 0, write: 0 };
    /// Everything is: there is no cache.
    pub(crate) const ALL: Self = Self { base: 0, read: u64::MAX, write: u64::MAX };

    /// The line of `bytes` bytes at `base`, for reads, and for stores if `stores`
    /// says so.
    #[inline]
    pub(crate) const fn line(base: u64, bytes: u64, stores: Stores) -> Self {
        let write = match stores {
            Stores::Settle => bytes,
            Stores::Matter => 0,
        };
        Self { base, read: bytes, write }
    }

    /// Whether a read of `size` bytes at `at` is settled.
    #[inline(always)]
    pub(crate) const fn reads(&self, at: u64, size: u32) -> bool {
        inside(at.wrapping_sub(self.base), size, self.read)
    }

    /// Whether a store of `size` bytes at `at` is.
    #[inline(always)]
    pub(crate) const fn writes(&self, at: u64, size: u32) -> bool {
        inside(at.wrapping_sub(self.base), size, self.write)
    }
}

/// Whether stores to a settled line change nothing either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stores {
    /// They do not.
    Settle,
    /// They must be simulated.
    Matter,
}

/// Whether `size` bytes from `offset` on end within `limit`.
#[inline(always)]
const fn inside(offset: u64, size: u32, limit: u64) -> bool {
    offset < limit && limit - offset >= size as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_exact() {
        let line = Settled::line(0x1000, 64, Stores::Matter);
        assert!(line.reads(0x1000, 64) && line.reads(0x103f, 1) && line.reads(0x1000, 0));
        assert!(!line.reads(0xfff, 1) && !line.reads(0xffc, 8) && !line.reads(0x1040, 1));
        assert!(!line.reads(0x103f, 2) && !line.reads(0x1000, 65) && !line.reads(0x1000, u32::MAX));
        assert!(!line.writes(0x1000, 1));
        assert!(Settled::line(0x1000, 64, Stores::Settle).writes(0x1038, 8));
        assert!(!Settled::NONE.reads(0, 0) && !Settled::NONE.reads(u64::MAX, 1));
    }
}
