//! Translates one block: straight-line code of one page with conditional exits.
//!
//! Layout: entry check (enough instructions left?), then the instructions, then
//! the cold parts: taken branches, slow memory accesses, the way out when the
//! check fails. `r13` counts down at exits only, by what has retired until then,
//! so that a block costs one compare and one subtraction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::CacheAddr;
use ichnos_isa_rv64::Insn;

use crate::cpu::SINK;
use crate::jit::profiled::Helper;
use crate::jit::state::{CEILING, STATE, mapped, operand, x_place};
use crate::jit::thunks::Thunks;
use crate::jit::x86::{Alu, Code, Cond, Hole, Mem, Operand, R13, RAX, RCX, Reg, W32, W64};
use crate::jit::{float, integer, transfer};
use crate::profile::Book;
use crate::ram::PAGE_SIZE;

/// Bytes of the jump that overwrites the entry of a block that is no more.
pub(crate) const ENTRY_JUMP: usize = 5;

/// A jump that can be linked to its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// Where its displacement stands, from the block's start.
    pub(crate) displacement: usize,
    /// The guest address it goes to.
    pub(crate) target: u64,
    pub(crate) door: Door,
    /// For a jump to another page: what makes it valid.
    pub(crate) far: Option<Far>,
}

/// The parts of a jump to another page, from the block's start. It compares the
/// state of translations with the one under which it was linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Far {
    /// The number that is compared with.
    pub(crate) state: usize,
    /// The displacement of the jump that leaves under another state.
    pub(crate) other: usize,
    /// The way through the hart's table of jumps.
    pub(crate) by_table: usize,
}

impl Far {
    /// The same of a block that stands at `at`.
    pub(crate) const fn standing_at(self, at: CacheAddr) -> Self {
        let at = at.0 as usize;
        Self { state: self.state + at, other: self.other + at, by_table: self.by_table + at }
    }
}

/// Where a linked jump enters a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// At its start.
    Front,
    /// Behind the touch of its first line, which was fetched last.
    Side,
}

/// A translated block.
#[derive(Debug)]
pub(crate) struct Translated {
    pub(crate) bytes: Vec<u8>,
    pub(crate) links: Vec<Link>,
    /// The way out when too few instructions are left, from the block's start.
    pub(crate) limit_exit: usize,
    /// The entry for jumps from its first line; its start if it has no other.
    pub(crate) side: usize,
    /// Guest instructions translated.
    pub(crate) insns: usize,
}

/// What became of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Translated; the next one follows.
    Next,
    /// Translated; nothing follows.
    End,
    /// Not translated.
    Unknown,
}

/// Cold code that is still to be written.
#[derive(Clone, Copy, Debug)]
enum Cold {
    /// A taken branch: `retired` instructions, then on to `target`.
    Taken { hole: Hole, retired: usize, target: u64, from: u64, door: Door },
    /// An instruction for the interpreter: `retired` before it.
    Interpret { hole: Hole, retired: usize, pc: u64 },
    /// A helper for a profile, see [`Helper`].
    Help { hole: Hole, back: usize, helper: Helper },
}

/// A block under construction.
pub(crate) struct Block<'a> {
    pub(crate) code: Code,
    pub(crate) thunks: &'a Thunks,
    /// Where the block will stand.
    base: CacheAddr,
    /// The guest address of its first instruction.
    start: u64,
    /// The guest address of the present instruction.
    pub(crate) pc: u64,
    /// Instructions before the present one.
    pub(crate) index: usize,
    /// The length of the present instruction in bytes.
    pub(crate) len: u8,
    /// Where a profile's words are, if there is one.
    pub(crate) book: Option<&'a mut Book>,
    /// The line of code that was touched last.
    pub(crate) line: Option<u64>,
    /// Whether an instruction follows in this block.
    pub(crate) more: bool,
    /// Where the first instruction begins behind the touch of its line, if it
    /// lies in one line.
    body: Option<usize>,
    /// Jumps to the block's own side door.
    loops: Vec<Hole>,
    cold: Vec<Cold>,
    links: Vec<Link>,
    first_site: u64,
    /// Whether the block has checked that floating point may be used.
    pub(crate) float_checked: bool,
    /// Whether it has checked that the dynamic rounding mode is to nearest.
    pub(crate) rounding_checked: bool,
}

impl<'a> Block<'a> {
    /// A block at guest address `start`, to stand at `base`; its links are
    /// numbered from `first_site`.
    pub(crate) fn new(
        thunks: &'a Thunks,
        base: CacheAddr,
        (start, first_site): (u64, u64),
        book: Option<&'a mut Book>,
    ) -> Self {
        Self {
            code: Code::default(),
            thunks,
            base,
            start,
            pc: start,
            index: 0,
            len: 0,
            book,
            line: None,
            more: false,
            body: None,
            loops: Vec::new(),
            cold: Vec::new(),
            links: Vec::new(),
            first_site,
            float_checked: false,
            rounding_checked: false,
        }
    }

    /// Translates instructions until one ends the block or is not known. None if
    /// there is nothing to translate.
    pub(crate) fn translate(mut self, insns: &[Insn]) -> Option<Translated> {
        let entry = self.check_limit();
        let mut ended = false;
        for (n, insn) in insns.iter().enumerate() {
            self.len = insn.len;
            self.more = n + 1 < insns.len();
            let before = (self.code.here(), self.cold.len());
            self.touch_code();
            if n == 0 && self.is_in_line(self.pc, self.behind().wrapping_sub(1)) {
                self.body = Some(self.code.here());
            }
            match self.step(insn) {
                Step::Next => {}
                Step::Unknown => {
                    // Whoever carries it out also fetches it.
                    self.code.bytes.truncate(before.0);
                    self.cold.truncate(before.1);
                    break;
                }
                Step::End => ended = true,
            }
            self.index += 1;
            self.pc = self.pc.wrapping_add(insn.len.into());
            if ended {
                break;
            }
        }
        if self.index == 0 {
            return None;
        }
        let insns = self.index;
        if !ended {
            // The last instruction may have thrown its own line out.
            self.go(insns, self.pc, Door::Front);
        }
        self.write_cold();
        let (side, second) = self.side_door();
        let limit_exit = self.code.here();
        self.code.mov_imm(RAX, self.start);
        self.jump_to(self.thunks.limit);
        let count = i32::try_from(insns).ok()?.to_le_bytes();
        for (place, limit) in [Some(entry), second].into_iter().flatten() {
            self.code.fill(limit, limit_exit);
            self.code.bytes.get_mut(place..place + 4)?.copy_from_slice(&count);
        }
        Some(Translated { bytes: self.code.bytes, links: self.links, limit_exit, side, insns })
    }

    /// The entry for jumps that need not touch the first line, and its check.
    fn side_door(&mut self) -> (usize, Option<(usize, Hole)>) {
        let (side, check) = match self.body {
            Some(body) if self.book.is_some() => {
                let side = self.code.here();
                let check = self.check_limit();
                let hole = self.code.jump();
                self.code.fill(hole, body);
                (side, Some(check))
            }
            _ => (0, None),
        };
        for hole in std::mem::take(&mut self.loops) {
            self.code.fill(hole, side);
        }
        (side, check)
    }

    /// Whether two addresses are in one line of code.
    fn is_in_line(&self, one: u64, other: u64) -> bool {
        self.book.as_ref().is_some_and(|book| (one ^ other) >> book.code_shift == 0)
    }

    /// The door for a jump of the present instruction.
    pub(crate) fn door(&self, target: u64) -> Door {
        let near = self.is_in_line(target, self.behind().wrapping_sub(1));
        if near { Door::Side } else { Door::Front }
    }

    /// The compare with the block's length, which is filled in at the end: its
    /// place and the jump that follows it.
    fn check_limit(&mut self) -> (usize, Hole) {
        // A large number forces the long form of the instruction.
        if self.book.is_some() {
            self.code.lea(RAX, Mem::at(R13, i32::MAX));
            let place = self.code.here() - 4;
            self.code.alu(W64, Alu::Cmp, RAX, Operand::Mem(CEILING));
            return (place, self.code.jump_if(Cond::Above));
        }
        self.code.alu_imm(W64, Alu::Cmp, Operand::Reg(R13), i32::MAX);
        let place = self.code.here() - 4;
        (place, self.code.jump_if(Cond::Less))
    }

    fn step(&mut self, insn: &Insn) -> Step {
        let known = integer::translate(self, insn);
        if known != Step::Unknown {
            return known;
        }
        let known = transfer::translate(self, insn);
        if known != Step::Unknown {
            return known;
        }
        float::translate(self, insn)
    }

    /// A jump to shared code.
    pub(crate) fn jump_to(&mut self, target: CacheAddr) {
        let hole = self.code.jump();
        self.fill_shared(hole, target);
    }

    /// Lets a jump or call go to shared code.
    pub(crate) fn fill_shared(&mut self, hole: Hole, target: CacheAddr) {
        let displacement = target.0 as i64 - (self.base.0 as i64 + hole.0 as i64 + 4);
        if let Some(bytes) = self.code.bytes.get_mut(hole.0..hole.0 + 4) {
            bytes.copy_from_slice(&(displacement as i32).to_le_bytes());
        }
    }

    /// Counts what has retired and looks up the block at the address in `rax`.
    pub(crate) fn go_indirect(&mut self, retired: usize) {
        if self.book.is_some() {
            return self.go_counted(retired);
        }
        self.retire(retired);
        self.jump_to(self.thunks.indirect);
    }

    /// Counts instructions: down what may still retire, or up the clock.
    pub(crate) fn retire(&mut self, retired: usize) {
        let op = if self.book.is_some() { Alu::Add } else { Alu::Sub };
        self.code.alu_imm(W64, op, Operand::Reg(R13), retired as i32);
    }

    /// The address behind the present instruction.
    pub(crate) fn behind(&self) -> u64 {
        self.pc.wrapping_add(self.len.into())
    }

    /// Counts what has retired and goes on at a fixed guest address. Inside the
    /// page the jump can be linked for good: the page's translation is the present
    /// one.
    pub(crate) fn go(&mut self, retired: usize, target: u64, door: Door) {
        self.retire(retired);
        let same_page = (target ^ self.start) < PAGE_SIZE as u64;
        if !same_page {
            return self.go_far(target, door);
        }
        let hole = self.code.jump();
        match door {
            Door::Front if target == self.start => return self.code.fill(hole, 0),
            Door::Side if target == self.start => return self.loops.push(hole),
            _ => {}
        }
        self.code.fill_here(hole);
        self.ask_for_link(Link { displacement: hole.0, target, door, far: None });
    }

    /// Leaves so that the jump is linked.
    fn ask_for_link(&mut self, link: Link) {
        let site = self.first_site + self.links.len() as u64;
        self.links.push(link);
        self.code.mov_imm(RAX, link.target);
        self.code.mov_imm(RCX, site);
        self.jump_to(self.thunks.link);
    }

    /// Goes on at a fixed guest address of another page. The jump can be linked as
    /// long as translations are what they were then.
    fn go_far(&mut self, target: u64, door: Door) {
        // A large number forces the long form of the instruction. No state has it.
        self.code.alu_imm(W32, Alu::Cmp, Operand::Mem(STATE), i32::MAX);
        let state = self.code.here() - 4;
        let other = self.code.jump_if(Cond::NotEqual);
        let hole = self.code.jump();
        let by_table = self.code.here();
        self.code.mov_imm(RAX, target);
        self.jump_to(self.thunks.indirect);
        self.code.fill_here(other);
        self.code.fill_here(hole);
        let far = Far { state, other: other.0, by_table };
        self.ask_for_link(Link { displacement: hole.0, target, door, far: Some(far) });
    }

    /// The present instruction goes to the interpreter if the condition holds.
    pub(crate) fn interpret_if(&mut self, cond: Cond) {
        let hole = self.code.jump_if(cond);
        self.cold.push(Cold::Interpret { hole, retired: self.index, pc: self.pc });
    }

    /// The present instruction branches to `target` if the condition holds.
    pub(crate) fn branch_if(&mut self, cond: Cond, target: u64) {
        let hole = self.code.jump_if(cond);
        let (from, door) = (self.behind(), self.door(target));
        self.cold.push(Cold::Taken { hole, retired: self.index + 1, target, from, door });
    }

    /// Counts what has retired and lets the interpreter go on at `pc`.
    pub(crate) fn leave_to_interpreter(&mut self, retired: usize, pc: u64) {
        if retired > 0 {
            self.retire(retired);
        }
        self.code.mov_imm(RAX, pc);
        self.jump_to(self.thunks.interpret);
    }

    /// A helper that the condition calls for, and that goes on right here.
    pub(crate) fn help_if(&mut self, cond: Cond, helper: Helper) -> usize {
        let hole = self.code.jump_if(cond);
        self.cold.push(Cold::Help { hole, back: 0, helper });
        self.cold.len() - 1
    }

    /// Where the helper of that number goes on: here.
    pub(crate) fn back_here(&mut self, number: usize) {
        let here = self.code.here();
        if let Some(Cold::Help { back, .. }) = self.cold.get_mut(number) {
            *back = here;
        }
    }

    fn write_cold(&mut self) {
        for cold in std::mem::take(&mut self.cold) {
            match cold {
                Cold::Taken { hole, retired, target, from, door } => {
                    self.code.fill_here(hole);
                    self.count_arc(from, target);
                    self.go(retired, target, door);
                }
                Cold::Help { hole, back, helper } => self.write_help(hole, back, helper),
                Cold::Interpret { hole, retired, pc } => {
                    self.code.fill_here(hole);
                    self.leave_to_interpreter(retired, pc);
                }
            }
        }
    }

    /// A register that holds a guest register: its own, or `scratch`.
    pub(crate) fn source(&mut self, register: u8, scratch: Reg) -> Reg {
        match mapped(register) {
            Some(reg) => reg,
            None => {
                self.code.mov(W64, scratch, operand(register));
                scratch
            }
        }
    }

    /// Where a result that needs `second` until the end may be computed: in the
    /// guest register's own host register, or in `rax`.
    pub(crate) fn target(&self, register: u8, first: u8, second: u8) -> Reg {
        match mapped(register) {
            Some(reg) if second != register || first == register => reg,
            _ => RAX,
        }
    }

    /// Makes a computed result a guest register's value.
    pub(crate) fn write(&mut self, register: u8, from: Reg) {
        match mapped(register) {
            Some(reg) => self.code.mov_rr(reg, from),
            None if register == SINK => {}
            None => self.code.store(8, x_place(register), from),
        }
    }

    /// Sets a guest register to a number, leaving `rax` alone.
    pub(crate) fn write_number(&mut self, register: u8, value: u64) {
        match mapped(register) {
            Some(reg) => self.code.mov_imm(reg, value),
            None if register == SINK => {}
            None => match i32::try_from(value as i64) {
                Ok(short) => self.code.store_imm(x_place(register), short),
                Err(_) => {
                    self.code.mov_imm(RCX, value);
                    self.code.store(8, x_place(register), RCX);
                }
            },
        }
    }
}
