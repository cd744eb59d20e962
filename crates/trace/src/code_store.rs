//! The machine code that a collector told, byte by byte per address space.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Code, GuestVa, ProcessId};

use crate::hash::QuickMap;

const PAGE: u64 = 4096;

/// Code bytes as last told.
#[derive(Debug, Default)]
pub(crate) struct CodeStore {
    pages: QuickMap<(u32, u64), Box<Page>>,
}

#[derive(Debug)]
struct Page {
    bytes: [u8; PAGE as usize],
    known: [bool; PAGE as usize],
}

impl CodeStore {
    /// Keeps the bytes.
    pub(crate) fn learn(&mut self, code: &Code<'_>) {
        for (i, byte) in (0..).zip(code.bytes) {
            let pc = code.pc.offset(i).0;
            let page = self.pages.entry((code.process.0, pc / PAGE)).or_insert_with(|| {
                Box::new(Page { bytes: [0; PAGE as usize], known: [false; PAGE as usize] })
            });
            let at = (pc % PAGE) as usize;
            page.bytes[at] = *byte;
            page.known[at] = true;
        }
    }

    /// Whether all these bytes are known to be so.
    pub(crate) fn knows(&self, code: &Code<'_>) -> bool {
        (0..).zip(code.bytes).all(|(i, byte)| {
            let pc = code.pc.offset(i).0;
            let at = (pc % PAGE) as usize;
            let page = self.pages.get(&(code.process.0, pc / PAGE));
            page.is_some_and(|page| page.known[at] && page.bytes[at] == *byte)
        })
    }

    /// The `len` bytes at `pc`, if all of them are known.
    pub(crate) fn get(&self, process: ProcessId, pc: GuestVa, len: u8, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        for i in 0..u64::from(len) {
            let pc = pc.offset(i).0;
            let at = (pc % PAGE) as usize;
            match self.pages.get(&(process.0, pc / PAGE)) {
                Some(page) if page.known[at] => out.push(page.bytes[at]),
                _ => {
                    out.truncate(before);
                    return false;
                }
            }
        }
        true
    }
}
