//! Stored profiles: costs by instruction address, the arcs they were deduced
//! from, and what was mapped where, as lines of text.
//!
//! ```text
//! ichnos profile 1
//! command: bzip2 -9 words.txt
//! note: l1i cache: 32768 B, 64 B, 8-way associative
//! map: 10000 5e000 0 0 5 1 /bin/prog.riscv        start, length, offset, bias, protection, kind, path
//! columns: Ir I1mr Dr D1mr Dw D1mw
//! insn: 10146 1141 12 0 0 0 12 1                  address, word, costs
//! arc: 1014a 10200 12                             end of the one left, the one entered, count
//! end: 1
//! ```
//!
//! Addresses, lengths and words are hexadecimal; costs and counts are decimal; `-`
//! stands for no address. The last line counts the instructions, so that a file
//! cut short is known. Memory: some 100 bytes a line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{BufRead, Write};

use ichnos_base::{FileOff, GuestVa, Map, MapKind, Protection};

use crate::Error;

/// How a stored profile begins.
pub const PROFILE_MAGIC: &str = "ichnos profile 1";

/// A piece of an image that was mapped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredMap {
    /// First address.
    pub start: GuestVa,
    /// Bytes.
    pub len: u64,
    /// Where in the file it begins.
    pub offset: FileOff,
    /// Run-time addresses less the file's own.
    pub bias: u64,
    /// What may be done with it.
    pub protection: Protection,
    /// What sort of memory it is.
    pub kind: MapKind,
    /// The file.
    pub path: String,
}

impl StoredMap {
    /// What an event said.
    #[must_use]
    pub fn new(map: &Map<'_>) -> Self {
        let Map { start, len, offset, bias, protection, kind, .. } = *map;
        Self { start, len, offset, bias, protection, kind, path: map.path.to_owned() }
    }

    /// The same as an event's part.
    #[must_use]
    pub fn as_map(&self) -> Map<'_> {
        let Self { start, len, offset, bias, protection, kind, .. } = *self;
        Map { start, len, offset, bias, protection, kind, path: &self.path, build_id: &[] }
    }
}

/// One instruction's costs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredInsn {
    /// Its address.
    pub pc: GuestVa,
    /// Its bytes, as a little-endian number; 0 if unknown.
    pub word: u32,
    /// One number a column.
    pub costs: Vec<u64>,
}

/// A transfer of control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoredArc {
    /// The end of the instruction that was left.
    pub from: Option<GuestVa>,
    /// The instruction that was entered.
    pub to: Option<GuestVa>,
    /// How often.
    pub count: u64,
}

/// A profile as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredProfile {
    /// What was run.
    pub command: String,
    /// The models in words.
    pub notes: Vec<String>,
    /// What was mapped, in order.
    pub maps: Vec<StoredMap>,
    /// The columns' names.
    pub columns: Vec<String>,
    /// The instructions, in order of address.
    pub insns: Vec<StoredInsn>,
    /// The arcs.
    pub arcs: Vec<StoredArc>,
}

/// Text of one line: line ends would end it early.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Appends a space and a number to a line.
fn append<const BASE: u64>(line: &mut Vec<u8>, number: u64) {
    let mut digits = [b' '; 21];
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(left % BASE) as usize];
        left /= BASE;
        if left == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at - 1..]);
}

impl StoredProfile {
    /// Writes it.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub fn write(&self, out: &mut impl Write) -> Result<(), Error> {
        writeln!(out, "{PROFILE_MAGIC}\ncommand: {}", one_line(&self.command))?;
        for note in &self.notes {
            writeln!(out, "note: {}", one_line(note))?;
        }
        for m in &self.maps {
            let (protection, kind) = (m.protection.0, m.kind.0);
            write!(out, "map: {:x} {:x} {:x} {:x}", m.start.0, m.len, m.offset.0, m.bias)?;
            writeln!(out, " {protection} {kind} {}", one_line(&m.path))?;
        }
        writeln!(out, "columns: {}", self.columns.join(" "))?;
        // There are many numbers in these, most of them small.
        let mut line = Vec::new();
        for insn in &self.insns {
            line.clear();
            line.extend_from_slice(b"insn:");
            append::<16>(&mut line, insn.pc.0);
            append::<16>(&mut line, insn.word.into());
            insn.costs.iter().for_each(|&cost| append::<10>(&mut line, cost));
            line.push(b'\n');
            out.write_all(&line)?;
        }
        for arc in &self.arcs {
            line.clear();
            line.extend_from_slice(b"arc:");
            for at in [arc.from, arc.to] {
                match at {
                    Some(at) => append::<16>(&mut line, at.0),
                    None => line.extend_from_slice(b" -"),
                }
            }
            append::<10>(&mut line, arc.count);
            line.push(b'\n');
            out.write_all(&line)?;
        }
        writeln!(out, "end: {}", self.insns.len())?;
        Ok(())
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// The first line that is not as it should be, by number.
    pub fn read(input: impl BufRead) -> Result<Self, Error> {
        let mut profile = Self::default();
        let mut ended = false;
        let mut last = 0;
        for (at, line) in input.lines().enumerate() {
            let line = line.map_err(Error::Read)?;
            last = at + 1;
            let fail = |expected| Error::Profile { line: at + 1, expected, got: short(&line) };
            if at == 0 {
                if line != PROFILE_MAGIC {
                    return Err(fail(PROFILE_MAGIC));
                }
                continue;
            }
            if ended {
                return Err(fail("nothing after the last line"));
            }
            let (key, rest) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
            match key {
                "command" => rest.clone_into(&mut profile.command),
                "note" => profile.notes.push(rest.to_owned()),
                "columns" => profile.columns = rest.split(' ').map(str::to_owned).collect(),
                "map" => {
                    let map = map(rest).ok_or_else(|| {
                        fail("start, length, offset, bias, protection, kind and path")
                    })?;
                    profile.maps.push(map);
                }
                "insn" => {
                    let width = profile.columns.len();
                    let insn = insn(rest).filter(|insn| insn.costs.len() == width);
                    profile
                        .insns
                        .push(insn.ok_or_else(|| fail("address, word and a cost a column"))?);
                }
                "arc" => {
                    profile.arcs.push(arc(rest).ok_or_else(|| fail("two addresses and a count"))?);
                }
                "end" if rest.parse() == Ok(profile.insns.len()) => ended = true,
                "end" => return Err(fail("the number of instructions")),
                _ => return Err(fail("command, note, map, columns, insn, arc or end")),
            }
        }
        if ended {
            return Ok(profile);
        }
        Err(Error::Profile { line: last, expected: "a last line, `end`", got: String::new() })
    }
}

fn short(line: &str) -> String {
    line.chars().take(60).collect()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn map(text: &str) -> Option<StoredMap> {
    let mut parts = text.splitn(7, ' ');
    let mut next = || parts.next();
    Some(StoredMap {
        start: GuestVa(hex(next()?)?),
        len: hex(next()?)?,
        offset: FileOff(hex(next()?)?),
        bias: hex(next()?)?,
        protection: Protection(next()?.parse().ok()?),
        kind: MapKind(next()?.parse().ok()?),
        path: next()?.to_owned(),
    })
}

fn insn(text: &str) -> Option<StoredInsn> {
    let mut parts = text.split(' ');
    let pc = GuestVa(hex(parts.next()?)?);
    let word = u32::try_from(hex(parts.next()?)?).ok()?;
    let costs = parts.map(|cost| cost.parse().ok()).collect::<Option<_>>()?;
    Some(StoredInsn { pc, word, costs })
}

fn arc(text: &str) -> Option<StoredArc> {
    let mut parts = text.split(' ');
    let mut place = || match parts.next()? {
        "-" => Some(None),
        text => hex(text).map(|at| Some(GuestVa(at))),
    };
    let (from, to) = (place()?, place()?);
    let count = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(StoredArc { from, to, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> StoredProfile {
        StoredProfile {
            command: "prog a b".into(),
            notes: vec!["l1d cache: 32768 B".into()],
            maps: vec![StoredMap {
                start: GuestVa(0x10000),
                len: 0x5e000,
                kind: MapKind::IMAGE,
                path: "/a b/prog".into(),
                ..StoredMap::default()
            }],
            columns: ["Ir", "Dr"].map(String::from).into(),
            insns: vec![StoredInsn { pc: GuestVa(0x10146), word: 0x1141, costs: vec![12, 0] }],
            arcs: vec![StoredArc { from: None, to: Some(GuestVa(0x10146)), count: 1 }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut text = Vec::new();
        sample().write(&mut text).expect("memory takes all");
        assert_eq!(StoredProfile::read(&text[..]).expect("as written"), sample());
    }

    #[test]
    fn damage_is_an_error_with_its_line() {
        let mut text = Vec::new();
        sample().write(&mut text).expect("memory takes all");
        let text = String::from_utf8(text).expect("text");
        let whole: Vec<&str> = text.lines().collect();
        for cut in 0..whole.len() {
            let part = whole[..cut].join("\n");
            assert!(StoredProfile::read(part.as_bytes()).is_err(), "{cut} lines");
        }
        for (from, to, line) in
            [("12 0", "12", "line 6"), ("10146 1141", "x 1141", "line 6"), ("- 1", "1", "line 7")]
        {
            let message = StoredProfile::read(text.replacen(from, to, 1).as_bytes())
                .expect_err("damaged")
                .to_string();
            assert!(message.contains(line), "{message}");
        }
    }
}
