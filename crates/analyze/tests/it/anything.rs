//! No tool panics, whatever it is told: streams of nonsense through all sinks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_analyze::check::{Checker, Config, Extent, Order};
use ichnos_analyze::diff::{Depth, Dictionary, Fingerprint, Keys, Tokens, View};
use ichnos_analyze::inventory::Inventory;
use ichnos_analyze::profile::{Place, PlainCounts, Profile, Space};
use ichnos_analyze::select::{Others, Select, Selection};
use ichnos_base::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Told {
    Records(u32, u64, Vec<Record>, Option<Vec<u8>>),
    Event(u32, Event<'static>),
    Code(u32, u64, Vec<u8>),
}

/// Numbers that are small, or near an end.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..8, 0x1000u64..0x1010, (0u64..8).prop_map(|n| u64::MAX - n), any::<u64>()]
}

fn size() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..20, Just(5000), Just(u32::MAX)]
}

fn record() -> impl Strategy<Value = Record> {
    let access = || (any::<u8>(), size(), number());
    prop_oneof![
        3 => (any::<u8>(), 0u8..10, number())
            .prop_map(|(len, kind, pc)| Record::insn(GuestVa(pc), len, InsnKind(kind))),
        1 => (0u32..20, number()).prop_map(|(size, a)| Record::load(GuestVa(a), size)),
        1 => (0u32..20, number()).prop_map(|(size, a)| Record::store(GuestVa(a), size)),
        1 => access().prop_map(|(f, size, a)| Record::Flush {
            flags: AccessFlags(f), size, addr: GuestVa(a) }),
        1 => access().prop_map(|(f, size, a)| Record::Prefetch {
            flags: AccessFlags(f), size, addr: GuestVa(a) }),
        2 => (any::<bool>(), number()).prop_map(|(t, a)| Record::branch(t, GuestVa(a))),
    ]
}

fn map() -> impl Strategy<Value = Event<'static>> {
    (number(), number(), any::<u8>(), 0u8..7, number()).prop_map(|(s, len, p, kind, bias)| {
        Event::Map(Map {
            start: GuestVa(s),
            len,
            protection: Protection(p),
            kind: MapKind(kind),
            offset: FileOff(bias),
            bias,
            path: "x",
            build_id: &[1, 2],
        })
    })
}

fn event() -> impl Strategy<Value = Event<'static>> {
    let start = (0u32..3, prop::option::of(0u32..4)).prop_map(|(process, creator)| {
        let creator = creator.map(ThreadId);
        Event::ThreadStart(ThreadStart {
            process: ProcessId(process),
            creator,
            os_pid: 1,
            os_tid: 1,
        })
    });
    let pair = || (any::<bool>(), number());
    prop_oneof![
        start,
        map(),
        (number(), number()).prop_map(|(s, len)| Event::Unmap { start: GuestVa(s), len }),
        (0u32..5).prop_map(|c| Event::ThreadCreate { child: ThreadId(c) }),
        (0u32..5).prop_map(|c| Event::ThreadJoin { child: ThreadId(c) }),
        Just(Event::Exec { path: "y" }),
        Just(Event::ThreadEnd(EndStatus::Unknown)),
        number().prop_map(|number| Event::Syscall { number, args: [number; 6] }),
        number().prop_map(|number| Event::SyscallReturn { number, result: -1 }),
        number().prop_map(|ns| Event::Timestamp { ns }),
        number().prop_map(|pc| Event::SignalReturn { pc: GuestVa(pc) }),
        (number(), number()).prop_map(|(i, h)| Event::Signal(SignalInfo {
            number: 1,
            code: 1,
            interrupted: GuestVa(i),
            handler: GuestVa(h)
        })),
        (number(), number()).prop_map(|(i, h)| Event::Trap(TrapInfo {
            cause: i,
            value: h,
            interrupted: GuestVa(i),
            handler: GuestVa(h)
        })),
        any::<u8>().prop_map(|level| Event::Privilege { level: Privilege(level) }),
        number().prop_map(|id| Event::AddressSpace { id }),
        pair().prop_map(|(on, a)| Event::Lock {
            op: if on { LockOp::Acquire } else { LockOp::Release },
            kind: LockKind::Read,
            addr: GuestVa(a)
        }),
        pair().prop_map(|(on, a)| Event::Barrier {
            phase: if on { BarrierPhase::Enter } else { BarrierPhase::Leave },
            addr: GuestVa(a)
        }),
        any::<bool>()
            .prop_map(|on| Event::ModeSwitch { mode: if on { Mode::Exec } else { Mode::Inst } }),
        number().prop_map(|n| Event::Gap { reason: GapReason::Cut, insns: Some(n), skipped: None }),
    ]
}

fn told() -> impl Strategy<Value = Told> {
    let values = prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
    prop_oneof![
        (0u32..4, number(), prop::collection::vec(record(), 0..12), values)
            .prop_map(|(t, before, records, values)| Told::Records(t, before, records, values)),
        (0u32..4, event()).prop_map(|(t, e)| Told::Event(t, e)),
        (0u32..3, number(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(p, pc, bytes)| Told::Code(p, pc, bytes)),
    ]
}

fn tell<S: Sink>(all: &[Told], mut sink: S) -> S
where
    S::Error: std::fmt::Debug,
{
    let about = About { isa: Isa::X86_64, branches: true, values: true, ..About::default() };
    sink.begin(&about).unwrap();
    for told in all {
        let go_on = match told {
            Told::Records(thread, before, records, values) => {
                let batch = Batch::new(ThreadId(*thread), *before, records);
                sink.records(&Batch { values: values.as_deref(), ..batch }).unwrap()
            }
            Told::Event(thread, event) => sink.event(ThreadId(*thread), event).unwrap(),
            Told::Code(process, pc, bytes) => {
                let process = ProcessId(*process);
                sink.code(ThreadId(0), &Code { process, pc: GuestVa(*pc), bytes }).unwrap()
            }
        };
        if !go_on {
            break;
        }
    }
    sink.finish().unwrap();
    sink
}

proptest! {
    #[test]
    fn nonsense_is_taken_calmly(all in prop::collection::vec(told(), 0..60), from in number(), to in number()) {
        for order in [Order::Any, Order::Time] {
            for extent in [Extent::Whole, Extent::Part] {
                let config = Config { extent, order, ..Config::default() };
                let verdict = tell(&all, Checker::new(config)).into_verdict();
                prop_assert_eq!(verdict.total() == 0, verdict.is_clean());
            }
        }
        let stock = tell(&all, Inventory::new()).into_stock(5);
        prop_assert!(stock.top.len() <= 5);
        let (costs, _) = tell(&all, Profile::new(PlainCounts)).into_costs();
        costs.gather(&mut |_: Space, _: GuestVa| Place::default());
        for view in [View::Insns, View::CallTargets, View::CallsAndReturns] {
            tell(&all, Tokens::new(view, Keys::Images, 50, Dictionary::default()));
        }
        tell(&all, Fingerprint::new(Depth::Values));
        let threads = [ThreadId(0), ThreadId(2)].into();
        let selection = Selection { threads, insns: Some(from..to), others: Others::KeepMemory };
        tell(&all, Select::new(selection, Inventory::new()));
    }
}
