//! Events as bytes and back. Every variant of `base::Event` has a tag here; a
//! file with a tag unknown to this version is refused, not guessed at.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    BarrierPhase, CondOp, EndStatus, Event, FileOff, GapReason, GuestVa, LockKind, LockOp, Map,
    MapKind, Mode, Privilege, ProcessId, Protection, SignalInfo, ThreadId, ThreadStart, TrapInfo,
};

use crate::bytes::{Cursor, Parse, put_bytes, put_signed, put_varint};
use crate::error::{Error, Flaw};

/// A set of values with a number each, so that tables serve both directions.
macro_rules! numbered {
    ($put:ident, $get:ident, $type:ty, $($number:literal => $value:path),+ $(,)?) => {
        fn $put(value: $type) -> Option<u8> {
            match value {
                $($value => Some($number),)+
                _ => None,
            }
        }
        fn $get(number: u8) -> Parse<$type> {
            match number {
                $($number => Ok($value),)+
                _ => Err(Flaw("an event has an unknown detail")),
            }
        }
    };
}

numbered!(put_lock_op, lock_op, LockOp, 0 => LockOp::Create, 1 => LockOp::Request,
    2 => LockOp::Acquire, 3 => LockOp::Release, 4 => LockOp::Destroy);
numbered!(put_lock_kind, lock_kind, LockKind, 0 => LockKind::Mutex, 1 => LockKind::Spin,
    2 => LockKind::Read, 3 => LockKind::Write, 4 => LockKind::Semaphore, 5 => LockKind::Futex);
numbered!(put_phase, phase, BarrierPhase, 0 => BarrierPhase::Create, 1 => BarrierPhase::Enter,
    2 => BarrierPhase::Leave, 3 => BarrierPhase::Destroy);
numbered!(put_cond, cond, CondOp, 0 => CondOp::Create, 1 => CondOp::Wait, 2 => CondOp::Wake,
    3 => CondOp::Signal, 4 => CondOp::Broadcast, 5 => CondOp::Destroy);
numbered!(put_mode, mode, Mode, 0 => Mode::Exec, 1 => Mode::Inst);
numbered!(put_reason, reason, GapReason, 0 => GapReason::Sampling, 1 => GapReason::Window,
    2 => GapReason::Overflow, 3 => GapReason::Untraced, 4 => GapReason::Damage,
    5 => GapReason::Cut);

const UNKNOWN: Error = Error::Misuse("an event is of a sort that the trace format does not know");

/// Appends an event.
pub(crate) fn put_event(out: &mut Vec<u8>, event: &Event<'_>) -> Result<(), Error> {
    let tag = |out: &mut Vec<u8>, tag: u8| out.push(tag);
    match *event {
        Event::ThreadStart(start) => {
            tag(out, 0);
            put_varint(out, u64::from(start.process.0));
            put_option(out, start.creator.map(|t| u64::from(t.0)));
            put_varint(out, u64::from(start.os_pid));
            put_varint(out, u64::from(start.os_tid));
        }
        Event::ThreadEnd(status) => {
            tag(out, 1);
            match status {
                EndStatus::Exited(code) => {
                    out.push(0);
                    put_signed(out, i64::from(code));
                }
                EndStatus::Killed(signal) => {
                    out.push(1);
                    put_signed(out, i64::from(signal));
                }
                EndStatus::Unknown => out.push(2),
                _ => return Err(UNKNOWN),
            }
        }
        Event::ThreadCreate { child } => put_tagged(out, 2, &[u64::from(child.0)]),
        Event::ThreadJoin { child } => put_tagged(out, 3, &[u64::from(child.0)]),
        Event::Exec { path } => {
            tag(out, 4);
            put_bytes(out, path.as_bytes());
        }
        Event::Map(ref map) => {
            tag(out, 5);
            put_map(out, map);
        }
        Event::Unmap { start, len } => put_tagged(out, 6, &[start.0, len]),
        Event::Lock { op, kind, addr } => {
            tag(out, 7);
            out.push(put_lock_op(op).ok_or(UNKNOWN)?);
            out.push(put_lock_kind(kind).ok_or(UNKNOWN)?);
            put_varint(out, addr.0);
        }
        Event::Barrier { phase, addr } => {
            tag(out, 8);
            out.push(put_phase(phase).ok_or(UNKNOWN)?);
            put_varint(out, addr.0);
        }
        Event::Cond { op, addr } => {
            tag(out, 9);
            out.push(put_cond(op).ok_or(UNKNOWN)?);
            put_varint(out, addr.0);
        }
        Event::Syscall { number, args } => {
            put_tagged(out, 10, &[number]);
            args.iter().for_each(|arg| put_varint(out, *arg));
        }
        Event::SyscallReturn { number, result } => {
            put_tagged(out, 11, &[number]);
            put_signed(out, result);
        }
        Event::Signal(info) => {
            tag(out, 12);
            put_signed(out, i64::from(info.number));
            put_signed(out, i64::from(info.code));
            put_varint(out, info.interrupted.0);
            put_varint(out, info.handler.0);
        }
        Event::SignalReturn { pc } => put_tagged(out, 13, &[pc.0]),
        Event::Migrate { cpu } => put_tagged(out, 14, &[u64::from(cpu)]),
        Event::Marker { id, text } => {
            put_tagged(out, 15, &[id]);
            put_bytes(out, text.as_bytes());
        }
        Event::ModeSwitch { mode } => {
            tag(out, 16);
            out.push(put_mode(mode).ok_or(UNKNOWN)?);
        }
        Event::Gap { reason, insns, skipped } => {
            tag(out, 17);
            out.push(put_reason(reason).ok_or(UNKNOWN)?);
            put_option(out, insns);
            put_option(out, skipped);
        }
        Event::Timestamp { ns } => put_tagged(out, 18, &[ns]),
        Event::Trap(info) => {
            let TrapInfo { cause, value, interrupted, handler } = info;
            // The top bit marks interrupts; below it causes are small.
            put_tagged(out, 19, &[cause.rotate_left(1), value, interrupted.0, handler.0]);
        }
        Event::Privilege { level } => out.extend_from_slice(&[20, level.0]),
        Event::AddressSpace { id } => put_tagged(out, 21, &[id]),
        _ => return Err(UNKNOWN),
    }
    Ok(())
}

/// Reads an event.
pub(crate) fn get_event<'a>(from: &mut Cursor<'a>) -> Parse<Event<'a>> {
    Ok(match from.u8()? {
        0 => Event::ThreadStart(ThreadStart {
            process: ProcessId(from.u32()?),
            creator: match get_option(from)? {
                Some(id) => {
                    Some(ThreadId(u32::try_from(id).map_err(|_| Flaw("a thread id is too long"))?))
                }
                None => None,
            },
            os_pid: from.u32()?,
            os_tid: from.u32()?,
        }),
        1 => Event::ThreadEnd(match from.u8()? {
            0 => EndStatus::Exited(from.i32()?),
            1 => EndStatus::Killed(from.i32()?),
            2 => EndStatus::Unknown,
            _ => return Err(Flaw("an event has an unknown detail")),
        }),
        2 => Event::ThreadCreate { child: ThreadId(from.u32()?) },
        3 => Event::ThreadJoin { child: ThreadId(from.u32()?) },
        4 => Event::Exec { path: from.text()? },
        5 => Event::Map(get_map(from)?),
        6 => Event::Unmap { start: GuestVa(from.varint()?), len: from.varint()? },
        7 => Event::Lock {
            op: lock_op(from.u8()?)?,
            kind: lock_kind(from.u8()?)?,
            addr: GuestVa(from.varint()?),
        },
        8 => Event::Barrier { phase: phase(from.u8()?)?, addr: GuestVa(from.varint()?) },
        9 => Event::Cond { op: cond(from.u8()?)?, addr: GuestVa(from.varint()?) },
        10 => {
            let number = from.varint()?;
            let mut args = [0; 6];
            for arg in &mut args {
                *arg = from.varint()?;
            }
            Event::Syscall { number, args }
        }
        11 => Event::SyscallReturn { number: from.varint()?, result: from.signed()? },
        12 => Event::Signal(SignalInfo {
            number: from.i32()?,
            code: from.i32()?,
            interrupted: GuestVa(from.varint()?),
            handler: GuestVa(from.varint()?),
        }),
        13 => Event::SignalReturn { pc: GuestVa(from.varint()?) },
        14 => Event::Migrate { cpu: from.u32()? },
        15 => Event::Marker { id: from.varint()?, text: from.text()? },
        16 => Event::ModeSwitch { mode: mode(from.u8()?)? },
        17 => Event::Gap {
            reason: reason(from.u8()?)?,
            insns: get_option(from)?,
            skipped: get_option(from)?,
        },
        18 => Event::Timestamp { ns: from.varint()? },
        19 => Event::Trap(TrapInfo {
            cause: from.varint()?.rotate_right(1),
            value: from.varint()?,
            interrupted: GuestVa(from.varint()?),
            handler: GuestVa(from.varint()?),
        }),
        20 => Event::Privilege { level: Privilege(from.u8()?) },
        21 => Event::AddressSpace { id: from.varint()? },
        _ => return Err(Flaw("an event is of an unknown sort")),
    })
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    numbers.iter().for_each(|n| put_varint(out, *n));
}

fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_varint(out, value);
    }
}

fn get_option(from: &mut Cursor<'_>) -> Parse<Option<u64>> {
    Ok(match from.u8()? {
        0 => None,
        1 => Some(from.varint()?),
        _ => return Err(Flaw("an event has an unknown detail")),
    })
}

fn put_map(out: &mut Vec<u8>, map: &Map<'_>) {
    put_varint(out, map.start.0);
    put_varint(out, map.len);
    out.extend_from_slice(&[map.protection.0, map.kind.0]);
    put_varint(out, map.offset.0);
    put_varint(out, map.bias);
    put_bytes(out, map.path.as_bytes());
    put_bytes(out, map.build_id);
}

fn get_map<'a>(from: &mut Cursor<'a>) -> Parse<Map<'a>> {
    Ok(Map {
        start: GuestVa(from.varint()?),
        len: from.varint()?,
        protection: Protection(from.u8()?),
        kind: MapKind(from.u8()?),
        offset: FileOff(from.varint()?),
        bias: from.varint()?,
        path: from.text()?,
        build_id: from.bytes()?,
    })
}
