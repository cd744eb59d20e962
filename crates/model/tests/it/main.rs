//! The models against judges: naive twins, published examples, Valgrind.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod blocks;
mod branch;
mod cachegrind;
mod drive;
mod filter;
mod hierarchy;
mod locality;
mod observe;
mod optimal;
mod published;
mod replacement;
mod robust;
mod sweep;
mod tage;
mod tlb;
