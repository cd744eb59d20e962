//! Decoded instructions of one address space, kept while they stay true.
//!
//! An instruction in memory that nobody can write is decoded once and believed
//! until a mapping of the process changes; then its bytes are compared again
//! before it is next executed. In memory that can be written while it executes
//! (writable pages, and shared ones, which may be written elsewhere) the bytes
//! are compared at every execution. So self-modifying and generated code is
//! always seen as it is executed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use iced_x86::{Mnemonic, Register};
use ichnos_base::GuestVa;
use ichnos_isa_x86::{Flow, Inst, MAX_LEN};

use crate::maps::Vma;
use crate::sys::{self, Tid};

/// What an instruction needs beyond a plain step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Nothing.
    Plain,
    /// A repeated string instruction: one step per iteration.
    Rep,
    /// Enters the kernel.
    Syscall,
    /// Stores the flags: our trap flag must not show.
    PushFlags,
    /// Loads the flags, the trap flag among them.
    LoadFlags,
    /// Traps after itself, into the program's own `SIGTRAP`.
    Breakpoint,
    /// Loads `ss`, which keeps the processor from trapping after it: the next
    /// instruction would be executed in the same step.
    Shadow,
    /// No instruction: will fault.
    Invalid,
}

/// One instruction as last seen.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    /// The decoded form; nothing for [`Class::Invalid`].
    pub(crate) inst: Option<Inst>,
    pub(crate) class: Class,
    bytes: [u8; MAX_LEN],
    have: usize,
    /// The maps under which it was last compared; [`VOLATILE`] for never enough.
    checked: u64,
}

const VOLATILE: u64 = 0;

impl Cached {
    /// The instruction's own bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.have]
    }
}

/// Whether the bytes were seen before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// They are as they were.
    Before,
    /// They are new here.
    FirstTime,
}

/// The instructions of one address space.
pub(crate) struct CodeCache {
    index: HashMap<u64, u32, BuildHasherDefault<PcHasher>>,
    entries: Vec<Cached>,
    epoch: u64,
}

impl CodeCache {
    pub(crate) fn new() -> Self {
        Self { index: HashMap::default(), entries: Vec::new(), epoch: VOLATILE + 1 }
    }

    /// A mapping changed: believe nothing without looking.
    pub(crate) fn doubt(&mut self) {
        self.epoch += 1;
    }

    /// The instruction at `pc`, as it is now in the memory of `tid`.
    #[inline]
    pub(crate) fn fetch(&mut self, tid: Tid, pc: u64, maps: &[Vma]) -> (&Cached, Seen) {
        let known = self.index.get(&pc).map(|at| *at as usize);
        match known {
            Some(at) if self.entries[at].checked == self.epoch => (&self.entries[at], Seen::Before),
            _ => self.look(tid, pc, maps, known),
        }
    }

    #[cold]
    fn look(&mut self, tid: Tid, pc: u64, maps: &[Vma], known: Option<usize>) -> (&Cached, Seen) {
        let mut bytes = [0; MAX_LEN];
        let have = read_code(tid, pc, &mut bytes);
        let checked = match maps.iter().find(|vma| vma.contains(pc)) {
            Some(vma) if !vma.code_may_change() => self.epoch,
            _ => VOLATILE,
        };
        if let Some(at) = known {
            let old = &mut self.entries[at];
            if old.have > 0 && bytes[..have].starts_with(&old.bytes[..old.have]) {
                old.checked = checked;
                return (&self.entries[at], Seen::Before);
            }
        }
        let entry = decode(pc, &bytes[..have], checked);
        let at = known.unwrap_or_else(|| {
            self.index.insert(pc, self.entries.len() as u32);
            self.entries.push(entry.clone());
            self.entries.len() - 1
        });
        self.entries[at] = entry;
        (&self.entries[at], Seen::FirstTime)
    }
}

fn decode(pc: u64, code: &[u8], checked: u64) -> Cached {
    let inst = Inst::decode(code, GuestVa(pc)).ok();
    let have = inst.as_ref().map_or(0, |inst| usize::from(inst.length()));
    let mut bytes = [0; MAX_LEN];
    bytes[..have].copy_from_slice(&code[..have]);
    Cached { class: inst.as_ref().map_or(Class::Invalid, classify), inst, bytes, have, checked }
}

fn classify(inst: &Inst) -> Class {
    let raw = inst.raw();
    match inst.mnemonic() {
        _ if inst.flow() == Flow::Syscall => Class::Syscall,
        Mnemonic::Pushf | Mnemonic::Pushfq => Class::PushFlags,
        Mnemonic::Popf | Mnemonic::Popfq | Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => {
            Class::LoadFlags
        }
        Mnemonic::Int3 | Mnemonic::Int1 => Class::Breakpoint,
        // The same in two bytes.
        Mnemonic::Int if raw.immediate8() == 3 => Class::Breakpoint,
        _ if (raw.has_rep_prefix() || raw.has_repne_prefix()) && raw.is_string_instruction() => {
            Class::Rep
        }
        Mnemonic::Mov if raw.op0_register() == Register::SS => Class::Shadow,
        _ => Class::Plain,
    }
}

/// Reads code; where the process may not read it itself (execute-only pages),
/// word by word through ptrace.
fn read_code(tid: Tid, pc: u64, into: &mut [u8; MAX_LEN]) -> usize {
    let mut have = sys::read_memory(tid, pc, into);
    while have < MAX_LEN {
        let Some(word) = sys::peek(tid, pc.wrapping_add(have as u64)) else { break };
        let take = (MAX_LEN - have).min(8);
        into[have..have + take].copy_from_slice(&word.to_le_bytes()[..take]);
        have += take;
    }
    have
}

/// Instruction addresses are well spread in their low bits: one multiplication
/// is enough.
#[derive(Default)]
struct PcHasher(u64);

impl Hasher for PcHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
