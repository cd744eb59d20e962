//! The names of events and of what they hold, for all dumps alike.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    AccessFlags, BarrierPhase, CondOp, EndStatus, Event, GapReason, LockKind, LockOp, Map, Mode,
    SignalInfo, ThreadStart,
};

/// Takes an event's fields, in order.
pub(crate) trait Fields {
    fn number(&mut self, key: &str, value: u64);
    fn signed(&mut self, key: &str, value: i64);
    fn address(&mut self, key: &str, value: u64);
    fn text(&mut self, key: &str, value: &str);
    fn bytes(&mut self, key: &str, value: &[u8]);
    fn numbers(&mut self, key: &str, values: &[u64]);
}

/// The event's name.
pub(crate) const fn event_name(event: &Event<'_>) -> &'static str {
    match event {
        Event::ThreadStart(_) => "thread-start",
        Event::ThreadEnd(_) => "thread-end",
        Event::ThreadCreate { .. } => "thread-create",
        Event::ThreadJoin { .. } => "thread-join",
        Event::Exec { .. } => "exec",
        Event::Map(_) => "map",
        Event::Unmap { .. } => "unmap",
        Event::Lock { .. } => "lock",
        Event::Barrier { .. } => "barrier",
        Event::Cond { .. } => "cond",
        Event::Syscall { .. } => "syscall",
        Event::SyscallReturn { .. } => "syscall-return",
        Event::Signal(_) => "signal",
        Event::SignalReturn { .. } => "signal-return",
        Event::Migrate { .. } => "migrate",
        Event::Marker { .. } => "marker",
        Event::ModeSwitch { .. } => "mode-switch",
        Event::Gap { .. } => "gap",
        Event::Timestamp { .. } => "timestamp",
        Event::Trap(_) => "trap",
        Event::Privilege { .. } => "privilege",
        Event::AddressSpace { .. } => "address-space",
        _ => "unknown",
    }
}

/// Tells an event's fields. A flat table: one arm per event.
pub(crate) fn event_fields(event: &Event<'_>, f: &mut impl Fields) {
    match event {
        Event::ThreadStart(start) => thread_start(start, f),
        Event::ThreadEnd(status) => thread_end(status, f),
        Event::ThreadCreate { child } | Event::ThreadJoin { child } => {
            f.number("child", child.0.into());
        }
        Event::Exec { path } => f.text("path", path),
        Event::Map(map) => map_fields(map, f),
        Event::Unmap { start, len } => {
            f.address("start", start.0);
            f.number("len", *len);
        }
        Event::Lock { op, kind, addr } => {
            f.text("op", lock_op(*op));
            f.text("kind", lock_kind(*kind));
            f.address("addr", addr.0);
        }
        Event::Barrier { phase, addr } => {
            f.text("phase", barrier_phase(*phase));
            f.address("addr", addr.0);
        }
        Event::Cond { op, addr } => {
            f.text("op", cond_op(*op));
            f.address("addr", addr.0);
        }
        Event::Syscall { number, args } => {
            f.number("number", *number);
            f.numbers("args", args);
        }
        Event::SyscallReturn { number, result } => {
            f.number("number", *number);
            f.signed("result", *result);
        }
        Event::Signal(info) => signal(info, f),
        Event::SignalReturn { pc } => f.address("pc", pc.0),
        Event::Migrate { cpu } => f.number("cpu", (*cpu).into()),
        Event::Marker { id, text } => {
            f.number("id", *id);
            f.text("text", text);
        }
        Event::ModeSwitch { mode } => f.text("mode", mode_name(*mode)),
        Event::Gap { reason, insns, skipped } => {
            f.text("reason", gap_reason(*reason));
            insns.iter().for_each(|&n| f.number("insns", n));
            skipped.iter().for_each(|&n| f.number("skipped", n));
        }
        Event::Timestamp { ns } => f.number("ns", *ns),
        Event::Trap(info) => {
            f.address("cause", info.cause);
            f.address("value", info.value);
            f.address("interrupted", info.interrupted.0);
            f.address("handler", info.handler.0);
        }
        Event::Privilege { level } => match level.name() {
            Some(name) => f.text("level", name),
            None => f.number("level", level.0.into()),
        },
        Event::AddressSpace { id } => f.address("id", *id),
        _ => {}
    }
}

fn thread_start(start: &ThreadStart, f: &mut impl Fields) {
    f.number("process", start.process.0.into());
    if let Some(creator) = start.creator {
        f.number("creator", creator.0.into());
    }
    f.number("os_pid", start.os_pid.into());
    f.number("os_tid", start.os_tid.into());
}

fn thread_end(status: &EndStatus, f: &mut impl Fields) {
    match *status {
        EndStatus::Exited(status) => f.signed("exited", status.into()),
        EndStatus::Killed(signal) => f.signed("killed", signal.into()),
        _ => f.text("status", "unknown"),
    }
}

fn map_fields(map: &Map<'_>, f: &mut impl Fields) {
    f.address("start", map.start.0);
    f.number("len", map.len);
    let bit = |bit: u8, letter: u8| if map.protection.0 & bit != 0 { letter } else { b'-' };
    let protection = [bit(1, b'r'), bit(2, b'w'), bit(4, b'x')];
    f.text("protection", std::str::from_utf8(&protection).unwrap_or_default());
    match map.kind.name() {
        Some(name) => f.text("kind", name),
        None => f.number("kind", map.kind.0.into()),
    }
    f.address("offset", map.offset.0);
    f.address("bias", map.bias);
    f.text("path", map.path);
    if !map.build_id.is_empty() {
        f.bytes("build_id", map.build_id);
    }
}

fn signal(info: &SignalInfo, f: &mut impl Fields) {
    f.signed("number", info.number.into());
    f.signed("code", info.code.into());
    f.address("interrupted", info.interrupted.0);
    f.address("handler", info.handler.0);
}

const fn lock_op(op: LockOp) -> &'static str {
    match op {
        LockOp::Create => "create",
        LockOp::Request => "request",
        LockOp::Acquire => "acquire",
        LockOp::Release => "release",
        LockOp::Destroy => "destroy",
        _ => "unknown",
    }
}

const fn lock_kind(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "mutex",
        LockKind::Spin => "spin",
        LockKind::Read => "read",
        LockKind::Write => "write",
        LockKind::Semaphore => "semaphore",
        LockKind::Futex => "futex",
        _ => "unknown",
    }
}

const fn barrier_phase(phase: BarrierPhase) -> &'static str {
    match phase {
        BarrierPhase::Create => "create",
        BarrierPhase::Enter => "enter",
        BarrierPhase::Leave => "leave",
        BarrierPhase::Destroy => "destroy",
        _ => "unknown",
    }
}

const fn cond_op(op: CondOp) -> &'static str {
    match op {
        CondOp::Create => "create",
        CondOp::Wait => "wait",
        CondOp::Wake => "wake",
        CondOp::Signal => "signal",
        CondOp::Broadcast => "broadcast",
        CondOp::Destroy => "destroy",
        _ => "unknown",
    }
}

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exec => "exec",
        Mode::Inst => "inst",
        _ => "unknown",
    }
}

const fn gap_reason(reason: GapReason) -> &'static str {
    match reason {
        GapReason::Sampling => "sampling",
        GapReason::Window => "window",
        GapReason::Overflow => "overflow",
        GapReason::Untraced => "untraced",
        GapReason::Damage => "damage",
        GapReason::Cut => "cut",
        _ => "unknown",
    }
}

/// Access flags and their names.
pub(crate) const FLAGS: [(AccessFlags, &str); 7] = [
    (AccessFlags::ATOMIC, "atomic"),
    (AccessFlags::NON_TEMPORAL, "non-temporal"),
    (AccessFlags::STACK, "stack"),
    (AccessFlags::LANE, "lane"),
    (AccessFlags::STRING, "string"),
    (AccessFlags::STATE, "state"),
    (AccessFlags::FOR_WRITE, "for-write"),
];
