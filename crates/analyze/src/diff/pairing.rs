//! Which thread of one trace is compared with which of another.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ichnos_base::ThreadId;

/// How threads are paired.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Pairing {
    /// By id: right when both runs make their threads in the same order.
    #[default]
    ById,
    /// The longest with the longest, and so on: for runs that make their threads
    /// in another order.
    ByLength,
    /// As the user says.
    Given(Vec<(ThreadId, ThreadId)>),
}

/// Threads in pairs, and those left over.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paired {
    /// A thread of the first trace with one of the second.
    pub pairs: Vec<(ThreadId, ThreadId)>,
    /// Threads of the first trace without partner.
    pub only_a: Vec<ThreadId>,
    /// Threads of the second trace without partner.
    pub only_b: Vec<ThreadId>,
}

/// Pairs threads, of which the lengths are given. A pair that names a thread
/// which is not there, or one twice, is left out.
#[must_use]
pub fn pair(a: &BTreeMap<ThreadId, u64>, b: &BTreeMap<ThreadId, u64>, pairing: &Pairing) -> Paired {
    let candidates: Vec<_> = match pairing {
        Pairing::ById => a.keys().map(|&id| (id, id)).collect(),
        Pairing::ByLength => sorted(a).into_iter().zip(sorted(b)).collect(),
        Pairing::Given(pairs) => pairs.clone(),
    };
    let (mut left_a, mut left_b) = (a.clone(), b.clone());
    let mut pairs = Vec::new();
    for (x, y) in candidates {
        if left_a.contains_key(&x) && left_b.contains_key(&y) {
            left_a.remove(&x);
            left_b.remove(&y);
            pairs.push((x, y));
        }
    }
    Paired { pairs, only_a: left_a.into_keys().collect(), only_b: left_b.into_keys().collect() }
}

fn sorted(lengths: &BTreeMap<ThreadId, u64>) -> Vec<ThreadId> {
    let mut ids: Vec<_> = lengths.keys().copied().collect();
    ids.sort_by_key(|id| (Reverse(lengths[id]), *id));
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(of: &[(u32, u64)]) -> BTreeMap<ThreadId, u64> {
        of.iter().map(|&(id, len)| (ThreadId(id), len)).collect()
    }

    #[test]
    fn threads_find_their_partners() {
        let a = lengths(&[(0, 100), (1, 7), (2, 50)]);
        let b = lengths(&[(0, 90), (1, 55), (3, 8), (4, 1)]);
        let ids = |p: &Paired| p.pairs.iter().map(|(x, y)| (x.0, y.0)).collect::<Vec<_>>();
        let by_id = pair(&a, &b, &Pairing::ById);
        assert_eq!(ids(&by_id), [(0, 0), (1, 1)]);
        assert_eq!((by_id.only_a.len(), by_id.only_b.len()), (1, 2));
        let by_length = pair(&a, &b, &Pairing::ByLength);
        assert_eq!(ids(&by_length), [(0, 0), (2, 1), (1, 3)]);
        assert_eq!(by_length.only_b, [ThreadId(4)]);
        let t = ThreadId;
        let given = Pairing::Given(vec![(t(2), t(0)), (t(2), t(1)), (t(9), t(1))]);
        assert_eq!(ids(&pair(&a, &b, &given)), [(2, 0)]);
    }
}
