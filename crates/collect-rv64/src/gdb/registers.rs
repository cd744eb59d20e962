//! RV64 registers as gdb knows them: their numbers, their order, and the
//! description that names them.
//!
//! Numbers are those of gdb's own RISC-V code: 0 to 31 integer, 32 the program
//! counter, 33 to 64 floating point, then the control registers by their
//! architectural number, then the privilege.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::OnceLock;

use gdbstub::arch::{Arch, RegId, Registers};
use ichnos_isa_rv64::Csr;

const FIRST_FLOAT: usize = 33;
const FIRST_CSR: usize = 65;
const CSRS: usize = 4096;

/// A register by gdb's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Register {
    Integer(u8),
    Pc,
    Float(u8),
    Csr(Csr),
    Privilege,
}

impl RegId for Register {
    fn from_raw_id(id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        let (register, size) = match id {
            0..32 => (Self::Integer(id as u8), 8),
            32 => (Self::Pc, 8),
            FIRST_FLOAT..FIRST_CSR => (Self::Float((id - FIRST_FLOAT) as u8), 8),
            _ if id < FIRST_CSR + CSRS => {
                let csr = Csr((id - FIRST_CSR) as u16);
                (Self::Csr(csr), if is_short(csr) { 4 } else { 8 })
            }
            _ if id == FIRST_CSR + CSRS => (Self::Privilege, 8),
            _ => return None,
        };
        Some((register, NonZeroUsize::new(size)))
    }
}

/// gdb holds these in 32 bits.
pub(crate) fn is_short(csr: Csr) -> bool {
    matches!(csr, Csr::FFLAGS | Csr::FRM | Csr::FCSR)
}

/// What gdb asks for and sets all at once: integers and the program counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Core {
    pub(crate) x: [u64; 32],
    pub(crate) pc: u64,
}

impl Registers for Core {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.pc
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        for word in self.x.iter().chain([&self.pc]) {
            word.to_le_bytes().into_iter().for_each(|byte| write_byte(Some(byte)));
        }
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let (words, _) = bytes.as_chunks::<8>();
        let (pc, x) = words.get(..33).and_then(<[_]>::split_last).ok_or(())?;
        for (to, from) in self.x.iter_mut().zip(x) {
            *to = u64::from_le_bytes(*from);
        }
        self.pc = u64::from_le_bytes(*pc);
        Ok(())
    }
}

/// The instruction set, for gdb.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rv64 {}

impl Arch for Rv64 {
    type Usize = u64;
    type Registers = Core;
    type BreakpointKind = usize;
    type RegId = Register;

    fn target_description_xml() -> Option<&'static str> {
        static TEXT: OnceLock<String> = OnceLock::new();
        Some(TEXT.get_or_init(description))
    }
}

const INTEGERS: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];
const FLOATS: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2",
    "fa3", "fa4", "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9",
    "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];
/// The control registers that gdb shows, by name.
const CONTROLS: &[(&str, u16)] = &[
    ("cycle", 0xc00),
    ("time", 0xc01),
    ("instret", 0xc02),
    ("sstatus", 0x100),
    ("sie", 0x104),
    ("stvec", 0x105),
    ("scounteren", 0x106),
    ("sscratch", 0x140),
    ("sepc", 0x141),
    ("scause", 0x142),
    ("stval", 0x143),
    ("sip", 0x144),
    ("satp", 0x180),
    ("mstatus", 0x300),
    ("misa", 0x301),
    ("medeleg", 0x302),
    ("mideleg", 0x303),
    ("mie", 0x304),
    ("mtvec", 0x305),
    ("mcounteren", 0x306),
    ("mscratch", 0x340),
    ("mepc", 0x341),
    ("mcause", 0x342),
    ("mtval", 0x343),
    ("mip", 0x344),
    ("mhartid", 0xf14),
];

/// The target description: gdb's standard features for RISC-V.
fn description() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target version=\"1.0\">\
         <architecture>riscv:rv64</architecture>",
    );
    let mut feature = |name: &str, registers: &[(&str, usize, u8, &str)]| {
        let _ = write!(text, "<feature name=\"org.gnu.gdb.riscv.{name}\">");
        for (name, number, bits, kind) in registers {
            let _ = write!(
                text,
                "<reg name=\"{name}\" bitsize=\"{bits}\" regnum=\"{number}\" type=\"{kind}\"/>"
            );
        }
        text.push_str("</feature>");
    };
    let pointer = |name: &str| match name {
        "ra" => "code_ptr",
        "sp" | "fp" | "gp" | "tp" => "data_ptr",
        _ => "int",
    };
    let mut cpu: Vec<_> =
        INTEGERS.iter().enumerate().map(|(n, name)| (*name, n, 64, pointer(name))).collect();
    cpu.push(("pc", 32, 64, "code_ptr"));
    feature("cpu", &cpu);
    let float = |(n, name): (usize, &&'static str)| (*name, FIRST_FLOAT + n, 64, "ieee_double");
    let mut fpu: Vec<_> = FLOATS.iter().enumerate().map(float).collect();
    let flags = [("fflags", Csr::FFLAGS), ("frm", Csr::FRM), ("fcsr", Csr::FCSR)];
    fpu.extend(flags.map(|(name, csr)| (name, FIRST_CSR + usize::from(csr.0), 32, "int")));
    feature("fpu", &fpu);
    let control =
        |(name, csr): &(&'static str, u16)| (*name, FIRST_CSR + usize::from(*csr), 64, "int");
    feature("csr", &CONTROLS.iter().map(control).collect::<Vec<_>>());
    feature("virtual", &[("priv", FIRST_CSR + CSRS, 64, "int")]);
    text.push_str("</target>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_registers_survive_the_wire() {
        let core = Core { x: std::array::from_fn(|n| n as u64 * 0x0101_0101), pc: 0x8000_0000 };
        let mut bytes = Vec::new();
        core.gdb_serialize(|byte| bytes.extend(byte));
        let mut back = Core::default();
        assert_eq!((bytes.len(), back.gdb_deserialize(&bytes)), (33 * 8, Ok(())));
        assert_eq!(back, core);
        assert_eq!(back.gdb_deserialize(&bytes[8..]), Err(()));
    }

    #[test]
    fn numbers_are_those_of_gdb() {
        let register = |id| Register::from_raw_id(id).map(|(r, size)| (r, size.map(usize::from)));
        assert_eq!(register(32), Some((Register::Pc, Some(8))));
        assert_eq!(register(64), Some((Register::Float(31), Some(8))));
        assert_eq!(register(65 + 3), Some((Register::Csr(Csr::FCSR), Some(4))));
        assert_eq!(register(65 + 0x180), Some((Register::Csr(Csr::SATP), Some(8))));
        assert_eq!(register(4161), Some((Register::Privilege, Some(8))));
        assert_eq!(register(4162), None);
    }
}
