//! The machine code that a trace has told so far, by process and address.
//!
//! Memory is bounded by the program's code: a page of 4 KiB and a mask of the
//! bytes known for each page that executed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ichnos_base::{Code, Event, GuestVa, ProcessId, ThreadId};

/// A hasher for addresses and small ids: one multiplication, since these maps
/// are asked once or more for every instruction.
#[derive(Clone, Copy, Default)]
pub(crate) struct AddrHasher(u64);

impl Hasher for AddrHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(26) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A map from addresses and the like.
pub(crate) type AddrMap<K, V> = HashMap<K, V, BuildHasherDefault<AddrHasher>>;

const PAGE: u64 = 4096;

struct Page {
    bytes: [u8; PAGE as usize],
    known: [u64; PAGE as usize / 64],
}

/// The code of all processes of a trace.
#[derive(Default)]
pub(crate) struct CodeMap {
    pages: AddrMap<(u32, u64), Box<Page>>,
}

impl CodeMap {
    /// Takes note of code. Whether some of it replaces code that was different.
    pub(crate) fn add(&mut self, code: &Code<'_>) -> bool {
        let mut changed = false;
        for (i, &byte) in (0_u64..).zip(code.bytes) {
            let at = code.pc.0.wrapping_add(i);
            let page = self.pages.entry((code.process.0, at / PAGE)).or_insert_with(|| {
                Box::new(Page { bytes: [0; PAGE as usize], known: [0; PAGE as usize / 64] })
            });
            let within = (at % PAGE) as usize;
            let (word, bit) = (within / 64, 1_u64 << (within % 64));
            if let (Some(old), Some(known)) = (page.bytes.get_mut(within), page.known.get_mut(word))
            {
                changed |= *known & bit != 0 && *old != byte;
                *old = byte;
                *known |= bit;
            }
        }
        changed
    }

    /// The `len` bytes of code at `pc`, if all are known.
    pub(crate) fn get(&self, process: ProcessId, pc: GuestVa, len: u8) -> Option<CodeBytes> {
        let mut found = CodeBytes { bytes: [0; 16], len };
        for (i, slot) in (0_u64..).zip(found.bytes.get_mut(..usize::from(len))?) {
            let at = pc.0.wrapping_add(i);
            let page = self.pages.get(&(process.0, at / PAGE))?;
            let within = (at % PAGE) as usize;
            if page.known.get(within / 64)? >> (within % 64) & 1 == 0 {
                return None;
            }
            *slot = *page.bytes.get(within)?;
        }
        Some(found)
    }
}

/// The bytes of one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CodeBytes {
    bytes: [u8; 16],
    len: u8,
}

impl CodeBytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Which process each thread runs in.
#[derive(Default)]
pub(crate) struct Processes(AddrMap<u32, ProcessId>);

impl Processes {
    pub(crate) fn note(&mut self, thread: ThreadId, event: &Event<'_>) {
        if let Event::ThreadStart(start) = event {
            self.0.insert(thread.0, start.process);
        }
    }

    /// The process of a thread; 0 for one whose start was not told.
    pub(crate) fn of(&self, thread: ThreadId) -> ProcessId {
        self.0.get(&thread.0).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_across_pages_and_changes_are_noticed() {
        let mut map = CodeMap::default();
        let process = ProcessId(1);
        let code = |pc, bytes| Code { process, pc: GuestVa(pc), bytes };
        assert!(!map.add(&code(0xffe, &[1, 2, 3, 4])));
        let found = map.get(process, GuestVa(0xfff), 3).expect("all told");
        assert_eq!(found.as_slice(), [2, 3, 4]);
        assert_eq!(map.get(process, GuestVa(0xfff), 4), None);
        assert_eq!(map.get(ProcessId(0), GuestVa(0xfff), 3), None);
        assert_eq!(map.get(process, GuestVa(0xffe), 17), None);
        assert!(!map.add(&code(0x1000, &[3, 4, 5])));
        assert!(map.add(&code(0x1001, &[9])));
        // The last byte of the address space is followed by the first.
        assert!(!map.add(&code(u64::MAX, &[7, 8])));
        assert_eq!(map.get(process, GuestVa(u64::MAX), 2).expect("told").as_slice(), [7, 8]);
    }
}
