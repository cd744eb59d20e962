//! RV64 instructions from one table: [`TABLE`] has a line for each 32-bit
//! instruction, [`COMPRESSED`] one for each 16-bit one, and decoding, encoding,
//! disassembly and effects derive from them. What instructions compute is not
//! here but in the simulator.
//!
//! Covered: RV64IMAFDC, Zicsr, Zifencei, Zba, Zbb, Zbs, Zicond, Zicbom, Zicboz
//! and the privileged instructions of machine and supervisor mode.
//!
//! # Example
//!
//! ```
//! use ichnos_base::GuestVa;
//! use ichnos_isa_rv64::{Disasm, Insn, Op};
//!
//! let insn = Insn::decode(0xfe81_3c23).expect("sd x8,-8(x2)");
//! assert_eq!((insn.op, insn.rs1, insn.rs2, insn.imm), (Op::Sd, 2, 8, -8));
//! assert_eq!(insn.encode(), Some(0xfe81_3c23));
//! assert_eq!(insn.memory().map(|m| m.size), Some(8));
//! let text = Disasm { word: 0x8082, pc: GuestVa(0x10000) }.to_string();
//! assert_eq!(text, "c.jr x1");
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

mod bits;
mod compressed;
mod csr;
mod disasm;
mod effects;
mod format;
mod insn;
mod table;

pub use compressed::{COMPRESSED, CRow, compress, row as compressed_row};
pub use csr::Csr;
pub use disasm::Disasm;
pub use effects::{Memory, Registers};
pub use format::Format;
pub use insn::{Insn, ROUND_DYNAMIC, is_compressed};
pub use table::{Class, Ext, Op, Row, TABLE};
