//! Our disassembler against the GNU one, on every line of both tables.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stderr, reason = "a test says why it was skipped and what differs")]

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use ichnos_base::GuestVa;
use ichnos_isa_rv64::{Csr, Disasm, Ext, Format, Insn, Op, TABLE, is_compressed};

const MARCH: &str = "rv64imafdc_zicsr_zifencei_zba_zbb_zbs_zicbom_zicboz";
const TURNS: u32 = 64;

#[test]
fn gnu_objdump_agrees() {
    let folder = std::env::temp_dir().join(format!("ichnos-isa-rv64-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the assembled words");
    let words = samples();
    let theirs = match gnu(&folder, &words) {
        Ok(lines) => lines,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            ichnos_testkit::tool::skip(
                "isa-rv64: objdump",
                "the riscv64 binutils are not installed",
            );
            return;
        }
        Err(e) => panic!("{e}"),
    };
    std::fs::remove_dir_all(&folder).expect("the folder goes again");
    assert_eq!(theirs.len(), words.len());
    let mut pc = 0;
    let mut wrong = 0;
    for (&word, theirs) in words.iter().zip(&theirs) {
        let ours = Disasm { word, pc: GuestVa(pc) }.to_string();
        if plain(&ours) != plain(theirs) && !known_difference(word, theirs) {
            eprintln!("{word:#010x}: ours {ours:?}, theirs {theirs:?}");
            wrong += 1;
        }
        pc += if is_compressed(word) { 2 } else { 4 };
    }
    assert_eq!(wrong, 0, "of {} words", words.len());
}

/// The GNU tools print targets without a prefix and other numbers with one, and
/// the dynamic rounding mode only in some versions.
fn plain(text: &str) -> String {
    text.replace("0x", "").replace(",dyn", "")
}

/// Hints and reserved fields that the GNU tools of some version print in a way
/// of their own.
fn known_difference(word: u32, theirs: &str) -> bool {
    let fence_with_reserved_fields = word & 0x707f == 0xf && theirs != "fence";
    let exact = |i: &Insn| matches!(i.op.row().format, Format::FR1Exact | Format::XtoFExact);
    let rounding_of_exact = Insn::decode(word).is_some_and(|i| exact(&i) && i.mode != 0);
    rounding_of_exact && theirs.starts_with(".4byte")
        || fence_with_reserved_fields && (word & 0xf00f_8f80 != 0 || word == 0x0100_000f)
}

/// Every compressed instruction, and every other one with random operands.
fn samples() -> Vec<u32> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) as u32
    };
    let mut words = Vec::new();
    for row in TABLE.iter().filter(|r| r.ext != Ext::Zicond) {
        for turn in 0..TURNS {
            let free = match turn {
                0 => 0,
                1 => u32::MAX,
                _ => next(),
            };
            let mut word = row.bits | free & !row.mask;
            if row.op == Op::FenceI {
                word = row.bits;
            }
            if row.bits & 0x7f == 0x73 && row.bits & 0x3000 != 0 || row.bits & 0x707f == 0x1073 {
                let csr = Csr::NAMED[next() as usize % Csr::NAMED.len()].0;
                word = word & 0xf_ffff | u32::from(csr.0) << 20;
            }
            if Insn::decode(word).is_some() {
                words.push(word);
            }
        }
    }
    words.extend(
        (0..=0xffff).filter(|&h| is_compressed(h) && Insn::decode(h).is_some() && !is_hint(h)),
    );
    words
}

/// Compressed instructions that do nothing: assemblers disagree on their names.
fn is_hint(half: u32) -> bool {
    let Some(i) = Insn::decode(half) else { return false };
    let to_zero = i.writes().x == 0 && matches!(i.op, Op::Addi | Op::Lui | Op::Add | Op::Slli);
    let shift_by_zero = matches!(i.op, Op::Slli | Op::Srli | Op::Srai) && i.imm == 0;
    let add_zero = i.op == Op::Addi && i.rs1 == i.rd && i.imm == 0;
    to_zero || shift_by_zero || add_zero
}

fn gnu(folder: &Path, words: &[u32]) -> std::io::Result<Vec<String>> {
    let mut source = String::new();
    for &word in words {
        let _ = match is_compressed(word) {
            true => writeln!(source, ".insn {word:#06x}"),
            false => writeln!(source, ".insn {word:#010x}"),
        };
    }
    std::fs::write(folder.join("words.s"), source)?;
    let status = Command::new("riscv64-linux-gnu-as")
        .current_dir(folder)
        .args(["-march", MARCH, "-o", "words.o", "words.s"])
        .status()?;
    assert!(status.success(), "the assembler refused the words");
    let output = Command::new("riscv64-linux-gnu-objdump")
        .current_dir(folder)
        .args(["-d", "-z", "-M", "no-aliases,numeric", "words.o"])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(listing_line).collect())
}

/// The text of one listing line: `addr:\tbytes\tname\toperands <symbol>`.
fn listing_line(line: &str) -> Option<String> {
    let mut columns = line.split('\t');
    columns.next()?.strip_suffix(':')?;
    columns.next()?;
    let name = columns.next()?.trim();
    let operands = columns.next().unwrap_or("");
    let operands = operands.split([' ', '#']).next().unwrap_or("");
    Some(if operands.is_empty() { name.to_owned() } else { format!("{name} {operands}") })
}
