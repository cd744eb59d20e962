//! Accesses under a mask behind a sieve.
//!
//! How many bytes they touch is known when they run. If the active lanes are the first ones, these are bytes side by
//! side: if they lie in a line that is in its slot, that is stamped as for other accesses, and counted among what varies. Everything
//! else leaves the cache, as all accesses do that vary (`sieved::note`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_x86::Role;

use super::emit::{Emit, Gp};
use super::sift::{EQUAL, NOT_EQUAL, Sifter, leave, used};
use super::slots::{self, MOV_TO, Place, Time, load_time};
use super::thread;
use super::translate::Draft;
use crate::sieve::{LOADS, Masked, STORES};

impl Sifter {
    /// Writes what stands before an instruction with such an access, which is the last reference of its piece.
    pub(super) fn masked(&self, draft: &mut Draft, insn: usize, masked: &Masked, pc: u64) {
        let operand = &masked.operand;
        self.free_flags(draft, insn, pc);
        let (first, last) = self.borrow_two(draft, insn, used(operand));
        let (time, counter) = match operand.role {
            Role::Store => (Time::Stored, STORES),
            _ => (Time::Loaded, LOADS),
        };
        let emit = &mut draft.emit;
        active(emit, last.reg, masked);
        emit.test(last.reg, last.reg);
        let none = emit.jump_if(EQUAL);
        // Only of the first lanes is the mask one less than a power of two.
        emit.lea(first.reg, Some(last.reg), None, 1);
        emit.test(first.reg, last.reg);
        let others = emit.jump_if(NOT_EQUAL);
        emit.count_ones(last.reg);
        slots::address(emit, first.reg, &operand.address, 0);
        emit.lea(last.reg, Some(first.reg), Some((last.reg, operand.size as u8)), -1);
        slots::find(emit, (last.reg, first.reg), self.sieve.data);
        let elsewhere = emit.jump_if(NOT_EQUAL);
        Place::In(first.reg).way(emit, first.reg);
        load_time(emit, last.reg, 0);
        time.op(emit, MOV_TO, last.reg, first.reg);
        emit.add(thread::COUNTERS_AT as u32 + 8 * counter, 1);
        emit.land(none);
        last.give_back(emit);
        first.give_back(emit);
        if draft.flags_saved {
            emit.restore_flags();
        }
        let done = emit.jump();
        emit.land(others);
        emit.land(elsewhere);
        last.give_back(emit);
        first.give_back(emit);
        self.give_flags(draft, insn, pc);
        leave(draft, pc);
        draft.emit.land(done);
    }
}

/// Puts the bits of the lanes that are active into a register.
fn active(emit: &mut Emit, to: Gp, masked: &Masked) {
    emit.load_mask(to, masked.mask, masked.lanes);
    if masked.lanes < 16 {
        emit.and32(to, (1 << masked.lanes) - 1);
    }
}
