//! What translated code stores, as far as is needed to see from a buffer which way a thread went.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use super::hash::Fast;
use super::translate::Told;
use crate::words::{self, EVENT_LEN, FIRST_EVENT, FIRST_WIDE, Run, WIDE_HEAD, u32_at};

/// Bytes of an identifier.
const TAG: usize = 4;

/// How long an item is behind its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Each piece stores words of its own.
    Words,
    /// So many bytes, for an instruction whose accesses vary.
    Fixed(u16),
    /// What the engine tells of such an instruction.
    Runs,
}

/// All items by identifier.
#[derive(Default)]
pub struct Items {
    known: HashMap<u32, Item, Fast>,
    /// Where blocks begin: those of each superblock or path together.
    entries: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Item {
    first: u32,
    blocks: u8,
    len: u16,
    length: Length,
}

/// A block that was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Where it begins; zero for anything else that lies in a stream.
    pub entry: u64,
    /// Whether an item begins with it.
    pub begins: bool,
}

impl Items {
    /// Adds what the host is told of.
    pub fn add(&mut self, told: &Told) {
        let first = self.entries.len() as u32;
        self.entries.extend(told.pieces.iter().map(|piece| piece.0));
        let item = |first, blocks, len| Item { first, blocks, len, length: told.length };
        let mut whole = TAG as u16;
        for (i, &(_, bytes)) in told.pieces.iter().enumerate() {
            whole += bytes;
            let (piece, number) = (i as u32, told.pieces.len() as u32);
            if told.is_path && i > 0 {
                let identifier = told.first + number + piece - 1;
                self.known.insert(identifier, item(first, i as u8 + 1, whole));
            } else {
                let len = TAG as u16 + bytes;
                self.known.insert(told.first + piece, item(first + piece, 1, len));
            }
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.known.clear();
        self.entries.clear();
    }

    /// What ran, from the beginning of a buffer on, as far as is known; at most some more than `most` blocks.
    pub fn read(&self, bytes: &[u8], most: usize) -> Vec<Ran> {
        const ELSE: Ran = Ran { entry: 0, begins: true };
        let mut out = Vec::with_capacity(most);
        let mut at = 0;
        while let Some(tag) = u32_at(bytes, at).filter(|&tag| tag != 0 && out.len() < most) {
            if tag >= FIRST_EVENT {
                out.push(ELSE);
                at += match tag {
                    FIRST_WIDE.. => match u32_at(bytes, at + TAG) {
                        Some(len) => WIDE_HEAD + len as usize,
                        None => break,
                    },
                    words::INSTEAD => words::INSTEAD_LEN,
                    _ => EVENT_LEN,
                };
                continue;
            }
            let Some(item) = self.known.get(&tag) else { break };
            if item.length != Length::Words {
                out.push(ELSE);
            }
            match item.length {
                Length::Words => {
                    let entries = &self.entries[item.first as usize..][..usize::from(item.blocks)];
                    let ran = |(i, &entry): (usize, &u64)| Ran { entry, begins: i == 0 };
                    out.extend(entries.iter().enumerate().map(ran));
                    at += usize::from(item.len);
                }
                Length::Fixed(len) => at += TAG + usize::from(len),
                Length::Runs => match runs(bytes, at + TAG) {
                    Some(end) => at = end,
                    None => break,
                },
            }
        }
        out
    }
}

/// Where runs of accesses end.
fn runs(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at + size_of::<u32>();
    for _ in 0..u32_at(bytes, at)? {
        (_, end) = Run::parse(bytes, end)?;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(first: u32, pieces: &[(u64, u16)], is_path: bool, length: Length) -> Told {
        Told { is_path, length, ..Told::new(&[], first, pieces.to_vec()) }
    }

    #[test]
    fn streams_say_what_ran() {
        let mut items = Items::default();
        items.add(&told(7, &[(0x1000, 8), (0x1010, 4)], false, Length::Words));
        items.add(&told(9, &[(0x2000, 0), (0x3000, 4), (0x4000, 8)], true, Length::Words));
        items.add(&told(20, &[(0x5000, 0)], false, Length::Fixed(6)));
        items.add(&told(21, &[(0x6000, 0)], false, Length::Runs));
        let mut bytes = Vec::new();
        let mut put = |tag: u32, len: usize| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(std::iter::repeat_n(0xee_u8, len));
        };
        put(words::TIME, 8);
        put(7, 8);
        put(8, 4);
        // The path's first block, its first two, and all.
        put(9, 0);
        put(12, 4);
        put(13, 12);
        put(20, 6);
        bytes.extend(21_u32.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        let lane = words::Lane { what: 0, size: 1, base: 2, stride: 3 };
        Run { turns: 5, lanes: [Some(lane), None] }.put(&mut bytes);
        bytes.extend((words::SYSCALL).to_le_bytes());
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend([1, 2, 3]);
        bytes.extend(7_u32.to_le_bytes());
        bytes.extend([0; 8]);
        let shown = |most| {
            let ran = items.read(&bytes, most);
            ran.iter().map(|r| (r.entry, r.begins)).collect::<Vec<_>>()
        };
        let want = [
            (0, true),
            (0x1000, true),
            (0x1010, true),
            (0x2000, true),
            (0x2000, true),
            (0x3000, false),
            (0x2000, true),
            (0x3000, false),
            (0x4000, false),
            (0, true),
            (0, true),
            (0, true),
            (0x1000, true),
        ];
        assert_eq!(shown(100), want);
        assert_eq!(shown(2), want[..2]);
        // What is unknown or cut ends it.
        assert_eq!(items.read(&99_u32.to_le_bytes(), 9), []);
        let cut = &21_u32.to_le_bytes()[..];
        assert_eq!(items.read(cut, 9).len(), 1);
    }
}
