//! P_exec: the copy of a program's functions that records nothing, with the lightest switch points.
//!
//! Every function lies in it as in the program, with the same alignment: what is inserted before a function
//! does not move it, and what is inserted behind calls is as long as a line that branches are aligned to. Its only
//! costs are one check at each function's entry (an *event*: counting down, or comparing a word in memory), and one
//! behind calls that leave copied code. Who comes by a function's own address is looked at apart, behind all functions
//! ([`Emitter::gate`]), unless the count tells as well.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::Code;
use ichnos_base::GuestVa;
use ichnos_isa_x86::Flow;

use super::emit::{Emitter, STUB};
use super::function::Function;
use super::points::Points;
use super::region::World;
use super::switch::{COUNT, EXEC, Flags, GATE, ON, PAST, RESUME, Trigger};

/// Bytes of the alignment that is kept.
const LINE: u64 = 64;

/// A function's part of the list.
pub(crate) struct Laid {
    /// Its first instruction in the list, and the one after its last.
    pub(crate) instrs: std::ops::Range<usize>,
    /// Where it lies.
    pub(crate) at: u64,
}

/// Farther than a short jump reaches. The encoder makes jumps short as it finds their targets near, and may then move the
/// targets away if they lie in another part of the list.
pub(crate) const OUT_OF_REACH: u64 = 256;

/// Parts of sequences are counted from here on: P_inst, which is encoded together with P_exec, counts its own from zero.
const FIRST_PART: u64 = 1 << 40;

/// P_exec as a list of instructions, function by function, with at least so many bytes between two of them.
pub(crate) fn clone(world: &World, points: &Points, apart: u64) -> (Emitter, Vec<Laid>) {
    let mut emitter = Emitter { next_way: FIRST_PART, ..Emitter::default() };
    let mut laid = Vec::new();
    let mut next = points.plot.exec;
    for function in &world.functions {
        let begin = emitter.instrs.len();
        emitter.entry(points, function);
        let before = bytes(&emitter, begin);
        emitter.body(world, points, function);
        let at = next + function.start.0.wrapping_sub(next + before) % LINE;
        next = at + bytes(&emitter, begin) + apart;
        laid.push(Laid { instrs: begin..emitter.instrs.len(), at });
    }
    let begin = emitter.instrs.len();
    world.functions.iter().for_each(|function| emitter.gate(points, function));
    let at = (next + OUT_OF_REACH).next_multiple_of(LINE);
    laid.push(Laid { instrs: begin..emitter.instrs.len(), at });
    (emitter, laid)
}

/// No less than the bytes of what was laid out since `begin`; exactly those if there is no short branch.
fn bytes(emitter: &Emitter, begin: usize) -> u64 {
    let instrs = emitter.instrs.get(begin..).unwrap_or_default();
    let mut encoder = iced_x86::Encoder::new(64);
    let len = |instr: &iced_x86::Instruction| match instr.flow_control() {
        iced_x86::FlowControl::ConditionalBranch if instr.is_jcc_short_or_near() => 6,
        iced_x86::FlowControl::ConditionalBranch => 16,
        iced_x86::FlowControl::UnconditionalBranch | iced_x86::FlowControl::Call => 8,
        _ if instr.is_ip_rel_memory_operand() => instr.len().max(7),
        _ => encoder.encode(instr, 0).unwrap_or(15),
    };
    instrs.iter().map(len).sum::<usize>() as u64
}

impl Emitter {
    /// The gate for those who come by a function's own address.
    ///
    /// Where an event is counted there is none: the count of a thread in P_inst has run out
    /// ([`super::switch::COUNT`]), so it leaves by the event's way.
    fn gate(&mut self, points: &Points, function: &Function) {
        let start = function.start;
        if points.counts_at(start) {
            return;
        }
        self.begin(start, 0);
        self.label = GATE | start.0;
        if function.compiled {
            self.look_at_state();
            self.branch(Code::Jne_rel32_64, STUB | start.0);
        } else {
            self.look_and_leave(STUB | start.0);
        }
        self.jump(EXEC | start.0);
    }

    /// What comes before a function: the event.
    fn entry(&mut self, points: &Points, function: &Function) {
        let start = function.start;
        if points.starts.contains(&start) {
            self.begin(start, 0);
            self.label = EXEC | start.0;
            self.light_event(points, start);
            if self.label != 0 {
                // Nothing was laid out that could have the name.
                self.push(Ok(iced_x86::Instruction::with(Code::Nopd)));
            }
        }
    }

    /// An event in P_exec.
    fn light_event(&mut self, points: &Points, pc: GuestVa) {
        match points.how.trigger {
            Trigger::Counted { .. } => {
                self.count(COUNT, points.weight(pc));
                self.branch(Code::Js_rel32_64, points.way(ON | pc.0));
            }
            Trigger::Shared => {
                self.look_at_word(points.exec);
                self.branch(Code::Jne_rel32_64, points.way(ON | pc.0));
            }
            Trigger::Named { start, .. } => {
                if start == pc {
                    self.jump(points.way(ON | pc.0));
                }
            }
        }
    }

    /// Leaves for P_inst if the thread should be there; flags are kept.
    fn look_and_leave(&mut self, to: u64) {
        const RCX: u8 = 1;
        use super::emit::{ASIDE, context};
        use super::switch::STATE;
        let stay = self.part();
        self.store(context(ASIDE), RCX);
        self.load(RCX, context(STATE));
        self.branch(Code::Jrcxz_rel8_64, stay);
        self.load(RCX, context(ASIDE));
        self.jump(to);
        self.label = stay;
        self.load(RCX, context(ASIDE));
    }

    fn body(&mut self, world: &World, points: &Points, function: &Function) {
        let copied = |to: GuestVa| world.group_at(to).is_some();
        let name = |to: GuestVa| EXEC | to.0;
        let flags = if function.compiled { Flags::Free } else { Flags::Kept };
        for inst in &function.insts {
            let pc = inst.pc();
            self.begin(pc, 0);
            self.label = if points.starts.contains(&pc) { PAST | pc.0 } else { EXEC | pc.0 };
            if points.unsure.contains(&pc) {
                let resume = points.way(RESUME | pc.0);
                match flags {
                    Flags::Free => {
                        self.look_at_state();
                        self.branch(Code::Jne_rel32_64, resume);
                    }
                    Flags::Kept => self.look_and_leave(resume),
                }
            }
            if points.heads.contains(&pc) {
                self.light_event(points, pc);
                self.label = PAST | pc.0;
            }
            let called = |to: GuestVa| world.group_of_start(to).is_some();
            match inst.flow() {
                Flow::Call(_) if points.past.contains(&pc) => {
                    self.own_to(inst, called, |to| PAST | to.0);
                }
                Flow::Call(_) => self.own_to(inst, called, name),
                _ => self.own_to(inst, copied, name),
            }
        }
        let last = function.insts.last();
        let goes_on = last.is_some_and(|i| {
            i.flow().falls_through() || matches!(i.flow(), Flow::Call(_) | Flow::CallIndirect)
        });
        if goes_on {
            let next = function.end;
            self.jump(if copied(next) { EXEC | next.0 } else { next.0 });
        }
        self.ends.push((function.start, self.instrs.len()));
    }
}
