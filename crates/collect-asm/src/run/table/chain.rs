//! Blocks that often follow each other, as one table.
//!
//! A tree of what followed each block: a node stands for the blocks on the way to it from its root. Its table is that of
//! all of them but the last, whose way out is not known yet. All branches on the way are, so the registers are written
//! once, and what lies between is folded into sums.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::GuestVa;

use super::super::names::can_be_one;
use super::super::stream::Made;
use super::make::Maker;
use super::{How, Last, Out, Place, SLOTS, Set, Tables, append, of};
use crate::code::{Block, TAG};
use crate::note::u32_at;

/// So many blocks at most.
const MOST: u32 = 8;
/// A node gets a follower when it was the last one that was known so often.
const OFTEN: u32 = 8;
/// So many nodes at most.
const ALL: usize = 1 << 17;
const NONE: u32 = u32::MAX;
/// In the place of a node that cannot be made.
const NEVER: u32 = NONE - 1;

/// Blocks that follow each other.
#[derive(Default)]
pub(super) struct Chains {
    /// By block, and by node. What is looked at to find the longest chain is by itself, in little room.
    roots: Vec<Followers>,
    behind: Vec<Followers>,
    /// By block, if each node has one follower at most.
    lines: Vec<Line>,
    nodes: Vec<Node>,
    /// By node.
    courses: Vec<Course>,
    acts: Vec<Set>,
    returns: Vec<Place>,
}

/// The blocks that mostly follow a block, one behind the other.
#[derive(Clone, Copy)]
struct Line {
    steps: [Step; MOST as usize - 1],
    len: u32,
}

/// A block of a line.
#[derive(Clone, Copy)]
struct Step {
    /// Its identifier, and where that lies, counted from the words of the first block.
    tag: u32,
    at: u32,
    node: u32,
}

impl Line {
    const EMPTY: Self =
        Self { steps: [Step { tag: 0, at: 0, node: 0 }; MOST as usize - 1], len: 0 };
}

/// What followed.
#[derive(Clone, Copy)]
struct Followers {
    nodes: [u32; 2],
    /// Their last blocks.
    numbers: [u32; 2],
    /// How often something else did.
    others: u32,
    /// Of a node: where the words of its last block end, counted from those of the first.
    end: u32,
}

impl Followers {
    const fn nobody(end: u32) -> Self {
        Self { nodes: [NONE; 2], numbers: [NONE; 2], others: 0, end }
    }

    /// Where another one could come, if so many may.
    #[inline]
    fn free(&self, most: usize) -> Option<usize> {
        self.nodes.iter().take(most).position(|node| *node == NONE)
    }
}

/// Where a node stands.
struct Node {
    parent: Option<u32>,
    root: u32,
    depth: u32,
}

/// A chain as it is played: all that is looked at then lies together.
struct Course {
    /// The last block.
    entry: GuestVa,
    number: u32,
    /// Where its words lie, counted from those of the first, and where they end.
    at: u32,
    end: u32,
    /// Events among the blocks without the first.
    events: u32,
    insns: u32,
    /// What is computed: first what records and return addresses need, then the registers behind all blocks but the last.
    first: u32,
    before: u32,
    acts: u32,
    rows: Range<u32>,
    returns: Range<u32>,
}

/// A node that was reached.
#[derive(Clone, Copy)]
pub(in crate::run) struct Link(u32);

impl Link {
    /// Its place among all.
    #[inline]
    pub(in crate::run) const fn place(self) -> usize {
        self.0 as usize
    }
}

/// What is to be known of a chain that was played.
pub(in crate::run) struct Reached {
    /// The last block.
    pub(in crate::run) number: usize,
    pub(in crate::run) entry: GuestVa,
    /// Where its words lie, and where they end, counted from those of the first block.
    pub(in crate::run) words: usize,
    pub(in crate::run) end: usize,
    pub(in crate::run) events: u64,
}

impl Chains {
    /// For so many blocks.
    pub(super) fn make_room(&mut self, blocks: usize) {
        self.roots.resize(blocks, Followers::nobody(0));
        if !self.lines.is_empty() {
            self.lines.resize(blocks, Line::EMPTY);
        }
    }
}

impl Tables {
    /// The longest chain from a block on that the words, of which so many count, tell of.
    #[inline]
    pub(in crate::run) fn longest(&self, number: usize, words: &[u8], len: usize) -> Option<Link> {
        let Some(line) = self.chains.lines.get(number) else {
            return self.longest_of_several(number, words, len);
        };
        let mut found = None;
        for step in line.steps.iter().take(line.len as usize) {
            let at = step.at as usize;
            if at + TAG > len || u32_at(words, at) != Some(step.tag) {
                break;
            }
            found = Some(Link(step.node));
        }
        found
    }

    /// The same where several blocks may be expected.
    #[inline]
    fn longest_of_several(&self, number: usize, words: &[u8], len: usize) -> Option<Link> {
        let mut at = self.blocks.get(number)?.len as usize;
        let mut followers = self.chains.roots.get(number)?;
        let mut found = None;
        while at + TAG <= len
            && let Some(tag) = u32_at(words, at)
            && let Some(which) = followers.numbers.iter().position(|n| *n == tag.wrapping_sub(1))
            && let Some(behind) = self.chains.behind.get(followers.nodes[which] as usize)
        {
            found = Some(Link(followers.nodes[which]));
            followers = behind;
            at = behind.end as usize;
        }
        found
    }

    /// The numbers of the blocks of a chain, in order.
    pub(in crate::run) fn path(&self, link: Link) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = Some(link.0);
        while let Some((node, course)) = at.and_then(|at| self.node(at)) {
            path.push(course.number as usize);
            if node.parent.is_none() {
                path.push(node.root as usize);
            }
            at = node.parent;
        }
        path.reverse();
        path
    }

    fn node(&self, at: u32) -> Option<(&Node, &Course)> {
        self.chains.nodes.get(at as usize).zip(self.chains.courses.get(at as usize))
    }

    /// Plays a chain; nothing, and nothing is changed, if `inside` is not sure of a return address.
    #[inline(always)]
    pub(in crate::run) fn play_chain(
        &self,
        link: Link,
        words: &[u8],
        slots: &mut [u64; SLOTS],
        inside: impl Fn(u64) -> bool,
        out: &mut Out,
    ) -> Option<Reached> {
        let course = self.chains.courses.get(link.0 as usize)?;
        let acts = self.chains.acts.get(course.first as usize..)?.get(..course.acts as usize)?;
        let (before, behind) = acts.split_at_checked(course.before as usize)?;
        before.iter().for_each(|act| act.apply(words, slots));
        let returns = of(&self.chains.returns, &course.returns);
        if !returns.iter().all(|place| inside(place.sum(slots))) {
            return None;
        }
        Self::tell(of(&self.rows, &course.rows), slots, out);
        out.insns += u64::from(course.insns);
        behind.iter().for_each(|act| act.apply(words, slots));
        Some(Reached {
            number: course.number as usize,
            entry: course.entry,
            words: course.at as usize,
            end: course.end as usize,
            events: u64::from(course.events),
        })
    }

    /// A chain, or a block if there is none, was followed by a block that it does not know.
    #[inline]
    pub(in crate::run) fn followed<'b>(
        &mut self,
        (link, from): (Option<Link>, usize),
        number: usize,
        (blocks, made): (&dyn Fn(usize) -> Option<&'b Block>, Made),
    ) {
        // What is told as it was stored has few names: those of what mostly follows.
        let most = if made == Made::Nothing { 1 } else { 2 };
        let Some(followers) = self.followers(link, from) else { return };
        let Some(place) = followers.free(most) else { return };
        followers.others = followers.others.saturating_add(1);
        if followers.others < OFTEN {
            return;
        }
        followers.others = 0;
        self.follow((link, from), number, (place, blocks, made));
    }

    /// A block gets a place behind a chain, or behind a block, if there can be such a chain.
    #[cold]
    fn follow<'b>(
        &mut self,
        (link, from): (Option<Link>, usize),
        number: usize,
        (place, blocks, made): (usize, &dyn Fn(usize) -> Option<&'b Block>, Made),
    ) {
        let next = self.chains.nodes.len();
        if next >= ALL {
            return;
        }
        let made_one = self.extend((link, from), number, (blocks, made));
        let next = if made_one.is_some() { next as u32 } else { NEVER };
        let number = u32::try_from(number).unwrap_or(NONE);
        if let Some(followers) = self.followers(link, from) {
            followers.nodes[place] = next;
            followers.numbers[place] = number;
        }
        let Some((node, course)) = made_one else { return };
        if made == Made::Nothing {
            self.expect((node.root, node.depth), (number, course.at, next));
        }
        let mut behind = Followers::nobody(course.end);
        if node.depth >= MOST {
            behind.nodes = [NEVER; 2];
        }
        self.chains.behind.push(behind);
        self.chains.nodes.push(node);
        self.chains.courses.push(course);
    }

    /// A block, whose words lie there, becomes the last of so many in a line.
    fn expect(&mut self, (root, depth): (u32, u32), (number, at, node): (u32, u32, u32)) {
        let lines = &mut self.chains.lines;
        if lines.is_empty() {
            lines.resize(self.chains.roots.len(), Line::EMPTY);
        }
        let Some(line) = lines.get_mut(root as usize) else { return };
        if let Some(step) = line.steps.get_mut(depth as usize - 2) {
            *step = Step { tag: number.wrapping_add(1), at: at - TAG as u32, node };
            line.len = depth - 1;
        }
    }

    #[inline]
    fn followers(&mut self, link: Option<Link>, from: usize) -> Option<&mut Followers> {
        match link {
            Some(link) => self.chains.behind.get_mut(link.0 as usize),
            None => self.chains.roots.get_mut(from),
        }
    }

    fn extend<'b>(
        &mut self,
        (link, from): (Option<Link>, usize),
        number: usize,
        (blocks, made): (&dyn Fn(usize) -> Option<&'b Block>, Made),
    ) -> Option<(Node, Course)> {
        let path = link.map_or_else(|| vec![from], |link| self.path(link));
        let (&root, &last) = (path.first()?, path.last()?);
        let (before, events) = link
            .and_then(|link| self.chains.courses.get(link.place()))
            .map_or((0, 0), |course| (course.at as usize, course.events));
        let depth = u32::try_from(path.len()).ok()? + 1;
        let path: Vec<&Block> = path.into_iter().map(blocks).collect::<Option<_>>()?;
        let met = self.blocks.get(number)?;
        if matches!(met.how, How::New) {
            return None;
        }
        let (entry, len, event) = (met.entry, met.len, met.event);
        // What is told as it was stored is told as one.
        if made == Made::Nothing && !can_be_one(&path, entry) {
            return None;
        }
        let at = before + blocks(last)?.len + TAG;
        let mut maker = Maker::chain(&path, entry, (made, TAG))?;
        maker.drop_unused(Last::Fixed(entry));
        let Maker { takes, sets, rows, ways, writes, returns, .. } = maker;
        let first = u32::try_from(self.chains.acts.len()).ok()?;
        let acts = &mut self.chains.acts;
        acts.extend(takes.into_iter().map(Set::Take).chain(sets));
        let before = u32::try_from(acts.len()).ok()? - first;
        acts.extend(writes.into_iter().map(|write| Set::Sum(write.register, write.place)));
        let acts = u32::try_from(acts.len()).ok()? - first;
        let node = Node { parent: link.map(|l| l.0), root: u32::try_from(root).ok()?, depth };
        let course = Course {
            entry,
            number: u32::try_from(number).ok()?,
            at: u32::try_from(at).ok()?,
            end: u32::try_from(at).ok()?.checked_add(len)?,
            events: events + u32::from(event),
            insns: ways.first()?.insns,
            first,
            before,
            acts,
            rows: append(&mut self.rows, rows)?,
            returns: append(&mut self.chains.returns, returns)?,
        };
        Some((node, course))
    }
}
