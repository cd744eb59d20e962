//! The fields of messages, in order.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use ichnos_base::{
    EndStatus, GuestVa, MapKind, Mode, ProcessId, Protection, Register, SignalInfo, ThreadId,
    ThreadStart,
};
use ichnos_rt::Context;

use super::super::maps::Mapped;
use super::super::message::{Message, Moment, Where};
use super::bytes::{Bytes, fields};
use super::images;
use crate::code::{Copy, Numbers, Plot};

fields! {
    Context { 0 }
    GuestVa { 0 }
    MapKind { 0 }
    ProcessId { 0 }
    Protection { 0 }
    Register { 0 }
    ThreadId { 0 }
    Mapped { start, len, protection, kind, offset, bias, path, build_id }
    Moment { ns, cpu, starved }
    Numbers { block, kind, call }
    Plot { room, exec_room, inst, ways, exec, to_inst, from_labels, first }
    SignalInfo { number, code, interrupted, handler }
    ThreadStart { process, creator, os_pid, os_tid }
}

impl Bytes for Mode {
    fn put(&self, out: &mut Vec<u8>) {
        (*self == Self::Inst).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::get(from)? { Self::Inst } else { Self::Exec })
    }
}

impl Bytes for EndStatus {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, number): (u8, i32) = match *self {
            Self::Exited(status) => (0, status),
            Self::Killed(signal) => (1, signal),
            _ => (2, 0),
        };
        (tag, number).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        let (tag, number): (u8, i32) = Bytes::get(from)?;
        match tag {
            0 => Some(Self::Exited(number)),
            1 => Some(Self::Killed(number)),
            2 => Some(Self::Unknown),
            _ => None,
        }
    }
}

impl Bytes for Where {
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Copy { pc, stored, turn } => (0_u8, (pc, (stored, turn as u64))).put(out),
            Self::Exec(pc) => (1_u8, pc).put(out),
            Self::Outside(pc) => (2_u8, pc).put(out),
            Self::Unknown => 3_u8.put(out),
        }
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        match u8::get(from)? {
            0 => {
                let (pc, (stored, turn)): (_, (_, u64)) = Bytes::get(from)?;
                Some(Self::Copy { pc, stored, turn: usize::try_from(turn).ok()? })
            }
            1 => Some(Self::Exec(Bytes::get(from)?)),
            2 => Some(Self::Outside(Bytes::get(from)?)),
            3 => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// Messages by their tags and fields. One that has copies has their numbers instead.
macro_rules! messages {
    ($($tag:literal: $message:ident { $($field:ident),* })*) => {
        /// Puts a message; `number` is that of a copy.
        pub(super) fn put(
            message: &Message,
            out: &mut Vec<u8>,
            number: impl Fn(&Arc<Copy>) -> u32,
        ) {
            match message {
                $( Message::$message { $($field),* } => {
                    out.push($tag);
                    $( $field.put(out); )*
                } )*
                Message::Program { process, images } => {
                    out.push(PROGRAM);
                    process.put(out);
                    images.all().iter().map(number).collect::<Vec<u32>>().put(out);
                }
                Message::Library { thread, process, copy } => {
                    out.push(LIBRARY);
                    (*thread, *process).put(out);
                    number(copy).put(out);
                }
            }
        }

        /// The message that comes next; `copy` is that with a number.
        pub(super) fn get(
            from: &mut &[u8],
            copy: impl Fn(u32) -> Option<Arc<Copy>>,
        ) -> Option<Message> {
            Some(match u8::get(from)? {
                $( $tag => {
                    $( let $field = Bytes::get(from)?; )*
                    Message::$message { $($field),* }
                } )*
                PROGRAM => {
                    let (process, numbers): (u32, Vec<u32>) = Bytes::get(from)?;
                    let copies: Option<Vec<_>> = numbers.into_iter().map(copy).collect();
                    Message::Program { process, images: images(copies?.into_iter()) }
                }
                LIBRARY => {
                    let (thread, process) = Bytes::get(from)?;
                    Message::Library { thread, process, copy: copy(u32::get(from)?)? }
                }
                _ => return None,
            })
        }
    };
}

const PROGRAM: u8 = 0;
const LIBRARY: u8 = 1;

messages! {
    2: Start { thread, start, lane, like }
    3: Exec { thread, path }
    4: Words { thread, lane, buffer, to, last }
    5: Create { thread, child }
    6: Signal { thread, at, outer, inner, info, mode }
    7: SignalReturn { thread, at, inner, outer, pc, changed }
    8: Left { thread, outer }
    9: Rests { thread, lane, at }
    10: Stamp { thread, ns }
    11: Maps { thread, gone, maps }
    12: Turnover { thread, moment }
    13: Handle { thread, handle }
    14: End { thread, at, status, left }
    15: Starved {}
}
