//! Where the engine lives in a program's address space.
//!
//! The window is far below the kernel's top-down mapping area and far above
//! everything that a program links at a fixed address, so an untraced run would have
//! nothing here. Only the code regions lie elsewhere: near the code they translate,
//! in gaps that the kernel does not give out (see `engine::places`).
// SPDX-License-Identifier: MIT OR Apache-2.0

/// First address of the window.
pub const START: u64 = 0x2000_0000_0000;
/// The engine's executable.
pub const IMAGE: u64 = START;
/// The engine's dynamic loader.
pub const LOADER: u64 = START + (4 << 30);
/// The stack on which the engine starts, and what the host tells it.
pub const STACK: u64 = START + (8 << 30);
/// Bytes of that stack.
pub const STACK_LEN: u64 = 256 << 10;
/// The engine's heap, growing upwards.
pub const HEAP: u64 = START + (16 << 30);
/// End of the heap.
pub const HEAP_END: u64 = START + (272 << 30);
/// Per-thread blocks.
pub const THREADS: u64 = HEAP_END;
/// End of the per-thread blocks.
pub const THREADS_END: u64 = START + (528 << 30);
/// Writable views of the code regions.
pub const VIEWS: u64 = THREADS_END;
/// End of the writable views.
pub const VIEWS_END: u64 = START + (600 << 30);
/// The tap.
pub const TAP: u64 = VIEWS_END;
/// End of the window; the engine's libraries come to lie just below.
pub const END: u64 = START + (1 << 40);

/// Whether any byte of `[start, start + len)` lies in the window.
pub const fn overlaps(start: u64, len: u64) -> bool {
    start < END && start.saturating_add(len) > START
}
