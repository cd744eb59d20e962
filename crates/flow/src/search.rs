//! The search for what is known at every piece's entry.
//!
//! It is the meet over all ways into the piece, found by starting from everything and
//! taking away until nothing changes (*fixed point*). Two things start the search
//! anew: a piece that would have to store after its first exit is cut, and a
//! register that a piece stores although some way to it leaves it known is wished
//! for on the other ways (*hoisting*: mostly out of loops), as is what a loop would need to
//! follow such a register by itself. Each round cuts or wishes
//! something that no round before it did, so the search ends; the number of
//! rounds is bounded besides, and without further wishes the plan is merely
//! dearer.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use crate::emit;
use crate::graph::Graph;
use crate::insn::{Control, Region};
use crate::known::Known;
use crate::options::{Across, Options};
use crate::place::{Candidate, Hoist, Late, Points, place};
use crate::summary::Summary;
use crate::{Set, cycle};

/// How often wishes are made; loops are rarely nested deeper.
const MAX_WISHES: usize = 8;

/// The most pieces of a loop that is looked at as a whole: strides matter in inner loops.
const MAX_LOOP: usize = 4;

/// A piece's instructions with its save points and what is known at its entry.
pub(crate) type Placed = (Range<usize>, Points, Known);

/// Finds the pieces and where they store what.
pub(crate) fn search(
    region: &Region,
    options: &Options,
    graph: &mut Graph,
    summaries: &[Summary],
) -> Vec<Placed> {
    let none = vec![Set::EMPTY; graph.blocks.len()];
    let mut wishes = Wishes { by_block: none.clone(), firm: none, none: true };
    let mut rounds = 0;
    loop {
        let mut round = Round::new(region, options, graph, summaries);
        let late = round.solve(&Asker { graph, wishes: &wishes });
        if !late.is_empty() {
            late.into_iter().for_each(|block| graph.cut(block));
            continue;
        }
        let placed = round.placed();
        if rounds == MAX_WISHES || !round.wish(&placed, &mut wishes) {
            return placed;
        }
        wishes.none = false;
        rounds += 1;
    }
}

/// Which registers each block, as a piece's first, wishes to know.
struct Wishes {
    by_block: Vec<Set>,
    /// Those that inner loops have: their turns are many, what leads to them is executed once.
    firm: Vec<Set>,
    /// Whether there are none yet.
    none: bool,
}

/// Wishes seen from where control comes.
struct Asker<'a> {
    graph: &'a Graph,
    wishes: &'a Wishes,
}

impl Hoist for Asker<'_> {
    fn wishes(&self, i: usize) -> Set {
        self.of(i, &self.wishes.by_block)
    }

    fn firm(&self, i: usize) -> Set {
        self.of(i, &self.wishes.firm)
    }
}

impl Asker<'_> {
    /// What the blocks to which instruction `i` may lead have in a list.
    fn of(&self, i: usize, list: &[Set]) -> Set {
        if self.wishes.none {
            return Set::EMPTY;
        }
        let [taken, next] = self.graph.leads(i);
        let of = |block: Option<usize>| block.map_or(Set::EMPTY, |block| list[block]);
        of(taken).or(of(next))
    }
}

/// One round of the search.
struct Round<'a> {
    region: &'a Region,
    options: &'a Options,
    graph: &'a Graph,
    summaries: &'a [Summary],
    pieces: Vec<Range<usize>>,
    /// For each block, the piece that it begins.
    begins: Vec<Option<usize>>,
    /// What is known at each piece's entry.
    entry: Vec<Known>,
    /// Where each piece stores what.
    points: Vec<Points>,
    /// What each piece leaves known on its ways to others.
    out: Vec<Vec<(usize, Known)>>,
}

impl<'a> Round<'a> {
    fn new(
        region: &'a Region,
        options: &'a Options,
        graph: &'a Graph,
        summaries: &'a [Summary],
    ) -> Self {
        let pieces = graph.pieces(region);
        let across = across(region, options);
        let entry = pieces
            .iter()
            .map(|piece| {
                let outside = match graph.strange[piece.start] {
                    true => region.known_outside.without(region.frame),
                    false => region.known_outside,
                };
                let registers = if graph.open[piece.start] { outside } else { Set::ALL };
                Known::ALL.of(registers.and(across))
            })
            .collect();
        let out = vec![Vec::new(); pieces.len()];
        let mut begins = vec![None; graph.blocks.len()];
        for (number, piece) in pieces.iter().enumerate() {
            begins[piece.start] = Some(number);
        }
        let points = vec![Points::new(); pieces.len()];
        Self { region, options, graph, summaries, pieces, begins, entry, points, out }
    }

    fn insns(&self, piece: usize) -> Range<usize> {
        let blocks = &self.pieces[piece];
        self.graph.blocks[blocks.start].start..self.graph.blocks[blocks.end - 1].end
    }

    fn place(
        &self,
        piece: usize,
        hoist: &impl Hoist,
        before: &mut Vec<Set>,
    ) -> Result<Points, Late> {
        let insns = self.insns(piece);
        let leaves = |i: &usize| self.region.insns[*i].control != Control::Next;
        let first_exit = insns.clone().find(leaves).unwrap_or(insns.end);
        let known = self.entry[piece].full;
        place(&Candidate { summaries: self.summaries, insns, first_exit, known }, hoist, before)
    }

    /// Runs to the fixed point; the blocks at which pieces must be cut, if any.
    fn solve(&mut self, hoist: &impl Hoist) -> Vec<usize> {
        let mut work: Vec<usize> = (0..self.pieces.len()).rev().collect();
        let mut waiting = vec![true; self.pieces.len()];
        let (mut late, mut before) = (Vec::new(), Vec::new());
        // Nothing is known at entries then, whatever the pieces before leave.
        let apart = across(self.region, self.options).is_empty();
        while let Some(piece) = work.pop() {
            waiting[piece] = false;
            let points = match self.place(piece, hoist, &mut before) {
                Ok(points) => points,
                Err(too_late) => {
                    late.push(self.block_of(too_late.0));
                    continue;
                }
            };
            if !apart {
                self.spread(piece, &points);
            }
            self.points[piece] = points;
            for (next, known) in &self.out[piece] {
                let less = self.entry[*next].and(*known);
                if less != self.entry[*next] {
                    self.entry[*next] = less;
                    if !waiting[*next] {
                        waiting[*next] = true;
                        work.push(*next);
                    }
                }
            }
        }
        late
    }

    /// Notes what a piece leaves known to which others.
    fn spread(&mut self, piece: usize, points: &Points) {
        let (insns, known) = (self.insns(piece), self.entry[piece]);
        let mut out = std::mem::take(&mut self.out[piece]);
        out.clear();
        emit::leave(self.region, self.options, (&insns, points), known, |i, is_taken, known| {
            let [taken, next] = self.graph.leads(i);
            let block = if is_taken { taken } else { next };
            out.extend(block.and_then(|block| self.begins[block]).map(|piece| (piece, known)));
        });
        self.out[piece] = out;
    }

    /// The outcome. A piece was placed again whenever less was known at its entry.
    fn placed(&mut self) -> Vec<Placed> {
        let points = std::mem::take(&mut self.points);
        let placed = |(piece, points)| (self.insns(piece), points, self.entry[piece]);
        points.into_iter().enumerate().map(placed).collect()
    }

    /// Adds wishes for what is stored although one of the ways that lead there
    /// leaves it known; says whether there are new ones.
    ///
    /// It pays if that way is a loop's own turn, or if those that do not know the
    /// register lead nowhere else, so that nothing is stored in vain.
    fn wish(&self, placed: &[Placed], wishes: &mut Wishes) -> bool {
        let across = across(self.region, self.options);
        let loops = cycle::components(&self.out);
        let mut members = vec![Vec::new(); self.pieces.len()];
        loops.iter().enumerate().for_each(|(piece, number)| members[*number].push(piece));
        let mut knows = vec![(Set::EMPTY, Set::EMPTY, Set::ALL); self.pieces.len()];
        for (from, ways) in self.out.iter().enumerate() {
            for (to, known) in ways {
                let (by_turn, by_any, by_idle) = &mut knows[*to];
                if loops[from] == loops[*to] {
                    *by_turn = by_turn.or(known.full);
                }
                *by_any = by_any.or(known.full);
                if ways.len() > 1 {
                    *by_idle = by_idle.and(known.full);
                }
            }
        }
        let mut new = false;
        for (piece, (by_turn, by_any, by_idle)) in knows.into_iter().enumerate() {
            let block = self.pieces[piece].start;
            if self.graph.open[block] {
                continue;
            }
            let (insns, points, _) = &placed[piece];
            let stored = points.get(&insns.start).copied().unwrap_or_default();
            let pays = by_turn.or(by_any.and(by_idle));
            // A loop of one piece counts by itself, whatever loops are around it.
            let own = [piece];
            let members = if self.turns(piece) { &own[..] } else { &members[loops[piece]] };
            let steady = self.steady(members, stored);
            let wish = stored.and(pays).or(steady).and(across).without(wishes.by_block[block]);
            new |= !wish.is_empty();
            wishes.by_block[block] = wishes.by_block[block].or(wish);
            if members.len() <= MAX_LOOP {
                wishes.firm[block] = wishes.firm[block].or(wish.and(by_turn.or(steady)));
            }
        }
        new
    }

    /// Whether a piece is a loop by itself.
    fn turns(&self, piece: usize) -> bool {
        self.out[piece].iter().any(|(to, _)| *to == piece)
    }

    /// What a loop of these pieces must know besides to follow registers that it stores in every
    /// turn: the stride that it adds to a pointer, say, and does not change itself.
    fn steady(&self, members: &[usize], stored: Set) -> Set {
        let turns = |p: &usize| self.out[*p].iter().any(|(to, _)| members.contains(to));
        if stored.is_empty() || members.len() > MAX_LOOP || !members.iter().any(turns) {
            return Set::EMPTY;
        }
        let insns = || members.iter().flat_map(|p| self.insns(*p));
        let writes = || insns().flat_map(|i| &self.summaries[i].writes);
        let changed: Set = writes().map(|(register, _)| *register).collect();
        let besides = |register| {
            let mut sources = Set::EMPTY;
            for (_, follows) in writes().filter(|(r, _)| *r == register) {
                sources = sources.or((*follows)?);
            }
            let others = sources.without(Set::only(register));
            others.and(changed).is_empty().then_some(others)
        };
        stored.iter().filter_map(besides).fold(Set::EMPTY, Set::or)
    }

    fn block_of(&self, insn: usize) -> usize {
        self.graph.blocks.partition_point(|block| block.end <= insn)
    }
}

/// What may stay known from one piece to the next.
fn across(region: &Region, options: &Options) -> Set {
    match options.across {
        Across::Nothing => Set::EMPTY,
        Across::Frame => region.frame,
        Across::All => region.takeable,
    }
}
