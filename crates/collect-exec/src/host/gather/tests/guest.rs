//! A small program, run by a few lines that know what its instructions do.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use crate::plan::FS;

/// Where the program's stretches begin: a branch, a call where it leads, the function, where an indirect jump behind the call
/// leads, and what else is run, in two.
pub(super) const A: u64 = 0x1000;
pub(super) const B: u64 = 0x2000;
pub(super) const F: u64 = 0x3000;
pub(super) const D: u64 = 0x4000;
pub(super) const Z: u64 = 0x5000;
pub(super) const Y: u64 = 0x5800;
/// Behind the call.
pub(super) const R: u64 = B + 19;
/// Behind the loop's branch.
pub(super) const E: u64 = D + 16;

/// The stretches of paths, each from one address to another.
pub(super) const PATHS: [&[(u64, u64)]; 2] =
    [&[(A, A + 16), (B, R), (F, F + 7), (R, R + 7), (D, E + 8)], &[(Z, Z + 17), (Y, Y + 9)]];

pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    pub(super) fn word(&mut self) -> u64 {
        self.below(1 << 31) << 31 | self.below(1 << 31)
    }
}

/// A base, a register so many times, and a constant.
#[derive(Clone, Copy)]
pub(super) struct At(usize, Option<(usize, u64)>, u64);

/// What an instruction does.
#[derive(Clone, Copy)]
pub(super) enum Does {
    Nothing,
    Load(usize, At),
    Store(At),
    Add(usize, u64),
    Sum(usize, At),
    Push,
    Pop(usize),
    /// The stack pointer becomes the frame pointer.
    Unwind,
    Branch(u64),
    Jump(u64),
    Call(u64),
    /// Goes to the first most times.
    Return([u64; 2]),
    Indirect([u64; 2]),
}

pub(super) const RAX: usize = 0;
pub(super) const RDX: usize = 2;
pub(super) const RBX: usize = 3;
pub(super) const RSP: usize = 4;
pub(super) const RBP: usize = 5;
pub(super) const RSI: usize = 6;
pub(super) const RDI: usize = 7;
pub(super) const R8: usize = 8;

pub(super) type Listing = BTreeMap<u64, (Vec<u8>, Does)>;

pub(super) fn program() -> Listing {
    let mut code = Listing::new();
    let mut put = |mut pc: u64, lines: &[(&[u8], Does)]| {
        for (bytes, does) in lines {
            let mut bytes = bytes.to_vec();
            if let Does::Branch(to) | Does::Jump(to) | Does::Call(to) = does {
                let end = pc + bytes.len() as u64 + 4;
                bytes.extend((to.wrapping_sub(end) as u32).to_le_bytes());
            }
            let len = bytes.len() as u64;
            code.insert(pc, (bytes, *does));
            pc += len;
        }
        pc
    };
    let end = put(
        A,
        &[
            (&[0x48, 0x8b, 0x07], Does::Load(RAX, At(RDI, None, 0))),
            (&[0x48, 0x83, 0xc7, 0x08], Does::Add(RDI, 8)),
            (&[0x48, 0x39, 0xc8], Does::Nothing),
            (&[0x0f, 0x84], Does::Branch(B)),
            (&[0x48, 0x89, 0x46, 0x10], Does::Store(At(RSI, None, 16))),
            (&[0xe9], Does::Jump(D)),
        ],
    );
    assert_eq!(end, A + 25);
    let end = put(
        B,
        &[
            (&[0x53], Does::Push),
            (&[0x48, 0x89, 0x44, 0xd7, 0x10], Does::Store(At(RDI, Some((RDX, 8)), 16))),
            (&[0x0f, 0x85], Does::Branch(Z)),
            (&[0x90], Does::Nothing),
            (&[0x90], Does::Nothing),
            (&[0xe8], Does::Call(F)),
        ],
    );
    assert_eq!(end, R);
    put(
        R,
        &[
            (&[0x4c, 0x8b, 0x04, 0x93], Does::Load(R8, At(RBX, Some((RDX, 4)), 0))),
            (&[0x41, 0xff, 0xe0], Does::Indirect([D, Z])),
        ],
    );
    let end = put(
        F,
        &[
            (&[0x55], Does::Push),
            (&[0x48, 0x8b, 0x2c, 0xd7], Does::Load(RBP, At(RDI, Some((RDX, 8)), 0))),
            (&[0x5d], Does::Pop(RBP)),
            (&[0xc3], Does::Return([R, Z])),
        ],
    );
    assert_eq!(end, F + 7);
    let end = put(
        D,
        &[
            (&[0x48, 0x89, 0x44, 0x24, 0xf8], Does::Store(At(RSP, None, 8_u64.wrapping_neg()))),
            (&[0x5b], Does::Pop(RBX)),
            (&[0x48, 0x83, 0xc6, 0x20], Does::Add(RSI, 32)),
            (&[0x0f, 0x85], Does::Branch(A)),
            (&[0x48, 0x8b, 0x33], Does::Load(RSI, At(RBX, None, 0))),
            (&[0xe9], Does::Jump(A)),
        ],
    );
    assert_eq!(end, E + 8);
    let fs = usize::from(FS.0);
    put(
        Z,
        &[
            (&[0x48, 0x8b, 0x3e], Does::Load(RDI, At(RSI, None, 0))),
            (&[0x64, 0x48, 0x8b, 0x14, 0x25, 0x10, 0, 0, 0], Does::Load(RDX, At(fs, None, 16))),
            (&[0xe9], Does::Jump(Y)),
        ],
    );
    put(
        Y,
        &[
            (&[0x53], Does::Push),
            (&[0x48, 0x8d, 0x7c, 0xb7, 0x04], Does::Sum(RDI, At(RDI, Some((RSI, 4)), 4))),
            (&[0x48, 0x89, 0xec], Does::Unwind),
            (&[0xe9], Does::Jump(A)),
        ],
    );
    code
}

/// An instruction that ran.
#[derive(Clone)]
pub(super) struct Ran {
    pub(super) pc: u64,
    /// The registers before.
    pub(super) before: [u64; 18],
    pub(super) accesses: Vec<u64>,
    pub(super) branch: Option<(bool, u64)>,
    pub(super) next: u64,
    /// The stack pointer behind it, if it must be told.
    pub(super) stack: Option<u64>,
    /// Whether it did not retire.
    pub(super) cut: bool,
    /// Whether something happens behind it, and what becomes of a register then.
    pub(super) left: bool,
    pub(super) base: Option<u64>,
}

pub(super) fn of(registers: &[u64; 18], At(base, index, disp): At) -> u64 {
    let index = index.map_or(0, |(index, scale)| registers[index].wrapping_mul(scale));
    registers[base].wrapping_add(index).wrapping_add(disp)
}

pub(super) fn step(
    code: &Listing,
    pc: u64,
    registers: &mut [u64; 18],
    numbers: &mut Numbers,
) -> Ran {
    let (bytes, does) = &code[&pc];
    let (before, mut next) = (*registers, pc + bytes.len() as u64);
    let (mut accesses, mut branch, mut stack) = (Vec::new(), None, None);
    match *does {
        Does::Nothing => {}
        Does::Load(to, at) => {
            accesses.push(of(registers, at));
            registers[to] = numbers.word();
        }
        Does::Store(at) => accesses.push(of(registers, at)),
        Does::Add(to, what) => registers[to] = registers[to].wrapping_add(what),
        Does::Sum(to, at) => registers[to] = of(registers, at),
        Does::Pop(to) => {
            accesses.push(registers[RSP]);
            registers[to] = numbers.word();
            registers[RSP] = registers[RSP].wrapping_add(8);
        }
        Does::Unwind => {
            registers[RSP] = registers[RBP];
            stack = Some(registers[RSP]);
        }
        Does::Branch(to) => {
            // The first branch is taken most times, the others are not.
            let taken = (numbers.below(5) == 0) != (to == B);
            branch = Some((taken, to));
            next = if taken { to } else { next };
        }
        Does::Jump(to) => (branch, next) = (Some((true, to)), to),
        Does::Push | Does::Call(_) => {
            registers[RSP] = registers[RSP].wrapping_sub(8);
            accesses.push(registers[RSP]);
            if let Does::Call(to) = *does {
                (branch, next) = (Some((true, to)), to);
            }
        }
        Does::Return(to) | Does::Indirect(to) => {
            if matches!(does, Does::Return(_)) {
                accesses.push(registers[RSP]);
                registers[RSP] = registers[RSP].wrapping_add(8);
            }
            next = to[usize::from(numbers.below(5) == 0)];
            branch = Some((true, next));
        }
    }
    Ran { pc, before, accesses, branch, next, stack, cut: false, left: false, base: None }
}

/// A run of the program of at least so many instructions.
pub(super) fn run(code: &Listing, len: usize, numbers: &mut Numbers) -> Vec<Ran> {
    let mut registers: [u64; 18] = std::array::from_fn(|_| numbers.word());
    let (mut ran, mut pc): (Vec<Ran>, u64) = (Vec::new(), A);
    loop {
        let before = registers;
        let mut one = step(code, pc, &mut registers, numbers);
        pc = one.next;
        let leaves = one.branch.is_some_and(|(taken, _)| taken);
        if numbers.below(60) == 0 {
            registers = before;
            pc = [A, B, Z][numbers.below(3) as usize];
            one.cut = true;
        } else if leaves && (numbers.below(30) == 0 || ran.len() >= len) {
            one.left = true;
        }
        if (one.cut || one.left) && numbers.below(3) == 0 {
            registers[usize::from(FS.0)] = numbers.word();
            one.base = Some(registers[usize::from(FS.0)]);
        }
        let done = one.left && ran.len() >= len;
        ran.push(one);
        if done {
            return ran;
        }
    }
}
