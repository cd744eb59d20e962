//! Calls of functions by which threads synchronise: which they are, and what P_inst stores around them.
//!
//! A call is known by where it goes: to a stub of the procedure linkage table or through a slot whose relocation names the
//! function, or, in a program without a loader, to the function itself. Before the call P_inst stores the arguments, and
//! behind it the result, where there is something to tell then; a jump that ends a function gets a piece of code that calls
//! instead ([`Emitter::lay_tails`]). Code without such calls stays as it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use iced_x86::{Code, Instruction, OpKind, Register as Name};
use ichnos_base::GuestVa;
use ichnos_isa_x86::{Flow, Inst};
use ichnos_sync::{Argument, Function};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, RelocationTarget, SymbolKind};

use super::emit::{ASIDE_TOO, Emitter, TAG, at, context};
use super::image::Image;
use super::reference::Midway;
use super::switch::fixed;

/// A synchronising function is called: then the number of the [`Site`] (4 bytes), the clock, what it works on, the second
/// argument and the stack pointer, 8 bytes each.
pub(crate) const CALLED: u32 = 0xffff_ff06;
/// Bytes of it.
pub(crate) const CALLED_LEN: usize = 8 + 4 * 8;
/// It has returned: then the number of the site (4 bytes), the clock, the result and the stack pointer, 8 bytes each.
pub(crate) const RETURNED: u32 = 0xffff_ff07;
/// Bytes of it.
pub(crate) const RETURNED_LEN: usize = 8 + 3 * 8;

/// Bytes that a tail has on the stack while its function runs: one word for alignment, and the return address.
pub(crate) const TAIL_LEN: usize = 2 * 8;

/// Added to a site's number to name what stands for a call that ends a function.
const TAIL: u64 = 1 << 48;

/// The functions that a file calls.
#[derive(Default)]
pub(crate) struct Known {
    /// By the own address of the slot that holds the function's address.
    slots: HashMap<u64, Function>,
    /// By the function's own address.
    functions: HashMap<u64, Function>,
}

/// A place where such a function is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    pub(crate) function: Function,
    /// Where it returns to; nothing if that is whoever called the caller.
    pub(crate) back: Option<GuestVa>,
}

impl Known {
    /// Those of a file.
    pub(crate) fn of(file: &ElfFile64<'_>) -> Self {
        let mut known = Self::default();
        let named = |name: Result<&[u8], _>| name.ok().and_then(Function::named);
        let has_loader = file.section_by_name(".interp").is_some();
        let offered = file.dynamic_symbol_table();
        for (slot, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let symbol = offered.as_ref().and_then(|t| {
                use object::ObjectSymbolTable;
                t.symbol_by_index(index).ok()
            });
            // What the file has itself is copied, or should not be known.
            let wanted = symbol.filter(|s| s.is_undefined() && relocation.addend() == 0);
            if let Some(function) = wanted.and_then(|s| named(s.name_bytes())) {
                known.slots.insert(slot, function);
            }
        }
        if !has_loader {
            let own = file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition());
            for symbol in own {
                let Some(mut function) = named(symbol.name_bytes()) else { continue };
                let same = known.functions.get(&symbol.address()).map(|f| f.operation);
                function.operation = function.operation.or(same);
                known.functions.insert(symbol.address(), function);
            }
        }
        known
    }

    /// The function that a call or jump leads to, if it is one of these. `bias` is how far from its own addresses the file was
    /// loaded.
    pub(crate) fn called(&self, image: &Image, bias: u64, inst: &Inst) -> Option<Function> {
        if self.slots.is_empty() && self.functions.is_empty() {
            return None;
        }
        match inst.flow() {
            Flow::Call(to) | Flow::Jump(to) => {
                let own = to.0.wrapping_sub(bias);
                let stub = || self.slots.get(&slot_of_stub(image, own)?).copied();
                self.functions.get(&own).copied().or_else(stub)
            }
            Flow::CallIndirect | Flow::JumpIndirect => {
                let slot = fixed_operand(inst.raw())?.wrapping_sub(bias);
                self.slots.get(&slot).copied()
            }
            _ => None,
        }
    }
}

/// The address of an operand in memory that no register but the instruction pointer has part in.
fn fixed_operand(raw: &Instruction) -> Option<u64> {
    let base = matches!(raw.memory_base(), Name::None | Name::RIP);
    let alone = raw.memory_index() == Name::None && raw.segment_prefix() == Name::None;
    (raw.op0_kind() == OpKind::Memory && base && alone).then(|| raw.memory_displacement64())
}

/// The slot through which code at an address jumps, if it does nothing else.
fn slot_of_stub(image: &Image, own: u64) -> Option<u64> {
    const LONGEST: u64 = 11;
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const BND: u8 = 0xf2;
    let mut code = image.bytes(own, LONGEST)?;
    let mut at = own;
    for prefix in [&ENDBR64[..], &[BND]] {
        if let Some(rest) = code.strip_prefix(prefix) {
            (code, at) = (rest, at + prefix.len() as u64);
        }
    }
    let distance = code.strip_prefix(&[0xff, 0x25])?.first_chunk()?;
    Some((at + 6).wrapping_add(i32::from_le_bytes(*distance) as u64))
}

const RAX: u8 = 0;
const RSP: u8 = 4;
const RSI: u8 = 6;
const RDI: u8 = 7;
const R11: u8 = 11;

/// A jump to a synchronising function, for which code is still to be laid out.
pub(super) struct Tail {
    site: usize,
    pc: GuestVa,
    raw: Instruction,
}

impl Emitter {
    /// Before the call of a site.
    pub(super) fn tell_call(&mut self, site: usize, function: &Function) {
        let begin = self.instrs.len();
        self.put_aside();
        let from = self.instrs.len();
        self.load(R11, context(super::emit::PLACE));
        self.tag_at(0, CALLED);
        self.tag_at(TAG, site as u32);
        self.ticks();
        self.argument(16, RDI, function.object);
        self.argument(24, RSI, function.second);
        self.store(at(R11, 32), RSP);
        self.advance(R11, CALLED_LEN);
        self.site(begin, from);
        self.stored_before(begin);
        self.midways.push((self.instrs.len(), Some(Midway::Ahead { bytes: CALLED_LEN as u64 })));
        self.take_back();
    }

    /// Behind the call of a site, which returned to `pc`.
    pub(super) fn tell_return(&mut self, site: usize, pc: GuestVa) {
        (self.pc, self.turn) = (pc, 0);
        let begin = self.instrs.len();
        self.put_aside();
        let from = self.instrs.len();
        self.load(R11, context(super::emit::PLACE));
        self.tag_at(0, RETURNED);
        self.tag_at(TAG, site as u32);
        // Not before all that the function did.
        self.push(Ok(Instruction::with(Code::Lfence)));
        self.ticks();
        self.load(RAX, context(ASIDE_TOO));
        self.store(at(R11, 16), RAX);
        self.store(at(R11, 24), RSP);
        self.advance(R11, RETURNED_LEN);
        self.site(begin, from);
        self.take_back();
        self.not_stored_yet();
    }

    /// Instead of the jump of a site: to what will be laid out for it.
    pub(super) fn tail(&mut self, site: usize, inst: &Inst) {
        self.jump(TAIL | site as u64);
        self.tails.push(Tail { site, pc: inst.pc(), raw: *inst.raw() });
    }

    /// Lays out what stands for jumps to synchronising functions: a call, which leaves the stack as aligned as a function finds it,
    /// and the return. The frame that this makes is described by itself, so that exceptions and cancellation come through.
    pub(super) fn lay_tails(&mut self) {
        self.tails_from = self.instrs.len();
        for Tail { site, pc, raw } in std::mem::take(&mut self.tails) {
            (self.label, self.pc, self.turn, self.seldom) = (TAIL | site as u64, pc, 0, true);
            self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, at(RSP, -8)));
            match fixed_operand(&raw) {
                Some(slot) => {
                    self.push(Instruction::with1(Code::Call_rm64, fixed(slot)));
                }
                None => {
                    let to = raw.near_branch_target();
                    self.push(Instruction::with_branch(Code::Call_rel32_64, to));
                }
            }
            self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, at(RSP, 8)));
            self.tell_return(site, pc);
            self.stored_before(self.sites.last().map_or(0, |s| s.begin));
            self.push(Ok(Instruction::with(Code::Retnq)));
        }
    }

    /// Stores the clock; flags are kept.
    fn ticks(&mut self) {
        self.push(Ok(Instruction::with(Code::Rdtsc)));
        self.push(Instruction::with2(Code::Mov_rm32_r32, at(R11, 8), Name::EAX));
        self.push(Instruction::with2(Code::Mov_rm32_r32, at(R11, 12), Name::EDX));
    }

    fn argument(&mut self, offset: i64, register: u8, how: Argument) {
        match how {
            Argument::Plain => self.store(at(R11, offset), register),
            Argument::Behind => {
                self.load(RAX, at(register, 0));
                self.store(at(R11, offset), RAX);
            }
        }
    }
}
