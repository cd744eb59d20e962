//! As much of protobuf's wire format as flat messages of numbers and strings
//! need: varints, keys, and skipping what is not known.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Appends a varint.
pub(crate) fn push_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Appends a number field.
pub(crate) fn push_number(into: &mut Vec<u8>, field: u32, value: u64) {
    push_varint(into, u64::from(field) << 3);
    push_varint(into, value);
}

/// Appends a field of bytes.
pub(crate) fn push_bytes(into: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    push_varint(into, u64::from(field) << 3 | 2);
    push_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

/// Takes a varint off the front; `None` if there is no whole one of 64 bits.
pub(crate) fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (i, &byte) in from.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * i as u32;
        // The tenth byte has room for one bit.
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            *from = from.get(i + 1..)?;
            return Some(value);
        }
    }
    None
}

/// A field of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field<'a> {
    /// A number: varint, or fixed 64 or 32 bits.
    Number(u32, u64),
    /// Bytes, a string, or a message inside.
    Bytes(u32, &'a [u8]),
}

/// Takes a field off the front; `None` if there is no whole one.
pub(crate) fn take_field<'a>(from: &mut &'a [u8]) -> Option<Field<'a>> {
    let key = take_varint(from)?;
    let field = u32::try_from(key >> 3).ok().filter(|&f| f != 0)?;
    match key & 7 {
        0 => take_varint(from).map(|value| Field::Number(field, value)),
        1 => {
            let (head, rest) = from.split_first_chunk::<8>()?;
            *from = rest;
            Some(Field::Number(field, u64::from_le_bytes(*head)))
        }
        5 => {
            let (head, rest) = from.split_first_chunk::<4>()?;
            *from = rest;
            Some(Field::Number(field, u64::from(u32::from_le_bytes(*head))))
        }
        2 => {
            let len = usize::try_from(take_varint(from)?).ok()?;
            let (head, rest) = from.split_at_checked(len)?;
            *from = rest;
            Some(Field::Bytes(field, head))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_are_read_back(field in 1..1000_u32, value: u64, bytes: Vec<u8>) {
            let mut message = Vec::new();
            push_number(&mut message, field, value);
            push_bytes(&mut message, field, &bytes);
            let mut rest = &message[..];
            prop_assert_eq!(take_field(&mut rest), Some(Field::Number(field, value)));
            prop_assert_eq!(take_field(&mut rest), Some(Field::Bytes(field, &bytes)));
            prop_assert!(rest.is_empty());
            for cut in 0..message.len() {
                let mut rest = &message[..cut];
                while take_field(&mut rest).is_some() {}
            }
        }
    }

    #[test]
    fn the_specifications_example() {
        // From the encoding guide: 150 is 96 01; field 1 of it is 08 96 01.
        let mut message = Vec::new();
        push_number(&mut message, 1, 150);
        assert_eq!(message, [0x08, 0x96, 0x01]);
        let mut too_long = &[0xff; 10][..];
        assert_eq!(take_varint(&mut too_long), None);
        let mut largest = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..];
        assert_eq!(take_varint(&mut largest), Some(u64::MAX));
    }
}
