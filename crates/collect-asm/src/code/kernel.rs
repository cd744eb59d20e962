//! System calls that copied code makes itself: what P_inst stores around a `syscall` instruction.
//!
//! Compilers make none: they are written as assembly, in C or by hand. Code without them stays as it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::Mnemonic;
use ichnos_base::GuestVa;
use ichnos_isa_x86::Inst;

use super::emit::{ASIDE, Emitter, PLACE, TAG, at, context};
use super::reference::Midway;

/// A system call is made by the block before: then its number and six arguments, 8 bytes each.
pub(crate) const ASKED: u32 = 0xffff_ff08;
/// Bytes of it.
pub(crate) const ASKED_LEN: usize = TAG + 7 * 8;
/// It has returned: then the result, 8 bytes.
pub(crate) const ANSWERED: u32 = 0xffff_ff09;
/// Bytes of it.
pub(crate) const ANSWERED_LEN: usize = TAG + 8;

const RAX: u8 = 0;
const R11: u8 = 11;
/// The number and the arguments: rax, rdi, rsi, rdx, r10, r8, r9.
const PASSED: [u8; 7] = [RAX, 7, 6, 2, 10, 8, 9];

/// Whether an instruction is a system call whose number and arguments are where 64-bit programs have them.
pub(super) fn asks(inst: &Inst) -> bool {
    inst.raw().mnemonic() == Mnemonic::Syscall
}

impl Emitter {
    /// Before a system call. The instruction itself destroys `r11`.
    pub(super) fn tell_asked(&mut self) {
        let begin = self.instrs.len();
        self.load(R11, context(PLACE));
        self.tag_at(0, ASKED);
        for (i, register) in (0..).zip(PASSED) {
            self.store(at(R11, TAG as i64 + 8 * i), register);
        }
        self.advance(R11, ASKED_LEN);
        self.site(begin, begin);
        self.stored_before(begin);
        self.midways.push((self.instrs.len(), Some(Midway::Ahead { bytes: ASKED_LEN as u64 })));
    }

    /// Behind a system call, which returned to `pc`.
    pub(super) fn tell_answered(&mut self, pc: GuestVa) {
        let before = (self.pc, self.turn);
        (self.pc, self.turn) = (pc, 0);
        let begin = self.instrs.len();
        self.store(context(ASIDE), R11);
        let from = self.instrs.len();
        self.load(R11, context(PLACE));
        self.tag_at(0, ANSWERED);
        self.store(at(R11, TAG as i64), RAX);
        self.advance(R11, ANSWERED_LEN);
        self.site(begin, from);
        self.load(R11, context(ASIDE));
        self.not_stored_yet();
        (self.pc, self.turn) = before;
    }
}
