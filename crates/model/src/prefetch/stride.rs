//! Stride prefetching per instruction (Chen and Baer, 1995): a table indexed by
//! pc remembers each instruction's last address and the difference to the one
//! before; once the same difference has come twice running, the addresses that
//! continue it are asked for.
//!
//! Each entry goes through the paper's four states. Entries are direct mapped
//! and checked by pc.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, LineAddr};

use super::{Prefetcher, Seen, Wanted};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Initial,
    Transient,
    Steady,
    NoPrediction,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    pc: GuestVa,
    last: GuestVa,
    stride: u64,
    state: State,
    used: bool,
}

/// A stride per instruction.
#[derive(Debug)]
pub struct Stride {
    degree: u64,
    line_shift: u32,
    entries: Box<[Entry]>,
}

impl Stride {
    /// Watches `entries` instructions (a power of two) and looks `degree`
    /// strides ahead, in lines of `1 << line_shift` bytes.
    #[must_use]
    pub fn new(degree: u32, entries: u32, line_shift: u32) -> Self {
        let entries = vec![Entry::default(); entries.max(1) as usize].into_boxed_slice();
        Self { degree: u64::from(degree), line_shift, entries }
    }
}

impl Entry {
    /// One step of the paper's state machine.
    fn update(&mut self, addr: GuestVa) {
        let stride = addr.since(self.last);
        let correct = stride == self.stride;
        self.state = match (self.state, correct) {
            (State::Initial | State::Transient | State::Steady, true) => State::Steady,
            (State::Initial, false) => State::Transient,
            (State::Transient, false) => State::NoPrediction,
            (State::Steady, false) => State::Initial,
            (State::NoPrediction, true) => State::Transient,
            (State::NoPrediction, false) => State::NoPrediction,
        };
        // A steady stride survives one exception, such as the end of a row.
        if !(correct || self.state == State::Initial) {
            self.stride = stride;
        }
        self.last = addr;
    }
}

impl Prefetcher for Stride {
    fn access(&mut self, seen: &Seen, wanted: &mut Wanted) {
        let at = (seen.pc.0 ^ (seen.pc.0 >> 16)) as usize & (self.entries.len() - 1);
        let Some(entry) = self.entries.get_mut(at) else { return };
        if !entry.used || entry.pc != seen.pc {
            *entry = Entry { pc: seen.pc, last: seen.addr, used: true, ..Entry::default() };
            return;
        }
        entry.update(seen.addr);
        if entry.state != State::Steady || entry.stride == 0 {
            return;
        }
        let mut previous: LineAddr = seen.line;
        for ahead in 1..=self.degree {
            let line = seen.addr.offset(entry.stride.wrapping_mul(ahead)).line(self.line_shift);
            if line != previous && line != seen.line {
                wanted.push(line);
            }
            previous = line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    fn ask(stride: &mut Stride, addr: u64) -> Vec<u64> {
        let addr = GuestVa(addr);
        let mut wanted = Wanted::new();
        let seen = Seen { pc: GuestVa(0x400), addr, line: addr.line(6), outcome: Outcome::Miss };
        stride.access(&seen, &mut wanted);
        wanted.lines().iter().map(|l| l.0).collect()
    }

    #[test]
    fn learns_a_stride_and_forgives_one_exception() {
        let mut stride = Stride::new(2, 16, 6);
        assert_eq!(ask(&mut stride, 0), []);
        assert_eq!(ask(&mut stride, 256), []);
        assert_eq!(ask(&mut stride, 512), [12, 16]);
        assert_eq!(ask(&mut stride, 768), [16, 20]);
        // A new row: steady falls back to initial but keeps the stride.
        assert_eq!(ask(&mut stride, 0x10000), []);
        assert_eq!(ask(&mut stride, 0x10100), [0x408, 0x40c]);
    }
}
