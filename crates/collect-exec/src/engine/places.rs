//! Where code regions lie, and which addresses are the engine's.
//!
//! A code region should be within two gigabytes of the code it translates, so that
//! rip-relative operands keep their form. The kernel leaves two gaps which it never gives to
//! a program: below the executable, and between the mapping base and the stack. Regions go
//! there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::window;

/// The most regions there can be.
pub const MOST: usize = 16;

static STARTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static ENDS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Notes a region's executable view.
pub fn add(start: u64, len: u64) {
    let i = COUNT.load(Ordering::Relaxed);
    STARTS[i].store(start, Ordering::Relaxed);
    ENDS[i].store(start + len, Ordering::Relaxed);
    COUNT.store(i + 1, Ordering::Release);
}

/// Whether any byte of a range is the engine's.
pub fn is_engine(start: u64, len: u64) -> bool {
    window::overlaps(start, len)
        || (0..count()).any(|i| {
            let (s, e) = bounds(i);
            start < e && start.saturating_add(len) > s
        })
}

/// Whether an address lies in translated code.
pub fn is_cache(addr: u64) -> bool {
    (0..count()).any(|i| {
        let (s, e) = bounds(i);
        (s..e).contains(&addr)
    })
}

fn count() -> usize {
    COUNT.load(Ordering::Acquire)
}

fn bounds(i: usize) -> (u64, u64) {
    (STARTS[i].load(Ordering::Relaxed), ENDS[i].load(Ordering::Relaxed))
}

/// A gap in which a region can lie.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

/// Finds the places for the first regions from the mappings `(start, end, is the stack)` of a
/// fresh process, each of so many bytes at most.
pub fn first_gaps(maps: &[(u64, u64, bool)], most: u64) -> Vec<Gap> {
    const MEGA: u64 = 1 << 20;
    let mut gaps = Vec::new();
    let program = maps.iter().filter(|&&(start, _, _)| !is_engine(start, 1));
    let (mut exe, mut below_stack, mut stack) = (None, 0, None);
    for &(start, end, is_stack) in program {
        if exe.is_none() && start > window::END {
            exe = Some(start);
        }
        if is_stack {
            stack = Some(end);
            break;
        }
        below_stack = end;
    }
    // Leave room for the stack to grow as far as the usual limit, and more.
    if let Some(top) = stack {
        let start = below_stack.next_multiple_of(MEGA) + MEGA;
        let end = (top & !(MEGA - 1)).saturating_sub(24 * MEGA);
        if end > start + 32 * MEGA {
            gaps.push(Gap { start, len: (end - start).min(most) });
        }
    }
    if let Some(exe) = exe.filter(|&exe| exe < 0x7000_0000_0000) {
        gaps.push(Gap { start: (exe & !(MEGA - 1)) - 528 * MEGA, len: most });
    } else {
        // A program at low addresses: its operands are encoded as absolute, any place will do.
        gaps.push(Gap { start: 0x5000_0000_0000, len: most });
    }
    gaps
}
