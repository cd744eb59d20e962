//! One region of executable memory and its two views.
//!
//! Invariant: `run..run+len` maps the same pages as `write..write+len`, the first
//! readable and executable, the second readable and writable; both stay mapped as
//! long as the region lives. `hot` and `cold` bound what is given out:
//! `[0, hot)` and `[cold, len)`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ichnos_base::{CacheAddr, HostAddr};
use rustix::mm::{
    MapFlags, MprotectFlags, MremapFlags, ProtFlags, mmap_anonymous, mprotect, mremap,
    mremap_fixed, munmap,
};

use crate::Error;

/// Where a view of a region goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// Wherever the kernel likes.
    Anywhere,
    /// Exactly here; fails if something is mapped there.
    At(HostAddr),
    /// Exactly here, in place of whatever is mapped there.
    Over(HostAddr),
}

/// A region of executable memory.
#[derive(Debug)]
pub struct Region {
    run: NonNull<u8>,
    write: NonNull<u8>,
    len: usize,
    hot: usize,
    cold: usize,
}

/// The contents of a region, to be put in its place.
#[derive(Debug)]
pub struct Copied {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: a copy owns its mapping; nothing in it belongs to one thread.
unsafe impl Send for Copied {}

impl Drop for Copied {
    fn drop(&mut self) {
        unmap(self.at, self.len);
    }
}

// SAFETY: a region owns its mappings; nothing in it belongs to one thread.
unsafe impl Send for Region {}

impl Region {
    /// Maps `len` bytes (a multiple of the page size) as a new region.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the system refuses.
    pub fn new(len: usize, run: Where, write: Where) -> Result<Self, Error> {
        let write = map(len, write)?;
        match executable_view(write, len, run) {
            Ok(run) => Ok(Self { run, write, len, hot: 0, cold: len }),
            Err(error) => {
                unmap(write, len);
                Err(error)
            }
        }
    }

    /// Copies what was given out, for a child process that must not share the pages.
    ///
    /// A parent that forks makes the copy first; the child then puts it in place with
    /// [`Region::replace`]. Were the child to copy, the parent might change the code meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the system refuses.
    pub fn copy(&self) -> Result<Copied, Error> {
        let fresh = map(self.len, Where::Anywhere)?;
        for (from, to) in [(0, self.hot), (self.cold, self.len)] {
            // SAFETY: both views are `len` bytes long, mapped and distinct, and
            // `from <= to <= len`.
            unsafe {
                let source = self.write.as_ptr().add(from);
                fresh.as_ptr().add(from).copy_from_nonoverlapping(source, to - from);
            }
        }
        Ok(Copied { at: fresh, len: self.len })
    }

    /// Puts a copy in the region's place, at the same addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the system refuses; the region must then not be used any more.
    pub fn replace(&mut self, copy: &Copied) -> Result<(), Error> {
        let at = |view: NonNull<u8>| Where::Over(HostAddr(view.as_ptr() as u64));
        second_view(copy.at, self.len, at(self.write))?;
        executable_view(copy.at, self.len, at(self.run)).map(drop)
    }

    /// Where the executable view begins.
    #[must_use]
    pub fn start(&self) -> CacheAddr {
        CacheAddr(self.run.as_ptr() as u64)
    }

    /// Where the writable view begins.
    #[must_use]
    pub fn writable(&self) -> HostAddr {
        HostAddr(self.write.as_ptr() as u64)
    }

    /// Bytes in the region.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been given out.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.hot == 0 && self.cold == self.len
    }

    /// Bytes not given out yet.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.cold - self.hot
    }

    /// Whether the executable view holds this address.
    #[must_use]
    pub fn contains(&self, addr: CacheAddr) -> bool {
        addr.since(self.start()) < self.len as u64
    }

    /// The address that the next [`Region::alloc`] gives.
    #[must_use]
    pub fn next(&self) -> CacheAddr {
        self.start().offset(self.hot as u64)
    }

    /// Gives out `len` bytes from the region's start.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there are not so many.
    pub fn alloc(&mut self, len: usize) -> Result<CacheAddr, Error> {
        self.room(len)?;
        let at = self.next();
        self.hot += len;
        Ok(at)
    }

    /// Gives out `len` bytes from the region's end.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there are not so many.
    pub fn alloc_cold(&mut self, len: usize) -> Result<CacheAddr, Error> {
        self.room(len)?;
        self.cold -= len;
        Ok(self.start().offset(self.cold as u64))
    }

    /// Takes everything back. The contents stay until overwritten.
    pub fn reset(&mut self) {
        self.hot = 0;
        self.cold = self.len;
    }

    /// Writes code. The caller sees to it that nobody runs it meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Outside`] if the bytes do not lie in the region.
    pub fn write(&mut self, at: CacheAddr, bytes: &[u8]) -> Result<(), Error> {
        let to = self.slot(at, bytes.len())?;
        // SAFETY: `slot` checked that the writable view holds these bytes; `bytes`
        // cannot overlap it because the view is never handed out as a reference.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Replaces four bytes in one store, also while other threads run them: a processor
    /// sees the old or the new ones provided they do not cross a cache line.
    ///
    /// # Errors
    ///
    /// [`Error::Outside`] if the bytes do not lie in the region.
    pub fn patch_u32(&self, at: CacheAddr, value: u32) -> Result<(), Error> {
        let to = self.slot(at, 4)?;
        if (to as usize).is_multiple_of(4) {
            // SAFETY: in the writable view (checked by `slot`) and aligned.
            unsafe { AtomicU32::from_ptr(to.cast()) }.store(value, Ordering::Release);
        } else {
            // SAFETY: in the writable view, as above. x86 makes any store within one
            // line single; the language has no unaligned atomic to say so.
            unsafe { to.cast::<u32>().write_unaligned(value) };
        }
        Ok(())
    }

    /// Reads back `out.len()` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Outside`] if the bytes do not lie in the region.
    pub fn read(&self, at: CacheAddr, out: &mut [u8]) -> Result<(), Error> {
        let from = self.slot(at, out.len())?;
        // SAFETY: `slot` checked that the view holds these bytes.
        unsafe { from.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn room(&self, wanted: usize) -> Result<(), Error> {
        let left = self.left();
        if wanted <= left { Ok(()) } else { Err(Error::Full { start: self.start(), wanted, left }) }
    }

    fn slot(&self, at: CacheAddr, len: usize) -> Result<*mut u8, Error> {
        let offset = at.since(self.start());
        let inside = offset <= self.len as u64 && len as u64 <= self.len as u64 - offset;
        if !inside {
            return Err(Error::Outside { start: self.start(), addr: at, len });
        }
        // SAFETY: `offset` is at most `len`, the size of the writable view.
        Ok(unsafe { self.write.as_ptr().add(offset as usize) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.run, self.len);
        unmap(self.write, self.len);
    }
}

/// Maps new shared memory. It has no file and needs no descriptor: a program may have none left, or
/// be allowed none of this size.
fn map(len: usize, at: Where) -> Result<NonNull<u8>, Error> {
    let (hint, flags) = match at {
        Where::Anywhere => (null_mut(), MapFlags::SHARED),
        Where::At(addr) => (addr.0 as *mut _, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE),
        Where::Over(addr) => (addr.0 as *mut _, MapFlags::SHARED | MapFlags::FIXED),
    };
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping harms nobody; `FIXED` replaces only what the caller of
    // `Where::Over` names, which are a region's own views.
    let got = unsafe { mmap_anonymous(hint, len, prot, flags | MapFlags::NORESERVE) }
        .map_err(|e| Error::Map { len, source: e.into() })?;
    not_null(got.cast(), len)
}

/// Maps the memory of a shared mapping a second time.
fn second_view(of: NonNull<u8>, len: usize, at: Where) -> Result<NonNull<u8>, Error> {
    let failed = |e: rustix::io::Errno| Error::Map { len, source: e.into() };
    let place = match at {
        Where::Anywhere => None,
        // A move replaces what is there, so the place must be known to be free.
        Where::At(_) => Some(map(len, at)?),
        Where::Over(addr) => Some(not_null(addr.0 as *mut u8, len)?),
    };
    let old = of.as_ptr().cast();
    let flags = MremapFlags::MAYMOVE;
    // SAFETY: with an old length of zero the kernel leaves the first view as it is. The new place is
    // free, just taken, or one of a region's own views.
    let got = unsafe {
        match place {
            None => mremap(old, 0, len, flags),
            Some(place) => mremap_fixed(old, 0, len, flags, place.as_ptr().cast()),
        }
    };
    not_null(got.map_err(failed)?.cast(), len)
}

fn executable_view(of: NonNull<u8>, len: usize, at: Where) -> Result<NonNull<u8>, Error> {
    let view = second_view(of, len, at)?;
    let rights = MprotectFlags::READ | MprotectFlags::EXEC;
    // SAFETY: the view was just made and nobody uses it yet.
    match unsafe { mprotect(view.as_ptr().cast(), len, rights) } {
        Ok(()) => Ok(view),
        Err(e) => {
            unmap(view, len);
            Err(Error::Map { len, source: e.into() })
        }
    }
}

fn not_null(got: *mut u8, len: usize) -> Result<NonNull<u8>, Error> {
    NonNull::new(got)
        .ok_or_else(|| Error::Map { len, source: std::io::Error::other("mapped at zero") })
}

fn unmap(view: NonNull<u8>, len: usize) {
    // SAFETY: the view was mapped by `map` with this length and is not used again. An
    // error would mean that it is no longer mapped, which is what is wanted.
    let _ = unsafe { munmap(view.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn region() -> Region {
        Region::new(4 * PAGE, Where::Anywhere, Where::Anywhere).expect("executable memory")
    }

    fn call(at: CacheAddr) -> u32 {
        // SAFETY: the tests put `mov eax, imm32; ret` there.
        let f: extern "C" fn() -> u32 = unsafe { std::mem::transmute(at.0) };
        f()
    }

    #[test]
    fn runs_what_was_written_and_what_was_patched() {
        let mut region = region();
        let at = region.alloc(6).expect("room");
        region.write(at, &[0xb8, 1, 0, 0, 0, 0xc3]).expect("inside");
        assert_eq!(call(at), 1);
        region.patch_u32(at.offset(1), 77).expect("inside");
        assert_eq!(call(at), 77);
        let copy = region.copy().expect("a copy");
        region.patch_u32(at.offset(1), 78).expect("inside");
        assert_eq!(call(at), 78);
        region.replace(&copy).expect("the copy in place");
        assert_eq!(call(at), 77);
    }

    #[test]
    fn gives_out_from_both_ends_until_full() {
        let mut region = region();
        let (hot, cold) = (region.alloc(PAGE).unwrap(), region.alloc_cold(PAGE).unwrap());
        assert_eq!(cold.since(hot), 3 * PAGE as u64);
        assert!(matches!(region.alloc(2 * PAGE + 1), Err(Error::Full { left: 8192, .. })));
        region.reset();
        assert!(region.is_empty());
    }

    #[test]
    fn refuses_writes_outside() {
        let mut region = region();
        let end = region.start().offset(4 * PAGE as u64);
        assert!(region.write(end, &[1]).is_err());
        assert!(region.write(CacheAddr(0), &[1]).is_err());
        assert!(region.patch_u32(CacheAddr(end.0 - 2), 1).is_err());
        assert!(region.write(end, &[]).is_ok());
    }
}
