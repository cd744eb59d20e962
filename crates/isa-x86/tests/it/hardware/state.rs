//! The xsave family: which stretches of an XSAVE area the processor touches.
//!
//! The probe's processor says what is enabled and in use (`xgetbv`); an area is then
//! moved across the edge of mapped memory in steps of 64 bytes, the alignment
//! that the family demands, for many sets of requested components.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{GuestVa, Record};
use ichnos_isa_x86::{Gpr, Inst, Regs, Segment, Syntax, XLayout, XState, accesses};

use super::{SIGSEGV, request};
use crate::forms::CODE;
use crate::machine::{Dice, Machine};
use crate::probe::{self, ARENAS, WINDOW};

/// A machine that knows its xstate, and the header that `xrstor` obeys.
struct Full<'a>(&'a Machine, XState, [u8; 16]);

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
    fn peek(&self, _: GuestVa, out: &mut [u8]) -> bool {
        out.copy_from_slice(&self.2[..out.len()]);
        true
    }
}

fn decode(bytes: &[u8]) -> Inst {
    Inst::decode(bytes, CODE).expect("an instruction")
}

/// Whether an execution is said to touch anything outside a stretch of memory.
fn leaves(inst: &Inst, regs: &impl Regs, memory: Range<u64>) -> bool {
    let mut records = Vec::new();
    accesses(inst, regs, &mut records).expect("all is given");
    records.iter().any(|record| match record {
        Record::Load { addr, size, .. } | Record::Store { addr, size, .. } => {
            addr.0 < memory.start || addr.0 + u64::from(*size) > memory.end
        }
        _ => false,
    })
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
                        let full = Full(&before, XState { xcr0, in_use, layout }, [0; 16]);
                        leaves(&inst, &full, first..end)
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

/// Components that can be tried: not the protection keys, which would lock the
/// probe out, and not the AMX tiles, for which this processor demands more
/// memory than it restores from.
fn usable(xcr0: u64) -> u64 {
    xcr0 & !(1 << 9 | 3 << 17)
}

/// A header: the components present, and those that the compacted format has room
/// for, if it is compacted.
fn header(dice: &mut Dice, xcr0: u64) -> [u8; 64] {
    let usable = usable(xcr0);
    let mut present = dice.next() & usable;
    let mut out = [0; 64];
    if dice.below(2) == 0 {
        let room = dice.next() & usable;
        present &= room;
        out[8..16].copy_from_slice(&(room | 1 << 63).to_le_bytes());
    }
    out[..8].copy_from_slice(&present.to_le_bytes());
    out
}

#[test]
fn restored_state_ends_where_claimed() {
    let Some(program) = probe::program() else { return };
    let Some(layout) = XLayout::of_host() else { return };
    let mut dice = Dice::new(8);
    let machine = Machine::random(&mut dice);
    let [xcr0, in_use] = xgetbv(&machine);
    let put = decode(&[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x4e, 0x08]); // vmovdqu64 %zmm1,512(%r14)
    let xrstor = decode(&[0x49, 0x0f, 0xae, 0x2e]); // xrstor64 (%r14)
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..120 {
        let header = header(&mut dice, xcr0);
        let wanted = dice.next() & dice.next() & usable(xcr0);
        for step in 0..48u64 {
            for above in [true, false] {
                let (first, end) = probe::arena(0);
                let at = if above { end - 64 * step } else { first - 64 * step };
                let mut before = machine.clone();
                before.z[1] = header;
                before.set(Gpr::R14, at);
                before.set(Gpr::Rax, wanted & 0xffff_ffff);
                before.set(Gpr::Rdx, wanted >> 32);
                requests.push(request(&put, &before, None));
                expected.push(None);
                let half = header[..16].try_into().expect("sixteen bytes");
                let beyond = |header| {
                    let full = Full(&before, XState { xcr0, in_use, layout }, header);
                    leaves(&xrstor, &full, first..end)
                };
                // The processor may demand what is requested although the header says
                // that it is in its initial state and nothing is read.
                let mut requested: [u8; 16] = half;
                requested[..8].copy_from_slice(&wanted.to_le_bytes());
                let faults = [beyond(half), beyond(requested)];
                requests.push(request(&xrstor, &before, None));
                expected.push(Some((wanted, half, step, above, faults)));
            }
        }
    }
    let mut wrong = Vec::new();
    let mut judged = 0;
    probe::execute(program, requests, |i, outcome| {
        let Some((wanted, header, step, above, faults)) = expected[i] else { return };
        let faulted = outcome.signal == SIGSEGV && outcome.address != 0;
        // A header that an earlier experiment left half overwritten is refused.
        if !faulted && outcome.signal != 0 {
            return;
        }
        judged += 1;
        // From the compacted format the processor may demand the whole area although
        // it restores from none of it.
        let excused = faulted && header[15] & 0x80 != 0;
        if !faults.contains(&faulted) && !excused {
            wrong.push(format!("{wanted:#x} {header:x?} step {step} {above}: faulted {faulted}"));
        }
    });
    let few = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} of {judged}, xcr0 {xcr0:#x}: {few:#?}", wrong.len());
    assert!(judged * 2 > expected.len() / 2, "only {judged} of {}", expected.len() / 2);
}
