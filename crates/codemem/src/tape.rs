//! Executable memory that is only added to at its end and addressed by offsets:
//! what a simulator that runs in one thread needs of a [`Region`].
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::CacheAddr;

use crate::{Error, Region, Where};

const PAGE: usize = 4096;

/// A stretch of executable memory, filled from its start. Addresses are offsets
/// from that start.
///
/// ```
/// use ichnos_codemem::CodeMem;
///
/// let mut code = CodeMem::new(4096)?;
/// let at = code.append(&[0xc3]).expect("room for one instruction");
/// assert!(code.patch(at, &[0x90]));
/// # Ok::<(), ichnos_codemem::Error>(())
/// ```
#[derive(Debug)]
pub struct CodeMem {
    region: Region,
}

impl CodeMem {
    /// Memory of `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the system refuses.
    pub fn new(len: usize) -> Result<Self, Error> {
        let len = len.max(1).next_multiple_of(PAGE);
        Ok(Self { region: Region::new(len, Where::Anywhere, Where::Anywhere)? })
    }

    /// Bytes still free.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.region.left()
    }

    /// Where the next code will stand.
    #[must_use]
    pub fn next(&self) -> CacheAddr {
        CacheAddr(self.region.next().since(self.region.start()))
    }

    /// Adds code at the end; none if there is no room.
    pub fn append(&mut self, code: &[u8]) -> Option<CacheAddr> {
        let at = self.next();
        let place = self.region.alloc(code.len()).ok()?;
        self.region.write(place, code).ok()?;
        Some(at)
    }

    /// Overwrites code that was added; false if the range was not.
    pub fn patch(&mut self, at: CacheAddr, code: &[u8]) -> bool {
        let end = at.0.checked_add(code.len() as u64);
        let inside = end.is_some_and(|end| end <= self.next().0);
        inside && self.region.write(self.region.start().offset(at.0), code).is_ok()
    }

    /// Forgets all code behind `at`; it may be overwritten.
    pub fn truncate(&mut self, at: CacheAddr) {
        let keep = at.0.min(self.next().0);
        self.region.reset();
        // It was given out before, so it can be again.
        let kept = usize::try_from(keep).map(|keep| self.region.alloc(keep));
        debug_assert!(kept.is_ok_and(|k| k.is_ok()));
    }

    /// Where code stands for the processor.
    #[must_use]
    pub fn address(&self, at: CacheAddr) -> *const u8 {
        self.region.start().offset(at.0).0 as *const u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_patches_and_forgets() {
        let mut code = CodeMem::new(1).expect("memory");
        assert_eq!(code.free(), PAGE);
        let first = code.append(&[0x90; 16]).expect("room");
        let second = code.append(&[0xc3]).expect("room");
        assert_eq!((first, second), (CacheAddr(0), CacheAddr(16)));
        assert!(code.patch(first, &[0xcc; 17]));
        assert!(!code.patch(second, &[0; 2]), "behind the end");
        code.truncate(second);
        assert_eq!(code.next(), second);
        assert!(code.append(&[0; PAGE]).is_none(), "no room");
    }
}
