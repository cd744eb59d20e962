//! A function as the planner wants it, with what the copy needs besides.
//!
//! Some references in the planner's input are none: they make it see to it that a register
//! is known where replay wants it. Their sizes are marks ([`TARGET_MARK`], [`NEED_MARK`]), and
//! they never become records. References relative to `fs` are marked too ([`FS_MARK`]): the base is the
//! thread's, and known.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{AccessFlags, GuestVa};
use ichnos_flow::{Control, Effect, Insn, Live, Loss, Reference, Region, Set};
use ichnos_isa_x86::{Flow, Gpr, Index, Inst};
use ichnos_lift::{FRAME, FS, lift};
use ichnos_trace::{RefKind, Register, Sum, Value};

use super::convention::{
    ARGUMENTS, CALLEE_SAVED, CALLER_SAVED, Habit, RESULTS, keeps, returns_by_itself,
};
use super::function::Function;

/// The value is where an indirect transfer goes.
pub(crate) const TARGET_MARK: u32 = 1 << 30;
/// The value must be known, no more.
pub(crate) const NEED_MARK: u32 = 1 << 29;
/// The address counts from the base of `fs`.
pub(crate) const FS_MARK: u32 = 1 << 28;
/// Not a register: what an indirect transfer finds in memory.
pub(crate) const TARGET: Register = Register(42);

const RSP: Register = Register(4);
/// General registers and [`TARGET`].
const TAKEABLE: Set = Set(0xffff | 1 << 42);

/// All functions that can be traced, in order of address.
pub(crate) struct World {
    pub(crate) functions: Vec<Function>,
    starts: HashMap<GuestVa, usize>,
    groups: Vec<usize>,
}

/// A function with its cold part: planned together.
pub(crate) struct Group(pub(crate) Vec<usize>);

impl Group {
    /// Its functions.
    pub(crate) fn functions<'a>(&'a self, world: &'a World) -> impl Iterator<Item = &'a Function> {
        self.0.iter().filter_map(|i| world.functions.get(*i))
    }

    /// Whether an address lies in it.
    pub(crate) fn holds(&self, world: &World, pc: GuestVa) -> bool {
        self.functions(world).any(|f| f.holds(pc))
    }
}

impl World {
    /// The world of these functions, and their groups.
    pub(crate) fn new(mut functions: Vec<Function>) -> (Self, Vec<Group>) {
        functions.sort_by_key(|f| f.start);
        let starts: HashMap<_, _> =
            functions.iter().enumerate().map(|(i, f)| (f.start, i)).collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut of = vec![usize::MAX; functions.len()];
        let mut by_parent = HashMap::new();
        for (i, function) in functions.iter().enumerate() {
            let parent = if starts.contains_key(&function.parent) {
                function.parent
            } else {
                function.start
            };
            let group = *by_parent.entry(parent).or_insert_with(|| {
                groups.push(Group(Vec::new()));
                groups.len() - 1
            });
            groups[group].0.push(i);
            of[i] = group;
        }
        let mut world = Self { functions, starts, groups: of };
        world.add_crossings();
        (world, groups)
    }

    /// The function that holds an address.
    pub(crate) fn function_at(&self, pc: GuestVa) -> Option<usize> {
        let i = self.functions.partition_point(|f| f.start <= pc).checked_sub(1)?;
        self.functions[i].holds(pc).then_some(i)
    }

    /// The group that holds an instruction at an address.
    pub(crate) fn group_at(&self, pc: GuestVa) -> Option<usize> {
        let i = self.function_at(pc)?;
        self.functions[i].at(pc).map(|_| self.groups[i])
    }

    /// The group of the function that starts at an address.
    pub(crate) fn group_of_start(&self, pc: GuestVa) -> Option<usize> {
        self.starts.get(&pc).map(|i| self.groups[*i])
    }

    /// Makes every place that another group jumps to, or falls into, an entry.
    fn add_crossings(&mut self) {
        let mut crossings = Vec::new();
        for (i, function) in self.functions.iter().enumerate() {
            let end = function.insts.last().filter(|l| l.flow().falls_through());
            let targets = function.insts.iter().filter_map(|inst| match inst.flow() {
                Flow::Jump(target) | Flow::Cond(target) | Flow::Call(target) => Some(target),
                _ => None,
            });
            for target in targets.chain(end.map(Inst::next_pc)) {
                let Some(to) = self.function_at(target) else { continue };
                if self.groups[to] != self.groups[i] && self.functions[to].at(target).is_some() {
                    crossings.push((to, target));
                }
            }
        }
        for (to, target) in crossings {
            self.functions[to].entries.push(target);
        }
        for function in &mut self.functions {
            function.entries.sort_unstable();
            function.entries.dedup();
        }
    }
}

/// Whether a computed jump is one of a switch: it goes to a label of its own function. Only
/// what compilers write for a table is believed to be.
pub(crate) fn is_switch(function: &Function, i: usize) -> bool {
    let inst = &function.insts[i];
    let Some(operand) = inst.memory().first() else {
        // The table's entry was added to the table's address just before.
        let Some(before) = i.checked_sub(1).map(|b| &function.insts[b]) else { return false };
        let jumps = inst.raw().op0_register();
        let adds =
            before.mnemonic() == iced_x86::Mnemonic::Add && before.raw().op0_register() == jumps;
        return adds && before.next_pc() == inst.pc() && !function.entries.is_empty();
    };
    let scaled = matches!(operand.address.index, Index::Scaled(_, 8));
    scaled && operand.address.base.is_none() && !function.entries.is_empty()
}

/// Builds the planner's input for a group.
pub(crate) fn region(world: &World, habits: &[Habit], group: &Group) -> Region {
    let functions: Vec<&Function> = group.functions(world).collect();
    let habit = world.group_of_start(functions[0].start).map(|g| habits[g]);
    let compiled = keeps(&functions);
    let live_outside = match habit {
        Some(habit) if compiled => {
            let kept = CALLER_SAVED.without(habit.spoils);
            Live { registers: CALLEE_SAVED.or(RESULTS).or(kept), flags: 0 }
        }
        _ => Live { registers: Set::ALL, flags: 0xff },
    };
    let mut region = Region {
        takeable: TAKEABLE,
        frame: FRAME,
        known_outside: Set::only(RSP),
        live_outside,
        ..Region::default()
    };
    let shaper = Shaper { world, habits, group, compiled };
    for function in &functions {
        region.entries.push(function.start);
        region.entries.extend(&function.entries);
        region.strange.extend(&function.pads);
        for i in 0..function.insts.len() {
            shaper.add(function, i, &mut region);
        }
    }
    region
}

struct Shaper<'a> {
    world: &'a World,
    habits: &'a [Habit],
    group: &'a Group,
    compiled: bool,
}

impl Shaper<'_> {
    /// Adds an instruction to the region.
    fn add(&self, function: &Function, i: usize, region: &mut Region) {
        let inst = &function.insts[i];
        let mut insn = lift(inst);
        fs_aside(&mut insn.effects);
        if insn.effects.contains(&Effect::Flex) {
            // A piece by itself, with words of its own.
            region.entries.extend([insn.pc, insn.end()]);
        }
        match inst.flow() {
            Flow::Call(target) => {
                let traced = self.world.group_of_start(target).is_some();
                insn.control = Control::Call(traced.then_some(target));
                self.call(inst, Some(target), &mut insn, region);
            }
            Flow::CallIndirect => {
                self.call(inst, None, &mut insn, region);
                target(inst, &mut insn, region);
            }
            Flow::JumpIndirect => {
                need(&mut insn, RSP);
                insn.uses = self.tail_uses(insn.uses);
                if !is_switch(function, i) {
                    target(inst, &mut insn, region);
                }
            }
            // Control may come back behind it, and nothing leads there.
            Flow::Trap => need(&mut insn, RSP),
            Flow::Jump(to) | Flow::Cond(to) if !self.group.holds(self.world, to) => {
                self.leave(inst, to, &mut insn, region);
            }
            _ => {}
        }
        if inst.flow().falls_through() && insn.end() == function.end {
            need(&mut insn, RSP);
            insn.uses = self.tail_uses(insn.uses);
        }
        region.insns.push(insn);
    }

    /// A jump to another function, traced or not.
    fn leave(&self, inst: &Inst, to: GuestVa, insn: &mut Insn, region: &mut Region) {
        need(insn, RSP);
        insn.uses = self.tail_uses(insn.uses);
        region.entries.push(to);
        if self.world.group_at(to).is_some() {
            return;
        }
        match inst.flow() {
            // Control comes back anywhere.
            Flow::Jump(_) => insn.control = Control::Indirect,
            // Only what does not follow tells that it was taken.
            _ => region.entries.push(insn.end()),
        }
    }

    fn tail_uses(&self, uses: Live) -> Live {
        if !self.compiled {
            return Live { registers: Set::ALL, flags: 0xff };
        }
        let registers = uses.registers.or(ARGUMENTS).or(CALLEE_SAVED);
        Live { registers, flags: uses.flags }
    }

    fn call(&self, inst: &Inst, target: Option<GuestVa>, insn: &mut Insn, region: &mut Region) {
        if !returns_by_itself(self.world, self.habits, target) {
            region.strange.push(insn.end());
        }
        if !self.compiled {
            return;
        }
        let callee = target.and_then(|t| self.world.group_of_start(t));
        let spoils = callee.map_or(CALLER_SAVED, |g| self.habits[g].spoils.and(CALLER_SAVED));
        let own: Set = inst
            .effects()
            .inputs
            .iter()
            .filter_map(ichnos_isa_x86::Reg::as_gpr)
            .map(|r| Register(r.number()))
            .collect();
        insn.uses = Live { registers: ARGUMENTS.or(CALLEE_SAVED).or(own), flags: 0 };
        insn.kills = Live { registers: spoils, flags: 0xff };
    }
}

/// Makes a register known before an instruction.
fn need(insn: &mut Insn, register: Register) {
    insn.effects.insert(0, mark(register, NEED_MARK));
}

fn mark(register: Register, size: u32) -> Effect {
    let address = Sum { base: Some(register), index: None, disp: 0 };
    Effect::Ref(Reference { kind: RefKind::Prefetch, flags: AccessFlags::NONE, size, address })
}

/// Makes known where an indirect transfer goes.
fn target(inst: &Inst, insn: &mut Insn, region: &mut Region) {
    let register = match Gpr::of(inst.raw().op0_register()) {
        Some(gpr) if inst.raw().op0_kind() == iced_x86::OpKind::Register => Register(gpr.number()),
        // What memory holds must be read at this instruction, no earlier.
        _ => {
            if let Some(before) = region.insns.last_mut() {
                before.effects.push(Effect::Lose(TARGET, Loss::All));
            }
            TARGET
        }
    };
    insn.effects.insert(0, mark(register, TARGET_MARK));
}

/// Takes the base of `fs` out of addresses and marks them instead.
fn fs_aside(effects: &mut [Effect]) {
    let without = |sum: &mut Sum| {
        if sum.base != Some(FS) {
            return false;
        }
        sum.base = None;
        if let Some((register, 1)) = sum.index {
            (sum.base, sum.index) = (Some(register), None);
        }
        true
    };
    let mut temporary = None;
    for effect in effects {
        match effect {
            Effect::Ref(reference) => {
                let through = reference.address.base.is_some_and(|b| temporary == Some(b));
                if without(&mut reference.address) || through {
                    reference.size |= FS_MARK;
                }
            }
            Effect::Set(register, value) => {
                if let Value::Sum(sum) = value
                    && without(sum)
                {
                    temporary = Some(*register);
                }
            }
            _ => {}
        }
    }
}
