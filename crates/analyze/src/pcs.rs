//! A dense number for each instruction of each process, so that counters can
//! live in plain vectors. Memory: about 40 bytes per distinct instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, ProcessId};

use crate::hash::FastMap;

const RECENT: usize = 4096;

/// Instructions in order of first appearance.
#[derive(Debug)]
pub(crate) struct Pcs {
    numbers: FastMap<(u32, u64), u32>,
    keys: Vec<(ProcessId, GuestVa)>,
    /// The number plus one (0: none) of an instruction met lately.
    recent: Box<[(u64, u32, u32); RECENT]>,
}

impl Default for Pcs {
    fn default() -> Self {
        Self {
            numbers: FastMap::default(),
            keys: Vec::new(),
            recent: Box::new([(0, 0, 0); RECENT]),
        }
    }
}

impl Pcs {
    /// The instruction's number: the next free one if it is new.
    #[inline]
    pub fn number(&mut self, process: ProcessId, pc: GuestVa) -> usize {
        let slot = (pc.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % RECENT;
        let (addr, owner, number) = self.recent[slot];
        if addr == pc.0 && owner == process.0 && number != 0 {
            return number as usize - 1;
        }
        self.look_up(process, pc, slot)
    }

    #[inline(never)]
    fn look_up(&mut self, process: ProcessId, pc: GuestVa, slot: usize) -> usize {
        // Four thousand million distinct instructions do not fit in memory.
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX - 1);
        let number = *self.numbers.entry((process.0, pc.0)).or_insert(next);
        if number == next {
            self.keys.push((process, pc));
        }
        self.recent[slot] = (pc.0, process.0, number + 1);
        number as usize
    }

    /// All instructions, by number.
    pub fn keys(&self) -> &[(ProcessId, GuestVa)] {
        &self.keys
    }
}
