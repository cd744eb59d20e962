//! The code cache: all fragments of a process, found by address, linked and unlinked.
//!
//! Invariants: `by_pc` names live fragments only; an exit that is linked is in its target's
//! `incoming`; the fragments of a region are in the order of their addresses in `order`.
//! Everything here is used under the engine's lock.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use ichnos_base::{CacheAddr, HostAddr, Sieve};
use ichnos_codemem::{Copied, Region, Where};

use super::ctx::{SIEVE_NUMBERS, exit};
use super::emit::{Emit, LEAVE_LEN};
use super::exits::OpenExit;
use super::fragment::{Exit, Fragment, Kind, Pad, PadKind};
use super::hash::Fast;
use super::hot::Hot;
use super::index::Index;
use super::items::Items;
use super::lean::Leaner;
use super::mangle::reach;
use super::pages::Pages;
use super::path::{self, Route};
use super::places::{self, Gap};
use super::sites::Sites;
use super::translate::{Draft, Failure, Surroundings, Tracing, translate, translate_path};
use super::{gates, sieved, sync, sys, tap, trace};
use crate::window;
use crate::words::RoadmapHead;

const PAGE_SHIFT: u32 = 12;
/// Room of an exit stub, so that constants among them stay aligned.
const STUB: usize = LEAVE_LEN.next_multiple_of(8);
/// What a fragment takes at most, with its exits.
const ROOM: usize = 32 << 10;
/// The bits of a book.
const BEGUN_BITS: usize = 1 << 20;

/// The cache.
pub struct Cache {
    regions: Vec<Region>,
    order: Vec<Vec<u32>>,
    fragments: Vec<Fragment>,
    exits: Vec<Exit>,
    books: [Book; Kind::COUNT],
    by_page: HashMap<u64, Vec<u32>, Fast>,
    /// Where the program's code is.
    pub pages: Pages,
    /// Whether what runs is counted.
    counted: bool,
    /// What of that which is recorded is kept back.
    sieve: Option<Sieve>,
    /// The numbers of lines of code.
    lines: HashMap<u64, u32, Fast>,
    /// The pads of fragments taken out, for their threads' tables.
    pub removed: Vec<Pad>,
    /// What recorded fragments store, if paths are made.
    pub items: Items,
    /// What is known of paths.
    pub hot: Hot,
    /// Paths for whom registers are known.
    pub leaner: Leaner,
    /// How often the cache was emptied.
    filling: u64,
    /// Whether it is to be emptied as soon as nobody runs in it.
    retired: bool,
}

/// The fragments of one kind by the program's addresses.
pub struct Book {
    by_pc: HashMap<u64, u32, Fast>,
    /// A bit for each address that begins or began one, and for others that end in the same bits: whoever decodes code asks at
    /// each instruction.
    begun: Box<[u64]>,
    /// Targets of jumps and calls.
    pub jumps: Index,
    /// Targets of returns.
    pub rets: Index,
}

impl Book {
    fn new() -> Self {
        let begun = vec![0; BEGUN_BITS / 64].into_boxed_slice();
        Self { by_pc: HashMap::default(), begun, jumps: Index::new(), rets: Index::new() }
    }

    /// Whether a fragment begins at an address.
    fn begins(&self, pc: u64) -> bool {
        let (word, bit) = begun_at(pc);
        self.begun[word] & bit != 0 && self.by_pc.contains_key(&pc)
    }

    fn insert(&mut self, pc: u64, id: u32) {
        let (word, bit) = begun_at(pc);
        self.begun[word] |= bit;
        self.by_pc.insert(pc, id);
    }

    /// The fragment that begins at an address.
    pub fn by_pc(&self, pc: u64) -> Option<u32> {
        self.by_pc.get(&pc).copied()
    }

    fn clear(&mut self) {
        self.by_pc.clear();
        self.begun.fill(0);
        self.jumps.clear();
        self.rets.clear();
    }
}

/// The word and the bit of an address.
const fn begun_at(pc: u64) -> (usize, u64) {
    let bit = pc as usize % BEGUN_BITS;
    (bit / 64, 1 << (bit % 64))
}

struct Around<'a> {
    pages: &'a mut Pages,
    book: &'a Book,
    region: &'a mut Region,
    tracing: Tracing,
    counted: bool,
    lines: &'a mut HashMap<u64, u32, Fast>,
}

impl Surroundings for Around<'_> {
    fn code(&mut self, pc: u64, most: usize) -> &'static [u8] {
        self.pages.code(pc, most)
    }

    fn may_be_written(&mut self, pc: u64) -> bool {
        self.pages.find(pc).is_some_and(|stretch| stretch.writable || stretch.shared)
    }

    fn has_fragment(&self, pc: u64) -> bool {
        self.book.begins(pc)
            || self.tracing == Tracing::Whole && sync::is_entry(pc)
            || self.counted && gates::is_gate(pc)
    }

    fn tracing(&self) -> Tracing {
        self.tracing
    }

    fn line_number(&mut self, line: u64) -> u32 {
        let next = self.lines.len() as u32 + 1;
        if next >= SIEVE_NUMBERS {
            sieved::too_much_code();
        }
        *self.lines.entry(line).or_insert(next)
    }

    fn counted(&self) -> bool {
        self.counted
    }

    fn identifiers(&mut self, count: usize) -> u32 {
        tap::header().blocks.fetch_add(count as u32, Ordering::Relaxed)
    }

    fn constant(&mut self, value: u64) -> Option<u64> {
        let at = self.region.alloc_cold(8).ok()?;
        self.region.write(at, &value.to_le_bytes()).ok()?;
        Some(at.0)
    }
}

impl Cache {
    /// An empty cache with regions in these gaps.
    pub fn new(gaps: &[Gap], counted: bool, sieve: Option<Sieve>) -> Self {
        let mut cache = Self {
            regions: Vec::new(),
            order: Vec::new(),
            fragments: Vec::new(),
            exits: Vec::new(),
            books: [Book::new(), Book::new()],
            by_page: HashMap::default(),
            pages: Pages::new(),
            counted,
            sieve,
            lines: HashMap::default(),
            removed: Vec::new(),
            items: Items::default(),
            hot: Hot::new(),
            leaner: Leaner::default(),
            filling: 1,
            retired: false,
        };
        let mut view = window::VIEWS;
        for gap in gaps {
            let (run, write) = (Where::At(HostAddr(gap.start)), Where::At(HostAddr(view)));
            if let Ok(region) = Region::new(gap.len as usize, run, write) {
                places::add(gap.start, gap.len);
                cache.regions.push(region);
                cache.order.push(Vec::new());
                view += gap.len.next_multiple_of(1 << 30);
            }
        }
        if cache.regions.is_empty() {
            sys::die("no memory for translated code");
        }
        cache
    }

    /// How many fragments were made, and how many bytes of code.
    pub fn size(&self) -> (usize, usize) {
        let bytes = self.regions.iter().map(|r| r.len() - r.left()).sum();
        (self.fragments.len(), bytes)
    }

    /// What there is of a kind.
    pub fn book(&self, kind: Kind) -> &Book {
        &self.books[kind as usize]
    }

    /// The number of the present filling.
    pub fn filling(&self) -> u64 {
        self.filling
    }

    /// Takes all fragments off the books; their code stays until [`Cache::empty`].
    pub fn retire(&mut self) {
        if self.retired {
            return;
        }
        self.retired = true;
        for &exit in self.exits.iter().filter(|exit| exit.linked.is_some()) {
            self.patch(exit, exit.stub);
        }
        for fragment in &mut self.fragments {
            fragment.live = false;
            fragment.incoming.clear();
        }
        self.exits.iter_mut().for_each(|exit| exit.linked = None);
        self.books.iter_mut().for_each(Book::clear);
        self.leaner = Leaner::default();
        self.by_page.clear();
        self.removed.clear();
    }

    /// Makes all memory free again. Nobody runs in it, and nobody has an exit's number.
    pub fn empty(&mut self) {
        self.regions.iter_mut().for_each(Region::reset);
        self.order.iter_mut().for_each(Vec::clear);
        self.fragments.clear();
        self.exits.clear();
        self.items.clear();
        self.hot = Hot::new();
        self.retired = false;
        self.filling += 1;
    }

    /// A fragment.
    pub fn fragment(&self, id: u32) -> &Fragment {
        &self.fragments[id as usize]
    }

    /// An exit by the number that the cache was left with.
    pub fn exit(&self, number: u64) -> Option<Exit> {
        self.exits.get(number.checked_sub(exit::FIRST)? as usize).copied()
    }

    /// The fragment that begins at an address of the program, made if need be.
    pub fn find(&mut self, pc: u64, pad: Option<PadKind>, kind: Kind) -> Result<u32, Failure> {
        if let Some(&id) = self.book(kind).by_pc.get(&pc) {
            return Ok(id);
        }
        let region = self.region_for(pc);
        if self.retired || self.regions[region].left() < ROOM {
            return Err(Failure::Full);
        }
        let mut draft = self.draft(pc, region, pad, kind)?;
        // What was read before its pages were closed may have changed since.
        while self.guard(&draft.source) {
            draft = self.draft(pc, region, pad, kind)?;
        }
        self.tell(&draft);
        Ok(self.place(draft, pc, region, kind))
    }

    /// Tells the host what a draft will store.
    fn tell(&mut self, draft: &Draft) {
        let state = super::state::get();
        for told in &draft.told {
            let head = RoadmapHead {
                first: told.first,
                blocks: told.pieces.len() as u32,
                process: state.process(),
                code_len: told.code.len() as u32,
                stretches: told.stretches.len() as u32,
                is_path: told.is_path,
                known: told.known,
            };
            trace::describe(head, &told.stretches, &told.code);
            if state.makes_paths() {
                self.items.add(told);
            }
        }
    }

    /// Puts a path in the place of the fragment with which it begins.
    pub fn place_whole(&mut self, route: &Route, draft: Draft) {
        if let Some(old) = self.book(Kind::Recorded).by_pc(draft.pc) {
            self.remove(old);
        }
        self.leaner.add(route, &draft);
        self.place_path(draft);
    }

    /// A path for who knows these registers where its first fragment begins now; nothing if it cannot be made.
    pub fn draft_path(&mut self, route: &Route, known: u16) -> Option<Draft> {
        let pc = *route.entries.first()?;
        let region = self.region_for(pc);
        let is_there = self.book(Kind::Recorded).by_pc(pc).is_some();
        let has_room = !self.retired && self.regions[region].left() >= ROOM;
        if sync::is_mark(pc) || !is_there || !has_room {
            return None;
        }
        let mut draft = self.draft_along(route, known, region)?;
        while self.guard(&draft.source) {
            draft = self.draft_along(route, known, region)?;
        }
        Some(draft)
    }

    /// Tells the host of a path, and places it.
    pub fn place_path(&mut self, draft: Draft) {
        self.tell(&draft);
        // Returns go to the pad of the call that was translated last.
        for pad in draft.pads.iter().filter(|pad| pad.kind == PadKind::Ret) {
            if let Some(at) = self.books[Kind::Recorded as usize].rets.get(pad.tag) {
                self.removed.push(Pad { kind: PadKind::Ret, tag: pad.tag, at });
            }
        }
        let pc = draft.pc;
        let region = self.region_for(pc);
        self.place(draft, pc, region, Kind::Recorded);
    }

    fn draft_along(&mut self, route: &Route, known: u16, region: usize) -> Option<Draft> {
        let base = self.regions[region].next().0.next_multiple_of(16);
        let mut around = self.around(region, Kind::Recorded);
        let path = path::gather(&mut around, route, known)?;
        translate_path(&mut around, path, base)
    }

    fn draft(
        &mut self,
        pc: u64,
        region: usize,
        pad: Option<PadKind>,
        kind: Kind,
    ) -> Result<Draft, Failure> {
        let base = self.regions[region].next().0.next_multiple_of(16);
        translate(&mut self.around(region, kind), pc, base, pad)
    }

    /// What a translation needs to know.
    fn around(&mut self, region: usize, kind: Kind) -> Around<'_> {
        let (pages, book) = (&mut self.pages, &self.books[kind as usize]);
        let tracing = match (kind, self.sieve) {
            (Kind::Plain, _) => Tracing::Not,
            (Kind::Recorded, Some(sieve)) => Tracing::Sifted(sieve),
            (Kind::Recorded, None) => Tracing::Whole,
        };
        let (region, counted, lines) = (&mut self.regions[region], self.counted, &mut self.lines);
        Around { pages, book, region, tracing, counted, lines }
    }

    /// Closes to writing what has just been translated; whether it was open before.
    fn guard(&mut self, source: &[(u64, u64)]) -> bool {
        const RWX: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let mut fresh = false;
        for page in pages_of(source) {
            let Some(stretch) = self.pages.find(page << PAGE_SHIFT) else { continue };
            if stretch.writable {
                fresh |= self.pages.guards.close(page, RWX, page);
            }
            if stretch.shared {
                for (view, prot) in self.pages.other_views(page << PAGE_SHIFT) {
                    fresh |= self.pages.guards.close(view >> PAGE_SHIFT, prot, page);
                }
            }
        }
        fresh
    }

    /// The landing pad for jumps to a fragment, made if need be.
    pub fn jump_pad(&mut self, id: u32) -> Option<u64> {
        let (pc, kind) = (self.fragment(id).pc, self.fragment(id).kind as usize);
        if let Some(pad) = self.books[kind].jumps.get(pc) {
            return Some(pad);
        }
        let known = self.fragment(id).pads.iter().find(|p| p.kind == PadKind::Jump);
        let at = match known {
            Some(pad) => pad.at,
            None => self.separate_pad(id, PadKind::Jump)?,
        };
        self.books[kind].jumps.insert(pc, at);
        Some(at)
    }

    /// A landing pad for returns to a fragment that no translated call goes back to.
    pub fn ret_pad(&mut self, id: u32) -> Option<u64> {
        let at = self.separate_pad(id, PadKind::Ret)?;
        let (pc, kind) = (self.fragment(id).pc, self.fragment(id).kind as usize);
        self.books[kind].rets.insert(pc, at);
        Some(at)
    }

    /// `None` if there is no room for one: then every such transfer comes to the dispatcher.
    fn separate_pad(&mut self, id: u32, kind: PadKind) -> Option<u64> {
        let (pc, region, start) = {
            let f = self.fragment(id);
            (f.pc, f.region, f.start)
        };
        let region = &mut self.regions[region];
        let at = region.next().0;
        let mut emit = Emit::new(at);
        match kind {
            PadKind::Jump => emit.verify(pc),
            PadKind::Ret => emit.verify_return(pc),
        }
        let fix = emit.jump();
        let next = at + emit.offset() as u64;
        emit.fix32(fix, start.wrapping_sub(next) as u32);
        region.alloc(emit.offset()).and_then(|at| region.write(at, emit.bytes())).ok()?;
        self.fragments[id as usize].pads.push(Pad { kind, tag: pc, at });
        Some(at)
    }

    /// Leads an exit straight to a fragment, or to one for those who know as much as is known there.
    pub fn link(&mut self, number: u64, to: u32) {
        let Some(index) = number.checked_sub(exit::FIRST) else { return };
        let Some(exit) = self.exits.get(index as usize).copied() else { return };
        let from_live = self.fragments[exit.from as usize].live;
        if exit.patch == 0 || exit.linked.is_some() || !from_live {
            return;
        }
        let to = self.leaner.best(exit.target, exit.known).unwrap_or(to);
        self.lead(index as u32, to);
    }

    /// Leads an exit to a fragment, wherever it led before.
    pub fn lead(&mut self, index: u32, to: u32) {
        let exit = self.exits[index as usize];
        let start = self.fragments[to as usize].start;
        let near = reach(exit.patch + 4, start).map(|_| start);
        let Some(landing) = near.or_else(|| self.far_jump(exit, start)) else { return };
        self.patch(exit, landing);
        self.exits[index as usize].linked = Some(to);
        self.fragments[to as usize].incoming.push(index);
    }

    /// Leads an exit where it leads if nothing is linked to it.
    pub fn unlink(&mut self, index: u32) {
        let exit = self.exits[index as usize];
        self.patch(exit, exit.stub);
        self.exits[index as usize].linked = None;
    }

    /// An exit by its place.
    pub fn exit_at(&self, index: u32) -> Exit {
        self.exits[index as usize]
    }

    /// An indirect jump with the address beside it, for a fragment in another region; `None` if there
    /// is no room.
    fn far_jump(&mut self, exit: Exit, start: u64) -> Option<u64> {
        let mut code = vec![0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc];
        code.extend(start.to_le_bytes());
        let region = self.fragments[exit.from as usize].region;
        let region = &mut self.regions[region];
        let placed = region.alloc_cold(code.len());
        placed.and_then(|at| region.write(at, &code).map(|()| at.0)).ok()
    }

    fn patch(&self, exit: Exit, landing: u64) {
        let region = &self.regions[self.fragments[exit.from as usize].region];
        let distance = landing.wrapping_sub(exit.patch + 4) as u32;
        if region.patch_u32(CacheAddr(exit.patch), distance).is_err() {
            sys::die("an exit lies outside its region");
        }
    }

    /// The number of a line of code, if it has one.
    pub fn line_number(&self, line: u64) -> Option<u32> {
        self.lines.get(&line).copied()
    }

    /// The fragment whose code holds an address of the cache.
    pub fn holding(&self, addr: u64) -> Option<&Fragment> {
        let region = self.regions.iter().position(|r| r.contains(CacheAddr(addr)))?;
        let order = &self.order[region];
        let i = order.partition_point(|&id| self.fragments[id as usize].base <= addr);
        let id = *order.get(i.checked_sub(1)?)?;
        Some(&self.fragments[id as usize]).filter(|f| addr < f.end)
    }

    /// Takes out all fragments that translate code in a range; whether there were any.
    pub fn invalidate(&mut self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        let (first, last) = (start >> PAGE_SHIFT, end.saturating_sub(1) >> PAGE_SHIFT);
        let mut gone = Vec::new();
        if last - first < self.by_page.len() as u64 {
            (first..=last).for_each(|p| gone.extend(self.by_page.remove(&p).unwrap_or_default()));
        } else {
            let pages: Vec<u64> =
                self.by_page.keys().copied().filter(|p| (first..=last).contains(p)).collect();
            pages.iter().for_each(|p| gone.extend(self.by_page.remove(p).unwrap_or_default()));
        }
        gone.iter().for_each(|&id| self.remove(id));
        !gone.is_empty()
    }

    fn remove(&mut self, id: u32) {
        let fragment = &mut self.fragments[id as usize];
        if !fragment.live {
            return;
        }
        fragment.live = false;
        let incoming = std::mem::take(&mut fragment.incoming);
        let pads = std::mem::take(&mut fragment.pads);
        let (pc, kind) = (fragment.pc, fragment.kind as usize);
        if !fragment.parts.is_empty() && fragment.known == 0 {
            self.hot.forget(pc);
        }
        let leaner = self.leaner.remove(pc, id);
        if self.books[kind].by_pc.get(&pc) == Some(&id) {
            self.books[kind].by_pc.remove(&pc);
        }
        for index in incoming {
            if self.exits[index as usize].linked == Some(id) {
                self.unlink(index);
            }
        }
        // Its own exits stay with the fragments to which they lead: a thread may still be inside, and must not come to what has
        // gone since.
        for pad in pads {
            let index = match pad.kind {
                PadKind::Jump => &mut self.books[kind].jumps,
                PadKind::Ret => &mut self.books[kind].rets,
            };
            if index.get(pad.tag) == Some(pad.at) {
                index.remove(pad.tag);
            }
            self.removed.push(pad);
        }
        leaner.into_iter().for_each(|id| self.remove(id));
    }

    /// Copies of all regions, made before a fork for the child.
    pub fn copies(&self) -> Option<Vec<Copied>> {
        self.regions.iter().map(|r| r.copy().ok()).collect()
    }

    /// Gives the cache memory of its own in the child of a fork.
    pub fn replace(&mut self, copies: &[Copied]) {
        for (region, copy) in self.regions.iter_mut().zip(copies) {
            if region.replace(copy).is_err() {
                sys::die("no memory for the code cache of a new process");
            }
        }
    }

    fn region_for(&self, pc: u64) -> usize {
        let near = |r: &Region| {
            let (low, high) = (r.start().0, r.start().0 + r.len() as u64);
            pc.abs_diff(low) < 0x7800_0000 && pc.abs_diff(high) < 0x7800_0000
        };
        self.regions.iter().position(near).unwrap_or(self.regions.len() - 1)
    }

    fn place(&mut self, mut draft: Draft, pc: u64, region: usize, kind: Kind) -> u32 {
        let id = self.fragments.len() as u32;
        let base = draft.emit.base();
        let first = self.exits.len() as u32;
        for exit in std::mem::take(&mut draft.exits) {
            let at = exit.patch.or(exit.inline).unwrap_or(0);
            let before = draft.inside.partition_point(|inside| inside.offset <= at);
            self.open(&mut draft.emit, exit, (id + before as u32, region));
        }
        let memory = &mut self.regions[region];
        let skip = (base - memory.next().0) as usize;
        let written = memory
            .alloc(skip + draft.emit.offset())
            .and_then(|_| memory.write(CacheAddr(base), draft.emit.bytes()));
        if written.is_err() {
            sys::die("the code cache is full");
        }
        self.enter(draft, pc, (region, kind), first);
        for index in first..self.exits.len() as u32 {
            if let Some(to) = self.exits[index as usize].linked {
                self.fragments[to as usize].incoming.push(index);
            }
        }
        for index in first..self.exits.len() as u32 {
            let exit = self.exits[index as usize];
            if let (true, Some(&to)) = (exit.patch != 0, self.book(kind).by_pc.get(&exit.target)) {
                self.link(exit::FIRST + u64::from(index), to);
            }
        }
        id
    }

    /// Enters a placed draft in the books: a fragment, and those that begin inside of it. They
    /// stand for the same pages, so that none outlives the others.
    fn enter(&mut self, draft: Draft, pc: u64, (region, kind): (usize, Kind), first_exit: u32) {
        let exits = first_exit..self.exits.len() as u32;
        let base = draft.emit.base();
        let pages = pages_of(&draft.source);
        let (mut sites, mut pads) = (&*draft.sites, draft.pads);
        let (mut parts, mut known) = (draft.parts.into_boxed_slice(), draft.known);
        let mut renew = draft.renew.map(|at| base + at as u64);
        let (mut pc, mut from) = (pc, 0);
        let (mut entry, mut inner) = (draft.entry, draft.inner.unwrap_or(draft.entry));
        let mut rest = draft.inside.iter();
        loop {
            let next = rest.next();
            let to = next.map_or(draft.emit.offset(), |next| next.offset);
            let end = base + to as u64;
            let last = if next.is_some() {
                sites.partition_point(|s| (s.offset as usize) < to)
            } else {
                sites.len()
            };
            let (own, behind) = sites.split_at(last);
            let (own_pads, pads_behind) =
                pads.into_iter().partition(|p: &Pad| next.is_none() || p.at < end);
            let fragment = Fragment {
                pc,
                start: base + entry as u64,
                inner: base + inner as u64,
                base: base + from as u64,
                end,
                region,
                sites: Sites::new(own, from as u32, pc),
                incoming: Vec::new(),
                pads: own_pads,
                parts: std::mem::take(&mut parts),
                known: std::mem::take(&mut known),
                renew: renew.take(),
                exits: exits.clone(),
                live: true,
                kind,
            };
            self.register(fragment, &pages);
            let Some(next) = next else { return };
            (sites, pads, pc, from) = (behind, pads_behind, next.pc, to);
            (entry, inner) = (next.entry, next.entry);
        }
    }

    fn register(&mut self, fragment: Fragment, pages: &[u64]) {
        let id = self.fragments.len() as u32;
        for pad in fragment.pads.iter().filter(|p| p.kind == PadKind::Ret) {
            self.books[fragment.kind as usize].rets.insert(pad.tag, pad.at);
        }
        for &page in pages {
            self.by_page.entry(page).or_default().push(id);
        }
        if fragment.known == 0 {
            self.books[fragment.kind as usize].insert(fragment.pc, id);
        } else {
            self.leaner.made(fragment.pc, fragment.known, id);
        }
        self.order[fragment.region].push(id);
        self.fragments.push(fragment);
    }

    fn open(&mut self, emit: &mut Emit, open: OpenExit, (from, region): (u32, usize)) {
        let number = self.exits.len() as u32 + exit::FIRST as u32;
        let mut exit = Exit {
            kind: open.kind,
            target: open.target,
            patch: 0,
            stub: 0,
            block: open.block,
            linked: None,
            known: open.known,
            turns: open.own.is_some(),
            from,
        };
        if let Some(inline) = open.inline {
            emit.fix32(inline + 8, number);
            exit.stub = emit.base() + (inline + LEAVE_LEN) as u64;
        }
        if let Some(patch) = open.patch {
            exit.patch = emit.base() + patch as u64;
            if let Some((landing, stub)) = open.own {
                exit.stub = emit.base() + stub as u64;
                exit.linked = Some(from);
                emit.fix32(patch, landing.wrapping_sub(patch + 4) as u32);
                self.exits.push(exit);
                return;
            }
            let mut stub = Emit::new(0);
            stub.leave(number);
            let memory = &mut self.regions[region];
            let placed = memory.alloc_cold(STUB);
            let placed = placed.and_then(|at| memory.write(at, stub.bytes()).map(|()| at));
            let Ok(at) = placed else { sys::die("the code cache is full") };
            exit.stub = at.0;
            emit.fix32(patch, at.0.wrapping_sub(exit.patch + 4) as u32);
        }
        self.exits.push(exit);
    }
}

fn pages_of(source: &[(u64, u64)]) -> Vec<u64> {
    let mut pages: Vec<u64> = source
        .iter()
        .flat_map(|&(start, end)| start >> PAGE_SHIFT..=(end.max(start + 1) - 1) >> PAGE_SHIFT)
        .collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}
