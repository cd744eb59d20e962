//! Lean paths: second translations of paths, for those who come from where registers are known.
//!
//! Behind a path some registers are known to whoever reads the trace: what it stored of them, as far as it can be followed. Where
//! one path mostly goes on with another, that is made once more as a path that needs those registers and stores only
//! the others, and the exit leads there. Nobody else comes to it: not by its address, not through
//! the dispatcher, not by an indirect transfer.
//!
//! Whoever reads a buffer may begin with it, so no buffer begins with a lean path: if there is no room for all of one, which its first save
//! point finds out, the thread goes on with the path that needs nothing.
//!
//! A lean path knows more behind it than the other one, so that one may lead to the next, and a loop to itself.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_flow::{Plan, SavePoint};

use super::cache::Cache;
use super::fragment::{Kind, Spills};
use super::hash::Fast;
use super::path::Route;
use super::translate::Draft;
use crate::plan;

/// The most lean translations of one path.
const MOST: usize = 4;
/// How often one may be tried.
const MOST_TRIES: u8 = 8;

/// All paths, and their lean translations.
#[derive(Default)]
pub struct Leaner {
    paths: HashMap<u64, Entered, Fast>,
}

/// A path, by where it is entered.
struct Entered {
    route: Route,
    /// The registers that it stores.
    stores: u16,
    /// Its lean translations: what is known where they are entered.
    lean: Vec<(u16, u32)>,
    tries: u8,
}

impl Entered {
    /// The translation that stores least for who knows these registers, and how many registers that saves.
    fn best(&self, known: u16) -> Option<(u32, u32)> {
        let may = self.lean.iter().filter(|(needs, _)| needs & !known == 0);
        may.map(|&(needs, id)| ((needs & self.stores).count_ones(), id)).max()
    }
}

impl Leaner {
    /// A path was made, and has no lean translations yet.
    pub fn add(&mut self, route: &Route, draft: &Draft) {
        let (route, stores, lean) = (route.clone(), draft.stores, Vec::new());
        self.paths.insert(draft.pc, Entered { route, stores, lean, tries: 0 });
    }

    /// A lean translation was placed.
    pub fn made(&mut self, pc: u64, known: u16, id: u32) {
        if let Some(path) = self.paths.get_mut(&pc) {
            path.lean.push((known, id));
        }
    }

    /// A fragment is gone; the lean translations that go with it.
    pub fn remove(&mut self, pc: u64, id: u32) -> Vec<u32> {
        let Some(path) = self.paths.get_mut(&pc) else { return Vec::new() };
        if path.lean.iter().any(|lean| lean.1 == id) {
            path.lean.retain(|lean| lean.1 != id);
            return Vec::new();
        }
        let path = self.paths.remove(&pc);
        path.map_or(Vec::new(), |path| path.lean.iter().map(|lean| lean.1).collect())
    }

    /// The best lean translation for who knows these registers.
    pub fn best(&self, pc: u64, known: u16) -> Option<u32> {
        if known == 0 {
            return None;
        }
        self.paths.get(&pc)?.best(known).map(|(_, id)| id)
    }

    fn lean(&self, pc: u64) -> impl Iterator<Item = u32> {
        self.paths.get(&pc).into_iter().flat_map(|path| path.lean.iter().map(|lean| lean.1))
    }
}

impl Cache {
    /// A thread often goes from one path to another: leads exits between them to lean translations of the latter. How
    /// many blocks were made for that.
    pub fn follow(&mut self, from: u64, to: u64) -> usize {
        let whole = self.book(Kind::Recorded).by_pc(from);
        let fragments: Vec<u32> = whole.into_iter().chain(self.leaner.lean(from)).collect();
        let mut made = 0;
        for fragment in fragments {
            for index in self.fragment(fragment).exits.clone() {
                let exit = self.exit_at(index);
                if exit.target == to && exit.patch != 0 && exit.known != 0 {
                    made += self.lean(to, exit.known);
                    self.lead_best(index);
                }
            }
        }
        made
    }

    /// Leads an exit to the best lean translation, if there is any.
    fn lead_best(&mut self, index: u32) {
        let exit = self.exit_at(index);
        let Some(best) = self.leaner.best(exit.target, exit.known) else { return };
        if exit.linked == Some(best) {
            return;
        }
        if exit.turns {
            // It goes on by the exit for those who do not turn.
            self.unlink(index);
        } else {
            self.lead(index, best);
        }
    }

    /// Makes a lean translation for who knows these registers, unless there is one that is as good: how many blocks it has.
    fn lean(&mut self, pc: u64, known: u16) -> usize {
        let Some(path) = self.leaner.paths.get_mut(&pc) else { return 0 };
        let saved = path.best(known).map_or(0, |(saved, _)| saved);
        let full = path.lean.len() >= MOST || path.tries >= MOST_TRIES;
        if full || (path.stores & known).count_ones() <= saved {
            return 0;
        }
        path.tries += 1;
        let route = path.route.clone();
        let Some(draft) = self.draft_path(&route, known) else { return 0 };
        let blocks = draft.blocks().len();
        self.place_path(draft);
        blocks
    }
}

impl Draft {
    /// Writes the way by which a lean path is given up: to the path that needs nothing.
    pub fn give_up(&mut self) {
        (self.now, self.lost, self.rest, self.begun) = (self.home, 0, 0, 0);
        self.part = (self.parts.len() - 1) as u8;
        self.renew = Some(self.emit.offset());
        self.site(self.pc, Spills::NONE);
        self.unsettle();
        self.site(self.pc, Spills::NONE);
        let jump = self.emit.jump();
        self.exit(jump, self.pc);
    }

    /// Where its blocks begin.
    pub fn blocks(&self) -> Vec<u64> {
        self.told.iter().flat_map(|told| told.pieces.iter().map(|piece| piece.0)).collect()
    }
}

/// The registers, as bits, that are known where each piece of a path can be left, by where that leads.
pub fn known_out(plan: &Plan) -> Vec<Vec<(u64, u16)>> {
    let general = |known: u64| known as u16 & !(1 << plan::STACK.0);
    let out = |(to, known): &(ichnos_base::GuestVa, ichnos_flow::Set)| (to.0, general(known.0));
    plan.pieces.iter().map(|piece| piece.out.iter().map(out).collect()).collect()
}

/// The registers that a path stores.
pub fn stores(plan: &Plan) -> u16 {
    let points = plan.pieces.iter().flat_map(|piece| &piece.saves);
    let stored = |point: &SavePoint| {
        point.stores.iter().fold(0, |all, store| all | 1 << (store.register.0 & 15))
    };
    points.fold(0, |all, point| all | stored(point))
}
