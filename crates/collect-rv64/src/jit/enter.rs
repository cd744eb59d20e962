//! The call into generated code: the one place that trusts it.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code, reason = "generated code can only be called so")]

use ichnos_base::CacheAddr;

use crate::cpu::{Cpu, FloatState};
use crate::float::flag;
use crate::jit::{Jit, Reason};
use crate::memory::World;
use crate::tlb::Entry;

/// `fn(hart, ram, bank, block, instructions) -> instructions left`
type Enter = unsafe extern "sysv64" fn(*mut Cpu, *mut u8, *const Entry, *const u8, u64) -> u64;

impl Jit {
    /// Runs the block at `at`, and those it leads to, while at most `limit`
    /// instructions retire. The hart's `pc` and count are right afterwards.
    pub(crate) fn enter<W: World>(
        &self,
        cpu: &mut Cpu,
        world: &mut W,
        at: CacheAddr,
        limit: u64,
    ) -> Reason {
        let thunk = self.memory.address(self.thunks.enter);
        let block = self.memory.address(at);
        let (ram, bank) = (world.ram_mut().start(), cpu.tlb.bank());
        // SAFETY: `thunk` is the start of the function that `Thunks::generate` wrote
        // for this signature; it saves what the convention wants saved. `block` is
        // the entry of a block in the same memory, which stays mapped while `self`
        // is borrowed. Generated code touches only:
        // - the hart, through a pointer from `&mut Cpu`, at offsets of its fields;
        // - the active bank and the table of jumps, whose boxes the hart owns;
        // - RAM at offsets that the bank's entries give for a page. Entries are
        //   entered only for whole pages inside RAM, which never shrinks, and an
        //   access that does not lie inside its page does not match its entry.
        // The table of jumps holds only entries of blocks, and is emptied or
        // retagged when blocks move (`Engine` watches the generation).
        let left = unsafe {
            let enter: Enter = std::mem::transmute(thunk);
            enter(cpu, ram, bank, block, limit)
        };
        cpu.retired = cpu.retired.wrapping_add(limit - left);
        raise(cpu);
        match cpu.shared.reason {
            0 => Reason::Lookup,
            2 => Reason::Link,
            3 => Reason::Limit,
            _ => Reason::Interpret,
        }
    }
}

/// The host's sticky flags become the guest's.
fn raise(cpu: &mut Cpu) {
    let host = cpu.shared.mxcsr;
    if host & 0x3d == 0 {
        return;
    }
    let bit = |n: u32, flag: u8| if host >> n & 1 != 0 { flag } else { 0 };
    let flags = bit(0, flag::INVALID)
        | bit(2, flag::DIVIDE_BY_ZERO)
        | bit(3, flag::OVERFLOW)
        | bit(4, flag::UNDERFLOW)
        | bit(5, flag::INEXACT);
    cpu.raise(flags);
    debug_assert_ne!(cpu.float_state, FloatState::Off);
}
