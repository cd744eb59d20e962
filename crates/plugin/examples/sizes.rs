//! How large the loads and stores of a program are, counted in the program itself: a tool in Rust.
//!
//! ```text
//! rustc --edition 2024 -O --crate-type cdylib -o libsizes.so crates/plugin/examples/sizes.rs
//! ichnos cc --tool ./libsizes.so -- gcc -O2 prog.c -o prog
//! ichnos record -o none -- ./prog
//! ```
//!
//! (`cargo build --release -p ichnos-plugin --example sizes` builds it, too.) At the end it writes blocks, instructions and varying
//! instructions, and for each size loads and stores, to the file that `ICHNOS_SIZES` names, or to standard error.
//!
//! What `ichnos_tool.h` asks for holds: the functions below are called by several threads at once, so all they touch is
//! atomic; they allocate nothing, call nothing and never unwind. Nothing is promised about vector registers
//! (`ichnos_tool_general_registers_only`): the compiler may use them, so they are saved around each call.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sizes from 1 byte to 64, the powers of two, and all others.
const SIZES: usize = 8;

static BLOCKS: AtomicU64 = AtomicU64::new(0);
static INSNS: AtomicU64 = AtomicU64::new(0);
static VARYING: AtomicU64 = AtomicU64::new(0);
static LOADS: [AtomicU64; SIZES] = [const { AtomicU64::new(0) }; SIZES];
static STORES: [AtomicU64; SIZES] = [const { AtomicU64::new(0) }; SIZES];

fn add(sum: &AtomicU64, count: u64) {
    sum.fetch_add(count, Ordering::Relaxed);
}

/// The count for a size.
fn of(counts: &[AtomicU64; SIZES], size: u64) -> &AtomicU64 {
    let [one, two, four, eight, sixteen, half, line, others] = counts;
    match size {
        1 => one,
        2 => two,
        4 => four,
        8 => eight,
        16 => sixteen,
        32 => half,
        64 => line,
        _ => others,
    }
}

// SAFETY: nobody but a tool has functions of these four names, and ichnos calls them as they are declared in
// `ichnos_tool.h`. What is in `.fini_array` is a pointer to a function without arguments, as the loader wants it.

/// A basic block begins.
#[unsafe(no_mangle)]
pub extern "C" fn ichnos_tool_block(_pc: u64, insns: u64) {
    add(&BLOCKS, 1);
    add(&INSNS, insns);
}

/// Bytes are read.
#[unsafe(no_mangle)]
pub extern "C" fn ichnos_tool_load(_addr: u64, size: u64) {
    add(of(&LOADS, size), 1);
}

/// Bytes are written.
#[unsafe(no_mangle)]
pub extern "C" fn ichnos_tool_store(_addr: u64, size: u64) {
    add(of(&STORES, size), 1);
}

/// An instruction makes accesses that are not told one by one.
#[unsafe(no_mangle)]
pub extern "C" fn ichnos_tool_varying(_pc: u64, _unused: u64) {
    add(&VARYING, 1);
}

/// The loader calls what is in this section when the program ends, as C's destructors are.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = tell;

extern "C" fn tell() {
    let count = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
    if count(&BLOCKS) == 0 {
        // The program was not recorded.
        return;
    }
    let mut text = format!(
        "blocks {}\ninstructions {}\nvarying {}\nsize loads stores\n",
        count(&BLOCKS),
        count(&INSNS),
        count(&VARYING)
    );
    let names = ["1", "2", "4", "8", "16", "32", "64", "others"];
    for ((name, loads), stores) in names.iter().zip(&LOADS).zip(&STORES) {
        let _ = writeln!(text, "{name} {} {}", count(loads), count(stores));
    }
    // There is nobody to tell if it cannot be written.
    let _ = match std::env::var_os("ICHNOS_SIZES") {
        Some(path) => std::fs::write(path, text),
        None => std::io::stderr().write_all(text.as_bytes()),
    };
}
