//! The jumps that lead from a program's code to its copy.
//!
//! Every entry of a copied function is overwritten with a jump. The rest of the first copy is
//! never reached then, so what a jump covers does not matter, unless it is another entry. An
//! entry with less than five bytes up to the next one gets a short jump to five such bytes
//! nearby; one of a single byte is left as it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;

use ichnos_base::GuestVa;
use ichnos_isa_x86::Inst;

use super::copy::Patch;
use super::image::Image;
use super::region::World;

/// Bytes of a jump that reaches the copy.
const FAR: u64 = 5;
/// Bytes of a short jump, and how far it reaches.
const NEAR: u64 = 2;
const REACH: u64 = 127;

/// The patches for all entries. `places` tells where an entry leads, and is told whether it is a function's
/// first.
pub(crate) fn patches(
    image: &Image,
    bias: u64,
    world: &World,
    places: &dyn Fn(GuestVa, bool) -> Option<u64>,
) -> Vec<Patch> {
    let mut entries = Vec::new();
    for function in &world.functions {
        let end = function.end.0 + padding(image, bias, function.end);
        entries.push((function.start.0, places(function.start, true), end));
        let inside = function.entries.iter().filter(|e| **e != function.start);
        entries.extend(inside.map(|e| (e.0, places(*e, false), end)));
    }
    entries.sort_unstable();
    let mut taken = Taken(entries.iter().map(|(at, _, _)| *at).collect());
    let mut patches = Vec::new();
    let mut tight = Vec::new();
    for (i, (at, to, end)) in entries.iter().enumerate() {
        let Some(to) = to else { continue };
        let next = entries.get(i + 1).map_or(*end, |(next, _, _)| (*next).min(*end));
        if next - at >= FAR {
            taken.0.extend(*at..at + FAR);
            patches.push(far(*at, *to));
        } else {
            taken.0.extend(*at..next.min(at + NEAR));
            tight.push((*at, *to, next));
        }
    }
    for (at, to, next) in tight {
        let function = world.function_at(GuestVa(at)).map(|f| &world.functions[f]);
        let hole = function.and_then(|f| taken.hole(at, (f.start.0, f.end.0)));
        let Some(hole) = hole.filter(|_| next - at >= NEAR) else { continue };
        taken.0.extend(hole..hole + FAR);
        let distance = hole.wrapping_sub(at + NEAR) as i8;
        patches.push(Patch { at: GuestVa(at), bytes: vec![0xeb, distance as u8] });
        patches.push(far(hole, to));
    }
    patches.sort_by_key(|p| p.at);
    patches
}

/// Bytes that are no longer what they were, or must not be touched.
struct Taken(BTreeSet<u64>);

impl Taken {
    /// Five free bytes that a short jump from `at` reaches, within bounds.
    fn hole(&self, at: u64, (start, end): (u64, u64)) -> Option<u64> {
        let from = start.max((at + NEAR).saturating_sub(REACH));
        let to = end.saturating_sub(FAR).min(at + NEAR + REACH - 1);
        (from..=to).find(|hole| self.0.range(*hole..hole + FAR).next().is_none())
    }
}

fn far(at: u64, to: u64) -> Patch {
    let distance = to.wrapping_sub(at + FAR) as u32;
    let mut bytes = vec![0xe9];
    bytes.extend(distance.to_le_bytes());
    Patch { at: GuestVa(at), bytes }
}

/// How many bytes behind a function do nothing but fill up.
fn padding(image: &Image, bias: u64, end: GuestVa) -> u64 {
    let mut len = 0;
    while len < 16 {
        let own = end.0.wrapping_sub(bias) + len;
        let noted = image.notes.binary_search_by_key(&own, |n| n.start).is_ok();
        let bytes = (1..=15).rev().find_map(|n| image.bytes(own, n)).unwrap_or_default();
        match Inst::decode(bytes, end.offset(len)) {
            Ok(inst) if !noted && fills(&inst) => len += u64::from(inst.length()),
            _ => break,
        }
    }
    len
}

fn fills(inst: &Inst) -> bool {
    use iced_x86::Mnemonic;
    matches!(inst.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}
