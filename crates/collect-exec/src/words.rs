//! What the bytes in a buffer of the tap mean: between engine and host of one build.
//!
//! A stream is a sequence of items, each beginning with a four-byte tag. A tag below
//! [`FIRST_EVENT`] is a block's identifier, followed by what its save points stored (four or eight bytes each,
//! in order), or, for a flexible block, by runs. Any other tag is an event: a plain one with
//! one eight-byte argument, or a wide one with a length. Tag zero ends the buffer: it was not filled further.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, Record};
use ichnos_trace::RefKind;

/// The first tag that is no identifier.
pub const FIRST_EVENT: u32 = 0xffff_ff00;
/// The thread goes on at this address, whatever comes next in the stream.
pub const LEFT: u32 = FIRST_EVENT | 1;
/// The last block ended before the instruction at this address, which did not retire.
pub const CUT: u32 = FIRST_EVENT | 2;
/// The base of fs is this from here on.
pub const FS_BASE: u32 = FIRST_EVENT | 3;
/// The thread has ended with this status.
pub const END: u32 = FIRST_EVENT | 4;
/// The thread has ended its process with this status.
pub const END_ALL: u32 = FIRST_EVENT | 5;
/// This signal does what it does by default, which may be to end the process.
pub const DEFAULT: u32 = FIRST_EVENT | 6;
/// The thread has made the one with this number.
pub const CREATE: u32 = FIRST_EVENT | 7;
/// A signal handler has returned to this address.
pub const SIGNAL_RETURN: u32 = FIRST_EVENT | 8;
/// It is this time, in nanoseconds.
pub const TIME: u32 = FIRST_EVENT | 9;
/// The base of gs is this from here on.
pub const GS_BASE: u32 = FIRST_EVENT | 10;
/// A child was waited for: the operating system's number and, shifted by 32, its wait status.
pub const REAPED: u32 = FIRST_EVENT | 11;
/// The thread has waited for the end of the one with this number.
pub const JOIN: u32 = FIRST_EVENT | 13;
/// From here on nothing is recorded: what follows is not known.
pub const UNTRACED: u32 = FIRST_EVENT | 12;
/// So many instructions ran that were not recorded: their number, doubled, and one if that is because of
/// samples.
pub const GAP: u32 = FIRST_EVENT | 14;
/// Behind a sieve: a line, with bits as in [`crate::sieve::line`].
pub const LINE: u32 = FIRST_EVENT | 15;
/// Behind a sieve, a line comes in the place of another one: two words, of which the second says [`crate::sieve::line::STORE`] if
/// that one was stored to. [`INSTEAD_LEN`] bytes.
pub const INSTEAD: u32 = FIRST_EVENT | 16;
/// Bytes of such an event.
pub const INSTEAD_LEN: usize = 20;
/// At the beginning of a buffer: all that lies in it from this offset on are plain blocks, chains of them, and [`STACK`]; zero if that is not
/// known.
pub const PLAIN: u32 = FIRST_EVENT | 17;
/// At the beginning of a buffer: behind its last item the thread went to this address, where the first item of its next buffer begins, which
/// does not go on behind another one; zero if that is not known.
pub const BEHIND: u32 = FIRST_EVENT | 18;
/// The stack pointer is this from here on, though nothing recorded says so.
pub const STACK: u32 = FIRST_EVENT | 0x40;
/// Bytes of a plain event.
pub const EVENT_LEN: usize = 12;

/// The first tag of an event that has a length, in four bytes, and then so many bytes.
pub const FIRST_WIDE: u32 = FIRST_EVENT | 0x80;
/// The thread begins: numbers of process and creator in the trace, then of process and thread in the
/// operating system, in four bytes each.
pub const START: u32 = FIRST_WIDE | 1;
/// A system call: number and six arguments, in eight bytes each.
pub const SYSCALL: u32 = FIRST_WIDE | 2;
/// It has returned: number and result.
pub const RETURN: u32 = FIRST_WIDE | 3;
/// A handler is entered: signal and code in four bytes each, interrupted address and handler.
pub const SIGNAL: u32 = FIRST_WIDE | 4;
/// The process has a new program: its path.
pub const EXEC: u32 = FIRST_WIDE | 5;
/// A mapping is new: first address, end, offset, bits as in [`map_bits`], then its path.
pub const MAP: u32 = FIRST_WIDE | 6;
/// A mapping is gone: first address and end.
pub const UNMAP: u32 = FIRST_WIDE | 7;
/// An operation on a lock, condition variable or barrier, as in [`sync`], and its address.
pub const SYNC: u32 = FIRST_WIDE | 8;
/// Behind a sieve: of a piece, so many of the last instructions did not run, in four bytes each; then, in eight,
/// whether the last line told is no longer true.
pub const UNDONE: u32 = FIRST_WIDE | 9;
/// Bytes before the contents of a wide event.
pub const WIDE_HEAD: usize = 8;

/// What is said about a mapping beside its place.
pub mod map_bits {
    /// It may be read.
    pub const READ: u64 = 1;
    /// It may be written.
    pub const WRITE: u64 = 2;
    /// It may be executed.
    pub const EXEC: u64 = 4;
    /// There is a file behind it.
    pub const FILE: u64 = 8;
}

/// Synchronisation in numbers.
pub mod sync {
    use ichnos_base::{BarrierPhase, CondOp, Event, GuestVa, LockKind, LockOp};

    const LOCK_OPS: [LockOp; 5] =
        [LockOp::Create, LockOp::Request, LockOp::Acquire, LockOp::Release, LockOp::Destroy];
    const LOCK_KINDS: [LockKind; 6] = [
        LockKind::Mutex,
        LockKind::Spin,
        LockKind::Read,
        LockKind::Write,
        LockKind::Semaphore,
        LockKind::Futex,
    ];
    const COND_OPS: [CondOp; 6] = [
        CondOp::Create,
        CondOp::Wait,
        CondOp::Wake,
        CondOp::Signal,
        CondOp::Broadcast,
        CondOp::Destroy,
    ];
    const PHASES: [BarrierPhase; 4] =
        [BarrierPhase::Create, BarrierPhase::Enter, BarrierPhase::Leave, BarrierPhase::Destroy];
    const COND: u64 = 0x100;
    const BARRIER: u64 = 0x200;

    fn place<T: PartialEq>(all: &[T], one: &T) -> u64 {
        all.iter().position(|x| x == one).map_or(0xff, |i| i as u64)
    }

    /// An operation on a lock.
    pub fn lock(op: LockOp, kind: LockKind) -> u64 {
        place(&LOCK_OPS, &op) << 4 | place(&LOCK_KINDS, &kind)
    }

    /// An operation on a condition variable.
    pub fn cond(op: CondOp) -> u64 {
        COND | place(&COND_OPS, &op)
    }

    /// A way through a barrier.
    pub fn barrier(phase: BarrierPhase) -> u64 {
        BARRIER | place(&PHASES, &phase)
    }

    /// The event of a number.
    pub fn event(number: u64, addr: GuestVa) -> Option<Event<'static>> {
        let low = (number & 0xff) as usize;
        Some(match number & !0xff {
            0 => {
                Event::Lock { op: *LOCK_OPS.get(low >> 4)?, kind: *LOCK_KINDS.get(low & 15)?, addr }
            }
            COND => Event::Cond { op: *COND_OPS.get(low)?, addr },
            BARRIER => Event::Barrier { phase: *PHASES.get(low)?, addr },
            _ => return None,
        })
    }
}

/// No thread, where one is named.
pub const NOBODY: u32 = u32::MAX;

/// The longest item of a stream: what a buffer must have room for.
pub const MOST_ITEM: usize = 4096 - 64;

/// Head of a roadmap message: what blocks some code makes. Behind it lie the code's stretches ([`Stretch`]), then their bytes, one
/// stretch after the other, padded to eight.
///
/// Code is a superblock, which is one stretch, or a path (`plan::plan_path`). A path's blocks are never stored one by one, but the
/// first: an identifier behind those of the blocks stands for the first two, the next for the first three, and so on, whose
/// words lie one behind the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoadmapHead {
    /// Identifier of the first block; the others follow.
    pub first: u32,
    /// How many blocks; zero ends the buffer.
    pub blocks: u32,
    /// The process that holds the code.
    pub process: u32,
    /// Bytes of code.
    pub code_len: u32,
    /// How many stretches.
    pub stretches: u32,
    /// Whether the code is a path.
    pub is_path: bool,
    /// The general registers, as bits, that are known where a path is entered: those that it needs besides what it stores.
    pub known: u16,
}

/// Bytes of the head.
pub const HEAD_LEN: usize = 24;

/// A stretch of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its address.
    pub pc: u64,
    /// Its bytes.
    pub len: u64,
}

/// Bytes that describe a stretch.
pub const STRETCH_LEN: usize = 16;

/// A whole roadmap message.
#[derive(Clone, Debug)]
pub struct Described<'a> {
    /// Its head.
    pub head: RoadmapHead,
    /// The stretches, each with its code.
    pub stretches: Vec<(u64, &'a [u8])>,
    /// The code of all of them.
    pub code: &'a [u8],
}

impl<'a> Described<'a> {
    /// Takes the message at the start of some bytes; nothing if they end the buffer, or are no message.
    pub fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let head = RoadmapHead::parse(bytes)?;
        let table = STRETCH_LEN.checked_mul(head.stretches as usize)?;
        let rest = bytes.get(HEAD_LEN..)?;
        let (table, rest) = rest.split_at_checked(table)?;
        let code = rest.get(..head.code_len as usize)?;
        let mut stretches = Vec::new();
        let mut left = code;
        for at in (0..table.len()).step_by(STRETCH_LEN) {
            let len = usize::try_from(u64_at(table, at + 8)?).ok()?;
            let (code, later) = left.split_at_checked(len)?;
            stretches.push((u64_at(table, at)?, code));
            left = later;
        }
        *bytes = rest.get(code.len().next_multiple_of(8)..).unwrap_or_default();
        Some(Self { head, stretches, code })
    }
}

impl RoadmapHead {
    /// The bytes.
    pub fn to_bytes(self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        let sort = u32::from(self.is_path) | u32::from(self.known) << 16;
        let words = [self.first, self.blocks, self.process, self.code_len, self.stretches, sort];
        for (to, word) in out.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The head at the start of some bytes, unless they end the buffer.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let sort = u32_at(bytes, 20)?;
        let head = Self {
            first: u32_at(bytes, 0)?,
            blocks: u32_at(bytes, 4)?,
            process: u32_at(bytes, 8)?,
            code_len: u32_at(bytes, 12)?,
            stretches: u32_at(bytes, 16)?,
            is_path: sort & 1 != 0,
            known: (sort >> 16) as u16,
        };
        (head.blocks != 0).then_some(head)
    }
}

impl Stretch {
    /// The bytes.
    pub fn to_bytes(self) -> [u8; STRETCH_LEN] {
        let mut out = [0; STRETCH_LEN];
        out[..8].copy_from_slice(&self.pc.to_le_bytes());
        out[8..].copy_from_slice(&self.len.to_le_bytes());
        out
    }
}

/// Four bytes at an offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Eight bytes at an offset.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Accesses of a flexible instruction that follow each other at fixed distances: first
/// of each lane, second of each, and so on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// How many turns.
    pub turns: u64,
    /// Kind, flags, size, first address and stride of the lanes.
    pub lanes: [Option<Lane>; 2],
}

/// One of the lanes.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Kind (0 load, 1 store, 2 prefetch, 3 flush) and, shifted by 8, flags.
    pub what: u32,
    /// Bytes.
    pub size: u32,
    /// First address.
    pub base: u64,
    /// From one to the next.
    pub stride: u64,
}

impl Lane {
    /// What it does: as in [`Lane::what`].
    pub fn kind(&self) -> u32 {
        self.what & 0xff
    }

    /// The address of a turn's access.
    pub fn at(&self, turn: u64) -> u64 {
        self.base.wrapping_add(self.stride.wrapping_mul(turn))
    }

    /// How many turns after this one stay in the line of this one's access, which `mask` is the address bits within; none if
    /// that is not one line.
    pub fn turns_within(&self, turn: u64, mask: u64) -> u64 {
        let from = self.at(turn) & mask;
        let Some(room) = (mask + 1).checked_sub(from + u64::from(self.size)) else { return 0 };
        match self.stride as i64 {
            0 => u64::MAX,
            stride @ 1.. => room / stride as u64,
            stride => from / stride.unsigned_abs(),
        }
    }
}

impl Run {
    /// Bytes of one with so many lanes.
    pub const fn len(lanes: usize) -> usize {
        12 + 24 * lanes
    }

    /// One access.
    pub fn once(record: &Record) -> Option<Self> {
        let (kind, flags, size, addr) = RefKind::of(record)?;
        let what = u32::from(kind.code()) | u32::from(flags.0) << 8;
        Some(Self { turns: 1, lanes: [Some(Lane { what, size, base: addr.0, stride: 0 }), None] })
    }

    /// Appends the bytes of a run that is told raw, of which there may be several: turns have four bytes there.
    pub fn put_raw(&self, out: &mut Vec<u8>) -> u32 {
        let (mut count, mut done) = (0, 0);
        let lanes = self.lanes.iter().flatten().count() as u32;
        while done < self.turns && lanes > 0 {
            let turns = (self.turns - done).min(u64::from(u32::MAX));
            out.extend((turns as u32).to_le_bytes());
            out.extend(lanes.to_le_bytes());
            for lane in self.lanes.iter().flatten() {
                out.extend(lane.what.to_le_bytes());
                out.extend(lane.size.to_le_bytes());
                out.extend(lane.at(done).to_le_bytes());
                out.extend(lane.stride.to_le_bytes());
            }
            done += turns;
            count += 1;
        }
        count
    }

    /// Appends the bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let lanes = self.lanes.iter().flatten().count() as u32;
        out.extend(self.turns.to_le_bytes());
        out.extend(lanes.to_le_bytes());
        for lane in self.lanes.iter().flatten() {
            out.extend(lane.what.to_le_bytes());
            out.extend(lane.size.to_le_bytes());
            out.extend(lane.base.to_le_bytes());
            out.extend(lane.stride.to_le_bytes());
        }
    }

    /// Gives the kind (as in [`Lane::what`]), address and bytes of each access, and flags.
    pub fn each(&self, mut take: impl FnMut(u32, u64, u32, AccessFlags)) {
        for turn in 0..self.turns {
            for lane in self.lanes.iter().flatten() {
                let flags = AccessFlags((lane.what >> 8) as u8);
                take(lane.kind(), lane.at(turn), lane.size, flags);
            }
        }
    }

    /// Appends the accesses.
    pub fn records(&self, out: &mut Vec<Record>) {
        self.each(|kind, addr, size, flags| {
            let kind = match kind {
                0 => RefKind::Load,
                1 => RefKind::Store,
                2 => RefKind::Prefetch,
                _ => RefKind::Flush,
            };
            out.push(kind.record(flags, size, GuestVa(addr)));
        });
    }

    /// The run at an offset, and the offset behind it.
    pub fn parse(bytes: &[u8], at: usize) -> Option<(Self, usize)> {
        let (turns, count) = (u64_at(bytes, at)?, u32_at(bytes, at + 8)?);
        let mut run = Self { turns, lanes: [None; 2] };
        let mut at = at + 12;
        for lane in run.lanes.iter_mut().take(count as usize) {
            *lane = Some(Lane {
                what: u32_at(bytes, at)?,
                size: u32_at(bytes, at + 4)?,
                base: u64_at(bytes, at + 8)?,
                stride: u64_at(bytes, at + 16)?,
            });
            at += 24;
        }
        Some((run, at))
    }
}
