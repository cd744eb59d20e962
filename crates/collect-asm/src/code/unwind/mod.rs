//! Unwinding tables for the second copy, so that exceptions, cancellation and back traces
//! go through it as through the first.
//!
//! Each copied function that has a frame description in `.eh_frame` gets one with the
//! same instructions at the copy's addresses, and a language-specific area whose call sites
//! and landing pads are the copy's. Types, actions and personality routines stay where they are.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod cursor;
mod frame;
mod lsda;

use std::collections::HashMap;

use ichnos_base::GuestVa;

use super::image::Section;
use super::region::World;
use cursor::Cursor;
use frame::{Cie, Fde};

/// Where things of the program lie in the copy.
pub(crate) struct Places<'a> {
    /// The copies of instructions, by address.
    pub(crate) labels: &'a dyn Fn(GuestVa) -> Option<u64>,
    /// The address after a function's copy, by the function's address.
    pub(crate) ends: &'a HashMap<GuestVa, u64>,
    /// Where calls lie that stand for jumps at a function's end; behind all functions.
    pub(crate) tails: std::ops::Range<u64>,
    /// The start of the whole copy.
    pub(crate) base: u64,
}

/// The program's own tables.
pub(crate) struct Tables<'a> {
    pub(crate) frames: &'a Section,
    pub(crate) areas: Option<&'a Section>,
    pub(crate) bias: u64,
}

/// Tables for the copies of all functions, to lie at address `at`: a header as `PT_GNU_EH_FRAME`
/// has it, and what it leads to.
///
/// # Errors
///
/// Which function's area cannot be understood: an exception would go wrong there.
pub(crate) fn tables(
    tables: &Tables<'_>,
    world: &World,
    places: &Places<'_>,
    at: u64,
) -> Result<Vec<u8>, String> {
    let mut made = Vec::new();
    let mut cies: HashMap<usize, Option<Cie>> = HashMap::new();
    for entry in frame::entries(&tables.frames.bytes) {
        let cie = cies.entry(entry.cie).or_insert_with(|| Cie::parse(tables, entry.cie));
        let Some(cie) = cie else { continue };
        let Some(fde) = Fde::parse(tables, &entry, cie) else { continue };
        let start = GuestVa(fde.start);
        let function = world.function_at(start).map(|i| &world.functions[i]);
        let Some(function) = function.filter(|f| f.start == start) else { continue };
        let (Some(new), Some(end)) = ((places.labels)(start), places.ends.get(&start)) else {
            continue;
        };
        made.push((new, *end, fde, (entry.cie, cie.clone()), function.end));
    }
    made.sort_by_key(|(new, ..)| *new);
    let tails = &places.tails;
    let head_len = 12 + 8 * (made.len() + usize::from(!tails.is_empty()));
    let mut areas = Vec::new();
    let mut frames = Vec::new();
    let mut index = Vec::new();
    // Language-specific areas first, so that their addresses are known.
    let areas_at = at + head_len as u64;
    let mut area_of = Vec::new();
    for (new, _, fde, ..) in &made {
        let Some(lsda) = fde.lsda else {
            area_of.push(None);
            continue;
        };
        let area = lsda::copy(tables, lsda, (fde, *new), places);
        let start = fde.start;
        let area = area.ok_or_else(|| format!("the exception table of {start:#x} is strange"))?;
        area_of.push(Some(areas_at + areas.len() as u64));
        areas.extend(area);
    }
    areas.resize(areas.len().next_multiple_of(8), 0);
    let frames_at = areas_at + areas.len() as u64;
    let mut written = HashMap::new();
    for ((new, end, fde, (number, cie), last), area) in made.iter().zip(area_of) {
        let cie_at = *written.entry(*number).or_insert_with(|| {
            let at = frames.len();
            cie.write(&mut frames);
            at
        });
        let fde_at = frames_at + frames.len() as u64;
        fde.write((*new, *end), area, (cie_at, cie), (places, *last), &mut frames);
        index.push((*new, fde_at));
    }
    if !tails.is_empty() {
        index.push((tails.start, frames_at + frame::of_tails(tails, &mut frames) as u64));
    }
    frames.extend([0; 4]);
    let mut out = head(at, frames_at, &index);
    out.extend(areas);
    out.extend(frames);
    Ok(out)
}

/// The header with its table for binary search.
fn head(at: u64, frames_at: u64, index: &[(u64, u64)]) -> Vec<u8> {
    const PCREL_SDATA4: u8 = 0x1b;
    const UDATA4: u8 = 0x03;
    const DATAREL_SDATA4: u8 = 0x3b;
    let mut out = vec![1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4];
    out.extend((frames_at.wrapping_sub(at + 4) as u32).to_le_bytes());
    out.extend((index.len() as u32).to_le_bytes());
    for (start, fde) in index {
        out.extend((start.wrapping_sub(at) as u32).to_le_bytes());
        out.extend((fde.wrapping_sub(at) as u32).to_le_bytes());
    }
    out
}

/// A pointer as the tables encode it, absolute; and whether it leads to another one. Nothing if
/// it is null or encoded in a way that these tables do not use.
fn pointer(cursor: &mut Cursor<'_>, encoding: u8) -> Option<Option<u64>> {
    const OMIT: u8 = 0xff;
    if encoding == OMIT {
        return Some(None);
    }
    let place = cursor.address();
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => cursor.u64()?,
        0x01 => cursor.uleb()?,
        0x02 => u64::from(cursor.u16()?),
        0x03 => u64::from(cursor.u32()?),
        0x09 => cursor.sleb()? as u64,
        0x0a => cursor.u16()? as i16 as i64 as u64,
        0x0b => cursor.u32()? as i32 as i64 as u64,
        _ => return None,
    };
    if value == 0 {
        return Some(None);
    }
    match encoding & 0x70 {
        0x00 => Some(Some(value)),
        0x10 => Some(Some(value.wrapping_add(place))),
        _ => None,
    }
}

fn put_uleb(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
