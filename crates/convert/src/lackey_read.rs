//! Reads what `valgrind --tool=lackey --trace-mem=yes` prints.
//!
//! One pass over each portion of whole lines; a line is looked at once, byte by
//! byte, and nothing is allocated for it. `benches/text.rs` measures it: the
//! size benchmark feeds half a thousand million lines through here.
//!
//! Repeats: lackey prints an instruction line for every turn of a repeated
//! string instruction, and one more when the count is up. With
//! [`Repeats::Merged`] an instruction line that repeats address and length of
//! the one before is taken as a further turn if the turn before it had data.
//! A jump to itself has no data, so it is not taken for one; an indirect jump
//! through memory to itself would be.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Read;

use ichnos_base::{
    AccessFlags, DriveError, GuestVa, InsnKind, Isa, Record, Sink, Source, ThreadStart,
};

use crate::digits::{decimal, hex, shown, split_line};
use crate::feed::{Feed, Halt, about, drive};
use crate::input::Text;
use crate::{Error, Format, ReadOptions, Repeats};

/// A source of lackey text.
pub struct LackeySource<R> {
    text: Text<R>,
    state: State,
}

/// Where in the text the reader is.
struct State {
    /// The number of the next line, from 1.
    line: u64,
    repeats: Repeats,
    /// Address and length of the last instruction line.
    last: Option<(u64, u8)>,
    /// Accesses since that line.
    accesses: usize,
    /// What accesses are flagged with.
    flags: AccessFlags,
}

impl<R: Read> LackeySource<R> {
    /// Reads from `input`, which is not compressed.
    pub fn new(input: R, options: &ReadOptions) -> Self {
        let state = State {
            line: 1,
            repeats: options.repeats,
            last: None,
            accesses: 0,
            flags: AccessFlags::NONE,
        };
        Self { text: Text::new(Format::Lackey, input), state }
    }
}

impl<R: Read> Source for LackeySource<R> {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        let Self { text, state } = self;
        drive(sink, |feed| {
            feed.begin(&about("lackey text", Isa::UNKNOWN))?;
            feed.start(ThreadStart::default())?;
            while let Some(lines) = text.lines(state.line)? {
                state.portion(lines, feed)?;
            }
            Ok(())
        })
    }
}

impl State {
    fn portion<S: Sink>(
        &mut self,
        mut text: &[u8],
        feed: &mut Feed<'_, S>,
    ) -> Result<(), Halt<S::Error>> {
        while !text.is_empty() {
            text = match text {
                [b'I', b' ', b' ', rest @ ..] => {
                    let (pc, len, rest) = self.reference(rest, text)?;
                    self.insn(pc, len, feed)?;
                    rest
                }
                [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => {
                    let (addr, size, rest) = self.reference(rest, text)?;
                    self.access(*kind, addr, size, feed)?;
                    rest
                }
                _ => self.other(text)?,
            };
            self.line += 1;
        }
        Ok(())
    }

    /// Address, size and the text after the line.
    #[inline]
    fn reference<'t>(&self, rest: &'t [u8], line: &[u8]) -> Result<(u64, u32, &'t [u8]), Error> {
        if let Some((addr, [b',', rest @ ..])) = hex(rest)
            && let Some((size, rest)) = decimal(rest)
        {
            match rest {
                [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => return Ok((addr, size, rest)),
                [] => return Ok((addr, size, rest)),
                _ => {}
            }
        }
        Err(self.bad(line, "an address in hexadecimal, a comma and a size"))
    }

    #[inline]
    fn insn<S: Sink>(
        &mut self,
        pc: u64,
        size: u32,
        feed: &mut Feed<'_, S>,
    ) -> Result<(), Halt<S::Error>> {
        let Ok(len) = u8::try_from(size) else {
            return Err(Halt::Source(Error::Line {
                format: Format::Lackey,
                line: self.line,
                what: format!("an instruction of {size} bytes"),
            }));
        };
        if self.repeats == Repeats::Merged {
            let again = self.last == Some((pc, len)) && self.accesses > 0;
            if again {
                let flag = |r: &mut Record| {
                    if let Record::Load { flags, .. } | Record::Store { flags, .. } = r {
                        *flags = flags.with(AccessFlags::STRING);
                    }
                };
                feed.recent(self.accesses).iter_mut().for_each(flag);
                self.flags = AccessFlags::STRING;
                self.accesses = 0;
                return Ok(());
            }
            self.flags = AccessFlags::NONE;
            self.last = Some((pc, len));
            self.accesses = 0;
        }
        feed.record(Record::insn(GuestVa(pc), len, InsnKind::OTHER))
    }

    #[inline]
    fn access<S: Sink>(
        &mut self,
        kind: u8,
        addr: u64,
        size: u32,
        feed: &mut Feed<'_, S>,
    ) -> Result<(), Halt<S::Error>> {
        let (flags, addr) = (self.flags, GuestVa(addr));
        if kind != b'S' {
            self.accesses += 1;
            feed.record(Record::Load { flags, size, addr })?;
        }
        if kind != b'L' {
            self.accesses += 1;
            feed.record(Record::Store { flags, size, addr })?;
        }
        Ok(())
    }

    /// A line that is no reference: superblocks, Valgrind's messages, nothing.
    #[cold]
    fn other<'t>(&self, text: &'t [u8]) -> Result<&'t [u8], Error> {
        let (line, rest) = split_line(text);
        let valgrind = [b"==", b"--", b"**"].iter().any(|mark| line.starts_with(*mark));
        if valgrind || line.starts_with(b"SB ") || line.trim_ascii().is_empty() {
            return Ok(rest);
        }
        Err(self.bad(text, "a line that begins with \"I  \", \" L \", \" S \", \" M \", \"SB \" or Valgrind's process number"))
    }

    #[cold]
    fn bad(&self, text: &[u8], expected: &str) -> Error {
        let (line, _) = split_line(text);
        let what = format!("expected {expected}, found {}", shown(line));
        Error::Line { format: Format::Lackey, line: self.line, what }
    }
}
