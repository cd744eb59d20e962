//! The map from a fragment's code back to the program's, kept small: there are two places for each instruction, and next to nobody
//! ever asks for one.
//!
//! A site is what differs from the one before it: mostly two small distances, which take a byte. Otherwise a byte says that more follows,
//! and which of the other fields do: the distances as numbers of seven bits a byte, then those fields.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::emit::Gp;
use super::fragment::{Site, Spills};
use super::home::Home;

/// The first byte of a site that takes more than that.
const LONG: u8 = 0x80;
/// The distances that fit into a byte.
const SHORT_OFFSET: u32 = 16;
const SHORT_PC: u64 = 8;

const SPILLS: u8 = 1;
const LOST: u8 = 2;
const HOME: u8 = 4;
const BITS: u8 = 8;
const REST: u8 = 16;
const BLOCK: u8 = 32;
const BEGUN: u8 = 64;
const PART: u8 = 128;

/// The sites of a fragment, in order.
#[derive(Debug)]
pub struct Sites(Box<[u8]>);

impl Sites {
    /// Those of a fragment that translates the code at `pc` and begins at this offset of theirs.
    pub fn new(sites: &[Site], from: u32, pc: u64) -> Self {
        let mut bytes = Vec::with_capacity(4 * sites.len());
        let mut last = before(pc);
        for site in sites {
            let site = Site { offset: site.offset - from, ..*site };
            write(&mut bytes, &last, &site);
            last = site;
        }
        Self(bytes.into())
    }

    /// All of them; the fragment translates the code at `pc`.
    pub fn iter(&self, pc: u64) -> impl Iterator<Item = Site> {
        let (mut bytes, mut last) = (&*self.0, before(pc));
        std::iter::from_fn(move || {
            last = read(&mut bytes, &last)?;
            Some(last)
        })
    }
}

/// What comes before the first.
const fn before(pc: u64) -> Site {
    Site {
        offset: 0,
        spills: Spills::NONE,
        pc,
        lost: 0,
        home: Home::Nowhere,
        probe: false,
        rest: 0,
        block: 0,
        flags: false,
        begun: 0,
        part: 0,
    }
}

fn write(bytes: &mut Vec<u8>, last: &Site, site: &Site) {
    let (offset, pc) = (site.offset.wrapping_sub(last.offset), site.pc.wrapping_sub(last.pc));
    let fields = differing(last, site);
    if fields == 0 && offset < SHORT_OFFSET && pc < SHORT_PC {
        bytes.push((offset as u8) << 3 | pc as u8);
        return;
    }
    bytes.extend([LONG, fields]);
    number(bytes, u64::from(offset));
    // Both ways are short.
    number(bytes, pc << 1 ^ ((pc as i64) >> 63) as u64);
    let mut field = |bit: u8, value: &[u8]| {
        if fields & bit != 0 {
            bytes.extend_from_slice(value);
        }
    };
    field(SPILLS, &[site.spills.0]);
    field(LOST, &site.lost.to_le_bytes());
    field(HOME, &[home_byte(site.home)]);
    field(BITS, &[u8::from(site.probe) | u8::from(site.flags) << 1]);
    field(REST, &[site.rest]);
    field(BLOCK, &site.block.to_le_bytes());
    field(BEGUN, &site.begun.to_le_bytes());
    field(PART, &[site.part]);
}

fn differing(last: &Site, site: &Site) -> u8 {
    let bits = [
        (SPILLS, last.spills != site.spills),
        (LOST, last.lost != site.lost),
        (HOME, last.home != site.home),
        (BITS, (last.probe, last.flags) != (site.probe, site.flags)),
        (REST, last.rest != site.rest),
        (BLOCK, last.block != site.block),
        (BEGUN, last.begun != site.begun),
        (PART, last.part != site.part),
    ];
    bits.into_iter().filter(|(_, differs)| *differs).fold(0, |set, (bit, _)| set | bit)
}

fn read(bytes: &mut &[u8], last: &Site) -> Option<Site> {
    let [first] = take(bytes)?;
    if first & LONG == 0 {
        let (offset, pc) = (u32::from(first >> 3), u64::from(first & 7));
        return Some(Site { offset: last.offset + offset, pc: last.pc.wrapping_add(pc), ..*last });
    }
    let [fields] = take(bytes)?;
    let mut site = *last;
    site.offset = last.offset.wrapping_add(value(bytes)? as u32);
    let pc = value(bytes)?;
    site.pc = last.pc.wrapping_add(pc >> 1 ^ (pc & 1).wrapping_neg());
    let has = |bit: u8| fields & bit != 0;
    if has(SPILLS) {
        let [spills] = take(bytes)?;
        site.spills = Spills(spills);
    }
    if has(LOST) {
        site.lost = u16::from_le_bytes(take(bytes)?);
    }
    if has(HOME) {
        let [home] = take(bytes)?;
        site.home = home_of(home);
    }
    if has(BITS) {
        let [bits] = take(bytes)?;
        (site.probe, site.flags) = (bits & 1 != 0, bits & 2 != 0);
    }
    if has(REST) {
        [site.rest] = take(bytes)?;
    }
    if has(BLOCK) {
        site.block = u32::from_le_bytes(take(bytes)?);
    }
    if has(BEGUN) {
        site.begun = u16::from_le_bytes(take(bytes)?);
    }
    if has(PART) {
        [site.part] = take(bytes)?;
    }
    Some(site)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn value(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take(bytes)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

const fn home_byte(home: Home) -> u8 {
    match home {
        Home::Nowhere => 0,
        Home::Context => 1,
        Home::Register(reg) => 0x10 | reg.0,
        Home::Scratch(reg) => 0x20 | reg.0,
    }
}

const fn home_of(byte: u8) -> Home {
    match byte {
        0 => Home::Nowhere,
        1 => Home::Context,
        0x10..0x20 => Home::Register(Gp(byte & 15)),
        _ => Home::Scratch(Gp(byte & 15)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let mut random = 1_u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        for _ in 0..500 {
            let pc = below(1 << 31) << 16;
            let mut site = Site { offset: 40, ..before(pc) };
            let mut sites = Vec::new();
            for _ in 0..below(60) {
                site.offset += below(24) as u32;
                site.pc = match below(12) {
                    0 => below(1 << 31) << 33 | below(1 << 31),
                    1 => site.pc - below(100),
                    _ => site.pc + below(11),
                };
                match below(30) {
                    0 => site.spills = Spills(below(256) as u8),
                    1 => site.lost = below(1 << 16) as u16,
                    2 => site.home = home_of([0, 1, 0x1b, 0x25, 0x1f, 0x20][below(6) as usize]),
                    3 => site.probe = !site.probe,
                    4 => site.rest = below(256) as u8,
                    5 => site.block = below(1 << 31) as u32,
                    6 => site.flags = !site.flags,
                    7 => site.begun = below(1 << 16) as u16,
                    8 => site.part = below(256) as u8,
                    _ => {}
                }
                sites.push(site);
            }
            let kept = Sites::new(&sites, 40, pc);
            let expected: Vec<Site> =
                sites.iter().map(|site| Site { offset: site.offset - 40, ..*site }).collect();
            assert_eq!(kept.iter(pc).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn plain_code_takes_a_byte_for_each_place() {
        let site = |i: u32| Site { offset: 5 * i, pc: 0x7000 + 4 * u64::from(i), ..before(0) };
        let sites: Vec<Site> = (0..40).map(site).collect();
        assert_eq!(Sites::new(&sites, 0, 0x7000).0.len(), sites.len());
    }
}
