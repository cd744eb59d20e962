//! The processor as judge: what the crate claims is what the processor does.
//!
//! For every instruction form there is (`forms`), on this machine's processor:
//!
//! - *Registers*: the instruction is executed from two states that agree in what
//!   it is said to read and differ in everything else. What it is said to replace
//!   must agree afterwards; what it is not said to write must be unchanged.
//! - *Memory contents*: the same for bytes said to be loaded and stored.
//! - *Extents*: each operand is moved across the edge of mapped memory, byte by
//!   interesting byte; it must fault if and only if an access is claimed beyond
//!   the edge, masks included. On memory that cannot be written it must fault if
//!   and only if a store is claimed.
//!
//! Forms that the processor does not have, or that fault for other reasons
//! (privilege, alignment), are counted and left out.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod address;
mod extents;
mod moves;
mod registers;
mod state;

use std::collections::BTreeMap;

use iced_x86::{Code, CpuidFeature, Mnemonic};
use ichnos_base::{GuestVa, Record};
use ichnos_isa_x86::{Flow, Gpr, Inst, Shape, Syntax};

use crate::forms;
use crate::machine::{Dice, Machine};
use crate::probe::{self, Outcome, Request, Windows};

pub(super) const SIGILL: u32 = 4;
pub(super) const SIGSEGV: u32 = 11;

/// Instructions that would take the probe down with them, leave user code, or
/// read what differs from one moment to the next.
pub(super) fn executable(inst: &Inst) -> bool {
    use Mnemonic as M;
    let op = inst.raw().code().op_code();
    if op.is_privileged() && op.must_be_cpl0() || op.is_input_output() {
        return false;
    }
    let unfit = matches!(
        inst.mnemonic(),
        M::Wrfsbase | M::Wrgsbase | M::Wrpkru | M::Xsetbv | M::Vmcall | M::Vmmcall | M::Vmfunc
            | M::Enclu | M::Encls | M::Enclv | M::Getsec | M::Pconfig | M::Tpause | M::Umwait
            | M::Umonitor | M::Xbegin | M::Xabort | M::Xend | M::Xtest | M::Seamcall | M::Tdcall
            | M::Rdtsc | M::Rdtscp | M::Rdrand | M::Rdseed | M::Rdpid | M::Cpuid | M::Xgetbv
            | M::Rdpmc | M::Lfs | M::Lgs | M::Lss | M::Swapgs
            | M::Sti | M::Cli | M::Xrstor | M::Xrstor64 | M::Xrstors | M::Xrstors64 | M::Xsave
            | M::Xsave64 | M::Xsavec | M::Xsavec64 | M::Xsaveopt | M::Xsaveopt64 | M::Xsaves
            | M::Xsaves64 | M::Ldtilecfg
            // The kernel emulates these, and not to the letter.
            | M::Sldt | M::Smsw | M::Str | M::Sgdt | M::Sidt
            // They load control words, and a random one unmasks exceptions.
            | M::Fldenv | M::Frstor | M::Fxrstor | M::Fxrstor64 | M::Fldcw | M::Ldmxcsr | M::Vldmxcsr
    );
    let foreign = inst.raw().code().cpuid_features().iter().any(|feature| {
        matches!(feature, CpuidFeature::VMX | CpuidFeature::SVM | CpuidFeature::SMX)
    });
    let leaves = match inst.flow() {
        Flow::Next | Flow::Cond(_) | Flow::Jump(_) | Flow::Call(_) => false,
        Flow::JumpIndirect | Flow::CallIndirect | Flow::Return => !matches!(
            inst.raw().code(),
            Code::Jmp_rm64 | Code::Call_rm64 | Code::Retnq | Code::Retnq_imm16
        ),
        Flow::Syscall | Flow::Trap => true,
    };
    !unfit && !foreign && !leaves
}

/// Puts each memory operand into an arena of its own and makes numbers sensible.
pub(super) fn settle(inst: &Inst, machine: &mut Machine, dice: &mut Dice) {
    for (i, operand) in inst.memory().iter().enumerate() {
        match operand.shape {
            Shape::Bit(reg) => {
                machine.set(reg, dice.below(1600).wrapping_sub(800));
            }
            Shape::Lanes(lanes) => {
                let size = usize::from(lanes.index_size);
                for index in machine.z[usize::from(lanes.index)].chunks_mut(size) {
                    let value = (dice.below(400) as i64 - 200).to_le_bytes();
                    index.copy_from_slice(&value[..size]);
                }
            }
            Shape::Tile { stride: Some(reg), .. } => machine.set(reg, 64),
            _ => {}
        }
        if let Some(base) = operand.address.base {
            let disp = operand.address.disp.cast_unsigned();
            machine.set(base, probe::centre(i).wrapping_sub(disp));
        }
    }
    if matches!(inst.flow(), Flow::JumpIndirect | Flow::CallIndirect)
        && let Some(reg) = Gpr::of(inst.raw().op0_register())
    {
        machine.set(reg, inst.next_pc().0);
    }
    match inst.mnemonic() {
        // Quotients must fit.
        Mnemonic::Div | Mnemonic::Idiv => {
            machine.set(Gpr::Rdx, 0);
            machine.gpr[0] &= 0x7f;
        }
        _ => {}
    }
    if inst.raw().has_rep_prefix() || inst.raw().has_repne_prefix() {
        machine.set(Gpr::Rcx, dice.below(2));
    }
}

pub(super) fn ranges(records: &[Record], stores: bool) -> Vec<(GuestVa, u32)> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Load { addr, size, .. } if !stores => Some((*addr, *size)),
            Record::Store { addr, size, .. } if stores => Some((*addr, *size)),
            _ => None,
        })
        .collect()
}

pub(super) fn request(inst: &Inst, before: &Machine, windows: Option<&Windows>) -> Request {
    Request {
        code: forms::bytes(inst),
        before: before.clone(),
        windows: windows.map(|w| Box::new(*w)),
    }
}

/// Collects complaints, one line per form.
#[derive(Default)]
pub(super) struct Report {
    complaints: BTreeMap<String, Vec<String>>,
    total: usize,
    /// Executions of what this processor does not have.
    foreign: usize,
    /// Executions that prove something.
    pub(super) judged: usize,
}

impl Report {
    pub(super) fn note(&mut self, inst: &Inst, outcome: &Outcome, faults: Vec<String>) {
        self.total += 1;
        self.foreign += usize::from(outcome.signal == SIGILL);
        if !faults.is_empty() {
            self.complaints.entry(inst.text(Syntax::Intel)).or_default().extend(faults);
        }
    }

    /// Fails if there were complaints or too little was proved. Processors differ
    /// in what they have; more than half of the forms are old, and whatever a processor
    /// has is to be judged but for a few.
    pub(super) fn finish(self, what: &str) {
        let mut text = String::new();
        for (inst, faults) in self.complaints.iter().take(100) {
            text += &format!("  {inst}: {}\n", faults.join("; "));
        }
        assert!(text.is_empty(), "{what}: {} forms disagree:\n{text}", self.complaints.len());
        let Self { judged, total, foreign, .. } = self;
        let enough = judged * 10 > (total - foreign) * 9 && judged * 2 > total;
        assert!(
            enough,
            "{what}: only {judged} of {total} could be judged, {foreign} are not of this processor"
        );
    }
}
