//! What a stored profile says of a program as a whole.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use anyhow::{Context, Result};

/// The rows of the first table.
#[derive(Debug, Default)]
pub struct Traits {
    pub instructions: u64,
    pub references: u64,
    pub code_misses: u64,
    pub data_misses: u64,
    pub tlb_misses: u64,
    pub unique: usize,
    /// Taken branches: relative on and off the page, absolute on and off it.
    pub taken: [u64; 4],
}

/// How an instruction names its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Relative,
    Absolute,
}

impl Traits {
    /// Reads a profile as `docs` describe it.
    pub fn read(text: &str) -> Result<Self> {
        let mut traits = Self::default();
        let mut columns: Vec<&str> = Vec::new();
        let mut ends: HashMap<u64, (u64, Target)> = HashMap::new();
        for line in text.lines() {
            let Some((key, rest)) = line.split_once(": ") else { continue };
            match key {
                "columns" => columns = rest.split(' ').collect(),
                "insn" => traits.insn(rest, &columns, &mut ends).context("an instruction")?,
                "arc" => traits.arc(rest, &ends),
                _ => {}
            }
        }
        Ok(traits)
    }

    fn insn(
        &mut self,
        text: &str,
        columns: &[&str],
        ends: &mut HashMap<u64, (u64, Target)>,
    ) -> Option<()> {
        let mut parts = text.split(' ');
        let pc = u64::from_str_radix(parts.next()?, 16).ok()?;
        let word = u32::from_str_radix(parts.next()?, 16).ok()?;
        let costs: Vec<u64> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let cost = |name: &str| {
            let at = columns.iter().position(|column| *column == name);
            at.and_then(|at| costs.get(at)).copied().unwrap_or(0)
        };
        self.unique += usize::from(cost("Ir") > 0);
        self.instructions += cost("Ir");
        self.references += cost("Dr") + cost("Dw");
        self.code_misses += cost("I1mr");
        self.data_misses += cost("D1mr") + cost("D1mw");
        self.tlb_misses += cost("ITm") + cost("DTm");
        if let Some(target) = target(word) {
            let len = if word & 3 == 3 { 4 } else { 2 };
            ends.insert(pc + len, (pc, target));
        }
        Some(())
    }

    fn arc(&mut self, text: &str, ends: &HashMap<u64, (u64, Target)>) {
        let parts: Vec<&str> = text.split(' ').collect();
        let [from, to, count] = parts[..] else { return };
        let address = |text: &str| u64::from_str_radix(text, 16).ok();
        let (Some(from), Some(to), Ok(count)) = (address(from), address(to), count.parse::<u64>())
        else {
            return;
        };
        // What ends no branch is a trap or a system call.
        let Some(&(pc, target)) = ends.get(&from) else { return };
        let off_page = usize::from(pc >> 12 != to >> 12);
        self.taken[2 * usize::from(target == Target::Absolute) + off_page] += count;
    }

    pub fn branches(&self) -> u64 {
        self.taken.iter().sum::<u64>().max(1)
    }

    pub fn millions(&self) -> f64 {
        self.instructions as f64 / 1e6
    }
}

/// Whether an RV64 instruction transfers control, and how.
fn target(word: u32) -> Option<Target> {
    match (word & 3, word >> 13 & 7, word & 0x7f) {
        (3, _, 0x63 | 0x6f) => Some(Target::Relative),
        (3, _, 0x67) => Some(Target::Absolute),
        (3, ..) => None,
        (1, 5..=7, _) => Some(Target::Relative),
        // c.jr and c.jalr have no second register.
        (2, 4, _) if word >> 2 & 31 == 0 && word >> 7 & 31 != 0 => Some(Target::Absolute),
        _ => None,
    }
}
