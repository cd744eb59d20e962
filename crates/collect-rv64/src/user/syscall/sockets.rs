//! Sockets are the host's. Calls that would wait make the thread wait instead,
//! so that the guest thread at the other end can run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::Rc;

use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};

use super::address::{Address, Known};
use super::{Answer, Call};
use crate::user::process::OpenFile;
use crate::user::signal::{Info, SIGPIPE};

const SOCK_NONBLOCK: u64 = 0x800;
const SOCK_CLOEXEC: u64 = 0x8_0000;
const MSG_PEEK: u64 = 2;
const MSG_TRUNC: u64 = 0x20;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_NOSIGNAL: u64 = 0x4000;
const SOL_SOCKET: u64 = 1;
const IPPROTO_TCP: u64 = 6;
/// Bytes moved at once.
const MOST: u64 = 1 << 20;

fn kind(raw: u64) -> (SocketType, SocketFlags, bool) {
    let mut flags = SocketFlags::CLOEXEC;
    if raw & SOCK_NONBLOCK != 0 {
        flags |= SocketFlags::NONBLOCK;
    }
    (SocketType::from_raw(raw as u32 & 0xf), flags, raw & SOCK_CLOEXEC != 0)
}

impl Call<'_> {
    fn install_socket(&mut self, fd: OwnedFd, close_on_exec: bool) -> u64 {
        self.process().install(OpenFile { fd: Rc::new(fd), close_on_exec }, 0)
    }

    pub(super) fn socket(&mut self) -> Result<u64, Errno> {
        let [family, raw, protocol, ..] = self.args;
        let (kind, flags, close) = kind(raw);
        let family = AddressFamily::from_raw(family as u16);
        if !matches!(family, AddressFamily::UNIX | AddressFamily::INET | AddressFamily::INET6) {
            return Err(Errno::AFNOSUPPORT);
        }
        let protocol = std::num::NonZeroU32::new(protocol as u32).map(Protocol::from_raw);
        let fd = rustix::net::socket_with(family, kind, flags, protocol)?;
        Ok(self.install_socket(fd, close))
    }

    pub(super) fn socketpair(&mut self) -> Result<u64, Errno> {
        let [family, raw, _, va, ..] = self.args;
        let (kind, flags, close) = kind(raw);
        let family = AddressFamily::from_raw(family as u16);
        let (a, b) = rustix::net::socketpair(family, kind, flags, None)?;
        let numbers = [a, b].map(|fd| self.install_socket(fd, close) as u32);
        self.view().write_u32(va, numbers[0])?;
        self.view().write_u32(va + 4, numbers[1])?;
        Ok(0)
    }

    pub(super) fn bind(&mut self) -> Result<u64, Errno> {
        let [fd, va, len, ..] = self.args;
        let address = Address::read(&mut self.view(), va, len)?;
        let file = self.host_file(fd)?;
        match address {
            Address::V4(a) => rustix::net::bind(&*file, &a)?,
            Address::V6(a) => rustix::net::bind(&*file, &a)?,
            Address::Unix(a) => rustix::net::bind(&*file, &a)?,
        }
        Ok(0)
    }

    pub(super) fn connect(&mut self) -> Result<u64, Errno> {
        let [fd, va, len, ..] = self.args;
        let address = Address::read(&mut self.view(), va, len)?;
        let file = self.host_file(fd)?;
        match address {
            Address::V4(a) => rustix::net::connect(&*file, &a)?,
            Address::V6(a) => rustix::net::connect(&*file, &a)?,
            Address::Unix(a) => rustix::net::connect(&*file, &a)?,
        }
        Ok(0)
    }

    pub(super) fn listen(&mut self) -> Result<u64, Errno> {
        let [fd, backlog, ..] = self.args;
        let file = self.host_file(fd)?;
        rustix::net::listen(&*file, backlog as i32)?;
        Ok(0)
    }

    /// `accept`, and with its flags `accept4`.
    pub(super) fn accept(&mut self, raw: u64) -> Result<Answer, Errno> {
        let [fd, va, len_at, ..] = self.args;
        let file = self.host_file(fd)?;
        if let Some(wait) = self.await_file(&file, PollFlags::IN)? {
            return Ok(wait);
        }
        let (_, flags, close) = kind(raw);
        let (accepted, from) = rustix::net::acceptfrom_with(&*file, flags)?;
        let number = self.install_socket(accepted, close);
        if let Some(from) = from.filter(|_| va != 0) {
            self.write_address(&Known::from(from), va, len_at)?;
        }
        Ok(Answer::Value(number))
    }

    /// Writes an address, as much as there is room for, and its length.
    fn write_address(&mut self, address: &Known, va: u64, len_at: u64) -> Result<(), Errno> {
        let bytes = address.bytes();
        let room = self.view().read_u32(len_at)? as usize;
        self.view().write(va, &bytes[..bytes.len().min(room)])?;
        self.view().write_u32(len_at, bytes.len() as u32)
    }

    /// The address of this end, or of the other.
    pub(super) fn socket_name(&mut self, peer: Peer) -> Result<u64, Errno> {
        let [fd, va, len_at, ..] = self.args;
        let file = self.host_file(fd)?;
        let name = match peer {
            Peer::Own => rustix::net::getsockname(&*file)?,
            Peer::Other => rustix::net::getpeername(&*file)?.ok_or(Errno::NOTCONN)?,
        };
        self.write_address(&Known::from(name), va, len_at)?;
        Ok(0)
    }

    pub(super) fn shutdown(&mut self) -> Result<u64, Errno> {
        let [fd, how, ..] = self.args;
        let how = match how {
            0 => Shutdown::Read,
            1 => Shutdown::Write,
            2 => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        let file = self.host_file(fd)?;
        rustix::net::shutdown(&*file, how)?;
        Ok(0)
    }

    pub(super) fn sendto(&mut self) -> Result<Answer, Errno> {
        let [fd, va, len, flags, to, to_len] = self.args;
        let mut bytes = vec![0; len.min(MOST) as usize];
        self.view().read(va, &mut bytes)?;
        self.send(fd, &bytes, flags, (to, to_len))
    }

    fn send(
        &mut self,
        fd: u64,
        bytes: &[u8],
        flags: u64,
        (to, to_len): (u64, u64),
    ) -> Result<Answer, Errno> {
        let file = self.host_file(fd)?;
        if flags & MSG_DONTWAIT == 0
            && let Some(wait) = self.await_file(&file, PollFlags::OUT)?
        {
            return Ok(wait);
        }
        let host = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = if to == 0 {
            rustix::net::send(&*file, bytes, host)
        } else {
            match Address::read(&mut self.view(), to, to_len)? {
                Address::V4(a) => rustix::net::sendto(&*file, bytes, host, &a),
                Address::V6(a) => rustix::net::sendto(&*file, bytes, host, &a),
                Address::Unix(a) => rustix::net::sendto(&*file, bytes, host, &a),
            }
        };
        if sent == Err(Errno::PIPE) && flags & MSG_NOSIGNAL == 0 {
            self.kernel.signal_thread(self.thread, Info::plain(SIGPIPE));
        }
        Ok(Answer::Value(sent? as u64))
    }

    pub(super) fn recvfrom(&mut self) -> Result<Answer, Errno> {
        let [fd, va, len, flags, from, from_len] = self.args;
        let (received, bytes, name) = match self.receive(fd, len, flags)? {
            Ok(received) => received,
            Err(wait) => return Ok(wait),
        };
        self.view().write(va, &bytes)?;
        if let Some(name) = name.filter(|_| from != 0) {
            self.write_address(&name, from, from_len)?;
        }
        Ok(Answer::Value(received))
    }

    /// What arrived and from whom, or the wait for it.
    #[allow(clippy::type_complexity, reason = "a wait is not an error")]
    fn receive(
        &mut self,
        fd: u64,
        len: u64,
        flags: u64,
    ) -> Result<Result<(u64, Vec<u8>, Option<Known>), Answer>, Errno> {
        let file = self.host_file(fd)?;
        if flags & MSG_DONTWAIT == 0
            && let Some(wait) = self.await_file(&file, PollFlags::IN)?
        {
            return Ok(Err(wait));
        }
        let mut host = RecvFlags::DONTWAIT;
        if flags & MSG_PEEK != 0 {
            host |= RecvFlags::PEEK;
        }
        if flags & MSG_TRUNC != 0 {
            host |= RecvFlags::TRUNC;
        }
        let mut bytes = vec![0; len.min(MOST) as usize];
        let (got, length, name) = rustix::net::recvfrom(&*file, &mut bytes[..], host)?;
        bytes.truncate(got);
        Ok(Ok((length.max(got) as u64, bytes, name.map(Known::from))))
    }

    /// A message: bytes, perhaps an address, perhaps files.
    pub(super) fn sendmsg(&mut self) -> Result<Answer, Errno> {
        let [fd, va, flags, ..] = self.args;
        let mut view = self.view();
        let (name, name_len) = (view.read_u64(va)?, u64::from(view.read_u32(va + 8)?));
        let (parts, count) = (view.read_u64(va + 16)?, view.read_u64(va + 24)?);
        let (control, control_len) = (view.read_u64(va + 32)?, view.read_u64(va + 40)?);
        let files = self.files_to_send(control, control_len)?;
        let mut all = Vec::new();
        for (at, len) in self.places(parts, count)? {
            let mut bytes = vec![0; len.min(MOST - all.len() as u64) as usize];
            self.view().read(at, &mut bytes)?;
            all.extend(bytes);
        }
        if files.is_empty() {
            return self.send(fd, &all, flags, (name, name_len));
        }
        self.send_files((fd, flags), &all, &files, (name, name_len))
    }

    pub(super) fn recvmsg(&mut self) -> Result<Answer, Errno> {
        let [fd, va, flags, ..] = self.args;
        let mut view = self.view();
        let (name, parts, count) =
            (view.read_u64(va)?, view.read_u64(va + 16)?, view.read_u64(va + 24)?);
        let places = self.places(parts, count)?;
        let room = places.iter().fold(0u64, |sum, (_, len)| sum.saturating_add(*len));
        // Files come over local sockets, and it is said if there is no room for them.
        let socket = self.host_file(fd)?;
        let local = sockopt::socket_domain(&*socket)? == AddressFamily::UNIX;
        if (local || self.view().read_u64(va + 40)? > 0) && flags & MSG_TRUNC == 0 {
            let mut received = match self.receive_files((fd, flags), room.min(MOST) as usize)? {
                Ok(received) => received,
                Err(wait) => return Ok(wait),
            };
            let bytes = std::mem::take(&mut received.bytes);
            let (length, from) = (received.length, received.name.take());
            self.write_message(va, &places, &bytes, from.filter(|_| name != 0))?;
            self.open_received(va, received, flags)?;
            return Ok(Answer::Value(length));
        }
        let (received, bytes, from) = match self.receive(fd, room, flags)? {
            Ok(received) => received,
            Err(wait) => return Ok(wait),
        };
        self.write_message(va, &places, &bytes, from.filter(|_| name != 0))?;
        // No control messages, no flags.
        self.view().write_u64(va + 40, 0)?;
        self.view().write_u32(va + 48, 0)?;
        Ok(Answer::Value(received))
    }

    /// Puts the bytes of a message whose head is at `va` where they belong, and
    /// tells whose it is.
    fn write_message(
        &mut self,
        va: u64,
        places: &[(u64, u64)],
        bytes: &[u8],
        from: Option<Known>,
    ) -> Result<(), Errno> {
        let mut rest = bytes;
        for &(at, len) in places {
            let (now, later) = rest.split_at(rest.len().min(len as usize));
            self.view().write(at, now)?;
            rest = later;
        }
        match from {
            Some(from) => {
                let name = self.view().read_u64(va)?;
                self.write_address(&from, name, va + 8)
            }
            None => self.view().write_u32(va + 8, 0),
        }
    }

    pub(super) fn setsockopt(&mut self) -> Result<u64, Errno> {
        let [fd, level, name, va, len, _] = self.args;
        let file = self.host_file(fd)?;
        let value = if len >= 4 { self.view().read_u32(va)? } else { 0 };
        let on = value != 0;
        match (level, name) {
            (SOL_SOCKET, 2) => sockopt::set_socket_reuseaddr(&*file, on)?,
            (SOL_SOCKET, 6) => sockopt::set_socket_broadcast(&*file, on)?,
            (SOL_SOCKET, 7) => sockopt::set_socket_send_buffer_size(&*file, value as usize)?,
            (SOL_SOCKET, 8) => sockopt::set_socket_recv_buffer_size(&*file, value as usize)?,
            (SOL_SOCKET, 9) => sockopt::set_socket_keepalive(&*file, on)?,
            (SOL_SOCKET, 15) => sockopt::set_socket_reuseport(&*file, on)?,
            (IPPROTO_TCP, 1) => sockopt::set_tcp_nodelay(&*file, on)?,
            (41, 26) => sockopt::set_ipv6_v6only(&*file, on)?,
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(0)
    }

    pub(super) fn getsockopt(&mut self) -> Result<u64, Errno> {
        let [fd, level, name, va, len_at, _] = self.args;
        let file = self.host_file(fd)?;
        let value = match (level, name) {
            (SOL_SOCKET, 2) => sockopt::socket_reuseaddr(&*file)?.into(),
            (SOL_SOCKET, 3) => sockopt::socket_type(&*file)?.as_raw(),
            (SOL_SOCKET, 4) => {
                sockopt::socket_error(&*file)?.err().map_or(0, |e| e.raw_os_error() as u32)
            }
            (SOL_SOCKET, 6) => sockopt::socket_broadcast(&*file)?.into(),
            (SOL_SOCKET, 7) => sockopt::socket_send_buffer_size(&*file)? as u32,
            (SOL_SOCKET, 8) => sockopt::socket_recv_buffer_size(&*file)? as u32,
            (SOL_SOCKET, 9) => sockopt::socket_keepalive(&*file)?.into(),
            (SOL_SOCKET, 30) => sockopt::socket_acceptconn(&*file)?.into(),
            (SOL_SOCKET, 39) => sockopt::socket_domain(&*file)?.as_raw().into(),
            (IPPROTO_TCP, 1) => sockopt::tcp_nodelay(&*file)?.into(),
            _ => return Err(Errno::NOPROTOOPT),
        };
        if self.view().read_u32(len_at)? < 4 {
            return Err(Errno::INVAL);
        }
        self.view().write_u32(va, value)?;
        self.view().write_u32(len_at, 4)?;
        Ok(0)
    }
}

/// Whose address is asked for.
#[derive(Clone, Copy)]
pub(super) enum Peer {
    Own,
    Other,
}
