//! The loops over references: records one by one, and executions of blocks.
//!
//! References that the filters of both ports settle are only counted, in registers; see
//! [`super::settled`]. In blocks the fetches that stay in a line are not even looked at
//! ([`crate::outline`]), which is the same as long as nothing but fetches and flushes touches the
//! cache of fetches; [`by_blocks`] says of which hierarchies that is true.
//!
//! Where the caches of fetches and of data are both plain LRU ones, the lines of a block's fetches are asked for first, and its
//! loads and stores behind them in one piece ([`Node::fetch`], [`Node::run`]): as long as fetches hit, nobody else learns of them, so that
//! their order beside loads and stores does not matter. Where one misses, what is left of the block goes step by step. Loads and
//! stores are counted at once; what is no hit is counted off again and goes the long way. No filter is kept meanwhile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Blocks, GuestVa, Record};

use super::config::{Caches, HierarchyConfig, Inclusion, Modify, Straddle};
use super::hierarchy::{Hierarchy, NO_LOAD, Thread};
use super::node::Node;
use super::observe::Observe;
use super::settled::Settled;
use crate::outline::{Fetches, Outline, Outlines, Step, What};
use crate::{ByKind, Kind};

/// What a loop keeps in registers. The filters here are the true ones: those of the
/// nodes are brought up to date before the nodes are asked anything ([`Hierarchy::settle_back`]). Where
/// fetches and data accesses enter the same cache, `data` is the filter of both.
struct Pass {
    thread: Thread,
    code: Settled,
    data: Settled,
    code_level: u32,
    data_level: u32,
    /// Whether the cache of data is one of which the line last used is asked first, not the filter: a program goes
    /// to and fro between lines, and the host foresees one question better than two.
    ordered: bool,
    /// Whether that is so of both caches, and blocks are simulated.
    all_ordered: bool,
    instructions: u64,
    settled: ByKind,
}

/// Which fetches of a block such a hierarchy must see; nothing if it must see all records.
///
/// A fetch from the line of the fetch before is a hit that changes nothing if the cache
/// is plain, a fill leaves nothing to be changed by the first hit, data accesses enter
/// elsewhere, and no level takes lines away from those above it.
pub(super) fn by_blocks(config: &HierarchyConfig) -> Option<Fetches> {
    let inclusive = |cache: &super::CacheConfig| cache.inclusion == Inclusion::Inclusive;
    let takes_away = config.levels.iter().any(|level| match &level.caches {
        Caches::Unified(cache) | Caches::Code(cache) | Caches::Data(cache) => inclusive(cache),
        Caches::Split { code, data } => inclusive(code) || inclusive(data),
    });
    if takes_away || config.modify != Modify::Both {
        return None;
    }
    let (first, others) = config.levels.split_first()?;
    let code = match &first.caches {
        Caches::Split { code, .. } => code,
        Caches::Code(code) if others.is_empty() => code,
        Caches::Data(_) if others.is_empty() => return Some(Fetches::Omitted),
        _ => return None,
    };
    let split = config.straddle == Straddle::Split;
    let lines = Fetches::Lines { shift: code.line.trailing_zeros(), split };
    Node::new(code, 0, 0).repeats_settle().then_some(lines)
}

impl<O: Observe> Hierarchy<O> {
    /// Simulates records. `MERGE` is [`Modify::LoadOnly`].
    pub(super) fn run<const MERGE: bool>(&mut self, thread: Thread, records: &[Record]) -> Thread {
        if thread.ports.code == thread.ports.data {
            self.run_through::<MERGE, true>(thread, records)
        } else {
            self.run_through::<MERGE, false>(thread, records)
        }
    }

    /// `ONE` says that fetches and data accesses enter the same cache.
    fn run_through<const MERGE: bool, const ONE: bool>(
        &mut self,
        thread: Thread,
        records: &[Record],
    ) -> Thread {
        let mut pass = self.enter_pass(thread);
        for record in records {
            match *record {
                Record::Insn { len, pc, .. } => {
                    pass.instructions += 1;
                    pass.thread.last_load = NO_LOAD;
                    self.fetch::<ONE>(&mut pass, pc, (pc, u32::from(len)));
                }
                Record::Load { size, addr, .. } => {
                    if MERGE {
                        pass.thread.last_load = (addr, size);
                    }
                    self.data::<false>(&mut pass, addr, size);
                }
                Record::Store { size, addr, .. } => {
                    let merged = MERGE && pass.thread.last_load == (addr, size);
                    pass.thread.last_load = NO_LOAD;
                    if !merged {
                        self.data::<true>(&mut pass, addr, size);
                    }
                }
                Record::Prefetch { addr, .. } => self.hint::<false>(&mut pass, addr),
                Record::Flush { addr, .. } => self.hint::<true>(&mut pass, addr),
                Record::Branch { .. } => {}
            }
        }
        self.leave_pass(pass)
    }

    /// Simulates executions of blocks.
    #[inline(never)]
    pub(super) fn run_blocks(&mut self, thread: Thread, told: &Blocks<'_>) -> Thread {
        let mut outlines = std::mem::take(&mut self.outlines);
        let mut pass = self.enter_pass(thread);
        let mut words = told.words;
        let code = self.graph.nodes.get(thread.ports.code);
        pass.all_ordered = pass.ordered && code.is_none_or(Node::keeps_order);
        for &id in told.blocks {
            let mut fetched = 0;
            if pass.all_ordered
                && let Some(outline) = outlines.seen(id)
                && outline.plain
            {
                let steps = outlines.others(outline);
                fetched = self.run_fetches(&pass, &outlines, outline);
                if fetched == outline.fetches
                    && let Some((now, later)) = words.split_at_checked(steps.len())
                {
                    words = later;
                    self.run_data(&mut pass, outline, (steps, now));
                    continue;
                }
            }
            let outline = outlines.get(id, told.shapes);
            words = self.run_block(&mut pass, (outline, fetched), outlines.steps(&outline), words);
        }
        self.outlines = outlines;
        if pass.ordered {
            pass.data = Settled::NONE;
        }
        if pass.all_ordered {
            pass.code = Settled::NONE;
        }
        self.leave_pass(pass)
    }

    /// Makes the listed fetches of a plain block as long as they hit, except for counting them; answers how many.
    #[inline(always)]
    fn run_fetches(&mut self, pass: &Pass, outlines: &Outlines, outline: &Outline) -> u32 {
        let Some(node) = self.graph.nodes.get_mut(pass.thread.ports.code) else { return 0 };
        let shift = node.shift;
        let space = pass.thread.space >> shift;
        let [first, second] = outline.lines;
        if outline.fetches == 0 || !node.fetch(first ^ space) {
            return 0;
        }
        if outline.fetches == 1 || !node.fetch(second ^ space) {
            return 1;
        }
        if outline.fetches == 2 {
            return 2;
        }
        let fetches = outlines.steps(outline).iter().filter(|step| step.what == What::Fetch);
        let line = |step: &Step| step.pc.offset(u64::from(step.skip)).0 >> shift ^ space;
        let lines = fetches.map(line).skip(2);
        2 + lines.take_while(|line| node.fetch(*line)).count() as u32
    }

    /// Simulates one execution of a block of which only the loads and stores need be looked at.
    #[inline(always)]
    fn run_data(
        &mut self,
        pass: &mut Pass,
        outline: &Outline,
        (mut steps, mut words): (&[Step], &[u64]),
    ) {
        pass.instructions += u64::from(outline.insns);
        pass.settled.fetch += u64::from(outline.quiet) + u64::from(outline.fetches);
        pass.settled.load += u64::from(outline.loads);
        pass.settled.store += u64::from(outline.stores);
        let (port, space) = (pass.thread.ports.data, pass.thread.space);
        while let Some(node) = self.graph.nodes.get_mut(port) {
            let made = node.run(steps, words, space);
            let (Some((step, steps_left)), Some((&word, words_left))) = (
                steps.get(made..).and_then(<[_]>::split_first),
                words.get(made..).and_then(<[_]>::split_first),
            ) else {
                break;
            };
            self.unsettled(pass, step, GuestVa(word));
            (steps, words) = (steps_left, words_left);
        }
        if let Some(step) = steps.last() {
            pass.thread.pc = step.pc;
        }
    }

    /// A load or store that was counted as settled and is not.
    #[inline(never)]
    fn unsettled(&mut self, pass: &mut Pass, step: &Step, addr: GuestVa) {
        let kind = if step.what == What::Store { Kind::Store } else { Kind::Load };
        pass.settled[kind] -= 1;
        pass.thread.pc = step.pc;
        self.touch(&pass.thread, kind, addr, step.size);
    }

    /// Simulates one execution of a block, some of whose listed fetches were made already and whose words come first; gives those that
    /// are left.
    #[inline(never)]
    fn run_block<'w>(
        &mut self,
        pass: &mut Pass,
        (outline, mut fetched): (Outline, u32),
        steps: &[Step],
        words: &'w [u64],
    ) -> &'w [u64] {
        pass.instructions += u64::from(outline.insns);
        pass.settled.fetch += u64::from(outline.quiet) + u64::from(fetched);
        let mut words = words.iter();
        for step in steps {
            if step.what == What::Fetch {
                if fetched > 0 {
                    fetched -= 1;
                    continue;
                }
                let at = step.pc.offset(u64::from(step.skip));
                self.fetch::<false>(pass, step.pc, (at, step.size));
                continue;
            }
            let Some(&word) = words.next() else { break };
            pass.thread.pc = step.pc;
            let addr = GuestVa(word);
            // Two branches that are mostly foreseen, where a table of jumps would not be.
            if step.what == What::Load {
                self.data::<false>(pass, addr, step.size);
            } else if step.what == What::Store {
                self.data::<true>(pass, addr, step.size);
            } else if step.what == What::Flush {
                self.hint::<true>(pass, addr);
            } else {
                self.hint::<false>(pass, addr);
            }
        }
        words.as_slice()
    }

    fn enter_pass(&self, thread: Thread) -> Pass {
        let (code, code_level) = self.front(thread.ports.code);
        let (data, data_level) = self.front(thread.ports.data);
        let settled = ByKind::default();
        let ordered = self.graph.nodes.get(thread.ports.data).is_some_and(Node::keeps_order);
        let (all_ordered, instructions) = (false, 0);
        Pass {
            thread,
            code,
            data,
            code_level,
            data_level,
            ordered,
            all_ordered,
            instructions,
            settled,
        }
    }

    fn leave_pass(&mut self, pass: Pass) -> Thread {
        self.settle_back(&pass);
        let Pass { thread, settled, .. } = pass;
        self.count_instructions(thread.core, pass.instructions);
        self.graph.count_settled(thread.ports.code, ByKind::new(settled.fetch, 0, 0));
        self.graph.count_settled(thread.ports.data, ByKind { fetch: 0, ..settled });
        thread
    }

    /// The filter in front of a port, and the level that answers it.
    #[inline]
    fn front(&self, port: usize) -> (Settled, u32) {
        match self.graph.nodes.get(port) {
            Some(node) => (node.settled, node.level),
            None => (Settled::ALL, self.graph.levels()),
        }
    }

    #[inline(always)]
    fn fetch<const ONE: bool>(
        &mut self,
        pass: &mut Pass,
        pc: GuestVa,
        (first, size): (GuestVa, u32),
    ) {
        pass.thread.pc = pc;
        let (at, port) = (first.0 ^ pass.thread.space, pass.thread.ports.code);
        let front = if ONE { &mut pass.data } else { &mut pass.code };
        let seen = if pass.all_ordered {
            self.graph.nodes.get_mut(port).is_some_and(|node| node.newest::<false>(at, size))
        } else {
            front.reads(at, size) || self.recent(port, front, (at, size), Kind::Fetch)
        };
        if seen {
            pass.settled.fetch += 1;
            self.tell(&pass.thread, Kind::Fetch, first, pass.code_level);
            return;
        }
        self.settle_back(pass);
        self.touch(&pass.thread, Kind::Fetch, first, size);
        self.look_again(pass);
    }

    #[inline(always)]
    fn data<const STORE: bool>(&mut self, pass: &mut Pass, addr: GuestVa, size: u32) {
        let kind = if STORE { Kind::Store } else { Kind::Load };
        let (at, port) = (addr.0 ^ pass.thread.space, pass.thread.ports.data);
        let front = &mut pass.data;
        let seen = if pass.ordered {
            self.graph.nodes.get_mut(port).is_some_and(|node| node.newest::<STORE>(at, size))
        } else {
            let settled = if STORE { front.writes(at, size) } else { front.reads(at, size) };
            settled || self.recent(port, front, (at, size), kind)
        };
        if seen {
            let count = if STORE { &mut pass.settled.store } else { &mut pass.settled.load };
            *count += 1;
            self.tell(&pass.thread, kind, addr, pass.data_level);
            return;
        }
        self.settle_back(pass);
        self.touch(&pass.thread, kind, addr, size);
        self.look_again(pass);
    }

    #[cold]
    fn hint<const FLUSH: bool>(&mut self, pass: &mut Pass, addr: GuestVa) {
        self.settle_back(pass);
        if FLUSH {
            self.hint_flush(&pass.thread, addr);
        } else {
            self.hint_prefetch(&pass.thread, addr);
        }
        self.look_again(pass);
    }

    /// Tells the nodes what the filters have become. Where both ports are one node, what is
    /// told last is true.
    #[inline]
    fn settle_back(&mut self, pass: &Pass) {
        for (port, front) in
            [(pass.thread.ports.code, pass.code), (pass.thread.ports.data, pass.data)]
        {
            if let Some(node) = self.graph.nodes.get_mut(port) {
                node.settled = front;
            }
        }
    }

    #[inline]
    fn look_again(&self, pass: &mut Pass) {
        pass.code = self.front(pass.thread.ports.code).0;
        pass.data = self.front(pass.thread.ports.data).0;
    }

    /// Deals with a reference to the most recent line of its set, except for
    /// counting it, and moves the filter there; says whether it was one.
    #[inline(always)]
    fn recent(
        &mut self,
        port: usize,
        front: &mut Settled,
        (at, size): (u64, u32),
        kind: Kind,
    ) -> bool {
        let node = self.graph.nodes.get_mut(port);
        let Some(settled) = node.and_then(|node| node.recent(at, size, kind)) else { return false };
        *front = settled;
        true
    }
}
