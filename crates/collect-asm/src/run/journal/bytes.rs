//! Values as bytes, all numbers little-endian and as wide as they are.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// What can be put among bytes, and taken out again.
pub(super) trait Bytes: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// The value that comes next; nothing if there is none of this kind.
    fn get(from: &mut &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Bytes for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn get(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )* };
}

numbers!(u8, u32, u64, i32);

/// Structures by their fields, in order.
macro_rules! fields {
    ($($kind:path { $($field:tt),* })*) => { $(
        impl $crate::run::journal::bytes::Bytes for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::run::journal::bytes::Bytes::put(&self.$field, out); )*
            }

            fn get(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $( $field: $crate::run::journal::bytes::Bytes::get(from)? ),* })
            }
        }
    )* };
}

pub(super) use fields;

impl Bytes for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        match u8::get(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<A: Bytes, B: Bytes> Bytes for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some((A::get(from)?, B::get(from)?))
    }
}

impl<T: Bytes> Bytes for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        if bool::get(from)? { Some(Some(T::get(from)?)) } else { Some(None) }
    }
}

impl<T: Bytes> Bytes for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        // Each has a byte at least, so that no length takes more memory than there are bytes.
        let len = u32::get(from)? as usize;
        if len > from.len() {
            return None;
        }
        (0..len).map(|_| T::get(from)).collect()
    }
}

impl Bytes for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend(self.as_bytes());
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        let len = u32::get(from)? as usize;
        let (bytes, rest) = from.split_at_checked(len)?;
        *from = rest;
        Self::from_utf8(bytes.to_vec()).ok()
    }
}
