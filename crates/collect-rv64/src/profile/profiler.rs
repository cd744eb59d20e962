//! Watches harts for a profile: asks the tables, tells the models what they do
//! not know, and counts arcs. The interpreter and generated code share it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, Event, GuestVa, InsnKind, ThreadId};

use super::arcs::{Arcs, NOWHERE};
use super::book::{Book, EVICTIONS, WRITE_BACKS};
use super::deduce::{Counts, Irregular, Profile};
use super::host::Fetched;
use super::line::{Geometry, Passing, Stores};
use super::models::{Detail, Gone, Models, Pass, Reference, ReferenceKind, Shape};
use super::tables::{Tables, new_tables};
use super::views::Views;
use super::words::{Run, Words};
use crate::ram::PAGE_SIZE;

/// No line of code.
pub(super) const NO_LINE: u64 = u64::MAX;
/// The profile of a run so far.
#[derive(Debug)]
pub(crate) struct Profiler<M> {
    pub(super) models: M,
    pub(super) shape: Shape,
    pub(super) page_shift: u32,
    pub(super) thread: ThreadId,
    pub(super) now: Box<Tables>,
    pub(super) others: Vec<Option<Box<Tables>>>,
    /// Where the thread goes on if nothing jumps.
    pub(super) next: u64,
    pub(super) clock: u64,
    pub(super) pc: u64,
    pub(super) len: u8,
    pub(super) kind: InsnKind,
    /// An instruction that was fetched and did not retire: the machine carries it
    /// out, unless another comes first.
    pub(super) again: u64,
    /// Where the instructions that run in succession began.
    pub(super) run: u64,
    /// Where the line that was fetched last begins, and its end; zero if what follows
    /// must not pass unseen.
    pub(super) line: u64,
    pub(super) line_end: u64,
    /// Whether lines of code passed no longer since this was last cleared.
    pub(super) code_lost: bool,
    /// Whether bytes are found through the table of lines: by generated code, or by
    /// the interpreter's coarse handlers.
    pub(super) generated: bool,
    /// What the time of a coarse instruction and four times the number of those left,
    /// with it, add up to.
    pub(super) epoch: u64,
    pub(super) book: Book,
    pub(super) arcs: Arcs,
    /// What the interpreter's coarse handlers count.
    pub(super) views: Views,
    /// Whether they do: else runs of instructions are kept track of.
    pub(super) counting: bool,
    /// How they find lines of code, and the bits of their addresses.
    pub(super) code: Fetched,
    pub(super) code_mask: u64,
    pub(super) words: Words,
    pub(super) counts: Counts,
    pub(super) irregular: Irregular,
    pub(super) gone: Gone,
    /// How many events the models took.
    pub(super) events: u64,
    pub(super) told: [u64; 3],
    /// Accesses over the first of references to several lines.
    pub(super) extra: [u64; 3],
    /// The same for pages.
    pub(super) extra_pages: [u64; 3],
}

impl<M: Models> Profiler<M> {
    pub(crate) fn new(mut models: M) -> Self {
        let mut shape = models.shape();
        if !shape.is_possible() {
            let page = PAGE_SIZE as u64;
            shape =
                Shape { code_line: 64, data_line: 64, page, detail: Detail::Everything, ..shape };
        }
        let (code, data) = (shape.code_line.trailing_zeros(), shape.data_line.trailing_zeros());
        let thread = ThreadId(0);
        let now = new_tables(&mut models, &shape, thread);
        let (lines, code_mask) = (now.code.fetched(), now.code.mask());
        Self {
            now,
            models,
            shape,
            page_shift: shape.page.trailing_zeros(),
            thread,
            others: Vec::new(),
            next: NOWHERE,
            clock: 0,
            pc: 0,
            len: 0,
            kind: InsnKind::OTHER,
            again: NOWHERE,
            run: NOWHERE,
            line: NO_LINE,
            line_end: 0,
            code_lost: false,
            generated: shape.detail == Detail::Lines && !shape.transfers,
            epoch: 0,
            book: Book::new((code, data), shape.page.trailing_zeros()),
            arcs: Arcs::new(),
            views: Views::default(),
            counting: false,
            code: lines,
            code_mask,
            words: Words::default(),
            counts: Counts::default(),
            irregular: Irregular::new(),
            gone: Gone::default(),
            events: 0,
            told: [0; 3],
            extra: [0; 3],
            extra_pages: [0; 3],
        }
    }

    /// Whether generated code tells enough.
    pub(crate) fn allows_generated(&self) -> bool {
        self.shape.detail == Detail::Lines && !self.shape.transfers
    }

    /// Tells the models an event.
    pub(crate) fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        self.events += 1;
        self.models.event(thread, event);
    }

    /// Lets a thread run.
    pub(crate) fn switch(&mut self, thread: ThreadId) {
        if self.thread == thread {
            return;
        }
        let (old, new) = (self.thread.index(), thread.index());
        if self.others.len() <= old.max(new) {
            self.others.resize_with(old.max(new) + 1, || None);
        }
        let tables = self.others[new].take();
        let tables = tables.unwrap_or_else(|| new_tables(&mut self.models, &self.shape, thread));
        self.close_run();
        self.now.next = self.next;
        self.others[old] = Some(std::mem::replace(&mut self.now, tables));
        self.thread = thread;
        self.next = self.now.next;
        self.run = self.next;
        self.forget_line();
        self.models.resume(thread, &mut self.gone);
        self.forget_gone();
    }

    /// What the models no longer let pass.
    #[inline(never)]
    pub(super) fn forget_gone(&mut self) {
        while let Some(line) = self.gone.code.pop() {
            self.forget_code(line.0);
        }
        while let Some(line) = self.gone.data.pop() {
            self.now.data.forget(line.0);
        }
        while let Some(page) = self.gone.pages.pop() {
            self.hide_page(self.now.data.geometry(), page.0);
        }
    }

    #[inline(always)]
    pub(super) fn reference_of(
        &self,
        kind: ReferenceKind,
        addr: u64,
        size: u64,
        sub: u64,
    ) -> Reference {
        Reference {
            thread: self.thread,
            pc: GuestVa(self.pc),
            addr: GuestVa(addr),
            size: size as u32,
            kind,
            now: 4 * self.clock + sub,
        }
    }

    #[inline(never)]
    pub(super) fn forget_code(&mut self, pc: u64) {
        self.now.code.forget(pc);
        self.code_lost = true;
        if let Some(word) = self.book.known_line(pc)
            && let Some(word) = self.now.arena.get_mut(word as usize)
        {
            *word = 0;
        }
        if pc & self.code_mask == self.line {
            self.forget_line();
        }
    }

    /// The next instruction is fetched, wherever it is.
    pub(super) fn forget_line(&mut self) {
        (self.line, self.line_end) = (NO_LINE, 0);
    }

    /// Control goes from where it was to `pc`.
    #[inline(always)]
    pub(super) fn jump(&mut self, pc: u64) {
        self.arcs.count(self.next, pc);
        self.close_run();
        self.run = pc;
        if pc & self.code_mask != self.line {
            self.line_end = 0;
        }
    }

    /// What ran since the last jump is known to have run.
    #[inline(always)]
    pub(crate) fn close_run(&mut self) {
        if self.next != NOWHERE {
            self.words.ran((self.run, self.next));
        }
    }

    /// Tells the caches a reference to data.
    #[inline(always)]
    pub(super) fn tell_data(&mut self, kind: ReferenceKind, addr: u64, size: u64) -> Pass {
        let last = addr.wrapping_add(size - 1);
        if (addr ^ last) >> self.book.data_shift != 0 {
            return self.tell(kind, addr, size, 1);
        }
        self.tell_line(self.now.data.geometry(), kind, (addr, size))
    }

    /// The same of a reference to one line.
    #[inline(always)]
    pub(super) fn tell_line(
        &mut self,
        geometry: Geometry,
        kind: ReferenceKind,
        (addr, size): (u64, u64),
    ) -> Pass {
        self.told[kind as usize] += 1;
        let reference = self.reference_of(kind, addr, size, 1);
        let pass = self.models.reference(&reference, &mut self.gone);
        match self.gone.line.take() {
            Some(line) => self.now.data.forget_in(geometry, line.0),
            None => self.forget_gone(),
        }
        pass
    }

    /// Tells the caches a reference.
    #[inline(never)]
    pub(super) fn tell(&mut self, kind: ReferenceKind, addr: u64, size: u64, sub: u64) -> Pass {
        let line = match kind {
            ReferenceKind::Fetch => self.book.code_shift,
            _ => self.book.data_shift,
        };
        let parts = (addr.wrapping_add(size - 1) >> line).wrapping_sub(addr >> line);
        self.told[kind as usize] += 1 + parts;
        self.extra[kind as usize] += parts;
        let reference = self.reference_of(kind, addr, size, sub);
        let pass = self.models.reference(&reference, &mut self.gone);
        match self.gone.line.take() {
            Some(line) if kind == ReferenceKind::Fetch => self.forget_code(line.0),
            Some(line) => self.now.data.forget(line.0),
            None => self.forget_gone(),
        }
        pass
    }

    /// The fetch of the bytes of an instruction that lie in the line of `at`.
    #[inline(never)]
    pub(super) fn fetch_line(&mut self, at: u64, size: u64) {
        self.line = at & self.code_mask;
        if self.now.code.load(at, 1, 4 * self.clock) {
            return;
        }
        let page_passes = self.page(ReferenceKind::Fetch, at, size);
        let code = &mut self.now.code;
        if page_passes && code.unhide(code.geometry(), at) && code.load(at, 1, 4 * self.clock) {
            return;
        }
        match self.tell(ReferenceKind::Fetch, at, size, 0) {
            Pass::Loads(slot) | Pass::All(slot) if page_passes => {
                let passing = Passing { loads: true, stores: Stores::Told };
                self.now.code.enter(at, passing, 0, slot);
            }
            _ => {}
        }
        self.line = at & self.code_mask;
    }

    /// Where the line that was fetched last ends, if it may be known.
    pub(super) fn end_of_line(&self) -> u64 {
        if self.line == NO_LINE { 0 } else { self.line.wrapping_add(self.shape.code_line) }
    }

    /// Fetches an instruction that does not lie in the line of the one before.
    #[inline(never)]
    pub(super) fn fetch(&mut self, pc: u64, len: u64) {
        if std::mem::replace(&mut self.again, NOWHERE) == pc {
            return;
        }
        let last = pc.wrapping_add(len - 1);
        if self.shape.detail == Detail::Everything {
            self.page(ReferenceKind::Fetch, pc, len);
            self.tell(ReferenceKind::Fetch, pc, len, 0);
        } else if pc & self.code_mask != self.line || last & self.code_mask != self.line {
            self.fetch_lines(pc, last);
        }
        self.line_end = self.end_of_line();
    }

    #[inline(never)]
    fn fetch_lines(&mut self, pc: u64, last: u64) {
        let second = last & self.code_mask;
        let crosses = second != pc & self.code_mask;
        if pc & self.code_mask != self.line {
            let size = if crosses { second.wrapping_sub(pc) } else { last - pc + 1 };
            self.fetch_line(pc, size);
        }
        if crosses {
            self.fetch_line(second, last - second + 1);
        }
    }

    #[inline(always)]
    pub(super) fn data(&mut self, kind: ReferenceKind, addr: u64, size: u64) {
        if !self.data_passes(kind, addr, size) {
            self.data_told(kind, addr, size);
        }
    }

    #[inline(always)]
    pub(super) fn data_passes(&self, kind: ReferenceKind, addr: u64, size: u64) -> bool {
        let now = 4 * self.clock + 1;
        match kind {
            ReferenceKind::Store => self.now.data.store(addr, size, now),
            _ => self.now.data.load(addr, size, now),
        }
    }

    /// The same if the line may be hidden, and its page is back.
    #[inline(always)]
    pub(super) fn data_passes_again(&mut self, kind: ReferenceKind, addr: u64, size: u64) -> bool {
        self.now.data.unhide(self.now.data.geometry(), addr);
        self.data_passes(kind, addr, size)
    }

    #[inline(never)]
    pub(super) fn data_told(&mut self, kind: ReferenceKind, addr: u64, size: u64) {
        let page_passes = self.page(kind, addr, size);
        if page_passes && self.data_passes_again(kind, addr, size) {
            return;
        }
        let pass = self.tell(kind, addr, size, 1);
        // Generated code needs the place of the bytes as well, which only
        // `data_generated` knows.
        if self.generated || !page_passes {
            return;
        }
        let (stores, slot) = match pass {
            Pass::Nothing => return,
            Pass::Loads(slot) => (Stores::Told, slot),
            Pass::All(slot) => (Stores::Pass, slot),
        };
        self.now.data.enter(addr, Passing { loads: true, stores }, 0, slot);
    }

    #[inline(always)]
    pub(super) fn irregular(&mut self, flags: AccessFlags, which: usize) {
        if flags == AccessFlags::ATOMIC {
            self.count_irregular(which);
        }
    }

    #[inline(never)]
    fn count_irregular(&mut self, which: usize) {
        self.irregular.entry(self.pc).or_default()[which] += 1;
    }

    /// A run of instructions whose bytes must be read while they are there.
    pub(crate) fn take_fresh(&mut self) -> Option<Run> {
        self.words.take_fresh()
    }

    /// An instruction that ran cannot be read.
    pub(crate) fn unreadable(&mut self, pc: u64) {
        self.words.unreadable(pc);
    }

    /// Takes note of an instruction. If another stood in its place, what is
    /// known so far is deduced first.
    pub(crate) fn note(&mut self, pc: u64, word: u32) {
        if self.words.conflicts(pc, word) {
            self.settle();
            self.words.forget_at(pc, word);
        }
        self.words.note(pc, word);
    }

    /// Deduces what ran so far, and begins to count anew.
    fn settle(&mut self) {
        self.harvest();
        for next in self.nexts() {
            self.arcs.add(next, NOWHERE, 1);
        }
        let arcs = self.arcs.take();
        self.counts.add(arcs, &self.words);
        for next in self.nexts() {
            self.arcs.add(NOWHERE, next, 1);
        }
    }

    fn nexts(&self) -> Vec<u64> {
        let others = self.others.iter().flatten();
        let all = others.map(|t| t.next).chain([self.next]);
        all.filter(|&next| next != NOWHERE).collect()
    }

    /// Collects what generated code and coarse handlers counted.
    pub(super) fn harvest(&mut self) {
        self.harvest_misses();
        self.views.empty(&mut self.arcs);
        let others = self.others.iter_mut().flatten();
        for tables in others.chain([&mut self.now]) {
            for arc in &self.book.arcs {
                if let Some(count) = tables.arena.get_mut(arc.word as usize) {
                    self.arcs.add(arc.from, arc.to, std::mem::take(count));
                }
            }
            for entry in &mut tables.indirect {
                if let Some(from) = self.book.indirect_end(entry.site as u32) {
                    self.arcs.add(from, entry.target(), std::mem::take(&mut entry.count));
                }
            }
        }
    }

    /// Tells the models of the lines and pages that generated code brought in.
    fn harvest_misses(&mut self) {
        let others = self.others.iter_mut().enumerate();
        let others = others.filter_map(|(n, tables)| Some((ThreadId(n as u32), tables.as_mut()?)));
        for (thread, tables) in others.chain([(self.thread, &mut self.now)]) {
            let mut take = |word: u32| tables.arena.get_mut(word as usize).map(std::mem::take);
            let [evictions, write_backs] = [EVICTIONS, WRITE_BACKS].map(|w| take(w).unwrap_or(0));
            self.models.evicted(thread, evictions, write_backs);
            for miss in &self.book.misses {
                let who = (miss.kind, GuestVa(miss.pc));
                if let Some(count) = take(miss.word).filter(|&count| count > 0) {
                    self.models.missed(thread, who, count);
                }
                if let Some(count) = take(miss.word + 1).filter(|&count| count > 0) {
                    self.models.walked(thread, who, count);
                }
            }
        }
    }

    /// The profile, and the models.
    pub(crate) fn finish(mut self, retired: u64) -> (Profile, M) {
        self.settle();
        let sizes = (self.book.code_shift, self.shape.page.trailing_zeros());
        let (mut profile, mut all) = self.counts.finish(&self.irregular, sizes);
        for kind in [1, 2] {
            all[kind] += self.extra[kind];
            profile.translated[kind] += self.extra_pages[kind];
        }
        profile.retired = retired;
        if self.shape.detail == Detail::Lines {
            profile.passed = std::array::from_fn(|kind| all[kind].saturating_sub(self.told[kind]));
        }
        (profile, self.models)
    }
}
