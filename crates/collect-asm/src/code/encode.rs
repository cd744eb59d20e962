//! Lists of instructions in machine code: both copies at once, because each jumps to the other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use iced_x86::{BlockEncoder, BlockEncoderOptions, InstructionBlock};

use super::clone::Laid;
use super::emit::{Emitter, Site};
use super::plot::Plot;
use super::switch::ROOM;
use crate::Error;

/// A [`Site`], laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) begin: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) to: u64,
    pub(crate) stored: u64,
}

impl Stretch {
    /// A site of which `address` tells where instructions lie.
    pub(crate) fn new(site: &Site, address: impl Fn(usize) -> u64) -> Self {
        Self {
            begin: address(site.begin),
            from: address(site.from),
            until: address(site.until),
            to: address(site.to),
            stored: address(site.stored),
        }
    }

    /// The same so far above.
    pub(crate) const fn moved(self, by: u64) -> Self {
        let Self { begin, from, until, to, stored } = self;
        let (begin, from, until) = (begin + by, from + by, until + by);
        Self { begin, from, until, to: to + by, stored: stored + by }
    }
}

/// Both copies in machine code.
pub(crate) struct Encoded {
    pub(crate) code: Vec<u8>,
    /// Offsets of the first copy's instructions, and its length.
    pub(crate) offsets: Vec<u32>,
    /// P_exec's code, offsets counted from its first byte.
    pub(crate) exec: Exec,
    /// Where names lie.
    pub(crate) labels: HashMap<u64, u64>,
}

/// P_exec in machine code.
#[derive(Default)]
pub(crate) struct Exec {
    pub(crate) code: Vec<u8>,
    pub(crate) offsets: Vec<u32>,
}

/// Encodes P_inst, and P_exec.
pub(crate) fn encode(
    plot: &Plot,
    emitter: &Emitter,
    other: Option<&(Emitter, Vec<Laid>)>,
) -> Result<Encoded, Error> {
    let base = plot.inst;
    let failed = |why: String| Error::Layout { base, why };
    let mut blocks = vec![InstructionBlock::new(&emitter.instrs, base)];
    if let Some((list, laid)) = other {
        blocks.extend(
            laid.iter().map(|l| InstructionBlock::new(&list.instrs[l.instrs.clone()], l.at)),
        );
    }
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let results = BlockEncoder::encode_slice(64, &blocks, options);
    let mut results = results.map_err(|e| failed(e.to_string()))?.into_iter();
    let first = results.next().ok_or_else(|| failed("nothing was encoded".into()))?;
    let mut offsets = offsets_of(&first.new_instruction_offsets);
    offsets.push(u32::try_from(first.code_buffer.len()).unwrap_or(u32::MAX));
    let named = |label: u64| label >= ROOM << 20;
    let mut labels: HashMap<u64, u64> = HashMap::new();
    let mut note = |ip: u64, at: u64| {
        if named(ip) {
            labels.insert(ip, at);
        }
    };
    for (instr, offset) in emitter.instrs.iter().zip(&offsets) {
        note(instr.ip(), base + u64::from(*offset));
    }
    let mut exec = Exec::default();
    if let Some((list, laid)) = other {
        let start = plot.exec;
        for (part, result) in laid.iter().zip(results) {
            let at = part.at - start;
            let from = usize::try_from(at).unwrap_or(usize::MAX);
            if from < exec.code.len() {
                return Err(failed(format!(
                    "a function's copy at {:#x} overlaps another",
                    part.at
                )));
            }
            exec.code.resize(from, 0xcc);
            exec.code.extend(&result.code_buffer);
            let own = offsets_of(&result.new_instruction_offsets);
            for (instr, offset) in list.instrs[part.instrs.clone()].iter().zip(own) {
                note(instr.ip(), part.at + u64::from(offset));
                exec.offsets.push(u32::try_from(at + u64::from(offset)).unwrap_or(u32::MAX));
            }
        }
        exec.offsets.push(u32::try_from(exec.code.len()).unwrap_or(u32::MAX));
    }
    plot.holds([base + first.code_buffer.len() as u64, plot.exec + exec.code.len() as u64])?;
    Ok(Encoded { code: first.code_buffer, offsets, exec, labels })
}

/// Offsets of all instructions; one that was rewritten lies where the one before it ends, at
/// the latest.
pub(crate) fn offsets_of(offsets: &[u32]) -> Vec<u32> {
    let mut known = offsets.to_vec();
    let mut next = u32::MAX;
    for offset in known.iter_mut().rev() {
        if *offset == u32::MAX {
            *offset = next;
        }
        next = *offset;
    }
    known
}
