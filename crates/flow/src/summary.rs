//! Each instruction in the terms of the planner: what must be known before it, and
//! what of its results follows from what was known before it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_trace::Register;

use crate::insn::{Effect, Insn, Region, value_registers};
use crate::options::{Follow, Options};
use crate::{Error, Set};

/// An instruction, summed up.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// Registers that its addresses need.
    pub(crate) needs: Set,
    /// Registers that it changes, each with those from which the new value follows,
    /// or nothing if it does not follow.
    pub(crate) writes: Vec<(Register, Option<Set>)>,
    /// Whether the collector tells its accesses.
    pub(crate) flex: bool,
}

impl Summary {
    pub(crate) fn of(insn: &Insn, region: &Region, options: &Options) -> Result<Self, Error> {
        let needs = insn.needs(region.takeable)?;
        let mut writes: Vec<(Register, Option<Set>)> = Vec::new();
        let source = |writes: &[(Register, Option<Set>)], register| {
            let written = writes.iter().find(|(r, _)| *r == register);
            written.map_or(Some(Set::only(register)), |(_, sources)| *sources)
        };
        for effect in &insn.effects {
            let (register, sources) = match *effect {
                Effect::Set(register, value) if options.follow == Follow::Yes => {
                    let all = value_registers(value).iter();
                    let sources = all.map(|r| source(&writes, r));
                    (register, sources.reduce(|a, b| Some(a?.or(b?))).unwrap_or(Some(Set::EMPTY)))
                }
                Effect::Set(register, _) | Effect::Lose(register, _) => (register, None),
                Effect::Ref(_) | Effect::Flex => continue,
            };
            match writes.iter_mut().find(|(r, _)| *r == register) {
                Some(entry) => entry.1 = sources,
                None => writes.push((register, sources)),
            }
        }
        writes.retain(|(register, _)| region.takeable.has(*register));
        let flex = insn.effects.contains(&Effect::Flex);
        Ok(Self { needs, writes, flex })
    }

    /// What is known after it, of what was known before, when nothing is stored.
    pub(crate) fn after(&self, known: Set) -> Set {
        let mut after = known;
        for (register, sources) in &self.writes {
            let follows = sources.is_some_and(|s| s.without(known).is_empty());
            let only = Set::only(*register);
            after = if follows { after.or(only) } else { after.without(only) };
        }
        after
    }
}
