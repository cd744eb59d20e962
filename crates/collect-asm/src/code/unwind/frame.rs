//! Frame descriptions: read from `.eh_frame`, written for the copy.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use super::cursor::Cursor;
use super::{Places, Tables, pointer, put_uleb};

/// Encoding of pointers in what is written: eight bytes, absolute; the flag of those that
/// lead to another pointer.
pub(super) const ABSOLUTE: u8 = 0;
pub(super) const INDIRECT: u8 = 0x80;

/// Where a description's body lies, and where its common part begins.
pub(super) struct Entry {
    body: std::ops::Range<usize>,
    pub(super) cie: usize,
}

/// What several descriptions have in common.
#[derive(Clone)]
pub(super) struct Cie {
    pointers: u8,
    lsda: Option<u8>,
    /// The personality routine, or where its address is; and how that is encoded.
    personality: Option<(u64, u8)>,
    signal: bool,
    code_align: u64,
    data_align: i64,
    return_register: u64,
    instructions: Vec<u8>,
}

/// The description of a function's frames.
pub(super) struct Fde {
    /// The function's address in the process.
    pub(super) start: u64,
    /// Where its language-specific area is.
    pub(super) lsda: Option<u64>,
    instructions: Vec<u8>,
}

/// All descriptions of functions.
pub(super) fn entries(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut cursor = Cursor::new(bytes, 0, 0);
    while let Some(len) = cursor.u32() {
        // Zero ends the section; the 64-bit form is not made for it.
        if len == 0 || len == u32::MAX {
            break;
        }
        let start = cursor.offset();
        let Some(end) = start.checked_add(len as usize) else { break };
        if let Some(id @ 1..) = cursor.u32()
            && let Some(cie) = start.checked_sub(id as usize)
        {
            entries.push(Entry { body: start + 4..end, cie });
        }
        cursor = Cursor::new(bytes, end, 0);
    }
    entries
}

fn sized<'a>(tables: &'a Tables<'_>, at: usize) -> Option<Cursor<'a>> {
    let base = tables.frames.address.wrapping_add(tables.bias);
    let mut cursor = Cursor::new(&tables.frames.bytes, at, base);
    let end = cursor.u32()? as usize + cursor.offset();
    Some(Cursor::new(tables.frames.bytes.get(..end)?, cursor.offset(), base))
}

fn rest(cursor: &mut Cursor<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(byte) = cursor.u8() {
        bytes.push(byte);
    }
    bytes
}

impl Cie {
    pub(super) fn parse(tables: &Tables<'_>, at: usize) -> Option<Self> {
        let mut cursor = sized(tables, at)?;
        let (id, version) = (cursor.u32()?, cursor.u8()?);
        if id != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let mut augmentation = Vec::new();
        while let byte @ 1.. = cursor.u8()? {
            augmentation.push(byte);
        }
        let code_align = cursor.uleb()?;
        let data_align = cursor.sleb()?;
        let return_register = if version == 1 { u64::from(cursor.u8()?) } else { cursor.uleb()? };
        let mut cie = Self {
            pointers: ABSOLUTE,
            lsda: None,
            personality: None,
            signal: false,
            code_align,
            data_align,
            return_register,
            instructions: Vec::new(),
        };
        let mut letters = augmentation.iter();
        if letters.next() == Some(&b'z') {
            cursor.uleb()?;
        } else if !augmentation.is_empty() {
            return None;
        }
        for letter in letters {
            match letter {
                b'R' => cie.pointers = cursor.u8()?,
                b'L' => cie.lsda = Some(cursor.u8()?),
                b'P' => {
                    let encoding = cursor.u8()?;
                    let routine = pointer(&mut cursor, encoding)?;
                    cie.personality = routine.map(|r| (r, encoding & INDIRECT));
                }
                b'S' => cie.signal = true,
                b'B' => {}
                _ => return None,
            }
        }
        cie.instructions = rest(&mut cursor);
        Some(cie)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 8]);
        out.push(1);
        out.push(b'z');
        let letters = [
            (self.personality.is_some(), b'P'),
            (self.lsda.is_some(), b'L'),
            (true, b'R'),
            (self.signal, b'S'),
        ];
        out.extend(letters.iter().filter(|(there, _)| *there).map(|(_, letter)| letter));
        out.push(0);
        put_uleb(out, self.code_align);
        // Small numbers have the same form with and without sign, but for bit six.
        out.push((self.data_align & 0x7f) as u8);
        out.push(self.return_register as u8);
        let mut data = Vec::new();
        if let Some((routine, indirect)) = self.personality {
            data.push(indirect | ABSOLUTE);
            data.extend(routine.to_le_bytes());
        }
        data.extend(self.lsda.map(|_| ABSOLUTE));
        data.push(ABSOLUTE);
        put_uleb(out, data.len() as u64);
        out.extend(data);
        out.extend(&self.instructions);
        close(out, start);
    }
}

impl Fde {
    pub(super) fn parse(tables: &Tables<'_>, entry: &Entry, cie: &Cie) -> Option<Self> {
        let base = tables.frames.address.wrapping_add(tables.bias);
        let bytes = tables.frames.bytes.get(..entry.body.end)?;
        let mut cursor = Cursor::new(bytes, entry.body.start, base);
        let start = pointer(&mut cursor, cie.pointers)??;
        pointer(&mut cursor, cie.pointers & 0x0f)?;
        let len = cursor.uleb()?;
        let end = cursor.offset().checked_add(usize::try_from(len).ok()?)?;
        let lsda = cie.lsda.and_then(|encoding| pointer(&mut cursor, encoding)?);
        let mut cursor = Cursor::new(bytes, end, base);
        // Absolute addresses in a file that can be loaded anywhere are not filled in there.
        let absolute = cie.pointers & 0x70 == 0;
        let start = if absolute { start.wrapping_add(tables.bias) } else { start };
        Some(Self { start, lsda, instructions: rest(&mut cursor) })
    }

    pub(super) fn write(
        &self,
        (start, end): (u64, u64),
        area: Option<u64>,
        (cie_at, cie): (usize, &Cie),
        (places, last): (&Places<'_>, GuestVa),
        out: &mut Vec<u8>,
    ) {
        let begin = out.len();
        out.extend([0; 4]);
        out.extend(((begin + 4 - cie_at) as u32).to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend((end - start).to_le_bytes());
        match cie.lsda {
            Some(_) => {
                out.push(8);
                out.extend(area.unwrap_or(0).to_le_bytes());
            }
            None => out.push(0),
        }
        let place = |pc: GuestVa| if pc >= last { Some(end) } else { (places.labels)(pc) };
        // What cannot be understood ends the description: what was said so far is true.
        let _ = self.moved(cie, start, &place, out);
        close(out, begin);
    }

    /// The instructions, with all advances made as long as they are in the copy.
    fn moved(
        &self,
        cie: &Cie,
        start: u64,
        place: &dyn Fn(GuestVa) -> Option<u64>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let mut cursor = Cursor::new(&self.instructions, 0, 0);
        let (mut pc, mut now) = (self.start, start);
        while !cursor.is_empty() {
            let from = cursor.offset();
            let opcode = cursor.u8()?;
            let advance = match opcode {
                0x40..=0x7f => Some(u64::from(opcode & 0x3f)),
                0x02 => Some(u64::from(cursor.u8()?)),
                0x03 => Some(u64::from(cursor.u16()?)),
                0x04 => Some(u64::from(cursor.u32()?)),
                _ => None,
            };
            if let Some(by) = advance {
                pc = pc.wrapping_add(by.wrapping_mul(cie.code_align));
                let to = place(GuestVa(pc))?;
                put_advance(out, u32::try_from(to.checked_sub(now)?).ok()?);
                now = to;
                continue;
            }
            operands(opcode, &mut cursor)?;
            out.extend(self.instructions.get(from..cursor.offset())?);
        }
        Some(())
    }
}

/// Describes calls that stand for jumps at a function's end: one word lies between the return address and where the
/// stack ends. Answers where the description begins.
pub(super) fn of_tails(tails: &std::ops::Range<u64>, out: &mut Vec<u8>) -> usize {
    const RETURN_ADDRESS: u8 = 16;
    // The frame begins 16 bytes above the stack pointer; the return address is its first word below.
    let instructions = vec![0x0c, 7, 16, 0x80 | RETURN_ADDRESS, 1];
    let cie = Cie {
        pointers: ABSOLUTE,
        lsda: None,
        personality: None,
        signal: false,
        code_align: 1,
        data_align: -8,
        return_register: RETURN_ADDRESS.into(),
        instructions,
    };
    let cie_at = out.len();
    cie.write(out);
    let begin = out.len();
    out.extend([0; 4]);
    out.extend(((begin + 4 - cie_at) as u32).to_le_bytes());
    out.extend(tails.start.to_le_bytes());
    out.extend((tails.end - tails.start).to_le_bytes());
    out.push(0);
    close(out, begin);
    begin
}

/// An advance in its shortest form, which unwinders are quickest with.
fn put_advance(out: &mut Vec<u8>, by: u32) {
    match by {
        0..=0x3f => out.push(0x40 | by as u8),
        0x40..=0xff => out.extend([0x02, by as u8]),
        0x100..=0xffff => {
            out.push(0x03);
            out.extend((by as u16).to_le_bytes());
        }
        _ => {
            out.push(0x04);
            out.extend(by.to_le_bytes());
        }
    }
}

/// Passes over an instruction's operands.
fn operands(opcode: u8, cursor: &mut Cursor<'_>) -> Option<()> {
    match opcode {
        0x00 | 0x0a | 0x0b | 0x2d | 0xc0..=0xff => {}
        0x06 | 0x07 | 0x08 | 0x0d | 0x0e | 0x2e | 0x80..=0xbf => drop(cursor.uleb()?),
        0x13 => drop(cursor.sleb()?),
        0x05 | 0x09 | 0x0c | 0x14 | 0x2f => drop((cursor.uleb()?, cursor.uleb()?)),
        0x11 | 0x12 | 0x15 => drop((cursor.uleb()?, cursor.sleb()?)),
        0x0f => {
            let len = cursor.uleb()?;
            cursor.take(usize::try_from(len).ok()?)?;
        }
        0x10 | 0x16 => {
            cursor.uleb()?;
            let len = cursor.uleb()?;
            cursor.take(usize::try_from(len).ok()?)?;
        }
        _ => return None,
    }
    Some(())
}

/// Fills an entry up and puts its length in front of it.
fn close(out: &mut Vec<u8>, start: usize) {
    while !(out.len() - start - 4).is_multiple_of(8) {
        out.push(0);
    }
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}
