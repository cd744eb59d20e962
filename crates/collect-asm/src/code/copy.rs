//! The second copy of a program's functions, laid out, with everything that leads to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use iced_x86::{BlockEncoder, BlockEncoderOptions, InstructionBlock};
use ichnos_base::GuestVa;
use ichnos_flow::{Options, Piece, Plan, Set, plan};
use ichnos_isa_x86::{Flow, Inst, Reg};
use ichnos_trace::{Register, Slot};

use super::convention::{Habit, habits};
use super::emit::{COPY, Emitter, Point, STUB, TAG, width};
use super::function::Function;
use super::image::Image;
use super::region::{Group, World, region};
use super::roadmap::Block;
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
}

impl Copy {
    /// Copies an image's noted functions as they lie in a process.
    pub(crate) fn new(image: &Image, bias: u64, options: &Options) -> Result<Self, Error> {
        let decode = |note| Function::decode(image, note, bias);
        let mut functions: Vec<Function> = image.notes.iter().filter_map(decode).collect();
        loop {
            let (world, groups) = World::new(functions);
            let habits = habits(&world, &groups);
            match plans(&world, &groups, &habits, options) {
                Ok(plans) => return lay_out(image, bias, &world, &groups, (&plans, options)),
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
    world: &World,
    groups: &[Group],
    (plans, options): (&[Plan], &Options),
) -> Result<Copy, Error> {
    let base = place(image, bias);
    let mut copier = Copier {
        image,
        bias,
        base,
        world,
        options,
        emitter: Emitter::default(),
        blocks: Vec::new(),
    };
    for (group, plan) in groups.iter().zip(plans) {
        copier.group(group, plan);
    }
    let Copier { emitter, blocks, .. } = copier;
    let block = InstructionBlock::new(&emitter.instrs, base);
    let offsets = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = BlockEncoder::encode(64, block, offsets)
        .map_err(|error| Error::Layout { base, why: error.to_string() })?;
    let mut known = offsets_of(&result.new_instruction_offsets);
    known.push(u32::try_from(result.code_buffer.len()).unwrap_or(u32::MAX));
    let labels: HashMap<u64, u64> = emitter
        .instrs
        .iter()
        .zip(&known)
        .filter(|(instr, _)| instr.ip() & (COPY | STUB) != 0)
        .map(|(instr, offset)| (instr.ip(), base + u64::from(*offset)))
        .collect();
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
    let mut code = result.code_buffer;
    let len = code.len();
    code.resize(len.next_multiple_of(16), 0xcc);
    let tables = code.len();
    if let Some(frames) = &image.frames {
        let own = Tables { frames, areas: image.areas.as_ref(), bias };
        let label = |pc: GuestVa| labels.get(&(COPY | pc.0)).copied();
        let places = Places { labels: &label, ends: &ends, base };
        let at = base + tables as u64;
        let made = unwind::tables(&own, world, &places, at);
        code.extend(made.map_err(|why| Error::Layout { base, why })?);
    }
    let catches = world.functions.iter().any(|f| !f.pads.is_empty());
    let patches = super::patch::patches(image, bias, world, &labels);
    let left_out = image.notes.len() - world.functions.len();
    let entry = GuestVa(image.entry.wrapping_add(bias));
    let entry = world.function_at(entry).is_none().then_some(entry);
    let size = CodeSize {
        original: world.functions.iter().map(|f| f.insts.len() as u64).sum(),
        copy: emitter.instrs.len() as u64,
        mainline: emitter.mainline as u64,
    };
    Ok(Copy {
        base,
        code,
        len,
        tables,
        catches,
        entry,
        patches,
        blocks,
        places,
        sites,
        left_out,
        size,
    })
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

/// Where the copy of an image goes: below it, if there is room, else above.
fn place(image: &Image, bias: u64) -> u64 {
    let (low, high) = (image.span.0.wrapping_add(bias), image.span.1.wrapping_add(bias));
    match low.checked_sub(DISTANCE) {
        Some(below) if below > DISTANCE => below / PAGE * PAGE,
        _ => (high + DISTANCE).next_multiple_of(PAGE),
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
            self.emitter.stub(function.start, function.compiled.then_some(self.base));
        }
        let ends: HashMap<GuestVa, GuestVa> =
            group.functions(world).map(|f| (f.end, f.start)).collect();
        for piece in &plan.pieces {
            let Some(these) = insts.get(piece.insns.clone()) else { continue };
            let last = these.last().map(|inst| inst.next_pc());
            let inside = |to| self.copied(to) && (Some(to) != last || !ends.contains_key(&to));
            let turns = turns(piece, these, self.options, inside);
            let len: u64 = these.iter().map(|i| u64::from(i.length())).sum();
            let from = piece.entry.0.wrapping_sub(self.bias);
            let code = self.image.bytes(from, len).unwrap_or_default();
            self.blocks.push(Block::new(piece, these, code.to_vec(), turns));
            for turn in 0..turns {
                self.piece(piece, these, (turn, turns), &ends);
            }
            if self.lies_behind_jump() {
                self.emitter.lay_ways();
            }
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
        let payload = self.blocks.last().and_then(|b| b.payload.as_ref());
        let used = used(insts);
        let emitter = &mut self.emitter;
        let mut saves = piece.saves.iter().peekable();
        let mut offset = TAG;
        for (i, inst) in piece.insns.clone().zip(insts) {
            emitter.begin(inst.pc(), turn);
            while let Some(save) = saves.next_if(|s| s.at == i) {
                let point = Point { piece, save, identifier, inst, payload, turn, turns, used };
                emitter.save(&point, offset);
                offset += save.stores.iter().map(|s| width(s.width)).sum::<usize>();
            }
            match inst.flow() {
                _ if turns > 1 => emitter.turn(inst, (piece.entry, turn, turns - 1)),
                Flow::Call(_) => emitter.own(inst, called),
                _ => emitter.own(inst, copied),
            }
            if let Some(payload) = payload {
                emitter.after(payload);
            }
            let next = inst.next_pc();
            let goes_on = inst.flow().falls_through()
                || matches!(inst.flow(), Flow::Call(_) | Flow::CallIndirect);
            if goes_on && ends.contains_key(&next) {
                emitter.jump(if copied(next) { COPY | next.0 } else { next.0 });
            }
            if let Some(function) = ends.get(&next).filter(|_| turn + 1 == turns) {
                emitter.lay_ways();
                emitter.ends.push((*function, emitter.instrs.len()));
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
