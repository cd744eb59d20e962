//! A thread's place in its buffer, carried in a register from block to block.
//!
//! To keep the place in memory costs a store for each block, into another line than the record: processors take two stores
//! a clock into one line, but only one into each of two. So between the blocks of a function the place stays in a register that is dead there, and
//! memory learns it where control leaves for parts unknown: calls, returns, computed jumps, the kernel. In which register a block
//! finds the place, if not in memory, is settled for the whole function beforehand ([`Carriers`]): all that lead to the block see to it.
//! If a thread stops in between, the tracer finds the place in the register ([`Midway`]).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use iced_x86::{Code, Instruction};
use ichnos_base::GuestVa;
use ichnos_flow::{Piece, Plan, Set};
use ichnos_isa_x86::{Flow, Inst};
use ichnos_trace::{Register, Step};

use super::convention::CALLER_SAVED;
use super::emit::{Emitter, PLACE, POINTERS, context, name};
use super::reference::Midway;

/// How much more often the inner of two loops is believed to run, and how many loops inside each other are looked at.
const TURNS: u64 = 8;
const DEPTH: u32 = 3;

/// Where a thread's place in its buffer is known to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// Registers that hold it.
    registers: Set,
    /// Whether memory does.
    stored: bool,
}

impl Default for Held {
    fn default() -> Self {
        Self { registers: Set::EMPTY, stored: true }
    }
}

impl Held {
    /// One of the registers.
    pub(super) fn pointer(self) -> Option<u8> {
        POINTERS.into_iter().find(|r| self.registers.has(Register(*r)))
    }

    /// Where a thread finds its place that is not in memory.
    pub(super) fn midway(self) -> Option<Midway> {
        let pointer = self.pointer().filter(|_| !self.stored)?;
        Some(Midway::Behind { pointer, bytes: 0 })
    }
}

/// In which registers the blocks of a group of functions find the place.
#[derive(Default)]
pub(crate) struct Carriers {
    /// By the blocks' entries; in memory if one is missing.
    expected: HashMap<GuestVa, u8>,
    /// For each instruction, the registers that can hold the place across it.
    free: Vec<Set>,
}

/// A way from one block to another.
struct Edge {
    to: usize,
    /// Registers that can be given the place before it is taken.
    free: Set,
}

impl Carriers {
    /// Those of a plan for these instructions, which use these registers. `open` has the places where control comes in from elsewhere.
    pub(crate) fn new(plan: &Plan, insts: &[&Inst], open: &HashSet<GuestVa>, used: &[Set]) -> Self {
        let dead = |i: usize| {
            CALLER_SAVED.without(plan.live.get(i).map_or(Set::ALL, |live| live.registers))
        };
        let free: Vec<Set> =
            used.iter().enumerate().map(|(i, used)| dead(i).without(*used)).collect();
        let places: HashMap<GuestVa, usize> =
            plan.pieces.iter().enumerate().map(|(i, piece)| (piece.entry, i)).collect();
        let mut closed: Vec<bool> =
            plan.pieces.iter().map(|p| !open.contains(&p.entry) && !varies(p)).collect();
        let mut edges: Vec<Edge> = Vec::new();
        let mut loops: Vec<(usize, usize)> = Vec::new();
        for (number, piece) in plan.pieces.iter().enumerate() {
            for i in piece.insns.clone() {
                let Some(inst) = insts.get(i) else { continue };
                let next = Some(inst.next_pc()).filter(|_| i + 1 == piece.insns.end);
                let (to, next, all) = match inst.flow() {
                    Flow::Next | Flow::Syscall => (None, next, Set::ALL),
                    Flow::Jump(to) => (Some(to), None, free[i]),
                    Flow::Cond(to) => (Some(to), next, free[i]),
                    _ => {
                        if let Some(back) = next.and_then(|next| places.get(&next)) {
                            closed[*back] = false;
                        }
                        continue;
                    }
                };
                for to in to.into_iter().chain(next).filter_map(|to| places.get(&to)) {
                    edges.push(Edge { to: *to, free: all });
                    if *to <= number {
                        loops.push((*to, number));
                    }
                }
            }
        }
        // What can be given to a block.
        let mut can: Vec<Set> = vec![Set::EMPTY; plan.pieces.len()];
        edges.iter().for_each(|edge| can[edge.to] = Set::ALL);
        for (number, piece) in plan.pieces.iter().enumerate() {
            let stored = piece.saves.iter().flat_map(|s| &s.stores).map(|s| s.register).collect();
            let here = if closed[number] { dead(piece.insns.start) } else { Set::EMPTY };
            can[number] = can[number].and(here).without(stored);
        }
        edges.iter().for_each(|edge| can[edge.to] = can[edge.to].and(edge.free));
        // What goes through it.
        let through = |piece: &Piece| {
            let all = piece.insns.clone().filter(|i| {
                insts.get(*i).is_some_and(|inst| {
                    matches!(inst.flow(), Flow::Next | Flow::Cond(_) | Flow::Jump(_))
                })
            });
            all.fold(Set::ALL, |set, i| set.and(free[i]))
        };
        let through: Vec<Set> = plan.pieces.iter().map(through).collect();
        let weight = |number: usize| {
            let depth = loops.iter().filter(|(from, to)| (*from..=*to).contains(&number)).count();
            TURNS.pow(u32::try_from(depth).unwrap_or(DEPTH).min(DEPTH))
        };
        let weights: Vec<u64> = (0..plan.pieces.len()).map(weight).collect();
        let score = |register: u8| -> u64 {
            let has = |number: &usize| {
                can[*number].has(Register(register)) && through[*number].has(Register(register))
            };
            (0..plan.pieces.len()).filter(has).map(|number| weights[number]).sum()
        };
        let mut candidates: Vec<(u64, u8)> = POINTERS.map(|r| (score(r), r)).to_vec();
        candidates.retain(|(score, _)| *score > 0);
        candidates.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let mut expected = HashMap::new();
        for (rank, (_, register)) in candidates.into_iter().enumerate() {
            for (number, piece) in plan.pieces.iter().enumerate() {
                let all_along = rank == 0 || through[number].has(Register(register));
                if can[number].has(Register(register)) && all_along {
                    expected.entry(piece.entry).or_insert(register);
                }
            }
        }
        Self { expected, free }
    }

    /// The register in which the block at an address finds the place; none if it does in memory.
    pub(crate) fn expected(&self, entry: GuestVa) -> Option<u8> {
        self.expected.get(&entry).copied()
    }

    /// Registers that can hold the place across an instruction.
    pub(crate) fn free(&self, i: usize) -> Set {
        self.free.get(i).copied().unwrap_or(Set::EMPTY)
    }

    /// The registers that blocks want to which a piece leads, and which hold the place until then if the piece begins with it.
    pub(crate) fn wished(&self, piece: &Piece, insts: &[&Inst]) -> Set {
        let targets = insts.iter().filter_map(|inst| match inst.flow() {
            Flow::Jump(to) | Flow::Cond(to) => Some(to),
            _ => None,
        });
        let last = insts.last().filter(|inst| inst.flow().falls_through());
        let all = targets.chain(last.map(|inst| inst.next_pc()));
        let wished: Set = all.filter_map(|to| self.expected(to)).map(Register).collect();
        if varies(piece) { Set::EMPTY } else { wished }
    }
}

fn varies(piece: &Piece) -> bool {
    piece.steps.iter().any(|step| matches!(step, Step::Flex { .. }))
}

impl Emitter {
    /// A block begins: the place is where it expects it.
    pub(crate) fn hold_from(&mut self, expected: Option<u8>) {
        self.hold(match expected {
            Some(register) => Held { registers: Set::only(Register(register)), stored: false },
            None => Held::default(),
        });
    }

    /// The place is somewhere from the next instruction on.
    pub(super) fn hold(&mut self, held: Held) {
        self.held = held;
        self.midway();
    }

    /// The place is in a register alone.
    pub(super) fn holds_alone(&mut self, register: u8) {
        self.hold(Held { registers: Set::only(Register(register)), stored: false });
    }

    /// Sees to it that memory has the place.
    pub(crate) fn settle(&mut self) {
        if let Some(pointer) = self.held.pointer().filter(|_| !self.held.stored) {
            self.store(context(PLACE), pointer);
            self.hold(Held { stored: true, ..self.held });
        }
    }

    /// Before an instruction across which these registers can hold the place.
    pub(crate) fn keep(&mut self, free: Set) {
        let registers = self.held.registers.and(free);
        if registers == self.held.registers {
            return;
        }
        if registers.is_empty() {
            self.settle();
        }
        self.hold(Held { registers, ..self.held });
    }

    /// Sees to it that the place is where a block expects it.
    pub(crate) fn give(&mut self, expected: Option<u8>) {
        let Some(register) = expected else { return self.settle() };
        if self.held.registers.has(Register(register)) {
            return;
        }
        match self.held.pointer() {
            Some(from) => {
                self.push(Instruction::with2(Code::Mov_r64_rm64, name(register), name(from)));
            }
            None => self.load(register, context(PLACE)),
        }
        let registers = self.held.registers.or(Set::only(Register(register)));
        self.hold(Held { registers, ..self.held });
    }

    /// Before an instruction of a piece in one of its turns: the place is where it will be looked for.
    pub(crate) fn carry(
        &mut self,
        inst: &Inst,
        (piece, i): (&Piece, usize),
        (turn, turns): (usize, usize),
        carriers: &Carriers,
    ) {
        let last = i + 1 == piece.insns.end;
        let next = carriers.expected(inst.next_pc());
        match inst.flow() {
            Flow::Next => {
                self.keep(carriers.free(i));
                if last && next.is_none() {
                    self.settle();
                }
            }
            Flow::Jump(to) => {
                self.keep(carriers.free(i));
                // Another turn follows else.
                if turn + 1 == turns {
                    self.give(carriers.expected(to));
                }
            }
            Flow::Cond(to) => {
                self.keep(carriers.free(i));
                // Ways out of later turns see to it themselves.
                let turns_back = turns > 1 && last;
                if if turns_back { turn + 1 == turns } else { turn == 0 } {
                    self.give(carriers.expected(to));
                }
                if last && turn == 0 {
                    self.give(next);
                }
            }
            _ => {
                self.settle();
                self.keep(Set::EMPTY);
            }
        }
    }

    /// Behind a block's last instruction, sees to it that the place is where the next one expects it, before the block at `next`.
    pub(crate) fn give_behind(&mut self, expected: Option<u8>, next: GuestVa) {
        let begin = self.instrs.len();
        let before = (self.pc, self.turn);
        (self.pc, self.turn) = (next, 0);
        self.give(expected);
        if self.instrs.len() > begin {
            self.unstored(begin);
        }
        (self.pc, self.turn) = before;
    }
}
