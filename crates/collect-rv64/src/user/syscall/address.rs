//! Socket addresses as the generic Linux interface lays them out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketAddrUnix};

use crate::user::space::View;

const UNIX: u16 = 1;
const INET: u16 = 2;
const INET6: u16 = 10;

/// An address that a guest names.
pub(super) enum Address {
    V4(SocketAddrV4),
    V6(SocketAddrV6),
    Unix(SocketAddrUnix),
}

impl Address {
    pub(super) fn read(view: &mut View<'_>, va: u64, len: u64) -> Result<Self, Errno> {
        if !(2..=128).contains(&len) {
            return Err(Errno::INVAL);
        }
        let mut bytes = vec![0; len as usize];
        view.read(va, &mut bytes)?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, Errno> {
        let (family, rest) = bytes.split_first_chunk::<2>().ok_or(Errno::INVAL)?;
        let word = |at: usize| -> Result<[u8; 4], Errno> {
            rest.get(at..at + 4).and_then(|b| b.first_chunk()).copied().ok_or(Errno::INVAL)
        };
        let port = || -> Result<u16, Errno> {
            rest.first_chunk().copied().map(u16::from_be_bytes).ok_or(Errno::INVAL)
        };
        match u16::from_le_bytes(*family) {
            UNIX => match rest.split_first() {
                Some((0, name)) => SocketAddrUnix::new_abstract_name(name).map(Self::Unix),
                _ => {
                    let path = rest.split(|b| *b == 0).next().unwrap_or_default();
                    SocketAddrUnix::new(path).map(Self::Unix)
                }
            },
            INET => Ok(Self::V4(SocketAddrV4::new(Ipv4Addr::from(word(2)?), port()?))),
            INET6 => {
                let ip = rest.get(6..22).and_then(|b| b.first_chunk::<16>()).ok_or(Errno::INVAL)?;
                let flow = u32::from_be_bytes(word(2)?);
                let scope = u32::from_le_bytes(word(22)?);
                Ok(Self::V6(SocketAddrV6::new(Ipv6Addr::from(*ip), port()?, flow, scope)))
            }
            _ => Err(Errno::AFNOSUPPORT),
        }
    }
}

/// An address that the host names.
pub(super) struct Known(SocketAddrAny);

impl From<SocketAddrAny> for Known {
    fn from(any: SocketAddrAny) -> Self {
        Self(any)
    }
}

impl Known {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let any = &self.0;
        let mut bytes = any.address_family().as_raw().to_le_bytes().to_vec();
        if let Ok(a) = SocketAddrV4::try_from(any.clone()) {
            bytes.extend(a.port().to_be_bytes());
            bytes.extend(a.ip().octets());
            bytes.resize(16, 0);
        } else if let Ok(a) = SocketAddrV6::try_from(any.clone()) {
            bytes.extend(a.port().to_be_bytes());
            bytes.extend(a.flowinfo().to_be_bytes());
            bytes.extend(a.ip().octets());
            bytes.extend(a.scope_id().to_le_bytes());
        } else if let Ok(a) = SocketAddrUnix::try_from(any.clone()) {
            if let Some(name) = a.abstract_name() {
                bytes.push(0);
                bytes.extend(name);
            } else if let Some(path) = a.path_bytes() {
                bytes.extend(path);
                bytes.push(0);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_kernels_layout() {
        let v4 = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let Ok(Address::V4(a)) = Address::parse(&v4) else { panic!("an internet address") };
        assert_eq!(a.to_string(), "127.0.0.1:8080");
        assert_eq!(Known(a.into()).bytes(), v4);
        let mut v6 = vec![10, 0, 0, 80, 0, 0, 0, 0];
        v6.extend([0; 15]);
        v6.extend([1, 3, 0, 0, 0]);
        let Ok(Address::V6(a)) = Address::parse(&v6) else { panic!("an address of version 6") };
        assert_eq!((a.ip().is_loopback(), a.port(), a.scope_id()), (true, 80, 3));
        assert_eq!(Known(a.into()).bytes(), v6);
        let Ok(Address::Unix(a)) = Address::parse(b"\x01\0/tmp/x\0\0\0") else { panic!("a path") };
        assert_eq!(Known(a.into()).bytes(), b"\x01\0/tmp/x\0");
        assert!(matches!(Address::parse(&[2, 0, 1]), Err(Errno::INVAL)));
        assert!(matches!(Address::parse(&[77, 0, 1, 1]), Err(Errno::AFNOSUPPORT)));
    }
}
