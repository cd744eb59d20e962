//! Signals that the kernel has handed over and the program has not got yet.
//!
//! Written by the signal handler and read by the dispatcher of the same thread; the handler
//! blocks further signals as soon as one waits, so a few places are enough.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A signal that waits.
#[derive(Clone, Copy)]
pub struct Pending {
    /// Its number.
    pub number: i32,
    /// Whether an instruction of the program caused it.
    pub fault: bool,
    /// The kernel's `siginfo_t`.
    pub info: [u64; 16],
    /// What the kernel says about the fault: error code, trap number, address.
    pub trap: [u64; 3],
}

/// A few signals, oldest first.
pub struct Queue {
    items: [Pending; Self::ROOM],
    len: usize,
}

impl Queue {
    const ROOM: usize = 8;

    /// Empty.
    pub const fn new() -> Self {
        let none = Pending { number: 0, fault: false, info: [0; 16], trap: [0; 3] };
        Self { items: [none; Self::ROOM], len: 0 }
    }

    /// Adds one; false if there is no room. An ordinary signal that waits already does not wait twice.
    pub fn push(&mut self, item: Pending) -> bool {
        const FIRST_QUEUED: i32 = 32;
        let waits = |p: &Pending| !p.fault && p.number == item.number;
        if !item.fault && item.number < FIRST_QUEUED && self.items[..self.len].iter().any(waits) {
            return true;
        }
        let Some(place) = self.items.get_mut(self.len) else { return false };
        *place = item;
        self.len += 1;
        true
    }

    /// Takes the first for which `ready` holds; faults come before others.
    pub fn take(&mut self, ready: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let items = &self.items[..self.len];
        let i = items.iter().position(|p| p.fault).or_else(|| items.iter().position(ready))?;
        let item = self.items[i];
        self.items.copy_within(i + 1..self.len, i);
        self.len -= 1;
        Some(item)
    }

    /// The signals that wait, as a set.
    pub fn set(&self) -> u64 {
        self.items[..self.len].iter().fold(0, |set, p| set | 1 << (p.number - 1))
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
