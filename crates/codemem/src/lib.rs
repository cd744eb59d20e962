//! Executable memory: written through one mapping, executed through another.
//!
//! The same pages are mapped twice, once writable and once executable, so that
//! no address is ever both (W^X), and patching needs no system call. Offsets
//! are the same in both views.
//!
//! # Example
//!
//! ```
//! use ichnos_codemem::CodeMem;
//!
//! let mut code = CodeMem::new(4096)?;
//! let at = code.append(&[0xc3]).expect("room for one instruction");
//! assert_eq!(code.bytes(at, 1), Some(&[0xc3][..]));
//! # Ok::<(), ichnos_codemem::Error>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ptr::NonNull;

use ichnos_base::CacheAddr;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Why there is no executable memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host refused.
    #[error("the host refused {bytes} bytes of executable memory at {step}: {source}")]
    Refused {
        /// How much was asked for.
        bytes: usize,
        /// At which step.
        step: &'static str,
        /// What the system said.
        source: rustix::io::Errno,
    },
}

/// A stretch of executable memory, filled from its start.
#[derive(Debug)]
pub struct CodeMem {
    write: NonNull<u8>,
    exec: NonNull<u8>,
    len: usize,
    used: usize,
}

// SAFETY: the mappings belong to this value alone and are reached only through
// it; nothing in it depends on the thread that made it.
unsafe impl Send for CodeMem {}

impl CodeMem {
    /// Memory of `len` bytes, rounded up to whole pages.
    pub fn new(len: usize) -> Result<Self, Error> {
        let len = len.max(1).next_multiple_of(4096);
        let refused = |step| move |source| Error::Refused { bytes: len, step, source };
        let file = rustix::fs::memfd_create("ichnos-code", MemfdFlags::CLOEXEC)
            .map_err(refused("creation"))?;
        rustix::fs::ftruncate(&file, len as u64).map_err(refused("sizing"))?;
        let map = |protection, step| {
            // SAFETY: a new mapping at an address of the kernel's choice touches no
            // memory that Rust knows of.
            let at = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0)
            };
            at.map(NonNull::new).map_err(refused(step))?.ok_or(Error::Refused {
                bytes: len,
                step,
                source: rustix::io::Errno::NOMEM,
            })
        };
        let write = map(ProtFlags::READ | ProtFlags::WRITE, "the writable view")?.cast();
        match map(ProtFlags::READ | ProtFlags::EXEC, "the executable view") {
            Ok(exec) => Ok(Self { write, exec: exec.cast(), len, used: 0 }),
            Err(error) => {
                // SAFETY: `write` is the start of a mapping of `len` bytes made above
                // and not handed out.
                let _ = unsafe { rustix::mm::munmap(write.as_ptr().cast(), len) };
                Err(error)
            }
        }
    }

    /// Bytes still free.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.len - self.used
    }

    /// Where the next code will stand.
    #[must_use]
    pub const fn next(&self) -> CacheAddr {
        CacheAddr(self.used as u64)
    }

    /// Adds code at the end; none if there is no room.
    pub fn append(&mut self, code: &[u8]) -> Option<CacheAddr> {
        let at = self.next();
        if code.len() > self.free() {
            return None;
        }
        self.used += code.len();
        self.patch(at, code).then_some(at)
    }

    /// Overwrites code that was added; false if the range was not.
    pub fn patch(&mut self, at: CacheAddr, code: &[u8]) -> bool {
        let Some(start) = self.inside(at, code.len()) else { return false };
        // SAFETY: `inside` has checked that the range lies within the writable
        // mapping, which only this value reaches and `&mut self` excludes others.
        unsafe { std::slice::from_raw_parts_mut(self.write.as_ptr().add(start), code.len()) }
            .copy_from_slice(code);
        true
    }

    /// Code that was added.
    #[must_use]
    pub fn bytes(&self, at: CacheAddr, len: usize) -> Option<&[u8]> {
        let start = self.inside(at, len)?;
        // SAFETY: as in `patch`; `&self` keeps writers away while the slice lives.
        Some(unsafe { std::slice::from_raw_parts(self.write.as_ptr().add(start), len) })
    }

    /// Forgets all code behind `at`; it may be overwritten.
    pub fn truncate(&mut self, at: CacheAddr) {
        self.used = self.used.min(at.0 as usize);
    }

    /// Where code stands for the processor.
    #[must_use]
    pub fn address(&self, at: CacheAddr) -> *const u8 {
        self.exec.as_ptr().wrapping_add(at.0 as usize)
    }

    fn inside(&self, at: CacheAddr, len: usize) -> Option<usize> {
        let start = usize::try_from(at.0).ok()?;
        (start.checked_add(len)? <= self.used).then_some(start)
    }
}

impl Drop for CodeMem {
    fn drop(&mut self) {
        for view in [self.write, self.exec] {
            // SAFETY: both are starts of mappings of `len` bytes made in `new`; no
            // reference into them outlives this value.
            let _ = unsafe { rustix::mm::munmap(view.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_and_can_be_patched() {
        let mut code = CodeMem::new(100).expect("executable memory");
        // mov eax, 42; ret
        let at = code.append(&[0xb8, 42, 0, 0, 0, 0xc3]).expect("room");
        let run = |code: &CodeMem| {
            // SAFETY: the address holds a complete function of this type.
            let function: extern "sysv64" fn() -> u32 =
                unsafe { std::mem::transmute(code.address(at)) };
            function()
        };
        assert_eq!(run(&code), 42);
        assert!(code.patch(CacheAddr(at.0 + 1), &[7]));
        assert_eq!(run(&code), 7);
    }

    #[test]
    fn nothing_lies_outside() {
        let mut code = CodeMem::new(4096).expect("executable memory");
        assert_eq!(code.append(&[0; 4097]), None);
        assert!(code.append(&[0x90; 4096]).is_some());
        assert!(!code.patch(CacheAddr(4095), &[0, 0]));
        assert!(!code.patch(CacheAddr(u64::MAX), &[0, 0]));
        code.truncate(CacheAddr(8));
        assert_eq!((code.free(), code.bytes(CacheAddr(8), 1)), (4088, None));
    }
}
