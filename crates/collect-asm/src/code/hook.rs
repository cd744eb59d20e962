//! The C library's search for unwinding tables, made to find those of the copy.
//!
//! The unwinder asks `_dl_find_object` for the tables of an address. Its first instructions
//! are replaced by a jump to code that answers for addresses in the copy and leaves all others
//! to it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Instruction, InstructionBlock,
};
use ichnos_base::GuestVa;

use super::copy::{Copy, Patch};

/// The function's name.
pub(crate) const NAME: &str = "_dl_find_object";
/// Enough of its code to replace.
pub(crate) const ENOUGH: usize = 32;
/// Bytes of a jump.
const JUMP: usize = 5;

/// Code to lie at `at`, within two gigabytes of the function, and the patch that leads there from the function at `function`, whose
/// first bytes are given. Nothing if those cannot be moved.
pub(crate) fn hook(
    copy: &Copy,
    at: u64,
    function: GuestVa,
    first: &[u8],
) -> Option<(Vec<u8>, Patch)> {
    let mut code = answer(copy)?;
    let mut moved = Vec::new();
    let mut len = 0;
    let mut decoder = Decoder::with_ip(64, first, function.0, DecoderOptions::NONE);
    while len < JUMP && decoder.can_decode() {
        let instr = decoder.decode();
        len += instr.len();
        moved.push(instr);
    }
    moved.push(Instruction::with_branch(Code::Jmp_rel32_64, function.0 + len as u64).ok()?);
    let block = InstructionBlock::new(&moved, at + code.len() as u64);
    let rest = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?;
    code.extend(rest.code_buffer);
    let distance = i32::try_from(at.wrapping_sub(function.0 + JUMP as u64) as i64).ok()?;
    let mut bytes = vec![0xe9];
    bytes.extend(distance.to_le_bytes());
    Some((code, Patch { at: function, bytes }))
}

/// Answers for addresses in the copies; others go on behind it.
fn answer(copy: &Copy) -> Option<Vec<u8>> {
    let mut code = of_one(copy.base, copy.len(), copy.tables_at())?;
    if let Some(exec) = &copy.exec {
        code.extend(of_one(exec.code_at(), exec.len(), exec.tables_at())?);
    }
    Some(code)
}

/// Answers for addresses in one stretch of code.
fn of_one(base: u64, len: usize, tables: u64) -> Option<Vec<u8>> {
    let len = u32::try_from(len).ok()?.to_le_bytes();
    let tables = u32::try_from(tables - base).ok()?.to_le_bytes();
    let mut code = vec![0x49, 0xbb]; // mov $base,%r11
    code.extend(base.to_le_bytes());
    code.extend([0x48, 0x89, 0xf8]); // mov %rdi,%rax
    code.extend([0x4c, 0x29, 0xd8]); // sub %r11,%rax
    code.extend([0x48, 0x3d]); // cmp $len,%rax
    code.extend(len);
    code.extend([0x73, 0]); // jae behind
    let jump = code.len();
    code.extend([0x48, 0xc7, 0x06, 0, 0, 0, 0]); // movq $0,(%rsi): no flags
    code.extend([0x4c, 0x89, 0x5e, 0x08]); // mov %r11,8(%rsi): start
    code.extend([0x49, 0x8d, 0x83]); // lea len(%r11),%rax
    code.extend(len);
    code.extend([0x48, 0x89, 0x46, 0x10]); // mov %rax,16(%rsi): end
    code.extend([0x48, 0xc7, 0x46, 0x18, 0, 0, 0, 0]); // movq $0,24(%rsi): no link map
    code.extend([0x49, 0x8d, 0x83]); // lea tables(%r11),%rax
    code.extend(tables);
    code.extend([0x48, 0x89, 0x46, 0x20]); // mov %rax,32(%rsi): the tables
    code.extend([0x31, 0xc0, 0xc3]); // xor %eax,%eax; ret
    code[jump - 1] = u8::try_from(code.len() - jump).ok()?;
    Some(code)
}
