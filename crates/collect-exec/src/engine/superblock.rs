//! Gathers the instructions of a superblock.
//!
//! It runs on over untaken conditional branches and, unless it is to be recorded, along direct
//! jumps and behind calls, until it meets an indirect jump, a return, a system call, an address that already begins a
//! fragment, or the limit. What is recorded must be one stretch of code without calls, and an
//! instruction whose accesses vary stands alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use ichnos_isa_x86::{Inst, Scratch};

use super::mangle::Source;
use super::native;
use super::translate::{Surroundings, Tracing};
use crate::{plan, sieve};

/// The most instructions of a superblock.
const MOST_INSNS: usize = 128;
/// The same for one that is recorded: its plan takes longer than linear time.
const MOST_TRACED: usize = 48;
/// Behind so many calls it goes on.
const MOST_CALLS: usize = 4;
/// Longest instruction.
const MAX_LEN: usize = 15;
/// So much code is copied at once.
const AHEAD: usize = 192;
const PAGE: usize = 4096;

/// A decoded instruction with its bytes.
#[derive(Clone)]
pub struct Decoded {
    /// The instruction.
    pub insn: Instruction,
    bytes: [u8; MAX_LEN],
    displacement: u8,
    /// What else is known about it, if it is recorded.
    pub inst: Option<Box<Inst>>,
}

impl Decoded {
    /// The next instruction of a decoder of these bytes, if there is one.
    fn next(decoder: &mut Decoder<'_>, code: &[u8]) -> Option<Self> {
        let from = decoder.position();
        let insn = decoder.decode();
        if insn.is_invalid() {
            return None;
        }
        let mut bytes = [0; MAX_LEN];
        bytes[..insn.len()].copy_from_slice(&code[from..from + insn.len()]);
        let displacement = if insn.is_ip_rel_memory_operand() {
            decoder.get_constant_offsets(&insn).displacement_offset() as u8
        } else {
            0
        };
        Some(Self { insn, bytes, displacement, inst: None })
    }

    /// For the translator.
    pub fn source(&self) -> Source<'_> {
        Source { insn: self.insn, bytes: self.bytes(), displacement: self.displacement }
    }

    /// Whether the superblock may be left behind it, or go on.
    pub fn may_leave(&self) -> bool {
        self.insn.flow_control() == FlowControl::ConditionalBranch
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.insn.len()]
    }
}

/// The superblock's instructions; none if there is no instruction at `pc`.
pub fn gather(around: &mut dyn Surroundings, pc: u64) -> Vec<Decoded> {
    let mut found = Found {
        insns: Vec::with_capacity(16),
        scratch: around.traced().then(Scratch::new),
        sifted: matches!(around.tracing(), Tracing::Sifted(_)),
        has_jumped: false,
        calls: if ends_with_calls(around) || around.may_be_written(pc) { 0 } else { MOST_CALLS },
    };
    let mut next = Some(pc);
    while let Some(at) = next {
        let bytes = Ahead::new(around, at);
        next = found.decode(around, &bytes, at);
    }
    found.insns
}

/// The program's code from one address on, copied: it may change while it is looked at.
struct Ahead {
    bytes: [u8; AHEAD],
    len: usize,
}

impl Ahead {
    /// No page is looked at of which the first instruction has no part: there may be no memory behind it.
    fn new(around: &mut dyn Surroundings, at: u64) -> Self {
        let code = around.code(at, AHEAD);
        let rest_of_page = PAGE - at as usize % PAGE;
        let len = code.len().min(rest_of_page.max(MAX_LEN));
        let mut bytes = [0; AHEAD];
        bytes[..len].copy_from_slice(&code[..len]);
        Self { bytes, len }
    }
}

/// A superblock as far as it is known.
struct Found {
    insns: Vec<Decoded>,
    /// If it is recorded.
    scratch: Option<Scratch>,
    sifted: bool,
    /// Whether a jump leads from one of its instructions to the next.
    has_jumped: bool,
    /// Behind how many more calls it goes on.
    calls: usize,
}

impl Found {
    /// Goes on with the instructions that lie at `at`, as far as they are copied; where it goes on behind those, if it does.
    fn decode(&mut self, around: &dyn Surroundings, ahead: &Ahead, mut at: u64) -> Option<u64> {
        let most = if self.scratch.is_some() { MOST_TRACED } else { MOST_INSNS };
        let bytes = &ahead.bytes[..ahead.len];
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        loop {
            if self.insns.len() >= most || !self.insns.is_empty() && around.has_fragment(at) {
                return None;
            }
            if decoder.position() > 0 && bytes.len() - decoder.position() < MAX_LEN {
                return Some(at);
            }
            let mut decoded = Decoded::next(&mut decoder, bytes)?;
            if let Some(scratch) = &mut self.scratch {
                decoded.inst = Some(Box::new(Inst::from_raw_with(decoded.insn, scratch)));
            }
            let varies = |inst: &Inst| stands_alone(inst, self.sifted);
            let flexible =
                native::stands_apart(&decoded.insn) || decoded.inst.as_deref().is_some_and(varies);
            if flexible && !self.insns.is_empty() {
                return None;
            }
            let (behind, mut next) =
                (decoded.insn.next_ip(), after(&decoded.insn, self.scratch.is_some()));
            if self.calls > 0 && is_call(&decoded.insn) {
                self.calls -= 1;
                next = Some(behind);
            }
            self.insns.push(decoded);
            let next = next.filter(|next| !flexible && !self.has(*next))?;
            if next != behind {
                self.has_jumped = true;
                return Some(next);
            }
            at = next;
        }
    }

    /// Whether the instruction at an address, which comes behind the last one, is among them.
    fn has(&self, next: u64) -> bool {
        let is_behind = self.insns.last().is_some_and(|last| last.insn.next_ip() == next);
        (self.has_jumped || !is_behind) && self.insns.iter().any(|d| d.insn.ip() == next)
    }
}

/// Whether an instruction's accesses vary too much to be worked out from a superblock's.
pub fn stands_alone(inst: &Inst, sifted: bool) -> bool {
    if sifted { !sieve::is_simple(inst) } else { plan::is_flexible(inst) }
}

/// The instruction at an address, if there is one.
pub fn peek(around: &mut dyn Surroundings, pc: u64) -> Option<Instruction> {
    decode(around, pc).map(|decoded| decoded.insn)
}

/// Whether a superblock ends where it calls: if it is recorded, or its instructions are counted.
pub fn ends_with_calls(around: &dyn Surroundings) -> bool {
    around.traced() || around.counted()
}

/// Whether an instruction is a call. Not every one of that flow is: the decoder counts `syscall`, too.
pub fn is_call(insn: &Instruction) -> bool {
    insn.is_call_near() || insn.is_call_near_indirect()
}

/// Where the superblock goes on after an instruction, if it does.
fn after(insn: &Instruction, traced: bool) -> Option<u64> {
    match insn.flow_control() {
        FlowControl::Next if traced && changes_base(insn) => None,
        FlowControl::Next | FlowControl::ConditionalBranch => Some(insn.next_ip()),
        FlowControl::UnconditionalBranch if !traced && insn.is_jmp_short_or_near() => {
            Some(insn.near_branch_target())
        }
        _ => None,
    }
}

/// Whether an instruction writes the base of fs or gs.
pub fn changes_base(insn: &Instruction) -> bool {
    let fs = matches!(insn.code(), Code::Wrfsbase_r32 | Code::Wrfsbase_r64);
    fs || matches!(insn.code(), Code::Wrgsbase_r32 | Code::Wrgsbase_r64)
}

/// The instruction at an address with its bytes, if there is one.
pub fn decode(around: &mut dyn Surroundings, pc: u64) -> Option<Decoded> {
    let code = around.code(pc, MAX_LEN);
    let mut bytes = [0; MAX_LEN];
    bytes[..code.len()].copy_from_slice(code);
    let bytes = &bytes[..code.len()];
    Decoded::next(&mut Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE), bytes)
}
