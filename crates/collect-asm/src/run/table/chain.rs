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
use super::{Head, How, Last, Out, Place, SLOTS, Tables, append, of};
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
    nodes: Vec<Node>,
    returns: Vec<Place>,
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
}

struct Node {
    /// The last block.
    number: u32,
    parent: Option<u32>,
    root: u32,
    depth: u32,
    /// Where the last block's words lie, counted from those of the first, and where they end.
    at: u32,
    end: u32,
    /// Events among the blocks without the first.
    events: u32,
    head: Head,
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
    }
}

impl Tables {
    /// The longest chain from a block on that the words, of which so many count, tell of.
    #[inline]
    pub(in crate::run) fn longest(&self, number: usize, words: &[u8], len: usize) -> Option<Link> {
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
        while let Some(node) = at.and_then(|at| self.chains.nodes.get(at as usize)) {
            path.push(node.number as usize);
            if node.parent.is_none() {
                path.push(node.root as usize);
            }
            at = node.parent;
        }
        path.reverse();
        path
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
        let node = self.chains.nodes.get(link.0 as usize)?;
        self.prepare(&node.head, words, slots);
        let returns = of(&self.chains.returns, &node.returns);
        if !returns.iter().all(|place| inside(place.sum(slots))) {
            return None;
        }
        let way = of(&self.ways, &node.head.ways).first()?;
        self.tell(&node.head, way, slots, out);
        self.finish(way, slots);
        Some(Reached {
            number: node.number as usize,
            entry: self.blocks.get(node.number as usize)?.entry,
            words: node.at as usize,
            end: node.end as usize,
            events: u64::from(node.events),
        })
    }

    /// A chain, or a block if there is none, was followed by a block that it does not know.
    pub(in crate::run) fn followed<'b>(
        &mut self,
        (link, from): (Option<Link>, usize),
        number: usize,
        (blocks, made): (&dyn Fn(usize) -> Option<&'b Block>, Made),
    ) {
        let (depth, node) = match link.and_then(|l| self.chains.nodes.get(l.0 as usize)) {
            Some(node) => (node.depth, link),
            None => (1, None),
        };
        let next = u32::try_from(self.chains.nodes.len()).unwrap_or(NONE);
        let Some(followers) = self.followers(node, from) else { return };
        followers.others = followers.others.saturating_add(1);
        // What is told as it was stored has few names: those of what mostly follows.
        let most = if made == Made::Nothing { 1 } else { followers.nodes.len() };
        let free = followers.nodes.iter().take(most).position(|n| *n == NONE);
        let Some(place) = free else { return };
        if followers.others < OFTEN || depth >= MOST || next as usize >= ALL {
            return;
        }
        followers.others = 0;
        let made = self.extend((node, from), number, (blocks, made));
        let next = if made.is_some() { next } else { NEVER };
        self.chains.behind.extend(made.as_ref().map(|node| Followers::nobody(node.end)));
        self.chains.nodes.extend(made);
        if let Some(followers) = self.followers(node, from) {
            followers.nodes[place] = next;
            followers.numbers[place] = u32::try_from(number).unwrap_or(NONE);
        }
    }

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
    ) -> Option<Node> {
        let parent = link.map(|l| l.0);
        let mut path = Vec::new();
        let mut up = parent.and_then(|p| self.chains.nodes.get(p as usize));
        let root = up.map_or(from, |node| node.root as usize);
        let (before, events, depth) =
            up.map_or((0, 0, 1), |node| (node.at as usize, node.events, node.depth));
        let last = up.map_or(from, |node| node.number as usize);
        while let Some(node) = up {
            path.push(blocks(node.number as usize)?);
            up = node.parent.and_then(|p| self.chains.nodes.get(p as usize));
        }
        path.push(blocks(root)?);
        path.reverse();
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
        let returns = append(&mut self.chains.returns, std::mem::take(&mut maker.returns))?;
        Some(Node {
            number: u32::try_from(number).ok()?,
            parent,
            root: u32::try_from(root).ok()?,
            depth: depth + 1,
            at: u32::try_from(at).ok()?,
            end: u32::try_from(at).ok()?.checked_add(len)?,
            events: events + u32::from(event),
            head: self.keep(maker, Last::Fixed(entry))?,
            returns,
        })
    }
}
