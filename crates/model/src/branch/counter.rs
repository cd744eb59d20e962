//! Saturating counters of a few bits.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A table of two-bit counters, each beginning at weakly not taken (1).
#[derive(Clone, Debug)]
pub(super) struct Counters {
    values: Box<[u8]>,
    mask: usize,
    most: u8,
}

impl Counters {
    /// `1 << log_entries` counters of two bits.
    pub(super) fn new(log_entries: u32) -> Self {
        Self::with_bits(log_entries, 2)
    }

    /// `1 << log_entries` counters of `bits` bits.
    pub(super) fn with_bits(log_entries: u32, bits: u32) -> Self {
        let most = ((1u32 << bits) - 1) as u8;
        let entries = 1usize << log_entries;
        Self { values: vec![most / 2; entries].into_boxed_slice(), mask: entries - 1, most }
    }

    /// Whether the counter at `index` (modulo the table) says yes.
    #[inline]
    pub(super) fn get(&self, index: u64) -> bool {
        self.values[index as usize & self.mask] > self.most / 2
    }

    /// Moves the counter towards `up` or away.
    #[inline]
    pub(super) fn train(&mut self, index: u64, up: bool) {
        let value = &mut self.values[index as usize & self.mask];
        *value = if up { (*value + 1).min(self.most) } else { value.saturating_sub(1) };
    }
}
