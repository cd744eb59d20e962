//! Words that follow from what memory must hold: a real sort of indices, whose
//! look-ups are as good as random to any predictor that does not follow the indices
//! through memory, comes back exactly and small.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::*;
use ichnos_replay::Replay;
use ichnos_trace::{Options, Reader, Writer};

const INDICES: u64 = 0x10_0000;
const BYTES: u64 = 0x80_0000;
const SHORTS: u64 = 0xa0_0000;

/// A sort of indices by what they point at, written down access by access.
struct Sort {
    indices: Vec<u32>,
    keys: Vec<u32>,
    records: Vec<Record>,
    /// Look-ups through an index.
    lookups: u64,
}

impl Sort {
    fn new(count: u32) -> Self {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32
        };
        let mut indices: Vec<u32> = (0..count).collect();
        for at in (1..indices.len()).rev() {
            indices.swap(at, random() as usize % (at + 1));
        }
        let keys = (0..count).map(|_| random()).collect();
        Self { indices, keys, records: Vec::new(), lookups: 0 }
    }

    fn load(&mut self, pc: u64, addr: u64, size: u32) {
        self.records.push(Record::insn(GuestVa(pc), 4, InsnKind::OTHER));
        self.records.push(Record::load(GuestVa(addr), size));
    }

    fn store(&mut self, pc: u64, addr: u64) {
        self.records.push(Record::insn(GuestVa(pc), 4, InsnKind::OTHER));
        self.records.push(Record::store(GuestVa(addr), 4));
    }

    fn key(&mut self, at: usize) -> u32 {
        let index = self.indices[at];
        self.load(0x1000, INDICES + at as u64 * 4, 4);
        self.load(0x1004, BYTES + u64::from(index), 1);
        self.load(0x1008, SHORTS + u64::from(index) * 2, 2);
        self.lookups += 2;
        self.keys[index as usize]
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.load(0x2000, INDICES + a as u64 * 4, 4);
        self.load(0x2004, INDICES + b as u64 * 4, 4);
        self.store(0x2008, INDICES + a as u64 * 4);
        self.store(0x200c, INDICES + b as u64 * 4);
        self.indices.swap(a, b);
    }

    fn sort(&mut self, lo: usize, hi: usize) {
        if hi - lo < 2 {
            return;
        }
        let pivot = self.key(hi - 1);
        let mut store = lo;
        for at in lo..hi - 1 {
            if self.key(at) < pivot {
                self.swap(at, store);
                store += 1;
            }
        }
        self.swap(store, hi - 1);
        self.sort(lo, store);
        self.sort(store + 1, hi);
    }
}

fn packed(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    writer.records(&Batch::new(ThreadId(0), 0, records)).expect("written");
    writer.finish().expect("finished");
    writer.into_inner()
}

struct Compare<'a> {
    rest: &'a [Record],
}

impl Sink for Compare<'_> {
    type Error = std::convert::Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        let (now, later) = self.rest.split_at(batch.records.len());
        assert_eq!(batch.records, now);
        self.rest = later;
        Ok(true)
    }
}

#[test]
fn sorted_indices_are_followed_through_memory() {
    let mut sort = Sort::new(4096);
    sort.sort(0, 4096);
    let keys: Vec<u32> = sort.indices.iter().map(|i| sort.keys[*i as usize]).collect();
    assert!(keys.is_sorted());
    let bytes = packed(&sort.records);
    let bits = bytes.len() as f64 * 8.0 / sort.lookups as f64;
    // Twelve bits tell one of 4096 indices; half of the look-ups follow from the other half.
    assert!(bits < 4.0, "{bits} bits a look-up, {} look-ups", sort.lookups);
    let reader = Reader::from_bytes(bytes).expect("it opens");
    let mut compare = Compare { rest: &sort.records };
    Replay::new(&reader).drive(&mut compare).expect("it replays");
    assert!(compare.rest.is_empty());
}
