//! Joins the RV64 simulator's profile with the models: only what the simulator's
//! tables cannot answer comes here, and is charged to its instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use ichnos_base::{Batch, Event, GuestVa, InsnKind, MapKind, Protection, Record, Sink, ThreadId};
use ichnos_collect_rv64::profile::{
    Detail, Gone, Models as Boundary, Pass, Profile, Reference as Told, ReferenceKind, Ring, Sets,
    Shape, Stamps, Transfer, WRITTEN,
};
use ichnos_model as model;
use ichnos_model::{
    Access, BranchModel, BranchObserve, ByKind, Direct, Filterable, Hierarchy, Kind, Modify,
    Observe, Reference, Standing, Straddle, TlbModel, TlbObserve,
};
use ichnos_report::{Rows, StoredArc, StoredInsn, StoredMap, StoredProfile};

use crate::answer::Answer;
use crate::charge::Columns;
use crate::hierarchy::{Models, describe};
use crate::simulation::counted;

/// Where accesses of one reference ended.
#[derive(Debug, Default)]
struct Served(Vec<u32>);

impl Observe for Served {
    #[inline]
    fn access(&mut self, access: &Access) {
        if access.served > 0 {
            self.0.push(access.served);
        }
    }
}

/// The TLB misses of one reference, and how many of them led to a walk.
#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    misses: u64,
    walks: u64,
}

impl TlbObserve for Missed {
    #[inline]
    fn missed(&mut self, _instructions: u64, _kind: Kind, _levels: usize, walked: bool) {
        self.misses += 1;
        self.walks += u64::from(walked);
    }
}

/// Whether the last transfer was predicted right.
#[derive(Debug, Default)]
struct Right(Option<bool>);

impl BranchObserve for Right {
    fn transfer(&mut self, _pc: GuestVa, _kind: InsnKind, right: bool) {
        self.0 = Some(right);
    }
}

/// Mixes an address.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// Places of costs that are found without a hash. A power of two.
const RECENT: usize = 1 << 12;

/// The first-level caches of one thread, which are asked without the hierarchy.
struct FirstLevel {
    thread: ThreadId,
    code: Option<Direct>,
    data: Option<Direct>,
}

/// The models behind a profile.
pub struct Profiling {
    caches: Hierarchy<Served>,
    /// The first-level caches of one thread, if they are of the usual sort.
    direct: Option<FirstLevel>,
    tlbs: Option<TlbModel<Missed>>,
    branch: Option<BranchModel<Right>>,
    columns: Columns,
    width: usize,
    detail: Option<Detail>,
    /// Which costs are an instruction's: `width` numbers each.
    places: HashMap<u64, usize, BuildHasherDefault<Mix>>,
    costs: Vec<u64>,
    /// Instructions that were charged last, and where their costs are.
    recent: Box<[(u64, usize); RECENT]>,
    maps: Vec<StoredMap>,
    notes: Vec<String>,
}

impl Profiling {
    /// Cold models.
    pub fn new(models: &Models) -> Result<Self> {
        let tlbs = models.tlbs.as_ref().map(|c| TlbModel::behind_filter(c, Missed::default()));
        let branch = models.branch.as_ref().map(|c| BranchModel::observed(c, Right::default()));
        let whole =
            models.caches.straddle == Straddle::One || models.caches.modify == Modify::LoadOnly;
        Ok(Self {
            caches: Hierarchy::behind_filter(&models.caches, Served::default())?,
            direct: None,
            tlbs: tlbs.transpose()?,
            branch: branch.transpose()?,
            columns: Columns::new(models),
            width: Columns::new(models).names().len(),
            detail: whole.then_some(Detail::Everything),
            places: HashMap::default(),
            costs: Vec::new(),
            recent: Box::new([(u64::MAX, 0); RECENT]),
            maps: Vec::new(),
            notes: describe(models),
        })
    }

    #[inline(always)]
    fn charge(&mut self, pc: GuestVa, column: usize, count: usize) {
        let first = self.recent_place(pc) + column;
        if count == 1 {
            if let Some(cost) = self.costs.get_mut(first) {
                *cost += 1;
            }
            return;
        }
        for cost in self.costs.get_mut(first..first + count).unwrap_or_default() {
            *cost += 1;
        }
    }

    /// Where the costs of an instruction are that was probably charged of late.
    #[inline(always)]
    fn recent_place(&mut self, pc: GuestVa) -> usize {
        let (known, place) = self.recent[(pc.0 >> 1) as usize & (RECENT - 1)];
        if known == pc.0 { place } else { self.place_newly(pc) }
    }

    /// Where the costs of an instruction are that was not among the recent ones.
    #[inline(never)]
    fn place_newly(&mut self, pc: GuestVa) -> usize {
        let place = self.place(pc);
        self.recent[(pc.0 >> 1) as usize & (RECENT - 1)] = (pc.0, place);
        place
    }

    /// Where an instruction's costs are.
    fn place(&mut self, pc: GuestVa) -> usize {
        let next = self.costs.len();
        let place = *self.places.entry(pc.0).or_insert(next);
        if place == next {
            self.costs.resize(next + self.width, 0);
        }
        place
    }

    /// An instruction's costs, taken out.
    fn take_costs(&mut self, pc: GuestVa) -> Vec<u64> {
        let place = self.places.remove(&pc.0);
        let costs = place.and_then(|at| self.costs.get(at..at + self.width));
        costs.map_or_else(|| vec![0; self.width], <[u64]>::to_vec)
    }

    /// A reference that the TLBs do not answer at once.
    #[inline(never)]
    fn translate_at_length(&mut self, told: &Told, gone: &mut Gone) -> bool {
        let Some(model) = &mut self.tlbs else { return true };
        let kind = kind_of(told.kind);
        let at = (told.addr, told.size);
        let passes = model.reference(told.thread, kind, at, |page| gone.pages.push(page));
        let missed = std::mem::take(model.observer_mut());
        if missed.misses > 0 {
            self.charge_walk(told.pc, kind, missed);
        }
        passes != Filterable::Nothing
    }

    #[inline(always)]
    fn charge_walk(&mut self, pc: GuestVa, kind: Kind, missed: Missed) {
        let first = self.columns.tlbs.unwrap_or(0) + if kind == Kind::Fetch { 0 } else { 2 };
        let place = self.recent_place(pc) + first;
        if let Some([misses, walks]) = self.costs.get_mut(place..place + 2) {
            *misses += missed.misses;
            *walks += missed.walks;
        }
    }

    /// The first-level caches are those of another thread, or of none.
    #[cold]
    #[inline(never)]
    fn turn_to(&mut self, thread: ThreadId) {
        self.give_back();
        let code = self.caches.direct(thread, Kind::Fetch);
        let data = self.caches.direct(thread, Kind::Load);
        self.direct = Some(FirstLevel { thread, code, data });
    }

    /// A thread's first-level cache of data, if it is of the usual sort.
    fn first_data(&mut self, thread: ThreadId) -> Option<&mut Direct> {
        if self.direct.as_ref().is_none_or(|first| first.thread != thread) {
            self.turn_to(thread);
        }
        self.direct.as_mut()?.data.as_mut()
    }

    /// The hierarchy gets the counts of first-level caches.
    fn give_back(&mut self) {
        let Some(first) = self.direct.take() else { return };
        for (direct, kind) in [(&first.code, Kind::Fetch), (&first.data, Kind::Load)] {
            if let Some(direct) = direct {
                self.caches.give_back(direct, kind);
            }
        }
    }

    /// A reference that a first-level cache does not answer by itself.
    #[inline(never)]
    fn reference_to_hierarchy(&mut self, id: ThreadId, r: &Reference, gone: &mut Gone) -> Pass {
        let Some(answer) = self.caches.reference_at_once(id, r) else {
            return self.reference_at_length(id, r, gone);
        };
        if answer.served > 0 {
            let column = self.columns.references(r.kind) + 1;
            let missed = (answer.served as usize).min(self.columns.levels);
            self.charge(r.pc, column, missed);
        }
        gone.line = answer.departed;
        pass(answer.standing)
    }

    /// A reference that the caches do not answer at once.
    #[cold]
    fn reference_at_length(&mut self, id: ThreadId, r: &Reference, gone: &mut Gone) -> Pass {
        let standing = self.caches.reference(id, r);
        self.charge_misses(r.pc, r.kind);
        self.resume(id, gone);
        pass(standing)
    }

    fn charge_misses(&mut self, pc: GuestVa, kind: Kind) {
        while let Some(level) = self.caches.observer_mut().0.pop() {
            let missed = (level as usize).min(self.columns.levels);
            self.charge(pc, self.columns.references(kind) + 1, missed);
        }
    }

    /// Adds what passed, and gives what is to be stored.
    pub fn finish(&mut self, profile: &Profile, command: String) -> StoredProfile {
        self.give_back();
        let [fetch, load, store] = profile.passed;
        self.caches.count_hits(ThreadId(0), profile.retired, ByKind::new(fetch, load, store));
        let [fetch, load, store] = profile.translated;
        if let Some(model) = &mut self.tlbs {
            model.count_accesses(profile.retired, ByKind::new(fetch, load, store));
        }
        if let Some(model) = &mut self.branch {
            model.count_instructions(profile.retired);
        }
        let insns = profile.executed.iter().map(|insn| {
            let mut costs = self.take_costs(insn.pc);
            for (kind, count) in
                [(Kind::Fetch, insn.count), (Kind::Load, insn.loads), (Kind::Store, insn.stores)]
            {
                if let Some(cost) = costs.get_mut(self.columns.references(kind)) {
                    *cost += count;
                }
            }
            StoredInsn { pc: insn.pc, word: insn.word, costs }
        });
        let mut insns: Vec<_> = insns.collect();
        // An instruction that only ever trapped was fetched and never retired.
        let left: Vec<_> = self.places.keys().map(|&pc| GuestVa(pc)).collect();
        insns.extend(left.into_iter().map(|pc| StoredInsn {
            pc,
            word: 0,
            costs: self.take_costs(pc),
        }));
        insns.sort_by_key(|insn| insn.pc);
        let arcs = profile.arcs.iter();
        StoredProfile {
            command,
            notes: self.notes.clone(),
            maps: std::mem::take(&mut self.maps),
            columns: self.columns.names(),
            insns,
            arcs: arcs.map(|a| StoredArc { from: a.from, to: a.to, count: a.count }).collect(),
        }
    }

    /// What was counted.
    pub fn answer(&self, rows: Rows) -> Answer {
        let tlbs = self.tlbs.as_ref().map(TlbModel::report);
        let branch = self.branch.as_ref().map(BranchModel::report);
        counted(&self.caches.report(), tlbs.as_ref(), branch.as_ref(), rows)
    }
}

/// An image that stands at its own addresses, wherever they are.
pub fn image_everywhere(path: &Path) -> StoredMap {
    StoredMap {
        len: u64::MAX,
        protection: Protection::EXEC,
        kind: MapKind::IMAGE,
        path: path.canonicalize().unwrap_or_else(|_| path.into()).to_string_lossy().into_owned(),
        ..StoredMap::default()
    }
}

/// Writes a profile to a file.
pub fn store(path: &Path, profile: &StoredProfile) -> Result<()> {
    let place = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(place)?);
    profile.write(&mut out).with_context(place)?;
    out.flush().with_context(place)
}

const fn kind_of(kind: ReferenceKind) -> Kind {
    match kind {
        ReferenceKind::Fetch => Kind::Fetch,
        ReferenceKind::Load => Kind::Load,
        ReferenceKind::Store => Kind::Store,
    }
}

const fn pass(standing: Standing) -> Pass {
    match standing {
        Standing::Seen => Pass::Nothing,
        Standing::Loads(slot) => Pass::Loads(slot),
        Standing::All(slot) => Pass::All(slot),
    }
}

impl Boundary for Profiling {
    fn shape(&mut self) -> Shape {
        let thread = ThreadId(0);
        let code = self.caches.line_bytes(thread, Kind::Fetch);
        let data = self.caches.line_bytes(thread, Kind::Load);
        // Repeated fetches of a line may be told once only if they change nothing
        // between data; and where threads share a core, its filter would be two.
        let filterable = self.caches.filterable(thread, Kind::Fetch) != Filterable::Nothing
            && !self.caches.is_unified(thread)
            && self.caches.has_core_of_its_own();
        let detail = if filterable { Detail::Lines } else { Detail::Everything };
        Shape {
            code_line: code.unwrap_or(0),
            data_line: data.unwrap_or(0),
            page: self.tlbs.as_ref().map_or(4096, TlbModel::page_bytes),
            detail: self.detail.unwrap_or(detail),
            transfers: self.branch.is_some(),
        }
    }

    fn stamps(&mut self, thread: ThreadId, kind: ReferenceKind) -> Option<Stamps> {
        self.caches.stamps(thread, kind_of(kind))
    }

    fn resume(&mut self, thread: ThreadId, gone: &mut Gone) {
        self.caches.departed(thread, Kind::Fetch, |line| gone.code.push(line));
        self.caches.departed(thread, Kind::Load, |line| gone.data.push(line));
    }

    #[inline(always)]
    fn translate(&mut self, told: &Told, gone: &mut Gone) -> bool {
        let Some(model) = &mut self.tlbs else { return true };
        let kind = kind_of(told.kind);
        let at = (told.addr, told.size);
        let Some(answer) = model.reference_at_once(told.thread, kind, at) else {
            return self.translate_at_length(told, gone);
        };
        gone.page = answer.departed;
        if answer.missed {
            self.charge_walk(told.pc, kind, Missed { misses: 1, walks: 1 });
        }
        true
    }

    #[inline(always)]
    fn reference(&mut self, told: &Told, gone: &mut Gone) -> Pass {
        let kind = kind_of(told.kind);
        let Told { thread, pc, addr, size, now, .. } = *told;
        let reference = Reference { pc, addr, size, kind, now };
        if self.direct.as_ref().is_none_or(|first| first.thread != thread) {
            self.turn_to(thread);
        }
        let first = self.direct.as_mut();
        let direct = match kind {
            Kind::Fetch => first.and_then(|first| first.code.as_mut()),
            _ => first.and_then(|first| first.data.as_mut()),
        };
        let Some(direct) = direct.filter(|direct| direct.is_one_line(addr, size)) else {
            return self.reference_to_hierarchy(thread, &reference, gone);
        };
        let brought = direct.bring(addr, kind, now);
        gone.line = brought.departed;
        if brought.missed {
            self.charge(pc, self.columns.references(kind) + 1, 1);
        }
        if brought.written { Pass::All(brought.slot) } else { Pass::Loads(brought.slot) }
    }

    #[inline(always)]
    fn miss(&mut self, told: &Told) -> Option<(u32, Option<GuestVa>)> {
        let first = self.direct.as_mut().filter(|first| first.thread == told.thread)?;
        let kind = kind_of(told.kind);
        let direct = if kind == Kind::Fetch { &mut first.code } else { &mut first.data };
        let direct = direct.as_mut()?;
        let (known, place) = self.recent[(told.pc.0 >> 1) as usize & (RECENT - 1)];
        let cost = self.costs.get_mut(place + self.columns.references(kind) + 1)?;
        if known != told.pc.0 {
            return None;
        }
        let missed = direct.miss(told.addr, kind, told.now)?;
        *cost += 1;
        Some(missed)
    }

    fn marks(&mut self, thread: ThreadId) -> Option<Stamps> {
        const { assert!(WRITTEN == ichnos_model::WRITTEN) };
        self.caches.marks(thread)
    }

    fn sets(&mut self, thread: ThreadId) -> Option<Sets> {
        let (words, stamps, mask, space) = self.first_data(thread)?.sets();
        Some(Sets { words, stamps, mask, space })
    }

    fn ring(&mut self, thread: ThreadId) -> Option<Ring> {
        const {
            assert!(Ring::NEXT == model::Ring::NEXT);
            assert!(Ring::COUNTS == model::Ring::COUNTS);
            assert!(Ring::COUNTED == model::Ring::COUNTED);
            assert!(Ring::WORDS == model::Ring::WORDS);
        }
        let model = self.tlbs.as_mut().filter(|model| model.page_bytes() == 4096)?;
        let (words, capacity, space, tag) = model.ring(thread)?;
        Some(Ring { words, capacity, space, tag })
    }

    fn walked(&mut self, thread: ThreadId, (kind, pc): (ReferenceKind, GuestVa), count: u64) {
        let kind = kind_of(kind);
        if let Some(model) = &mut self.tlbs {
            model.add_misses(thread, kind, count);
        }
        self.charge_walk(pc, kind, Missed { misses: count, walks: count });
    }

    fn missed(&mut self, thread: ThreadId, (kind, pc): (ReferenceKind, GuestVa), count: u64) {
        let kind = kind_of(kind);
        if let Some(direct) = self.first_data(thread) {
            direct.add_misses(kind, count);
        }
        let place = self.recent_place(pc) + self.columns.references(kind) + 1;
        if let Some(cost) = self.costs.get_mut(place) {
            *cost += count;
        }
    }

    fn evicted(&mut self, thread: ThreadId, evictions: u64, write_backs: u64) {
        if let Some(direct) = self.first_data(thread) {
            direct.add_evictions(evictions, write_backs);
        }
    }

    fn transfer(&mut self, thread: ThreadId, transfer: &Transfer) {
        let Some(model) = &mut self.branch else { return };
        let Transfer { pc, len, kind, taken, target } = *transfer;
        let records = [Record::insn(pc, len, kind), Record::branch(taken, target)];
        let Ok(_) = model.records(&Batch::new(thread, 0, &records));
        if let (Some(right), Some(column)) =
            (model.observer_mut().0.take(), self.columns.transfers(kind))
        {
            self.charge(pc, column, if right { 1 } else { 2 });
        }
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        self.give_back();
        let Ok(_) = self.caches.event(thread, event);
        if let Some(model) = &mut self.tlbs {
            let Ok(_) = model.event(thread, event);
        }
        if let Some(model) = &mut self.branch {
            let Ok(_) = model.event(thread, event);
        }
        if let Event::Map(map) = event
            && !map.path.is_empty()
        {
            let mut map = StoredMap::new(map);
            if let Ok(path) = Path::new(&map.path).canonicalize() {
                map.path = path.to_string_lossy().into_owned();
            }
            self.maps.push(map);
        }
    }
}
