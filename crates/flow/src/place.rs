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
//!
//! A register may also be wanted by another piece ([`Hoist`]): one that a loop
//! needs is better stored once before the loop than in every turn. Such a wish
//! is dropped where it cannot be had before the first exit, unless it is a loop's: then the piece
//! is cut.
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

/// A piece to be decided about.
pub(crate) struct Candidate<'a> {
    pub(crate) summaries: &'a [Summary],
    /// Its instructions.
    pub(crate) insns: Range<usize>,
    /// The first instruction that may leave it.
    pub(crate) first_exit: usize,
    /// What is known at its entry.
    pub(crate) known: Set,
}

/// What other pieces wish to know where control comes to them: for an instruction
/// that may lead there, the registers.
pub(crate) trait Hoist {
    /// The wishes of those to whom instruction `i` may lead.
    fn wishes(&self, i: usize) -> Set;

    /// Those of the wishes for which the piece is rather cut than that they are dropped.
    fn firm(&self, i: usize) -> Set;
}

/// Decides where a piece stores what. `before` is room to work in.
pub(crate) fn place(
    candidate: &Candidate<'_>,
    hoist: &impl Hoist,
    before: &mut Vec<Set>,
) -> Result<Points, Late> {
    let insns = candidate.insns.clone();
    before.clear();
    let mut after = candidate.known;
    for summary in &candidate.summaries[insns.clone()] {
        before.push(after);
        after = summary.after(after);
    }
    let last_point = candidate.first_exit.min(insns.end.saturating_sub(1));
    let mut walk = Walk {
        first_exit: candidate.first_exit,
        last_point,
        wanted: Set::EMPTY,
        optional: Set::EMPTY,
        firm: Set::EMPTY,
        can_cut: candidate.first_exit + 1 < insns.end,
        first_use: [0; 64],
        intervals: Vec::new(),
    };
    for i in insns.clone().rev() {
        walk.wish(hoist.wishes(i).without(after), hoist.firm(i), i);
        let known = before[i - insns.start];
        walk.insn(&candidate.summaries[i], i, known)?;
        after = known;
    }
    let mut points = Points::new();
    points.insert(insns.start, walk.wanted);
    stab(walk.intervals, &mut points);
    Ok(points)
}

/// The way backward through a piece.
struct Walk {
    first_exit: usize,
    /// The last instruction before which something can be stored.
    last_point: usize,
    wanted: Set,
    /// Those of `wanted` that nobody in the piece needs.
    optional: Set,
    /// Those of `optional` that are not dropped if the piece can be cut.
    firm: Set,
    /// Whether there are blocks after the first exit.
    can_cut: bool,
    /// Where each wanted register is first used.
    first_use: [usize; 64],
    intervals: Vec<Interval>,
}

impl Walk {
    /// Registers are wished for behind instruction `i`.
    fn wish(&mut self, registers: Set, firm: Set, i: usize) {
        let new = registers.without(self.wanted);
        self.firm = self.firm.or(new.and(firm));
        for register in new.iter() {
            self.first_use[usize::from(register.0)] = i + 1;
        }
        self.wanted = self.wanted.or(new);
        self.optional = self.optional.or(new);
    }

    /// Goes back over instruction `i`, before which `known` is known.
    fn insn(&mut self, summary: &Summary, i: usize, known: Set) -> Result<(), Late> {
        if summary.flex && i > self.first_exit {
            return Err(Late(i));
        }
        let mut needed = summary.needs.without(known);
        let mut wished = Set::EMPTY;
        let mut firmly = Set::EMPTY;
        for (register, follows) in &summary.writes {
            if !self.wanted.has(*register) {
                continue;
            }
            let only = Set::only(*register);
            let optional = self.optional.has(*register);
            let firm = self.firm.has(*register) && self.can_cut;
            self.wanted = self.wanted.without(only);
            self.optional = self.optional.without(only);
            self.firm = self.firm.without(only);
            let already = self.wanted.or(needed).or(wished);
            let cheap = |missing: Set| missing.without(already).iter().count() <= 1;
            match follows.map(|all| all.without(known)) {
                Some(missing) if cheap(missing) || i >= self.first_exit => {
                    let sources = if optional { &mut wished } else { &mut needed };
                    *sources = sources.or(missing);
                    if firm {
                        firmly = firmly.or(missing);
                    }
                }
                // There must be an instruction left to store it before.
                _ if i < self.last_point => self.intervals.push(Interval {
                    register: *register,
                    from: i + 1,
                    to: self.first_use[usize::from(register.0)].min(self.last_point),
                }),
                _ if optional && !firm => {}
                _ => return Err(Late(i.max(self.first_exit + 1))),
            }
        }
        let new = needed.or(wished);
        for register in new.iter() {
            self.first_use[usize::from(register.0)] = i;
        }
        self.optional = self.optional.or(wished.without(self.wanted)).without(needed);
        self.firm = self.firm.or(firmly).and(self.optional);
        self.wanted = self.wanted.or(new);
        Ok(())
    }
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
