//! The machine's memory: bytes, and for each page whether decoded code was
//! taken from it. Indices are offsets into RAM, not guest addresses.
//!
//! Pages start out zero. In user mode the memory grows as frames are needed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::pages::prefer_large;

pub(crate) const PAGE_SHIFT: u32 = 12;
pub(crate) const PAGE_SIZE: usize = 1 << PAGE_SHIFT;

/// Bytes that there is room for when memory first grows.
const ROOM: usize = 64 << 20;

/// A range of RAM that held decoded code and was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CodeWrite {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Random access memory.
#[derive(Debug)]
pub(crate) struct Ram {
    bytes: Vec<u8>,
    has_code: Vec<bool>,
    written: Vec<CodeWrite>,
}

impl Ram {
    /// Zeroed memory of whole pages.
    pub(crate) fn new(pages: usize) -> Self {
        let mut bytes = vec![0; pages * PAGE_SIZE];
        prefer_large(&mut bytes);
        Self { bytes, has_code: vec![false; pages], written: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The start of the bytes, for generated code.
    #[inline]
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    pub(crate) fn pages(&self) -> usize {
        self.has_code.len()
    }

    /// Adds zeroed pages at the end. Room is made for many more, which costs nothing
    /// until they are there, so that memory seldom moves.
    pub(crate) fn grow(&mut self, pages: usize) {
        self.has_code.resize(self.pages() + pages, false);
        let (old, len) = (self.bytes.len(), self.has_code.len() * PAGE_SIZE);
        if len > self.bytes.capacity() {
            self.bytes.reserve_exact(len.max(2 * old).max(ROOM) - old);
            prefer_large(self.bytes.spare_capacity_mut());
        }
        self.bytes.resize(len, 0);
    }

    /// The little-endian number of `N` bytes at `index`; zero outside of RAM.
    #[inline(always)]
    pub(crate) fn read<const N: usize>(&self, index: usize) -> u64 {
        // One arm remains of each copy; copying slices would be a call.
        let Some(bytes) = self.bytes.get(index..) else { return 0 };
        match N {
            1 => bytes.first_chunk().map_or(0, |b| u8::from_le_bytes(*b).into()),
            2 => bytes.first_chunk().map_or(0, |b| u16::from_le_bytes(*b).into()),
            4 => bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b).into()),
            8 => bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)),
            _ => {
                let mut word = [0; 8];
                if let (Some(from), Some(to)) = (bytes.get(..N), word.get_mut(..N)) {
                    to.copy_from_slice(from);
                }
                u64::from_le_bytes(word)
            }
        }
    }

    /// Writes the low `N` bytes of `value` at `index`. The caller has made sure
    /// that the page holds no decoded code.
    #[inline(always)]
    pub(crate) fn write<const N: usize>(&mut self, index: usize, value: u64) {
        let Some(bytes) = self.bytes.get_mut(index..) else { return };
        let value = value.to_le_bytes();
        match N {
            1 => put::<1>(bytes, &value),
            2 => put::<2>(bytes, &value),
            4 => put::<4>(bytes, &value),
            8 => put::<8>(bytes, &value),
            _ => {
                if let (Some(to), Some(from)) = (bytes.get_mut(..N), value.get(..N)) {
                    to.copy_from_slice(from);
                }
            }
        }
    }

    /// As [`read`](Self::read), at the host's address of the bytes.
    #[inline(always)]
    pub(crate) fn read_host<const N: usize>(&self, host: u64) -> u64 {
        self.read::<N>((host as usize).wrapping_sub(self.bytes.as_ptr() as usize))
    }

    /// As [`write`](Self::write), at the host's address of the bytes.
    #[inline(always)]
    pub(crate) fn write_host<const N: usize>(&mut self, host: u64, value: u64) {
        self.write::<N>((host as usize).wrapping_sub(self.bytes.as_ptr() as usize), value);
    }

    /// The bytes of a range, if all of it is RAM.
    pub(crate) fn slice(&self, index: usize, len: usize) -> Option<&[u8]> {
        self.bytes.get(index..index.checked_add(len)?)
    }

    /// The bytes of a range to write, if all of it is RAM. Code in it is noted
    /// as overwritten.
    pub(crate) fn slice_mut(&mut self, index: usize, len: usize) -> Option<&mut [u8]> {
        let end = index.checked_add(len).filter(|&end| end <= self.bytes.len())?;
        self.note_write(index, len);
        self.bytes.get_mut(index..end)
    }

    /// Whether decoded code was taken from this page.
    pub(crate) fn has_code(&self, page: usize) -> bool {
        self.has_code.get(page).copied().unwrap_or(false)
    }

    pub(crate) fn set_has_code(&mut self, page: usize, has_code: bool) {
        if let Some(flag) = self.has_code.get_mut(page) {
            *flag = has_code;
        }
    }

    /// Remembers a write if it touches a page that holds decoded code, and says
    /// whether it does.
    pub(crate) fn note_write(&mut self, start: usize, len: usize) -> bool {
        let last = (start + len.max(1) - 1) >> PAGE_SHIFT;
        let code = (start >> PAGE_SHIFT..=last).any(|page| self.has_code(page));
        if code {
            self.written.push(CodeWrite { start, len });
        }
        code
    }

    /// Whether noted writes wait to be taken.
    #[inline]
    pub(crate) fn code_was_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// The next noted write.
    pub(crate) fn take_code_write(&mut self) -> Option<CodeWrite> {
        self.written.pop()
    }
}

/// Puts the first `N` bytes of a value at the start of `bytes`, if they fit.
#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], value: &[u8; 8]) {
    if let (Some(to), Some(from)) = (bytes.first_chunk_mut::<N>(), value.first_chunk::<N>()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_code_are_noted_and_others_not() {
        let mut ram = Ram::new(3);
        ram.set_has_code(1, true);
        assert!(!ram.note_write(0, PAGE_SIZE));
        assert!(ram.note_write(PAGE_SIZE - 1, 2));
        assert_eq!(ram.take_code_write(), Some(CodeWrite { start: PAGE_SIZE - 1, len: 2 }));
        assert_eq!(ram.take_code_write(), None);
    }

    #[test]
    fn outside_of_ram_nothing_happens() {
        let mut ram = Ram::new(1);
        ram.write::<8>(PAGE_SIZE - 4, u64::MAX);
        ram.write::<4>(PAGE_SIZE - 4, 7);
        assert_eq!(ram.read::<8>(PAGE_SIZE - 4), 0);
        assert_eq!(ram.read::<4>(PAGE_SIZE - 4), 7);
        assert!(ram.slice(PAGE_SIZE, 1).is_none());
        assert!(ram.slice(usize::MAX, 2).is_none());
    }
}
