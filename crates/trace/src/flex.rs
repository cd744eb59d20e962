//! Accesses that vary from one execution to the next, as runs: stretches of one
//! or two interleaved lanes with constant strides. A repeated string copy of
//! a megabyte is one run of two lanes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, Record, RefKind, Totals};

use crate::bytes::{Cursor, Parse, put_signed, put_varint};
use crate::error::Flaw;

/// Consecutive accesses with regular addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// How many times each lane accesses.
    pub count: u32,
    /// Who accesses in turn.
    pub first: Lane,
    /// The other lane, if there are two.
    pub second: Option<Lane>,
}

/// One of the interleaved sequences of a [`Run`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// What the accesses do.
    pub kind: RefKind,
    /// What else is known about them.
    pub flags: AccessFlags,
    /// Their size.
    pub size: u32,
    /// The first address.
    pub base: GuestVa,
    /// From one address to the next, modulo 2^64.
    pub stride: u64,
}

impl Run {
    /// How many records the run stands for.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.count as u64 * if self.second.is_some() { 2 } else { 1 }
    }

    /// Whether the run is empty; no run in a file is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Counts its records.
    pub(crate) fn count(&self, totals: &mut Totals) {
        for lane in [Some(self.first), self.second].into_iter().flatten() {
            let count = match lane.kind {
                RefKind::Load => &mut totals.loads,
                RefKind::Store => &mut totals.stores,
                RefKind::Prefetch => &mut totals.prefetches,
                RefKind::Flush => &mut totals.flushes,
            };
            *count += u64::from(self.count);
        }
    }

    /// The records of turns `from..to`, in order.
    pub fn records(&self, from: u32, to: u32) -> impl Iterator<Item = Record> + '_ {
        (from..to).flat_map(|turn| {
            [Some(self.first.at(turn)), self.second.map(|lane| lane.at(turn))].into_iter().flatten()
        })
    }
}

impl Lane {
    fn new(record: &Record) -> Option<Self> {
        let (kind, flags, size, base) = RefKind::of(record)?;
        Some(Self { kind, flags, size, base, stride: 0 })
    }

    fn at(&self, turn: u32) -> Record {
        let addr = self.base.offset(self.stride.wrapping_mul(u64::from(turn)));
        self.kind.record(self.flags, self.size, addr)
    }

    fn sort(&self) -> (RefKind, AccessFlags, u32) {
        (self.kind, self.flags, self.size)
    }
}

/// Appends accesses as runs; `last` is the address that deltas refer to.
pub(crate) fn put_accesses(out: &mut Vec<u8>, accesses: &[Record], last: &mut u64) {
    put_runs(out, &find_runs(accesses), last);
}

/// Appends runs.
pub(crate) fn put_runs(out: &mut Vec<u8>, runs: &[Run], last: &mut u64) {
    put_varint(out, runs.len() as u64);
    for run in runs {
        put_varint(out, u64::from(run.count) << 1 | u64::from(run.second.is_some()));
        for lane in [Some(run.first), run.second].into_iter().flatten() {
            out.extend_from_slice(&[lane.kind.code(), lane.flags.0]);
            put_varint(out, u64::from(lane.size));
            put_signed(out, lane.base.0.wrapping_sub(*last) as i64);
            *last = lane.base.0;
            if run.count > 1 {
                put_signed(out, lane.stride as i64);
            }
        }
    }
}

/// Reads runs onto the end of `runs`; answers how many.
pub(crate) fn get_runs(from: &mut Cursor<'_>, runs: &mut Vec<Run>, last: &mut u64) -> Parse<u64> {
    let count = from.count()?;
    for _ in 0..count {
        let head = from.varint()?;
        let turns = u32::try_from(head >> 1).map_err(|_| Flaw("a run is too long"))?;
        if turns == 0 {
            return Err(Flaw("a run is empty"));
        }
        let first = get_lane(from, turns, last)?;
        let second = if head & 1 != 0 { Some(get_lane(from, turns, last)?) } else { None };
        runs.push(Run { count: turns, first, second });
    }
    Ok(count as u64)
}

fn get_lane(from: &mut Cursor<'_>, turns: u32, last: &mut u64) -> Parse<Lane> {
    let kind = RefKind::from_code(from.u8()?).ok_or(Flaw("an access is of no kind"))?;
    let flags = AccessFlags(from.u8()?);
    let size = from.u32()?;
    *last = last.wrapping_add(from.signed()? as u64);
    let stride = if turns > 1 { from.signed()? as u64 } else { 0 };
    Ok(Lane { kind, flags, size, base: GuestVa(*last), stride })
}

/// The accesses among records as runs.
pub(crate) fn find_runs(accesses: &[Record]) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut rest: Vec<Lane> = accesses.iter().filter_map(Lane::new).collect();
    let mut rest = rest.as_mut_slice();
    while let [first, ..] = rest {
        let first = *first;
        let (one, stride) = turns(rest, 1);
        let (two, first_stride) = turns(rest, 2);
        let second = rest.get(1).copied();
        let paired = second.map(|s| (s, turns(&rest[1..], 2)));
        let pairs = paired.map_or(0, |(_, (n, _))| two.min(n));
        let used = match paired {
            Some((second, (_, second_stride))) if pairs > 1 && pairs * 2 > one => {
                runs.push(Run {
                    count: pairs as u32,
                    first: Lane { stride: first_stride, ..first },
                    second: Some(Lane { stride: second_stride, ..second }),
                });
                pairs * 2
            }
            _ => {
                runs.push(Run { count: one as u32, first: Lane { stride, ..first }, second: None });
                one
            }
        };
        rest = &mut rest[used..];
    }
    runs
}

/// How many of every `period`-th lane continue the first with one stride.
fn turns(lanes: &[Lane], period: usize) -> (usize, u64) {
    let mut each = lanes.iter().step_by(period);
    let (Some(first), Some(second)) = (each.next(), each.next()) else { return (1, 0) };
    if first.sort() != second.sort() {
        return (1, 0);
    }
    let stride = second.base.since(first.base);
    let mut previous = second.base;
    let mut count = 2;
    for lane in each {
        if lane.sort() != first.sort() || lane.base.since(previous) != stride {
            break;
        }
        previous = lane.base;
        count += 1;
    }
    (count, stride)
}
