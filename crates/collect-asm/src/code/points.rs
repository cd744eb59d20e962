//! Where threads of a program can change between the two copies: events, and places where control may come to the
//! wrong copy. What is inserted there is `switch.rs`'s.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use ichnos_base::GuestVa;
use ichnos_flow::{Options, Plan};
use ichnos_isa_x86::Flow;

use super::chain::Chains;
use super::convention::{Habit, returns_by_itself};
use super::emit::COPY;
use super::reference::Form;
use super::region::{Group, World};
use super::switch::{HEAD, INNER, Switching, Trigger};

/// Where threads of a program can switch, and what else must be looked after.
pub(crate) struct Points {
    pub(crate) how: Switching,
    /// Where P_inst and P_exec lie; the shared word is P_exec's first.
    pub(crate) inst: u64,
    pub(crate) exec: u64,
    /// Where P_exec's code lies in its room.
    pub(crate) code: u64,
    /// The first byte of the program's own code, and how many there are.
    pub(crate) own: (u64, u64),
    /// First instructions of functions that count as events.
    pub(crate) starts: HashSet<GuestVa>,
    /// First instructions of loops that count as events.
    pub(crate) heads: HashSet<GuestVa>,
    /// Places where control may come to the wrong copy: behind calls, landing pads.
    pub(crate) returns: HashSet<GuestVa>,
    /// Those of them where P_exec must look, too: control may come from code that is not copied.
    pub(crate) unsure: HashSet<GuestVa>,
    /// Calls that go past an event in P_exec, since it was counted with that of the caller.
    pub(crate) past: HashSet<GuestVa>,
    /// How many events a function's check counts in P_exec, if it is more than one.
    weights: HashMap<GuestVa, i32>,
    /// Where the ways between the copies lie, by name.
    pub(crate) ways: HashMap<u64, u64>,
}

/// Functions with their plans.
pub(crate) struct Planned<'a> {
    pub(crate) world: &'a World,
    pub(crate) groups: &'a [Group],
    pub(crate) habits: &'a [Habit],
    pub(crate) plans: &'a [Plan],
    pub(crate) options: &'a Options,
    pub(crate) form: Form,
}

impl Points {
    pub(crate) fn new(
        how: Switching,
        planned: &Planned<'_>,
        (inst, exec, code): (u64, u64, u64),
    ) -> Self {
        let world = planned.world;
        let first = world.functions.first().map_or(0, |f| f.start.0);
        let last = world.functions.last().map_or(0, |f| f.end.0);
        let mut points = Self {
            how,
            inst,
            exec,
            code,
            own: (first, last - first),
            starts: HashSet::new(),
            heads: HashSet::new(),
            returns: HashSet::new(),
            unsure: HashSet::new(),
            past: HashSet::new(),
            weights: HashMap::new(),
            ways: HashMap::new(),
        };
        for (group, plan) in planned.groups.iter().zip(planned.plans) {
            points.add(planned, group, plan);
        }
        if points.how.together {
            points.chain(planned);
        }
        points
    }

    fn add(&mut self, planned: &Planned<'_>, group: &Group, plan: &Plan) {
        let world = planned.world;
        let mut back = HashSet::new();
        let compiled = group.functions(world).all(|f| f.compiled);
        let first = group.functions(world).next().map_or(GuestVa(0), |f| f.parent);
        let events = self.how.events_of(first);
        for function in group.functions(world) {
            if compiled && events.calls() && function.parent == function.start {
                self.starts.insert(function.start);
            }
            self.returns.extend(&function.pads);
            self.unsure.extend(&function.pads);
            for inst in &function.insts {
                match inst.flow() {
                    Flow::Call(_) | Flow::CallIndirect => {
                        let next = inst.next_pc();
                        if world.group_at(next).is_some() {
                            self.returns.insert(next);
                        }
                        let target = inst.flow().target();
                        if !returns_by_itself(world, planned.habits, target) {
                            self.unsure.insert(next);
                        }
                    }
                    Flow::Jump(to) | Flow::Cond(to)
                        if to <= inst.pc() && group.holds(world, to) =>
                    {
                        back.insert(to);
                    }
                    _ => {}
                }
            }
        }
        if events.loops() && compiled {
            // Without flags to spoil a loop is no event.
            let free = plan.pieces.iter().filter(|p| {
                back.contains(&p.entry) && p.saves.first().is_some_and(|s| s.live.flags == 0)
            });
            let starts = &self.starts;
            self.heads.extend(free.map(|p| p.entry).filter(|e| !starts.contains(e)));
        }
    }

    /// Lets events be one check where one follows another for sure.
    fn chain(&mut self, planned: &Planned<'_>) {
        let mut chains = Chains::default();
        for (group, plan) in planned.groups.iter().zip(planned.plans) {
            let entries: HashSet<_> = plan.pieces.iter().map(|p| p.entry).collect();
            let functions = group.functions(planned.world);
            let starts = functions.filter(|f| self.starts.contains(&f.start));
            starts.for_each(|f| chains.add(f, &entries));
        }
        (self.past, self.weights) = chains.settle(&self.starts);
    }

    /// How many events the check at an address counts in P_exec.
    pub(crate) fn weight(&self, pc: GuestVa) -> i32 {
        self.weights.get(&pc).copied().unwrap_or(1)
    }

    /// Whether control to an address is an event.
    pub(crate) fn is_event(&self, pc: GuestVa) -> bool {
        self.starts.contains(&pc) || self.heads.contains(&pc)
    }

    /// Whether a function's entry is an event that is counted.
    pub(crate) fn counts_at(&self, function: GuestVa) -> bool {
        matches!(self.how.trigger, Trigger::Counted { .. }) && self.starts.contains(&function)
    }

    /// Where a way with this name lies.
    pub(crate) fn way(&self, name: u64) -> u64 {
        self.ways.get(&name).copied().unwrap_or(name)
    }

    /// Where a thread goes on in P_inst that comes back to a place without having counted anything there: a loop's
    /// beginning is an event then, too.
    pub(super) fn resumed(&self, pc: GuestVa) -> u64 {
        if self.heads.contains(&pc) { HEAD | pc.0 } else { self.inner(pc) }
    }

    /// P_inst's copy behind all checks.
    pub(super) fn inner(&self, pc: GuestVa) -> u64 {
        let checked = self.returns.contains(&pc) || self.heads.contains(&pc);
        if checked { INNER | pc.0 } else { COPY | pc.0 }
    }
}
