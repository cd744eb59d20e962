//! Functions that cannot but call another one first: in P_exec the events of both are one check.
//!
//! Many small functions begin with a call, as accessors do that look up what they work on. Where nothing but plain
//! instructions lies between a function's first instruction and its first call, the caller's event counts the
//! callee's as well, and the call goes past it. The count stays exact; but a thread changes sides at the first
//! of such functions, so that a sample may begin a few events early (fewer than [`MOST`]). P_inst counts every event by
//! itself: a sample has as many as it should.
//!
//! A signal handler that is entered between the two and changes sides has the callee's event counted before it
//! happens; so has one that leaves a fault there by a jump, and then it never happens.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use ichnos_base::GuestVa;
use ichnos_isa_x86::Flow;

use super::function::Function;

/// The most events that are one check.
const MOST: usize = 8;

/// Which events are one check with those of their callers.
#[derive(Default)]
pub(super) struct Chains {
    /// Functions, with their first call and what it calls.
    first: HashMap<GuestVa, (GuestVa, GuestVa)>,
}

impl Chains {
    /// Looks at a function whose entry is an event; `entries` are where control can come to in it.
    pub(super) fn add(&mut self, function: &Function, entries: &HashSet<GuestVa>) {
        for inst in &function.insts {
            if inst.pc() != function.start && entries.contains(&inst.pc()) {
                return;
            }
            match inst.flow() {
                Flow::Next => {}
                Flow::Call(to) => {
                    self.first.insert(function.start, (inst.pc(), to));
                    return;
                }
                _ => return,
            }
        }
    }

    /// All functions are known; these have events. Answers the calls that go past an event, and how many events
    /// each function's check counts if it is more than one.
    pub(super) fn settle(
        self,
        starts: &HashSet<GuestVa>,
    ) -> (HashSet<GuestVa>, HashMap<GuestVa, i32>) {
        let (mut past, mut weights) = (HashSet::new(), HashMap::new());
        for (function, (call, _)) in &self.first {
            let behind = self.behind(*function, starts).map_or(0, |n| n % MOST);
            if behind > 0 {
                past.insert(*call);
                weights.insert(*function, behind as i32 + 1);
            }
        }
        (past, weights)
    }

    /// How many functions with events are called one by the other, each first of all, beginning at this one; nothing if there is no
    /// end to it.
    fn behind(&self, function: GuestVa, starts: &HashSet<GuestVa>) -> Option<usize> {
        let mut at = function;
        for behind in 0..=self.first.len() {
            match self.first.get(&at) {
                Some((_, to)) if starts.contains(to) => at = *to,
                _ => return Some(behind),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions at multiples of 16 that call each other first.
    fn chains(calls: &[(u64, u64)]) -> Chains {
        let at = |n: u64| GuestVa(16 * n);
        let first = calls.iter().map(|(from, to)| (at(*from), (at(*from).offset(4), at(*to))));
        Chains { first: first.collect() }
    }

    fn weights(calls: &[(u64, u64)], starts: impl Iterator<Item = u64>) -> Vec<(u64, i32)> {
        let starts = starts.map(|n| GuestVa(16 * n)).collect();
        let (past, weights) = chains(calls).settle(&starts);
        assert!(weights.keys().all(|function| past.contains(&function.offset(4))));
        assert_eq!(past.len(), weights.len());
        let mut weights: Vec<_> = weights.iter().map(|(at, weight)| (at.0 / 16, *weight)).collect();
        weights.sort_unstable();
        weights
    }

    #[test]
    fn a_check_counts_what_its_calls_go_past() {
        assert_eq!(weights(&[(1, 2), (2, 3), (4, 3)], 1..5), [(1, 3), (2, 2), (4, 2)]);
    }

    #[test]
    fn calls_of_what_is_no_event_are_not_counted() {
        assert_eq!(weights(&[(1, 2), (2, 3)], 1..3), [(1, 2)]);
    }

    #[test]
    fn who_calls_himself_first_has_no_end() {
        assert_eq!(weights(&[(1, 1), (2, 1), (3, 4), (4, 3)], 1..5), []);
    }

    #[test]
    fn long_chains_are_cut() {
        let calls: Vec<_> = (1..20).map(|n| (n, n + 1)).collect();
        let weights = weights(&calls, 1..21);
        let weight = |n: u64| weights.iter().find(|(m, _)| *m == n).map_or(1, |(_, w)| *w);
        for (from, to) in calls {
            let after = weight(to);
            assert!(weight(from) == after + 1 || weight(from) == 1 && after == MOST as i32);
        }
    }
}
