//! Makes a fragment out of the program's code at one address.
//!
//! A superblock ([`superblock`]) begins at the address asked for.
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

use iced_x86::{Code, FlowControl, Instruction};
use ichnos_base::Sieve;

use super::ctx::{JUMP_TABLE, RET_TABLE, at};
use super::emit::{Emit, Gp, RAX, RCX, RDX};
use super::exits::{Cold, OpenExit};
use super::fragment::{ExitKind, Pad, PadKind, Part, Site, Spills};
use super::home::Home;
use super::inserted::Inserted;
use super::items::Length;
use super::mangle::{self, Source, Unsupported};
use super::path::Path;
use super::probe::Probes;
use super::sift::{self, Stub};
use super::superblock::{self, Decoded};
use super::{gates, lean, native, sync};
use crate::words::Stretch;

/// The number of the interrupt by which 32-bit programs call the kernel.
const OLD_SYSCALL: u8 = 0x80;

/// What a translation needs to know about its surroundings.
pub trait Surroundings {
    /// The program's code at an address: up to `most` bytes, none if it cannot be executed.
    fn code(&mut self, pc: u64, most: usize) -> &'static [u8];
    /// Whether the program may write to its code at an address as it likes.
    fn may_be_written(&mut self, pc: u64) -> bool;
    /// Whether a fragment begins at an address.
    fn has_fragment(&self, pc: u64) -> bool;
    /// What of that which runs is to be told.
    fn tracing(&self) -> Tracing;
    /// Whether anything is.
    fn traced(&self) -> bool {
        self.tracing() != Tracing::Not
    }
    /// The number of a line of code, behind a sieve.
    fn line_number(&mut self, line: u64) -> u32;
    /// Whether what runs is to be counted.
    fn counted(&self) -> bool;
    /// The first of so many new identifiers of blocks.
    fn identifiers(&mut self, count: usize) -> u32;
    /// Room for a constant of eight bytes near the code.
    fn constant(&mut self, value: u64) -> Option<u64>;
}

/// What of that which runs is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracing {
    /// Nothing.
    Not,
    /// Everything.
    Whole,
    /// What a sieve does not keep back.
    Sifted(Sieve),
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
    /// What the host must know, if the superblock is traced.
    pub told: Vec<Told>,
    /// Registers, as bits, that only the context holds.
    pub lost: u16,
    /// How many instructions from the present one on have been counted.
    pub rest: u8,
    /// The piece to which they belong, behind a sieve.
    pub block: u32,
    /// Whether the program's arithmetic flags are in the context.
    pub flags_saved: bool,
    /// Ways to tell something, still to be written.
    pub stubs: Vec<Stub>,
    /// Where the address of the next word of trace is between fragments.
    pub shared: Home,
    /// Where this fragment keeps it.
    pub home: Home,
    /// Where it is at the present place.
    pub now: Home,
    /// Where the program's address `pc` is reached with the address in its home.
    pub inner: Option<usize>,
    /// Conditional ways out that must move it back, or must say that not all of a path was run.
    pub cold: Vec<Cold>,
    /// The parts of a path, and the one at the present place.
    pub parts: Vec<Part>,
    pub part: u8,
    /// The registers, as bits, that must be known where a path is entered.
    pub known: u16,
    /// Those that are known where each part of a path can be left, by where that leads.
    pub known_out: Vec<Vec<(u64, u16)>>,
    /// Those that a path stores.
    pub stores: u16,
    /// Where a path that needs registers is given up, because the buffer has no room for it.
    pub renew: Option<usize>,
    /// Bytes of the record that is begun, if one is.
    pub begun: u16,
    /// Calls inside a path from which nobody has returned yet.
    pub calls: u8,
    /// The instructions that are calls of the processor, too, and the present one.
    pub real_calls: Vec<usize>,
    pub insn: usize,
    /// The address of the superblock.
    pub pc: u64,
    /// The fragments that begin inside of the superblock.
    pub inside: Vec<Inside>,
    /// Calls whose ends are written behind all else.
    pub calls_out: Vec<CallOut>,
}

/// What the host must know about a superblock or a path.
pub struct Told {
    /// Where it is.
    pub stretches: Vec<Stretch>,
    /// Whether it is a path, and the registers that must be known where it is entered.
    pub is_path: bool,
    pub known: u16,
    /// Identifier of its first block.
    pub first: u32,
    /// Its blocks: where each begins, and how many bytes it stores.
    pub pieces: Vec<(u64, u16)>,
    /// What else it stores.
    pub length: Length,
    /// Its code.
    pub code: Vec<u8>,
}

impl Told {
    /// Of a superblock, whose instructions these are.
    pub fn new(insns: &[Decoded], first: u32, pieces: Vec<(u64, u16)>) -> Self {
        let mut stretches: Vec<Stretch> = Vec::new();
        for decoded in insns {
            let (pc, len) = (decoded.insn.ip(), decoded.insn.len() as u64);
            match stretches.last_mut() {
                Some(last) if last.pc + last.len == pc => last.len += len,
                _ => stretches.push(Stretch { pc, len }),
            }
        }
        let code = insns.iter().flat_map(|d| d.bytes().iter().copied()).collect();
        let (is_path, known, length) = (false, 0, Length::Words);
        Self { stretches, is_path, known, first, pieces, length, code }
    }
}

/// A fragment that begins inside of a superblock: a call, because every call of the program must have one landing pad only, or
/// returns to it would be predicted wrongly; and what comes behind a call.
#[derive(Clone, Copy, Debug)]
pub struct Inside {
    /// The program's address.
    pub pc: u64,
    /// The offset of its code.
    pub offset: usize,
    /// The offset at which it is entered by itself.
    pub entry: usize,
}

/// A call over a pad, behind which the superblock goes on.
#[derive(Clone, Copy, Debug)]
pub struct CallOut {
    /// The call's displacement.
    fix: usize,
    return_address: u64,
    /// Where it leads; if nothing is given, where rcx says, and that is spilled, as rax is.
    target: Option<u64>,
}

/// Why there is no translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The address cannot be executed.
    NotExecutable,
    /// There is no such instruction.
    Invalid,
    /// The cache has no room.
    Full,
}

/// What comes behind an instruction.
pub enum Next {
    /// The one at this address.
    Go(u64),
    /// Nothing.
    End,
}

/// Translates the superblock at `pc` for the cache address `base`.
pub fn translate(
    around: &mut dyn Surroundings,
    pc: u64,
    base: u64,
    pad: Option<PadKind>,
) -> Result<Draft, Failure> {
    let mut insns = superblock::gather(around, pc);
    if insns.is_empty() {
        let empty = around.code(pc, 1).is_empty();
        return Err(if empty { Failure::NotExecutable } else { Failure::Invalid });
    }
    let inserted = Inserted::new(around, &mut insns);
    let mut draft = Draft::new(around, &insns, (pc, base));
    if pad == Some(PadKind::Jump) {
        draft.pads.push(Pad { kind: PadKind::Jump, tag: pc, at: base });
        draft.emit.verify(pc);
    }
    draft.entry = draft.emit.offset();
    draft.site(pc, Spills::NONE);
    let marked = around.tracing() == Tracing::Whole && sync::is_mark(pc)
        || around.counted() && gates::is_gate(pc);
    if marked {
        draft.leave(ExitKind::Mark, pc);
    }
    if around.counted() {
        draft.leave_when_spent(pc);
    }
    draft.settle();
    // A way back that skips the entry would skip the look at the budget, too.
    let skips = draft.home != draft.shared && !marked && !around.counted();
    draft.inner = skips.then(|| draft.emit.offset());
    draft.all(around, &insns, &inserted);
    draft.cold_exits();
    sift::write_stubs(&mut draft);
    draft.told.extend(inserted.told(&insns));
    draft.call_entry(around, &insns);
    draft.calls_out(around);
    Ok(draft)
}

/// Translates a path for the cache address `base`; nothing if that cannot be done.
pub fn translate_path(around: &mut dyn Surroundings, path: Path, base: u64) -> Option<Draft> {
    let Path { insns, plan, calls, known } = path;
    let pc = insns.first()?.insn.ip();
    let (known_out, stores) = (lean::known_out(&plan), lean::stores(&plan));
    let inserted = Inserted::Probes(Probes::along(around, plan));
    let mut draft = Draft::new(around, &insns, (pc, base));
    if let Inserted::Probes(probes) = &inserted {
        draft.parts = probes.parts();
        // Nothing is recorded yet that would have to be taken back.
        draft.part = (draft.parts.len() - 1) as u8;
    }
    draft.real_calls = calls;
    (draft.known, draft.known_out, draft.stores) = (known, known_out, stores);
    if known != 0 && draft.home.register().is_none() {
        return None;
    }
    draft.site(pc, Spills::NONE);
    draft.settle();
    draft.inner = (draft.home != draft.shared).then(|| draft.emit.offset());
    draft.all(around, &insns, &inserted);
    draft.cold_exits();
    if known != 0 {
        draft.give_up();
    }
    draft.told.extend(inserted.told(&insns).map(|told| Told { known, ..told }));
    let is_whole = !draft.exits.iter().any(|exit| exit.kind != ExitKind::Direct);
    is_whole.then_some(draft)
}

impl Draft {
    fn new(around: &dyn Surroundings, insns: &[Decoded], (pc, base): (u64, u64)) -> Self {
        let (shared, home) = match around.tracing() {
            Tracing::Whole => (Home::SHARED, Home::of(insns)),
            Tracing::Sifted(_) => (Home::SHARED_SCRATCH, Home::scratch_of(insns)),
            Tracing::Not => (Home::Nowhere, Home::Nowhere),
        };
        Self {
            emit: Emit::new(base),
            entry: 0,
            sites: Vec::with_capacity(2 * insns.len()),
            exits: Vec::new(),
            pads: Vec::new(),
            source: Vec::new(),
            told: Vec::new(),
            lost: 0,
            rest: 0,
            block: 0,
            flags_saved: false,
            stubs: Vec::new(),
            shared,
            home,
            now: shared,
            inner: None,
            cold: Vec::new(),
            parts: Vec::new(),
            part: 0,
            known: 0,
            known_out: Vec::new(),
            stores: 0,
            renew: None,
            begun: 0,
            calls: 0,
            real_calls: Vec::new(),
            insn: 0,
            pc,
            inside: Vec::new(),
            calls_out: Vec::new(),
        }
    }

    fn all(&mut self, around: &mut dyn Surroundings, insns: &[Decoded], inserted: &Inserted) {
        for (i, decoded) in insns.iter().enumerate() {
            let pc = decoded.insn.ip();
            self.insn = i;
            match self.source.last_mut() {
                Some(last) if last.1 == pc => last.1 = decoded.insn.next_ip(),
                _ => self.source.push((pc, decoded.insn.next_ip())),
            }
            if around.counted() {
                self.count_block(insns, i);
            }
            if !inserted.before(self, i, pc) {
                self.leave(ExitKind::Unsupported, pc);
                return;
            }
            let calls = superblock::is_call(&decoded.insn);
            if calls && i != 0 && self.parts.is_empty() {
                self.begins_inside(pc);
            }
            let source = decoded.source();
            let next = insns.get(i + 1).map(|d| d.insn.ip());
            match self.one(around, &source, next) {
                Next::Go(target) => {
                    self.rest = self.rest.saturating_sub(1);
                    if self.lost != 0 {
                        self.lost &= !mangle::overwritten(&decoded.insn);
                    }
                    inserted.after(self, i, target);
                    if calls && self.parts.is_empty() {
                        self.begins_inside(target);
                    }
                    if next.is_none() {
                        self.jump_out(target);
                    }
                }
                Next::End => return,
            }
        }
    }

    /// A fragment of its own begins here.
    fn begins_inside(&mut self, pc: u64) {
        let offset = self.emit.offset();
        if self.inside.last().is_none_or(|last| last.pc != pc) {
            self.inside.push(Inside { pc, offset, entry: offset });
        }
    }

    /// A call that is traced is entered by itself through a save point of its own, which stands behind its
    /// code; who comes from the superblock has recorded it already.
    fn call_entry(&mut self, around: &mut dyn Surroundings, insns: &[Decoded]) {
        let alone = superblock::ends_with_calls(around);
        let Some(call) = self.inside.first().copied().filter(|_| alone) else { return };
        let Some(last) = insns.iter().find(|d| d.insn.ip() == call.pc) else { return };
        let mut alone = vec![last.clone()];
        let inserted = Inserted::new(around, &mut alone);
        // Whatever the superblock borrowed it has given back when it comes to its call.
        self.lost = 0;
        self.now = self.shared;
        let (entry, exits, sites) = (self.emit.offset(), self.exits.len(), self.sites.len());
        (self.rest, self.begun) = (0, 0);
        self.site(call.pc, Spills::NONE);
        if around.counted() {
            self.leave_when_spent(call.pc);
        }
        self.settle();
        if around.counted() {
            self.count_block(&alone, 0);
        }
        if !inserted.before(self, 0, call.pc) {
            self.emit.cut(entry);
            self.exits.truncate(exits);
            self.sites.truncate(sites);
            (self.now, self.rest) = (self.shared, 0);
            self.site(call.pc, Spills::NONE);
            self.leave(ExitKind::Unsupported, call.pc);
        }
        self.site(call.pc, Spills::NONE);
        let back = self.emit.jump();
        let next = self.emit.offset();
        self.emit.fix32(back, call.offset.wrapping_sub(next) as u32);
        sift::write_stubs(self);
        self.told.extend(inserted.told(&alone));
        self.inside = vec![Inside { entry, ..call }];
    }

    fn one(&mut self, around: &mut dyn Surroundings, source: &Source, next: Option<u64>) -> Next {
        let insn = &source.insn;
        self.site(insn.ip(), Spills::NONE);
        let before = (self.emit.offset(), self.sites.len(), self.now);
        match self.kind(around, source, next) {
            Ok(next) => next,
            Err(Unsupported) => {
                self.emit.cut(before.0);
                self.sites.truncate(before.1);
                self.now = before.2;
                if superblock::ends_with_calls(around) {
                    self.inside.clear();
                }
                // What is recorded ends with the superblock, so it must be the last of that.
                let last = next.is_none() || !around.traced();
                let kind = if last { ExitKind::InPlace } else { ExitKind::Unsupported };
                self.leave_for(kind, insn.ip(), self.block);
                Next::End
            }
        }
    }

    fn kind(
        &mut self,
        around: &mut dyn Surroundings,
        source: &Source,
        next: Option<u64>,
    ) -> Result<Next, Unsupported> {
        let insn = &source.insn;
        if matches!(insn.code(), Code::Syscall) {
            self.leave_for(ExitKind::Syscall, insn.ip(), self.block);
            return Ok(Next::End);
        }
        if native::stands_apart(insn) {
            self.leave_for(ExitKind::InPlace, insn.ip(), self.block);
            return Ok(Next::End);
        }
        match insn.flow_control() {
            FlowControl::Next if superblock::changes_base(insn) => {
                self.plain(source)?;
                if around.traced() {
                    self.leave(ExitKind::Base, insn.next_ip());
                    return Ok(Next::End);
                }
            }
            FlowControl::Next | FlowControl::Exception => self.plain(source)?,
            FlowControl::Interrupt if insn.code() == Code::Int3 => self.plain(source)?,
            FlowControl::Interrupt if insn.code() == Code::Int_imm8 => {
                if insn.immediate8() == OLD_SYSCALL {
                    self.leave_for(ExitKind::OldSyscall, insn.ip(), self.block);
                    return Ok(Next::End);
                }
                // All others only fault.
                self.plain(source)?;
            }
            FlowControl::ConditionalBranch => {
                let target = insn.near_branch_target();
                if next == Some(target) && next != Some(insn.next_ip()) {
                    self.unless(insn)?;
                    return Ok(Next::Go(target));
                }
                self.conditional(insn, source.bytes)?;
            }
            FlowControl::UnconditionalBranch if insn.is_jmp_short_or_near() => {
                let target = insn.near_branch_target();
                if next != Some(target) {
                    self.jump_out(target);
                    return Ok(Next::End);
                }
                return Ok(Next::Go(target));
            }
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::IndirectBranch
                if next.is_some() && !self.parts.is_empty() =>
            {
                return self.expect(around, insn, next);
            }
            FlowControl::Return if next.is_some() => return self.expect(around, insn, next),
            FlowControl::Call if insn.is_call_near() && !superblock::ends_with_calls(around) => {
                return Ok(self.call_out(insn, Some(insn.near_branch_target()), next));
            }
            FlowControl::Call if insn.is_call_near() => {
                let fix = self.call_pad(insn.next_ip());
                self.push_return(around, fix, insn.next_ip())?;
                self.jump_out(insn.near_branch_target());
                return Ok(Next::End);
            }
            FlowControl::IndirectBranch if insn.is_jmp_near_indirect() => {
                self.spill_and_load(insn)?;
                self.unsettle();
                self.table_jump();
                return Ok(Next::End);
            }
            FlowControl::IndirectCall if insn.is_call_near_indirect() => {
                self.spill_and_load(insn)?;
                self.site(insn.ip(), Spills::RCX);
                if !superblock::ends_with_calls(around) {
                    return Ok(self.call_out(insn, None, next));
                }
                let fix = self.call_pad(insn.next_ip());
                self.push_return(around, fix, insn.next_ip())?;
                self.unsettle();
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

    /// Leaves the cache at the superblock's entry if the thread's budget is used up. Only there does the
    /// last thing recorded end with an exit that the address alone tells.
    fn leave_when_spent(&mut self, pc: u64) {
        self.rest = 0;
        self.site(pc, Spills::NONE);
        let mut inline = 0;
        self.emit.unless_spent(|emit| {
            inline = emit.offset();
            emit.leave(0);
        });
        let (kind, inline) = (ExitKind::Count, Some(inline));
        let (patch, target, block, own, known) = (None, pc, 0, None, 0);
        self.exits.push(OpenExit { patch, kind, target, inline, block, own, known });
    }

    /// Counts the block that begins with instruction `i`, if one does.
    fn count_block(&mut self, insns: &[Decoded], i: usize) {
        let (before, from) = insns.split_at(i);
        if before.last().is_some_and(|d| !d.may_leave()) {
            return;
        }
        let len = from.iter().position(Decoded::may_leave).map_or(from.len(), |n| n + 1);
        self.rest = 0;
        if let Some(first) = from.first() {
            self.site(first.insn.ip(), Spills::NONE);
        }
        self.emit.spend(len as u8);
        self.rest = len as u8;
    }

    /// Lets the code that follows use a register which the program writes before it reads it again. What
    /// it holds is kept in the context until then, for the case of a fault.
    pub fn lose(&mut self, reg: Gp) {
        self.emit.save(at::REGS + 8 * u32::from(reg.0), reg);
        self.lost |= 1 << reg.0;
    }

    /// Notes that the code from here on belongs to an instruction.
    pub fn site(&mut self, pc: u64, spills: Spills) {
        let site = self.here(pc, spills);
        self.sites.push(site);
    }

    /// Notes that a save point begins here, of whose record so many bytes are stored already.
    pub fn probe_site(&mut self, pc: u64, spills: Spills, begun: usize) {
        let site = Site { probe: true, begun: begun as u16, ..self.here(pc, spills) };
        self.sites.push(site);
    }

    fn here(&self, pc: u64, spills: Spills) -> Site {
        let (offset, lost) = (self.emit.offset() as u32, self.lost | self.now.lost());
        let (home, rest, block, flags) = (self.now, self.rest, self.block, self.flags_saved);
        let part = self.part;
        let (probe, begun) = (false, self.begun);
        Site { offset, spills, pc, lost, home, probe, rest, block, flags, begun, part }
    }

    fn plain(&mut self, source: &Source) -> Result<(), Unsupported> {
        let (here, sites) = (self.here(source.insn.ip(), Spills::NONE), &mut self.sites);
        let mut note = |offset: usize, spills| {
            sites.push(Site { offset: offset as u32, spills, ..here });
        };
        mangle::copy(&mut self.emit, source, &mut note)
    }

    fn conditional(&mut self, insn: &Instruction, bytes: &[u8]) -> Result<(), Unsupported> {
        let target = insn.near_branch_target();
        if insn.is_jcc_short_or_near() {
            let code = insn.condition_code() as u8;
            let patch = self.emit.jump_if(hardware_condition(code).ok_or(Unsupported)?);
            self.exit_if(patch, target);
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
        self.exit_if(patch, target);
        Ok(())
    }

    pub fn spill_and_load(&mut self, insn: &Instruction) -> Result<(), Unsupported> {
        self.emit.save(at::SPILL_RAX, RAX);
        self.emit.save(at::SPILL_RCX, RCX);
        self.site(insn.ip(), Spills::BOTH);
        mangle::load_target(&mut self.emit, insn)
    }

    /// A call behind which the superblock goes on, or another begins.
    fn call_out(&mut self, insn: &Instruction, target: Option<u64>, next: Option<u64>) -> Next {
        let return_address = insn.next_ip();
        let fix = self.call_to_pad(return_address);
        self.calls_out.push(CallOut { fix, return_address, target });
        self.site(return_address, Spills::NONE);
        if next.is_some() {
            return Next::Go(return_address);
        }
        let patch = self.emit.jump();
        self.exit(patch, return_address);
        Next::End
    }

    /// What the calls lead to behind which the superblock goes on.
    fn calls_out(&mut self, around: &mut dyn Surroundings) {
        for CallOut { fix, return_address, target } in std::mem::take(&mut self.calls_out) {
            if self.push_return(around, fix, return_address).is_err() {
                self.emit.replace_top(return_address);
            }
            if let Some(target) = target {
                self.jump_out(target);
            } else {
                self.table_jump();
            }
        }
    }

    /// The call over a pad, and the pad's check.
    fn call_to_pad(&mut self, return_address: u64) -> usize {
        let fix = self.emit.call();
        let at = self.emit.here();
        self.pads.push(Pad { kind: PadKind::Ret, tag: return_address, at });
        self.emit.verify_return(return_address);
        fix
    }

    /// The call over the pad, and the pad; gives what must lead behind it.
    pub fn call_pad(&mut self, return_address: u64) -> usize {
        let fix = self.call_to_pad(return_address);
        let now = std::mem::replace(&mut self.now, self.shared);
        let rest = std::mem::take(&mut self.rest);
        self.site(return_address, Spills::NONE);
        let patch = self.emit.jump();
        self.exit(patch, return_address);
        self.rest = rest;
        self.now = now;
        fix
    }

    /// Behind a call over a pad, puts the program's return address in the place of the cache's.
    pub fn push_return(
        &mut self,
        around: &mut dyn Surroundings,
        fix: usize,
        return_address: u64,
    ) -> Result<(), Unsupported> {
        self.emit.land(fix);
        if let Ok(near) = i32::try_from(return_address) {
            self.emit.raw(&[0x48, 0xc7, 0x04, 0x24]); // mov qword [rsp], near
            self.emit.raw(&near.to_le_bytes());
            return Ok(());
        }
        let before = self.emit.offset();
        self.emit.raw(&[0x48, 0x8d, 0x64, 0x24, 0x08]); // lea rsp, [rsp+8]
        self.push_constant(around, return_address).inspect_err(|_| self.emit.cut(before))
    }

    /// Pushes a number.
    pub fn push_constant(
        &mut self,
        around: &mut dyn Surroundings,
        value: u64,
    ) -> Result<(), Unsupported> {
        let constant = around.constant(value).ok_or(Unsupported)?;
        let distance = mangle::reach(self.emit.here() + 6, constant).ok_or(Unsupported)?;
        self.emit.raw(&[0xff, 0x35]); // push [rip+distance]
        self.emit.raw(&distance.to_le_bytes());
        Ok(())
    }

    /// Goes where rcx says, by the table; rax is spilled.
    pub fn table_jump(&mut self) {
        self.emit.raw(&[0x0f, 0xb7, 0xc1]); // movzx eax, cx
        self.emit.keep_within(8);
        self.emit.raw(&[0x65, 0xff, 0x24, 0xc5]); // jmp gs:[rax*8+table]
        self.emit.raw(&JUMP_TABLE.to_le_bytes());
    }

    fn ret(&mut self, insn: &Instruction) -> Result<(), Unsupported> {
        let drop = match insn.code() {
            Code::Retnq => 0,
            Code::Retnq_imm16 => insn.immediate16(),
            _ => return Err(Unsupported),
        };
        self.unsettle();
        self.site(insn.ip(), Spills::NONE);
        if drop != 0 {
            self.emit.save(at::SPILL_RAX, RAX);
            self.emit.save(at::SPILL_RCX, RCX);
            self.emit.raw(&[0x59]); // pop rcx
            // The slot below the stack pointer belongs to the program here, so no push.
            self.emit.raw(&[0x48, 0x8d, 0xa4, 0x24]); // lea rsp, [rsp+drop]
            self.emit.raw(&u32::from(drop).to_le_bytes());
            self.table_jump();
            return Ok(());
        }
        self.return_by_table();
        Ok(())
    }

    /// Returns to where the stack says.
    pub fn return_by_table(&mut self) {
        self.emit.save(at::SPILL_RDX, RDX);
        self.emit.save(at::SPILL_RCX, RCX);
        self.emit.raw(&[0x59, 0x0f, 0xb7, 0xd1]); // pop rcx; movzx edx, cx
        self.emit.raw(&[0x65, 0xff, 0x34, 0xd5]); // push gs:[rdx*8+table]
        self.emit.raw(&RET_TABLE.to_le_bytes());
        self.emit.keep_within(1);
        self.emit.raw(&[0xc3]);
    }
}

/// The hardware's code of a condition, from the decoder's numbering.
pub fn hardware_condition(code: u8) -> Option<u8> {
    use iced_x86::ConditionCode as C;
    const ORDER: [C; 16] = [
        C::o,
        C::no,
        C::b,
        C::ae,
        C::e,
        C::ne,
        C::be,
        C::a,
        C::s,
        C::ns,
        C::p,
        C::np,
        C::l,
        C::ge,
        C::le,
        C::g,
    ];
    ORDER.iter().position(|&c| c as u8 == code).map(|i| i as u8)
}
