//! Names in the file system: folders, links, rights.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Access, AtFlags, Gid, Mode, RawDir, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::Call;

const UTIME_NOW: i64 = (1 << 30) - 1;

impl Call<'_> {
    pub(super) fn getcwd(&mut self) -> Result<u64, Errno> {
        let [va, size, ..] = self.args;
        let folder = std::env::current_dir().map_err(|_| Errno::NOENT)?;
        let mut bytes = folder.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        if bytes.len() as u64 > size {
            return Err(Errno::RANGE);
        }
        self.view().write(va, &bytes)?;
        Ok(bytes.len() as u64)
    }

    pub(super) fn chdir(&mut self) -> Result<u64, Errno> {
        let place = self.place(-100i64 as u64, self.args[0])?;
        rustix::process::chdir(&place.path)?;
        Ok(0)
    }

    pub(super) fn fchdir(&mut self) -> Result<u64, Errno> {
        let file = self.host_file(self.args[0])?;
        rustix::process::fchdir(&*file)?;
        Ok(0)
    }

    pub(super) fn mkdirat(&mut self) -> Result<u64, Errno> {
        let [folder, path, mode, ..] = self.args;
        let place = self.place(folder, path)?;
        rustix::fs::mkdirat(place.folder(), &place.path, Mode::from_bits_truncate(mode as u32))?;
        Ok(0)
    }

    pub(super) fn unlinkat(&mut self) -> Result<u64, Errno> {
        let [folder, path, flags, ..] = self.args;
        let place = self.place(folder, path)?;
        rustix::fs::unlinkat(place.folder(), &place.path, AtFlags::from_bits_retain(flags as u32))?;
        Ok(0)
    }

    pub(super) fn symlinkat(&mut self) -> Result<u64, Errno> {
        let [target, folder, path, ..] = self.args;
        let target = self.view().read_text(target)?;
        let place = self.place(folder, path)?;
        rustix::fs::symlinkat(std::ffi::OsStr::from_bytes(&target), place.folder(), &place.path)?;
        Ok(0)
    }

    pub(super) fn linkat(&mut self) -> Result<u64, Errno> {
        let [old_folder, old, new_folder, new, flags, _] = self.args;
        let (old, new) = (self.place(old_folder, old)?, self.place(new_folder, new)?);
        let flags = AtFlags::from_bits_retain(flags as u32);
        rustix::fs::linkat(old.folder(), &old.path, new.folder(), &new.path, flags)?;
        Ok(0)
    }

    pub(super) fn renameat2(&mut self) -> Result<u64, Errno> {
        let [old_folder, old, new_folder, new, flags, _] = self.args;
        let (old, new) = (self.place(old_folder, old)?, self.place(new_folder, new)?);
        let flags = RenameFlags::from_bits_retain(flags as u32);
        rustix::fs::renameat_with(old.folder(), &old.path, new.folder(), &new.path, flags)?;
        Ok(0)
    }

    pub(super) fn readlinkat(&mut self) -> Result<u64, Errno> {
        let [folder, path, va, size, ..] = self.args;
        let asked = self.view().read_text(path)?;
        let target = if asked == b"/proc/self/exe" {
            self.process().program.as_os_str().as_bytes().to_vec()
        } else {
            let place = self.place(folder, path)?;
            rustix::fs::readlinkat(place.folder(), &place.path, Vec::new())?.into_bytes()
        };
        let len = target.len().min(size as usize);
        self.view().write(va, &target[..len])?;
        Ok(len as u64)
    }

    pub(super) fn faccessat(&mut self) -> Result<u64, Errno> {
        let [folder, path, mode, ..] = self.args;
        let place = self.place(folder, path)?;
        let mode = Access::from_bits_retain(mode as u32);
        rustix::fs::accessat(place.folder(), &place.path, mode, AtFlags::empty())?;
        Ok(0)
    }

    pub(super) fn fchmodat(&mut self) -> Result<u64, Errno> {
        let [folder, path, mode, ..] = self.args;
        let place = self.place(folder, path)?;
        let mode = Mode::from_bits_truncate(mode as u32);
        rustix::fs::chmodat(place.folder(), &place.path, mode, AtFlags::empty())?;
        Ok(0)
    }

    pub(super) fn fchownat(&mut self) -> Result<u64, Errno> {
        let [folder, path, user, group, flags, _] = self.args;
        let place = self.place(folder, path)?;
        let flags = AtFlags::from_bits_retain(flags as u32);
        rustix::fs::chownat(place.folder(), &place.path, uid(user), gid(group), flags)?;
        Ok(0)
    }

    pub(super) fn fchown(&mut self) -> Result<u64, Errno> {
        let [fd, user, group, ..] = self.args;
        let file = self.host_file(fd)?;
        rustix::fs::fchown(&*file, uid(user), gid(group))?;
        Ok(0)
    }

    pub(super) fn utimensat(&mut self) -> Result<u64, Errno> {
        let [folder, path, va, flags, ..] = self.args;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let mut times = Timestamps { last_access: now, last_modification: now };
        if va != 0 {
            let mut view = self.view();
            let mut time = |at| -> Result<Timespec, Errno> {
                Ok(Timespec {
                    tv_sec: view.read_u64(at)? as i64,
                    tv_nsec: view.read_u64(at + 8)? as i64,
                })
            };
            times = Timestamps { last_access: time(va)?, last_modification: time(va + 16)? };
        }
        if path == 0 {
            let file = self.host_file(folder)?;
            rustix::fs::futimens(&*file, &times)?;
            return Ok(0);
        }
        let place = self.place(folder, path)?;
        let flags = AtFlags::from_bits_retain(flags as u32);
        rustix::fs::utimensat(place.folder(), &place.path, &times, flags)?;
        Ok(0)
    }

    pub(super) fn getdents64(&mut self) -> Result<u64, Errno> {
        let [fd, va, size, ..] = self.args;
        let file = self.host_file(fd)?;
        // Entries are as long for the guest as for the host, so what fits into
        // a buffer of the same size fits there too.
        let mut buffer = vec![MaybeUninit::uninit(); (size as usize).min(1 << 16)];
        let mut folder = RawDir::new(&*file, &mut buffer);
        let mut bytes = Vec::new();
        while let Some(entry) = folder.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes_with_nul();
            let len = (19 + name.len()).next_multiple_of(8);
            let end = bytes.len() + len;
            bytes.extend_from_slice(&entry.ino().to_le_bytes());
            bytes.extend_from_slice(&entry.next_entry_cookie().to_le_bytes());
            bytes.extend_from_slice(&(len as u16).to_le_bytes());
            bytes.push(file_type(entry.file_type()));
            bytes.extend_from_slice(name);
            bytes.resize(end, 0);
            if folder.is_buffer_empty() {
                break;
            }
        }
        self.view().write(va, &bytes)?;
        Ok(bytes.len() as u64)
    }

    pub(super) fn statfs(&mut self) -> Result<u64, Errno> {
        let [path, va, ..] = self.args;
        let place = self.place(-100i64 as u64, path)?;
        let s = rustix::fs::statfs(&place.path)?;
        self.write_statfs(va, &s)
    }

    pub(super) fn fstatfs(&mut self) -> Result<u64, Errno> {
        let [fd, va, ..] = self.args;
        let file = self.host_file(fd)?;
        let s = rustix::fs::fstatfs(&*file)?;
        self.write_statfs(va, &s)
    }

    fn write_statfs(&mut self, va: u64, s: &rustix::fs::StatFs) -> Result<u64, Errno> {
        let words = [
            s.f_type as u64,
            s.f_bsize as u64,
            s.f_blocks,
            s.f_bfree,
            s.f_bavail,
            s.f_files,
            s.f_ffree,
            0,
            s.f_namelen as u64,
            s.f_frsize as u64,
            s.f_flags as u64,
            0,
            0,
            0,
            0,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.view().write(va, &bytes)?;
        Ok(0)
    }
}

fn uid(raw: u64) -> Option<Uid> {
    (raw as u32 != u32::MAX).then(|| Uid::from_raw(raw as u32))
}

fn gid(raw: u64) -> Option<Gid> {
    (raw as u32 != u32::MAX).then(|| Gid::from_raw(raw as u32))
}

const fn file_type(kind: rustix::fs::FileType) -> u8 {
    use rustix::fs::FileType;
    match kind {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        _ => 0,
    }
}
