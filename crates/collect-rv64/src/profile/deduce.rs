//! Executions deduced from arcs.
//!
//! Between two places where control enters or leaves, every instruction runs
//! equally often; at such a place the number changes by entries less departures:
//! `E(B) = E(A) + BT(B) - BF(A)` for neighbours A and B. Traps and the ends of
//! turns have an arc each, so the sums balance without further compensation.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashMap};

use ichnos_base::GuestVa;
use ichnos_isa_rv64::{Class, Insn, is_compressed};

use super::arcs::NOWHERE;
use super::words::Words;

/// A transfer of control and how often it was made. Traps, signals and threads'
/// starts and ends are among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arc {
    /// The end of the instruction that was left; none at a start.
    pub from: Option<GuestVa>,
    /// The instruction that was entered; none at an end.
    pub to: Option<GuestVa>,
    /// How often.
    pub count: u64,
}

/// How often an instruction ran and what it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed {
    /// Where it stands.
    pub pc: GuestVa,
    /// Its bytes, as a little-endian number; zero if they could not be read.
    pub word: u32,
    /// How often it retired.
    pub count: u64,
    /// Loads that it made.
    pub loads: u64,
    /// Stores that it made.
    pub stores: u64,
}

impl Executed {
    /// Its length in bytes: 2 or 4.
    #[must_use]
    pub const fn bytes(&self) -> u8 {
        if is_compressed(self.word) { 2 } else { 4 }
    }
}

/// What a profiled run comes to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Every instruction that ran, in order of address.
    pub executed: Vec<Executed>,
    /// Every arc, in order.
    pub arcs: Vec<Arc>,
    /// References that passed without being told: fetches, loads and stores,
    /// counted once for each line they touch.
    pub passed: [u64; 3],
    /// Fetches, loads and stores in all, counted once for each page of the TLB
    /// that they touch.
    pub translated: [u64; 3],
    /// Instructions retired by all threads.
    pub retired: u64,
}

/// Counts gathered so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    executed: BTreeMap<(u64, u32), u64>,
    arcs: BTreeMap<(u64, u64), u64>,
}

/// Loads and stores that were counted one by one.
pub(crate) type Irregular = HashMap<u64, [u64; 2]>;

impl Counts {
    /// Deduces what ran, and adds it.
    pub(crate) fn add(&mut self, arcs: HashMap<(u64, u64), u64>, words: &Words) {
        let mut change = BTreeMap::<u64, i64>::new();
        for (&(from, to), &count) in &arcs {
            for (at, by) in [(from, -(count as i64)), (to, count as i64)] {
                if at != NOWHERE {
                    *change.entry(at).or_default() += by;
                }
            }
            *self.arcs.entry((from, to)).or_default() += count;
        }
        change.retain(|_, by| *by != 0);
        let mut running = 0i64;
        let mut places = change.into_iter().peekable();
        while let Some((start, by)) = places.next() {
            running += by;
            let end = places.peek().map_or(start, |&(next, _)| next);
            if let Ok(count @ 1..) = u64::try_from(running) {
                words.between(start, end, |pc, word| {
                    *self.executed.entry((pc, word)).or_default() += count;
                });
            }
        }
    }

    /// The whole profile, and how many accesses it makes to lines. `line` and
    /// `page` are the sizes of lines of code and of pages as powers of two.
    pub(crate) fn finish(
        self,
        irregular: &Irregular,
        (line, page): (u32, u32),
    ) -> (Profile, [u64; 3]) {
        let mut accesses = [0; 3];
        let mut translated = [0; 3];
        let mut executed = Vec::with_capacity(self.executed.len());
        for ((pc, word), count) in self.executed {
            let [loads, stores] = match Insn::decode(word).map(|i| i.op.row().class) {
                Some(Class::Load) => [count, 0],
                Some(Class::Store) => [0, count],
                _ => irregular.get(&pc).copied().unwrap_or_default(),
            };
            let one = Executed { pc: GuestVa(pc), word, count, loads, stores };
            let last = pc.wrapping_add(u64::from(one.bytes()) - 1);
            let units = |shift: u32| if last >> shift == pc >> shift { count } else { 2 * count };
            for (sums, fetches) in [(&mut accesses, units(line)), (&mut translated, units(page))] {
                sums[0] += fetches;
                sums[1] += loads;
                sums[2] += stores;
            }
            executed.push(one);
        }
        let place = |at: u64| (at != NOWHERE).then_some(GuestVa(at));
        let arcs = self.arcs.into_iter();
        let arcs = arcs
            .map(|((from, to), count)| Arc { from: place(from), to: place(to), count })
            .collect();
        (Profile { executed, arcs, translated, ..Profile::default() }, accesses)
    }
}
