//! Instructions that a thread has looked at lately: those whose accesses depend on the state are looked at each time they
//! run, and decoding one costs more than all else.
//!
//! Invariant: what is kept was decoded from the bytes that are kept beside it; it counts only while the program has these.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_isa_x86::{Error, Inst, MAX_LEN};

use super::sys;

/// How many are kept, each at a place that its address says.
const PLACES: usize = 64;

/// Such instructions.
#[derive(Default)]
pub struct Decoded(Vec<Option<Known>>);

#[derive(Clone, Copy)]
struct Known {
    code: Code,
    inst: Inst,
}

/// The bytes at an address of the program, as many as an instruction can have and can be read. It may be the
/// last thing before an unmapped page.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Code {
    pc: u64,
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Code {
    fn at(pc: u64) -> Self {
        let mut bytes = [0; MAX_LEN];
        let len = (1..=MAX_LEN).rev().find(|&n| sys::copy_in(pc, &mut bytes[..n])).unwrap_or(0);
        Self { pc, bytes, len }
    }

    fn decode(&self) -> Result<Inst, Error> {
        Inst::decode(&self.bytes[..self.len], GuestVa(self.pc))
    }
}

/// The instruction at an address of the program.
pub fn inst_at(pc: u64) -> Result<Inst, Error> {
    Code::at(pc).decode()
}

impl Decoded {
    /// The instruction at an address of the program.
    pub fn inst_at(&mut self, pc: u64) -> Result<Inst, Error> {
        let code = Code::at(pc);
        if self.0.is_empty() {
            self.0.resize(PLACES, None);
        }
        let place = &mut self.0[(pc ^ pc >> 6) as usize % PLACES];
        if let Some(known) = place
            && known.code == code
        {
            return Ok(known.inst);
        }
        let inst = code.decode()?;
        *place = Some(Known { code, inst });
        Ok(inst)
    }
}
