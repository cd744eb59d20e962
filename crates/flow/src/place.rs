//! Which registers a piece stores, and where.
//!
//! A register must be stored if an address needs it and it is not known. It can be
//! stored anywhere between the instruction that last changed it beyond following
//! and the first use; the piece's entry, where something is stored anyway (the
//! piece's identifier), is the best place, and nothing may be stored after the first
//! exit (*fixed words*: an execution takes the same words however it is left).
//!
//! Backward over the piece, `wanted` holds the registers that are used further on
//! and would not be known. At an instruction that computes a wanted register from
//! others, either those become wanted, or the register is stored behind the
//! instruction: the former if it costs no more words. What is wanted at the entry
//! is stored there. Stores behind an instruction have an interval each; the least
//! number of points that meets all intervals is found greedily by earliest end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::ops::Range;

use ichnos_trace::Register;

use crate::Set;
use crate::summary::Summary;

/// Where a piece stores registers: for each point, the instruction before which
/// they are stored, the registers.
pub(crate) type Points = BTreeMap<usize, Set>;

/// The piece stores something after its first exit and must end before the block of
/// this instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Late(pub(crate) usize);

/// A register to be stored at some point from `from` up to `to`.
struct Interval {
    register: Register,
    from: usize,
    to: usize,
}

/// Decides for the piece `insns`, of which `first_exit` is the first instruction
/// that may leave it and `known` is known at its entry.
pub(crate) fn place(
    summaries: &[Summary],
    insns: Range<usize>,
    first_exit: usize,
    known: Set,
) -> Result<Points, Late> {
    let before = known_before(summaries, insns.clone(), known);
    let mut wanted = Set::EMPTY;
    let mut first_use = [0usize; 64];
    let mut intervals = Vec::new();
    for i in insns.clone().rev() {
        let summary = &summaries[i];
        let known = before[i - insns.start];
        if summary.flex && i > first_exit {
            return Err(Late(i));
        }
        let mut sources = summary.needs.without(known);
        for (register, follows) in &summary.writes {
            if !wanted.has(*register) {
                continue;
            }
            wanted = wanted.without(Set::only(*register));
            let missing = follows.map(|all| all.without(known));
            let cheap = |m: Set| m.without(wanted.or(sources)).iter().count() <= 1;
            match missing {
                Some(missing) if cheap(missing) || i >= first_exit => {
                    sources = sources.or(missing);
                }
                _ if i >= first_exit => return Err(Late(i.max(first_exit + 1))),
                _ => intervals.push(Interval {
                    register: *register,
                    from: i + 1,
                    to: first_use[usize::from(register.0)].min(first_exit),
                }),
            }
        }
        for register in sources.iter() {
            first_use[usize::from(register.0)] = i;
        }
        wanted = wanted.or(sources);
    }
    let mut points = Points::new();
    points.insert(insns.start, wanted);
    stab(intervals, &mut points);
    Ok(points)
}

/// What is known before each instruction when nothing is stored.
fn known_before(summaries: &[Summary], insns: Range<usize>, known: Set) -> Vec<Set> {
    let mut now = known;
    insns
        .map(|i| {
            let before = now;
            now = summaries[i].after(now);
            before
        })
        .collect()
}

/// Picks the fewest points that meet all intervals.
fn stab(mut intervals: Vec<Interval>, points: &mut Points) {
    intervals.sort_by_key(|interval| interval.to);
    let mut last = None;
    for interval in intervals {
        let point = match last {
            Some(point) if interval.from <= point => point,
            _ => interval.to,
        };
        last = Some(point);
        points.entry(point).or_default().insert(interval.register);
    }
}
