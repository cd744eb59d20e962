//! What each x86-64 instruction reads, writes, touches in memory and does to
//! control flow.
//!
//! Decoding is iced's; what is said about an instruction is ours where iced is
//! silent or means something else. [`Inst`] is static: what the bytes alone tell.
//! [`accesses`] evaluates an instruction's memory operands for concrete
//! registers, which is all that a single-stepping collector needs.
//!
//! # What counts as an access
//!
//! What the program can tell by a fault: an access is there if and only if the
//! instruction would fault were that memory not accessible. So `cmov` from memory
//! reads it whether or not it moves, `cmpxchg` writes back what it read when the
//! comparison fails, masked-out lanes and repetitions not made are none, `lea`
//! and `nop` with an operand touch nothing. Prefetches and flushes are told apart
//! from accesses. Shadow-stack and descriptor-table accesses are not told.
//!
//! # Where this differs from iced's instruction information
//!
//! - prefetches, flushes and `clzero` have an operand here;
//! - under a repeat prefix operands keep their size;
//! - masks restrict operands, element by element, except where the processor reads
//!   the whole operand anyway;
//! - `bt` and its kind with a register are moved by the bit number, `xlat` by `al`
//!   alone;
//! - flags that a shift by `cl` or a repeated comparison may leave are marked;
//! - `bsf` and `bsr` keep their destination when the source is zero, `rdssp` when
//!   shadow stacks are off;
//! - MXCSR, the x87 state as a unit, segment bases and AMX tiles are registers, and
//!   reading an MMX register changes the x87 state;
//! - `vzeroupper` does not read what it leaves alone;
//! - more instructions than `xor` and `sub` ignore equal sources;
//! - a system call reads its arguments, writes its result and keeps the flags.
//!
//! # Example
//!
//! ```
//! use ichnos_base::{GuestVa, InsnKind};
//! use ichnos_isa_x86::{Gpr, Inst, Reg, Role, Syntax};
//!
//! // add %rax,0x10(%rsp)
//! let inst = Inst::decode(&[0x48, 0x01, 0x44, 0x24, 0x10], GuestVa(0x401000))?;
//! assert_eq!(inst.length(), 5);
//! assert_eq!(inst.kind(), InsnKind::OTHER);
//! assert_eq!(inst.memory()[0].role, Role::Both);
//! assert_eq!(inst.memory()[0].address.to_string(), "[rsp+0x10]");
//! assert!(inst.effects().inputs.has(Reg::gpr(Gpr::Rax)));
//! assert_eq!(inst.text(Syntax::Att), "add %rax,0x10(%rsp)");
//! # Ok::<(), ichnos_isa_x86::Error>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod access;
mod control;
mod effects;
mod error;
mod flags;
mod fp;
mod idiom;
mod inst;
mod machine;
mod memory;
mod moves;
mod operands;
mod reg;
mod state;
mod vector;

pub use access::{accesses, address};
pub use control::Flow;
pub use effects::Effects;
pub use error::Error;
pub use flags::{FlagEffects, Flags};
pub use inst::{Inst, MAX_LEN, Printer, Scratch, Syntax};
pub use machine::{Regs, XComponent, XLayout, XState};
pub use memory::{
    AddrExpr, AddrWidth, Index, LaneMask, Lanes, Masked, MemOperand, Rep, Role, Segment, Shape,
    StateOp,
};
pub use moves::{Moves, Value};
pub use reg::{Gpr, Reg, RegSet};
