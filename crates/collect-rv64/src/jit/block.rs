//! Translates one block: straight-line code of one page with conditional exits.
//!
//! Layout: entry check (enough instructions left?), then the instructions, then
//! taken branches; apart from these, see `cold`, slow memory accesses, jumps that are
//! not linked yet, and the way out when the check fails. `r13` counts at exits only, by what has retired until then,
//! so that a block costs one compare and one subtraction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::CacheAddr;
use ichnos_isa_rv64::{Class, Insn};

use crate::cpu::SINK;
use crate::jit::cold::{Area, Cold, Other};
use crate::jit::held::Held;
use crate::jit::profiled::TICKS;
use crate::jit::state::{STATE, ceiling, mapped, operand, x_place};
use crate::jit::thunks::Thunks;
use crate::jit::x86::{Alu, Code, Cond, Hole, Mem, Operand, R13, RAX, RBX, RCX, Reg, W32, W64};
use crate::jit::{float, integer, transfer};
use crate::profile::Book;
use crate::ram::PAGE_SIZE;

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

/// The parts of a jump to another page. It compares the state of translations with
/// the one under which it was linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Far {
    /// The number that is compared with.
    pub(crate) state: CacheAddr,
    /// The displacement of the jump that leaves under another state.
    pub(crate) other: CacheAddr,
    /// The way through the hart's table of jumps.
    pub(crate) by_table: CacheAddr,
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
    /// What stands apart from them.
    pub(crate) far: Vec<u8>,
    pub(crate) links: Vec<Link>,
    /// The way out when too few instructions are left.
    pub(crate) limit_exit: CacheAddr,
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

/// A block under construction.
pub(crate) struct Block<'a> {
    pub(crate) code: Code,
    pub(crate) thunks: &'a Thunks,
    /// Where the present area will stand.
    pub(crate) base: CacheAddr,
    /// The present area, and the other.
    pub(crate) area: Area,
    pub(crate) other: Other,
    /// The instructions of the block.
    pub(crate) insns: Vec<Insn>,
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
    /// Compares with the block's length inside of it, each with the jump behind it.
    limits: Vec<(usize, Hole)>,
    pub(crate) cold: Vec<Cold>,
    links: Vec<Link>,
    first_site: u64,
    /// What vector registers hold.
    pub(crate) held: Held,
    /// Whether the block has checked that floating point may be used.
    pub(crate) float_checked: bool,
    /// Whether it has checked that the dynamic rounding mode is to nearest.
    pub(crate) rounding_checked: bool,
    /// Whether it has taken note that floating-point registers changed.
    pub(crate) float_noted: bool,
}

impl<'a> Block<'a> {
    /// A block at guest address `start`, to stand at `base` and `far`; its links
    /// are numbered from `first_site`.
    pub(crate) fn new(
        thunks: &'a Thunks,
        (base, far): (CacheAddr, CacheAddr),
        (start, first_site): (u64, u64),
        book: Option<&'a mut Book>,
    ) -> Self {
        Self {
            code: Code::default(),
            thunks,
            base,
            area: Area::Near,
            other: Other { code: Code::default(), base: far },
            insns: Vec::new(),
            start,
            pc: start,
            index: 0,
            len: 0,
            book,
            line: None,
            more: false,
            body: None,
            loops: Vec::new(),
            limits: Vec::new(),
            cold: Vec::new(),
            links: Vec::new(),
            first_site,
            held: Held::default(),
            float_checked: false,
            rounding_checked: false,
            float_noted: false,
        }
    }

    /// Translates instructions until one ends the block or is not known. None if
    /// there is nothing to translate.
    pub(crate) fn translate(mut self, insns: &[Insn]) -> Option<Translated> {
        let entry = self.check_limit();
        self.insns = insns.to_vec();
        let ended = self.translate_all(insns);
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
        self.write_cold();
        let limit_exit = (Area::Far, self.other.code.here());
        self.apart(|block| {
            block.code.mov_imm(RAX, block.start);
            block.jump_to(block.thunks.limit);
        });
        let count = match self.book {
            Some(_) => ceiling(insns).disp.to_le_bytes(),
            None => i32::try_from(insns).ok()?.to_le_bytes(),
        };
        let limits = std::mem::take(&mut self.limits);
        for (place, limit) in [Some(entry), second].into_iter().flatten().chain(limits) {
            self.connect((Area::Near, limit), limit_exit);
            self.code.bytes.get_mut(place..place + 4)?.copy_from_slice(&count);
        }
        let limit_exit = self.standing(limit_exit);
        let (bytes, far) = (self.code.bytes, self.other.code.bytes);
        Some(Translated { bytes, far, links: self.links, limit_exit, side, insns })
    }

    /// Translates instructions; whether the last one ended the block.
    fn translate_all(&mut self, insns: &[Insn]) -> bool {
        while let Some(insn) = insns.get(self.index) {
            self.len = insn.len;
            self.more = self.index + 1 < insns.len();
            let before = (self.code.here(), self.cold.len());
            self.touch_code();
            if self.index == 0 && self.is_in_line(self.pc, self.behind().wrapping_sub(1)) {
                if self.is_loop(insns) {
                    float::check_ahead(self, insns);
                }
                self.body = Some(self.code.here());
            }
            let step = match self.group(insns) {
                Some(group) => {
                    self.translate_group(&group, insns);
                    Step::Next
                }
                None if self.translate_pair(insns) => Step::Next,
                None => self.step(insn),
            };
            if step == Step::Unknown {
                // Whoever carries it out also fetches it.
                self.code.bytes.truncate(before.0);
                self.cold.truncate(before.1);
                return false;
            }
            self.index += 1;
            self.pc = self.behind();
            if step == Step::End {
                return true;
            }
        }
        false
    }

    /// Translates two instructions as one, if they can be and lie in one line; the
    /// second is the present one then.
    fn translate_pair(&mut self, insns: &[Insn]) -> bool {
        let Some([one, other]) = insns.get(self.index..self.index + 2) else { return false };
        let (pc, last) = (self.behind(), self.behind().wrapping_add(other.len.into()) - 1);
        let line = |at: u64| self.book.as_ref().map(|book| at >> book.code_shift);
        if line(pc) != line(self.pc) || line(last) != line(self.pc) {
            return false;
        }
        let done = integer::translate_pair(self, one, other);
        if done {
            (self.pc, self.len) = (pc, other.len);
            self.index += 1;
        }
        done
    }

    /// The entry for jumps that need not touch the first line, and its check.
    fn side_door(&mut self) -> (usize, Option<(usize, Hole)>) {
        let (side, check) = match self.body {
            Some(body) if self.book.is_some() => {
                let side = self.code.here();
                let check = self.check_limit();
                if self.is_loop(&self.insns) {
                    self.check_again();
                }
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

    /// Whether one of its branches leads to its start.
    fn is_loop(&self, insns: &[Insn]) -> bool {
        let mut pc = self.start;
        insns.iter().any(|insn| {
            let target = pc.wrapping_add(insn.imm as i64 as u64);
            pc = pc.wrapping_add(insn.len.into());
            insn.op.row().class == Class::Branch && target == self.start
        })
    }

    /// Checks for the first instruction once more what was checked for it ahead.
    fn check_again(&mut self) {
        let insns = std::mem::take(&mut self.insns);
        (self.index, self.pc) = (0, self.start);
        (self.float_checked, self.rounding_checked) = (false, false);
        float::check_ahead(self, &insns);
        self.insns = insns;
    }

    /// The present instruction branches to the block's start, if the condition holds:
    /// whether that could be translated so that nothing stands between the branch and
    /// what it leads to.
    pub(crate) fn loop_if(&mut self, cond: Cond, target: u64) -> bool {
        let Some(body) = self.body.filter(|_| target == self.start) else { return false };
        let Some(other) = cond.inverse().filter(|_| self.door(target) == Door::Side) else {
            return false;
        };
        let past = self.code.jump_if(other);
        self.count_arc(self.behind(), target);
        self.retire(self.index + 1);
        let place = self.compare_limit();
        let again = self.code.jump_if(Cond::Below);
        self.code.fill(again, body);
        let limit = self.code.jump();
        self.limits.push((place, limit));
        self.code.fill_here(past);
        true
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

    /// The compare with the block's length, or the ceiling for it, which is filled in
    /// at the end: its
    /// place and the jump that follows it.
    fn check_limit(&mut self) -> (usize, Hole) {
        let place = self.compare_limit();
        let cond = if self.book.is_some() { Cond::AboveEqual } else { Cond::Less };
        (place, self.code.jump_if(cond))
    }

    /// The compare by itself.
    fn compare_limit(&mut self) -> usize {
        // A large number forces the long form of the instruction.
        if self.book.is_some() {
            self.code.alu(W64, Alu::Cmp, R13, Operand::Mem(Mem::at(RBX, i32::MAX)));
        } else {
            self.code.alu_imm(W64, Alu::Cmp, Operand::Reg(R13), i32::MAX);
        }
        self.code.here() - 4
    }

    pub(crate) fn step(&mut self, insn: &Insn) -> Step {
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
        let (op, ticks) =
            if self.book.is_some() { (Alu::Add, TICKS as i32) } else { (Alu::Sub, 1) };
        self.code.alu_imm(W64, op, Operand::Reg(R13), ticks * retired as i32);
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
        self.ask_for_link(&[hole], Link { displacement: hole.0, target, door, far: None });
    }

    /// Lets jumps leave so that one is linked.
    fn ask_for_link(&mut self, holes: &[Hole], link: Link) {
        let site = self.first_site + self.links.len() as u64;
        self.links.push(link);
        self.apart(|block| {
            for &hole in holes {
                block.connect((Area::Near, hole), block.here());
            }
            block.code.mov_imm(RAX, link.target);
            block.code.mov_imm(RCX, site);
            block.jump_to(block.thunks.link);
        });
    }

    /// Goes on at a fixed guest address of another page. The jump can be linked as
    /// long as translations are what they were then.
    fn go_far(&mut self, target: u64, door: Door) {
        // A large number forces the long form of the instruction. No state has it.
        self.code.alu_imm(W32, Alu::Cmp, Operand::Mem(STATE), i32::MAX);
        let state = self.code.here() - 4;
        let other = self.code.jump_if(Cond::NotEqual);
        let hole = self.code.jump();
        let by_table = self.standing((Area::Far, self.other.code.here()));
        self.apart(|block| {
            block.code.mov_imm(RAX, target);
            block.jump_to(block.thunks.indirect);
        });
        let far = Far {
            state: self.standing((Area::Near, state)),
            other: self.standing((Area::Near, other.0)),
            by_table,
        };
        let link = Link { displacement: hole.0, target, door, far: Some(far) };
        self.ask_for_link(&[other, hole], link);
    }

    /// Counts what has retired and lets the interpreter go on at `pc`.
    pub(crate) fn leave_to_interpreter(&mut self, retired: usize, pc: u64) {
        if retired > 0 {
            self.retire(retired);
        }
        self.code.mov_imm(RAX, pc);
        self.jump_to(self.thunks.interpret);
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
