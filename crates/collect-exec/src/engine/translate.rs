//! Makes a fragment out of the program's code at one address.
//!
//! A superblock begins at the address asked for and runs on over untaken conditional
//! branches and along direct jumps, until it meets a call, an indirect transfer, a system
//! call, an address that already begins a fragment, or the limit.
//!
//! # Calls and returns
//!
//! The program must see its own return addresses on its stack, yet the processor predicts
//! returns well only if calls and returns pair up. So a call in the cache is a real
//! `call` over a landing pad, followed by code that puts the program's return address in place
//! of the cache's; a return pops the program's address, finds the pad in the thread's table,
//! pushes the pad's address and executes a real `ret`. The pad verifies that it is the right one
//! and repairs the dead stack slot. No flags are touched anywhere.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

use super::ctx::{JUMP_TABLE, RET_TABLE, at};
use super::emit::{Emit, RAX, RCX};
use super::fragment::{ExitKind, Pad, PadKind, Site, Spills};
use super::mangle::{self, Source, Unsupported};

/// The most instructions of a superblock.
const MOST_INSNS: usize = 128;
/// Longest instruction.
const MAX_LEN: usize = 15;

/// What a translation needs to know about its surroundings.
pub trait Surroundings {
    /// The program's code at an address: up to `most` bytes, none if it cannot be executed.
    fn code(&mut self, pc: u64, most: usize) -> &'static [u8];
    /// Whether a fragment begins at an address.
    fn has_fragment(&self, pc: u64) -> bool;
    /// Room for a constant of eight bytes near the code.
    fn constant(&mut self, value: u64) -> Option<u64>;
}

/// A displacement that leads out of the fragment.
#[derive(Clone, Copy, Debug)]
pub struct OpenExit {
    /// Its offset; `None` if the exit's own code stands at `inline`.
    pub patch: Option<usize>,
    /// What it means.
    pub kind: ExitKind,
    /// Where it leads.
    pub target: u64,
    /// Offset of a place for the stub in the code itself.
    pub inline: Option<usize>,
}

/// A translation, not yet placed in the cache.
pub struct Draft {
    /// The code.
    pub emit: Emit,
    /// Offset of the entry.
    pub entry: usize,
    /// The map back.
    pub sites: Vec<Site>,
    /// Ways out.
    pub exits: Vec<OpenExit>,
    /// Landing pads, by their offsets in `at`.
    pub pads: Vec<Pad>,
    /// Stretches of the program's code.
    pub source: Vec<(u64, u64)>,
    /// Where the call begins with which the superblock ends, if it is not its entry.
    pub call: Option<Call>,
}

/// A call inside a superblock: a fragment of its own, because every call of the program must
/// have one landing pad only, or returns to it would be predicted wrongly.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The program's address.
    pub pc: u64,
    /// The offset of its code.
    pub offset: usize,
}

/// Why there is no translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The address cannot be executed.
    NotExecutable,
    /// There is no such instruction.
    Invalid,
}

enum Next {
    Go(u64),
    End,
}

/// Translates the superblock at `pc` for the cache address `base`.
pub fn translate(
    around: &mut dyn Surroundings,
    pc: u64,
    base: u64,
    pad: Option<PadKind>,
) -> Result<Draft, Failure> {
    let emit = Emit::new(base);
    let (exits, pads) = (Vec::new(), Vec::new());
    let (sites, source) = (Vec::with_capacity(32), Vec::new());
    let mut draft = Draft { emit, entry: 0, sites, exits, pads, source, call: None };
    if pad == Some(PadKind::Jump) {
        draft.pads.push(Pad { kind: PadKind::Jump, tag: pc, at: base });
        draft.emit.verify(pc, at::MISS_JUMP);
    }
    draft.entry = draft.emit.offset();
    draft.source.push((pc, pc));
    let mut at = pc;
    for count in 0..=MOST_INSNS {
        let stop = count == MOST_INSNS || (count > 0 && around.has_fragment(at));
        let decoded = if stop { None } else { decode(around, at) };
        let Some((insn, bytes, offsets)) = decoded else {
            if count == 0 {
                let empty = around.code(pc, 1).is_empty();
                return Err(if empty { Failure::NotExecutable } else { Failure::Invalid });
            }
            draft.jump_out(at);
            return Ok(draft);
        };
        let source = Source { insn, bytes: &bytes[..insn.len()], offsets };
        match draft.one(around, &source) {
            Next::Go(next) => at = next,
            Next::End => return Ok(draft),
        }
    }
    Ok(draft)
}

type Decoded = (Instruction, [u8; MAX_LEN], iced_x86::ConstantOffsets);

fn decode(around: &mut dyn Surroundings, pc: u64) -> Option<Decoded> {
    let code = around.code(pc, MAX_LEN);
    let mut bytes = [0; MAX_LEN];
    bytes[..code.len()].copy_from_slice(code);
    let mut decoder = Decoder::with_ip(64, &bytes[..code.len()], pc, DecoderOptions::NONE);
    let insn = decoder.decode();
    if insn.is_invalid() {
        return None;
    }
    let offsets = decoder.get_constant_offsets(&insn);
    Some((insn, bytes, offsets))
}

impl Draft {
    fn one(&mut self, around: &mut dyn Surroundings, source: &Source) -> Next {
        let insn = &source.insn;
        self.site(insn.ip(), Spills::NONE);
        if let Some(last) = self.source.last_mut() {
            last.1 = insn.next_ip();
        }
        let before = (self.emit.offset(), self.sites.len());
        match self.kind(around, source) {
            Ok(next) => next,
            Err(Unsupported) => {
                self.emit.cut(before.0);
                self.sites.truncate(before.1);
                self.call = None;
                self.leave(ExitKind::Unsupported, insn.ip());
                Next::End
            }
        }
    }

    fn kind(&mut self, around: &mut dyn Surroundings, source: &Source) -> Result<Next, Unsupported> {
        let insn = &source.insn;
        if matches!(insn.code(), Code::Syscall) {
            self.leave(ExitKind::Syscall, insn.ip());
            return Ok(Next::End);
        }
        match insn.flow_control() {
            FlowControl::Next | FlowControl::Exception => self.plain(source)?,
            FlowControl::Interrupt if insn.code() == Code::Int3 => self.plain(source)?,
            FlowControl::ConditionalBranch => self.conditional(insn, source.bytes)?,
            FlowControl::UnconditionalBranch if insn.is_jmp_short_or_near() => {
                return Ok(self.follow(around, insn.near_branch_target()));
            }
            FlowControl::Call if insn.is_call_near() => {
                self.begin_call(insn.ip());
                let fix = self.call_pad(insn.next_ip());
                self.push_return(around, fix, insn.next_ip())?;
                self.jump_out(insn.near_branch_target());
                return Ok(Next::End);
            }
            FlowControl::IndirectBranch if insn.is_jmp_near_indirect() => {
                self.spill_and_load(insn)?;
                self.emit.raw(&[0x0f, 0xb7, 0xc1]); // movzx eax, cx
                self.table_jump();
                return Ok(Next::End);
            }
            FlowControl::IndirectCall if insn.is_call_near_indirect() => {
                self.begin_call(insn.ip());
                self.spill_and_load(insn)?;
                self.site(insn.ip(), Spills::RCX);
                let fix = self.call_pad(insn.next_ip());
                self.push_return(around, fix, insn.next_ip())?;
                self.emit.raw(&[0x0f, 0xb7, 0xc1]);
                self.table_jump();
                return Ok(Next::End);
            }
            FlowControl::Return => {
                self.ret(insn)?;
                return Ok(Next::End);
            }
            _ => return Err(Unsupported),
        }
        Ok(Next::Go(insn.next_ip()))
    }

    fn begin_call(&mut self, pc: u64) {
        let offset = self.emit.offset();
        if offset != self.entry {
            self.call = Some(Call { pc, offset });
        }
    }

    fn site(&mut self, pc: u64, spills: Spills) {
        let offset = self.emit.offset() as u32;
        self.sites.push(Site { offset, spills, pc });
    }

    fn plain(&mut self, source: &Source) -> Result<(), Unsupported> {
        let (pc, sites) = (source.insn.ip(), &mut self.sites);
        let mut note = |offset: usize, spills| {
            sites.push(Site { offset: offset as u32, spills, pc });
        };
        mangle::copy(&mut self.emit, source, &mut note)
    }

    fn follow(&mut self, around: &dyn Surroundings, target: u64) -> Next {
        let seen = self.sites.iter().any(|s| s.pc == target);
        if seen || around.has_fragment(target) {
            self.jump_out(target);
            return Next::End;
        }
        self.source.push((target, target));
        Next::Go(target)
    }

    fn conditional(&mut self, insn: &Instruction, bytes: &[u8]) -> Result<(), Unsupported> {
        let target = insn.near_branch_target();
        if insn.is_jcc_short_or_near() {
            let code = insn.condition_code() as u8;
            let patch = self.emit.jump_if(hardware_condition(code).ok_or(Unsupported)?);
            self.exit(patch, target);
            return Ok(());
        }
        if !insn.is_loop() && !insn.is_loopcc() && !insn.is_jcx_short() {
            return Err(Unsupported);
        }
        // These know short targets only: a small ladder around a long jump.
        let (_, head) = bytes.split_last().ok_or(Unsupported)?;
        self.emit.raw(head);
        self.emit.raw(&[2, 0xeb, 0]);
        let over = self.emit.offset();
        let patch = self.emit.jump();
        let distance = (self.emit.offset() - over) as u8;
        self.emit.set_byte(over - 1, distance);
        self.exit(patch, target);
        Ok(())
    }

    fn spill_and_load(&mut self, insn: &Instruction) -> Result<(), Unsupported> {
        self.emit.save(at::SPILL_RAX, RAX);
        self.emit.save(at::SPILL_RCX, RCX);
        mangle::load_target(&mut self.emit, insn)
    }

    /// The call over the pad, and the pad; gives what must lead behind it.
    fn call_pad(&mut self, return_address: u64) -> usize {
        let fix = self.emit.call();
        let at = self.emit.here();
        self.pads.push(Pad { kind: PadKind::Ret, tag: return_address, at });
        self.emit.verify_return(return_address);
        self.site(return_address, Spills::NONE);
        let patch = self.emit.jump();
        self.exit(patch, return_address);
        fix
    }

    fn push_return(
        &mut self,
        around: &mut dyn Surroundings,
        fix: usize,
        return_address: u64,
    ) -> Result<(), Unsupported> {
        self.emit.land(fix);
        let constant = around.constant(return_address).ok_or(Unsupported)?;
        self.emit.raw(&[0x48, 0x8d, 0x64, 0x24, 0x08]); // lea rsp, [rsp+8]
        let distance = mangle::reach(self.emit.here() + 6, constant).ok_or(Unsupported)?;
        self.emit.raw(&[0xff, 0x35]); // push [rip+distance]
        self.emit.raw(&distance.to_le_bytes());
        Ok(())
    }

    fn table_jump(&mut self) {
        self.emit.raw(&[0x65, 0xff, 0x24, 0xc5]); // jmp gs:[rax*8+table]
        self.emit.raw(&JUMP_TABLE.to_le_bytes());
    }

    fn ret(&mut self, insn: &Instruction) -> Result<(), Unsupported> {
        let drop = match insn.code() {
            Code::Retnq => 0,
            Code::Retnq_imm16 => insn.immediate16(),
            _ => return Err(Unsupported),
        };
        self.emit.save(at::SPILL_RAX, RAX);
        self.emit.save(at::SPILL_RCX, RCX);
        self.emit.raw(&[0x59, 0x0f, 0xb7, 0xc1]); // pop rcx; movzx eax, cx
        if drop != 0 {
            // The slot below the stack pointer belongs to the program here, so no push.
            self.emit.raw(&[0x48, 0x8d, 0xa4, 0x24]); // lea rsp, [rsp+drop]
            self.emit.raw(&u32::from(drop).to_le_bytes());
            self.table_jump();
            return Ok(());
        }
        self.emit.raw(&[0x65, 0xff, 0x34, 0xc5]); // push gs:[rax*8+table]
        self.emit.raw(&RET_TABLE.to_le_bytes());
        self.emit.raw(&[0xc3]);
        Ok(())
    }

    fn exit(&mut self, patch: usize, target: u64) {
        let kind = ExitKind::Direct;
        self.exits.push(OpenExit { patch: Some(patch), kind, target, inline: None });
    }

    fn jump_out(&mut self, target: u64) {
        self.site(target, Spills::NONE);
        let patch = self.emit.jump();
        self.exit(patch, target);
    }

    fn leave(&mut self, kind: ExitKind, target: u64) {
        let inline = Some(self.emit.offset());
        self.exits.push(OpenExit { patch: None, kind, target, inline });
        self.emit.leave(0);
    }
}

/// The hardware's code of a condition, from the decoder's numbering.
fn hardware_condition(code: u8) -> Option<u8> {
    use iced_x86::ConditionCode as C;
    const ORDER: [C; 16] = [
        C::o, C::no, C::b, C::ae, C::e, C::ne, C::be, C::a, C::s, C::ns, C::p, C::np, C::l, C::ge,
        C::le, C::g,
    ];
    ORDER.iter().position(|&c| c as u8 == code).map(|i| i as u8)
}
