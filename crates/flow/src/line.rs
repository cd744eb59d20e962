//! Plans a line: code that is entered at its first instruction and at the region's entries alone.
//!
//! That is what a code cache runs. A branch inside leads away, even if its target stands further
//! on in the same line: whoever is at the target then is another line. So there is nothing to
//! search for: one pass forward, in which what is known flows from one piece to the next, gives the
//! pieces. Invariants are those of `graph`, with *single entry* given.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_trace::Slot;

use crate::graph::{MAX_WEIGHT, falls_through, weight};
use crate::insn::{Control, Insn, Live, Region};
use crate::known::Known;
use crate::options::{Across, Options};
use crate::place::{Candidate, Hoist, Points, place};
use crate::plan::Plan;
use crate::summary::Summary;
use crate::{Error, Set, emit};

/// Plans a region that is one line. Slots are numbered from `first_slot` on.
///
/// [`Region::entries`] need not name the first instruction. Compared with [`plan`](crate::plan) it
/// takes time proportional to the length, and does not cut where branches of the region
/// itself lead.
///
/// # Errors
///
/// See [`Error`]; none of them depends on the options.
pub fn plan_line(region: &Region, options: &Options, first_slot: Slot) -> Result<Plan, Error> {
    check_order(region)?;
    plan_as(Sort::Line, region, options, first_slot)
}

/// Plans a path: instructions in the order in which they are run as long as all goes as expected, wherever they
/// stand. It is entered at its first instruction alone, and what is known there flows along the whole path.
/// Each piece is one stretch of code; [`Region::entries`] says where else one must begin. Slots are numbered from `first_slot` on.
///
/// # Errors
///
/// See [`Error`]; none of them depends on the options.
pub fn plan_path(region: &Region, options: &Options, first_slot: Slot) -> Result<Plan, Error> {
    plan_as(Sort::Path, region, options, first_slot)
}

/// What a region is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// Instructions in the order of their addresses, which are also entered where entries say.
    Line,
    /// Instructions in the order in which they are run.
    Path,
}

fn plan_as(
    sort: Sort,
    region: &Region,
    options: &Options,
    first_slot: Slot,
) -> Result<Plan, Error> {
    check_branches(region)?;
    let summaries = region
        .insns
        .iter()
        .map(|insn| Summary::of(insn, region, options))
        .collect::<Result<Vec<_>, _>>()?;
    let live = liveness(region);
    let mut line = Line { region, options, summaries: &summaries, slot: first_slot };
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut known = line.outside();
    while start < region.insns.len() {
        let (end, points) = line.piece(start, known)?;
        let parts = (&(start..end), &points);
        let emitted = emit::emit(region, options, &live, parts, known, &mut line.slot)?;
        known = match (sort, emitted.out.last()) {
            (Sort::Path, _) => line.across(emitted.after),
            (_, Some((next, after))) if !line.enters(end, *next) => line.across(*after),
            _ => line.outside(),
        };
        pieces.push(emitted.piece);
        start = end;
    }
    Ok(Plan { pieces, live: Vec::new(), next_slot: line.slot })
}

fn check_order(region: &Region) -> Result<(), Error> {
    for pair in region.insns.windows(2) {
        let (end, pc) = (pair[0].end(), pair[1].pc);
        if pc < end {
            return Err(Error::Order { pc, end });
        }
    }
    Ok(())
}

fn check_branches(region: &Region) -> Result<(), Error> {
    let to_next = |insn: &&Insn| insn.control == Control::Cond(insn.end());
    match region.insns.iter().find(to_next) {
        Some(insn) => Err(Error::Ambiguous { pc: insn.pc }),
        None => Ok(()),
    }
}

struct Line<'a> {
    region: &'a Region,
    options: &'a Options,
    summaries: &'a [Summary],
    slot: Slot,
}

/// Nobody else wishes for anything.
struct Nobody;

impl Hoist for Nobody {
    fn wishes(&self, _: usize) -> Set {
        Set::EMPTY
    }

    fn firm(&self, _: usize) -> Set {
        Set::EMPTY
    }
}

impl Line<'_> {
    fn outside(&self) -> Known {
        self.across(Known::ALL.of(self.region.known_outside))
    }

    fn across(&self, known: Known) -> Known {
        known.of(match self.options.across {
            Across::Nothing => Set::EMPTY,
            Across::Frame => self.region.frame,
            Across::All => self.region.takeable,
        })
    }

    /// Whether control can come to instruction `i`, at `pc`, from elsewhere.
    fn enters(&self, i: usize, pc: GuestVa) -> bool {
        self.region.insns.get(i).is_none_or(|insn| insn.pc != pc)
            || self.region.entries.contains(&pc)
    }

    /// The piece that begins at `start`: its end, and what it stores where.
    fn piece(&self, start: usize, known: Known) -> Result<(usize, Points), Error> {
        let insns = &self.region.insns;
        let (mut end, mut before) = (self.longest(start), Vec::new());
        loop {
            end = self.distinct(start, end);
            let leaves = |i: &usize| insns[*i].control != Control::Next;
            let first_exit = (start..end).find(leaves).unwrap_or(end);
            let candidate = Candidate {
                summaries: self.summaries,
                insns: start..end,
                first_exit,
                known: known.full,
            };
            match place(&candidate, &Nobody, &mut before) {
                Ok(points) => return Ok((end, points)),
                // It must end before the block of that instruction, which is not the first block.
                Err(late) => {
                    let first =
                        (start..late.0.min(end)).rev().find(leaves).map_or(start, |i| i + 1);
                    if first <= start || first >= end {
                        return Err(Error::Internal { pc: insns[start].pc, register: 0 });
                    }
                    end = first;
                }
            }
        }
    }

    /// How far a piece may reach at most.
    fn longest(&self, start: usize) -> usize {
        let insns = &self.region.insns;
        let mut sum = 0;
        for (i, insn) in insns.iter().enumerate().skip(start) {
            sum += weight(insn);
            if i == start {
                continue;
            }
            let before = &insns[i - 1];
            // What follows a loop is executed once, the loop often.
            let turned = matches!(before.control, Control::Cond(t) if t <= before.pc);
            let goes_on = matches!(before.control, Control::Next | Control::Cond(_));
            if sum > MAX_WEIGHT || turned || !goes_on || self.enters(i, before.end()) {
                return i;
            }
        }
        insns.len()
    }

    /// The longest part of a piece whose ways out all lead to different places.
    fn distinct(&self, start: usize, mut end: usize) -> usize {
        let insns = &self.region.insns;
        let target = |i: usize| match insns[i].control {
            Control::Jump(t) | Control::Cond(t) | Control::Call(Some(t)) => Some(t),
            _ => None,
        };
        for i in start..end {
            let Some(to) = target(i) else { continue };
            if (start..i).any(|j| target(j) == Some(to)) {
                let block = (start..i).rev().find(|&j| insns[j].control != Control::Next);
                end = block.map_or(i, |j| j + 1);
                break;
            }
        }
        while let Some(last) = end.checked_sub(1).filter(|_| end > start + 1) {
            let falls = falls_through(insns[last].control).then(|| insns[last].end());
            match (start..last).find(|&j| falls.is_some() && target(j) == falls) {
                Some(j) => end = j + 1,
                None => break,
            }
        }
        end
    }
}

/// What is live before each instruction: what the code from there on may read, so the
/// targets of branches count as far as they stand in the line.
fn liveness(region: &Region) -> Vec<Live> {
    let insns = &region.insns;
    let mut places: Vec<(GuestVa, usize)> =
        insns.iter().enumerate().map(|(i, insn)| (insn.pc, i)).collect();
    places.sort_unstable();
    let at = |pc: GuestVa| {
        let found = places.binary_search_by(|(at, _)| at.cmp(&pc));
        found.ok().map(|found| places[found].1)
    };
    let targets: Vec<Option<usize>> = insns
        .iter()
        .map(|insn| match insn.control {
            Control::Jump(target) | Control::Cond(target) => at(target),
            _ => None,
        })
        .collect();
    let ends: Vec<Option<usize>> = insns.iter().map(|insn| at(insn.end())).collect();
    let outside = region.live_outside;
    let mut before = vec![Live::default(); insns.len()];
    loop {
        let mut changed = false;
        for (i, insn) in insns.iter().enumerate().rev() {
            let next = ends[i].map_or(outside, |end| before[end]);
            let target = targets[i].map_or(outside, |t| before[t]);
            let after = match insn.control {
                Control::Next | Control::Kernel | Control::Call(_) => next,
                Control::Jump(_) => target,
                Control::Cond(_) => next.or(target),
                Control::Indirect | Control::Return | Control::Stop => outside,
            };
            let live = after.before(insn);
            changed |= before[i] != live;
            before[i] = live;
        }
        if !changed {
            return before;
        }
    }
}
