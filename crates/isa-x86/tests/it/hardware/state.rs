//! The xsave family: which stretches of an XSAVE area the processor touches.
//!
//! The probe's processor says what is enabled and in use (`xgetbv`); an area is then
//! moved across the edge of mapped memory in steps of 64 bytes, the alignment
//! that the family demands, for many sets of requested components.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record};
use ichnos_isa_x86::{Gpr, Inst, Regs, Segment, Syntax, XLayout, XState, accesses};

use super::{SIGSEGV, request};
use crate::forms::CODE;
use crate::machine::{Dice, Machine};
use crate::probe::{self, ARENAS, WINDOW};

/// A machine that knows its xstate.
struct Full<'a>(&'a Machine, XState);

impl Regs for Full<'_> {
    fn gpr(&self, reg: Gpr) -> u64 {
        self.0.gpr(reg)
    }
    fn segment_base(&self, segment: Segment) -> GuestVa {
        self.0.segment_base(segment)
    }
    fn rflags(&self) -> u64 {
        self.0.rflags
    }
    fn vector(&self, number: u8) -> [u8; 64] {
        self.0.vector(number)
    }
    fn opmask(&self, number: u8) -> u64 {
        self.0.opmask(number)
    }
    fn mxcsr(&self) -> Option<u32> {
        self.0.mxcsr()
    }
    fn xstate(&self) -> Option<XState> {
        Some(self.1)
    }
}

fn decode(bytes: &[u8]) -> Inst {
    Inst::decode(bytes, CODE).expect("an instruction")
}

/// What `xgetbv` says for component sets 0 and 1.
fn xgetbv(machine: &Machine) -> [u64; 2] {
    let program = probe::program().expect("asked before");
    let inst = decode(&[0x0f, 0x01, 0xd0]);
    let requests = (0..2)
        .map(|n| {
            let mut before = machine.clone();
            before.set(Gpr::Rcx, n);
            request(&inst, &before, Some(&[[0; WINDOW]; ARENAS]))
        })
        .collect();
    let mut out = [0; 2];
    probe::execute(program, requests, |i, outcome| {
        let (after, _) = outcome.after.expect("xgetbv is allowed");
        out[i] = after.gpr[2] << 32 | after.gpr[0];
    });
    out
}

#[test]
fn saved_state_ends_where_claimed() {
    let Some(program) = probe::program() else { return };
    let Some(layout) = XLayout::of_host() else { return };
    let mut dice = Dice::new(4);
    let machine = Machine::random(&mut dice);
    let [xcr0, in_use] = xgetbv(&machine);
    let forms: [(&str, &[u8]); 3] = [
        ("xsave", &[0x49, 0x0f, 0xae, 0x26]),
        ("xsavec", &[0x49, 0x0f, 0xc7, 0x26]),
        ("xsave32", &[0x41, 0x0f, 0xae, 0x26]),
    ];
    let mut experiments = Vec::new();
    for (name, bytes) in forms {
        let inst = decode(bytes);
        for _ in 0..60 {
            let wanted = dice.next() & dice.next() & 0x7_02ff;
            for step in 0..48u64 {
                for above in [true, false] {
                    let (first, end) = probe::arena(0);
                    let at = if above { end - 64 * step } else { first - 64 * step };
                    let mut before = machine.clone();
                    before.set(Gpr::R14, at);
                    before.set(Gpr::Rax, wanted & 0xffff_ffff);
                    before.set(Gpr::Rdx, wanted >> 32);
                    let beyond = |in_use| {
                        let full = Full(&before, XState { xcr0, in_use, layout });
                        let mut records = Vec::new();
                        accesses(&inst, &full, &mut records).expect("all is given");
                        records.iter().any(|record| match record {
                            Record::Load { addr, size, .. } | Record::Store { addr, size, .. } => {
                                addr.0 < first || addr.0 + u64::from(*size) > end
                            }
                            _ => false,
                        })
                    };
                    // The processor may demand room for components that it does not
                    // save because they are not in use (the tile configuration).
                    let faults = [beyond(in_use), beyond(xcr0)];
                    experiments.push((name, inst, before, wanted, step, above, faults));
                }
            }
        }
    }
    let requests = experiments.iter().map(|e| request(&e.1, &e.2, None)).collect();
    let mut wrong = Vec::new();
    probe::execute(program, requests, |i, outcome| {
        let (name, _, _, wanted, step, above, faults) = &experiments[i];
        let faulted = outcome.signal == SIGSEGV && outcome.address != 0;
        assert!(faulted || outcome.signal == 0, "{name}: signal {}", outcome.signal);
        if !faults.contains(&faulted) {
            let side = if *above { "above" } else { "below" };
            wrong.push(format!("{name} {wanted:#x} step {step} {side}: faulted {faulted}"));
        }
    });
    let text = experiments[0].1.text(Syntax::Att);
    assert!(
        wrong.is_empty(),
        "{text} xcr0 {xcr0:#x} in use {in_use:#x}, {} of {}: {:#?}",
        wrong.len(),
        experiments.len(),
        &wrong[..wrong.len().min(40)]
    );
}
