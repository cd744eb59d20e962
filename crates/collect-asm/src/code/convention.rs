//! What is known of functions as wholes: which registers they spoil, and whether they
//! come back by their own return.
//!
//! Compilers keep the calling convention where functions are seen from outside. For a local
//! function, gcc also looks at which registers it really changes (`-fipa-ra`), and may keep
//! values in others across a call. So a register counts as spoilt by a call only if code
//! reached by the call writes it, or is not known.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_flow::Set;
use ichnos_isa_x86::{Flow, Reg, Scratch};
use ichnos_trace::Register;

use super::function::Function;
use super::region::{Group, World, is_switch};
use super::spread;

/// Registers that a call may spoil: rax, rcx, rdx, rsi, rdi, r8 to r11.
pub(crate) const CALLER_SAVED: Set = Set(0x0fc7);
/// Registers that a call must keep: rbx, rsp, rbp, r12 to r15.
pub(crate) const CALLEE_SAVED: Set = Set(0xf038);
/// Registers that carry arguments, their number, or the static chain.
pub(crate) const ARGUMENTS: Set = Set(0x07c7);
/// Registers that carry results.
pub(crate) const RESULTS: Set = Set(0b101);

/// What is known of a group of functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Habit {
    /// Registers that a call of it surely counts as spoiling.
    pub(crate) spoils: Set,
    /// Whether control comes back from it only by a return instruction that is traced.
    pub(crate) returns: bool,
}

/// Where a group's own code leads.
struct Leads {
    to: Vec<usize>,
    tails: Vec<usize>,
}

/// Finds the habits of all groups.
pub(crate) fn habits(world: &World, groups: &[Group]) -> Vec<Habit> {
    let own = spread::each(groups, |group| own(world, group, &mut Scratch::new()));
    let (mut all, leads): (Vec<_>, Vec<_>) = own.into_iter().unzip();
    let mut changed = true;
    while changed {
        changed = false;
        for i in 0..all.len() {
            let mut habit = all[i];
            for callee in leads[i].to.iter().chain(&leads[i].tails) {
                habit.spoils = habit.spoils.or(all[*callee].spoils);
            }
            habit.returns &= leads[i].tails.iter().all(|callee| all[*callee].returns);
            changed |= habit != all[i];
            all[i] = habit;
        }
    }
    all
}

/// What a group's own instructions tell.
fn own(world: &World, group: &Group, scratch: &mut Scratch) -> (Habit, Leads) {
    let mut habit = Habit { spoils: Set::EMPTY, returns: true };
    let mut leads = Leads { to: Vec::new(), tails: Vec::new() };
    for function in group.functions(world) {
        for (i, inst) in function.insts.iter().enumerate() {
            habit.spoils = habit.spoils.or(written(inst, scratch));
            match inst.flow() {
                Flow::Call(target) => match world.group_of_start(target) {
                    Some(callee) => leads.to.push(callee),
                    None => habit.spoils = habit.spoils.or(CALLER_SAVED),
                },
                Flow::CallIndirect => habit.spoils = habit.spoils.or(CALLER_SAVED),
                Flow::JumpIndirect if is_switch(function, i) => {}
                Flow::JumpIndirect => {
                    habit.spoils = habit.spoils.or(CALLER_SAVED);
                    habit.returns = false;
                }
                Flow::Jump(target) | Flow::Cond(target) if !group.holds(world, target) => {
                    match world.group_at(target) {
                        Some(callee) => leads.tails.push(callee),
                        None => {
                            habit.spoils = habit.spoils.or(CALLER_SAVED);
                            habit.returns = false;
                        }
                    }
                }
                _ => {}
            }
        }
        let last = function.insts.last();
        if last.is_some_and(|i| i.flow().falls_through()) && !group.holds(world, function.end) {
            habit.returns = false;
        }
    }
    (habit, leads)
}

fn written(inst: &ichnos_isa_x86::Inst, scratch: &mut Scratch) -> Set {
    let written = inst.effects_with(scratch).written;
    written.iter().filter_map(Reg::as_gpr).map(|r| Register(r.number())).collect()
}

/// Whether control comes back to the instruction after a call with a stack pointer that
/// replay knows: the callee is traced to its return.
pub(crate) fn returns_by_itself(world: &World, habits: &[Habit], target: Option<GuestVa>) -> bool {
    let callee = target.and_then(|t| world.group_of_start(t));
    callee.is_some_and(|group| habits[group].returns)
}

/// Whether a function's calls and returns keep the convention.
pub(crate) fn keeps(functions: &[&Function]) -> bool {
    functions.iter().all(|f| f.compiled)
}
