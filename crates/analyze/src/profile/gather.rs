//! Costs by function and source line: what annotation shows and what the
//! exported profiles hold.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::GuestVa;

use super::{Costs, Space};

/// Tells where in the source an instruction comes from.
pub trait Locate {
    /// The place of the instruction at `pc`. Asked once per instruction.
    fn locate(&mut self, space: Space, pc: GuestVa) -> Place;
}

impl<F: FnMut(Space, GuestVa) -> Place> Locate for F {
    fn locate(&mut self, space: Space, pc: GuestVa) -> Place {
        self(space, pc)
    }
}

/// A place in the source. What is not known is empty, and the line 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place {
    /// The program or library.
    pub image: String,
    /// The function.
    pub function: String,
    /// The source file.
    pub file: String,
    /// The line in it.
    pub line: u32,
}

/// A function: its name alone does not say which.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FunctionKey {
    /// The program or library.
    pub image: String,
    /// The source file.
    pub file: String,
    /// The function.
    pub function: String,
}

/// An instruction within a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Site {
    /// Its address.
    pub pc: GuestVa,
    /// Its source line.
    pub line: u32,
}

/// One function's costs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FunctionRow {
    /// What the function's own instructions cost.
    pub costs: Vec<u64>,
    /// The same, by source line.
    pub lines: BTreeMap<u32, Vec<u64>>,
    /// The same, by instruction.
    pub insns: BTreeMap<Site, Vec<u64>>,
    /// Calls made from here.
    pub calls: Vec<CallRow>,
}

/// Calls from one line to one function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallRow {
    /// From where.
    pub from: Site,
    /// To which function.
    pub to: FunctionKey,
    /// To which of its places.
    pub target: Site,
    /// How often.
    pub count: u64,
    /// What happened from the calls to their returns.
    pub inclusive: Vec<u64>,
}

/// One source line's costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineRow {
    /// The source file.
    pub file: String,
    /// The line.
    pub line: u32,
    /// Its costs.
    pub costs: Vec<u64>,
}

/// Costs by place.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// The columns' names.
    pub columns: Vec<String>,
    /// All functions.
    pub functions: BTreeMap<FunctionKey, FunctionRow>,
    /// Everything together.
    pub total: Vec<u64>,
}

impl Costs {
    /// Gathers the costs by place.
    pub fn gather(&self, locate: &mut impl Locate) -> Gathered {
        let width = self.columns.len();
        let mut all = Gathered { total: vec![0; width], ..Gathered::default() };
        all.columns.clone_from(&self.columns);
        for (space, pc, costs) in &self.insns {
            let (key, line) = locate.locate(*space, *pc).split();
            let site = Site { pc: *pc, line };
            let row = all.functions.entry(key).or_default();
            add(&mut row.costs, costs);
            add(row.lines.entry(line).or_default(), costs);
            add(row.insns.entry(site).or_default(), costs);
            add(&mut all.total, costs);
        }
        for call in &self.calls {
            let (key, line) = locate.locate(call.space, call.from).split();
            let (to, target_line) = locate.locate(call.space, call.to).split();
            all.functions.entry(key).or_default().calls.push(CallRow {
                from: Site { pc: call.from, line },
                to,
                target: Site { pc: call.to, line: target_line },
                count: call.count,
                inclusive: call.inclusive.clone(),
            });
        }
        all
    }
}

impl Gathered {
    /// Functions, the costliest by `column` first.
    #[must_use]
    pub fn hottest(&self, column: usize) -> Vec<(&FunctionKey, &FunctionRow)> {
        let mut rows: Vec<_> = self.functions.iter().collect();
        let cost = |row: &FunctionRow| row.costs.get(column).copied().unwrap_or(0);
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(cost(row)));
        rows
    }

    /// Source lines over all functions, the costliest by `column` first.
    #[must_use]
    pub fn hottest_lines(&self, column: usize) -> Vec<LineRow> {
        let mut lines = BTreeMap::<(&str, u32), Vec<u64>>::new();
        for (key, row) in &self.functions {
            for (&line, costs) in &row.lines {
                add(lines.entry((&key.file, line)).or_default(), costs);
            }
        }
        let rows = lines.into_iter();
        let mut rows: Vec<_> =
            rows.map(|((file, line), costs)| LineRow { file: file.into(), line, costs }).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.costs.get(column).copied().unwrap_or(0)));
        rows
    }
}

impl Place {
    fn split(self) -> (FunctionKey, u32) {
        let Self { image, function, file, line } = self;
        (FunctionKey { image, file, function }, line)
    }
}

/// Adds costs to sums, which grow to as many columns.
fn add(sums: &mut Vec<u64>, costs: &[u64]) {
    if sums.len() < costs.len() {
        sums.resize(costs.len(), 0);
    }
    for (sum, cost) in sums.iter_mut().zip(costs) {
        *sum += cost;
    }
}
