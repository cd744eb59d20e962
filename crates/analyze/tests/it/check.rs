//! Each rule of the checker: a crafted violation is found, and found as that.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_analyze::check::{Checker, Config, Extent, Order, Rule, Verdict};
use ichnos_base::*;

use crate::machine::map;
use crate::script::{Script, Step, T0};

fn verdict(script: &Script) -> Verdict {
    verdict_with(script, Config::default())
}

fn verdict_with(script: &Script, config: Config) -> Verdict {
    let mut checker = Checker::new(config);
    script.play(&mut checker);
    checker.into_verdict()
}

/// The rules that are broken.
fn broken(script: &Script) -> Vec<Rule> {
    verdict(script).by_rule.iter().map(|(rule, _)| *rule).collect()
}

fn insn(pc: u64, len: u8, kind: InsnKind) -> Record {
    Record::insn(GuestVa(pc), len, kind)
}

fn other(pc: u64) -> Record {
    insn(pc, 4, InsnKind::OTHER)
}

fn to(target: u64) -> Record {
    Record::branch(true, GuestVa(target))
}

fn gap() -> Event<'static> {
    Event::Gap { reason: GapReason::Window, insns: None, skipped: None }
}

#[test]
fn flow_goes_on_or_to_the_target() {
    let mut script = Script::started();
    script.rec(other(0x100)).rec(insn(0x104, 2, InsnKind::BRANCH));
    script.rec(Record::branch(false, GuestVa(0x200)));
    script.rec(insn(0x106, 2, InsnKind::BRANCH)).rec(to(0x200)).rec(other(0x200));
    assert_eq!(broken(&script), []);
    for wrong in [0x205, 0x203, 0x200, 0x100] {
        let mut bad = script.clone();
        bad.rec(other(wrong));
        assert_eq!(broken(&bad), [Rule::Flow], "{wrong:#x}");
    }
    let mut bad = script.clone();
    bad.rec(insn(0x204, 2, InsnKind::JUMP)).rec(to(0x300)).rec(other(0x206));
    let found = verdict(&bad).violations.remove(0);
    assert_eq!(found.insn, 5);
    assert_eq!(found.pc, Some(GuestVa(0x206)));
    assert_eq!(found.expected, "0x300 after jump at 0x204");
    assert_eq!(found.got, "0x206");
}

#[test]
fn events_explain_jumps() {
    let info =
        SignalInfo { number: 1, code: 0, interrupted: GuestVa(0x104), handler: GuestVa(0x900) };
    let events: [(&[Event<'static>], u64); 5] = [
        (&[gap()], 0x700),
        (&[Event::ModeSwitch { mode: Mode::Inst }], 0x700),
        (&[Event::Exec { path: "/bin/true" }], 0x700),
        (&[Event::Signal(info)], 0x900),
        (&[Event::Signal(info), Event::SignalReturn { pc: GuestVa(0x500) }], 0x500),
    ];
    for (events, at) in events {
        let mut script = Script::started();
        script.rec(other(0x100));
        for event in events {
            script.ev(*event);
        }
        let mut bad = script.clone();
        script.rec(other(at));
        assert_eq!(broken(&script), [], "{events:?}");
        if matches!(events[0], Event::Signal(_)) {
            bad.rec(other(at + 1));
            assert_eq!(broken(&bad), [Rule::Flow], "{events:?}");
        }
    }
    // An event that explains nothing.
    let mut script = Script::started();
    script.rec(other(0x100)).ev(Event::Migrate { cpu: 1 }).rec(other(0x700));
    assert_eq!(broken(&script), [Rule::Flow]);
}

#[test]
fn branch_records_follow_transfers_once() {
    let mut script = Script::started();
    script.rec(insn(0x100, 2, InsnKind::CALL));
    let mut bad = script.clone();
    bad.rec(other(0x102));
    assert_eq!(broken(&bad), [Rule::BranchMissing]);
    let mut bad = script.clone();
    bad.rec(to(0x200)).rec(to(0x200)).rec(other(0x200));
    assert_eq!(broken(&bad), [Rule::BranchUnexpected]);
    let mut bad = script.clone();
    bad.rec(Record::branch(false, GuestVa(0x200)));
    assert_eq!(broken(&bad), [Rule::BranchUntaken]);
    let mut bad = script.clone();
    bad.rec(to(0x200)).rec(Record::store(GuestVa(8), 8));
    assert_eq!(broken(&bad), [Rule::AccessPlace]);
    let mut bad = script.clone();
    bad.ev(Event::Marker { id: 0, text: "" });
    assert_eq!(broken(&bad), [Rule::EventPlace]);
    let mut bad = Script::started();
    bad.rec(other(0x100)).rec(to(0x104));
    assert_eq!(broken(&bad), [Rule::BranchUnexpected]);
}

#[test]
fn a_trace_without_branches_has_no_flow_but_no_branch_records_either() {
    let mut script = Script::started();
    script.about.branches = false;
    script.rec(other(0x100)).rec(insn(0x500, 2, InsnKind::JUMP)).rec(other(0x10));
    assert_eq!(broken(&script), []);
    script.rec(to(0x14));
    assert_eq!(broken(&script), [Rule::BranchUnexpected]);
}

#[test]
fn accesses_belong_to_an_instruction_and_have_a_size() {
    let mut script = Script::started();
    script.rec(Record::load(GuestVa(8), 8));
    assert_eq!(broken(&script), [Rule::AccessPlace]);
    let mut script = Script::started();
    script.rec(other(0x100)).rec(Record::load(GuestVa(8), 0));
    assert_eq!(broken(&script), [Rule::AccessSize]);
}

#[test]
fn instructions_have_lengths_of_their_set() {
    for (isa, len, good) in [
        (Isa::X86_64, 0, false),
        (Isa::X86_64, 1, true),
        (Isa::X86_64, 15, true),
        (Isa::X86_64, 16, false),
        (Isa::RV64, 2, true),
        (Isa::RV64, 3, false),
        (Isa::RV64, 4, true),
        (Isa::UNKNOWN, 0, true),
    ] {
        let mut script = Script::started();
        script.about.isa = isa;
        script.rec(insn(0x100, len, InsnKind::OTHER));
        let expected: &[Rule] = if good { &[] } else { &[Rule::InsnLength] };
        assert_eq!(broken(&script), expected, "{isa:?} {len}");
    }
}

fn code(pc: u64, bytes: &[u8]) -> Step {
    Step::Code(T0, ProcessId(0), GuestVa(pc), bytes.to_vec())
}

#[test]
fn code_is_told_first_and_stays_the_same() {
    let mut script = Script::started();
    script.steps.push(code(0x100, &[1, 2, 3, 4]));
    script.rec(other(0x100));
    assert_eq!(broken(&script), []);
    let mut bad = script.clone();
    bad.rec(other(0x104));
    assert_eq!(broken(&bad), [Rule::CodeUntold]);

    let mut late = Script::started();
    late.rec(other(0x100));
    late.steps.push(code(0x100, &[1, 2, 3, 4]));
    assert_eq!(broken(&late), [Rule::CodeUntold]);

    let back = [insn(0x104, 2, InsnKind::JUMP), to(0x100)];
    let mut shorter = script.clone();
    shorter.steps.push(code(0x104, &[5, 6]));
    shorter.rec(back[0]).rec(back[1]).rec(insn(0x100, 3, InsnKind::OTHER));
    assert_eq!(broken(&shorter), [Rule::CodeDiffers]);
    let mut changed = script.clone();
    changed.steps.push(code(0x104, &[5, 6]));
    changed.rec(back[0]).rec(back[1]);
    changed.steps.push(code(0x100, &[9, 9, 9]));
    changed.rec(insn(0x100, 3, InsnKind::OTHER));
    assert_eq!(broken(&changed), []);
}

#[test]
fn accesses_lie_in_mapped_memory() {
    let mut script = Script::started();
    script.ev(map(0x100, 0x100, 5)).ev(map(0x1000, 0x1000, 3)).ev(map(0x3000, 0x1000, 1));
    script.rec(other(0x100));
    let good = [
        Record::load(GuestVa(0x1ff8), 8),
        Record::store(GuestVa(0x1000), 8),
        Record::load(GuestVa(0x100), 1),
        Record::load(GuestVa(0x3ff0), 16),
        Record::Prefetch { flags: AccessFlags::NONE, size: 8, addr: GuestVa(0) },
        Record::load(GuestVa(0xffff_ffff_ff60_0000), 8),
    ];
    for record in good {
        let mut script = script.clone();
        script.rec(record);
        assert_eq!(broken(&script), [], "{record:?}");
    }
    for (record, rule) in [
        (Record::load(GuestVa(0x1ff9), 8), Rule::AccessUnmapped),
        (Record::store(GuestVa(0xff8), 16), Rule::AccessUnmapped),
        (Record::store(GuestVa(0x3000), 1), Rule::AccessForbidden),
        (other(0x104), Rule::FetchForbidden),
    ] {
        let mut script = script.clone();
        if rule == Rule::FetchForbidden {
            script.ev(map(0x100, 0x100, 3));
        }
        script.rec(record);
        assert_eq!(broken(&script), [rule], "{record:?}");
    }
}

#[test]
fn memory_is_judged_as_it_is_at_the_time() {
    let mut script = Script::started();
    script.ev(map(0x100, 0x100, 5)).rec(other(0x100));
    let access = Record::store(GuestVa(0x5008), 8);
    script.ev(map(0x5000, 0x1000, 3)).rec(other(0x104)).rec(access);
    assert_eq!(broken(&script), []);
    let mut gone = script.clone();
    gone.ev(Event::Unmap { start: GuestVa(0x5000), len: 0x1000 }).rec(other(0x108)).rec(access);
    assert_eq!(broken(&gone), [Rule::AccessUnmapped]);
    let mut frozen = script.clone();
    frozen.ev(map(0x5000, 0x1000, 1)).rec(other(0x108)).rec(access);
    assert_eq!(broken(&frozen), [Rule::AccessForbidden]);
    let mut replaced = script.clone();
    replaced.ev(Event::Exec { path: "x" }).ev(map(0x900, 0x100, 5)).rec(other(0x900)).rec(access);
    assert_eq!(broken(&replaced), [Rule::AccessUnmapped]);
}

/// Two threads of one process: the second uses what the first maps later in
/// the telling.
fn shared_memory() -> Script {
    let child = ThreadId(1);
    let mut script = Script::started();
    script.ev(map(0x100, 0x100, 5)).rec(other(0x100)).ev(Event::ThreadCreate { child });
    let start = ThreadStart { creator: Some(T0), ..ThreadStart::default() };
    script.steps.push(Step::Ev(child, Event::ThreadStart(start)));
    script.steps.push(Step::Rec(child, other(0x180)));
    script.steps.push(Step::Rec(child, Record::load(GuestVa(0x9000), 4)));
    script
}

#[test]
fn another_threads_mapping_may_be_told_later() {
    let mut script = shared_memory();
    assert_eq!(broken(&script), [Rule::AccessUnmapped]);
    script.ev(map(0x9000, 0x1000, 3));
    assert_eq!(broken(&script), []);
    let timed = Config { order: Order::Time, ..Config::default() };
    let rules = verdict_with(&script, timed).by_rule;
    assert_eq!(rules, [(Rule::AccessUnmapped, 1)]);
}

#[test]
fn a_fork_has_its_parents_memory_and_code() {
    let child = ThreadId(1);
    let start = ThreadStart { process: ProcessId(1), creator: Some(T0), ..ThreadStart::default() };
    let born = [
        Step::Ev(child, Event::ThreadStart(start)),
        Step::Rec(child, other(0x100)),
        Step::Rec(child, Record::load(GuestVa(0x9000), 4)),
    ];
    let mut script = Script::started();
    script.ev(map(0x100, 0x100, 5)).ev(map(0x9000, 0x1000, 3));
    script.steps.push(code(0x100, &[0; 64]));
    script.ev(Event::ThreadCreate { child });
    script.ev(Event::Unmap { start: GuestVa(0x9000), len: 0x1000 });
    let mut late = script.clone();
    script.steps.extend(born.clone());
    assert_eq!(broken(&script), []);
    // The other way round: the child is told first.
    late.steps.splice(0..0, born);
    assert_eq!(broken(&late), []);
    script.steps.push(Step::Rec(child, Record::load(GuestVa(0xa000), 4)));
    assert_eq!(broken(&script), [Rule::AccessUnmapped]);
}

#[test]
fn batches_know_their_place_and_values() {
    let mut script = Script::started();
    script.batch = 2;
    for i in 0..6 {
        script.rec(other(0x100 + 4 * i)).rec(Record::load(GuestVa(8), 8));
    }
    assert_eq!(broken(&script), []);
    script.lie = Some(2);
    // The batch after the lie finds that the lie does not hold either.
    assert_eq!(verdict(&script).by_rule, [(Rule::InsnsBefore, 2)]);

    let mut checker = Checker::new(Config::default());
    checker.begin(&About { values: true, branches: true, ..About::default() }).unwrap();
    checker.event(T0, &Event::ThreadStart(ThreadStart::default())).unwrap();
    let records = [other(0x100), Record::load(GuestVa(8), 8)];
    let batch = Batch::new(T0, 0, &records);
    let good = Batch { values: Some(&[0; 8]), ..batch };
    checker.records(&good).unwrap();
    assert_eq!(checker.found(), 0);
    let records = [other(0x104), Record::load(GuestVa(8), 8)];
    checker.records(&Batch { values: Some(&[0; 7]), ..Batch::new(T0, 1, &records) }).unwrap();
    let records = [other(0x108), Record::load(GuestVa(8), 8)];
    checker.records(&Batch::new(T0, 2, &records)).unwrap();
    assert_eq!(checker.into_verdict().by_rule, [(Rule::Values, 2)]);
}

#[test]
fn a_part_may_begin_in_the_middle() {
    let mut script = Script::started();
    script.rec(other(0x100));
    script.lie = Some(0);
    assert_eq!(broken(&script), [Rule::InsnsBefore]);
    let part = Config { extent: Extent::Part, ..Config::default() };
    assert!(verdict_with(&script, part).is_clean());
}

#[test]
fn threads_start_once_and_end_for_good() {
    let mut script = Script::new();
    script.rec(other(0x100));
    assert_eq!(broken(&script), [Rule::ThreadStart]);
    let mut script = Script::started();
    script.ev(Event::ThreadStart(ThreadStart::default()));
    assert_eq!(broken(&script), [Rule::ThreadStart]);
    let mut script = Script::started();
    script.ev(Event::ThreadEnd(EndStatus::Exited(0)));
    assert_eq!(broken(&script), []);
    script.rec(other(0x100));
    assert_eq!(broken(&script), [Rule::ThreadEnd]);
}

#[test]
fn creators_and_joiners_agree_with_their_children() {
    let child = ThreadId(1);
    let start = |creator| {
        Step::Ev(child, Event::ThreadStart(ThreadStart { creator, ..ThreadStart::default() }))
    };
    let mut script = Script::started();
    script.ev(Event::ThreadCreate { child });
    // Cut short before the child's start.
    assert_eq!(broken(&script), []);
    let mut ended = script.clone();
    ended.ev(Event::ThreadEnd(EndStatus::Exited(0)));
    assert_eq!(broken(&ended), [Rule::ThreadCreate]);
    let mut good = script.clone();
    good.steps.push(start(Some(T0)));
    good.ev(Event::ThreadJoin { child });
    assert_eq!(broken(&good), []);
    let mut twice = good.clone();
    twice.ev(Event::ThreadJoin { child });
    assert_eq!(broken(&twice), [Rule::ThreadJoin]);
    let mut twice = good.clone();
    twice.ev(Event::ThreadCreate { child });
    assert_eq!(broken(&twice), [Rule::ThreadCreate]);
    let mut other_parent = script.clone();
    other_parent.steps.push(start(Some(ThreadId(7))));
    assert_eq!(broken(&other_parent), [Rule::ThreadCreate]);
    let mut untold = Script::started();
    untold.steps.push(start(Some(T0)));
    assert_eq!(broken(&untold), [Rule::ThreadCreate]);
    let mut nobody = Script::started();
    nobody.ev(Event::ThreadJoin { child });
    assert_eq!(broken(&nobody), [Rule::ThreadJoin]);
}

#[test]
fn paired_events_come_in_pairs() {
    let a = GuestVa(0x10);
    let b = GuestVa(0x20);
    let lock = |op, kind, addr| Event::Lock { op, kind, addr };
    let barrier = |phase, addr| Event::Barrier { phase, addr };
    let cond = |op, addr| Event::Cond { op, addr };
    use {BarrierPhase as B, CondOp as C, LockKind as K, LockOp as L};
    let good: [&[Event<'static>]; 5] = [
        &[
            lock(L::Acquire, K::Mutex, a),
            lock(L::Acquire, K::Mutex, a),
            lock(L::Release, K::Mutex, a),
            lock(L::Release, K::Mutex, a),
        ],
        &[lock(L::Acquire, K::Read, a), lock(L::Release, K::Write, a)],
        &[lock(L::Release, K::Semaphore, a), lock(L::Release, K::Futex, a)],
        &[barrier(B::Create, a), barrier(B::Enter, a), barrier(B::Leave, a), barrier(B::Enter, b)],
        &[cond(C::Wait, a), cond(C::Wake, a), cond(C::Signal, b), cond(C::Wait, b)],
    ];
    let bad: [(&[Event<'static>], Rule); 8] = [
        (&[lock(L::Release, K::Mutex, a)], Rule::Lock),
        (&[lock(L::Acquire, K::Mutex, a), lock(L::Release, K::Mutex, b)], Rule::Lock),
        (&[barrier(B::Leave, a)], Rule::Barrier),
        (&[barrier(B::Enter, a), barrier(B::Leave, b)], Rule::Barrier),
        (&[barrier(B::Enter, a), barrier(B::Enter, a)], Rule::Barrier),
        (&[cond(C::Wake, a)], Rule::Cond),
        (&[cond(C::Wait, a), cond(C::Wait, a)], Rule::Cond),
        (&[Event::SignalReturn { pc: a }], Rule::Signal),
    ];
    for (events, expected) in
        good.iter().map(|e| (*e, None)).chain(bad.iter().map(|(e, r)| (*e, Some(*r))))
    {
        let mut script = Script::started();
        script.rec(other(0x100));
        let mut torn = script.clone();
        torn.ev(gap());
        for event in events {
            script.ev(*event);
            torn.ev(*event);
        }
        assert_eq!(broken(&script), expected.into_iter().collect::<Vec<_>>(), "{events:?}");
        if events.len() == 1 {
            assert_eq!(broken(&torn), [], "after a gap: {events:?}");
        }
    }
}

#[test]
fn traps_interrupt_the_next_instruction() {
    let trap = |at| {
        let (interrupted, handler) = (GuestVa(at), GuestVa(0x900));
        Event::Trap(TrapInfo { cause: 1 << 63 | 5, value: 0, interrupted, handler })
    };
    let level = Event::Privilege { level: Privilege::SUPERVISOR };
    let with = |at, then| {
        let mut script = Script::started();
        script.rec(other(0x100)).ev(trap(at)).ev(level).rec(other(then));
        broken(&script)
    };
    assert_eq!(with(0x104, 0x900), []);
    assert_eq!(with(0x100, 0x900), [Rule::Trap]);
    assert_eq!(with(0x104, 0x104), [Rule::Flow]);
}

#[test]
fn system_calls_follow_their_instruction_and_return() {
    let call = |number| Event::Syscall { number, args: [0; 6] };
    let back = |number| Event::SyscallReturn { number, result: 0 };
    let kernel = insn(0x100, 2, InsnKind::SYSCALL);
    let info =
        |at| SignalInfo { number: 1, code: 0, interrupted: GuestVa(at), handler: GuestVa(0x900) };
    let mut script = Script::started();
    script.ev(back(56)).rec(kernel).ev(call(1));
    let with = |event, then: Option<u64>| {
        let mut script = script.clone();
        script.ev(event);
        if let Some(pc) = then {
            script.rec(other(pc));
        }
        broken(&script)
    };
    assert_eq!(with(back(1), Some(0x102)), []);
    assert_eq!(with(back(2), Some(0x102)), [Rule::Syscall]);
    assert_eq!(with(call(1), None), [Rule::Syscall]);
    assert_eq!(with(Event::Migrate { cpu: 0 }, Some(0x102)), [Rule::Syscall]);
    assert_eq!(with(Event::Exec { path: "" }, Some(0x5000)), []);
    assert_eq!(with(Event::ThreadEnd(EndStatus::Exited(0)), None), []);
    // Interrupted, and either gone on or started anew after the handler.
    assert_eq!(with(Event::Signal(info(0x102)), Some(0x900)), []);
    assert_eq!(with(Event::Signal(info(0x100)), Some(0x900)), []);
    assert_eq!(with(Event::Signal(info(0x104)), Some(0x900)), [Rule::Signal]);
    let mut stray = Script::started();
    stray.rec(other(0x100)).ev(back(1));
    assert_eq!(broken(&stray), [Rule::Syscall]);
    let mut wrong = Script::started();
    wrong.rec(other(0x100)).ev(call(1)).ev(back(1));
    assert_eq!(broken(&wrong), [Rule::Syscall]);
}

#[test]
fn modes_alternate_and_exec_is_silent() {
    let mode = |mode| Event::ModeSwitch { mode };
    let mut script = Script::started();
    script.ev(mode(Mode::Inst)).rec(other(0x100)).ev(mode(Mode::Exec)).ev(mode(Mode::Inst));
    assert_eq!(broken(&script), []);
    script.ev(mode(Mode::Inst));
    assert_eq!(broken(&script), [Rule::Mode]);
    let mut silent = Script::started();
    silent.ev(mode(Mode::Exec)).rec(other(0x100));
    assert_eq!(broken(&silent), [Rule::Mode]);
}

#[test]
fn clocks_do_not_go_back() {
    let mut script = Script::started();
    script.ev(Event::Timestamp { ns: 5 }).ev(Event::Timestamp { ns: 5 });
    assert_eq!(broken(&script), []);
    script.ev(Event::Timestamp { ns: 4 });
    assert_eq!(broken(&script), [Rule::Timestamp]);
}

#[test]
fn counts_must_be_those_of_the_file() {
    let mut script = Script::started();
    script.rec(other(0x100)).rec(Record::load(GuestVa(8), 8));
    let right = Totals { insns: 1, loads: 1, ..Totals::default() };
    for (thread, totals, good) in [
        (T0, right, true),
        (T0, Totals { loads: 2, ..right }, false),
        (ThreadId(3), Totals::default(), false),
    ] {
        let mut checker = Checker::new(Config::default());
        checker.expect(thread, totals);
        script.play(&mut checker);
        assert_eq!(checker.into_verdict().is_clean(), good, "{thread} {totals:?}");
    }
}
