//! Code that all blocks share: the way in, the ways out, and the lookup of
//! computed jumps.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem::offset_of;

use ichnos_base::CacheAddr;

use crate::jit::bring::{By, bring_line};
use crate::jit::state::{
    BIAS, CONTEXT, DATA_HELPER, FETCH_HELPER, JUMPS, KEY, MAPPED, MARK_DISTANCE, MXCSR,
    MXCSR_CLEAR, MXCSR_KEPT, PC, REASON, Reason, SITE, x_place,
};
use crate::jit::turn::{bring_code, bring_page};
use crate::jit::x86::{
    Alu, Code, Cond, Mem, Operand, R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI,
    RDX, RSI, RSP, Shift, W32, W64,
};
use crate::profile::{CLEAN, Line, WRITTEN};
use crate::tlb::JUMPS_COUNT;

/// Registers that the host's calling convention wants back.
const SAVED: [crate::jit::x86::Reg; 6] = [RBX, RBP, R12, R13, R14, R15];

/// Where the shared code stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thunks {
    /// `fn(hart, ram, bank, block, instructions) -> instructions left`.
    pub(crate) enter: CacheAddr,
    /// Leaves with `pc` in `rax`.
    pub(crate) interpret: CacheAddr,
    pub(crate) limit: CacheAddr,
    /// Leaves with `pc` in `rax` and a site's number in `ecx`.
    pub(crate) link: CacheAddr,
    /// Goes to the block at the address in `rax`, if it is known.
    pub(crate) indirect: CacheAddr,
    /// Leaves with `pc` in `rax` and the number of a computed transfer in `ecx`.
    pub(crate) uncounted: CacheAddr,
    /// Called with a guest address in `rax`, `pc` in `rdx` and a packed site in
    /// `ecx`; gives the host's address in `rax`, or zero.
    pub(crate) data: CacheAddr,
    /// Called with an address in `rax`, `pc` in `rdx` and a packed site in `ecx`.
    pub(crate) fetch: CacheAddr,
    /// Called with a line in `rdx` that stores do not pass to, and the place of its
    /// entry in `rcx`. If it is clean, marks it and lets stores pass: equal then. Leaves
    /// `rax` and `rcx` alone.
    pub(crate) mark: CacheAddr,
    /// Bring a line in by a load and by a store, see [`bring_line`].
    pub(crate) bring: CacheAddr,
    pub(crate) bring_written: CacheAddr,
    /// Whether the host turns one register right into another.
    pub(crate) turns_right: bool,
    /// Brings the page of a line of code into the TLB, see [`bring_code`].
    pub(crate) bring_code: CacheAddr,
}

/// Registers of the guest that the host's calling convention does not keep.
pub(crate) const LOST: [crate::jit::x86::Reg; 6] = [RSI, RDI, R8, R9, R10, R11];

impl Thunks {
    /// The shared code, to stand at the start of memory.
    pub(crate) fn generate() -> (Vec<u8>, Self) {
        let mut code = Code::default();
        let enter = address(&code);
        for reg in SAVED {
            code.push(reg);
        }
        code.alu_imm(W64, Alu::Sub, Operand::Reg(RSP), 8);
        code.lea(RBX, Mem::at(RDI, BIAS));
        code.mov_rr(R14, RSI);
        code.mov_rr(R15, RDX);
        code.mov_rr(R13, R8);
        code.mov_rr(RAX, RCX);
        code.control(2, MXCSR_CLEAR);
        for (guest, host) in MAPPED {
            code.mov(W64, host, Operand::Mem(x_place(guest)));
        }
        code.jump_reg(RAX);

        let mut leave = Vec::new();
        let mut exit = |code: &mut Code, reason: Reason| {
            let at = address(code);
            code.store_imm(REASON, reason as i32);
            leave.push(code.jump());
            at
        };
        let interpret = exit(&mut code, Reason::Interpret);
        let limit = exit(&mut code, Reason::Limit);
        let link = address(&code);
        code.store(8, SITE, RCX);
        exit(&mut code, Reason::Link);
        let uncounted = address(&code);
        code.store(8, SITE, RCX);
        exit(&mut code, Reason::Indirect);
        let lookup = code.here();
        exit(&mut code, Reason::Lookup);
        for hole in leave {
            code.fill_here(hole);
        }
        code.store(8, PC, RAX);
        code.control(3, MXCSR);
        for (guest, host) in MAPPED {
            code.store(8, x_place(guest), host);
        }
        code.mov_rr(RAX, R13);
        code.alu_imm(W64, Alu::Add, Operand::Reg(RSP), 8);
        for reg in SAVED.into_iter().rev() {
            code.pop(reg);
        }
        code.ret();

        let indirect = address(&code);
        lookup_jump(&mut code, lookup);
        let data = call_helper(&mut code, DATA_HELPER);
        let fetch = call_helper(&mut code, FETCH_HELPER);
        let mark = mark_line(&mut code);
        let page = bring_page(&mut code);
        let bring = bring_line(&mut code, By::Load, (mark, page));
        let bring_written = bring_line(&mut code, By::Store, (mark, page));
        let bring_code = bring_code(&mut code, page);
        let thunks = Self {
            enter,
            interpret,
            limit,
            link,
            indirect,
            uncounted,
            data,
            fetch,
            mark,
            bring,
            bring_written,
            turns_right: std::arch::is_x86_feature_detected!("bmi2"),
            bring_code,
        };
        (code.bytes, thunks)
    }
}

/// Calls `fn(context, address, pc, site, clock)` for generated code. The host's
/// stack is aligned while generated code runs; the call pushed eight bytes, this
/// pushes 48 and skips eight.
fn call_helper(code: &mut Code, helper: Mem) -> CacheAddr {
    let at = address(code);
    for reg in LOST {
        code.push(reg);
    }
    code.alu_imm(W64, Alu::Sub, Operand::Reg(RSP), 8);
    code.control(3, MXCSR_KEPT);
    code.mov_rr(R8, R13);
    code.mov_rr(RSI, RAX);
    code.mov(W64, RDI, Operand::Mem(CONTEXT));
    code.call_mem(helper);
    // The guest's flags are the host's: what a helper raised is undone, which is
    // hardly ever needed and slow.
    code.control(3, MXCSR);
    code.mov(W32, RCX, Operand::Mem(MXCSR_KEPT));
    code.alu(W32, Alu::Cmp, RCX, Operand::Mem(MXCSR));
    let same = code.jump_if(Cond::Equal);
    code.control(2, MXCSR_KEPT);
    code.fill_here(same);
    code.alu_imm(W64, Alu::Add, Operand::Reg(RSP), 8);
    for reg in LOST.into_iter().rev() {
        code.pop(reg);
    }
    code.ret();
    at
}

/// Marks a clean line as written.
fn mark_line(code: &mut Code) -> CacheAddr {
    let at = address(code);
    let field = |offset: usize| Mem::indexed(R15, RCX, offset as i32);
    let tag = field(offset_of!(Line, write));
    code.alu_imm(W64, Alu::Or, Operand::Reg(RDX), CLEAN as i32);
    code.alu(W64, Alu::Cmp, RDX, Operand::Mem(tag));
    let other = code.jump_if(Cond::NotEqual);
    code.alu_imm(W64, Alu::Xor, Operand::Reg(RDX), CLEAN as i32);
    code.store(8, tag, RDX);
    code.mov(W64, RDX, Operand::Mem(field(offset_of!(Line, stamp))));
    code.alu(W64, Alu::Add, RDX, Operand::Mem(MARK_DISTANCE));
    code.alu_imm(W64, Alu::Or, Operand::Mem(Mem::at(RDX, 0)), WRITTEN as i32);
    code.alu(W64, Alu::Cmp, RDX, Operand::Reg(RDX));
    code.fill_here(other);
    code.ret();
    at
}

pub(crate) fn address(code: &Code) -> CacheAddr {
    CacheAddr(code.here() as u64)
}

/// Finds the block at the address in `rax` in the hart's table of jumps, or goes
/// to `lookup`. An entry is 16 bytes, found by the address without its lowest
/// bit, and tagged with the address and the key of the present translations.
fn lookup_jump(code: &mut Code, lookup: usize) {
    code.mov(W64, RDX, Operand::Mem(JUMPS));
    code.mov(W32, RCX, Operand::Reg(RAX));
    code.shift_imm(W32, Shift::Left, RCX, 3);
    code.alu_imm(W32, Alu::And, Operand::Reg(RCX), ((JUMPS_COUNT - 1) << 4) as i32);
    code.alu(W64, Alu::Add, RDX, Operand::Reg(RCX));
    code.mov_rr(RCX, RAX);
    code.alu(W64, Alu::Xor, RCX, Operand::Mem(KEY));
    code.alu(W64, Alu::Cmp, RCX, Operand::Mem(Mem::at(RDX, 0)));
    let miss = code.jump_if(Cond::NotEqual);
    code.fill(miss, lookup);
    code.jump_mem(Mem::at(RDX, 8));
}
