//! The C library's search for unwinding tables, made to find those of copies.
//!
//! The unwinder asks `_dl_find_object` for the tables of an address. Its first instructions
//! are replaced by a jump to code that looks for the address in a list of copies, which can change while the program
//! runs, and leaves all others to it.
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
/// Bytes that the code and the list have.
pub(crate) const HOOK_LEN: u64 = 4 * 4096;
/// Where the list begins.
const LIST: u64 = 256;
/// Bytes of an entry: where the code begins, how long it is, and where its tables lie.
pub(crate) const ENTRY_LEN: u64 = 24;

/// The list of copies in a process.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    at: u64,
    /// Beginnings of code; zero in entries that are free.
    entries: Vec<u64>,
}

impl Listed {
    /// The list that belongs to a hook at an address.
    pub(crate) const fn new(hook: u64) -> Self {
        Self { at: hook + LIST, entries: Vec::new() }
    }

    /// Where the hook is.
    pub(crate) const fn hook(&self) -> u64 {
        self.at - LIST
    }

    /// Adds a copy: what is to be written where. Nothing if the list is full.
    pub(crate) fn add(&mut self, copy: &Copy) -> Option<Vec<(u64, [u8; ENTRY_LEN as usize])>> {
        let mut stretches = vec![(copy.base, copy.len(), copy.tables_at())];
        stretches.extend(copy.exec.iter().map(|e| (e.code_at(), e.len(), e.tables_at())));
        let mut written = Vec::new();
        for (base, len, tables) in stretches {
            let free = self.entries.iter().position(|e| *e == 0);
            let place = free.unwrap_or(self.entries.len());
            // Behind the last entry there is one that ends the list.
            if ENTRY_LEN * (place as u64 + 2) > HOOK_LEN - LIST {
                return None;
            }
            match self.entries.get_mut(place) {
                Some(entry) => *entry = base,
                None => self.entries.push(base),
            }
            written.push((self.at + ENTRY_LEN * place as u64, entry(base, len, tables)));
        }
        Some(written)
    }

    /// Takes a copy out: what is to be written where.
    pub(crate) fn remove(&mut self, copy: &Copy) -> Vec<(u64, [u8; ENTRY_LEN as usize])> {
        let mut written = Vec::new();
        for base in [Some(copy.base), copy.exec.as_ref().map(|e| e.code_at())] {
            let found = self.entries.iter().position(|e| Some(*e) == base);
            if let Some(entry_of) = found.and_then(|i| self.entries.get_mut(i).zip(Some(i))) {
                let (of, i) = entry_of;
                *of = 0;
                // Nothing lies in it, and the list goes on.
                written.push((self.at + ENTRY_LEN * i as u64, entry(1, 0, 0)));
            }
        }
        written
    }
}

fn entry(base: u64, len: usize, tables: u64) -> [u8; ENTRY_LEN as usize] {
    let mut bytes = [0; ENTRY_LEN as usize];
    for (place, word) in bytes.chunks_exact_mut(8).zip([base, len as u64, tables]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Code to lie at `at`, within two gigabytes of the function, with room for the list behind it, and the patch that leads there from the
/// function at `function`, whose first bytes are given. Nothing if those cannot be moved.
pub(crate) fn hook(at: u64, function: GuestVa, first: &[u8]) -> Option<(Vec<u8>, Patch)> {
    let mut code = answer(at + LIST)?;
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
    if code.len() as u64 > LIST {
        return None;
    }
    let distance = i32::try_from(at.wrapping_sub(function.0 + JUMP as u64) as i64).ok()?;
    let mut bytes = vec![0xe9];
    bytes.extend(distance.to_le_bytes());
    Some((code, Patch { at: function, bytes }))
}

/// Answers for addresses in the copies of the list; others go on behind it.
fn answer(list: u64) -> Option<Vec<u8>> {
    let mut code = vec![0x49, 0xbb]; // mov $list,%r11
    code.extend(list.to_le_bytes());
    let again = code.len();
    code.extend([0x49, 0x8b, 0x03]); // mov (%r11),%rax: where it begins
    code.extend([0x48, 0x85, 0xc0]); // test %rax,%rax
    code.extend([0x74, 0]); // je behind
    let none = code.len();
    code.extend([0x48, 0x89, 0xf9]); // mov %rdi,%rcx
    code.extend([0x48, 0x29, 0xc1]); // sub %rax,%rcx
    code.extend([0x49, 0x3b, 0x4b, 0x08]); // cmp 8(%r11),%rcx: how long it is
    code.extend([0x72, 0x06]); // jb over the next two
    code.extend([0x49, 0x83, 0xc3, ENTRY_LEN as u8]); // add $24,%r11
    code.extend([0xeb, 0]); // jmp again
    let back = code.len();
    code.extend([0x48, 0xc7, 0x06, 0, 0, 0, 0]); // movq $0,(%rsi): no flags
    code.extend([0x48, 0x89, 0x46, 0x08]); // mov %rax,8(%rsi): start
    code.extend([0x49, 0x03, 0x43, 0x08]); // add 8(%r11),%rax
    code.extend([0x48, 0x89, 0x46, 0x10]); // mov %rax,16(%rsi): end
    code.extend([0x48, 0xc7, 0x46, 0x18, 0, 0, 0, 0]); // movq $0,24(%rsi): no link map
    code.extend([0x49, 0x8b, 0x43, 0x10]); // mov 16(%r11),%rax: where its tables lie
    code.extend([0x48, 0x89, 0x46, 0x20]); // mov %rax,32(%rsi): the tables
    code.extend([0x31, 0xc0, 0xc3]); // xor %eax,%eax; ret
    code[none - 1] = u8::try_from(code.len() - none).ok()?;
    code[back - 1] = (again as i64 - back as i64) as u8;
    Some(code)
}
