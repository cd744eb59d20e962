//! The second copy of a program's functions, laid out, with everything that leads to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use iced_x86::{BlockEncoder, BlockEncoderOptions, InstructionBlock};
use ichnos_base::GuestVa;
use ichnos_flow::{Options, Plan, plan};
use ichnos_isa_x86::{Flow, Inst};
use ichnos_trace::Slot;

use super::convention::{Habit, habits};
use super::emit::{COPY, Emitter, Point, STUB, TAG};
use super::function::Function;
use super::image::Image;
use super::region::{Group, World, region};
use super::roadmap::Block;
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
    /// For each instruction of the copy, in order, where it lies and what it belongs to.
    places: Vec<(u32, GuestVa)>,
    /// Sequences that store a record's first words, by their addresses.
    sites: Vec<Stretch>,
    /// How many noted functions could not be copied.
    pub(crate) left_out: usize,
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
                Ok(plans) => return lay_out(image, bias, &world, &groups, &plans),
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

    /// The program's instruction to which an address of the copy belongs.
    pub(crate) fn original(&self, addr: u64) -> Option<GuestVa> {
        let offset = u32::try_from(addr.checked_sub(self.base)?).ok()?;
        let i = self.places.partition_point(|(at, _)| *at <= offset).checked_sub(1)?;
        self.holds(addr).then(|| self.places[i].1)
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
    plans: &[Plan],
) -> Result<Copy, Error> {
    let mut emitter = Emitter::default();
    let mut blocks = Vec::new();
    for (group, plan) in groups.iter().zip(plans) {
        copy_group(image, bias, world, group, plan, (&mut emitter, &mut blocks));
    }
    let base = place(image, bias);
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
    let places = known.iter().copied().zip(emitter.pcs.iter().copied()).collect();
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
    Ok(Copy { base, code, len, tables, catches, entry, patches, blocks, places, sites, left_out })
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

fn copy_group(
    image: &Image,
    bias: u64,
    world: &World,
    group: &Group,
    plan: &Plan,
    (emitter, blocks): (&mut Emitter, &mut Vec<Block>),
) {
    let insts: Vec<&Inst> = group.functions(world).flat_map(|f| &f.insts).collect();
    let first = blocks.len();
    for piece in &plan.pieces {
        let Some(these) = insts.get(piece.insns.clone()) else { continue };
        let len: u64 = these.iter().map(|i| u64::from(i.length())).sum();
        let code = image.bytes(piece.entry.0.wrapping_sub(bias), len).unwrap_or_default();
        blocks.push(Block::new(piece, these, code.to_vec()));
    }
    for function in group.functions(world) {
        emitter.stub(function.start);
    }
    let ends: HashMap<GuestVa, GuestVa> =
        group.functions(world).map(|f| (f.end, f.start)).collect();
    let copied = |to: GuestVa| world.group_at(to).is_some();
    let called = |to: GuestVa| world.group_of_start(to).is_some();
    for (k, piece) in plan.pieces.iter().enumerate() {
        let payload = blocks[first + k].payload.as_ref();
        let identifier = (first + k + 1) as u32;
        let mut saves = piece.saves.iter().peekable();
        let mut offset = TAG;
        for i in piece.insns.clone() {
            let inst = insts[i];
            emitter.begin(inst.pc());
            while let Some(save) = saves.next_if(|s| s.at == i) {
                let point = Point { piece, save, identifier, inst, payload };
                emitter.save(&point, offset);
                let width = |s: &ichnos_flow::Store| match s.width {
                    ichnos_trace::Width::Four => 4,
                    ichnos_trace::Width::Eight => 8,
                };
                offset += save.stores.iter().map(width).sum::<usize>();
            }
            match inst.flow() {
                Flow::Call(_) => emitter.own(inst, called),
                _ => emitter.own(inst, copied),
            }
            if let Some(payload) = payload {
                emitter.after(payload);
            }
            let goes_on = inst.flow().falls_through()
                || matches!(inst.flow(), Flow::Call(_) | Flow::CallIndirect);
            if goes_on && ends.contains_key(&inst.next_pc()) {
                let next = inst.next_pc();
                emitter.jump(if copied(next) { COPY | next.0 } else { next.0 });
            }
            if let Some(function) = ends.get(&inst.next_pc()) {
                emitter.ends.push((*function, emitter.instrs.len()));
            }
        }
    }
}
