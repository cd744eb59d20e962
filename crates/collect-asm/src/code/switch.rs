//! Two copies that threads switch between: what is inserted into the recorded one for that.
//!
//! The copy of `clone.rs` (P_exec in the paper of Lafage, Seznec, Rohou and Bodin) records
//! nothing and costs next to nothing; the copy with save points (P_inst) records. A thread changes
//! sides at *events* alone: when control comes to a function's first instruction, and, if that
//! is asked for, to a loop's first block. The rest of what is inserted sees to it that nothing
//! else changes sides.
//!
//! Invariant (*one side*): a thread runs in P_inst exactly while [`STATE`] in its context is not
//! zero, except for the instructions between a transfer and the check behind it.
//! - Calls and jumps within a copy stay there.
//! - A function's own address leads to a gate that looks at the state: so do pointers, callbacks, signal
//!   handlers and the starts of threads. Where threads count, the event itself is the gate: the count is less than zero
//!   in P_inst ([`COUNT`]), and the way that leads on then looks at the state.
//! - Return addresses may be those of the other copy. Behind every call P_inst looks at the state;
//!   P_exec does so behind calls of code that is not copied, or not known, or that may hand over to
//!   such. A return in P_inst
//!   whose address lies in P_exec goes to that place's counterpart, so that P_exec
//!   needs no check behind an ordinary call.
//! - Landing pads look at the state: an exception may have come from the other side. So do jumps out of `longjmp`,
//!   since they end behind a call of code that is not copied.
//! - A computed jump in P_inst is led to P_inst by a table, if it stays in copied code; the
//!   labels themselves lead to P_exec.
//!
//! Replay must know what it would know if all had run in P_inst. Where a function is entered that is
//! the stack pointer; anywhere else all registers are stored ([`RESUMED`]).
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Instruction, MemoryOperand, Register as Name};
use ichnos_base::GuestVa;

use super::emit::{ASIDE, COPY, Emitter, STUB, Site, context};
use super::points::Points;
use crate::Events;

/// The state: not zero in P_inst.
pub(crate) const STATE: i64 = 24;
/// How many events are left until P_exec is left. Less than none while the state says P_inst, so that who comes to
/// P_exec by a function's own address leaves it at its event.
pub(crate) const COUNT: i64 = 32;
/// How many events are left until P_inst is left.
pub(crate) const TURNS: i64 = 40;
/// Where a jump goes whose target was looked up.
pub(super) const GO: i64 = 48;
/// A third register put aside.
pub(super) const ASIDE_THIRD: i64 = 56;

/// A thread came to P_inst: then the clock, and what was left of [`COUNT`], 8 bytes each. An [`ENTERED`] or
/// [`RESUMED`] follows.
pub(crate) const SWITCHED_ON: u32 = 0xffff_ff02;
/// Bytes of it.
pub(crate) const SWITCHED_ON_LEN: usize = 20;
/// A thread left P_inst: then the block that it did not execute any more (4 bytes), the clock and what was
/// left of [`TURNS`], 8 bytes each.
pub(crate) const SWITCHED_OFF: u32 = 0xffff_ff03;
/// Bytes of it.
pub(crate) const SWITCHED_OFF_LEN: usize = 24;
/// A thread goes on at a block (4 bytes) of which replay knows nothing: the 16 registers and the base of `fs`.
pub(crate) const RESUMED: u32 = 0xffff_ff04;
/// Bytes of it.
pub(crate) const RESUMED_LEN: usize = 8 + 17 * 8;
/// The next return goes to code that is not copied: stack pointer and return address.
pub(crate) const BACK: u32 = 0xffff_ff05;
/// Bytes of it.
pub(crate) const BACK_LEN: usize = 20;

/// Added to an address to name P_exec's copy of what lies there.
pub(crate) const EXEC: u64 = 1 << 58;
/// The same behind the check of an event, where one is.
pub(crate) const PAST: u64 = 1 << 57;
/// Added to a function's address to name its gate.
pub(crate) const GATE: u64 = 1 << 56;
/// Added to a function's address to name the event in P_inst.
pub(crate) const EVENT: u64 = 1 << 55;
/// Added to an address to name P_inst's copy behind all checks.
pub(crate) const INNER: u64 = 1 << 54;
/// Added to an address to name the way from P_exec to P_inst: without an event, with one.
pub(crate) const RESUME: u64 = 1 << 53;
pub(crate) const ON: u64 = 1 << 52;
/// Added to an address to name the way from P_inst to P_exec.
pub(crate) const OFF: u64 = 1 << 51;
/// Added to a loop's address to name the event in P_inst, behind the check of the state.
pub(crate) const HEAD: u64 = 1 << 49;
/// Added to a number to name a part of a sequence.
const PART: u64 = 1 << 50;

/// Both copies begin at multiples of this and are smaller.
pub(crate) const ROOM: u64 = 1 << ROOM_BITS;
pub(super) const ROOM_BITS: u32 = 28;
/// Where the tables lie that lead from P_exec, and from the program's own code, to P_inst: four bytes for each
/// byte of code, the distance from P_inst's beginning.
pub(crate) const TO_INST: u64 = 0x6080_0000_0000;
pub(crate) const FROM_LABELS: u64 = TO_INST + 8 * ROOM;

/// What makes threads switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trigger {
    /// Each thread counts: so many events in P_inst, then so many in P_exec.
    Counted { exec: u64, inst: u64 },
    /// A word in memory that all look at.
    Shared,
    /// Two functions: the one begins what the other ends. Other functions are no events.
    Named { start: GuestVa, stop: Option<GuestVa> },
}

/// How threads switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Switching {
    pub(crate) trigger: Trigger,
    /// What is an event.
    pub(crate) events: Events,
    /// What is one in these functions.
    pub(crate) of: Vec<(GuestVa, Events)>,
    /// Whether events may be one check (`chain.rs`).
    pub(crate) together: bool,
}

impl Switching {
    /// What is an event in the function that starts at an address.
    pub(crate) fn events_of(&self, function: GuestVa) -> Events {
        self.of.iter().find(|(of, _)| *of == function).map_or(self.events, |(_, events)| *events)
    }
}

/// A word of memory at a fixed place near the code.
pub(super) fn fixed(address: u64) -> MemoryOperand {
    MemoryOperand::new(Name::RIP, Name::None, 1, address as i64, 8, false, Name::None)
}

const RCX: u8 = 1;

impl Emitter {
    /// A branch on flags.
    pub(crate) fn branch(&mut self, code: Code, to: u64) {
        self.push(Instruction::with_branch(code, to));
    }

    /// Compares the thread's state with zero.
    pub(crate) fn look_at_state(&mut self) {
        self.push(Instruction::with2(Code::Cmp_rm64_imm8, context(STATE), 0i32));
    }

    /// Compares the shared word with zero.
    pub(crate) fn look_at_word(&mut self, exec: u64) {
        self.push(Instruction::with2(Code::Cmp_rm32_imm8, fixed(exec), 0i32));
    }

    /// Counts events down.
    pub(crate) fn count(&mut self, which: i64, events: i32) {
        self.push(match events {
            1 => Instruction::with1(Code::Dec_rm64, context(which)),
            _ => Instruction::with2(Code::Sub_rm64_imm8, context(which), events),
        });
    }

    /// A name for a part of a sequence.
    pub(crate) fn part(&mut self) -> u64 {
        self.next_way += 1;
        PART | self.next_way
    }

    /// In P_inst, before a block of the program's own: checks of state and events.
    pub(crate) fn checks(&mut self, points: &Points, pc: GuestVa, flags: Flags) {
        let (guarded, head) = (points.returns.contains(&pc), points.heads.contains(&pc));
        if !guarded && !head {
            return;
        }
        self.checks_from = Some(self.instrs.len());
        if guarded {
            match flags {
                Flags::Free => {
                    self.look_at_state();
                    self.branch(Code::Je_rel32_64, EXEC | pc.0);
                }
                Flags::Kept => self.look_keeping(pc),
            }
        }
        if head {
            if guarded {
                self.label = HEAD | pc.0;
            }
            self.event(points, pc);
            if guarded && self.label != 0 {
                // Nothing was laid out that could have the name.
                self.push(Ok(Instruction::with(Code::Nopd)));
            }
        }
        self.label = INNER | pc.0;
    }

    /// As `checks`, without touching flags: the state is looked at by way of a register.
    fn look_keeping(&mut self, pc: GuestVa) {
        let (stay, leave) = (self.part(), self.part());
        self.store(context(ASIDE), RCX);
        self.load(RCX, context(STATE));
        self.branch(Code::Jrcxz_rel8_64, leave);
        self.jump(stay);
        self.label = leave;
        self.load(RCX, context(ASIDE));
        self.jump(EXEC | pc.0);
        self.label = stay;
        self.load(RCX, context(ASIDE));
    }

    /// In P_inst: counts an event, or looks at the word, and leaves if it is time.
    fn event(&mut self, points: &Points, pc: GuestVa) {
        match points.how.trigger {
            Trigger::Counted { .. } => {
                self.count(TURNS, 1);
                self.branch(Code::Js_rel32_64, points.way(OFF | pc.0));
            }
            Trigger::Shared => {
                self.look_at_word(points.exec);
                self.branch(Code::Je_rel32_64, points.way(OFF | pc.0));
            }
            Trigger::Named { stop, .. } => {
                if stop == Some(pc) {
                    self.jump(points.way(OFF | pc.0));
                }
            }
        }
    }

    /// In P_inst, before a function: where it is entered by copied code and by other code, and the two ways between
    /// the copies.
    pub(crate) fn entrance(&mut self, points: &Points, function: GuestVa) {
        if !points.starts.contains(&function) {
            return;
        }
        self.aside(EVENT | function.0, function);
        let begin = self.instrs.len();
        self.event(points, function);
        self.jump(COPY | function.0);
        self.unstored(begin);
    }

    /// Before what is entered by other code: the event.
    pub(crate) fn outer_event(&mut self, points: &Points, function: GuestVa) {
        if points.starts.contains(&function) {
            let begin = self.instrs.len();
            self.aside(STUB | function.0, function);
            self.event(points, function);
            self.unstored(begin);
        }
    }

    /// What was laid out since `begin` comes before the record of the block that begins here.
    pub(super) fn unstored(&mut self, begin: usize) {
        let end = self.instrs.len();
        self.sites.push(Site { begin, from: begin, until: begin, to: begin, stored: end });
    }

    /// The last site belongs to the end of a block.
    pub(super) fn stored_before(&mut self, begin: usize) {
        if let Some(site) = self.sites.last_mut() {
            site.stored = begin;
        }
    }

    /// What follows lies aside and has a name.
    fn aside(&mut self, label: u64, pc: GuestVa) {
        self.label = label;
        (self.pc, self.turn, self.seldom) = (pc, 0, true);
    }
}

/// Whether a sequence may change flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flags {
    /// They are dead, by the calling convention.
    Free,
    /// They may be in use.
    Kept,
}
