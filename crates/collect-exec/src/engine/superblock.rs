//! Gathers the instructions of a superblock.
//!
//! It runs on over untaken conditional branches and, unless it is to be recorded, along direct
//! jumps, until it meets a call, an indirect transfer, a system call, an address that already begins a
//! fragment, or the limit. What is recorded must be one stretch of code, and an
//! instruction whose accesses vary stands alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction};
use ichnos_isa_x86::{Inst, Scratch};

use super::mangle::Source;
use super::native;
use super::translate::{Surroundings, Tracing};
use crate::{plan, sieve};

/// The most instructions of a superblock.
const MOST_INSNS: usize = 128;
/// The same for one that is recorded: its plan takes longer than linear time.
const MOST_TRACED: usize = 48;
/// Longest instruction.
const MAX_LEN: usize = 15;

/// A decoded instruction with its bytes.
#[derive(Clone)]
pub struct Decoded {
    /// The instruction.
    pub insn: Instruction,
    bytes: [u8; MAX_LEN],
    offsets: ConstantOffsets,
    /// What else is known about it, if it is recorded.
    pub inst: Option<Inst>,
}

impl Decoded {
    /// For the translator.
    pub fn source(&self) -> Source<'_> {
        Source { insn: self.insn, bytes: self.bytes(), offsets: self.offsets }
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
    let traced = around.traced();
    let sifted = matches!(around.tracing(), Tracing::Sifted(_));
    let most = if traced { MOST_TRACED } else { MOST_INSNS };
    let mut insns: Vec<Decoded> = Vec::with_capacity(16);
    let mut scratch = Scratch::new();
    let mut at = pc;
    while insns.len() < most && (insns.is_empty() || !around.has_fragment(at)) {
        let Some(mut decoded) = decode(around, at) else { break };
        if traced {
            decoded.inst = Some(Inst::from_raw_with(decoded.insn, &mut scratch));
        }
        let flexible = native::stands_apart(&decoded.insn)
            || decoded.inst.as_ref().is_some_and(|inst| stands_alone(inst, sifted));
        if flexible && !insns.is_empty() {
            break;
        }
        let next = after(&decoded.insn, traced);
        insns.push(decoded);
        match next {
            Some(next) if !flexible && !insns.iter().any(|d| d.insn.ip() == next) => at = next,
            _ => break,
        }
    }
    insns
}

/// Whether an instruction's accesses vary too much to be worked out from a superblock's.
pub fn stands_alone(inst: &Inst, sifted: bool) -> bool {
    if sifted { !sieve::is_simple(inst) } else { plan::is_flexible(inst) }
}

/// The instruction at an address, if there is one.
pub fn peek(around: &mut dyn Surroundings, pc: u64) -> Option<Instruction> {
    decode(around, pc).map(|decoded| decoded.insn)
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
    let mut decoder = Decoder::with_ip(64, &bytes[..code.len()], pc, DecoderOptions::NONE);
    let insn = decoder.decode();
    if insn.is_invalid() {
        return None;
    }
    let offsets = decoder.get_constant_offsets(&insn);
    Some(Decoded { insn, bytes, offsets, inst: None })
}
