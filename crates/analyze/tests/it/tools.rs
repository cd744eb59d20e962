//! Inventory, selection and profile against naive twins on random executions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use ichnos_analyze::check::{Checker, Config, Extent};
use ichnos_analyze::inventory::Inventory;
use ichnos_analyze::profile::{Place, PlainCounts, Profile, Space};
use ichnos_analyze::select::{Others, Select, Selection};
use ichnos_base::*;
use proptest::prelude::*;

use crate::machine::{Tears, run};
use crate::script::{Script, Step, is_insn};

/// The records of each process, by the threads' starts.
fn by_process(script: &Script) -> Vec<(ProcessId, Record)> {
    let mut homes = BTreeMap::new();
    let mut out = Vec::new();
    for step in &script.steps {
        match step {
            Step::Ev(t, Event::ThreadStart(start)) => drop(homes.insert(*t, start.process)),
            Step::Rec(t, record) => out.push((homes[t], *record)),
            _ => {}
        }
    }
    out
}

/// Keeps everything, flattened.
#[derive(Default)]
struct Keep(Vec<Step>, Vec<u8>);

impl Sink for Keep {
    type Error = Infallible;
    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let records = batch.records.iter().map(|r| Step::Rec(batch.thread, *r));
        self.0.extend(records);
        self.1.extend_from_slice(batch.values.unwrap_or_default());
        Ok(true)
    }
    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        // The scripts' events have no borrowed parts of interest but maps.
        let event = match *event {
            Event::Gap { reason, insns, skipped } => Event::Gap { reason, insns, skipped },
            Event::ThreadStart(start) => Event::ThreadStart(start),
            Event::ThreadEnd(status) => Event::ThreadEnd(status),
            _ => return Ok(true),
        };
        self.0.push(Step::Ev(thread, event));
        Ok(true)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn inventory_equals_a_naive_count(seed: u64, threads in 1u32..4, insns in 1u64..300) {
        let script = run(seed, threads, insns, Tears::Sometimes);
        let mut inventory = Inventory::new();
        script.play(&mut inventory);
        let stock = inventory.into_stock(3);
        let (mut lines, mut code) = (BTreeSet::new(), BTreeSet::new());
        let mut totals = Totals::default();
        let mut executions = BTreeMap::<_, u64>::new();
        let mut stored = 0;
        for (process, record) in by_process(&script) {
            totals.count(&record);
            match record {
                Record::Insn { pc, len, .. } => {
                    let bytes = (0..u64::from(len)).map(|i| (process, pc.offset(i).line(6)));
                    code.extend(bytes);
                    *executions.entry((process, pc)).or_default() += 1;
                }
                Record::Load { addr, size, .. } | Record::Store { addr, size, .. } => {
                    lines.extend((0..u64::from(size)).map(|i| (process, addr.offset(i).line(6))));
                    if matches!(record, Record::Store { .. }) {
                        stored += u64::from(size);
                    }
                }
                _ => {}
            }
        }
        prop_assert_eq!(stock.total.totals, totals);
        prop_assert_eq!(stock.total.bytes_stored, stored);
        prop_assert_eq!(stock.total.kinds.iter().sum::<u64>(), totals.insns);
        prop_assert_eq!(stock.data.lines, lines.len() as u64);
        prop_assert_eq!(stock.code.lines, code.len() as u64);
        let pages: BTreeSet<_> = lines.iter().map(|(p, l)| (p, l.0 >> 6)).collect();
        prop_assert_eq!(stock.data.pages, pages.len() as u64);
        prop_assert_eq!(stock.distinct_insns, executions.len() as u64);
        let mut counts: Vec<_> = executions.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.truncate(3);
        let top: Vec<_> = stock.top.iter().map(|hot| hot.executions).collect();
        prop_assert_eq!(top, counts);
        for hot in &stock.top {
            prop_assert_eq!(executions[&(hot.process, hot.pc)], hot.executions);
        }
    }

    #[test]
    fn a_selection_is_that_part_and_keeps_the_rules(
        seed: u64, start in 0u64..80, len in 0u64..80, only in 0u32..4,
    ) {
        let script = run(seed, 3, 60, Tears::Never);
        let range = start..start + len;
        let named: BTreeSet<_> = (only < 3).then_some(ThreadId(only)).into_iter().collect();
        let selection = Selection {
            threads: named.clone(),
            insns: Some(range.clone()),
            others: Others::KeepMemory,
        };
        let mut select = Select::new(selection, Tee::new(Keep::default(), Checker::new(
            Config { extent: Extent::Part, ..Config::default() })));
        script.play(&mut select);
        let (keep, checker) = select.into_inner().into_inner();
        let verdict = checker.into_verdict();
        prop_assert!(verdict.is_clean(), "{}", verdict);

        let mut ordinals = BTreeMap::<ThreadId, u64>::new();
        let mut naive = Vec::new();
        for step in &script.steps {
            let Step::Rec(thread, record) = step else { continue };
            let count = ordinals.entry(*thread).or_default();
            *count += u64::from(is_insn(record));
            let wanted = named.is_empty() || named.contains(thread);
            if wanted && range.contains(&(*count - 1)) {
                naive.push(step.clone());
            }
        }
        let got: Vec<_> = keep.0.iter().filter(|s| matches!(s, Step::Rec(..))).cloned().collect();
        prop_assert_eq!(&got, &naive);
        let bytes: usize = naive.iter().map(|s| match s {
            Step::Rec(_, r) => r.value_len(),
            _ => 0,
        }).sum();
        prop_assert_eq!(keep.1.len(), if script.about.values { bytes } else { 0 });
        // Gaps and records together are all instructions of the wanted threads,
        // unless there was no need to go on to their ends.
        for (thread, total) in ordinals {
            let ended = Step::Ev(thread, Event::ThreadEnd(EndStatus::Exited(0)));
            let wanted = named.is_empty() || named.contains(&thread);
            if !wanted || !keep.0.contains(&ended) {
                continue;
            }
            let sum: u64 = keep.0.iter().filter(|s| s.thread() == thread).map(|s| match s {
                Step::Ev(_, Event::Gap { insns: Some(n), .. }) => *n,
                Step::Rec(_, r) => u64::from(is_insn(r)),
                _ => 0,
            }).sum();
            prop_assert_eq!(sum, total);
        }
    }

    #[test]
    fn profile_equals_a_naive_count(seed: u64, threads in 1u32..4, insns in 1u64..300) {
        let script = run(seed, threads, insns, Tears::Sometimes);
        let mut profile = Profile::new(PlainCounts);
        script.play(&mut profile);
        let (costs, _) = profile.into_costs();
        let mut naive = BTreeMap::<_, [u64; 3]>::new();
        // Batches of one thread keep their order, so charge per thread.
        let mut at = BTreeMap::new();
        let mut homes = BTreeMap::new();
        for step in &script.steps {
            match step {
                Step::Ev(t, Event::ThreadStart(start)) => drop(homes.insert(*t, start.process)),
                Step::Rec(t, record) => {
                    if let Record::Insn { pc, .. } = record {
                        at.insert(*t, (homes[t], *pc));
                    }
                    let row = naive.entry(at[t]).or_default();
                    match record {
                        Record::Insn { .. } => row[0] += 1,
                        Record::Load { .. } => row[1] += 1,
                        Record::Store { .. } => row[2] += 1,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        prop_assert_eq!(costs.insns.len(), naive.len());
        for (space, pc, row) in &costs.insns {
            prop_assert_eq!(&row[..3], &naive[&(space.process, *pc)][..]);
        }
        let all = costs.gather(&mut |_: Space, _: GuestVa| Place::default());
        let sum = |i: usize| naive.values().map(|row| row[i]).sum::<u64>();
        prop_assert_eq!(&all.total[..3], &[sum(0), sum(1), sum(2)][..]);
        // No call contains more than everything.
        for call in &costs.calls {
            prop_assert!(call.inclusive[0] <= sum(0));
            prop_assert!(call.count > 0);
        }
    }
}

fn at(pc: u64, kind: InsnKind) -> Record {
    Record::insn(GuestVa(pc), 4, kind)
}

/// f(3) calls itself down to f(0): three instructions each, of which the middle
/// one calls.
#[test]
fn calls_have_inclusive_costs_and_recursion_counts_once() {
    let mut script = Script::started();
    script.rec(at(0x10, InsnKind::CALL)).rec(Record::branch(true, GuestVa(0x100)));
    for _ in 0..3 {
        script.rec(at(0x100, InsnKind::OTHER)).rec(Record::load(GuestVa(0x9000), 8));
        script.rec(at(0x104, InsnKind::CALL)).rec(Record::branch(true, GuestVa(0x100)));
    }
    script.rec(at(0x100, InsnKind::BRANCH)).rec(Record::branch(true, GuestVa(0x108)));
    for back in [0x108, 0x108, 0x108, 0x14] {
        script.rec(at(0x108, InsnKind::RETURN)).rec(Record::branch(true, GuestVa(back)));
    }
    script.rec(at(0x14, InsnKind::OTHER));
    let mut profile = Profile::new(PlainCounts);
    script.play(&mut profile);
    let (costs, _) = profile.into_costs();
    let outer = costs.calls.iter().find(|c| c.from == GuestVa(0x10)).unwrap();
    assert_eq!((outer.count, &outer.inclusive[..2]), (1, &[11, 3][..]));
    let inner = costs.calls.iter().find(|c| c.from == GuestVa(0x104)).unwrap();
    // The function is open already, so that its inner calls add nothing.
    assert_eq!((inner.count, &inner.inclusive[..2]), (3, &[0, 0][..]));
}

#[test]
fn a_long_jump_closes_what_it_leaves() {
    let mut script = Script::started();
    script.rec(at(0x10, InsnKind::CALL)).rec(Record::branch(true, GuestVa(0x100)));
    script.rec(at(0x100, InsnKind::CALL)).rec(Record::branch(true, GuestVa(0x200)));
    script.rec(at(0x200, InsnKind::JUMP_INDIRECT)).rec(Record::branch(true, GuestVa(0x108)));
    script.rec(at(0x108, InsnKind::RETURN)).rec(Record::branch(true, GuestVa(0x14)));
    script.rec(at(0x14, InsnKind::OTHER));
    let mut profile = Profile::new(PlainCounts);
    script.play(&mut profile);
    let (costs, _) = profile.into_costs();
    let own: Vec<_> = costs.calls.iter().map(|c| c.inclusive[0]).collect();
    assert_eq!(own, [3, 2]);
}

#[test]
fn exec_starts_a_new_program_in_the_process() {
    let mut script = Script::started();
    script.rec(at(0x10, InsnKind::OTHER)).ev(Event::Exec { path: "x" });
    script.rec(at(0x10, InsnKind::OTHER)).rec(at(0x14, InsnKind::OTHER));
    let mut profile = Profile::new(PlainCounts);
    script.play(&mut profile);
    let (costs, _) = profile.into_costs();
    let spaces: Vec<_> = costs.insns.iter().map(|(s, pc, _)| (s.execs, pc.0)).collect();
    assert_eq!(spaces, [(0, 0x10), (1, 0x10), (1, 0x14)]);
}
