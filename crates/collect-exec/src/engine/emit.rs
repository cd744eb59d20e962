//! Writes machine code into a buffer that has a known address.
//!
//! Only what the engine inserts is written here; the program's own instructions are copied or
//! re-encoded by `mangle`. What is inserted changes flags only where `sift` has made them free.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ctx::at;

/// A register by its hardware number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gp(pub u8);

/// rax.
pub const RAX: Gp = Gp(0);
/// rcx.
pub const RCX: Gp = Gp(1);
/// rdx.
pub const RDX: Gp = Gp(2);

/// Bytes whose decoded form the processor keeps together.
const LINE: u64 = 32;
/// Instructions of so many bytes that do nothing.
const NOPS: [&[u8]; 9] = [
    &[],
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

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

    /// An instruction between a register and `gs:[slot]`.
    pub fn gs_op(&mut self, opcode: u8, reg: Gp, slot: u32) {
        self.raw(&[0x65, 0x48 | (reg.0 >> 3) << 2, opcode, 4 | (reg.0 & 7) << 3, 0x25]);
        self.raw(&slot.to_le_bytes());
    }

    /// The same with the register's lower half.
    pub fn gs_op32(&mut self, opcode: u8, reg: Gp, slot: u32) {
        self.raw(&[0x65, 0x40 | (reg.0 >> 3) << 2, opcode, 4 | (reg.0 & 7) << 3, 0x25]);
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

    /// `mov dword gs:[slot], value`.
    pub fn store32(&mut self, slot: u32, value: u32) {
        self.raw(&[0x65, 0xc7, 0x04, 0x25]);
        self.raw(&slot.to_le_bytes());
        self.raw(&value.to_le_bytes());
    }

    /// Saves the arithmetic flags in the context. All registers stay as they are.
    pub fn save_flags(&mut self) {
        self.save(at::SPILL_RAX, RAX);
        self.raw(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf; seto al
        self.save(at::SPILL_FLAGS, RAX);
        self.load(RAX, at::SPILL_RAX);
    }

    /// Gives them back.
    pub fn restore_flags(&mut self) {
        self.save(at::SPILL_RAX, RAX);
        self.load(RAX, at::SPILL_FLAGS);
        self.raw(&[0x04, 0x7f, 0x9e]); // add al, 0x7f; sahf
        self.load(RAX, at::SPILL_RAX);
    }

    /// `lea to, [base + index * scale + disp]`.
    pub fn lea(&mut self, to: Gp, base: Option<Gp>, index: Option<(Gp, u8)>, disp: i32) {
        const NO_INDEX: u8 = 4;
        const NO_BASE: u8 = 5;
        let high = |reg: Option<Gp>| reg.map_or(0, |reg| reg.0 >> 3);
        let rex = 0x48 | (to.0 >> 3) << 2 | high(index.map(|i| i.0)) << 1 | high(base);
        let (middle, scale) =
            index.map_or((NO_INDEX, 0), |(reg, scale)| (reg.0 & 7, scale.trailing_zeros() as u8));
        let low = base.map_or(NO_BASE, |reg| reg.0 & 7);
        let short = base.is_some() && i8::try_from(disp).is_ok();
        let mode = match base {
            None => 0,
            Some(_) if short => 0x40,
            Some(_) => 0x80,
        };
        if index.is_none() && base.is_some() && low != NO_INDEX {
            self.raw(&[rex, 0x8d, mode | (to.0 & 7) << 3 | low]);
        } else {
            self.raw(&[rex, 0x8d, mode | (to.0 & 7) << 3 | 4, scale << 6 | middle << 3 | low]);
        }
        if short {
            self.raw(&[disp as u8]);
        } else {
            self.raw(&disp.to_le_bytes());
        }
    }

    /// `lea to, [target]`, of an address in reach of the code.
    pub fn lea_here(&mut self, to: Gp, target: u64) {
        self.raw(&[0x48 | (to.0 >> 3) << 2, 0x8d, 5 | (to.0 & 7) << 3]);
        let distance = target.wrapping_sub(self.here() + 4) as u32;
        self.raw(&distance.to_le_bytes());
    }

    /// `mov to, from`, of the lower half.
    pub fn copy32(&mut self, to: Gp, from: Gp) {
        let rex = 0x40 | (from.0 >> 3) << 2 | to.0 >> 3;
        self.raw(&[rex, 0x89, 0xc0 | (from.0 & 7) << 3 | to.0 & 7]);
    }

    /// `lea to, [base + disp]` with 32-bit registers; the base is not one that needs a longer form.
    pub fn lea32(&mut self, to: Gp, base: Gp, disp: i8) {
        let rex = 0x40 | (to.0 >> 3) << 2 | base.0 >> 3;
        self.raw(&[rex, 0x8d, 0x40 | (to.0 & 7) << 3 | base.0 & 7, disp as u8]);
    }

    /// `test one, other`.
    pub fn test(&mut self, one: Gp, other: Gp) {
        let rex = 0x48 | (other.0 >> 3) << 2 | one.0 >> 3;
        self.raw(&[rex, 0x85, 0xc0 | (other.0 & 7) << 3 | one.0 & 7]);
    }

    /// `popcnt reg, reg`.
    pub fn count_ones(&mut self, reg: Gp) {
        let rex = 0x48 | (reg.0 >> 3) << 2 | reg.0 >> 3;
        self.raw(&[0xf3, rex, 0x0f, 0xb8, 0xc0 | (reg.0 & 7) << 3 | reg.0 & 7]);
    }

    /// Adds to the word at `gs:[slot]`.
    pub fn add(&mut self, slot: u32, by: u32) {
        if by == 1 {
            self.raw(&[0x65, 0x48, 0xff, 0x04, 0x25]); // inc
            self.raw(&slot.to_le_bytes());
            return;
        }
        let short = i8::try_from(by).is_ok();
        self.raw(&[0x65, 0x48, if short { 0x83 } else { 0x81 }, 0x04, 0x25]);
        self.raw(&slot.to_le_bytes());
        self.raw(&by.to_le_bytes()[..if short { 1 } else { 4 }]);
    }

    /// The same by way of a register, without changing flags.
    pub fn add_by(&mut self, reg: Gp, slot: u32, by: u32) {
        self.load(reg, slot);
        self.lea(reg, Some(reg), None, by as i32);
        self.save(slot, reg);
    }

    /// `kmov reg, mask`, of at least so many bits: what the processor has if it has so many lanes.
    pub fn load_mask(&mut self, reg: Gp, mask: u8, bits: u8) {
        let form = match bits {
            33.. => 0xfb,    // kmovq
            17..=32 => 0x7b, // kmovd
            _ => 0x78,       // kmovw
        };
        let high = if reg.0 < 8 { 0xe1 } else { 0x61 };
        self.raw(&[0xc4, high, form, 0x93, 0xc0 | (reg.0 & 7) << 3 | mask & 7]);
    }

    /// `and reg, mask`, sign-extended.
    pub fn and64(&mut self, reg: Gp, mask: i32) {
        self.and(0x48 | reg.0 >> 3, reg, mask);
    }

    /// The same of the lower half.
    pub fn and32(&mut self, reg: Gp, mask: i32) {
        self.and(0x40 | reg.0 >> 3, reg, mask);
    }

    fn and(&mut self, rex: u8, reg: Gp, mask: i32) {
        match i8::try_from(mask) {
            Ok(short) => self.raw(&[rex, 0x83, 0xe0 | reg.0 & 7, short as u8]),
            Err(_) => {
                self.raw(&[rex, 0x81, 0xe0 | reg.0 & 7]);
                self.raw(&mask.to_le_bytes());
            }
        }
    }

    /// `shr reg, by` of the lower half.
    pub fn shr32(&mut self, reg: Gp, by: u8) {
        self.raw(&[0x40 | reg.0 >> 3, 0xc1, 0xe8 | reg.0 & 7, by]);
    }

    /// `jmp gs:[slot]`.
    pub fn jump_slot(&mut self, slot: u32) {
        self.raw(&[0x65, 0xff, 0x24, 0x25]);
        self.raw(&slot.to_le_bytes());
    }

    /// `jmp rel32`; gives the offset of the displacement, which is left zero.
    pub fn jump(&mut self) -> usize {
        self.keep_within(5);
        self.raw(&[0xe9, 0, 0, 0, 0]);
        self.code.len() - 4
    }

    /// `jcc rel32` for a condition code; gives the offset of the displacement.
    pub fn jump_if(&mut self, condition: u8) -> usize {
        self.keep_within(6);
        self.raw(&[0x0f, 0x80 | condition, 0, 0, 0, 0]);
        self.code.len() - 4
    }

    /// `call rel32`; gives the offset of the displacement.
    pub fn call(&mut self) -> usize {
        self.keep_within(5);
        self.raw(&[0xe8, 0, 0, 0, 0]);
        self.code.len() - 4
    }

    /// Replaces what lies on top of the stack: `mov dword [rsp], low; mov dword [rsp+4], high`.
    pub fn replace_top(&mut self, value: u64) {
        self.raw(&[0xc7, 0x04, 0x24]);
        self.raw(&(value as u32).to_le_bytes());
        self.raw(&[0xc7, 0x44, 0x24, 0x04]);
        self.raw(&((value >> 32) as u32).to_le_bytes());
    }

    /// Lets the displacement at `offset` lead to here.
    pub fn land(&mut self, offset: usize) {
        let distance = self.code.len() - (offset + 4);
        self.fix32(offset, distance as u32);
    }

    /// Keeps a jump of `len` bytes that is written next within a line of decoded code, before its end: processors of the
    /// Skylake family decode others anew each time. So its displacement lies within one cache line, too, and can be
    /// patched while it runs.
    pub fn keep_within(&mut self, len: u64) {
        let room = LINE - self.here() % LINE;
        if room <= len {
            self.raw(NOPS[room as usize]);
        }
    }

    /// The check at a landing pad for jumps: goes on if rcx holds `tag`, else to the miss path
    /// with rax = -tag and rcx = target - tag. Restores rax and rcx.
    pub fn verify(&mut self, tag: u64) {
        self.check(tag, RAX, at::MISS_JUMP);
        self.load(RAX, at::SPILL_RAX);
        self.load(RCX, at::SPILL_RCX);
    }

    /// The check at a landing pad for returns, which also gives the dead stack slot the
    /// program's return address back. It uses rdx instead of rax, which mostly holds a result that is wanted at once.
    pub fn verify_return(&mut self, tag: u64) {
        self.raw(&[0x48, 0x89, 0x4c, 0x24, 0xf8]); // mov [rsp-8], rcx
        self.check(tag, RDX, at::MISS_RET);
        self.load(RDX, at::SPILL_RDX);
        self.load(RCX, at::SPILL_RCX);
    }

    /// Goes on if rcx holds `tag`. An address in the first 2 GiB needs no other register for that.
    fn check(&mut self, tag: u64, other: Gp, miss: u32) {
        let back = tag.wrapping_neg();
        let short = i32::try_from(back as i64).ok();
        match short {
            Some(back) => self.lea(RCX, Some(RCX), None, back),
            None => {
                self.set(other, back);
                self.raw(&[0x48, 0x8d, 0x0c, other.0 << 3 | 1]); // lea rcx, [rcx+other]
            }
        }
        self.keep_within(2);
        self.raw(&[0xe3, 0]); // jrcxz over the jump
        let over = self.offset();
        if let Some(back) = short {
            self.raw(&[0x48, 0xc7, 0xc0 | other.0]);
            self.raw(&back.to_le_bytes());
        }
        self.jump_slot(miss);
        self.set_byte(over - 1, (self.offset() - over) as u8);
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
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Formatter, IntelFormatter};

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
    fn addresses_are_formed_as_asked() {
        let mut emit = Emit::new(0x1000);
        emit.lea(Gp(11), Some(Gp(4)), None, -8);
        emit.lea(RAX, Some(Gp(13)), Some((Gp(12), 8)), 0x1234);
        emit.lea(Gp(9), None, Some((RCX, 4)), 0x10);
        emit.copy32(Gp(10), Gp(3));
        emit.and64(Gp(11), -57);
        emit.and32(Gp(10), 0x1f8);
        emit.shr32(Gp(2), 3);
        emit.lea_here(Gp(11), 0x1000);
        let want = [
            "lea r11,[rsp-8]",
            "lea rax,[r13+r12*8+1234h]",
            "lea r9,[rcx*4+10h]",
            "mov r10d,ebx",
            "and r11,0FFFFFFFFFFFFFFC7h",
            "and r10d,1F8h",
            "shr edx,3",
            "lea r11,[1000h]",
        ];
        assert_eq!(text(&emit), want);
    }

    #[test]
    fn pads_check_near_targets_in_one_register() {
        let mut emit = Emit::new(0x1000);
        emit.verify_return(0x40_1000);
        let near = [
            "mov [rsp-8],rcx",
            "lea rcx,[rcx-401000h]",
            "jrcxz 000000000000101Dh",
            "mov rdx,0FFFFFFFFFFBFF000h",
            &format!("jmp qword ptr gs:[{:X}h]", at::MISS_RET),
            &format!("mov rdx,gs:[{:X}h]", at::SPILL_RDX),
            &format!("mov rcx,gs:[{:X}h]", at::SPILL_RCX),
        ];
        assert_eq!(text(&emit), near);
        let mut emit = Emit::new(0x1000);
        emit.verify(0x5555_5555_1000);
        let far = [
            "mov rax,0FFFFAAAAAAAAF000h",
            "lea rcx,[rcx+rax]",
            "jrcxz 0000000000001018h",
            &format!("jmp qword ptr gs:[{:X}h]", at::MISS_JUMP),
            "mov rax,gs:[8]",
            &format!("mov rcx,gs:[{:X}h]", at::SPILL_RCX),
        ];
        assert_eq!(text(&emit), far);
    }

    #[test]
    fn pads_subtract_exactly() {
        // What the check leaves in rcx, by the constants that it was written with.
        for tag in [0, 1, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_ffff, u64::MAX, 1 << 47] {
            let mut emit = Emit::new(0x1000);
            emit.verify(tag);
            let mut decoder = Decoder::with_ip(64, emit.bytes(), 0x1000, DecoderOptions::NONE);
            let first = decoder.decode();
            let back = match first.code() {
                Code::Lea_r64_m => first.memory_displacement64(),
                _ => first.immediate(1),
            };
            assert_eq!(tag.wrapping_add(back), 0, "{tag:#x}");
            let near = i32::try_from(tag.wrapping_neg() as i64).is_ok();
            assert_eq!(first.code() == Code::Lea_r64_m, near);
        }
    }

    #[test]
    fn jumps_end_within_a_line() {
        for start in 0..64 {
            let mut emit = Emit::new(0x4000 + start);
            emit.jump();
            emit.jump_if(4);
            emit.call();
            emit.verify(0x1234);
            let decoder = Decoder::with_ip(64, emit.bytes(), emit.base(), DecoderOptions::NONE);
            let written = decoder.into_iter().filter(|i| {
                i.flow_control() != FlowControl::Next
                    && i.flow_control() != FlowControl::IndirectBranch
            });
            for insn in written {
                assert_eq!(insn.ip() / LINE, insn.next_ip() / LINE, "{:#x}", insn.ip());
            }
        }
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
