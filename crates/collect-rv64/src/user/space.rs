//! A process's address space: regions with rights, and frames that come into
//! being when first touched. Frames may be shared after a fork and are copied
//! when written.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use ichnos_base::Protection;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::ram::{PAGE_SIZE, Ram};
use crate::tlb::Rights;
use crate::trap::Access;
use crate::user::frames::Frames;

pub(crate) const PAGE: u64 = PAGE_SIZE as u64;
/// The end of user addresses: what Sv39 leaves to programs.
pub(crate) const TOP: u64 = 1 << 38;

/// Who sees writes to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// The process alone; a fork copies.
    Private,
    /// All that map it.
    Shared,
}

/// A file whose bytes a shared region must carry back.
#[derive(Clone, Debug)]
pub(crate) struct Backing {
    pub(crate) fd: Rc<OwnedFd>,
    pub(crate) offset: u64,
}

/// A stretch of addresses with the same rights.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) end: u64,
    pub(crate) protection: Protection,
    pub(crate) sharing: Sharing,
    /// The file to which a shared, writable region goes back.
    pub(crate) backing: Option<Backing>,
}

/// An address space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    regions: BTreeMap<u64, Region>,
    pages: HashMap<u64, usize>,
    pub(crate) brk_start: u64,
    pub(crate) brk: u64,
    /// New mappings are placed below this.
    pub(crate) mmap_top: u64,
    /// Grows whenever a translation may have become wrong.
    pub(crate) epoch: u64,
}

/// Memory as one process sees it: its space, with the frames behind.
pub(crate) struct View<'a> {
    pub(crate) ram: &'a mut Ram,
    pub(crate) frames: &'a mut Frames,
    pub(crate) space: &'a mut Space,
}

impl Space {
    fn region(&self, va: u64) -> Option<&Region> {
        self.regions.range(..=va).next_back().map(|(_, r)| r).filter(|r| va < r.end)
    }

    /// Whether nothing is mapped in a range.
    pub(crate) fn is_free(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        self.regions.range(..end).next_back().is_none_or(|(_, r)| r.end <= start)
    }

    /// Whether all of a range is mapped.
    pub(crate) fn is_mapped(&self, start: u64, len: u64) -> bool {
        let mut at = start;
        while at < start.saturating_add(len) {
            let Some(region) = self.region(at) else { return false };
            at = region.end;
        }
        true
    }

    /// The highest free place of `len` bytes below the mappings' top.
    pub(crate) fn find_free(&self, len: u64) -> Option<u64> {
        let mut end = self.mmap_top;
        for (&start, region) in self.regions.range(..self.mmap_top).rev() {
            if end.checked_sub(region.end)? >= len {
                break;
            }
            end = end.min(start);
        }
        end.checked_sub(len).filter(|&at| at >= PAGE * 16)
    }

    /// Cuts regions so that none crosses `at`.
    fn cut(&mut self, at: u64) {
        let Some((&start, region)) = self.regions.range_mut(..at).next_back() else { return };
        if region.end <= at {
            return;
        }
        let mut upper = region.clone();
        region.end = at;
        if let Some(backing) = &mut upper.backing {
            backing.offset += at - start;
        }
        self.regions.insert(at, upper);
    }

    /// The regions inside a range, which is cut at its ends.
    fn inside(&mut self, start: u64, end: u64) -> Vec<u64> {
        self.cut(start);
        self.cut(end);
        self.regions.range(start..end).map(|(&at, _)| at).collect()
    }

    /// All regions in order.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.regions.iter().map(|(&start, region)| (start, region))
    }
}

impl View<'_> {
    /// Maps a range, over whatever was there.
    pub(crate) fn map(&mut self, start: u64, region: Region) {
        self.unmap(start, region.end - start);
        self.space.regions.insert(start, region);
    }

    /// Unmaps a range; shared files get their bytes back.
    pub(crate) fn unmap(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        for at in self.space.inside(start, end) {
            self.write_back(at);
            if let Some(region) = self.space.regions.remove(&at) {
                self.drop_pages(at, region.end);
            }
        }
        self.space.epoch += 1;
    }

    /// Frees the frames of a range; they read as zero afterwards.
    pub(crate) fn drop_pages(&mut self, start: u64, end: u64) {
        let (first, last) = (start / PAGE, end / PAGE);
        let numbers: Vec<u64> = if last - first < self.space.pages.len() as u64 {
            (first..last).collect()
        } else {
            self.space.pages.keys().copied().filter(|n| (first..last).contains(n)).collect()
        };
        for number in numbers {
            if let Some(index) = self.space.pages.remove(&number) {
                self.frames.give_back(index);
            }
        }
        self.space.epoch += 1;
    }

    /// Writes a shared region's pages back to its file.
    pub(crate) fn write_back(&mut self, start: u64) {
        let Some(region) = self.space.regions.get(&start) else { return };
        let Some(backing) = region.backing.clone() else { return };
        let Ok(size) = rustix::fs::fstat(&*backing.fd).map(|s| s.st_size as u64) else { return };
        for at in (start..region.end).step_by(PAGE_SIZE) {
            let offset = backing.offset + (at - start);
            let len = size.saturating_sub(offset).min(PAGE) as usize;
            if let Some(bytes) =
                self.space.pages.get(&(at / PAGE)).and_then(|&index| self.ram.slice(index, len))
            {
                // The mapping outlives its file descriptor's errors, as on a host.
                let _ = rustix::io::pwrite(&*backing.fd, bytes, offset);
            }
        }
    }

    /// Changes rights; false if part of the range is not mapped.
    pub(crate) fn protect(&mut self, start: u64, len: u64, protection: Protection) -> bool {
        if !self.space.is_mapped(start, len) {
            return false;
        }
        for at in self.space.inside(start, start + len) {
            if let Some(region) = self.space.regions.get_mut(&at) {
                region.protection = protection;
            }
        }
        self.space.epoch += 1;
        true
    }

    /// Moves a mapping's pages to another place, over whatever was there.
    pub(crate) fn relocate(&mut self, from: u64, len: u64, to: u64) {
        let end = from + len;
        self.unmap(to, len);
        for at in self.space.inside(from, end) {
            if let Some(mut region) = self.space.regions.remove(&at) {
                let start = to + (at - from);
                region.end = to + (region.end - from);
                self.space.regions.insert(start, region);
            }
        }
        for number in from / PAGE..end / PAGE {
            if let Some(index) = self.space.pages.remove(&number) {
                self.space.pages.insert(number - from / PAGE + to / PAGE, index);
            }
        }
        self.space.epoch += 1;
    }

    /// Translates an address for an access, giving it a frame of its own if it
    /// needs one. None if the access is not allowed.
    pub(crate) fn frame(&mut self, va: u64, access: Access) -> Option<(usize, Rights)> {
        let region = self.space.region(va)?;
        let has = |p| region.protection.has(p);
        let mut rights = Rights {
            read: has(Protection::READ),
            write: has(Protection::WRITE),
            exec: has(Protection::EXEC),
        };
        // As on real machines, what can be written or executed can be read.
        rights.read |= rights.write | rights.exec;
        if !rights.allows(access) {
            return None;
        }
        let private = region.sharing == Sharing::Private;
        let index = self.page(va / PAGE, private && access == Access::Store)?;
        let copied_on_write = private && self.frames.is_shared(index);
        rights.write &= !copied_on_write && !self.ram.has_code(index / PAGE_SIZE);
        Some((index, rights))
    }

    /// The frame of a page; one of its own if `own` and others share it.
    fn page(&mut self, number: u64, own: bool) -> Option<usize> {
        match self.space.pages.get(&number).copied() {
            Some(index) if own && self.frames.is_shared(index) => {
                let copy = self.frames.take(self.ram)?;
                let bytes = self.ram.slice(index, PAGE_SIZE)?.to_vec();
                self.ram.slice_mut(copy, PAGE_SIZE)?.copy_from_slice(&bytes);
                self.frames.give_back(index);
                self.space.pages.insert(number, copy);
                self.space.epoch += 1;
                Some(copy)
            }
            Some(index) => Some(index),
            None => {
                let index = self.frames.take(self.ram)?;
                self.space.pages.insert(number, index);
                Some(index)
            }
        }
    }

    /// A copy of the space for a forked process; private pages are shared until
    /// one side writes.
    pub(crate) fn fork(&mut self) -> Space {
        for &index in self.space.pages.values() {
            self.frames.share(index);
        }
        self.space.epoch += 1;
        Space {
            regions: self.space.regions.clone(),
            pages: self.space.pages.clone(),
            brk_start: self.space.brk_start,
            brk: self.space.brk,
            mmap_top: self.space.mmap_top,
            epoch: 0,
        }
    }

    /// Unmaps everything.
    pub(crate) fn clear(&mut self) {
        self.unmap(0, u64::MAX);
    }

    /// Copies bytes out of the guest.
    pub(crate) fn read(&mut self, va: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.read_for(va, bytes, Access::Load)
    }

    /// Copies bytes out of the guest that must be accessible so.
    pub(crate) fn read_for(
        &mut self,
        va: u64,
        bytes: &mut [u8],
        access: Access,
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let at = va.wrapping_add(done as u64);
            let offset = (at % PAGE) as usize;
            let len = (PAGE_SIZE - offset).min(bytes.len() - done);
            let (index, _) = self.frame(at, access).ok_or(Errno::FAULT)?;
            let from = self.ram.slice(index + offset, len).ok_or(Errno::FAULT)?;
            bytes[done..done + len].copy_from_slice(from);
            done += len;
        }
        Ok(())
    }

    /// Copies bytes into the guest.
    pub(crate) fn write(&mut self, va: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.write_for(va, bytes, Access::Store)
    }

    /// Copies bytes into the guest, whatever its own rights are.
    pub(crate) fn poke(&mut self, va: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.write_for(va, bytes, Access::Load)
    }

    fn write_for(&mut self, va: u64, bytes: &[u8], access: Access) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let at = va.wrapping_add(done as u64);
            let offset = (at % PAGE) as usize;
            let len = (PAGE_SIZE - offset).min(bytes.len() - done);
            let (index, _) = self.frame(at, access).ok_or(Errno::FAULT)?;
            let to = self.ram.slice_mut(index + offset, len).ok_or(Errno::FAULT)?;
            to.copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
        Ok(())
    }

    pub(crate) fn read_u64(&mut self, va: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        self.read(va, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn read_u32(&mut self, va: u64) -> Result<u32, Errno> {
        let mut bytes = [0; 4];
        self.read(va, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn write_u64(&mut self, va: u64, value: u64) -> Result<(), Errno> {
        self.write(va, &value.to_le_bytes())
    }

    pub(crate) fn write_u32(&mut self, va: u64, value: u32) -> Result<(), Errno> {
        self.write(va, &value.to_le_bytes())
    }

    /// A text that ends with a zero byte, at most 4096 bytes long.
    pub(crate) fn read_text(&mut self, va: u64) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        while text.len() < PAGE_SIZE {
            let at = va.wrapping_add(text.len() as u64);
            let offset = (at % PAGE) as usize;
            let (index, _) = self.frame(at, Access::Load).ok_or(Errno::FAULT)?;
            let rest = self.ram.slice(index + offset, PAGE_SIZE - offset).ok_or(Errno::FAULT)?;
            if let Some(end) = rest.iter().position(|&b| b == 0) {
                text.extend_from_slice(&rest[..end]);
                return Ok(text);
            }
            text.extend_from_slice(rest);
        }
        Err(Errno::NAMETOOLONG)
    }
}
