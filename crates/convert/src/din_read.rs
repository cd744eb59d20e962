//! Reads Dinero's din text: a label, an address in hexadecimal, and a rest that
//! means nothing (or begins with a size, in the sized style).
//!
//! An instruction fetch is an instruction record, since that is all din knows;
//! lengths and sizes are the options' unless the line has one. Escapes (3) and
//! flushes of a whole simulated cache (4) are about Dinero, not the program, and
//! are left out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Read;

use ichnos_base::{DriveError, GuestVa, InsnKind, Isa, Record, Sink, Source, ThreadStart};

use crate::digits::{hex, shown, split_line};
use crate::feed::{Feed, Halt, about, drive};
use crate::input::Text;
use crate::{DinStyle, Error, Format, ReadOptions};

/// A source of din text.
pub struct DinSource<R> {
    text: Text<R>,
    options: ReadOptions,
    /// The number of the next line, from 1.
    line: u64,
}

impl<R: Read> DinSource<R> {
    /// Reads from `input`, which is not compressed.
    pub fn new(input: R, options: &ReadOptions) -> Self {
        Self { text: Text::new(Format::Din, input), options: options.clone(), line: 1 }
    }
}

impl<R: Read> Source for DinSource<R> {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        let Self { text, options, line } = self;
        drive(sink, |feed| {
            feed.begin(&about("din text", Isa::UNKNOWN))?;
            feed.start(ThreadStart::default())?;
            while let Some(lines) = text.lines(*line)? {
                portion(lines, line, options, feed)?;
            }
            Ok(())
        })
    }
}

fn portion<S: Sink>(
    mut text: &[u8],
    number: &mut u64,
    options: &ReadOptions,
    feed: &mut Feed<'_, S>,
) -> Result<(), Halt<S::Error>> {
    while !text.is_empty() {
        let (line, rest) = split_line(text);
        match reference(line, options) {
            Ok(Some(record)) => feed.record(record)?,
            Ok(None) => {}
            Err(expected) => return Err(Halt::Source(bad(*number, line, expected))),
        }
        *number += 1;
        text = rest;
    }
    Ok(())
}

/// The reference on one line; what was expected if there is none.
#[inline]
fn reference(line: &[u8], options: &ReadOptions) -> Result<Option<Record>, &'static str> {
    let line = line.trim_ascii_start();
    let Some((&label, rest)) = line.split_first() else { return Ok(None) };
    let fields = rest.trim_ascii_start();
    let digits = fields.strip_prefix(b"0x").unwrap_or(fields);
    let Some((addr, rest)) = hex(digits).filter(|_| fields.len() < rest.len()) else {
        return Err("a label, a space and an address in hexadecimal");
    };
    if !rest.first().is_none_or(u8::is_ascii_whitespace) {
        return Err("a space or the line's end after the address");
    }
    let size = match options.din {
        DinStyle::Traditional => None,
        DinStyle::Sized => match hex(rest.trim_ascii_start()) {
            Some((size, _)) => Some(u32::try_from(size).map_err(|_| "a size below 2^32")?),
            None => return Err("a size in hexadecimal after the address"),
        },
    };
    let access = size.unwrap_or_else(|| within_word(addr, options.access_size));
    let word = within_word(addr, u32::from(options.insn_len));
    let addr = GuestVa(addr);
    Ok(Some(match label {
        b'0' | b'r' => Record::load(addr, access),
        b'1' | b'w' => Record::store(addr, access),
        b'2' | b'i' => {
            let len = u8::try_from(size.unwrap_or(word));
            let len = len.map_err(|_| "an instruction of at most 255 bytes")?;
            Record::insn(addr, len, InsnKind::OTHER)
        }
        b'3' | b'4' | b'm' | b'c' | b'v' => return Ok(None),
        _ => return Err("a label from 0 to 4, or one of r, w, i, m, c and v"),
    }))
}

/// How many bytes from `addr` on belong to its word of `size` bytes. Dinero rounds
/// addresses without sizes down to words of four bytes; this touches the same
/// word and keeps the address.
#[inline]
fn within_word(addr: u64, size: u32) -> u32 {
    if size.is_power_of_two() { size - (addr & u64::from(size - 1)) as u32 } else { size }
}

#[cold]
fn bad(number: u64, line: &[u8], expected: &str) -> Error {
    let what = format!("expected {expected}, found {}", shown(line));
    Error::Line { format: Format::Din, line: number, what }
}
