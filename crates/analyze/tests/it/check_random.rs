//! Random valid executions keep all rules; one changed record breaks one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_analyze::check::{Checker, Config, Verdict};
use ichnos_base::{GuestVa, InsnKind, Record};
use proptest::prelude::*;

use crate::machine::{READ_ONLY, Tears, run};
use crate::script::{Script, Step, is_insn};

fn verdict(script: &Script) -> Verdict {
    let mut checker = Checker::new(Config::default());
    script.play(&mut checker);
    checker.into_verdict()
}

/// Ways to spoil one record.
#[derive(Clone, Copy, Debug)]
enum Harm {
    MovePc,
    Lengthen,
    BecomeJump,
    BecomeOther,
    DropInsn,
    DoubleInsn,
    DropBranch,
    DoubleBranch,
    Retarget,
    FlipTaken,
    Unmapped,
    StoreReadOnly,
    NoSize,
    Lie,
}

const HARMS: [Harm; 14] = [
    Harm::MovePc,
    Harm::Lengthen,
    Harm::BecomeJump,
    Harm::BecomeOther,
    Harm::DropInsn,
    Harm::DoubleInsn,
    Harm::DropBranch,
    Harm::DoubleBranch,
    Harm::Retarget,
    Harm::FlipTaken,
    Harm::Unmapped,
    Harm::StoreReadOnly,
    Harm::NoSize,
    Harm::Lie,
];

/// Whether the record at `at` has an instruction of its thread somewhere before
/// or after it: without one, nothing contradicts some harms.
fn neighbours(script: &Script, at: usize) -> (bool, bool) {
    let thread = script.steps[at].thread();
    let is = |step: &Step| matches!(step, Step::Rec(t, r) if *t == thread && is_insn(r));
    (script.steps[..at].iter().any(is), script.steps[at + 1..].iter().any(is))
}

/// Where an instruction's fall-through lies for the branch record at `at`.
fn fall_through(script: &Script, at: usize) -> Option<GuestVa> {
    let thread = script.steps[at].thread();
    script.steps[..at].iter().rev().find_map(|step| match step {
        Step::Rec(t, Record::Insn { pc, len, .. }) if *t == thread => {
            Some(pc.offset((*len).into()))
        }
        _ => None,
    })
}

/// Spoils the record at `at`, if this harm applies to it and a rule covers it.
fn spoil(script: &mut Script, at: usize, harm: Harm) -> bool {
    let (before, after) = neighbours(script, at);
    let fall = fall_through(script, at);
    let Step::Rec(thread, record) = &mut script.steps[at] else { return false };
    let thread = *thread;
    let old = *record;
    match (harm, record) {
        (Harm::MovePc, Record::Insn { pc, .. }) if before => *pc = pc.offset(1),
        (Harm::Lengthen, Record::Insn { len, kind, .. }) if after && *kind == InsnKind::OTHER => {
            *len += 1;
        }
        (Harm::BecomeJump, Record::Insn { kind, .. }) if !kind.transfers() => {
            *kind = InsnKind::JUMP;
        }
        (Harm::BecomeOther, Record::Insn { kind, .. }) if kind.transfers() => {
            *kind = InsnKind::OTHER;
        }
        (Harm::DropInsn, Record::Insn { .. }) if before && after => drop(script.steps.remove(at)),
        (Harm::DoubleInsn, Record::Insn { .. }) | (Harm::DoubleBranch, Record::Branch { .. }) => {
            script.steps.insert(at, Step::Rec(thread, old));
        }
        (Harm::DropBranch, Record::Branch { .. }) => drop(script.steps.remove(at)),
        (Harm::Retarget, Record::Branch { taken: true, target }) if after => {
            *target = target.offset(1);
        }
        (Harm::FlipTaken, Record::Branch { taken, target }) if after && Some(*target) != fall => {
            *taken = !*taken;
        }
        (Harm::Unmapped, Record::Load { addr, .. } | Record::Store { addr, .. }) => {
            *addr = GuestVa(0x10);
        }
        (Harm::StoreReadOnly, Record::Store { addr, .. }) => *addr = READ_ONLY,
        (Harm::NoSize, Record::Load { size, .. } | Record::Store { size, .. }) => *size = 0,
        (Harm::Lie, _) => script.lie = Some(at % 3),
        _ => return false,
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn valid_executions_are_clean(seed: u64, threads in 1u32..5, insns in 0u64..400) {
        let verdict = verdict(&run(seed, threads, insns, Tears::Sometimes));
        prop_assert!(verdict.is_clean(), "{}", verdict);
        prop_assert_eq!(verdict.totals.len(), threads as usize);
        prop_assert_eq!(verdict.unended, 0);
    }

    #[test]
    fn one_changed_record_is_found(seed: u64, threads in 1u32..4, at: prop::sample::Index) {
        let good = run(seed, threads, 60, Tears::Never);
        for harm in HARMS {
            // From a random place on, the first record that this harm fits.
            let start = at.index(good.steps.len());
            let mut bad = good.clone();
            let Some(place) = (start..good.steps.len()).find(|&i| spoil(&mut bad, i, harm)) else {
                continue;
            };
            let verdict = verdict(&bad);
            prop_assert!(!verdict.is_clean(), "{:?} of step {} is not found", harm, place);
        }
    }
}

#[test]
fn each_harm_is_tried() {
    let good = run(7, 2, 200, Tears::Never);
    for harm in HARMS {
        let mut bad = good.clone();
        let found = (0..good.steps.len()).any(|i| spoil(&mut bad, i, harm));
        assert!(found, "{harm:?} never applies");
        assert!(!verdict(&bad).is_clean(), "{harm:?} is not found");
    }
}
