//! Random instruction sequences against QEMU, register by register: programs
//! made from the instruction table that print all their registers, their
//! floating-point flags and their memory at the end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestPa, GuestVa};
use ichnos_collect_rv64::{Speed, system};
use ichnos_isa_rv64::{Class, Csr, Disasm, Ext, Insn, Op, TABLE, is_compressed};

use crate::elf::{HEADER, executable};
use crate::guests::{Folder, here, here_at, under_qemu};

/// Where the program stands: also the start of a bare machine's RAM.
const BASE: u64 = 0x8000_0000;
/// Instructions of one program, how often it goes through them (often enough to
/// be translated), and how many programs: over a million in all.
const INSNS: usize = 5000;
const TURNS: i32 = 8;
const PROGRAMS: u64 = 40;
/// The registers that always point at the scratch memory and at the values.
const SCRATCH: u8 = 2;
const VALUES: u8 = 3;
/// The register that counts the turns.
const TURN: u8 = 4;
const SCRATCH_SIZE: usize = 4096;
/// Where data begins in the code: after the jump, and aligned in memory.
const DATA: i32 = 8;
const _: () = assert!((HEADER + DATA as u64).is_multiple_of(8));

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    fn bits(&mut self, n: u32) -> u32 {
        (self.next() >> 20) as u32 & ((1 << n) - 1)
    }

    /// A register that may be changed.
    fn target(&mut self) -> u8 {
        loop {
            let register = self.bits(5) as u8;
            if ![SCRATCH, VALUES, TURN].contains(&register) {
                return register;
            }
        }
    }

    /// A number of the kind that finds mistakes.
    fn value(&mut self) -> u64 {
        const EDGES: [u64; 20] = [
            0,
            1,
            u64::MAX,
            1 << 63,
            i64::MAX as u64,
            0x8000_0000,
            0x7fff_ffff,
            0x3ff0_0000_0000_0000,
            0x8000_0000_0000_0000,
            0x7ff0_0000_0000_0000,
            0xfff8_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            0x0010_0000_0000_0000,
            0x000f_ffff_ffff_ffff,
            0xffff_ffff_3f80_0000,
            0xffff_ffff_8000_0000,
            0xffff_ffff_7f80_0000,
            0xffff_ffff_7f80_0001,
            0xffff_ffff_007f_ffff,
            0xffff_ffff_7fc0_0000,
        ];
        let near_one = |r: u64, shift: u32, bits: u32| {
            let exponent = (1 << (bits - 1)) - 8 + (r >> 58 & 15);
            exponent << shift | r & ((1 << shift) - 1)
        };
        match self.below(8) {
            0 | 1 => EDGES[self.below(EDGES.len() as u64) as usize],
            2 | 3 => near_one(self.next(), 52, 11) | (self.next() & 1 << 63),
            4 | 5 => 0xffff_ffff_0000_0000 | near_one(self.next(), 23, 8) & 0xffff_ffff,
            6 => self.next() >> self.below(64),
            _ => self.next(),
        }
    }
}

struct Program {
    code: Vec<u8>,
    random: Random,
}

impl Program {
    fn word(&mut self, insn: Insn) {
        let word = insn.encode().unwrap_or_else(|| panic!("{insn:?} does not encode"));
        self.code.extend_from_slice(&word.to_le_bytes());
    }

    /// `rd = rs1 + imm`.
    fn addi(&mut self, rd: u8, rs1: u8, imm: i32) {
        self.word(Insn { rd, rs1, imm, ..Insn::new(Op::Addi) });
    }

    /// Points a register at bytes that come `ahead` bytes after here.
    fn point(&mut self, rd: u8, ahead: i64) {
        let high = (ahead + 0x800) >> 12 << 12;
        self.word(Insn { rd, imm: high as i32, ..Insn::new(Op::Auipc) });
        self.addi(rd, rd, (ahead - high) as i32);
    }

    /// One random instruction, with what must stand before it.
    fn random_insn(&mut self) {
        let row = &TABLE[self.random.below(TABLE.len() as u64) as usize];
        // QEMU of this year's stable distributions does not know these.
        if matches!(row.ext, Ext::Zicond | Ext::Zicbom | Ext::Zicboz | Ext::Priv | Ext::Zifencei) {
            return;
        }
        // QEMU 7.2 counts past 32 when the low word is zero; the manual says 32.
        if row.op == Op::Ctzw {
            return;
        }
        let insn = loop {
            let free = self.random.next() as u32;
            let Some(mut insn) = Insn::decode(row.bits | free & !row.mask) else { continue };
            if insn.writes().x != 0 {
                insn.rd = self.random.target();
            }
            break insn;
        };
        match row.class {
            Class::Alu if insn.op == Op::Auipc => {}
            Class::Alu => self.word(insn),
            Class::Load | Class::Store => {
                let imm = self.random.below(4000) as i32 - 2000;
                self.word(Insn { rs1: SCRATCH, imm, ..insn });
            }
            Class::Amo | Class::LoadReserved | Class::StoreConditional => self.atomic(insn),
            Class::Branch => {
                self.word(Insn { imm: 8, ..insn });
                let rd = self.random.target();
                self.addi(rd, rd, 1);
            }
            Class::Jal => {
                self.word(Insn { imm: 8, ..insn });
                self.addi(20, 20, 1);
            }
            Class::Jalr => {
                let via = self.random.target().max(5);
                self.word(Insn { rd: via, ..Insn::new(Op::Auipc) });
                self.word(Insn { rs1: via, imm: 12, ..insn });
                self.addi(21, 21, 1);
            }
            Class::Csr => self.csr(insn),
            _ => {}
        }
    }

    fn atomic(&mut self, insn: Insn) {
        let via = self.random.target().max(5);
        let imm = (self.random.below(400) as i32 - 200) * 8;
        self.addi(via, SCRATCH, imm);
        if insn.op.row().class == Class::StoreConditional {
            let op = if insn.op == Op::ScW { Op::LrW } else { Op::LrD };
            let mut rd = self.random.target();
            if rd == via {
                rd = 0;
            }
            self.word(Insn { rd, rs1: via, ..Insn::new(op) });
        }
        self.word(Insn { rs1: via, ..insn });
    }

    /// Only the floating-point registers, and only legal rounding modes.
    fn csr(&mut self, insn: Insn) {
        let rd = insn.rd;
        match self.random.below(3) {
            0 => {
                let rs1 = self.random.below(5) as u8;
                self.word(Insn { rd, rs1, imm: Csr::FRM.0.into(), ..Insn::new(Op::Csrrwi) });
            }
            1 => self.word(Insn { rd, rs1: 0, imm: Csr::FCSR.0.into(), ..Insn::new(Op::Csrrs) }),
            _ => self.word(Insn { imm: Csr::FFLAGS.0.into(), ..insn }),
        }
    }

    /// A compressed instruction that only computes.
    fn compressed(&mut self) {
        let half = self.random.bits(16) as u16;
        let Some(insn) = Insn::decode(half.into()).filter(|i| i.len == 2) else { return };
        let writes = insn.writes().x;
        if insn.op.row().class == Class::Alu
            && writes & (1 << SCRATCH | 1 << VALUES | 1 << TURN) == 0
        {
            self.code.extend_from_slice(&half.to_le_bytes());
        }
    }

    /// A fresh value in a register.
    fn reload(&mut self) {
        let imm = self.random.below(250) as i32 * 8;
        if self.random.bits(1) == 0 {
            let rd = self.random.bits(5) as u8;
            self.word(Insn { rd, rs1: VALUES, imm, ..Insn::new(Op::Fld) });
        } else {
            let rd = self.random.target();
            self.word(Insn { rd, rs1: VALUES, imm, ..Insn::new(Op::Ld) });
        }
    }

    /// Stores all registers behind the scratch memory and writes all of it out.
    fn print_everything(&mut self) {
        // The stores' offsets reach only so far, so the pointer moves up first.
        self.word(Insn { rd: SCRATCH, rs1: SCRATCH, imm: 2040, ..Insn::new(Op::Addi) });
        self.addi(SCRATCH, SCRATCH, 8);
        for n in 0..32u8 {
            self.word(Insn { rs1: SCRATCH, rs2: n, imm: 8 * i32::from(n), ..Insn::new(Op::Sd) });
            self.word(Insn {
                rs1: SCRATCH,
                rs2: n,
                imm: 256 + 8 * i32::from(n),
                ..Insn::new(Op::Fsd)
            });
        }
        self.word(Insn { rd: 4, imm: Csr::FCSR.0.into(), ..Insn::new(Op::Csrrs) });
        self.word(Insn { rs1: SCRATCH, rs2: 4, imm: 512, ..Insn::new(Op::Sd) });
        self.addi(10, 0, 1);
        self.addi(11, SCRATCH, -2048);
        self.addi(11, 11, -2048);
        self.word(Insn { rd: 12, imm: 0x1000, ..Insn::new(Op::Lui) });
        self.addi(12, 12, 520);
        self.addi(17, 0, 64);
        self.word(Insn::new(Op::Ecall));
        self.addi(10, 0, 0);
        self.addi(17, 0, 94);
        self.word(Insn::new(Op::Ecall));
    }

    /// What a bare machine needs: a trap handler that powers off, by which the
    /// final system call ends the run, and an entry that turns floating point on.
    fn machine_mode(&mut self) {
        // The handler's address must be a multiple of four.
        self.code.resize(self.code.len().next_multiple_of(4), 0);
        let handler = self.code.len();
        self.word(Insn { rd: 5, imm: 0x10_0000, ..Insn::new(Op::Lui) });
        self.word(Insn { rd: 6, imm: 0x5000, ..Insn::new(Op::Lui) });
        self.addi(6, 6, 0x555);
        self.word(Insn { rs1: 5, rs2: 6, ..Insn::new(Op::Sw) });
        let here = self.code.len();
        self.point(5, handler as i64 - here as i64);
        self.word(Insn { rs1: 5, imm: Csr::MTVEC.0.into(), ..Insn::new(Op::Csrrw) });
        self.word(Insn { rd: 5, imm: 0x2000, ..Insn::new(Op::Lui) });
        self.word(Insn { rs1: 5, imm: Csr::MSTATUS.0.into(), ..Insn::new(Op::Csrrs) });
        let back = -(self.code.len() as i64);
        self.word(Insn { imm: back as i32, ..Insn::new(Op::Jal) });
        assert_eq!(self.code.len(), handler + MACHINE_MODE);
    }
}

/// Bytes of the part that only machine mode runs: a handler that ends the
/// machine, and what must be set up before.
const MACHINE_MODE: usize = 4 * 10;

/// The program that a seed stands for, of at least so many instructions, and the
/// text of its last ones. A shorter program is a beginning of a longer one.
fn program(seed: u64, insns: usize) -> (Vec<u8>, String) {
    let mut p =
        Program { code: Vec::new(), random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1) };
    // Data first, as its size is known: a jump over it, values, scratch, registers.
    let data = 256 * 8 + SCRATCH_SIZE + 1024;
    p.word(Insn { imm: DATA + data as i32, ..Insn::new(Op::Jal) });
    p.code.resize(DATA as usize, 0);
    for _ in 0..256 {
        let value = p.random.value();
        p.code.extend_from_slice(&value.to_le_bytes());
    }
    for _ in 0..SCRATCH_SIZE / 8 {
        let value = p.random.value();
        p.code.extend_from_slice(&value.to_le_bytes());
    }
    p.code.resize(DATA as usize + data, 0);
    let start = |at: usize| i64::from(DATA) + at as i64;
    let here = p.code.len();
    p.point(VALUES, start(0) - here as i64);
    let here = p.code.len();
    p.point(SCRATCH, start(2048 + SCRATCH_SIZE / 2) - here as i64);
    for n in (0..32u8).filter(|n| ![SCRATCH, VALUES, TURN].contains(n)) {
        p.word(Insn { rd: n, rs1: VALUES, imm: 8 * i32::from(n), ..Insn::new(Op::Ld) });
        p.word(Insn { rd: n, rs1: VALUES, imm: 256 + 8 * i32::from(n), ..Insn::new(Op::Fld) });
    }
    p.addi(TURN, 0, TURNS);
    let first = p.code.len();
    let mut last = first;
    for _ in 0..insns {
        last = p.code.len();
        match p.random.below(16) {
            0 => p.reload(),
            1..=3 => p.compressed(),
            _ => p.random_insn(),
        }
    }
    let text = disassemble(&p.code[last..]);
    p.addi(TURN, TURN, -1);
    p.word(Insn { rs1: TURN, imm: 8, ..Insn::new(Op::Beq) });
    let back = first as i64 - p.code.len() as i64;
    p.word(Insn { imm: back as i32, ..Insn::new(Op::Jal) });
    p.print_everything();
    p.machine_mode();
    (p.code, text)
}

fn disassemble(mut code: &[u8]) -> String {
    let mut text = String::new();
    while let [low, high, rest @ ..] = code {
        let mut word = u32::from_le_bytes([*low, *high, 0, 0]);
        code = rest;
        if let (false, [third, fourth, rest @ ..]) = (is_compressed(word), code) {
            word |= u32::from_le_bytes([0, 0, *third, *fourth]);
            code = rest;
        }
        text += &format!("{}; ", Disasm { word, pc: GuestVa(0) });
    }
    text
}

/// The same program in machine mode on a bare machine: what it left in memory.
fn on_bare_machine(folder: &Folder, code: &[u8]) -> Vec<u8> {
    let path = folder.0.join("bare");
    let entry = code.len() - MACHINE_MODE + 4 * 4;
    std::fs::write(&path, executable(BASE, code, entry as u64))
        .expect("the program can be written");
    let mut config = system::Config::new(system::Boot::Bare(path));
    config.memory = 16 << 20;
    let console = system::Script::new(std::io::sink(), Vec::new());
    let mut machine = system::Inspected::new(&config, console).expect("the machine can be built");
    let outcome = machine.run_for(1_000_000).expect("the machine runs");
    assert_eq!(outcome.map(|o| o.ending), Some(system::Ending::PowerOff));
    let scratch = GuestPa(BASE + HEADER + DATA as u64 + 2048);
    let mut left = vec![0; SCRATCH_SIZE + 520];
    assert!(machine.read_memory(scratch, &mut left));
    left
}

/// Where the two end states differ, if they do.
fn difference(folder: &Folder, code: &[u8]) -> Option<Option<String>> {
    let path = folder.0.join("random");
    std::fs::write(&path, executable(BASE, code, 0)).expect("the program can be written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("the program can be made executable");
    let (theirs, expected) = under_qemu(&path, &[], None)?;
    let (ours, found, outcome) = here(&path, &[], folder, None);
    assert_eq!(ours.status, theirs.status);
    let interpreted = here_at(Speed::Interpreted, &path, &[], folder, None);
    assert_eq!(interpreted.2, outcome, "the interpreter and generated code differ");
    if found == expected {
        assert_eq!(interpreted.1, found, "the interpreter alone is wrong");
    }
    assert_eq!(expected.len(), SCRATCH_SIZE + 520);
    if found == expected {
        assert!(on_bare_machine(folder, code) == expected, "machine mode differs from user mode");
    }
    let mut pairs = expected.chunks(8).zip(found.chunks(8)).enumerate();
    let differs = pairs.find(|(_, (theirs, ours))| theirs != ours);
    let text = differs
        .map(|(n, (theirs, ours))| format!("{}: theirs {theirs:x?}, ours {ours:x?}", name(n)));
    Some(text)
}

#[test]
fn random_sequences_end_in_the_same_state_as_under_qemu() {
    let folder = Folder::new("random");
    // A longer search, by hand: ICHNOS_RANDOM=1000 tries so many programs.
    let asked = std::env::var("ICHNOS_RANDOM").ok().and_then(|n| n.parse().ok());
    for seed in 1..=asked.unwrap_or(PROGRAMS) {
        match difference(&folder, &program(seed, INSNS).0) {
            None => return,
            Some(None) => {}
            Some(Some(_)) => panic!("seed {seed}: {}", first_wrong(&folder, seed)),
        }
    }
}

/// Finds the instruction after which the states differ.
fn first_wrong(folder: &Folder, seed: u64) -> String {
    let differs = |insns| difference(folder, &program(seed, insns).0).flatten();
    let (mut same, mut different) = (0, INSNS);
    while different - same > 1 {
        let middle = (same + different) / 2;
        if differs(middle).is_some() { different = middle } else { same = middle }
    }
    format!("{} {}", program(seed, different).1, differs(different).unwrap_or_default())
}

/// What the double word at this place of the output is.
fn name(place: usize) -> String {
    match place.checked_sub(SCRATCH_SIZE / 8) {
        None => format!("memory at {}", 8 * place),
        Some(n @ 0..32) => format!("x{n}"),
        Some(n @ 32..64) => format!("f{}", n - 32),
        Some(_) => "fcsr".to_owned(),
    }
}
