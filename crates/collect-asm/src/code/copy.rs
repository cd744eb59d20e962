//! The second copy of a program's functions, laid out, with everything that leads to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use ichnos_base::GuestVa;
use ichnos_flow::{Level, Options, Plan, plan};
use ichnos_isa_x86::Flow;
use ichnos_trace::Slot;

use super::clone;
use super::convention::{Habit, habits};
use super::copier::{Emitted, emit};
use super::emit::{COPY, Emitter, STUB};
use super::encode::{Exec, Stretch, encode};
use super::function::Function;
use super::image::Image;
use super::plot::{Numbers, PAGE, Plot};
use super::points::{Planned, Points};
use super::reference::{Form, Kinds, Midway};
use super::region::{Group, World, region};
use super::roadmap::Block;
use super::spread;
use super::switch::{EXEC, GATE, RESUME, Switching, Trigger};
use super::sync;
use super::tool::{Calls, Tool};
use super::unwind::{self, Places, Tables};
use super::ways::{LaidWays, Ways};
use crate::Error;

/// Bytes to be written over the program's code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patch {
    pub(crate) at: GuestVa,
    pub(crate) bytes: Vec<u8>,
}

/// How many instructions a program's traced functions have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CodeSize {
    /// As they were built.
    pub original: u64,
    /// In the copy, all told.
    pub copy: u64,
    /// In the copy, where control usually comes along: without what is entered by outside callers,
    /// ways out of loops, and turns of loops after the first.
    pub mainline: u64,
}

impl CodeSize {
    /// With that of other code.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            original: self.original + other.original,
            copy: self.copy + other.copy,
            mainline: self.mainline + other.mainline,
        }
    }
}

/// An image's second copy.
pub(crate) struct Copy {
    /// Where it lies, with all that belongs to it.
    pub(crate) plot: Plot,
    /// Where it begins.
    pub(crate) base: u64,
    /// Its code, and behind it the unwinding tables.
    pub(crate) code: Vec<u8>,
    len: usize,
    tables: usize,
    /// Whether some function has landing pads.
    pub(crate) catches: bool,
    /// Where the program begins, if that is not copied.
    pub(crate) entry: Option<GuestVa>,
    /// The jumps into it.
    pub(crate) patches: Vec<Patch>,
    /// The blocks; number `i`, counted from the plot's first, has identifier `i + 1`.
    pub(crate) blocks: Vec<Block>,
    /// For each instruction of the copy, in order, where it lies, what it belongs to, and which
    /// turn of a loop.
    places: Vec<(u32, GuestVa, u8)>,
    /// Sequences that store a record's first words, by their addresses.
    sites: Vec<Stretch>,
    /// From which offsets on how much of a run of references is done, or nothing.
    midways: Vec<(u32, Option<Midway>)>,
    /// Where the stack pointer is lower than the program's.
    lowered: Vec<Range<u64>>,
    /// What it stores, and the sorts of references, if it stores those.
    pub(crate) form: Form,
    pub(crate) kinds: Kinds,
    /// Calls of synchronising functions.
    pub(crate) calls: Vec<sync::Site>,
    /// How many noted functions could not be copied.
    pub(crate) left_out: usize,
    /// How large it is.
    pub(crate) size: CodeSize,
    /// The library whose functions it calls, if there is one.
    pub(crate) tool: Option<Tool>,
    /// The ways between this copy and the one that records nothing.
    pub(crate) ways: LaidWays,
    /// The copy that records nothing, if threads switch between the two.
    pub(crate) exec: Option<Switched>,
    /// What it was made from, if it may have to be made again.
    pub(crate) source: Option<Source>,
}

/// What a copy was made from.
pub(crate) struct Source {
    /// The image's file.
    pub(crate) file: Vec<u8>,
    /// How far from its own addresses it was loaded.
    pub(crate) bias: u64,
    /// Whether it is a library's: those call the program's tool.
    pub(crate) of_library: bool,
}

/// P_exec, and what leads between it and P_inst.
pub(crate) struct Switched {
    /// Where it begins.
    base: u64,
    /// The code, and behind it the unwinding tables.
    pub(crate) code: Vec<u8>,
    len: usize,
    tables: usize,
    places: Vec<(u32, GuestVa)>,
    /// Entries of the tables that lead to P_inst: from P_exec, from the program's own labels. Index and
    /// entry.
    pub(crate) to_inst: Vec<(u64, u32)>,
    pub(crate) from_labels: Vec<(u64, u32)>,
    /// How many bytes of the image's own the second table is about.
    pub(crate) own: u64,
    /// Whether each block begins with an event.
    pub(crate) events: Vec<bool>,
}

impl Switched {
    /// Where its code lies.
    pub(crate) const fn code_at(&self) -> u64 {
        self.base
    }

    /// Bytes of code, without tables.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Where the unwinding tables lie.
    pub(crate) const fn tables_at(&self) -> u64 {
        self.code_at() + self.tables as u64
    }

    /// Whether an address lies in its code.
    pub(crate) const fn holds(&self, addr: u64) -> bool {
        self.code_at() <= addr && addr < self.code_at() + self.len as u64
    }

    /// The program's instruction to which an address of it belongs.
    pub(crate) fn original(&self, addr: u64) -> Option<GuestVa> {
        let offset = u32::try_from(addr.checked_sub(self.code_at())?).ok()?;
        let i = self.places.partition_point(|(at, _)| *at <= offset).checked_sub(1)?;
        (u64::from(offset) < self.len as u64).then(|| self.places[i].1)
    }
}

impl Copy {
    /// Copies an image's noted functions as they lie in a process.
    pub(crate) fn new(
        (image, bias, plot): (&Image, u64, Plot),
        (options, form): (&Options, Form),
        (switching, tool): (Option<Switching>, Option<Tool>),
    ) -> Result<Self, Error> {
        let decoded = spread::each(&image.notes, |note| Function::decode(image, note, bias));
        let mut functions: Vec<Function> = decoded.into_iter().flatten().collect();
        loop {
            let (world, groups) = World::new(functions);
            let habits = habits(&world, &groups);
            match plans(&world, &groups, &habits, options) {
                Ok(plans) => {
                    let (world, groups) = (&world, &groups[..]);
                    let (habits, plans) = (&habits[..], &plans[..]);
                    let form = form.of(world);
                    let planned = Planned { world, groups, habits, plans, options, form };
                    return lay_out((image, bias, plot), &planned, (switching, tool));
                }
                Err(failed) => {
                    functions = world.functions;
                    let gone: HashSet<usize> = failed.into_iter().collect();
                    let mut i = 0;
                    functions.retain(|_| {
                        i += 1;
                        !gone.contains(&(i - 1))
                    });
                }
            }
        }
    }

    /// A number that is another one, most probably, if it is another copy: of its code, and of the blocks that it tells of.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.base, &self.code, self.blocks.len(), self.calls.len()).hash(&mut hasher);
        for Block { entry, len, turns, code, .. } in &self.blocks {
            (entry.0, len, turns, code).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The address after the copy and its tables.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.code.len() as u64
    }

    /// Bytes of the copy, without tables.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Where the unwinding tables lie.
    pub(crate) const fn tables_at(&self) -> u64 {
        self.base + self.tables as u64
    }

    /// Where the page for calls of a tool lies.
    pub(crate) const fn tool_page(&self) -> u64 {
        self.plot.tool_page()
    }

    /// What numbers come behind its own.
    pub(crate) fn next(&self) -> Numbers {
        let Numbers { block, kind, call } = self.plot.first;
        let more = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Numbers {
            block: block.saturating_add(more(self.blocks.len())),
            kind: kind.saturating_add(more(self.kinds.list.len())),
            call: call.saturating_add(more(self.calls.len())),
        }
    }

    /// Where its three parts end: P_inst, ways, P_exec.
    pub(crate) fn ends(&self) -> [u64; 3] {
        let exec = self.exec.as_ref().map_or(0, |e| e.code_at() + e.code.len() as u64);
        [self.end(), self.ways.at + self.ways.code.len() as u64, exec]
    }

    /// What of a process's memory it takes.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = [self.base, self.ways.at, self.plot.exec];
        let parts = starts.into_iter().zip(self.ends()).map(|(start, end)| start..end);
        parts.filter(|part| !part.is_empty())
    }

    /// Whether an address lies in the copy.
    pub(crate) fn holds(&self, addr: u64) -> bool {
        self.base <= addr && addr < self.base + self.len as u64 || self.ways.holds(addr)
    }

    /// The program's instruction to which an address of the copy belongs, and how many turns of
    /// its loop were finished there.
    pub(crate) fn original(&self, addr: u64) -> Option<(GuestVa, u8)> {
        let offset = u32::try_from(addr.checked_sub(self.base)?).ok()?;
        let i = self.places.partition_point(|(at, _, _)| *at <= offset).checked_sub(1)?;
        self.holds(addr).then(|| (self.places[i].1, self.places[i].2))
    }

    /// Where a sequence begins again that was left at an address, if it is one.
    pub(crate) fn restart(&self, addr: u64) -> Option<u64> {
        self.site(addr).filter(|s| addr < s.to).map(|s| s.from)
    }

    /// The same for a thread that did not fault there; nothing if it cannot begin again without harm.
    pub(crate) fn begun(&self, addr: u64) -> Option<u64> {
        let can = |s: &&Stretch| (s.from..=s.until).contains(&addr) && addr < s.to;
        self.site(addr).filter(can).map(|s| s.from)
    }

    /// Whether at an address the record of the block that begins there is stored.
    pub(crate) fn is_stored(&self, addr: u64) -> bool {
        self.site(addr).is_none_or(|s| addr >= s.stored)
    }

    /// How much of a run of references is done at an address, and not told yet.
    pub(crate) fn midway(&self, addr: u64) -> Option<Midway> {
        let offset = u32::try_from(addr.checked_sub(self.base)?).ok()?;
        let i = self.midways.partition_point(|(at, _)| *at <= offset).checked_sub(1)?;
        self.midways[i].1
    }

    /// Whether the stack pointer is lower at an address than the program's.
    pub(crate) fn is_lowered(&self, addr: u64) -> bool {
        self.lowered.iter().any(|range| range.contains(&addr))
    }

    fn site(&self, addr: u64) -> Option<&Stretch> {
        let i = self.sites.partition_point(|s| s.begin <= addr).checked_sub(1)?;
        self.sites.get(i)
    }
}

/// Where a program's events are, in its own addresses: first instructions of functions, and of loops if those count. Loops
/// depend on the planner's level.
///
/// # Errors
///
/// If the file cannot be read as an executable, or its code not be copied.
pub fn event_places(
    path: &std::path::Path,
    events: crate::Events,
    level: Level,
) -> Result<Vec<GuestVa>, Error> {
    let Some(image) = Image::open(path)? else { return Ok(Vec::new()) };
    let how = Switching { trigger: Trigger::Shared, events, of: Vec::new(), together: false };
    // Copies lie near the program, wherever that is; so it must lie somewhere.
    let bias = if image.movable { 1 << 40 } else { 0 };
    let plot = Plot::of_program(&image, bias);
    let copy = Copy::new((&image, bias, plot), (&level.into(), Form::Blocks), (Some(how), None))?;
    let is_event = copy.exec.iter().flat_map(|e| &e.events);
    let blocks = copy.blocks.iter().zip(is_event).filter(|(_, event)| **event);
    Ok(blocks.map(|(block, _)| GuestVa(block.entry.0.wrapping_sub(bias))).collect())
}

/// Plans all groups; if some cannot be planned, the numbers of their functions.
fn plans(
    world: &World,
    groups: &[Group],
    habits: &[Habit],
    options: &Options,
) -> Result<Vec<Plan>, Vec<usize>> {
    let made = spread::each(groups, |group| plan(&region(world, habits, group), options, Slot(0)));
    let mut plans = Vec::with_capacity(groups.len());
    let mut failed = Vec::new();
    for (group, plan) in groups.iter().zip(made) {
        match plan {
            Ok(plan) => plans.push(plan),
            Err(_) => failed.extend(&group.0),
        }
    }
    if failed.is_empty() { Ok(plans) } else { Err(failed) }
}

fn lay_out(
    (image, bias, plot): (&Image, u64, Plot),
    planned: &Planned<'_>,
    (switching, tool): (Option<Switching>, Option<Tool>),
) -> Result<Copy, Error> {
    let world = planned.world;
    let plot = match &switching {
        Some(_) => plot.near(image, bias, || most(image, world)),
        None => plot,
    };
    let base = plot.inst;
    let mut points = switching.map(|how| Points::new(how, planned, plot));
    let mut ways = points.as_mut().map(Ways::new).transpose()?;
    let calls = tool.as_ref().map(|tool| Calls { tool, page: plot.tool_page() });
    let between = (&plot, points.as_ref(), ways.as_mut());
    let Emitted { emitter, blocks, kinds, calls: told } =
        emit(image, bias, planned, between, calls)?;
    let cloned = |apart| points.as_ref().map(|points| clone::clone(world, points, apart));
    let mut other = cloned(0);
    let encoded = match encode(&plot, &emitter, other.as_ref()) {
        Err(_) if other.is_some() => {
            other = cloned(clone::OUT_OF_REACH);
            encode(&plot, &emitter, other.as_ref())?
        }
        result => result?,
    };
    let labels = &encoded.labels;
    let ways =
        ways.map(|ways| ways.lay(labels, &identifiers(&blocks, plot.first.block))).transpose()?;
    let ways = ways.unwrap_or_default();
    let known = &encoded.offsets;
    let places = known.iter().zip(&emitter.pcs).map(|(at, (pc, turn))| (*at, *pc, *turn));
    let places = places.chain(ways.places.iter().copied()).collect();
    let address = |i: usize| base + known.get(i).map_or(0, |o| u64::from(*o));
    let sites = emitter.sites.iter().map(|s| Stretch::new(s, address));
    let sites = sites.chain(ways.sites.iter().copied()).collect();
    let midway = |(i, midway): &(usize, _)| Some((*known.get(*i)?, *midway));
    let midways = emitter.midways.iter().filter_map(midway).collect();
    let lowered = emitter.lowered.iter().map(|(from, to)| address(*from)..address(*to));
    let lowered = lowered.chain(ways.lowered.iter().cloned()).collect();
    let ends = emitter.ends.iter().map(|(f, i)| (*f, address(*i))).collect();
    let mut code = encoded.code;
    let len = code.len();
    let described = Described { image, bias, world };
    let tails = address(emitter.tails_from)..base + code.len() as u64;
    let tables = described.append(&mut code, base, (COPY, tails), (labels, &ends))?;
    let exec = match (points, other) {
        (Some(points), Some((list, _))) => {
            let events = blocks.iter().map(|b: &Block| points.is_event(b.entry)).collect();
            Some(described.switched(&points, &list, encoded.exec, (labels, events))?)
        }
        _ => None,
    };
    let exec_end = exec.as_ref().map_or(0, |e| e.code_at() + e.code.len() as u64);
    plot.holds([base + code.len() as u64, exec_end])?;
    let (outer, inner) = if exec.is_some() { (GATE, EXEC) } else { (STUB, COPY) };
    let name = |pc: GuestVa, start: bool| {
        let gate = labels.get(&(pc.0 | outer)).filter(|_| start);
        gate.or_else(|| labels.get(&(pc.0 | inner))).copied()
    };
    let patches = super::patch::patches(image, bias, world, &name);
    let entry = GuestVa(image.entry.wrapping_add(bias));
    Ok(Copy {
        plot,
        base,
        code,
        len,
        tables,
        catches: world.functions.iter().any(|f| !f.pads.is_empty()),
        entry: world.function_at(entry).is_none().then_some(entry),
        patches,
        blocks,
        places,
        sites,
        midways,
        lowered,
        form: planned.form,
        kinds,
        calls: told,
        left_out: image.notes.len() - world.functions.len(),
        size: CodeSize {
            original: world.functions.iter().map(|f| f.insts.len() as u64).sum(),
            copy: (emitter.instrs.len() + ways.instrs) as u64,
            mainline: emitter.mainline as u64,
        },
        ways,
        tool,
        exec,
        source: None,
    })
}

/// Which identifiers blocks have, by their first instruction.
fn identifiers(blocks: &[Block], first: u32) -> HashMap<GuestVa, u32> {
    let number = |(i, block): (usize, &Block)| (block.entry, first + i as u32 + 1);
    blocks.iter().enumerate().map(number).collect()
}

/// What a copy's unwinding tables are made from.
struct Described<'a> {
    image: &'a Image,
    bias: u64,
    world: &'a World,
}

impl Described<'_> {
    /// Appends unwinding tables to a copy whose instructions have names of this sort; answers where they begin.
    fn append(
        &self,
        code: &mut Vec<u8>,
        base: u64,
        (sort, tails): (u64, Range<u64>),
        (labels, ends): (&HashMap<u64, u64>, &HashMap<GuestVa, u64>),
    ) -> Result<usize, Error> {
        code.resize(code.len().next_multiple_of(16), 0xcc);
        let tables = code.len();
        if let Some(frames) = &self.image.frames {
            let own = Tables { frames, areas: self.image.areas.as_ref(), bias: self.bias };
            let label = |pc: GuestVa| labels.get(&(sort | pc.0)).copied();
            let places = Places { labels: &label, ends, base, tails };
            let made = unwind::tables(&own, self.world, &places, base + tables as u64);
            code.extend(made.map_err(|why| Error::Layout { base, why })?);
        }
        Ok(tables)
    }

    /// P_exec from its list.
    fn switched(
        &self,
        points: &Points,
        list: &Emitter,
        laid: Exec,
        (labels, events): (&HashMap<u64, u64>, Vec<bool>),
    ) -> Result<Switched, Error> {
        let at = points.plot.exec;
        let Exec { mut code, offsets } = laid;
        let address = |i: usize| at + offsets.get(i).map_or(0, |o| u64::from(*o));
        let ends = list.ends.iter().map(|(f, i)| (*f, address(*i))).collect();
        let len = code.len();
        let tables = self.append(&mut code, at, (EXEC, at..at), (labels, &ends))?;
        let far = |to: u64| u32::try_from(to - points.inst).unwrap_or(0);
        let mut to_inst = Vec::new();
        for pc in &points.returns {
            if let Some(from) = labels.get(&(EXEC | pc.0)) {
                to_inst.push((from - points.exec, far(points.way(RESUME | pc.0))));
            }
        }
        let mut from_labels = Vec::new();
        for function in &self.world.functions {
            for entry in function.entries.iter().filter(|e| **e != function.start) {
                if let Some(to) = labels.get(&(COPY | entry.0)) {
                    from_labels.push((entry.0 - points.own.0, far(*to)));
                }
            }
        }
        let places = offsets.iter().zip(&list.pcs).map(|(at, (pc, _))| (*at, *pc)).collect();
        to_inst.sort_unstable();
        from_labels.sort_unstable();
        let (base, own) = (at, points.own.1);
        Ok(Switched { base, own, code, len, tables, places, to_inst, from_labels, events })
    }
}

/// How many bytes P_exec and its tables have at the most.
fn most(image: &Image, world: &World) -> u64 {
    const INSTRUCTION: u64 = 15;
    // With the checks of a call that comes back and of an event.
    const TRANSFER: u64 = 64;
    // With what aligns it and keeps it apart, and its gate.
    const FUNCTION: u64 = 192 + clone::OUT_OF_REACH;
    let insts = world.functions.iter().flat_map(|f| &f.insts);
    let bytes = insts.map(|i| if i.flow() == Flow::Next { INSTRUCTION } else { TRANSFER });
    let pads = world.functions.iter().map(|f| TRANSFER * f.pads.len() as u64);
    let tables = [&image.frames, &image.areas].into_iter().flatten().map(|s| s.bytes.len() as u64);
    let code = bytes.chain(pads).sum::<u64>();
    code + FUNCTION * world.functions.len() as u64 + 8 * tables.sum::<u64>() + 2 * PAGE
}
