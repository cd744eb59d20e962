//! Control messages of sockets: open files that are handed over (`SCM_RIGHTS`).
//! The host passes its own descriptors on; the guest sees numbers of its own.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::rc::Rc;

use rustix::event::PollFlags;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::address::{Address, Known};
use super::{Answer, Call};
use crate::user::process::OpenFile;
use crate::user::signal::{Info, SIGPIPE};

const SOL_SOCKET: u32 = 1;
const SCM_RIGHTS: u32 = 1;
/// Bytes of a message's head: its length, level and sort.
const HEAD: u64 = 16;
/// Linux hands over no more files at once.
const MOST_FILES: usize = 253;
const MSG_PEEK: u64 = 2;
const MSG_CTRUNC: u32 = 8;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_NOSIGNAL: u64 = 0x4000;
const MSG_CMSG_CLOEXEC: u64 = 0x4000_0000;
/// Room for the host's form of the largest message.
const ROOM: usize = 4 * MOST_FILES + 64;

/// What came with files, or without.
pub(super) struct Received {
    pub(super) length: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) name: Option<Known>,
    files: Vec<OwnedFd>,
    flags: ReturnFlags,
}

impl Call<'_> {
    /// The files that control messages of a guest name.
    pub(super) fn files_to_send(&mut self, va: u64, len: u64) -> Result<Vec<Rc<OwnedFd>>, Errno> {
        let (mut at, mut files) = (0, Vec::new());
        while len.saturating_sub(at) >= HEAD {
            let mut view = self.view();
            let size = view.read_u64(va + at)?;
            let sort = (view.read_u32(va + at + 8)?, view.read_u32(va + at + 12)?);
            if size < HEAD || size > len - at {
                return Err(Errno::INVAL);
            }
            if sort != (SOL_SOCKET, SCM_RIGHTS) {
                return Err(Errno::OPNOTSUPP);
            }
            for n in 0..(size - HEAD) / 4 {
                let fd = self.view().read_u32(va + at + HEAD + 4 * n)?;
                files.push(self.host_file(fd.into())?);
            }
            at += size.next_multiple_of(8);
        }
        if files.len() > MOST_FILES { Err(Errno::INVAL) } else { Ok(files) }
    }

    /// Sends bytes together with files.
    pub(super) fn send_files(
        &mut self,
        (fd, flags): (u64, u64),
        bytes: &[u8],
        files: &[Rc<OwnedFd>],
        (to, to_len): (u64, u64),
    ) -> Result<Answer, Errno> {
        let socket = self.host_file(fd)?;
        if flags & MSG_DONTWAIT == 0
            && let Some(wait) = self.await_file(&socket, PollFlags::OUT)?
        {
            return Ok(wait);
        }
        let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(Errno::INVAL);
        }
        let host = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let parts = [IoSlice::new(bytes)];
        let sent = if to == 0 {
            rustix::net::sendmsg(&*socket, &parts, &mut control, host)
        } else {
            match Address::read(&mut self.view(), to, to_len)? {
                Address::Unix(a) => {
                    rustix::net::sendmsg_addr(&*socket, &a, &parts, &mut control, host)
                }
                Address::V4(_) | Address::V6(_) => Err(Errno::INVAL),
            }
        };
        if sent == Err(Errno::PIPE) && flags & MSG_NOSIGNAL == 0 {
            self.kernel.signal_thread(self.thread, Info::plain(SIGPIPE));
        }
        Ok(Answer::Value(sent? as u64))
    }

    /// What arrived, with the files that came along, or the wait for it.
    pub(super) fn receive_files(
        &mut self,
        (fd, flags): (u64, u64),
        len: usize,
    ) -> Result<Result<Received, Answer>, Errno> {
        let socket = self.host_file(fd)?;
        if flags & MSG_DONTWAIT == 0
            && let Some(wait) = self.await_file(&socket, PollFlags::IN)?
        {
            return Ok(Err(wait));
        }
        let mut host = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        if flags & MSG_PEEK != 0 {
            host |= RecvFlags::PEEK;
        }
        let mut bytes = vec![0; len];
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&*socket, &mut parts, &mut control, host)?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                files.extend(came);
            }
        }
        bytes.truncate(got.bytes);
        let name = got.address.map(Known::from);
        Ok(Ok(Received { length: got.bytes as u64, bytes, name, files, flags: got.flags }))
    }

    /// Opens files that came with a message whose head is at `va`, and tells their
    /// numbers, as many as the guest has room for; the others are closed.
    pub(super) fn open_received(
        &mut self,
        va: u64,
        received: Received,
        flags: u64,
    ) -> Result<(), Errno> {
        let (at, room) = (self.view().read_u64(va + 32)?, self.view().read_u64(va + 40)?);
        let fits = (room.saturating_sub(HEAD) / 4) as usize;
        let cut = received.files.len() > fits || received.flags.contains(ReturnFlags::CTRUNC);
        let close_on_exec = flags & MSG_CMSG_CLOEXEC != 0;
        let mut written = 0;
        let count = received.files.len().min(fits);
        for (n, fd) in received.files.into_iter().take(fits).enumerate() {
            let number = self.process().install(OpenFile { fd: Rc::new(fd), close_on_exec }, 0);
            self.view().write_u32(at + HEAD + 4 * n as u64, number as u32)?;
        }
        if count > 0 {
            let size = HEAD + 4 * count as u64;
            self.view().write_u64(at, size)?;
            self.view().write_u32(at + 8, SOL_SOCKET)?;
            self.view().write_u32(at + 12, SCM_RIGHTS)?;
            written = size.next_multiple_of(8).min(room);
        }
        self.view().write_u64(va + 40, written)?;
        self.view().write_u32(va + 48, if cut { MSG_CTRUNC } else { 0 })
    }
}
