//! Reading and writing open files. A file that is not ready makes the thread
//! wait, so that other guest threads, who may be at its other end, can run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

use super::{Answer, Call};
use crate::user::process::Wait;
use crate::user::signal::{Info, SIGPIPE};

/// Bytes moved at once; longer transfers come back short, as they may.
const MOST: usize = 1 << 20;

/// What a pipe that can be written to takes without waiting.
const PIECE: usize = 4096;

/// Whether a file is a pipe or a socket.
fn is_channel(fd: &OwnedFd) -> Result<bool, Errno> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    Ok(matches!(kind, FileType::Fifo | FileType::Socket))
}

/// Whether a file can be read or written now without waiting.
pub(super) fn ready(fd: &OwnedFd, flags: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd, flags)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut fds, Some(&now)), Ok(0))
}

/// Whether a file is one of the host's random numbers, which would differ in every run.
fn is_random(file: &OwnedFd) -> Result<bool, Errno> {
    const MEMORY_DEVICES: u32 = 1;
    const RANDOM: u32 = 8;
    const URANDOM: u32 = 9;
    let stat = rustix::fs::fstat(file)?;
    let device = FileType::from_raw_mode(stat.st_mode).is_char_device();
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    Ok(device && major == MEMORY_DEVICES && matches!(minor, RANDOM | URANDOM))
}

impl Call<'_> {
    pub(super) fn host_file(&mut self, fd: u64) -> Result<Rc<OwnedFd>, Errno> {
        Ok(Rc::clone(&self.process().file(fd)?.fd))
    }

    /// Ready, or what to do instead.
    pub(super) fn await_file(
        &self,
        file: &OwnedFd,
        flags: PollFlags,
    ) -> Result<Option<Answer>, Errno> {
        if ready(file, flags) {
            return Ok(None);
        }
        let status = rustix::fs::fcntl_getfl(file)?;
        if status.contains(rustix::fs::OFlags::NONBLOCK) {
            return Err(Errno::AGAIN);
        }
        let write = flags.contains(PollFlags::OUT);
        Ok(Some(Answer::Wait(Wait::File { fd: file.as_raw_fd(), write })))
    }

    /// Reads into several places, of which short reads leave the rest alone.
    fn read_into(
        &mut self,
        fd: u64,
        places: &[(u64, u64)],
        at: Option<u64>,
    ) -> Result<Answer, Errno> {
        let file = self.host_file(fd)?;
        if let Some(place) = self.signal_file(&file).filter(|_| at.is_none()) {
            return self.read_signals(&file, place, places);
        }
        if at.is_none()
            && let Some(wait) = self.await_file(&file, PollFlags::IN)?
        {
            return Ok(wait);
        }
        let random = is_random(&file)?;
        let mut total = 0;
        for &(va, len) in places {
            let mut buffer = vec![0; (len as usize).min(MOST)];
            let got = match at {
                Some(offset) => rustix::io::pread(&*file, &mut buffer[..], offset + total)?,
                None => rustix::io::read(&*file, &mut buffer[..])?,
            };
            if random {
                self.random(&mut buffer[..got]);
            }
            self.view().write(va, &buffer[..got])?;
            total += got as u64;
            if (got as u64) < len {
                break;
            }
        }
        Ok(Answer::Value(total))
    }

    fn write_from(
        &mut self,
        fd: u64,
        places: &[(u64, u64)],
        at: Option<u64>,
    ) -> Result<Answer, Errno> {
        let file = self.host_file(fd)?;
        if at.is_none() && is_channel(&file)? {
            return self.write_to_channel(&file, places);
        }
        if at.is_none()
            && let Some(wait) = self.await_file(&file, PollFlags::OUT)?
        {
            return Ok(wait);
        }
        let mut total = 0;
        for &(va, len) in places {
            let mut buffer = vec![0; (len as usize).min(MOST)];
            self.view().read(va, &mut buffer)?;
            let put = match at {
                Some(offset) => rustix::io::pwrite(&*file, &buffer, offset + total),
                None => rustix::io::write(&*file, &buffer),
            };
            if put == Err(Errno::PIPE) {
                self.kernel.signal_thread(self.thread, Info::plain(SIGPIPE));
            }
            let put = put? as u64;
            total += put;
            if put < len {
                break;
            }
        }
        Ok(Answer::Value(total))
    }

    /// Writes to a pipe or socket, piece by piece: whoever reads may be a thread
    /// of the guest, which must get its turn when the channel is full.
    fn write_to_channel(&mut self, file: &OwnedFd, places: &[(u64, u64)]) -> Result<Answer, Errno> {
        let mut bytes = Vec::new();
        for &(va, len) in places {
            let mut part = vec![0; (len as usize).min(MOST - bytes.len())];
            self.view().read(va, &mut part)?;
            bytes.extend(part);
        }
        let mut done = std::mem::take(&mut self.kernel.threads[self.thread].transferred) as usize;
        loop {
            match self.await_file(file, PollFlags::OUT) {
                Ok(None) => {}
                Ok(Some(wait)) => {
                    self.kernel.threads[self.thread].transferred = done as u64;
                    return Ok(wait);
                }
                Err(Errno::AGAIN) if done > 0 => break,
                Err(e) => return Err(e),
            }
            let piece = &bytes[done..bytes.len().min(done + PIECE)];
            match rustix::io::write(file, piece) {
                Ok(put) => done += put,
                Err(Errno::AGAIN) if done > 0 => break,
                Err(e) => {
                    if e == Errno::PIPE {
                        self.kernel.signal_thread(self.thread, Info::plain(SIGPIPE));
                    }
                    return Err(e);
                }
            }
            if done >= bytes.len() {
                break;
            }
        }
        Ok(Answer::Value(done as u64))
    }

    /// The places of an `iovec` array.
    pub(super) fn places(&mut self, va: u64, count: u64) -> Result<Vec<(u64, u64)>, Errno> {
        if count > 1024 {
            return Err(Errno::INVAL);
        }
        let mut view = self.view();
        (0..count)
            .map(|n| {
                Ok((
                    view.read_u64(va.wrapping_add(16 * n))?,
                    view.read_u64(va.wrapping_add(16 * n + 8))?,
                ))
            })
            .collect()
    }

    pub(super) fn read(&mut self) -> Result<Answer, Errno> {
        let [fd, va, len, ..] = self.args;
        self.read_into(fd, &[(va, len)], None)
    }

    pub(super) fn write(&mut self) -> Result<Answer, Errno> {
        let [fd, va, len, ..] = self.args;
        self.write_from(fd, &[(va, len)], None)
    }

    pub(super) fn readv(&mut self) -> Result<Answer, Errno> {
        let [fd, va, count, ..] = self.args;
        let places = self.places(va, count)?;
        self.read_into(fd, &places, None)
    }

    pub(super) fn writev(&mut self) -> Result<Answer, Errno> {
        let [fd, va, count, ..] = self.args;
        let places = self.places(va, count)?;
        self.write_from(fd, &places, None)
    }

    pub(super) fn preadv(&mut self) -> Result<Answer, Errno> {
        let [fd, va, count, offset, ..] = self.args;
        let places = self.places(va, count)?;
        self.read_into(fd, &places, Some(offset))
    }

    pub(super) fn pwritev(&mut self) -> Result<Answer, Errno> {
        let [fd, va, count, offset, ..] = self.args;
        let places = self.places(va, count)?;
        self.write_from(fd, &places, Some(offset))
    }

    pub(super) fn pread64(&mut self) -> Result<Answer, Errno> {
        let [fd, va, len, offset, ..] = self.args;
        self.read_into(fd, &[(va, len)], Some(offset))
    }

    pub(super) fn pwrite64(&mut self) -> Result<Answer, Errno> {
        let [fd, va, len, offset, ..] = self.args;
        self.write_from(fd, &[(va, len)], Some(offset))
    }

    pub(super) fn sendfile(&mut self) -> Result<u64, Errno> {
        let [to, from, offset_at, count, ..] = self.args;
        let (to, from) = (self.host_file(to)?, self.host_file(from)?);
        let count = (count as usize).min(MOST);
        if offset_at == 0 {
            return Ok(rustix::fs::sendfile(&*to, &*from, None, count)? as u64);
        }
        let mut offset = self.view().read_u64(offset_at)?;
        let moved = rustix::fs::sendfile(&*to, &*from, Some(&mut offset), count)?;
        self.view().write_u64(offset_at, offset)?;
        Ok(moved as u64)
    }

    /// An offset that a call reads and moves on; the file's own if none.
    fn offset_at(&mut self, va: u64) -> Result<Option<u64>, Errno> {
        if va == 0 { Ok(None) } else { self.view().read_u64(va).map(Some) }
    }

    fn move_offset(&mut self, va: u64, offset: Option<u64>) -> Result<(), Errno> {
        offset.map_or(Ok(()), |offset| self.view().write_u64(va, offset))
    }

    pub(super) fn copy_file_range(&mut self) -> Result<u64, Errno> {
        let [from, from_at, to, to_at, count, flags] = self.args;
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let (source, target) = (self.host_file(from)?, self.host_file(to)?);
        let (mut input, mut output) = (self.offset_at(from_at)?, self.offset_at(to_at)?);
        let count = (count as usize).min(MOST);
        let moved = rustix::fs::copy_file_range(
            &*source,
            input.as_mut(),
            &*target,
            output.as_mut(),
            count,
        )?;
        self.move_offset(from_at, input)?;
        self.move_offset(to_at, output)?;
        Ok(moved as u64)
    }

    pub(super) fn splice(&mut self) -> Result<Answer, Errno> {
        let [from, from_at, to, to_at, count, flags] = self.args;
        let (source, target) = (self.host_file(from)?, self.host_file(to)?);
        for (file, ready) in [(&source, PollFlags::IN), (&target, PollFlags::OUT)] {
            if let Some(wait) = self.await_file(file, ready)? {
                return Ok(wait);
            }
        }
        let (mut input, mut output) = (self.offset_at(from_at)?, self.offset_at(to_at)?);
        // Both are ready: nothing waits on the host.
        let flags = SpliceFlags::from_bits_truncate(flags as u32) | SpliceFlags::NONBLOCK;
        let count = (count as usize).min(MOST);
        let (source, target) = (&*source, &*target);
        let moved =
            rustix::pipe::splice(source, input.as_mut(), target, output.as_mut(), count, flags)?;
        self.move_offset(from_at, input)?;
        self.move_offset(to_at, output)?;
        Ok(Answer::Value(moved as u64))
    }

    pub(super) fn tee(&mut self) -> Result<u64, Errno> {
        let [from, to, count, flags, ..] = self.args;
        let (source, target) = (self.host_file(from)?, self.host_file(to)?);
        let flags = SpliceFlags::from_bits_truncate(flags as u32) | SpliceFlags::NONBLOCK;
        Ok(rustix::pipe::tee(&*source, &*target, (count as usize).min(MOST), flags)? as u64)
    }
}
