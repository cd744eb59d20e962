//! The ways between the two copies, and the rare ways of returns: sequences that are the same for every place but for a
//! block's identifier and the jump at their end.
//!
//! There are tens of thousands of them in a large program, and hardly one is ever taken. So each kind is laid out
//! and encoded once ([`Template`]), and its bytes are repeated, in a stretch of memory of their own that begins
//! where P_inst cannot reach ([`AWAY`]): addresses are known before anything else is encoded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock};
use ichnos_base::GuestVa;

use super::emit::{
    ASIDE, ASIDE_TOO, ENTERED, ENTERED_LEN, Emitter, PLACE, STUB, TAG, at, context, name,
};
use super::encode::{Stretch, offsets_of};
use super::plot::Plot;
use super::points::Points;
use super::switch::{
    ASIDE_THIRD, COUNT, Flags, OFF, ON, PAST, RESUME, RESUMED, RESUMED_LEN, ROOM, STATE,
    SWITCHED_OFF, SWITCHED_OFF_LEN, SWITCHED_ON, SWITCHED_ON_LEN, TURNS, Trigger,
};
use crate::Error;

/// Where the ways begin, counted from the room's beginning.
pub(crate) const AWAY: u64 = ROOM / 4 * 3;
/// Ways are aligned to this.
const ALIGN: u64 = 16;
/// Stands for a block's identifier in a template.
const SOME_ID: u32 = 0x5a1d_a5d1;

/// What a way is for.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// From P_exec to P_inst where a function is entered, and so many events were counted; if they were, also for who
    /// is there already.
    On(i32),
    /// The same where a loop begins.
    OnInLoop,
    /// From P_inst to P_exec at an event, where P_exec counts so many.
    Off(i32),
    /// From P_exec to P_inst without an event.
    Resume,
    /// The rest of a return whose address is not that of P_inst.
    Return(Instruction, Flags),
}

/// A kind of way in machine code.
struct Template {
    kind: Kind,
    code: Vec<u8>,
    instrs: usize,
    /// Where the identifier lies, if there is one.
    id: Option<usize>,
    /// Where jumps end whose distances are to be filled in.
    jumps: Vec<usize>,
    /// What can begin again, counted from the first byte.
    sites: Vec<Stretch>,
    /// Where the stack pointer is lower than the program's.
    lowered: Vec<Range<u64>>,
}

/// One of them.
struct Way {
    template: usize,
    at: u64,
    pc: GuestVa,
    /// The names of where its jumps lead.
    to: [u64; 2],
}

/// All ways.
pub(crate) struct Ways {
    base: u64,
    plot: Plot,
    next: u64,
    templates: Vec<Template>,
    list: Vec<Way>,
}

/// The ways in machine code.
#[derive(Default)]
pub(crate) struct LaidWays {
    /// Where they lie.
    pub(crate) at: u64,
    pub(crate) code: Vec<u8>,
    /// As those of P_inst.
    pub(crate) places: Vec<(u32, GuestVa, u8)>,
    pub(crate) sites: Vec<Stretch>,
    /// Where the stack pointer is lower than the program's.
    pub(crate) lowered: Vec<Range<u64>>,
    /// How many instructions there are.
    pub(crate) instrs: usize,
}

impl LaidWays {
    /// Whether an address lies in them.
    pub(crate) fn holds(&self, addr: u64) -> bool {
        self.at <= addr && addr < self.at + self.code.len() as u64
    }
}

impl Ways {
    /// The ways between the copies; the points learn where they lie.
    pub(crate) fn new(points: &mut Points) -> Result<Self, Error> {
        let plot = points.plot;
        let base = plot.ways;
        let (templates, list) = Default::default();
        let mut ways = Self { base, plot, next: base, templates, list };
        let trigger = points.how.trigger;
        let mut names = HashMap::new();
        let on = |pc: GuestVa| match trigger {
            Trigger::Counted { .. } => [STUB | pc.0, points.inner(pc)],
            _ => [points.inner(pc); 2],
        };
        for pc in sorted(&points.starts) {
            let weight = points.weight(pc);
            let on = ways.add(Kind::On(weight), (pc, on(pc)), trigger)?;
            let off = ways.add(Kind::Off(weight), (pc, [PAST | pc.0; 2]), trigger)?;
            names.extend([(ON | pc.0, on), (OFF | pc.0, off)]);
        }
        for pc in sorted(&points.heads) {
            let on = ways.add(Kind::OnInLoop, (pc, [points.inner(pc); 2]), trigger)?;
            let off = ways.add(Kind::Off(1), (pc, [PAST | pc.0; 2]), trigger)?;
            names.extend([(ON | pc.0, on), (OFF | pc.0, off)]);
        }
        for pc in sorted(&points.returns) {
            let resume = ways.add(Kind::Resume, (pc, [points.resumed(pc); 2]), trigger)?;
            names.insert(RESUME | pc.0, resume);
        }
        points.ways = names;
        Ok(ways)
    }

    /// The rare way of a return; where it will lie.
    pub(crate) fn of_return(
        &mut self,
        points: &Points,
        raw: Instruction,
        (pc, flags): (GuestVa, Flags),
    ) -> Result<u64, Error> {
        self.add(Kind::Return(raw, flags), (pc, [0; 2]), points.how.trigger)
    }

    fn add(
        &mut self,
        kind: Kind,
        (pc, to): (GuestVa, [u64; 2]),
        trigger: Trigger,
    ) -> Result<u64, Error> {
        let template = match self.templates.iter().position(|t| t.kind == kind) {
            Some(template) => template,
            None => {
                self.templates.push(self.template(kind, trigger)?);
                self.templates.len() - 1
            }
        };
        let at = self.next;
        let len = self.templates.get(template).map_or(0, |t| t.code.len() as u64);
        self.next = (at + len).next_multiple_of(ALIGN);
        self.list.push(Way { template, at, pc, to });
        Ok(at)
    }

    fn template(&self, kind: Kind, trigger: Trigger) -> Result<Template, Error> {
        let failed = |why: String| Error::Layout { base: self.base, why };
        // So far away that the jump has four bytes.
        let to = self.base + ROOM / 8;
        let mut emitter = Emitter { seldom: true, ..Emitter::default() };
        match kind {
            Kind::On(weight) => emitter.on_at_entry((trigger, weight), to),
            Kind::OnInLoop => emitter.on_in_loop(trigger, to),
            Kind::Off(weight) => emitter.off((trigger, weight), to),
            Kind::Resume => emitter.resume(to),
            Kind::Return(raw, flags) => emitter.slow_return(&self.plot, raw, flags),
        }
        let block = InstructionBlock::new(&emitter.instrs, self.base);
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let result = BlockEncoder::encode(64, block, options).map_err(|e| failed(e.to_string()))?;
        let code = result.code_buffer;
        let mut offsets = offsets_of(&result.new_instruction_offsets);
        offsets.push(u32::try_from(code.len()).unwrap_or(u32::MAX));
        let offset = |i: usize| offsets.get(i).map_or(0, |o| u64::from(*o));
        let sites = emitter.sites.iter().map(|s| Stretch::new(s, offset)).collect();
        let lowered = emitter.lowered.iter().map(|(from, to)| offset(*from)..offset(*to)).collect();
        let id = code.windows(4).position(|bytes| bytes == SOME_ID.to_le_bytes());
        let leads = |(i, instr): (usize, &Instruction)| {
            (instr.near_branch_target() == to).then(|| offset(i + 1) as usize)
        };
        let jumps = emitter.instrs.iter().enumerate().filter_map(leads).collect();
        Ok(Template { kind, code, instrs: emitter.instrs.len(), id, jumps, sites, lowered })
    }

    /// All of them in machine code: `labels` says where names lie, `ids` which identifiers blocks have.
    pub(crate) fn lay(
        &self,
        labels: &HashMap<u64, u64>,
        ids: &HashMap<GuestVa, u32>,
    ) -> Result<LaidWays, Error> {
        let failed = |why: String| Error::Layout { base: self.base, why };
        let mut laid = LaidWays { at: self.base, ..LaidWays::default() };
        let total = usize::try_from(self.next - self.base).unwrap_or(0);
        if self.next >= self.plot.room + ROOM {
            return Err(failed("the ways between the copies are larger than 64 MiB".into()));
        }
        laid.code.resize(total, 0xcc);
        for way in &self.list {
            let Some(template) = self.templates.get(way.template) else { continue };
            let from = usize::try_from(way.at - self.base).unwrap_or(0);
            let Some(code) = laid.code.get_mut(from..from + template.code.len()) else { continue };
            code.copy_from_slice(&template.code);
            if let Some(place) = template.id.and_then(|id| code.get_mut(id..id + 4)) {
                place.copy_from_slice(&ids.get(&way.pc).unwrap_or(&0).to_le_bytes());
            }
            for (end, to) in template.jumps.iter().zip(way.to) {
                let to = labels.get(&to);
                let to = to.ok_or_else(|| failed(format!("a way at {} leads nowhere", way.pc)))?;
                let far = i32::try_from(to.wrapping_sub(way.at + *end as u64) as i64);
                let far = far.map_err(|_| failed("a way leads too far".into()))?;
                if let Some(place) = code.get_mut(end - 4..*end) {
                    place.copy_from_slice(&far.to_le_bytes());
                }
            }
            laid.instrs += template.instrs;
            laid.places.push((
                u32::try_from(way.at - self.plot.inst).unwrap_or(u32::MAX),
                way.pc,
                0,
            ));
            laid.sites.extend(template.sites.iter().map(|s| s.moved(way.at)));
            let there = |range: &Range<u64>| way.at + range.start..way.at + range.end;
            laid.lowered.extend(template.lowered.iter().map(there));
        }
        Ok(laid)
    }
}

fn sorted(set: &HashSet<GuestVa>) -> Vec<GuestVa> {
    let mut all: Vec<_> = set.iter().copied().collect();
    all.sort_unstable();
    all
}

const RAX: u8 = 0;
const RDX: u8 = 2;
const RSP: u8 = 4;
const R11: u8 = 11;

impl Emitter {
    pub(super) fn value(&mut self, register: u8, value: u64) {
        self.push(Instruction::with2(Code::Mov_r64_imm64, name(register), value));
    }

    fn set_word(&mut self, which: i64, value: u64, by: u8) {
        self.value(by, value);
        self.store(context(which), by);
    }

    /// Stores the clock; `rax` and `rdx` are spoilt.
    fn clock(&mut self, offset: usize) {
        self.push(Ok(Instruction::with(Code::Rdtsc)));
        self.push(Instruction::with2(Code::Shl_rm64_imm8, name(RDX), 32u32));
        self.push(Instruction::with2(Code::Or_r64_rm64, name(RAX), name(RDX)));
        self.store(at(R11, offset as i64), RAX);
    }

    pub(super) fn tag_at(&mut self, offset: usize, tag: u32) {
        self.push(Instruction::with2(Code::Mov_rm32_imm32, at(R11, offset as i64), tag));
    }

    /// The head of a way on: tag, clock, and the count as if the last of so many events were not to come yet.
    fn switched_on(&mut self, weight: i32) {
        self.tag_at(0, SWITCHED_ON);
        self.clock(TAG);
        self.load(RAX, context(COUNT));
        if weight > 1 {
            self.push(Instruction::with2(Code::Add_rm64_imm8, name(RAX), weight - 1));
        }
        self.store(at(R11, TAG as i64 + 8), RAX);
    }

    /// The thread is in P_inst from here on. That is before it says so: a signal handler that comes between finds
    /// words that fit each other, and the collector is told of the handler's mode.
    fn now_in_inst(&mut self, trigger: Trigger) {
        if let Trigger::Counted { inst, .. } = trigger {
            self.set_word(TURNS, inst.saturating_sub(1), RAX);
        }
        self.set_word(STATE, 1, RAX);
    }

    /// Three registers, for a sequence that needs them.
    pub(super) fn put_aside(&mut self) {
        self.store(context(ASIDE), R11);
        self.store(context(ASIDE_TOO), RAX);
        self.store(context(ASIDE_THIRD), RDX);
    }

    pub(super) fn take_back(&mut self) {
        self.load(RDX, context(ASIDE_THIRD));
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
    }

    /// The way over to the recorded copy, up to where its words go; where it begins, and where it does so again.
    fn begin_on(&mut self, trigger: Trigger) -> (usize, usize) {
        let begin = self.instrs.len();
        self.put_aside();
        self.now_in_inst(trigger);
        let from = self.instrs.len();
        self.load(R11, context(PLACE));
        (begin, from)
    }

    fn on_at_entry(&mut self, (trigger, weight): (Trigger, i32), to: u64) {
        const ENTRY: usize = SWITCHED_ON_LEN;
        let begin = self.instrs.len();
        if let Trigger::Counted { .. } = trigger {
            self.there_already(weight, to);
        }
        let (_, from) = self.begin_on(trigger);
        self.switched_on(weight);
        self.tag_at(ENTRY, ENTERED);
        self.store(at(R11, ENTRY as i64 + 4), RSP);
        self.load(RAX, at(RSP, 0));
        self.store(at(R11, ENTRY as i64 + 12), RAX);
        self.push(Instruction::with1(Code::Rdfsbase_r64, name(RAX)));
        self.store(at(R11, ENTRY as i64 + 20), RAX);
        self.advance(R11, SWITCHED_ON_LEN + ENTERED_LEN);
        self.site(begin, from);
        self.take_back();
        self.jump(to);
        self.not_stored_yet();
    }

    /// A thread that is in P_inst came by a function's own address: nothing is counted, and it goes on where
    /// the function is entered by other code. Flags are dead.
    fn there_already(&mut self, weight: i32, to: u64) {
        let on = self.part();
        self.look_at_state();
        self.branch(Code::Je_rel32_64, on);
        self.push(Instruction::with2(Code::Add_rm64_imm8, context(COUNT), weight));
        self.jump(to);
        self.label = on;
    }

    /// Stores all registers but r11, which was put aside; `rax` is spoilt.
    fn registers(&mut self, offset: usize) {
        let place = |i: usize| at(R11, (offset + 8 + 8 * i) as i64);
        self.tag_at(offset, RESUMED);
        self.tag_at(offset + TAG, SOME_ID);
        (0..16).filter(|i| *i != R11).for_each(|i| self.store(place(usize::from(i)), i));
        self.load(RAX, context(ASIDE));
        self.store(place(11), RAX);
        self.push(Instruction::with1(Code::Rdfsbase_r64, name(RAX)));
        self.store(place(16), RAX);
    }

    fn on_in_loop(&mut self, trigger: Trigger, to: u64) {
        const REGISTERS: usize = SWITCHED_ON_LEN;
        let (begin, from) = self.begin_on(trigger);
        self.load(RAX, context(ASIDE_TOO));
        self.load(RDX, context(ASIDE_THIRD));
        self.registers(REGISTERS);
        self.switched_on(1);
        self.advance(R11, SWITCHED_ON_LEN + RESUMED_LEN);
        self.site(begin, from);
        self.take_back();
        self.jump(to);
        self.not_stored_yet();
    }

    fn off(&mut self, (trigger, weight): (Trigger, i32), to: u64) {
        let begin = self.instrs.len();
        self.put_aside();
        // In this order: the count is not above zero while the state says P_inst.
        self.set_word(STATE, 0, RAX);
        if let Trigger::Counted { exec, .. } = trigger {
            self.set_word(COUNT, exec.saturating_sub(u64::from(weight.unsigned_abs())), RAX);
        }
        let from = self.instrs.len();
        self.load(R11, context(PLACE));
        self.tag_at(0, SWITCHED_OFF);
        self.tag_at(TAG, SOME_ID);
        self.clock(8);
        self.load(RAX, context(TURNS));
        self.store(at(R11, 16), RAX);
        self.advance(R11, SWITCHED_OFF_LEN);
        self.site(begin, from);
        self.take_back();
        self.jump(to);
        self.not_stored_yet();
    }

    fn resume(&mut self, to: u64) {
        let begin = self.instrs.len();
        self.store(context(ASIDE), R11);
        self.store(context(ASIDE_TOO), RAX);
        let from = self.instrs.len();
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(PLACE));
        self.registers(0);
        self.advance(R11, RESUMED_LEN);
        self.site(begin, from);
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
        self.jump(to);
        self.not_stored_yet();
    }
}
