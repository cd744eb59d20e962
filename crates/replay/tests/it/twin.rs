//! The naive twin: everything told, in a list per thread; and generators of
//! plausible and absurd things to tell.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;

use ichnos_base::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// One thing to tell a sink.
#[derive(Clone, Debug)]
pub enum Input {
    /// Records of a thread, with a seed for values if they shall have any.
    Records(u32, Vec<Record>, Option<u8>),
    /// An event, by number.
    Event(u32, u64),
    /// Code: process, address, bytes.
    Code(u32, u64, Vec<u8>),
}

/// Everything told.
#[derive(Debug, Default)]
pub struct Twin {
    pub by_thread: BTreeMap<u32, Vec<String>>,
    pub totals: Totals,
    /// Keep only what lies here.
    pub window: Option<Range<u64>>,
    pub insns: BTreeMap<u32, u64>,
    pub code: BTreeMap<(u32, u64), u8>,
    pub process: BTreeMap<u32, u32>,
    pub about: Option<String>,
    /// Keep the code of each instruction as it is known when it executes.
    pub with_code: bool,
}

impl Twin {
    fn keep(&mut self, thread: u32, text: String) {
        let before = self.insns.get(&thread).copied().unwrap_or(0);
        let list = self.by_thread.entry(thread).or_default();
        let keep = self.window.as_ref().is_none_or(|w| {
            w.start < w.end
                && before <= w.end
                && (before > w.start || (before == 0 && w.start == 0))
        });
        if keep {
            list.push(text);
        }
    }
}

impl Sink for Twin {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let thread = batch.thread.0;
        if self.window.is_none() && self.about.is_some() {
            let seen = *self.insns.entry(thread).or_insert(batch.insns_before);
            assert_eq!(seen, batch.insns_before, "a batch says where it stands");
        }
        self.totals.count_batch(batch);
        let mut values = batch.values;
        for record in batch.records {
            let value = values.map(|v| v.split_at(record.value_len()));
            values = value.map(|v| v.1);
            let mut code = String::new();
            if let Record::Insn { len, pc, .. } = record {
                *self.insns.entry(thread).or_default() += 1;
                let process = self.process.get(&thread).copied().unwrap_or(0);
                let bytes =
                    (0..u64::from(*len)).map(|i| self.code.get(&(process, pc.0.wrapping_add(i))));
                let bytes: Option<Vec<u8>> = bytes.map(|b| b.copied()).collect();
                if let Some(bytes) = bytes.filter(|b| !b.is_empty() && self.with_code) {
                    code = format!(" code {bytes:x?}");
                }
            }
            self.keep(thread, format!("{record:x?} {:?}{code}", value.map(|v| v.0)));
        }
        assert!(values.is_none_or(<[u8]>::is_empty));
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if let Event::ThreadStart(start) = event {
            self.process.insert(thread.0, start.process.0);
        }
        self.keep(thread.0, format!("{event:x?}"));
        Ok(true)
    }

    fn code(&mut self, _: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        for (i, byte) in (0..).zip(code.bytes) {
            self.code.insert((code.process.0, code.pc.0.wrapping_add(i)), *byte);
        }
        Ok(true)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.about = Some(format!("{about:?}"));
        Ok(true)
    }
}

/// Tells everything to a sink.
pub fn push<S: Sink>(inputs: &[Input], sink: &mut S) -> Result<(), S::Error> {
    let mut insns: BTreeMap<u32, u64> = BTreeMap::new();
    for input in inputs {
        match input {
            Input::Records(thread, records, seed) => {
                let values: Option<Vec<u8>> = seed.map(|seed| {
                    let len = records.iter().map(Record::value_len).sum::<usize>();
                    (0..len).map(|i| seed.wrapping_add((i / 5) as u8)).collect()
                });
                let before = insns.entry(*thread).or_default();
                let batch = Batch {
                    thread: ThreadId(*thread),
                    insns_before: *before,
                    records,
                    values: values.as_deref(),
                };
                *before +=
                    records.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
                sink.records(&batch)?;
            }
            Input::Event(thread, number) => {
                with_event(*number, |event| sink.event(ThreadId(*thread), event))?;
            }
            Input::Code(process, pc, bytes) => {
                let code = Code { process: ProcessId(*process), pc: GuestVa(*pc), bytes };
                sink.code(ThreadId(0), &code)?;
            }
        }
    }
    Ok(())
}

/// An event of every sort, by number.
pub fn with_event<R>(n: u64, tell: impl FnOnce(&Event<'_>) -> R) -> R {
    let big = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = format!("text {n} äöü");
    let va = GuestVa(big);
    let bytes = big.to_le_bytes();
    let child = ThreadId(big as u32);
    let op = [LockOp::Create, LockOp::Request, LockOp::Acquire, LockOp::Release, LockOp::Destroy];
    let kind = [
        LockKind::Mutex,
        LockKind::Spin,
        LockKind::Read,
        LockKind::Write,
        LockKind::Semaphore,
        LockKind::Futex,
    ];
    let phase =
        [BarrierPhase::Create, BarrierPhase::Enter, BarrierPhase::Leave, BarrierPhase::Destroy];
    let cond = [
        CondOp::Create,
        CondOp::Wait,
        CondOp::Wake,
        CondOp::Signal,
        CondOp::Broadcast,
        CondOp::Destroy,
    ];
    let reason = [
        GapReason::Sampling,
        GapReason::Window,
        GapReason::Overflow,
        GapReason::Untraced,
        GapReason::Damage,
        GapReason::Cut,
    ];
    let end =
        [EndStatus::Exited(big as i32), EndStatus::Killed(big as i32 >> 20), EndStatus::Unknown];
    let pick = (n / 22) as usize;
    tell(&match n % 22 {
        0 => Event::ThreadStart(ThreadStart {
            process: ProcessId((n / 22 % 2) as u32),
            creator: (n.is_multiple_of(2)).then_some(child),
            os_pid: big as u32,
            os_tid: n as u32,
        }),
        1 => Event::ThreadEnd(end[pick % 3]),
        2 => Event::ThreadCreate { child },
        3 => Event::ThreadJoin { child },
        4 => Event::Exec { path: &text },
        5 => Event::Map(Map {
            start: va,
            len: n,
            protection: Protection(n as u8),
            kind: MapKind((n >> 3) as u8),
            offset: FileOff(n << 12),
            bias: big,
            path: &text,
            build_id: &bytes,
        }),
        6 => Event::Unmap { start: va, len: big },
        7 => Event::Lock { op: op[pick % 5], kind: kind[pick % 6], addr: va },
        8 => Event::Barrier { phase: phase[pick % 4], addr: va },
        9 => Event::Cond { op: cond[pick % 6], addr: va },
        10 => Event::Syscall { number: n, args: [big, 0, 1, n, u64::MAX, 7] },
        11 => Event::SyscallReturn { number: n, result: big as i64 },
        12 => Event::Signal(SignalInfo {
            number: n as i32,
            code: -(n as i32),
            interrupted: va,
            handler: GuestVa(n),
        }),
        13 => Event::SignalReturn { pc: va },
        14 => Event::Migrate { cpu: big as u32 },
        15 => Event::Marker { id: big, text: &text },
        16 => Event::ModeSwitch { mode: if n.is_multiple_of(2) { Mode::Exec } else { Mode::Inst } },
        17 => Event::Gap {
            reason: reason[pick % 6],
            insns: (n.is_multiple_of(2)).then_some(big),
            skipped: (n.is_multiple_of(3)).then_some(n),
        },
        18 => Event::Timestamp { ns: n },
        19 => Event::Trap(TrapInfo {
            cause: n << 62 | n,
            value: big,
            interrupted: va,
            handler: GuestVa(n),
        }),
        20 => Event::Privilege { level: Privilege(n as u8) },
        _ => Event::AddressSpace { id: big },
    })
}

/// Lists of things to tell.
pub fn inputs() -> impl Strategy<Value = Vec<Input>> {
    vec(prop_oneof![6 => program(), 2 => absurd(), 2 => event(), 1 => code()], 0..24)
}

fn event() -> impl Strategy<Value = Input> {
    (0u32..3, 0u64..2000).prop_map(|(thread, n)| Input::Event(thread, n))
}

fn code() -> impl Strategy<Value = Input> {
    (0u32..2, 0u64..24, vec(any::<u8>(), 0..40))
        .prop_map(|(process, at, bytes)| Input::Code(process, 0x1000 + at, bytes))
}

fn seed() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![3 => Just(None), 1 => any::<u8>().prop_map(Some)]
}

/// Something like a loop: a few instructions over and over, with addresses that move.
fn program() -> impl Strategy<Value = Input> {
    (0u32..3, 0u64..6, vec(insn(), 1..6), 1usize..12, seed()).prop_map(
        |(thread, at, body, turns, seed)| {
            let mut records = Vec::new();
            for turn in 0..turns as u64 {
                let mut pc = GuestVa(0x1000 + at * 4);
                for (len, accesses, branch) in &body {
                    let kind = if branch.is_some() { InsnKind::BRANCH } else { InsnKind::OTHER };
                    records.push(Record::Insn { len: *len, kind, pc });
                    for (store, size, base, stride) in accesses {
                        let addr = GuestVa(base.wrapping_add(stride.wrapping_mul(turn)));
                        records.push(if *store {
                            Record::store(addr, *size)
                        } else {
                            Record::load(addr, *size)
                        });
                    }
                    pc = pc.offset(u64::from(*len));
                    if let Some(target) = branch {
                        let taken = turn % 3 != 0;
                        let target = GuestVa(0x1000 + target * 4);
                        records.push(Record::Branch { taken, target });
                        if taken {
                            break;
                        }
                    }
                }
            }
            Input::Records(thread, records, seed)
        },
    )
}

type Access = (bool, u32, u64, u64);

fn insn() -> impl Strategy<Value = (u8, Vec<Access>, Option<u64>)> {
    let access = (any::<bool>(), 0u32..20, 0u64..100_000, 0u64..17);
    (1u8..6, vec(access, 0..3), prop::option::weighted(0.3, 0u64..8))
}

/// Any records at all.
fn absurd() -> impl Strategy<Value = Input> {
    (0u32..3, vec(record(), 0..30), seed()).prop_map(|(thread, mut records, seed)| {
        if seed.is_some() {
            // Values of gigabytes are legal and take gigabytes: not here.
            for record in &mut records {
                if let Record::Load { size, .. } | Record::Store { size, .. } = record {
                    *size %= 100;
                }
            }
        }
        Input::Records(thread, records, seed)
    })
}

fn record() -> impl Strategy<Value = Record> {
    let va = prop_oneof![any::<u64>(), 0x1000u64..0x1020].prop_map(GuestVa);
    let size = prop_oneof![any::<u32>(), 0u32..20, Just(u32::MAX)];
    let flags = any::<u8>().prop_map(AccessFlags);
    (0..9, any::<u8>(), any::<u8>(), size, (va, flags)).prop_map(
        |(what, len, kind, size, (addr, flags))| match what {
            0..=2 => Record::Insn { len: len % 4, kind: InsnKind(kind % 12), pc: addr },
            3 => Record::Insn { len, kind: InsnKind(kind), pc: addr },
            4 => Record::Load { flags, size, addr },
            5 => Record::Store { flags, size, addr },
            6 => Record::Prefetch { flags, size, addr },
            7 => Record::Flush { flags, size, addr },
            _ => Record::Branch { taken: kind.is_multiple_of(2), target: addr },
        },
    )
}
