//! Marks: what lies between block executions. The marks column begins with the
//! chunk's flags and the size of its prediction tables; then each mark has the number of executions since the mark
//! before it, a tag and a body. The last mark ends the chunk.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::RangeInclusive;

use ichnos_base::{GuestVa, InsnKind, Record, Register};

use crate::bytes::{Cursor, Parse, put_signed, put_varint};
use crate::error::Flaw;
use crate::event_codec::get_event;
use crate::flex::{Run, get_runs, put_accesses};

pub(crate) const END: u8 = 0;
pub(crate) const EVENT: u8 = 1;
pub(crate) const OUTCOME: u8 = 2;
pub(crate) const NO_OUTCOME: u8 = 3;
pub(crate) const NEXT: u8 = 4;
pub(crate) const LOOSE: u8 = 5;
pub(crate) const SNAPSHOT: u8 = 6;
pub(crate) const WIRE: u8 = 7;
pub(crate) const CUT: u8 = 8;

/// The chunk's flag that says that it holds values.
pub(crate) const HAS_VALUES: u8 = 1;
/// The one that says that executions are raw.
pub(crate) const IS_RAW: u8 = 2;

/// How large prediction tables may be: two to this many places.
pub(crate) const TABLE_BITS: RangeInclusive<u32> = 6..=18;

/// How a chunk is packed: told at the start of its marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    /// Whether it holds values.
    pub(crate) flags: u8,
    /// The size of its prediction tables.
    pub(crate) bits: u32,
}

/// A piece of a stretch of records that belong to no block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loose {
    /// An instruction or branch.
    Record(Record),
    /// Accesses.
    Run(Run),
}

/// Tells how many executions there are before each mark, from the start of a column of marks on.
pub(crate) fn executions(column: &[u8], mut tell: impl FnMut(u64) -> Parse<()>) -> Parse<()> {
    let mut marks = Cursor::new(column);
    marks.take(2)?;
    loop {
        tell(marks.varint()?)?;
        match marks.u8()? {
            END => return Ok(()),
            EVENT => drop(get_event(&mut marks)?),
            OUTCOME => {
                marks.u8()?;
                marks.varint()?;
            }
            NO_OUTCOME => {}
            NEXT | CUT => drop(marks.varint()?),
            LOOSE => get_loose(&mut marks, &mut Vec::new(), &mut 0)?,
            SNAPSHOT => drop(get_snapshot(&mut marks)?),
            _ => return Err(Flaw("a mark is of no kind")),
        }
    }
}

/// Appends records that belong to no block.
pub(crate) fn put_loose(out: &mut Vec<u8>, records: &[Record], last: &mut u64) {
    let mut rest = records;
    while let Some(record) = rest.first() {
        match *record {
            Record::Insn { len, kind, pc } => {
                out.extend_from_slice(&[1, len, kind.0]);
                put_varint(out, pc.0);
                rest = &rest[1..];
            }
            Record::Branch { taken, target } => {
                out.extend_from_slice(&[2, u8::from(taken)]);
                put_varint(out, target.0);
                rest = &rest[1..];
            }
            _ => {
                let is_access =
                    |r: &Record| !matches!(r, Record::Insn { .. } | Record::Branch { .. });
                let len = rest.iter().take_while(|r| is_access(r)).count();
                out.push(3);
                put_accesses(out, &rest[..len], last);
                rest = &rest[len..];
            }
        }
    }
    out.push(0);
}

/// Reads records that belong to no block.
pub(crate) fn get_loose(
    from: &mut Cursor<'_>,
    loose: &mut Vec<Loose>,
    last: &mut u64,
) -> Parse<()> {
    let mut runs = Vec::new();
    loop {
        match from.u8()? {
            0 => return Ok(()),
            1 => {
                let (len, kind) = (from.u8()?, InsnKind(from.u8()?));
                let pc = GuestVa(from.varint()?);
                loose.push(Loose::Record(Record::Insn { len, kind, pc }));
            }
            2 => {
                let taken = match from.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Flaw("a branch is neither taken nor not")),
                };
                let target = GuestVa(from.varint()?);
                loose.push(Loose::Record(Record::Branch { taken, target }));
            }
            3 => {
                runs.clear();
                get_runs(from, &mut runs, last)?;
                loose.extend(runs.iter().copied().map(Loose::Run));
            }
            _ => return Err(Flaw("a loose record is of no kind")),
        }
    }
}

/// Appends the values of the registers that are known.
pub(crate) fn put_snapshot(out: &mut Vec<u8>, registers: &[(Register, u64)]) {
    put_varint(out, registers.len() as u64);
    let mut last = 0u64;
    for (register, value) in registers {
        out.push(register.0);
        put_signed(out, value.wrapping_sub(last) as i64);
        last = *value;
    }
}

/// Reads the values of the registers that are known.
pub(crate) fn get_snapshot(from: &mut Cursor<'_>) -> Parse<Vec<(Register, u64)>> {
    let count = from.count()?;
    if count > Register::COUNT {
        return Err(Flaw("a snapshot has too many registers"));
    }
    let mut registers = Vec::with_capacity(count);
    let mut last = 0u64;
    for _ in 0..count {
        let register = Register(from.u8()?);
        if usize::from(register.0) >= Register::COUNT {
            return Err(Flaw("a snapshot names a register that does not exist"));
        }
        last = last.wrapping_add(from.signed()? as u64);
        registers.push((register, last));
    }
    Ok(registers)
}
