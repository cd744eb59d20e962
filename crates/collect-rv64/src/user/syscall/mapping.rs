//! Memory: the heap's end, mappings and their rights.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::Protection;
use rustix::io::Errno;

use super::Call;
use crate::user::kernel::{News, OwnedMap};
use crate::user::space::{Backing, PAGE, Region, Sharing, TOP};

const MAP_SHARED: u64 = 1;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MADV_DONTNEED: u64 = 4;

const READ_WRITE: Protection = Protection(Protection::READ.0 | Protection::WRITE.0);

fn whole_pages(len: u64) -> Result<u64, Errno> {
    len.checked_next_multiple_of(PAGE).filter(|&len| len <= TOP).ok_or(Errno::NOMEM)
}

fn aligned(va: u64) -> Result<u64, Errno> {
    if va.is_multiple_of(PAGE) && va < TOP { Ok(va) } else { Err(Errno::INVAL) }
}

impl Call<'_> {
    /// Moves the end of the heap; the result is where it is then.
    pub(super) fn brk(&mut self) -> u64 {
        let [wanted, ..] = self.args;
        let mut view = self.view();
        let (start, old) = (view.space.brk_start, view.space.brk);
        let (old_end, end) =
            (old.next_multiple_of(PAGE), wanted.saturating_add(PAGE - 1) & !(PAGE - 1));
        if wanted < start || end >= view.space.mmap_top {
            return old;
        }
        if end > old_end {
            if !view.space.is_free(old_end, end - old_end) {
                return old;
            }
            let region =
                Region { end, protection: READ_WRITE, sharing: Sharing::Private, backing: None };
            view.map(old_end, region);
        } else {
            view.unmap(end, old_end - end);
        }
        view.space.brk = wanted;
        if end > old_end {
            self.tell_map(old_end, end - old_end, READ_WRITE);
        }
        wanted
    }

    fn tell_map(&mut self, start: u64, len: u64, protection: Protection) {
        let thread = self.kernel.threads[self.thread].id;
        let map = OwnedMap { start, len, protection, path: String::new(), offset: 0 };
        self.kernel.news.push(News::Mapped { thread, map });
    }

    pub(super) fn mmap(&mut self) -> Result<u64, Errno> {
        let [hint, len, protection, flags, fd, offset] = self.args;
        if len == 0 || offset % PAGE != 0 {
            return Err(Errno::INVAL);
        }
        let len = whole_pages(len)?;
        let protection = Protection(protection as u8 & 7);
        let start = self.choose(hint, len, flags)?;
        let mut backing = None;
        let mut path = String::new();
        if flags & MAP_ANONYMOUS == 0 {
            let file = self.host_file(fd)?;
            path = std::fs::read_link(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&*file)
            ))
            .map(|p| p.to_string_lossy().into_owned())
            .unwrap_or_default();
            backing = Some(Backing { fd: file, offset });
        }
        let shared = flags & 3 == MAP_SHARED;
        let sharing = if shared { Sharing::Shared } else { Sharing::Private };
        // Only a shared mapping that can be written ever goes back to the file.
        let carries_back = shared && protection.has(Protection::WRITE);
        let region = Region {
            end: start + len,
            // Filled first, protected afterwards.
            protection: READ_WRITE,
            sharing,
            backing: backing.clone().filter(|_| carries_back),
        };
        self.view().map(start, region);
        if let Some(backing) = &backing {
            self.fill(start, len, backing)?;
        }
        self.view().protect(start, len, protection);
        let thread = self.kernel.threads[self.thread].id;
        let map = OwnedMap { start, len, protection, path, offset };
        self.kernel.news.push(News::Mapped { thread, map });
        Ok(start)
    }

    /// Where a mapping goes.
    fn choose(&mut self, hint: u64, len: u64, flags: u64) -> Result<u64, Errno> {
        let space = self.view().space;
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            let start = aligned(hint)?;
            if start.checked_add(len).is_none_or(|end| end > TOP) {
                return Err(Errno::NOMEM);
            }
            if flags & MAP_FIXED_NOREPLACE != 0 && !space.is_free(start, len) {
                return Err(Errno::EXIST);
            }
            return Ok(start);
        }
        let hint = hint & !(PAGE - 1);
        if hint >= PAGE * 16
            && hint.saturating_add(len) <= space.mmap_top
            && space.is_free(hint, len)
        {
            return Ok(hint);
        }
        space.find_free(len).ok_or(Errno::NOMEM)
    }

    /// Copies a file's bytes into a fresh mapping.
    fn fill(&mut self, start: u64, len: u64, from: &Backing) -> Result<(), Errno> {
        let mut done = 0;
        let mut buffer = vec![0; 1 << 16];
        while done < len {
            let most = (len - done).min(buffer.len() as u64) as usize;
            let got = rustix::io::pread(&*from.fd, &mut buffer[..most], from.offset + done)?;
            if got == 0 {
                break;
            }
            self.view().write(start + done, &buffer[..got])?;
            done += got as u64;
        }
        Ok(())
    }

    pub(super) fn munmap(&mut self) -> Result<u64, Errno> {
        let [start, len, ..] = self.args;
        let (start, len) = (aligned(start)?, whole_pages(len)?);
        if len == 0 {
            return Err(Errno::INVAL);
        }
        self.view().unmap(start, len);
        let thread = self.kernel.threads[self.thread].id;
        self.kernel.news.push(News::Unmapped { thread, start, len });
        Ok(0)
    }

    pub(super) fn mprotect(&mut self) -> Result<u64, Errno> {
        let [start, len, protection, ..] = self.args;
        let (start, len) = (aligned(start)?, whole_pages(len)?);
        let protection = Protection(protection as u8 & 7);
        if !self.view().protect(start, len, protection) {
            return Err(Errno::NOMEM);
        }
        Ok(0)
    }

    pub(super) fn mremap(&mut self) -> Result<u64, Errno> {
        let [old, old_len, new_len, flags, target, _] = self.args;
        let (old, old_len, new_len) = (aligned(old)?, whole_pages(old_len)?, whole_pages(new_len)?);
        if new_len == 0 || !self.view().space.is_mapped(old, old_len) {
            return Err(if new_len == 0 { Errno::INVAL } else { Errno::FAULT });
        }
        if new_len <= old_len && flags & MREMAP_FIXED == 0 {
            self.view().unmap(old + new_len, old_len - new_len);
            return Ok(old);
        }
        let mut view = self.view();
        let (protection, sharing) = view
            .space
            .regions()
            .find(|(start, region)| *start <= old && old < region.end)
            .map(|(_, region)| (region.protection, region.sharing))
            .ok_or(Errno::FAULT)?;
        let grown = |end| Region { end, protection, sharing, backing: None };
        let mut start = old;
        let moves =
            flags & MREMAP_FIXED != 0 || !view.space.is_free(old + old_len, new_len - old_len);
        if moves {
            if flags & MREMAP_MAYMOVE == 0 {
                return Err(Errno::NOMEM);
            }
            start = match flags & MREMAP_FIXED != 0 {
                true => aligned(target)?,
                false => view.space.find_free(new_len).ok_or(Errno::NOMEM)?,
            };
            view.unmap(start, new_len);
            view.relocate(old, old_len.min(new_len), start);
            view.unmap(old, old_len);
        }
        if new_len > old_len {
            view.map(start + old_len, grown(start + new_len));
        }
        let thread = self.kernel.threads[self.thread].id;
        if moves {
            self.kernel.news.push(News::Unmapped { thread, start: old, len: old_len });
        }
        self.tell_map(start, new_len, protection);
        Ok(start)
    }

    /// All memory that is mapped is resident.
    pub(super) fn mincore(&mut self) -> Result<u64, Errno> {
        let [start, len, vector, ..] = self.args;
        let start = aligned(start)?;
        if !self.view().space.is_mapped(start, whole_pages(len)?) {
            return Err(Errno::NOMEM);
        }
        for n in 0..len.div_ceil(PAGE) {
            self.view().write(vector + n, &[1])?;
        }
        Ok(0)
    }

    pub(super) fn madvise(&mut self) -> Result<u64, Errno> {
        let [start, len, advice, ..] = self.args;
        let (start, len) = (aligned(start)?, whole_pages(len)?);
        if advice == MADV_DONTNEED {
            let mut view = self.view();
            if !view.space.is_mapped(start, len) {
                return Err(Errno::NOMEM);
            }
            view.drop_pages(start, start + len);
        }
        Ok(0)
    }

    pub(super) fn msync(&mut self) -> Result<u64, Errno> {
        let [start, len, ..] = self.args;
        let end = aligned(start)?.saturating_add(whole_pages(len)?);
        let mut view = self.view();
        let inside: Vec<u64> = view
            .space
            .regions()
            .filter(|(at, r)| *at < end && r.end > start)
            .map(|(at, _)| at)
            .collect();
        for at in inside {
            view.write_back(at);
        }
        Ok(0)
    }
}
