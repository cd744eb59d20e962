//! Branch predictors against twins and hand-computed sequences.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{Event, GapReason, GuestVa, InsnKind, Record, Sink, ThreadId};
use ichnos_model::{
    BranchConfig, BranchModel, Conditional, DirectionConfig, Fixed, IndirectConfig, Random, Return,
    ReturnStack, TargetBuffer,
};
use proptest::prelude::*;

use super::drive::feed;

fn branch(pc: u64, taken: bool) -> Conditional {
    Conditional { pc: GuestVa(pc), target: GuestVa(pc + 64), taken }
}

/// Wrong predictions of a fresh predictor.
fn wrong(config: DirectionConfig, outcomes: &[(u64, bool)]) -> u64 {
    let mut predictor = config.build();
    let mut wrong = 0;
    for &(pc, taken) in outcomes {
        wrong += u64::from(predictor.predict(&branch(pc, taken)) != taken);
    }
    wrong
}

/// A saturating counter that begins in the middle, below one half.
fn train(counters: &mut HashMap<u64, u8>, key: u64, most: u8, taken: bool) -> bool {
    let counter = counters.entry(key).or_insert(most / 2);
    let predicted = *counter > most / 2;
    *counter = if taken { (*counter + 1).min(most) } else { counter.saturating_sub(1) };
    predicted
}

fn outcomes() -> impl Strategy<Value = Vec<(u64, bool)>> {
    // Branches with a bias or a pattern each, interleaved.
    prop::collection::vec((0u64..12, any::<u8>()), 1..600).prop_map(|draws| {
        let mut turns: HashMap<u64, u64> = HashMap::new();
        draws
            .into_iter()
            .map(|(pc, noise)| {
                let turn = turns.entry(pc).or_default();
                *turn += 1;
                (0x400 + pc * 7, noise < 20 || !(*turn).is_multiple_of(2 + pc % 4))
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn bimodal_equals_its_twin(outcomes in outcomes(), log in 1u32..8) {
        let mut predictor = DirectionConfig::Bimodal { log_entries: log }.build();
        let mut counters = HashMap::new();
        for (pc, taken) in outcomes {
            let want = train(&mut counters, pc % (1 << log), 3, taken);
            prop_assert_eq!(predictor.predict(&branch(pc, taken)), want);
        }
    }

    #[test]
    fn gshare_equals_its_twin(outcomes in outcomes(), log in 1u32..8, history in 0u32..12) {
        let mut predictor = DirectionConfig::Gshare { log_entries: log, history }.build();
        let (mut counters, mut past) = (HashMap::new(), Vec::new());
        for (pc, taken) in outcomes {
            let recent = past.iter().rev().take(history as usize).rev();
            let number = recent.fold(0u64, |n, &t| n * 2 + u64::from(t));
            let want = train(&mut counters, (pc ^ number) % (1 << log), 3, taken);
            prop_assert_eq!(predictor.predict(&branch(pc, taken)), want);
            past.push(taken);
        }
    }

    #[test]
    fn local_equals_its_twin(outcomes in outcomes(), log in 1u32..8, history in 1u32..12) {
        let mut predictor = DirectionConfig::Local { log_entries: log, history }.build();
        let mut counters = HashMap::new();
        let mut past: HashMap<u64, Vec<bool>> = HashMap::new();
        for (pc, taken) in outcomes {
            let own = past.entry(pc % (1 << log)).or_default();
            let recent = own.iter().rev().take(history as usize).rev();
            let number = recent.fold(0u64, |n, &t| n * 2 + u64::from(t));
            let want = train(&mut counters, number, 7, taken);
            prop_assert_eq!(predictor.predict(&branch(pc, taken)), want);
            own.push(taken);
        }
    }

    #[test]
    fn perceptron_equals_its_twin(outcomes in outcomes(), entries in 1u32..20, history in 0u32..20) {
        let mut predictor = DirectionConfig::Perceptron { entries, history }.build();
        let mut weights: HashMap<u64, Vec<i32>> = HashMap::new();
        let mut past: Vec<i32> = vec![-1; history as usize];
        let threshold = (1.93 * f64::from(history) + 14.0).floor() as i32;
        for (pc, taken) in outcomes {
            let own = weights
                .entry(pc % u64::from(entries))
                .or_insert_with(|| vec![0; history as usize + 1]);
            let mut inputs = vec![1];
            inputs.extend(past.iter().rev().take(history as usize));
            let sum: i32 = own.iter().zip(&inputs).map(|(w, x)| w * x).sum();
            let outcome = if taken { 1 } else { -1 };
            if (sum >= 0) != taken || sum.abs() <= threshold {
                for (weight, input) in own.iter_mut().zip(&inputs) {
                    *weight = (*weight + outcome * input).clamp(-128, 127);
                }
            }
            prop_assert_eq!(predictor.predict(&branch(pc, taken)), sum >= 0);
            past.push(outcome);
        }
    }

    #[test]
    fn the_target_buffer_is_an_lru_map(
        jumps in prop::collection::vec((0u64..40, 0u64..3), 1..300), sets in 1u32..5, ways in 1u32..5,
    ) {
        let mut buffer = TargetBuffer::new(sets, ways);
        let mut naive: Vec<(u64, u64)> = Vec::new();
        for (pc, target) in jumps {
            let known = naive.iter().position(|&(at, _)| at == pc).map(|at| naive.remove(at).1);
            prop_assert_eq!(buffer.predict(GuestVa(pc), GuestVa(target)), known.map(GuestVa));
            naive.push((pc, target));
            let set = |at: u64| at % u64::from(sets) == pc % u64::from(sets);
            if naive.iter().filter(|&&(at, _)| set(at)).count() > ways as usize {
                let oldest = naive.iter().position(|&(at, _)| set(at)).unwrap();
                naive.remove(oldest);
            }
        }
    }
}

/// The static rules and a two-bit counter by hand: a loop branch taken three
/// times and left once, ten times over. The counter begins at 1: the first
/// taken outcome is mispredicted, then only the ten exits are.
#[test]
fn loops_by_hand() {
    let turns: Vec<(u64, bool)> = (0..40).map(|at| (0x40, at % 4 != 3)).collect();
    assert_eq!(wrong(DirectionConfig::Fixed(Fixed::Taken), &turns), 10);
    assert_eq!(wrong(DirectionConfig::Fixed(Fixed::NotTaken), &turns), 30);
    assert_eq!(wrong(DirectionConfig::Fixed(Fixed::BackwardTaken), &turns), 30);
    assert_eq!(wrong(DirectionConfig::Bimodal { log_entries: 4 }, &turns), 11);
    // Two outcomes of history tell the exit of a loop of three turns apart once
    // they are learnt; every later turn is right.
    let late: Vec<(u64, bool)> = (0..400).map(|at| (0x40, at % 4 != 3)).collect();
    let gshare = DirectionConfig::Gshare { log_entries: 8, history: 3 };
    assert!(wrong(gshare, &late) <= 10);
}

/// A branch that repeats another one's outcome: history predicts it, a counter
/// per branch cannot.
#[test]
fn correlation_needs_history() {
    let mut random = Random::new(5);
    let turns: Vec<(u64, bool)> = (0..4000)
        .flat_map(|_| {
            let taken = random.next() & 1 == 0;
            [(0x100, taken), (0x204, taken)]
        })
        .collect();
    let rate = |config| wrong(config, &turns) as f64 / 4000.0;
    assert!(rate(DirectionConfig::Bimodal { log_entries: 12 }) > 0.9);
    for name in ["gshare", "tournament", "perceptron", "tage"] {
        let config = DirectionConfig::from_name(name).expect("a known name");
        let rate = rate(config);
        assert!(rate < 0.56, "{name}: {rate}");
    }
}

/// A loop of a hundred turns: only a history of more than a hundred outcomes
/// sees the exit coming.
#[test]
fn long_loops_need_long_histories() {
    let turns: Vec<(u64, bool)> = (0..40_000).map(|at| (0x40, at % 100 != 99)).collect();
    let exits = 400;
    let config = |name| DirectionConfig::from_name(name).expect("a known name");
    assert!(wrong(config("gshare"), &turns) >= exits - 10);
    assert!(wrong(config("tage"), &turns) < exits / 8);
}

#[test]
fn the_return_stack_forgets_its_oldest() {
    let mut stack = ReturnStack::new(2);
    for back in [1, 2, 3] {
        stack.call(GuestVa(back));
    }
    assert_eq!(stack.ret(), Return::To(Some(GuestVa(3))));
    assert_eq!(stack.ret(), Return::To(Some(GuestVa(2))));
    assert_eq!(stack.ret(), Return::To(None));
    assert_eq!(stack.ret(), Return::To(None), "without a gap a return without a call is wrong");
}

#[test]
fn a_gap_leaves_no_calls_to_return_from() {
    let mut stack = ReturnStack::new(2);
    stack.call(GuestVa(1));
    stack.gap();
    assert_eq!(stack.ret(), Return::Unmatched);
    for back in [2, 3, 4] {
        stack.call(GuestVa(back));
    }
    assert_eq!(stack.ret(), Return::To(Some(GuestVa(4))));
    assert_eq!(stack.ret(), Return::To(Some(GuestVa(3))));
    assert_eq!(stack.ret(), Return::To(None), "its call was seen, and forgotten by a full stack");
    assert_eq!(stack.ret(), Return::Unmatched);
    assert_eq!(stack.ret(), Return::Unmatched);
}

/// What a thread does, for a twin of the return stack.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Call,
    Return(bool),
    Gap,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        5 => Just(Deed::Call),
        5 => any::<bool>().prop_map(Deed::Return),
        1 => Just(Deed::Gap),
    ];
    prop::collection::vec(deed, 0..200)
}

proptest! {
    /// The twin keeps all calls since the last gap in a list without an end.
    #[test]
    fn returns_across_gaps_equal_their_twin(deeds in deeds(), depth in 1u32..6) {
        let config = BranchConfig { returns: depth, ..BranchConfig::default() };
        let mut model = BranchModel::new(&config).expect("right numbers");
        let (mut calls, mut gap, mut held) = (Vec::new(), false, 0);
        let (mut predicted, mut wrong) = (0, 0);
        for (at, deed) in deeds.into_iter().enumerate() {
            let pc = GuestVa(0x1000 + at as u64 * 16);
            match deed {
                Deed::Call => {
                    calls.push(pc.offset(5));
                    held = (held + 1).min(depth);
                    let call = Record::insn(pc, 5, InsnKind::CALL);
                    feed(&mut model, &[call, Record::branch(true, GuestVa(0x90))]);
                }
                Deed::Return(honest) => {
                    let back = calls.pop();
                    let target = back.filter(|_| honest).unwrap_or(GuestVa(0x40));
                    if back.is_some() || !gap {
                        predicted += 1;
                        wrong += u64::from(held == 0 || back != Some(target));
                        held = held.saturating_sub(1);
                    }
                    let ret = Record::insn(pc, 1, InsnKind::RETURN);
                    feed(&mut model, &[ret, Record::branch(true, target)]);
                }
                Deed::Gap => {
                    calls.clear();
                    (gap, held) = (true, 0);
                    let gap = Event::Gap { reason: GapReason::Untraced, insns: None, skipped: None };
                    model.event(ThreadId(0), &gap).expect("a model does not fail");
                }
            }
        }
        let returns = model.report().returns;
        prop_assert_eq!((returns.predicted, returns.wrong), (predicted, wrong));
    }
}

/// `qsort` of an untraced library calls a traced function again and again.
#[test]
fn untraced_code_that_calls_back_is_no_misprediction() {
    let mut model = BranchModel::new(&BranchConfig::default()).expect("right numbers");
    let gap = Event::Gap { reason: GapReason::Untraced, insns: None, skipped: None };
    let qsort = Record::insn(GuestVa(0x100), 5, InsnKind::CALL);
    feed(&mut model, &[qsort, Record::branch(true, GuestVa(0x9000))]);
    for _ in 0..1000 {
        model.event(ThreadId(0), &gap).expect("a model does not fail");
        let compare = Record::insn(GuestVa(0x200), 1, InsnKind::RETURN);
        feed(&mut model, &[compare, Record::branch(true, GuestVa(0x9100))]);
    }
    model.event(ThreadId(0), &gap).expect("a model does not fail");
    feed(&mut model, &calls(10));
    let returns = model.report().returns;
    assert_eq!((returns.predicted, returns.wrong), (10, 0));
}

/// A call in a loop that alternates between two functions through a pointer.
fn calls(turns: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for turn in 0..turns {
        let function = GuestVa(0x8000 + turn % 2 * 0x100);
        records.push(Record::insn(GuestVa(0x100), 2, InsnKind::CALL_INDIRECT));
        records.push(Record::store(GuestVa(0x7000), 8));
        records.push(Record::branch(true, function));
        records.push(Record::insn(function, 1, InsnKind::RETURN));
        records.push(Record::load(GuestVa(0x7000), 8));
        records.push(Record::branch(true, GuestVa(0x102)));
        records.push(Record::insn(GuestVa(0x102), 2, InsnKind::JUMP));
        records.push(Record::branch(true, GuestVa(0x100)));
    }
    records
}

#[test]
fn indirect_calls_and_returns() {
    let run = |indirect| {
        let config = BranchConfig { indirect, ..BranchConfig::default() };
        let mut model = BranchModel::new(&config).expect("right numbers");
        feed(&mut model, &calls(1000));
        model.report()
    };
    let last = run(IndirectConfig::LastTarget);
    assert_eq!((last.instructions, last.calls, last.direct), (3000, 1000, 1000));
    assert_eq!((last.returns.predicted, last.returns.wrong), (1000, 0));
    assert_eq!((last.indirect.predicted, last.indirect.wrong), (1000, 1000));
    let path = run(IndirectConfig::Path { log_entries: 9 });
    assert!(path.indirect.wrong < 20, "{:?}", path.indirect);
    assert_eq!(path.mispredictions(), path.indirect.wrong);
}

#[test]
fn errors_name_the_field() {
    let direction = DirectionConfig::Gshare { log_entries: 40, history: 1 };
    let config = BranchConfig { direction, ..BranchConfig::default() };
    let message = config.check().expect_err("too large").to_string();
    assert_eq!(message, "gshare.log_entries must lie between 1 and 28, but is 40");
}
