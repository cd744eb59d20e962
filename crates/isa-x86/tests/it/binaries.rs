//! Real code, and a second disassembler: objdump.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use ichnos_base::GuestVa;
use ichnos_isa_x86::{Inst, Shape};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// One line of objdump's: address, bytes, text.
fn parse(line: &str) -> Option<(GuestVa, Vec<u8>, &str)> {
    let (address, rest) = line.trim_start().split_once(":\t")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (hex, text) = rest.split_once('\t')?;
    let bytes = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16));
    Some((GuestVa(address), bytes.collect::<Result<_, _>>().ok()?, text.trim()))
}

/// objdump prints some prefixes as lines of their own when they do not belong to
/// what follows, and knows no newer instructions than itself.
fn odd(text: &str) -> bool {
    text.contains("(bad)")
        || ["rex", "data16", "repz", "repnz", "lock", "addr32", "cs", "ds", "es", "ss", "fs", "gs"]
            .iter()
            .any(|prefix| text.split(['.', ' ']).next_back() == Some(prefix) || text == *prefix)
}

#[test]
fn libc_decodes_as_objdump_says() {
    if !Path::new(LIBC).exists() {
        return;
    }
    let mut child = Command::new("objdump")
        .args(["-d", "-w", "-j", ".text", LIBC])
        .stdout(Stdio::piped())
        .spawn()
        .expect("objdump starts");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let (mut count, mut masked) = (0, 0);
    for line in out.lines() {
        let line = line.expect("text");
        let Some((pc, bytes, text)) = parse(&line) else { continue };
        if odd(text) {
            continue;
        }
        let inst = Inst::decode(&bytes, pc).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(usize::from(inst.length()), bytes.len(), "{line}");
        let names_memory = text.contains("(%r");
        let quiet = ["lea", "nop", "j", "call"].iter().any(|name| text.contains(name));
        assert!(!names_memory || quiet || !inst.memory().is_empty(), "{line}: no operand");
        masked += usize::from(inst.memory().iter().any(|m| matches!(m.shape, Shape::Masked(_))));
        count += 1;
    }
    assert!(child.wait().expect("objdump ends").success());
    assert!(count > 100_000, "only {count} instructions");
    assert!(masked > 0, "the string functions for AVX-512 are in there");
}
