//! The instruction mix: how many instructions of each kind, how long they are,
//! what they do to memory and control flow.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{AccessFlags, Batch, InsnKind, Record, Sink, Totals};

/// The mix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InsnMixReport {
    /// Counts of records.
    pub totals: Totals,
    /// Instructions by kind, kinds that occurred only.
    pub kinds: Vec<(InsnKind, u64)>,
    /// Instructions by length: `lengths[n]` have `n` bytes.
    pub lengths: Vec<u64>,
    /// Loads by size in bytes, ascending, sizes that occurred only.
    pub load_sizes: Vec<(u32, u64)>,
    /// Stores by size in bytes, ascending, sizes that occurred only.
    pub store_sizes: Vec<(u32, u64)>,
    /// Bytes loaded.
    pub bytes_loaded: u64,
    /// Bytes stored.
    pub bytes_stored: u64,
    /// Accesses that are part of an atomic operation.
    pub atomic: u64,
    /// Accesses to the stack by push, pop, call and return.
    pub stack: u64,
    /// Accesses that ask not to disturb the caches.
    pub non_temporal: u64,
}

/// Counts instructions and accesses by what they are.
#[derive(Debug)]
pub struct InsnMix {
    totals: Totals,
    kinds: Box<[u64; 256]>,
    lengths: Box<[u64; 256]>,
    loads: Sizes,
    stores: Sizes,
    atomic: u64,
    stack: u64,
    non_temporal: u64,
}

/// Sizes up to 64 in a table, the rare others in a list.
#[derive(Debug)]
struct Sizes {
    small: [u64; 65],
    large: Vec<(u32, u64)>,
    bytes: u64,
}

impl Sizes {
    const fn new() -> Self {
        Self { small: [0; 65], large: Vec::new(), bytes: 0 }
    }

    #[inline]
    fn count(&mut self, size: u32) {
        self.bytes += u64::from(size);
        match self.small.get_mut(size as usize) {
            Some(count) => *count += 1,
            None => self.count_large(size),
        }
    }

    #[cold]
    fn count_large(&mut self, size: u32) {
        match self.large.binary_search_by_key(&size, |&(s, _)| s) {
            Ok(at) => self.large[at].1 += 1,
            Err(at) => self.large.insert(at, (size, 1)),
        }
    }

    fn list(&self) -> Vec<(u32, u64)> {
        let small = (0u32..).zip(self.small).filter(|&(_, count)| count > 0);
        small.chain(self.large.iter().copied()).collect()
    }
}

impl InsnMix {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            totals: Totals::default(),
            kinds: Box::new([0; 256]),
            lengths: Box::new([0; 256]),
            loads: Sizes::new(),
            stores: Sizes::new(),
            atomic: 0,
            stack: 0,
            non_temporal: 0,
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> InsnMixReport {
        let kinds = (0u8..=255).map(InsnKind).zip(self.kinds.iter().copied());
        let longest = self.lengths.iter().rposition(|&n| n > 0).map_or(0, |at| at + 1);
        InsnMixReport {
            totals: self.totals,
            kinds: kinds.filter(|&(_, count)| count > 0).collect(),
            lengths: self.lengths[..longest].to_vec(),
            load_sizes: self.loads.list(),
            store_sizes: self.stores.list(),
            bytes_loaded: self.loads.bytes,
            bytes_stored: self.stores.bytes,
            atomic: self.atomic,
            stack: self.stack,
            non_temporal: self.non_temporal,
        }
    }

    #[inline]
    fn flags(&mut self, flags: AccessFlags) {
        self.atomic += u64::from(flags.has(AccessFlags::ATOMIC));
        self.stack += u64::from(flags.has(AccessFlags::STACK));
        self.non_temporal += u64::from(flags.has(AccessFlags::NON_TEMPORAL));
    }
}

impl Default for InsnMix {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for InsnMix {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            self.totals.count(record);
            match *record {
                Record::Insn { len, kind, .. } => {
                    self.kinds[kind.0 as usize] += 1;
                    self.lengths[len as usize] += 1;
                }
                Record::Load { flags, size, .. } => {
                    self.loads.count(size);
                    self.flags(flags);
                }
                Record::Store { flags, size, .. } => {
                    self.stores.count(size);
                    self.flags(flags);
                }
                _ => {}
            }
        }
        Ok(true)
    }
}
