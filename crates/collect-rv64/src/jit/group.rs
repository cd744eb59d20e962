//! Groups: accesses by one base register that lie close together, such as those that
//! save and restore registers, with at most simple computation in between. They are
//! looked up once, if they turn out to lie in one page; in profiled code, in one line,
//! where they leave the time of the last one.
//!
//! That is as if each had been looked up: nothing else touches data in between, so
//! nobody can see the times of the others. A group that lies in two lines, or in one
//! that does not pass, is accessed one by one, apart. In code that is not profiled,
//! the interpreter carries such a group out.
//!
//! The place of the group is in `rdx` meanwhile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Insn, Op};

use crate::jit::block::Block;
use crate::jit::cold::{Area, Cold};
use crate::jit::x86::{Alu, Cond, Hole, Mem, Operand, R14, R15, RAX, RCX, RDX, W64};
use crate::jit::{float, integer, transfer};
use crate::tlb::{ADDEND, READ_TAG, WRITE_TAG};

/// Bytes that a group may span in code that is not profiled, as a power of two: far
/// less than a page, so that it hardly ever lies in two.
const GROUP_SHIFT: u32 = 8;

/// Accesses of a block: among its instructions from one number up to another, the
/// first of which is at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    first: usize,
    end: usize,
    pc: u64,
    /// The lowest displacement, and the bytes from there to the last one's end.
    low: i32,
    span: i32,
    accesses: usize,
    store: bool,
}

/// What an access is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    bytes: u8,
    store: bool,
    float: bool,
}

fn shape(op: Op) -> Option<Shape> {
    let (bytes, store, float) = match op {
        Op::Lb | Op::Lbu => (1, false, false),
        Op::Lh | Op::Lhu => (2, false, false),
        Op::Lw | Op::Lwu => (4, false, false),
        Op::Ld => (8, false, false),
        Op::Fld => (8, false, true),
        Op::Sb => (1, true, false),
        Op::Sh => (2, true, false),
        Op::Sw => (4, true, false),
        Op::Sd => (8, true, false),
        Op::Fsd => (8, true, true),
        _ => return None,
    };
    Some(Shape { bytes, store, float })
}

/// Whether an operation does nothing but compute, and is translated without `rdx`.
const fn is_quiet(op: Op) -> bool {
    matches!(
        op,
        Op::Addi
            | Op::Addiw
            | Op::Andi
            | Op::Ori
            | Op::Xori
            | Op::Slli
            | Op::Srli
            | Op::Srai
            | Op::Slliw
            | Op::Srliw
            | Op::Sraiw
            | Op::Lui
            | Op::Auipc
            | Op::Add
            | Op::Sub
            | Op::Addw
            | Op::Subw
            | Op::And
            | Op::Or
            | Op::Xor
    )
}

impl Block<'_> {
    /// The group that begins with the present instruction, whose line of code is
    /// the last one touched.
    pub(crate) fn group(&self, insns: &[Insn]) -> Option<Group> {
        let book = self.book.as_ref();
        let longest = 1_i32 << book.map_or(GROUP_SHIFT, |book| book.data_shift);
        let head = insns.get(self.index)?;
        let kind = shape(head.op)?;
        let mut group = Group {
            first: self.index,
            end: self.index,
            pc: self.pc,
            low: head.imm,
            span: 0,
            accesses: 0,
            store: kind.store,
        };
        let mut pc = self.pc;
        for (number, insn) in insns.iter().enumerate().skip(self.index) {
            let behind = pc.wrapping_add(insn.len.into());
            let last = behind.wrapping_sub(1);
            let in_line = book.is_none_or(|book| {
                [pc, last].map(|at| at >> book.code_shift)
                    == [self.line; 2].map(|line| line.unwrap_or(u64::MAX))
            });
            let Some(next) = shape(insn.op) else {
                if !in_line || !is_quiet(insn.op) || insn.rd == head.rs1 {
                    break;
                }
                pc = behind;
                continue;
            };
            let high = (group.low + group.span).max(insn.imm + i32::from(next.bytes));
            let low = group.low.min(insn.imm);
            if !in_line || insn.rs1 != head.rs1 || next.store != kind.store || high - low > longest
            {
                break;
            }
            (group.low, group.span, group.end) = (low, high - low, number + 1);
            group.accesses += 1;
            pc = behind;
            if !next.store && !next.float && insn.rd == head.rs1 {
                break;
            }
        }
        (group.accesses > 1).then_some(group)
    }

    /// Translates a group; the present instruction is its last one then.
    pub(crate) fn translate_group(&mut self, group: &Group, insns: &[Insn]) {
        let Some(members) = insns.get(group.first..group.end) else { return };
        if members.iter().any(|i| shape(i.op).is_some_and(|s| s.float)) {
            float::check_on(self);
        }
        let Some(head) = members.first() else { return };
        let hole = self.reach_group(group, head.rs1);
        for insn in members {
            self.len = insn.len;
            self.translate_member(group, insn);
            self.pc = self.behind();
        }
        self.pc = self.pc.wrapping_sub(self.len.into());
        self.index = group.end - 1;
        if let Some(hole) = hole {
            let (back, held) = (self.code.here(), self.held);
            self.cold.push(Cold::Singly { hole, back, group: *group, held });
        }
    }

    /// Translates an instruction of a group whose place is known.
    fn translate_member(&mut self, group: &Group, insn: &Insn) {
        let Some(kind) = shape(insn.op) else {
            integer::translate(self, insn);
            return;
        };
        let at = insn.imm - group.low;
        let at = if self.book.is_some() { Mem::at(RDX, at) } else { Mem::indexed(R14, RDX, at) };
        match (kind.float, kind.store) {
            (false, false) => transfer::load_from(self, insn, at),
            (false, true) => transfer::store_to(self, insn, (kind.bytes, at)),
            (true, false) => float::load_from(self, insn, (kind.bytes, at)),
            (true, true) => float::store_to(self, insn, (kind.bytes, at)),
        }
    }

    /// Puts the host's address of a group into `rdx`, or the offset into RAM in code
    /// that is not profiled. Where to go if that cannot be, if not to the interpreter.
    fn reach_group(&mut self, group: &Group, base: u8) -> Option<Hole> {
        let tag = if group.store { WRITE_TAG } else { READ_TAG };
        transfer::address(self, (RDX, base), group.low);
        if self.book.is_none() {
            transfer::find_page(self, (RDX, RAX), (group.span, tag));
            self.interpret_if(Cond::NotEqual);
            self.code.alu(W64, Alu::Add, RDX, Operand::Mem(Mem::indexed(R15, RCX, ADDEND)));
            return None;
        }
        self.find_line((RDX, RAX), (group.span, tag));
        let hole = self.code.jump_if(Cond::NotEqual);
        let index = std::mem::replace(&mut self.index, group.end - 1);
        self.use_line((RDX, RAX));
        self.index = index;
        Some(hole)
    }

    /// Translates the accesses of a group one by one.
    pub(crate) fn write_singly(&mut self, group: &Group) {
        debug_assert_eq!(self.area, Area::Far);
        let kept = (self.index, self.pc, self.len, self.more, self.line);
        let insns = std::mem::take(&mut self.insns);
        self.pc = group.pc;
        for number in group.first..group.end {
            let Some(insn) = insns.get(number) else { break };
            self.line = self.book.as_ref().map(|book| self.pc >> book.code_shift);
            (self.index, self.len, self.more) = (number, insn.len, number + 1 < insns.len());
            self.step(insn);
            self.pc = self.behind();
        }
        self.insns = insns;
        (self.index, self.pc, self.len, self.more, self.line) = kept;
    }
}
