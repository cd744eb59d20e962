//! Golden tables: what the crate says about several hundred encodings, as text that
//! was checked against the words of the manual. `ICHNOS_BLESS=1` rewrites them.
//!
//! A file is a list of entries. An entry starts with `> ` and the bytes in hex;
//! what follows up to the next `>` or `#` is the expectation.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ichnos_base::{AccessFlags, GuestVa};
use ichnos_isa_x86::{Effects, Flow, Inst, LaneMask, MemOperand, Rep, Role, Shape, Syntax};

const PC: GuestVa = GuestVa(0x40_1000);

#[test]
fn golden() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    assert!(files.len() > 10, "the tables are there");
    let bless = std::env::var_os("ICHNOS_BLESS").is_some();
    let mut entries = 0;
    for file in files {
        let old = std::fs::read_to_string(&file).expect("readable");
        let new = render(&old, &mut entries);
        if bless {
            std::fs::write(&file, new).expect("writable");
        } else if old != new {
            let line = old.lines().zip(new.lines()).position(|(a, b)| a != b).unwrap_or(0);
            let of = |text: &str| text.lines().nth(line).unwrap_or("").to_owned();
            panic!("{}:{}: expected {:?}, got {:?}", file.display(), line + 1, of(&old), of(&new));
        }
    }
    assert!(entries > 300, "only {entries} entries");
}

/// The file with every expectation replaced by what the crate says now.
fn render(old: &str, entries: &mut usize) -> String {
    let mut out = String::new();
    for line in old.lines() {
        if let Some(hex) = line.strip_prefix("> ") {
            *entries += 1;
            let bytes: Vec<u8> = hex
                .split_whitespace()
                .map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits"))
                .collect();
            let _ = writeln!(out, "{line}");
            describe(&bytes, &mut out);
        } else if line.starts_with('#') {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

fn describe(bytes: &[u8], out: &mut String) {
    let inst = match Inst::decode(bytes, PC) {
        Ok(inst) => inst,
        Err(error) => {
            let _ = writeln!(out, "{error}");
            return;
        }
    };
    assert_eq!(usize::from(inst.length()), bytes.len(), "one instruction per entry");
    let _ = writeln!(out, "{} | {}", inst.text(Syntax::Att), inst.text(Syntax::Intel));
    registers(&inst.effects(), out);
    for operand in inst.memory() {
        memory(operand, out);
    }
    match inst.flow() {
        Flow::Next => {}
        flow => {
            let _ = writeln!(out, "  flow {flow:?}");
        }
    }
}

fn registers(effects: &Effects, out: &mut String) {
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(out, "  {name} {value}");
        }
    };
    line("in", effects.inputs.to_string());
    line("named", effects.named_only.to_string());
    line("out", effects.replaced.to_string());
    line("merged", effects.merged().to_string());
    line("sometimes", effects.conditional.to_string());
    let flags = &effects.flags;
    line("flags in", flags.read.to_string());
    line("flags out", flags.written.to_string());
    line("flags 0", flags.cleared.to_string());
    line("flags 1", flags.set.to_string());
    line("flags undefined", flags.undefined.to_string());
    line("flags kept", flags.kept.to_string());
}

fn memory(operand: &MemOperand, out: &mut String) {
    let role = match operand.role {
        Role::Load => "load",
        Role::Store => "store",
        Role::Both => "load+store",
        Role::Prefetch => "prefetch",
        Role::Flush => "flush",
    };
    let _ = write!(out, "  {role} {} {}", operand.size, operand.address);
    let mask = |mask: LaneMask| match mask {
        LaneMask::Opmask(k) => format!("k{k}"),
        LaneMask::Sign { vector, size } => format!("sign{size}(v{vector})"),
        LaneMask::MmxSign(n) => format!("sign1(mm{n})"),
    };
    let _ = match operand.shape {
        Shape::Plain => Ok(()),
        Shape::Lanes(l) => write!(
            out,
            " lanes {} by v{}.{}*{} if {}",
            l.count,
            l.index,
            l.index_size,
            l.scale,
            mask(l.mask)
        ),
        Shape::Masked(m) => write!(
            out,
            " x{} lanes {} if {}{}",
            m.elements,
            m.lanes,
            mask(m.mask),
            if m.packed { " packed" } else { "" }
        ),
        Shape::String(Rep::Once) => write!(out, " string"),
        Shape::String(rep) => write!(out, " string repeated {rep:?}"),
        Shape::Run { count, step } => write!(out, " {count} times, step {step}"),
        Shape::Bit(reg) => write!(out, " bit {}", reg.name()),
        Shape::Unmodelled => write!(out, " unmodelled"),
        Shape::Line(n) => write!(out, " line {n}"),
        Shape::State(op) => write!(out, " state {op:?}"),
        Shape::Tile { tile, stride, scale } => {
            write!(out, " tile {tile} stride {}*{scale}", stride.map_or("none", |r| r.name()))
        }
    };
    for (flag, name) in [
        (AccessFlags::ATOMIC, "atomic"),
        (AccessFlags::NON_TEMPORAL, "non-temporal"),
        (AccessFlags::STACK, "stack"),
        (AccessFlags::LANE, "lane"),
        (AccessFlags::STATE, "state"),
        (AccessFlags::FOR_WRITE, "for-write"),
    ] {
        if operand.flags.has(flag) {
            let _ = write!(out, " {name}");
        }
    }
    out.push('\n');
}
