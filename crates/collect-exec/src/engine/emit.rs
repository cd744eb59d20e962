//! Writes machine code into a buffer that has a known address.
//!
//! Only what the engine inserts is written here; the program's own instructions are copied or
//! re-encoded by `mangle`. None of the inserted sequences changes flags.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ctx::at;

/// A register by its hardware number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gp(pub u8);

/// rax.
pub const RAX: Gp = Gp(0);
/// rcx.
pub const RCX: Gp = Gp(1);

/// A buffer of code.
pub struct Emit {
    base: u64,
    code: Vec<u8>,
}

impl Emit {
    /// An empty buffer whose first byte will lie at `base`.
    pub fn new(base: u64) -> Self {
        Self { base, code: Vec::with_capacity(1024) }
    }

    /// The address of the next byte.
    pub fn here(&self) -> u64 {
        self.base + self.code.len() as u64
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> usize {
        self.code.len()
    }

    /// The address of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// All that was written.
    pub fn bytes(&self) -> &[u8] {
        &self.code
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// Takes back everything behind `offset`.
    pub fn cut(&mut self, offset: usize) {
        self.code.truncate(offset);
    }

    /// Puts four bytes over what was written at `offset`.
    pub fn fix32(&mut self, offset: usize, value: u32) {
        self.code[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Puts one byte over what was written at `offset`.
    pub fn set_byte(&mut self, offset: usize, value: u8) {
        self.code[offset] = value;
    }

    /// `mov gs:[slot], reg`.
    pub fn save(&mut self, slot: u32, reg: Gp) {
        self.gs_op(0x89, reg, slot);
    }

    /// `mov reg, gs:[slot]`.
    pub fn load(&mut self, reg: Gp, slot: u32) {
        self.gs_op(0x8b, reg, slot);
    }

    fn gs_op(&mut self, opcode: u8, reg: Gp, slot: u32) {
        self.raw(&[0x65, 0x48 | (reg.0 >> 3) << 2, opcode, 4 | (reg.0 & 7) << 3, 0x25]);
        self.raw(&slot.to_le_bytes());
    }

    /// `mov reg, value`, in the shortest way.
    pub fn set(&mut self, reg: Gp, value: u64) {
        if let Ok(low) = u32::try_from(value) {
            if reg.0 >= 8 {
                self.raw(&[0x41]);
            }
            self.raw(&[0xb8 | reg.0 & 7]);
            self.raw(&low.to_le_bytes());
        } else {
            self.raw(&[0x48 | reg.0 >> 3, 0xb8 | reg.0 & 7]);
            self.raw(&value.to_le_bytes());
        }
    }

    /// `mov to, from`.
    pub fn copy(&mut self, to: Gp, from: Gp) {
        let rex = 0x48 | (from.0 >> 3) << 2 | to.0 >> 3;
        self.raw(&[rex, 0x89, 0xc0 | (from.0 & 7) << 3 | to.0 & 7]);
    }

    /// `jmp gs:[slot]`.
    pub fn jump_slot(&mut self, slot: u32) {
        self.raw(&[0x65, 0xff, 0x24, 0x25]);
        self.raw(&slot.to_le_bytes());
    }

    /// `jmp rel32`; gives the offset of the displacement, which is left zero.
    pub fn jump(&mut self) -> usize {
        self.align_displacement(1);
        self.raw(&[0xe9, 0, 0, 0, 0]);
        self.code.len() - 4
    }

    /// `jcc rel32` for a condition code; gives the offset of the displacement.
    pub fn jump_if(&mut self, condition: u8) -> usize {
        self.align_displacement(2);
        self.raw(&[0x0f, 0x80 | condition, 0, 0, 0, 0]);
        self.code.len() - 4
    }

    /// `call rel32`; gives the offset of the displacement.
    pub fn call(&mut self) -> usize {
        self.raw(&[0xe8, 0, 0, 0, 0]);
        self.code.len() - 4
    }

    /// Lets the displacement at `offset` lead to here.
    pub fn land(&mut self, offset: usize) {
        let distance = self.code.len() - (offset + 4);
        self.fix32(offset, distance as u32);
    }

    /// Keeps a displacement, which follows `opcode` bytes from here, within one cache line, so
    /// that it can be patched while it runs.
    fn align_displacement(&mut self, opcode: u64) {
        let room = 64 - (self.here() + opcode) % 64;
        if room < 4 {
            self.nop(room as usize);
        }
    }

    fn nop(&mut self, len: usize) {
        self.raw(match len {
            1 => &[0x90],
            2 => &[0x66, 0x90],
            _ => &[0x0f, 0x1f, 0x00],
        });
    }

    /// The check at a landing pad: goes on if rcx holds `tag`, else to the slot's miss path
    /// with rax = -tag and rcx = target - tag. Restores rax and rcx.
    pub fn verify(&mut self, tag: u64, miss: u32) {
        self.raw(&[0x48, 0xb8]);
        self.raw(&tag.wrapping_neg().to_le_bytes());
        self.raw(&[0x48, 0x8d, 0x0c, 0x01]); // lea rcx, [rcx+rax]
        self.raw(&[0xe3, 8]); // jrcxz over the jump
        self.jump_slot(miss);
        self.load(RAX, at::SPILL_RAX);
        self.load(RCX, at::SPILL_RCX);
    }

    /// The check at a landing pad for returns, which also gives the dead stack slot the
    /// program's return address back.
    pub fn verify_return(&mut self, tag: u64) {
        self.raw(&[0x48, 0x89, 0x4c, 0x24, 0xf8]); // mov [rsp-8], rcx
        self.verify(tag, at::MISS_RET);
    }

    /// Goes on behind the code that `otherwise` writes unless the thread's budget is used up. Flags stay as
    /// they are: whether a budget is negative is seen by its upper bytes.
    pub fn unless_spent(&mut self, otherwise: impl FnOnce(&mut Self)) {
        self.save(at::SPILL_RCX, RCX);
        self.raw(&[0x65, 0x0f, 0xb7, 0x0c, 0x25]); // movzx ecx, word gs:[budget+6]
        self.raw(&(at::BUDGET + 6).to_le_bytes());
        self.raw(&[0xe3, 0]); // jrcxz over what follows
        let over = self.offset();
        self.load(RCX, at::SPILL_RCX);
        otherwise(self);
        self.set_byte(over - 1, (self.offset() - over) as u8);
        self.load(RCX, at::SPILL_RCX);
    }

    /// Takes `insns` off the thread's budget.
    pub fn spend(&mut self, insns: u8) {
        self.save(at::SPILL_RCX, RCX);
        self.load(RCX, at::BUDGET);
        self.raw(&[0x48, 0x8d, 0x49, insns.wrapping_neg()]); // lea rcx, [rcx-insns]
        self.save(at::BUDGET, RCX);
        self.load(RCX, at::SPILL_RCX);
    }

    /// Leaves the cache through exit number `id`.
    pub fn leave(&mut self, id: u32) {
        self.raw(&[0x65, 0xc7, 0x04, 0x25]);
        self.raw(&at::EXIT.to_le_bytes());
        self.raw(&id.to_le_bytes());
        self.jump_slot(at::GLUE_EXIT);
    }
}

/// Bytes of [`Emit::leave`].
pub const LEAVE_LEN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

    fn text(emit: &Emit) -> Vec<String> {
        let mut decoder = Decoder::with_ip(64, emit.bytes(), emit.base(), DecoderOptions::NONE);
        let mut formatter = IntelFormatter::new();
        let format = |i| {
            let mut text = String::new();
            formatter.format(&i, &mut text);
            text
        };
        decoder.iter().map(format).collect()
    }

    #[test]
    fn writes_what_it_says() {
        let mut emit = Emit::new(0x1000);
        emit.save(8, RAX);
        emit.load(Gp(9), 16);
        emit.set(Gp(10), 5);
        emit.set(Gp(10), u64::MAX);
        emit.leave(7);
        let want = [
            "mov gs:[8],rax",
            "mov r9,gs:[10h]",
            "mov r10d,5",
            "mov r10,0FFFFFFFFFFFFFFFFh",
            &format!("mov dword ptr gs:[{:X}h],7", at::EXIT),
            &format!("jmp qword ptr gs:[{:X}h]", at::GLUE_EXIT),
        ];
        assert_eq!(text(&emit), want);
    }

    #[test]
    fn keeps_displacements_within_a_line() {
        for start in 0..64 {
            let mut emit = Emit::new(0x4000 + start);
            let (a, b) = (emit.jump(), emit.jump_if(4));
            for at in [a, b] {
                let line = |o: usize| (0x4000 + start + o as u64) / 64;
                assert_eq!(line(at), line(at + 3));
            }
        }
    }
}
