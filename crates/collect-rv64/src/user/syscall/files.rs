//! Opening, closing and duplicating files, and what is known about them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, Stat, StatxFlags};
use rustix::io::Errno;

use super::Call;
use crate::user::loader::host_path;
use crate::user::process::OpenFile;

const AT_FDCWD: u64 = -100i64 as u64;
const F_DUPFD: u64 = 0;
const F_GETFD: u64 = 1;
const F_SETFD: u64 = 2;
const F_GETFL: u64 = 3;
const F_SETFL: u64 = 4;
const F_DUPFD_CLOEXEC: u64 = 1030;
const TCGETS: u64 = 0x5401;
const TIOCGWINSZ: u64 = 0x5413;
const FIONREAD: u64 = 0x541b;

/// A place in the file system: a folder and a path from there.
pub(super) struct Place {
    folder: Option<Rc<OwnedFd>>,
    pub(super) path: PathBuf,
}

impl Place {
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(CWD, |fd| fd.as_fd())
    }
}

impl Call<'_> {
    /// The place that a folder descriptor and a guest path name. Absolute paths
    /// are looked up below the sysroot first.
    pub(super) fn place(&mut self, folder: u64, va: u64) -> Result<Place, Errno> {
        use std::os::unix::ffi::OsStringExt as _;
        let text = self.view().read_text(va)?;
        let path = PathBuf::from(std::ffi::OsString::from_vec(text));
        if path.is_absolute() {
            let path = match path == Path::new("/proc/self/exe") {
                true => self.process().program.clone(),
                false => host_path(self.kernel.sysroot.as_deref(), &path),
            };
            return Ok(Place { folder: None, path });
        }
        let folder =
            if folder as i32 as u64 == AT_FDCWD { None } else { Some(self.host_file(folder)?) };
        Ok(Place { folder, path })
    }

    pub(super) fn openat(&mut self) -> Result<u64, Errno> {
        let [folder, path, flags, mode, ..] = self.args;
        let place = self.place(folder, path)?;
        let flags = OFlags::from_bits_retain(flags as u32);
        // Ours are closed by the host on exec; the guest's wish is kept apart.
        let opened = rustix::fs::openat(
            place.folder(),
            &place.path,
            flags | OFlags::CLOEXEC,
            Mode::from_bits_truncate(mode as u32),
        )?;
        let file = OpenFile { fd: Rc::new(opened), close_on_exec: flags.contains(OFlags::CLOEXEC) };
        Ok(self.process().install(file, 0))
    }

    pub(super) fn close(&mut self) -> Result<u64, Errno> {
        let index = self.args[0] as usize;
        let slot = self.process().files.get_mut(index).ok_or(Errno::BADF)?;
        slot.take().map(|_| 0).ok_or(Errno::BADF)
    }

    pub(super) fn dup(&mut self) -> Result<u64, Errno> {
        let [fd, ..] = self.args;
        let file = OpenFile { close_on_exec: false, ..self.process().file(fd)?.clone() };
        Ok(self.process().install(file, 0))
    }

    pub(super) fn dup3(&mut self) -> Result<u64, Errno> {
        let [old, new, flags, ..] = self.args;
        if old == new {
            return Err(Errno::INVAL);
        }
        let close_on_exec = OFlags::from_bits_retain(flags as u32).contains(OFlags::CLOEXEC);
        let file = OpenFile { close_on_exec, ..self.process().file(old)?.clone() };
        let index = usize::try_from(new).ok().filter(|&n| n < 1 << 16).ok_or(Errno::BADF)?;
        let files = &mut self.process().files;
        if files.len() <= index {
            files.resize(index + 1, None);
        }
        files[index] = Some(file);
        Ok(new)
    }

    pub(super) fn fcntl(&mut self) -> Result<u64, Errno> {
        let [fd, command, value, ..] = self.args;
        let file = self.process().file(fd)?.clone();
        match command {
            F_DUPFD | F_DUPFD_CLOEXEC => {
                let from =
                    usize::try_from(value).ok().filter(|&n| n < 1 << 16).ok_or(Errno::INVAL)?;
                let file = OpenFile { close_on_exec: command == F_DUPFD_CLOEXEC, ..file };
                Ok(self.process().install(file, from))
            }
            F_GETFD => Ok(file.close_on_exec.into()),
            F_SETFD => {
                if let Some(Some(file)) = self.process().files.get_mut(fd as usize) {
                    file.close_on_exec = value & 1 != 0;
                }
                Ok(0)
            }
            F_GETFL => Ok(rustix::fs::fcntl_getfl(&*file.fd)?.bits().into()),
            F_SETFL => {
                rustix::fs::fcntl_setfl(&*file.fd, OFlags::from_bits_retain(value as u32))?;
                Ok(0)
            }
            // Locks against other processes: nobody competes with a simulation.
            5..=7 | 36..=38 => Ok(0),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn pipe2(&mut self) -> Result<u64, Errno> {
        let [va, flags, ..] = self.args;
        let flags = OFlags::from_bits_retain(flags as u32);
        let mut pipe_flags = rustix::pipe::PipeFlags::CLOEXEC;
        if flags.contains(OFlags::NONBLOCK) {
            pipe_flags |= rustix::pipe::PipeFlags::NONBLOCK;
        }
        let (read, write) = rustix::pipe::pipe_with(pipe_flags)?;
        let close_on_exec = flags.contains(OFlags::CLOEXEC);
        let ends = [read, write].map(|fd| OpenFile { fd: Rc::new(fd), close_on_exec });
        let numbers = ends.map(|file| self.process().install(file, 0) as u32);
        self.view().write_u32(va, numbers[0])?;
        self.view().write_u32(va + 4, numbers[1])?;
        Ok(0)
    }

    pub(super) fn lseek(&mut self) -> Result<u64, Errno> {
        let [fd, offset, whence, ..] = self.args;
        let to = match whence {
            0 => SeekFrom::Start(offset),
            1 => SeekFrom::Current(offset as i64),
            2 => SeekFrom::End(offset as i64),
            3 => SeekFrom::Data(offset),
            4 => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        let file = self.host_file(fd)?;
        rustix::fs::seek(&*file, to)
    }

    pub(super) fn ioctl(&mut self) -> Result<u64, Errno> {
        let [fd, request, va, ..] = self.args;
        let file = self.host_file(fd)?;
        match request {
            TCGETS => {
                let t = rustix::termios::tcgetattr(&*file)?;
                let modes = [
                    t.input_modes.bits(),
                    t.output_modes.bits(),
                    t.control_modes.bits(),
                    t.local_modes.bits(),
                ];
                let bytes: Vec<u8> = modes.iter().flat_map(|m| m.to_le_bytes()).collect();
                self.view().write(va, &bytes)?;
                self.view().write(va + 16, &[0; 20])?;
                Ok(0)
            }
            TIOCGWINSZ => {
                let w = rustix::termios::tcgetwinsize(&*file)?;
                let sizes = [w.ws_row, w.ws_col, w.ws_xpixel, w.ws_ypixel];
                let bytes: Vec<u8> = sizes.iter().flat_map(|s| s.to_le_bytes()).collect();
                self.view().write(va, &bytes)?;
                Ok(0)
            }
            FIONREAD => {
                let waiting = rustix::io::ioctl_fionread(&*file)?;
                self.view().write_u32(va, u32::try_from(waiting).unwrap_or(u32::MAX))?;
                Ok(0)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    pub(super) fn fstat(&mut self) -> Result<u64, Errno> {
        let [fd, va, ..] = self.args;
        let file = self.host_file(fd)?;
        let stat = rustix::fs::fstat(&*file)?;
        self.view().write(va, &stat_bytes(&stat))?;
        Ok(0)
    }

    pub(super) fn newfstatat(&mut self) -> Result<u64, Errno> {
        let [folder, path, va, flags, ..] = self.args;
        let flags = AtFlags::from_bits_retain(flags as u32);
        let place = self.place(folder, path)?;
        let stat = match place.path.as_os_str().is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
            true => rustix::fs::fstat(place.folder())?,
            false => rustix::fs::statat(place.folder(), &place.path, flags)?,
        };
        self.view().write(va, &stat_bytes(&stat))?;
        Ok(0)
    }

    pub(super) fn statx(&mut self) -> Result<u64, Errno> {
        let [folder, path, flags, mask, va, _] = self.args;
        let place = self.place(folder, path)?;
        let flags = AtFlags::from_bits_retain(flags as u32);
        let s = rustix::fs::statx(
            place.folder(),
            &place.path,
            flags,
            StatxFlags::from_bits_retain(mask as u32),
        )?;
        let mut bytes = Vec::with_capacity(256);
        let mut word = |w: u32| bytes.extend_from_slice(&w.to_le_bytes());
        word(s.stx_mask);
        word(s.stx_blksize);
        let attributes = s.stx_attributes.bits();
        word(attributes as u32);
        word((attributes >> 32) as u32);
        word(s.stx_nlink);
        word(s.stx_uid);
        word(s.stx_gid);
        word(u32::from(s.stx_mode));
        for double in [s.stx_ino, s.stx_size, s.stx_blocks, s.stx_attributes_mask.bits()] {
            word(double as u32);
            word((double >> 32) as u32);
        }
        for time in [s.stx_atime, s.stx_btime, s.stx_ctime, s.stx_mtime] {
            word(time.tv_sec as u32);
            word((time.tv_sec >> 32) as u32);
            word(time.tv_nsec);
            word(0);
        }
        for number in [s.stx_rdev_major, s.stx_rdev_minor, s.stx_dev_major, s.stx_dev_minor] {
            word(number);
        }
        bytes.resize(256, 0);
        self.view().write(va, &bytes)?;
        Ok(0)
    }

    pub(super) fn ftruncate(&mut self) -> Result<u64, Errno> {
        let [fd, len, ..] = self.args;
        let file = self.host_file(fd)?;
        rustix::fs::ftruncate(&*file, len)?;
        Ok(0)
    }

    pub(super) fn truncate(&mut self) -> Result<u64, Errno> {
        let [path, len, ..] = self.args;
        let place = self.place(AT_FDCWD, path)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(place.folder(), &place.path, flags, Mode::empty())?;
        rustix::fs::ftruncate(file, len)?;
        Ok(0)
    }

    pub(super) fn fallocate(&mut self) -> Result<u64, Errno> {
        let [fd, mode, offset, len, ..] = self.args;
        let mode = rustix::fs::FallocateFlags::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        let file = self.host_file(fd)?;
        rustix::fs::fallocate(&*file, mode, offset, len)?;
        Ok(0)
    }

    pub(super) fn memfd_create(&mut self) -> Result<u64, Errno> {
        let [name, flags, ..] = self.args;
        let name = self.view().read_text(name)?;
        let host = rustix::fs::MemfdFlags::CLOEXEC;
        let fd = rustix::fs::memfd_create(name, host)?;
        let file = OpenFile { fd: Rc::new(fd), close_on_exec: flags & 1 != 0 };
        Ok(self.process().install(file, 0))
    }

    /// Closes all descriptors of a range, or marks them to be closed at exec.
    pub(super) fn close_range(&mut self) -> Result<u64, Errno> {
        const MARK: u64 = 4;
        let [first, last, flags, ..] = self.args;
        if first > last {
            return Err(Errno::INVAL);
        }
        let files = &mut self.process().files;
        let end = usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1).min(files.len());
        let start = usize::try_from(first).unwrap_or(usize::MAX).min(end);
        for slot in &mut files[start..end] {
            match slot {
                Some(file) if flags & MARK != 0 => file.close_on_exec = true,
                _ => *slot = None,
            }
        }
        Ok(0)
    }

    pub(super) fn fchmod(&mut self) -> Result<u64, Errno> {
        let [fd, mode, ..] = self.args;
        let file = self.host_file(fd)?;
        rustix::fs::fchmod(&*file, Mode::from_bits_truncate(mode as u32))?;
        Ok(0)
    }

    /// Durability is the host's business.
    pub(super) fn sync(&mut self) -> Result<u64, Errno> {
        Ok(0)
    }
}

/// `struct stat` of the generic Linux ABI.
fn stat_bytes(s: &Stat) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    let mut put = |b: &[u8]| bytes.extend_from_slice(b);
    put(&s.st_dev.to_le_bytes());
    put(&s.st_ino.to_le_bytes());
    put(&s.st_mode.to_le_bytes());
    put(&(s.st_nlink as u32).to_le_bytes());
    put(&s.st_uid.to_le_bytes());
    put(&s.st_gid.to_le_bytes());
    put(&s.st_rdev.to_le_bytes());
    put(&[0; 8]);
    put(&s.st_size.to_le_bytes());
    put(&(s.st_blksize as i32).to_le_bytes());
    put(&[0; 4]);
    put(&s.st_blocks.to_le_bytes());
    for (seconds, nanoseconds) in [
        (s.st_atime, s.st_atime_nsec),
        (s.st_mtime, s.st_mtime_nsec),
        (s.st_ctime, s.st_ctime_nsec),
    ] {
        put(&seconds.to_le_bytes());
        put(&nanoseconds.to_le_bytes());
    }
    bytes.resize(128, 0);
    bytes
}
