//! P_inst, or the only copy, as a list of instructions: piece by piece of its plan, with save points.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use ichnos_base::GuestVa;
use ichnos_flow::{Across, Options, Piece, Plan, Set};
use ichnos_isa_x86::{Flow, Inst, Reg, Scratch};
use ichnos_trace::Register;

use super::carry::Carriers;
use super::emit::{Emitter, Point, TAG, width};
use super::function::Function;
use super::image::Image;
use super::kernel::asks;
use super::plot::Plot;
use super::points::{Planned, Points};
use super::reference::{Form, Kinds};
use super::region::{Group, World};
use super::roadmap::Block;
use super::spread;
use super::switch::Flags;
use super::sync::Site;
use super::tool::Calls;
use super::turns::turns;
use super::ways::Ways;
use crate::Error;

/// The copy with save points as a list, and what its words mean.
pub(crate) struct Emitted {
    pub(crate) emitter: Emitter,
    pub(crate) blocks: Vec<Block>,
    pub(crate) kinds: Kinds,
    /// Calls of synchronising functions.
    pub(crate) calls: Vec<Site>,
}

/// The copy with save points as a list.
pub(crate) fn emit(
    image: &Image,
    bias: u64,
    planned: &Planned<'_>,
    (plot, points, ways): (&Plot, Option<&Points>, Option<&mut Ways>),
    calls: Option<Calls<'_>>,
) -> Result<Emitted, Error> {
    let (world, options) = (planned.world, planned.options);
    let starts = points.map(|p| p.starts.clone()).unwrap_or_default();
    let emitter = Emitter { starts, ..Emitter::default() };
    let blocks = Vec::new();
    let scratch = Scratch::new();
    let (form, kinds) = (planned.form, Kinds::from(plot.first.kind));
    let mut copier = Copier {
        image,
        bias,
        plot,
        world,
        options,
        form,
        points,
        ways,
        emitter,
        blocks,
        kinds,
        scratch,
        calls,
        told: Vec::new(),
    };
    let all: Vec<_> = planned.groups.iter().zip(planned.plans).collect();
    let simple = form == Form::Blocks && points.is_none() && calls.is_none();
    let is_carried = simple && options.across == Across::All;
    let ready = spread::each(&all, |(group, plan)| Ready::new(world, (group, plan), is_carried));
    for ((group, plan), ready) in all.into_iter().zip(ready) {
        copier.group(group, plan, &ready)?;
    }
    copier.emitter.hold_from(None);
    copier.emitter.lay_tails();
    let Copier { emitter, blocks, kinds, told: calls, .. } = copier;
    Ok(Emitted { emitter, blocks, kinds, calls })
}

/// What is worked out of a group beforehand, by itself.
struct Ready<'a> {
    insts: Vec<&'a Inst>,
    /// The registers that each of them uses.
    used: Vec<Set>,
    /// In which registers its blocks find their thread's place in the buffer.
    carriers: Carriers,
}

impl<'a> Ready<'a> {
    /// That of a planned group. Where threads switch or a tool is called nothing is carried: all find the place in memory.
    fn new(world: &'a World, (group, plan): (&'a Group, &Plan), is_carried: bool) -> Self {
        let insts: Vec<&Inst> = group.functions(world).flat_map(|f| &f.insts).collect();
        let mut scratch = Scratch::new();
        let used: Vec<Set> = insts.iter().map(|inst| used(inst, &mut scratch)).collect();
        let carriers = if is_carried {
            let open =
                |f: &Function| [f.start].into_iter().chain(f.entries.clone()).chain(f.pads.clone());
            let open: HashSet<GuestVa> = group.functions(world).flat_map(open).collect();
            Carriers::new(plan, &insts, &open, &used)
        } else {
            Carriers::default()
        };
        Self { insts, used, carriers }
    }

    /// The registers that a piece uses.
    fn used(&self, piece: &Piece) -> Set {
        let used = self.used.get(piece.insns.clone()).unwrap_or_default();
        used.iter().copied().fold(Set::EMPTY, Set::or)
    }
}

/// Registers that an instruction uses.
fn used(inst: &Inst, scratch: &mut Scratch) -> Set {
    let effects = inst.effects_with(scratch);
    let all = effects.inputs.iter().chain(effects.written.iter());
    all.filter_map(Reg::as_gpr).map(|r| Register(r.number())).collect()
}

/// Copies groups of functions one after the other.
struct Copier<'a> {
    image: &'a Image,
    bias: u64,
    /// Where the copy will lie.
    plot: &'a Plot,
    world: &'a World,
    options: &'a Options,
    form: Form,
    /// Where threads can switch, if they can.
    points: Option<&'a Points>,
    ways: Option<&'a mut Ways>,
    emitter: Emitter,
    blocks: Vec<Block>,
    kinds: Kinds,
    scratch: Scratch,
    /// The functions of a tool that are called, if there is one.
    calls: Option<Calls<'a>>,
    /// The calls of synchronising functions that are told.
    told: Vec<Site>,
}

impl Copier<'_> {
    fn copied(&self, to: GuestVa) -> bool {
        self.world.group_at(to).is_some()
    }

    fn group(&mut self, group: &Group, plan: &Plan, ready: &Ready<'_>) -> Result<(), Error> {
        let world = self.world;
        let insts = &ready.insts;
        self.emitter.hold_from(None);
        for function in group.functions(world) {
            if let Some(points) = self.points {
                self.emitter.entrance(points, function.start);
                self.emitter.outer_event(points, function.start);
            }
            self.emitter.stub(function.start, function.compiled.then_some(self.plot.room));
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
                self.piece((piece, plan), these, (turn, turns), (&ends, ready))?;
            }
            if self.lies_behind_jump() {
                self.emitter.lay_ways();
            }
        }
        Ok(())
    }

    /// Whether control does not come to what is laid out next from what was laid out last.
    fn lies_behind_jump(&self) -> bool {
        let last = self.emitter.instrs.last();
        last.is_some_and(|i| i.flow_control() == iced_x86::FlowControl::UnconditionalBranch)
    }

    /// One turn of a piece.
    fn piece(
        &mut self,
        (piece, plan): (&Piece, &Plan),
        insts: &[&Inst],
        (turn, turns): (usize, usize),
        (ends, ready): (&HashMap<GuestVa, GuestVa>, &Ready<'_>),
    ) -> Result<(), Error> {
        let (world, carriers) = (self.world, &ready.carriers);
        let called = |to: GuestVa| world.group_of_start(to).is_some();
        let copied = |to: GuestVa| world.group_at(to).is_some();
        let identifier = self.plot.first.block + self.blocks.len() as u32;
        let used = ready.used(piece);
        let flags = match world.function_at(piece.entry) {
            Some(f) if world.functions[f].compiled => Flags::Free,
            _ => Flags::Kept,
        };
        let wished = carriers.wished(piece, insts);
        let mut saves = piece.saves.iter().peekable();
        let mut offset = TAG;
        for (i, inst) in piece.insns.clone().zip(insts) {
            let emitter = &mut self.emitter;
            emitter.begin(inst.pc(), turn);
            if i == piece.insns.start && turn == 0 {
                emitter.hold_from(carriers.expected(piece.entry));
            }
            if let Some(points) = self.points.filter(|_| i == piece.insns.start && turn == 0) {
                emitter.checks(points, inst.pc(), flags);
            }
            let payload = self.blocks.last().and_then(|b| b.payload.as_ref());
            if self.form == Form::References && payload.is_none() {
                emitter.checks_from = None;
                let live = plan.live.get(i).map_or(Set::ALL, |l| l.registers);
                let rest = insts.get(i - piece.insns.start..).unwrap_or_default();
                emitter.references(&mut self.kinds, rest, (live, used), &mut self.scratch);
                saves.by_ref().for_each(drop);
            }
            while let Some(save) = saves.next_if(|s| s.at == i) {
                let point =
                    Point { piece, save, identifier, inst, payload, turn, turns, used, wished };
                emitter.save(&point, offset);
                offset += save.stores.iter().map(|s| width(s.width)).sum::<usize>();
            }
            emitter.carry(inst, (piece, i), (turn, turns), carriers);
            if let Some(calls) = self.calls {
                emitter.tell_tool(calls, inst, block_at(insts, i - piece.insns.start));
            }
            let site = self.synchronises(inst);
            let emitter = &mut self.emitter;
            if let Some((number, site)) = &site {
                emitter.tell_call(*number, &site.function);
            }
            let returns = site.filter(|(_, site)| site.function.operation.returns());
            let asks = self.form == Form::Blocks && asks(inst);
            if asks {
                emitter.tell_asked();
            }
            match (inst.flow(), self.points.zip(self.ways.as_deref_mut())) {
                _ if turns > 1 => {
                    emitter.turn(inst, (piece.entry, turn, turns - 1), carriers);
                }
                (Flow::Call(_), _) => emitter.own(inst, called),
                (Flow::Jump(_) | Flow::JumpIndirect, _)
                    if returns.is_some() && flags == Flags::Free =>
                {
                    emitter.tail(returns.map_or(0, |(number, _)| number), inst);
                }
                (Flow::Return, Some(both)) => emitter.comes_back(both, inst, flags)?,
                (Flow::JumpIndirect, Some((points, _))) => emitter.computed(points, inst),
                _ => emitter.own(inst, copied),
            }
            emitter.midway();
            if let Some((number, back)) = returns.and_then(|(n, site)| Some((n, site.back?))) {
                emitter.tell_return(number, back);
            }
            if asks {
                emitter.tell_answered(inst.next_pc());
            }
            if let Some(payload) = self.blocks.last().and_then(|b| b.payload.as_ref()) {
                emitter.after(payload);
            }
            let next = inst.next_pc();
            if i + 1 == piece.insns.end && matches!(inst.flow(), Flow::Next | Flow::Syscall) {
                emitter.give_behind(carriers.expected(next), next);
            }
            let goes_on = inst.flow().falls_through()
                || matches!(inst.flow(), Flow::Call(_) | Flow::CallIndirect);
            if goes_on && ends.contains_key(&next) {
                let to = if copied(next) { emitter.to(next) } else { next.0 };
                emitter.jump(to);
            }
            if let Some(function) = ends.get(&next).filter(|_| turn + 1 == turns) {
                self.emitter.lay_ways();
                self.emitter.ends.push((*function, self.emitter.instrs.len()));
            }
        }
        Ok(())
    }
}

impl Copier<'_> {
    /// Whether an instruction calls a synchronising function: then the number of a site for it.
    fn synchronises(&mut self, inst: &Inst) -> Option<(usize, Site)> {
        if self.form != Form::Blocks {
            return None;
        }
        let known = &self.image.known;
        let function = known.called(self.image, self.bias, inst)?;
        let own = inst.flow().target().is_some_and(|to| self.copied(to));
        let calls = matches!(inst.flow(), Flow::Call(_) | Flow::CallIndirect);
        let site = Site { function, back: calls.then(|| inst.next_pc()) };
        (!own).then(|| {
            self.told.push(site);
            (self.plot.first.call as usize + self.told.len() - 1, site)
        })
    }
}

/// How many instructions the basic block has that begins with a piece's instruction, if one does.
fn block_at(insts: &[&Inst], at: usize) -> Option<u32> {
    let ends = |inst: &&Inst| inst.flow() != Flow::Next;
    let begins = at == 0 || insts.get(at - 1).is_some_and(ends);
    let rest = insts.get(at..).unwrap_or_default();
    let len = rest.iter().position(ends).map_or(rest.len(), |last| last + 1);
    begins.then(|| u32::try_from(len).unwrap_or(u32::MAX))
}
