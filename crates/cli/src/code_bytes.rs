//! The machine code of a trace, for disassembly.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_analyze::profile::Space;
use ichnos_base::{GuestVa, Isa};
use ichnos_isa_rv64::Disasm;
use ichnos_isa_x86::{Inst, Syntax};

/// Code by program and address; the newest bytes win. Memory: the code that ran.
#[derive(Debug, Default)]
pub struct CodeBytes {
    isa: Isa,
    pieces: BTreeMap<(Space, GuestVa), Vec<u8>>,
}

impl CodeBytes {
    /// Says whose code it is.
    pub const fn set_isa(&mut self, isa: Isa) {
        self.isa = isa;
    }

    /// Takes a piece of code.
    pub fn add(&mut self, space: Space, pc: GuestVa, bytes: &[u8]) {
        self.pieces.insert((space, pc), bytes.to_vec());
    }

    /// The instruction at an address in words, in the first of the programs
    /// that has code there.
    pub fn text(&self, spaces: &[Space], pc: GuestVa) -> Option<String> {
        let bytes = spaces.iter().find_map(|&space| self.at(space, pc))?;
        match self.isa {
            Isa::X86_64 => Inst::decode(bytes, pc).ok().map(|inst| inst.text(Syntax::Att)),
            Isa::RV64 => {
                let mut word = [0; 4];
                let len = bytes.len().min(4);
                word[..len].copy_from_slice(&bytes[..len]);
                Some(Disasm { word: u32::from_le_bytes(word), pc }.to_string())
            }
            _ => None,
        }
    }

    fn at(&self, space: Space, pc: GuestVa) -> Option<&[u8]> {
        // Pieces may overlap where code was told in different cuts, so a few of
        // those that begin before the address are looked at.
        let before = self.pieces.range((space, GuestVa(0))..=(space, pc)).rev().take(16);
        let mut holding = before.filter_map(|(&(_, start), bytes)| {
            let offset = usize::try_from(pc.since(start)).ok()?;
            bytes.get(offset..).filter(|rest| !rest.is_empty())
        });
        holding.next()
    }
}
