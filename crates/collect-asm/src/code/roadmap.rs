//! The blocks of the roadmap, in the form in which the collector turns words into records.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};
use ichnos_flow::Piece;
use ichnos_isa_x86::{Flow, Inst};
use ichnos_trace::{Address, RefKind, Register, Step, Sum, Value, Width};

use super::flex::Payload;
use super::region::{FS_MARK, NEED_MARK, TARGET_MARK};

/// A superblock.
#[derive(Debug)]
pub(crate) struct Block {
    /// The address of its first instruction.
    pub(crate) entry: GuestVa,
    /// What to do.
    pub(crate) ops: Vec<Op>,
    /// Bytes that follow the identifier in the stream.
    pub(crate) len: usize,
    /// How many turns of a loop a record tells of at most: one for all but loops.
    pub(crate) turns: usize,
    /// Its machine code.
    pub(crate) code: Vec<u8>,
    /// For a block of one instruction whose accesses vary: what was stored.
    pub(crate) payload: Option<Payload>,
}

/// One thing to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// An instruction.
    Insn(u8, InsnKind),
    /// The next four bytes are the low half of a register.
    Take4(Register),
    /// The next eight bytes are a register.
    Take8(Register),
    /// A register becomes a value.
    Derive(Register, Value),
    /// A register is not known any more.
    Forget(Register),
    /// A reference.
    Ref(RefKind, AccessFlags, u32, Sum),
    /// A reference relative to `fs`.
    FsRef(RefKind, AccessFlags, u32, Sum),
    /// The instruction's transfer goes where this sum says.
    Target(Sum),
    /// The accesses that the payload tells.
    Flex,
    /// A transfer.
    Exit(Exit),
}

/// Where a transfer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// There, always.
    Direct(GuestVa),
    /// There, or on.
    Cond(GuestVa),
    /// To where [`Op::Target`] said.
    Known,
    /// To the next block: it is in the same function.
    Computed,
    /// To whoever called.
    Return,
}

impl Block {
    /// The block of a planned piece, of which a record tells so many turns. `insts` are its
    /// instructions.
    pub(crate) fn new(piece: &Piece, insts: &[&Inst], code: Vec<u8>, turns: usize) -> Self {
        let payload = match insts {
            [one] if piece.steps.iter().any(|s| matches!(s, Step::Flex { .. })) => Payload::of(one),
            _ => None,
        };
        let mut ops = Vec::with_capacity(piece.steps.len());
        let mut next = insts.iter();
        let mut flow = Flow::Next;
        let mut has_target = false;
        for step in &piece.steps {
            match *step {
                Step::Insn { len, kind } => {
                    flow = next.next().map_or(Flow::Next, |inst| inst.flow());
                    has_target = false;
                    ops.push(Op::Insn(len, kind));
                }
                Step::Take { register, width: Width::Four, .. } => ops.push(Op::Take4(register)),
                Step::Take { register, .. } => ops.push(Op::Take8(register)),
                Step::Derive { register, value } => ops.push(Op::Derive(register, value)),
                Step::Forget { register } => ops.push(Op::Forget(register)),
                Step::Ref(r) => {
                    let Address::Known(sum) = r.address else { continue };
                    match r.size {
                        NEED_MARK => {}
                        TARGET_MARK => {
                            has_target = true;
                            ops.push(Op::Target(sum));
                        }
                        // The payload tells all accesses.
                        _ if payload.is_some() => {}
                        size if size & FS_MARK != 0 => {
                            ops.push(Op::FsRef(r.kind, r.flags, size & !FS_MARK, sum));
                        }
                        size => ops.push(Op::Ref(r.kind, r.flags, size, sum)),
                    }
                }
                // All accesses are told with the first.
                Step::Flex { .. } if matches!(ops.last(), Some(Op::Flex)) => {}
                Step::Flex { .. } => ops.push(Op::Flex),
                Step::Exit { .. } => ops.push(Op::Exit(exit(flow, has_target))),
            }
        }
        let words = turns * piece.bytes();
        let len = payload.as_ref().map_or(words, |p| words + p.len());
        Self { entry: piece.entry, ops, len, turns, code, payload }
    }
}

fn exit(flow: Flow, has_target: bool) -> Exit {
    match flow {
        Flow::Jump(target) | Flow::Call(target) => Exit::Direct(target),
        Flow::Cond(target) => Exit::Cond(target),
        Flow::Return => Exit::Return,
        _ if has_target => Exit::Known,
        _ => Exit::Computed,
    }
}
