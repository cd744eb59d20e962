//! First differences of changed traces, and edit distances against the textbook
//! matrix.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_analyze::diff::*;
use ichnos_base::*;
use proptest::prelude::*;

use crate::machine::{Dice, Tears, run};
use crate::script::{Script, Step, T0, is_insn};

/// The textbook's distance.
fn naive(a: &[u32], b: &[u32]) -> u64 {
    let mut row: Vec<u64> = (0..=b.len() as u64).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i as u64 + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + u64::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A sequence with the repetitions of loops, and the same with some changes.
fn alike(seed: u64, len: usize, changes: u64) -> (Vec<u32>, Vec<u32>) {
    let mut dice = Dice::new(seed);
    let mut a = Vec::new();
    while a.len() < len {
        let (start, turn) = (dice.roll(50) as u32, 1 + dice.roll(6) as u32);
        for _ in 0..dice.roll(10) {
            a.extend(start..start + turn);
        }
    }
    let mut b = a.clone();
    for _ in 0..changes {
        let at = dice.roll(b.len() as u64 + 1) as usize;
        match dice.roll(3) {
            0 => b.insert(at, dice.roll(60) as u32),
            1 if at < b.len() => drop(b.remove(at)),
            _ if at < b.len() => b[at] = dice.roll(60) as u32,
            _ => {}
        }
    }
    (a, b)
}

/// Applies edits: the result must be `b`.
fn patch(a: &[u32], b: &[u32], edits: &[Edit]) -> Vec<u32> {
    let mut out = Vec::new();
    let mut at = 0;
    for edit in edits {
        out.extend_from_slice(&a[at..edit.a.start]);
        out.extend_from_slice(&b[edit.b.clone()]);
        at = edit.a.end;
    }
    out.extend_from_slice(&a[at..]);
    out
}

const POOR: Budget = Budget { exact: 0, per_token: 0 };

proptest! {
    #[test]
    fn distances_equal_the_textbook(
        a in prop::collection::vec(0u32..4, 0..60),
        b in prop::collection::vec(0u32..4, 0..60),
    ) {
        let expected = naive(&a, &b);
        prop_assert_eq!(distance(&a, &b, &Budget::default()), Distance::exactly(expected));
        let bounds = distance(&a, &b, &POOR);
        prop_assert!((bounds.low..=bounds.high).contains(&expected), "{:?} {}", bounds, expected);
    }

    #[test]
    fn alike_sequences_have_near_bounds(seed: u64, len in 1usize..400, changes in 0u64..30) {
        let (a, b) = alike(seed, len, changes);
        let expected = naive(&a, &b);
        prop_assert_eq!(distance(&a, &b, &Budget::default()), Distance::exactly(expected));
        let bounds = distance(&a, &b, &POOR);
        prop_assert!((bounds.low..=bounds.high).contains(&expected), "{:?} {}", bounds, expected);
        prop_assert!(bounds.high <= a.len().max(b.len()) as u64);
    }

    #[test]
    fn edits_are_shortest_and_lead_to_the_other(seed: u64, len in 0usize..200, changes in 0u64..40) {
        let (a, b) = alike(seed, len, changes);
        let expected = naive(&a, &b);
        let list = edits(&a, &b, 1000).unwrap();
        prop_assert_eq!(patch(&a, &b, &list), b.clone());
        let cost: usize = list.iter().map(|e| e.a.len().max(e.b.len())).sum();
        prop_assert_eq!(cost as u64, expected, "{:?}", list);
        if expected > 0 {
            prop_assert_eq!(edits(&a, &b, expected as u32 - 1), None);
        }
    }
}

#[test]
fn a_million_near_equal_tokens_are_exact_and_different_ones_are_bounded() {
    let (a, b) = alike(1, 1_000_000, 500);
    let near = distance(&a, &b, &Budget::default());
    assert!(near.is_exact() && near.high <= 500 && near.high > 400, "{near:?}");
    let small = Budget { exact: 1 << 20, per_token: 16 };
    let bounded = distance(&a, &b, &small);
    assert!(bounded.low <= near.low && near.high <= bounded.high, "{bounded:?} {near:?}");
    assert!(bounded.high <= 2 * near.high, "{bounded:?} {near:?}");
    // Nothing in common at all.
    let other: Vec<u32> = a.iter().map(|t| t + 1000).collect();
    let far = distance(&a, &other, &small);
    assert_eq!(far, Distance::exactly(a.len() as u64));
}

fn sequences(script: &Script, view: View, dictionary: Dictionary) -> (Sequences, Dictionary) {
    let mut tokens = Tokens::new(view, Keys::Addresses, 1 << 20, dictionary);
    script.play(&mut tokens);
    tokens.into_parts()
}

#[test]
fn views_are_what_they_say() {
    let script = run(3, 2, 300, Tears::Never);
    let meanings = |view| -> BTreeMap<ThreadId, Vec<GuestVa>> {
        let (got, dictionary) = sequences(&script, view, Dictionary::default());
        assert!(!got.cut);
        let words =
            |tokens: Vec<u32>| tokens.iter().map(|&t| dictionary.meaning(t).unwrap()).collect();
        got.threads.into_iter().map(|(id, tokens)| (id, words(tokens))).collect()
    };
    let mut insns = BTreeMap::<ThreadId, Vec<GuestVa>>::new();
    let mut calls = BTreeMap::<ThreadId, Vec<GuestVa>>::new();
    let mut targets = BTreeMap::<ThreadId, Vec<GuestVa>>::new();
    let mut kinds = BTreeMap::new();
    for step in &script.steps {
        match step {
            Step::Rec(t, Record::Insn { pc, kind, .. }) => {
                insns.entry(*t).or_default().push(*pc);
                kinds.insert(*t, *kind);
                if matches!(*kind, InsnKind::CALL | InsnKind::CALL_INDIRECT | InsnKind::RETURN) {
                    calls.entry(*t).or_default().push(*pc);
                }
            }
            Step::Rec(t, Record::Branch { target, .. })
                if matches!(kinds[t], InsnKind::CALL | InsnKind::CALL_INDIRECT) =>
            {
                targets.entry(*t).or_default().push(*target);
            }
            _ => {}
        }
    }
    assert!(!targets.is_empty());
    assert_eq!(meanings(View::Insns), insns);
    assert_eq!(meanings(View::CallsAndReturns), calls);
    assert_eq!(meanings(View::CallTargets), targets);
}

#[test]
fn similarity_counts_threads_without_partner_as_different() {
    let script = run(3, 2, 100, Tears::Never);
    let (a, dictionary) = sequences(&script, View::Insns, Dictionary::default());
    let (mut b, _) = sequences(&script, View::Insns, dictionary);
    let budget = Budget::default();
    let (same, rows) = similarity(&a, &b, &Pairing::ById, &budget);
    assert_eq!((same.low(), same.high(), rows.len()), (1.0, 1.0, 2));
    let gone = b.threads.remove(&ThreadId(1)).unwrap().len() as u64;
    let (half, rows) = similarity(&a, &b, &Pairing::ById, &budget);
    assert_eq!(half.distance, Distance::exactly(gone));
    assert_eq!(rows[1].b, None);
    assert_eq!(rows[1].similarity.high(), 0.0);
}

#[test]
fn images_make_moved_code_the_same() {
    let moved = |base: u64| {
        let mut script = Script::started();
        let Event::Map(map) = crate::machine::map(base, 0x1000, 5) else { unreachable!() };
        script.ev(Event::Map(Map { kind: MapKind::IMAGE, path: "/lib/x", bias: base, ..map }));
        for i in 0..9 {
            script.rec(Record::insn(GuestVa(base + 4 * i), 4, InsnKind::OTHER));
        }
        script
    };
    for (keys, equal) in [(Keys::Addresses, false), (Keys::Images, true)] {
        let mut first = Tokens::new(View::Insns, keys, 100, Dictionary::default());
        moved(0x1000).play(&mut first);
        let (a, dictionary) = first.into_parts();
        let mut second = Tokens::new(View::Insns, keys, 100, dictionary);
        moved(0x7000).play(&mut second);
        let (b, _) = second.into_parts();
        assert_eq!(a.threads == b.threads, equal, "{keys:?}");
    }
}

#[test]
fn the_limit_cuts_and_says_so() {
    let script = run(3, 1, 100, Tears::Never);
    let mut tokens = Tokens::new(View::Insns, Keys::Addresses, 10, Dictionary::default());
    script.play(&mut tokens);
    let (got, _) = tokens.into_parts();
    assert!(got.cut);
    assert_eq!(got.threads[&T0].len(), 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_first_changed_record_is_found(seed: u64, at: prop::sample::Index, long: bool) {
        let mut a = run(seed, 2, if long { 6000 } else { 200 }, Tears::Sometimes);
        let mut b = a.clone();
        b.batch = 1 + a.batch * 2;
        let places: Vec<_> =
            (0..a.steps.len()).filter(|&i| matches!(a.steps[i], Step::Rec(..))).collect();
        let place = places[at.index(places.len())];
        let Step::Rec(thread, record) = &mut b.steps[place] else { unreachable!() };
        let thread = *thread;
        match record {
            Record::Insn { pc: addr, .. }
            | Record::Load { addr, .. }
            | Record::Store { addr, .. }
            | Record::Prefetch { addr, .. }
            | Record::Flush { addr, .. }
            | Record::Branch { target: addr, .. } => *addr = addr.offset(1),
        }
        let changed = *record;
        let equal = first_difference(&mut a.clone(), &mut a.clone(), Depth::Values, &Pairing::ById);
        prop_assert!(equal.unwrap().is_equal());
        let found = first_difference(&mut a, &mut b, Depth::Events, &Pairing::ById).unwrap();
        prop_assert_eq!(found.differences.len(), 1);
        let difference = &found.differences[0];
        prop_assert_eq!(difference.a, thread);
        let Step::Rec(_, original) = a.steps[place] else { unreachable!() };
        prop_assert_eq!(&difference.in_a[0], &Item::Record(original, Vec::new()));
        prop_assert_eq!(&difference.in_b[0], &Item::Record(changed, Vec::new()));
        let before = a.steps[..place].iter().filter(
            |s| matches!(s, Step::Rec(t, r) if *t == thread && is_insn(r)));
        prop_assert_eq!(difference.insn, before.count() as u64);
    }
}

#[test]
fn a_missing_end_is_a_difference() {
    let mut a = run(5, 1, 50, Tears::Never);
    let mut b = a.clone();
    b.steps.pop();
    let found = first_difference(&mut a, &mut b, Depth::Events, &Pairing::ById).unwrap();
    assert_eq!(found.differences[0].in_b, []);
    assert_eq!(found.differences[0].in_a, [Item::Event("ThreadEnd(Exited(0))".into())]);
    assert!(first_difference(&mut a, &mut b, Depth::Records, &Pairing::ById).unwrap().is_equal());
}
