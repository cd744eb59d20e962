//! Language-specific areas, as C++ and its relatives have them: call sites, landing pads,
//! actions, types.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use super::cursor::Cursor;
use super::frame::{ABSOLUTE, Fde, INDIRECT};
use super::{Places, Tables, pointer, put_uleb};

const OMIT: u8 = 0xff;
const UDATA4: u8 = 0x03;

/// An area for the copy that begins at `new`.
pub(super) fn copy(
    tables: &Tables<'_>,
    at: u64,
    (fde, new): (&Fde, u64),
    places: &Places<'_>,
) -> Option<Vec<u8>> {
    let section = tables.areas?;
    let base = section.address.wrapping_add(tables.bias);
    let offset = usize::try_from(at.checked_sub(base)?).ok()?;
    let mut cursor = Cursor::new(&section.bytes, offset, base);
    let pad_base = match cursor.u8()? {
        OMIT => fde.start,
        encoding => pointer(&mut cursor, encoding)??,
    };
    let type_encoding = cursor.u8()?;
    let types = match type_encoding {
        OMIT => None,
        _ => Some(usize::try_from(cursor.uleb()?).ok()? + cursor.offset()),
    };
    let site_encoding = cursor.u8()? & 0x0f;
    let actions = usize::try_from(cursor.uleb()?).ok()? + cursor.offset();
    let mut sites = Vec::new();
    let mut seen = Actions { most: 0, specs: 0 };
    while cursor.offset() < actions {
        let mut number = || pointer(&mut cursor, site_encoding).map(|n| n.unwrap_or(0));
        let (start, len, pad) = (number()?, number()?, number()?);
        let action = cursor.uleb()?;
        let place = |pc: u64| (places.labels)(GuestVa(pc)).or(end_of(fde, pc, places));
        let from = place(fde.start.wrapping_add(start))?;
        let to = place(fde.start.wrapping_add(start).wrapping_add(len))?;
        let pad = match pad {
            0 => 0,
            pad => {
                (places.labels)(GuestVa(pad_base.wrapping_add(pad)))?.checked_sub(places.base)?
            }
        };
        sites.extend(u32::try_from(from.checked_sub(new)?).ok()?.to_le_bytes());
        sites.extend(u32::try_from(to.checked_sub(from)?).ok()?.to_le_bytes());
        sites.extend(u32::try_from(pad).ok()?.to_le_bytes());
        put_uleb(&mut sites, action);
        if let (Some(first), Some(types)) = (action.checked_sub(1), types) {
            seen.follow(&section.bytes, actions + usize::try_from(first).ok()?, types)?;
        }
    }
    let mut out = vec![ABSOLUTE];
    out.extend(places.base.to_le_bytes());
    let tail = tail(tables, (actions, types, type_encoding), &seen)?;
    match &tail.types {
        Some(_) => out.push(tail.encoding),
        None => out.push(OMIT),
    }
    let mut body = vec![UDATA4];
    put_uleb(&mut body, sites.len() as u64);
    body.extend(&sites);
    body.extend(&tail.actions);
    if let Some(entries) = &tail.types {
        body.extend(entries);
        put_uleb(&mut out, body.len() as u64);
    }
    out.extend(body);
    out.extend(&tail.specs);
    Some(out)
}

/// A function's own end, which no instruction of it starts.
fn end_of(fde: &Fde, pc: u64, places: &Places<'_>) -> Option<u64> {
    (pc > fde.start).then(|| places.ends.get(&GuestVa(fde.start)).copied())?
}

/// What the actions refer to.
struct Actions {
    /// The highest number of a type.
    most: usize,
    /// How many bytes of exception specifications there are.
    specs: usize,
}

impl Actions {
    /// Goes through a chain of actions.
    fn follow(&mut self, bytes: &[u8], mut at: usize, types: usize) -> Option<()> {
        // A chain is no longer than there are bytes.
        for _ in 0..bytes.len() {
            let mut cursor = Cursor::new(bytes, at, 0);
            let filter = cursor.sleb()?;
            let link = cursor.offset();
            let next = cursor.sleb()?;
            if filter >= 0 {
                self.most = self.most.max(usize::try_from(filter).ok()?);
            } else {
                let spec = types.checked_add(usize::try_from(-(filter + 1)).ok()?)?;
                let mut list = Cursor::new(bytes, spec, 0);
                loop {
                    let number = usize::try_from(list.uleb()?).ok()?;
                    self.most = self.most.max(number);
                    if number == 0 {
                        break;
                    }
                }
                self.specs = self.specs.max(list.offset() - types);
            }
            if next == 0 {
                return Some(());
            }
            at = link.checked_add_signed(isize::try_from(next).ok()?)?;
        }
        None
    }
}

/// What follows the call sites.
struct Tail {
    actions: Vec<u8>,
    types: Option<Vec<u8>>,
    encoding: u8,
    specs: Vec<u8>,
}

fn tail(
    tables: &Tables<'_>,
    (actions, types, encoding): (usize, Option<usize>, u8),
    seen: &Actions,
) -> Option<Tail> {
    let section = tables.areas?;
    let base = section.address.wrapping_add(tables.bias);
    let Some(types) = types else {
        let (actions, specs) = Default::default();
        return Some(Tail { actions, types: None, encoding: OMIT, specs });
    };
    let size = match encoding & 0x0f {
        0x02 | 0x0a => 2,
        0x03 | 0x0b => 4,
        0x00 | 0x04 | 0x0c => 8,
        _ => return None,
    };
    let first = types.checked_sub(seen.most * size)?;
    let mut entries = Vec::new();
    let mut cursor = Cursor::new(&section.bytes, first, base);
    for _ in 0..seen.most {
        entries.extend(pointer(&mut cursor, encoding)?.unwrap_or(0).to_le_bytes());
    }
    let specs = section.bytes.get(types..types.checked_add(seen.specs)?)?.to_vec();
    let actions = section.bytes.get(actions..first.max(actions))?.to_vec();
    Some(Tail { actions, types: Some(entries), encoding: encoding & INDIRECT | ABSOLUTE, specs })
}
