//! The second copy of a program's functions, laid out, with everything that leads to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use iced_x86::{BlockEncoder, BlockEncoderOptions, InstructionBlock};
use ichnos_base::GuestVa;
use ichnos_flow::{Options, Piece, Plan, Set, plan};
use ichnos_isa_x86::{Flow, Inst, Reg};
use ichnos_trace::{Register, Slot};

use super::clone::{self, Laid};
use super::convention::{Habit, habits};
use super::emit::{COPY, Emitter, Point, STUB, TAG, width};
use super::function::Function;
use super::image::Image;
use super::region::{Group, World, region};
use super::roadmap::Block;
use super::switch::{EXEC, Flags, GATE, Planned, Points, RESUME, ROOM, Switching};
use super::turns::turns;
use super::unwind::{self, Places, Tables};
use crate::Error;

/// Between a program and its copy, so that neither its heap nor its libraries come in the way.
const DISTANCE: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// Bytes to be written over the program's code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patch {
    pub(crate) at: GuestVa,
    pub(crate) bytes: Vec<u8>,
}

/// A [`Site`](super::emit::Site), laid out.
struct Stretch {
    begin: u64,
    from: u64,
    to: u64,
    stored: u64,
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

/// A program's second copy.
pub(crate) struct Copy {
    /// Where it lies.
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
    /// The blocks; number `i` has identifier `i + 1`.
    pub(crate) blocks: Vec<Block>,
    /// For each instruction of the copy, in order, where it lies, what it belongs to, and which
    /// turn of a loop.
    places: Vec<(u32, GuestVa, u8)>,
    /// Sequences that store a record's first words, by their addresses.
    sites: Vec<Stretch>,
    /// How many noted functions could not be copied.
    pub(crate) left_out: usize,
    /// How large it is.
    pub(crate) size: CodeSize,
    /// The copy that records nothing, if threads switch between the two.
    pub(crate) exec: Option<Switched>,
}

/// P_exec, and what leads between it and P_inst.
pub(crate) struct Switched {
    /// Where it lies: a page with the shared word, then the code.
    pub(crate) base: u64,
    /// The code, and behind it the unwinding tables.
    pub(crate) code: Vec<u8>,
    len: usize,
    tables: usize,
    places: Vec<(u32, GuestVa)>,
    /// Entries of the tables that lead to P_inst: from P_exec, from the program's own labels. Index and
    /// entry.
    pub(crate) to_inst: Vec<(u64, u32)>,
    pub(crate) from_labels: Vec<(u64, u32)>,
    /// Whether each block begins with an event.
    pub(crate) events: Vec<bool>,
}

impl Switched {
    /// Where its code lies.
    pub(crate) const fn code_at(&self) -> u64 {
        self.base + PAGE
    }

    /// Bytes of code, without tables.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Where the unwinding tables lie.
    pub(crate) const fn tables_at(&self) -> u64 {
        self.code_at() + self.tables as u64
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
        image: &Image,
        bias: u64,
        options: &Options,
        switching: Option<Switching>,
    ) -> Result<Self, Error> {
        let decode = |note| Function::decode(image, note, bias);
        let mut functions: Vec<Function> = image.notes.iter().filter_map(decode).collect();
        loop {
            let (world, groups) = World::new(functions);
            let habits = habits(&world, &groups);
            match plans(&world, &groups, &habits, options) {
                Ok(plans) => {
                    let (world, groups) = (&world, &groups[..]);
                    let (habits, plans) = (&habits[..], &plans[..]);
                    let planned = Planned { world, groups, habits, plans, options };
                    return lay_out(image, bias, &planned, switching);
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

    /// Whether an address lies in the copy.
    pub(crate) fn holds(&self, addr: u64) -> bool {
        self.base <= addr && addr < self.base + self.len as u64
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

    /// Whether at an address the record of the block that begins there is stored.
    pub(crate) fn is_stored(&self, addr: u64) -> bool {
        self.site(addr).is_none_or(|s| addr >= s.stored)
    }

    fn site(&self, addr: u64) -> Option<&Stretch> {
        let i = self.sites.partition_point(|s| s.begin <= addr).checked_sub(1)?;
        self.sites.get(i)
    }
}

/// Plans all groups; if some cannot be planned, the numbers of their functions.
fn plans(
    world: &World,
    groups: &[Group],
    habits: &[Habit],
    options: &Options,
) -> Result<Vec<Plan>, Vec<usize>> {
    let mut plans = Vec::with_capacity(groups.len());
    let mut failed = Vec::new();
    for group in groups {
        match plan(&region(world, habits, group), options, Slot(0)) {
            Ok(plan) => plans.push(plan),
            Err(_) => failed.extend(&group.0),
        }
    }
    if failed.is_empty() { Ok(plans) } else { Err(failed) }
}

fn lay_out(
    image: &Image,
    bias: u64,
    planned: &Planned<'_>,
    switching: Option<Switching>,
) -> Result<Copy, Error> {
    let world = planned.world;
    let base = place(image, bias);
    let points = switching.map(|how| {
        let places = (base, base + ROOM);
        Points::new(how, planned, places)
    });
    let (emitter, blocks) = emit(image, bias, planned, (base, points.as_ref()));
    let other = points.as_ref().map(|points| clone::clone(world, points));
    let encoded = encode(base, &emitter, other.as_ref())?;
    let labels = &encoded.labels;
    let known = &encoded.offsets;
    let places = known.iter().zip(&emitter.pcs).map(|(at, (pc, turn))| (*at, *pc, *turn)).collect();
    let address = |i: usize| base + known.get(i).map_or(0, |o| u64::from(*o));
    let sites = emitter
        .sites
        .iter()
        .map(|s| Stretch {
            begin: address(s.begin),
            from: address(s.from),
            to: address(s.to),
            stored: address(s.stored),
        })
        .collect();
    let ends = emitter.ends.iter().map(|(f, i)| (*f, address(*i))).collect();
    let mut code = encoded.code;
    let len = code.len();
    let described = Described { image, bias, world };
    let tables = described.append(&mut code, base, COPY, (labels, &ends))?;
    let exec = match (points, other) {
        (Some(points), Some((list, _))) => {
            let events = blocks.iter().map(|b: &Block| points.is_event(b.entry)).collect();
            Some(described.switched(&points, &list, encoded.exec, (labels, events))?)
        }
        _ => None,
    };
    let (outer, inner) = if exec.is_some() { (GATE, EXEC) } else { (STUB, COPY) };
    let name = |pc: GuestVa, start: bool| labels.get(&(pc.0 | if start { outer } else { inner }));
    let patches = super::patch::patches(image, bias, world, &|pc, start| name(pc, start).copied());
    let entry = GuestVa(image.entry.wrapping_add(bias));
    Ok(Copy {
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
        left_out: image.notes.len() - world.functions.len(),
        size: CodeSize {
            original: world.functions.iter().map(|f| f.insts.len() as u64).sum(),
            copy: emitter.instrs.len() as u64,
            mainline: emitter.mainline as u64,
        },
        exec,
    })
}

/// The copy with save points as a list, and its blocks.
fn emit(
    image: &Image,
    bias: u64,
    planned: &Planned<'_>,
    (base, points): (u64, Option<&Points>),
) -> (Emitter, Vec<Block>) {
    let (world, options) = (planned.world, planned.options);
    let starts = points.map(|p| p.starts.clone()).unwrap_or_default();
    let emitter = Emitter { starts, ..Emitter::default() };
    let blocks = Vec::new();
    let mut copier = Copier { image, bias, base, world, options, points, emitter, blocks };
    for (group, plan) in planned.groups.iter().zip(planned.plans) {
        copier.group(group, plan);
    }
    if let Some(points) = points {
        let number = |(i, block): (usize, &Block)| (block.entry, i as u32 + 1);
        let ids = copier.blocks.iter().enumerate().map(number).collect();
        copier.emitter.ways_between(points, &ids);
    }
    (copier.emitter, copier.blocks)
}

/// Both copies in machine code.
struct Encoded {
    code: Vec<u8>,
    /// Offsets of the first copy's instructions, and its length.
    offsets: Vec<u32>,
    /// P_exec's code, offsets counted from its first byte.
    exec: Exec,
    /// Where names lie.
    labels: HashMap<u64, u64>,
}

#[derive(Default)]
struct Exec {
    code: Vec<u8>,
    offsets: Vec<u32>,
}

fn encode(
    base: u64,
    emitter: &Emitter,
    other: Option<&(Emitter, Vec<Laid>)>,
) -> Result<Encoded, Error> {
    let failed = |why: String| Error::Layout { base, why };
    let mut blocks = vec![InstructionBlock::new(&emitter.instrs, base)];
    if let Some((list, laid)) = other {
        blocks.extend(
            laid.iter().map(|l| InstructionBlock::new(&list.instrs[l.instrs.clone()], l.at)),
        );
    }
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let results = BlockEncoder::encode_slice(64, &blocks, options);
    let mut results = results.map_err(|e| failed(e.to_string()))?.into_iter();
    let first = results.next().ok_or_else(|| failed("nothing was encoded".into()))?;
    let mut offsets = offsets_of(&first.new_instruction_offsets);
    offsets.push(u32::try_from(first.code_buffer.len()).unwrap_or(u32::MAX));
    let named = |label: u64| label >= ROOM << 20;
    let mut labels: HashMap<u64, u64> = HashMap::new();
    let mut note = |ip: u64, at: u64| {
        if named(ip) {
            labels.insert(ip, at);
        }
    };
    for (instr, offset) in emitter.instrs.iter().zip(&offsets) {
        note(instr.ip(), base + u64::from(*offset));
    }
    let mut exec = Exec::default();
    if let Some((list, laid)) = other {
        let start = base + ROOM + PAGE;
        for (part, result) in laid.iter().zip(results) {
            let at = part.at - start;
            let from = usize::try_from(at).unwrap_or(usize::MAX);
            if from < exec.code.len() {
                return Err(failed(format!(
                    "a function's copy at {:#x} overlaps another",
                    part.at
                )));
            }
            exec.code.resize(from, 0xcc);
            exec.code.extend(&result.code_buffer);
            let own = offsets_of(&result.new_instruction_offsets);
            for (instr, offset) in list.instrs[part.instrs.clone()].iter().zip(own) {
                note(instr.ip(), part.at + u64::from(offset));
                exec.offsets.push(u32::try_from(at + u64::from(offset)).unwrap_or(u32::MAX));
            }
        }
        exec.offsets.push(u32::try_from(exec.code.len()).unwrap_or(u32::MAX));
        if exec.code.len() as u64 >= ROOM - PAGE || first.code_buffer.len() as u64 >= ROOM {
            return Err(failed("it is larger than 256 MiB".into()));
        }
    }
    Ok(Encoded { code: first.code_buffer, offsets, exec, labels })
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
        sort: u64,
        (labels, ends): (&HashMap<u64, u64>, &HashMap<GuestVa, u64>),
    ) -> Result<usize, Error> {
        code.resize(code.len().next_multiple_of(16), 0xcc);
        let tables = code.len();
        if let Some(frames) = &self.image.frames {
            let own = Tables { frames, areas: self.image.areas.as_ref(), bias: self.bias };
            let label = |pc: GuestVa| labels.get(&(sort | pc.0)).copied();
            let places = Places { labels: &label, ends, base };
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
        let at = points.exec + PAGE;
        let Exec { mut code, offsets } = laid;
        let address = |i: usize| at + offsets.get(i).map_or(0, |o| u64::from(*o));
        let ends = list.ends.iter().map(|(f, i)| (*f, address(*i))).collect();
        let len = code.len();
        let tables = self.append(&mut code, at, EXEC, (labels, &ends))?;
        let far = |to: u64| u32::try_from(to - points.inst).unwrap_or(0);
        let mut to_inst = Vec::new();
        for pc in &points.returns {
            let (from, to) = (labels.get(&(EXEC | pc.0)), labels.get(&(RESUME | pc.0)));
            if let (Some(from), Some(to)) = (from, to) {
                to_inst.push((from - points.exec, far(*to)));
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
        let base = points.exec;
        Ok(Switched { base, code, len, tables, places, to_inst, from_labels, events })
    }
}

/// Offsets of all instructions; one that was rewritten lies where the one before it ends, at
/// the latest.
fn offsets_of(offsets: &[u32]) -> Vec<u32> {
    let mut known = offsets.to_vec();
    let mut next = u32::MAX;
    for offset in known.iter_mut().rev() {
        if *offset == u32::MAX {
            *offset = next;
        }
        next = *offset;
    }
    known
}

/// Where the copies of an image go: below it, if there is room, else above.
fn place(image: &Image, bias: u64) -> u64 {
    let (low, high) = (image.span.0.wrapping_add(bias), image.span.1.wrapping_add(bias));
    match low.checked_sub(DISTANCE) {
        Some(below) if below > DISTANCE => below / ROOM * ROOM,
        _ => (high + DISTANCE).next_multiple_of(ROOM),
    }
}

/// Copies groups of functions one after the other.
struct Copier<'a> {
    image: &'a Image,
    bias: u64,
    /// Where the copy will lie.
    base: u64,
    world: &'a World,
    options: &'a Options,
    /// Where threads can switch, if they can.
    points: Option<&'a Points>,
    emitter: Emitter,
    blocks: Vec<Block>,
}

impl Copier<'_> {
    fn copied(&self, to: GuestVa) -> bool {
        self.world.group_at(to).is_some()
    }

    fn group(&mut self, group: &Group, plan: &Plan) {
        let world = self.world;
        let insts: Vec<&Inst> = group.functions(world).flat_map(|f| &f.insts).collect();
        for function in group.functions(world) {
            if let Some(points) = self.points {
                self.emitter.entrance(points, function.start);
                self.emitter.outer_event(points, function.start);
            }
            self.emitter.stub(function.start, function.compiled.then_some(self.base));
        }
        let ends: HashMap<GuestVa, GuestVa> =
            group.functions(world).map(|f| (f.end, f.start)).collect();
        for piece in &plan.pieces {
            let Some(these) = insts.get(piece.insns.clone()) else { continue };
            let last = these.last().map(|inst| inst.next_pc());
            let inside = |to| self.copied(to) && (Some(to) != last || !ends.contains_key(&to));
            let counted = self.points.is_some_and(|p| p.is_event(piece.entry));
            let turns = if counted { 1 } else { turns(piece, these, self.options, inside) };
            let len: u64 = these.iter().map(|i| u64::from(i.length())).sum();
            let from = piece.entry.0.wrapping_sub(self.bias);
            let code = self.image.bytes(from, len).unwrap_or_default();
            self.blocks.push(Block::new(piece, these, code.to_vec(), turns));
            for turn in 0..turns {
                self.piece(piece, these, (turn, turns), &ends);
            }
            if self.lies_behind_jump() {
                self.lay_ways();
            }
        }
    }

    /// Lays out what control seldom comes to.
    fn lay_ways(&mut self) {
        self.emitter.lay_ways();
        if let Some(points) = self.points {
            self.emitter.lay_returns(points);
        }
    }

    /// Whether control does not come to what is laid out next from what was laid out last.
    fn lies_behind_jump(&self) -> bool {
        let last = self.emitter.instrs.last();
        last.is_some_and(|i| i.flow_control() == iced_x86::FlowControl::UnconditionalBranch)
    }

    /// One turn of a piece.
    fn piece(
        &mut self,
        piece: &Piece,
        insts: &[&Inst],
        (turn, turns): (usize, usize),
        ends: &HashMap<GuestVa, GuestVa>,
    ) {
        let world = self.world;
        let called = |to: GuestVa| world.group_of_start(to).is_some();
        let copied = |to: GuestVa| world.group_at(to).is_some();
        let identifier = self.blocks.len() as u32;
        let used = used(insts);
        let flags = match world.function_at(piece.entry) {
            Some(f) if world.functions[f].compiled => Flags::Free,
            _ => Flags::Kept,
        };
        let mut saves = piece.saves.iter().peekable();
        let mut offset = TAG;
        for (i, inst) in piece.insns.clone().zip(insts) {
            let emitter = &mut self.emitter;
            emitter.begin(inst.pc(), turn);
            if let Some(points) = self.points.filter(|_| i == piece.insns.start && turn == 0) {
                emitter.checks(points, inst.pc(), flags);
            }
            while let Some(save) = saves.next_if(|s| s.at == i) {
                let payload = self.blocks.last().and_then(|b| b.payload.as_ref());
                let point = Point { piece, save, identifier, inst, payload, turn, turns, used };
                emitter.save(&point, offset);
                offset += save.stores.iter().map(|s| width(s.width)).sum::<usize>();
            }
            match (inst.flow(), self.points) {
                _ if turns > 1 => emitter.turn(inst, (piece.entry, turn, turns - 1)),
                (Flow::Call(_), _) => emitter.own(inst, called),
                (Flow::Return, Some(points)) => emitter.comes_back(points, inst, flags),
                (Flow::JumpIndirect, Some(points)) => emitter.computed(points, inst),
                _ => emitter.own(inst, copied),
            }
            if let Some(payload) = self.blocks.last().and_then(|b| b.payload.as_ref()) {
                emitter.after(payload);
            }
            let next = inst.next_pc();
            let goes_on = inst.flow().falls_through()
                || matches!(inst.flow(), Flow::Call(_) | Flow::CallIndirect);
            if goes_on && ends.contains_key(&next) {
                let to = if copied(next) { emitter.to(next) } else { next.0 };
                emitter.jump(to);
            }
            if let Some(function) = ends.get(&next).filter(|_| turn + 1 == turns) {
                self.lay_ways();
                self.emitter.ends.push((*function, self.emitter.instrs.len()));
            }
        }
    }
}

/// Registers that instructions use.
fn used(insts: &[&Inst]) -> Set {
    let of = |inst: &&Inst| {
        let effects = inst.effects();
        let all = effects.inputs.iter().chain(effects.written.iter());
        all.filter_map(Reg::as_gpr).map(|r| Register(r.number())).collect::<Set>()
    };
    insts.iter().map(of).fold(Set::EMPTY, Set::or)
}
