//! Random programs, every level and switch: replay sees what the machine did.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_flow::{Across, Follow, Granularity, Halves, Level, Options, Plan, Region, plan};
use ichnos_trace::{Slot, Step};
use proptest::prelude::*;

use crate::program::{Dice, Did, Machine, Word, program};
use crate::replayer::replay;

fn any_options() -> impl Strategy<Value = Options> {
    let piece = prop_oneof![
        Just(Granularity::Instruction),
        Just(Granularity::Block),
        Just(Granularity::Superblock)
    ];
    let across = prop_oneof![Just(Across::Nothing), Just(Across::Frame), Just(Across::All)];
    let follow = prop_oneof![Just(Follow::No), Just(Follow::Yes)];
    let halves = prop_oneof![Just(Halves::No), Just(Halves::Yes)];
    let switches = (piece, across, follow, halves)
        .prop_map(|(piece, across, follow, halves)| Options { piece, across, follow, halves });
    let levels = proptest::sample::select(Level::ALL.to_vec()).prop_map(Options::from);
    prop_oneof![switches, levels]
}

/// The rules that the format has for blocks.
fn well_formed(region: &Region, plan: &Plan) {
    let covered: Vec<usize> = plan.pieces.iter().flat_map(|piece| piece.insns.clone()).collect();
    assert!(covered.into_iter().eq(0..region.insns.len()), "pieces cover the region");
    for piece in &plan.pieces {
        let mut targets = Vec::new();
        assert_eq!(piece.saves.first().map(|save| save.at), Some(piece.insns.start));
        assert!(piece.steps.len() <= ichnos_trace::MAX_STEPS);
        for step in &piece.steps {
            match step {
                Step::Exit { target, .. } => {
                    assert!(!targets.contains(target), "exits differ");
                    targets.push(*target);
                }
                Step::Take { .. } => assert!(targets.is_empty(), "nothing is taken after an exit"),
                _ => {}
            }
        }
    }
}

fn first_difference(got: &[Did], expected: &[Did]) -> Result<(), TestCaseError> {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        prop_assert_eq!(got, expected, "instruction {}", i);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn replay_sees_what_was_done(
        seed: u64, size in 4usize..90, options in any_options(), fate: u64,
    ) {
        let region = program(size, &mut Dice::new(seed));
        let planned = plan(&region, &options, Slot(0)).expect("it can be planned");
        well_formed(&region, &planned);
        let (done, words) = Machine::new(fate, 1).run(&region, &planned, 400);
        let mut replayed = replay(&planned, &words);
        // The run may have stopped in the middle of a piece.
        prop_assert!(replayed.len() >= done.len());
        replayed.truncate(done.len());
        let complete = done.len().saturating_sub(1);
        first_difference(&replayed[..complete], &done[..complete])?;
        // What is said to be dead is: with other noise the same happens.
        let (again, _) = Machine::new(fate, 2).run(&region, &planned, 400);
        prop_assert_eq!(again.len(), done.len());
        first_difference(&again, &done)?;
    }
}

/// Words stored by the same executions at two levels.
fn stored(level: Level, seeds: std::ops::Range<u64>) -> usize {
    let mut total = 0;
    for seed in seeds {
        let region = program(60, &mut Dice::new(seed));
        let planned = plan(&region, &level.into(), Slot(0)).expect("it can be planned");
        let (_, words) = Machine::new(seed, 1).run(&region, &planned, 400);
        total += words.iter().filter(|word| matches!(word, Word::Value(_))).count();
        total += words.iter().filter(|word| matches!(word, Word::Piece(_))).count();
    }
    total
}

#[test]
fn each_level_stores_less() {
    let totals = Level::ALL.map(|level| stored(level, 0..200));
    for pair in totals.windows(2) {
        assert!(pair[1] <= pair[0], "{totals:?}");
    }
    // These programs branch every few instructions; real ones gain more.
    assert!(totals[4] * 5 < totals[0] * 4, "{totals:?}");
}
