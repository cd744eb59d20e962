//! Which vector instructions obey MXCSR.
//!
//! iced does not model MXCSR. Floating-point arithmetic on vectors is told by
//! name: some four hundred mnemonics are thirty stems times precision and width.
//! Where an instruction only looks at a single MXCSR bit (`vfpclass`, `vrcp14`)
//! it is still said to read and write the register, which is the safe side.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Instruction, MemorySize, Register};

/// What is left of a mnemonic without `v` and without the element type.
const STEMS: [&str; 27] = [
    "add", "addsub", "cmp", "comi", "div", "dp", "exp2", "fixupimm", "fpclass", "getexp",
    "getmant", "hadd", "hsub", "max", "min", "mul", "range", "rcp14", "rcp28", "reduce",
    "rndscale", "round", "rsqrt14", "rsqrt28", "scalef", "sqrt", "sub",
];

/// Whole families, whatever follows.
const FAMILIES: [&str; 8] =
    ["cvt", "fmadd", "fmsub", "fnmadd", "fnmsub", "fmulc", "fcmulc", "fcmaddc"];

/// Whether an instruction rounds, flushes denormals or reports exceptions as
/// MXCSR says.
pub(crate) fn uses_mxcsr(raw: &Instruction) -> bool {
    if raw.is_string_instruction() {
        return false; // `cmpsd` has a namesake
    }
    let is_vector = |r: Register| r.is_vector_register() || r.is_mm() || r.is_k();
    // Names are dear, and most instructions have nothing to do with vectors.
    let vectors = (0..raw.op_count()).any(|i| is_vector(raw.op_register(i)));
    let floats = matches!(
        raw.memory_size(),
        MemorySize::Float16 | MemorySize::Float32 | MemorySize::Float64
    );
    if !vectors && !floats {
        return false;
    }
    let name = format!("{:?}", raw.mnemonic()).to_lowercase();
    let name = name.strip_prefix('v').unwrap_or(&name);
    if FAMILIES.iter().any(|family| name.starts_with(family)) {
        return true;
    }
    let Some((stem, element)) = name.split_at_checked(name.len().saturating_sub(2)) else {
        return false;
    };
    match element {
        "ps" | "pd" | "ss" | "sd" | "ph" | "sh" => {
            STEMS.contains(&stem)
                || stem == "ucomi"
                || matches!(element, "ph" | "sh") && matches!(stem, "rcp" | "rsqrt")
        }
        _ => false,
    }
}
