//! The crate's one integration binary: round trips against a naive twin, parts of
//! traces, executions told by numbers, plans with raw words, chains of blocks, words through memory, chunks with much in them, damage, memory, and a short run of the fuzz targets.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod chains;
mod damage;
mod fuzz;
mod memory;
mod much;
mod naive;
mod parts;
mod plan;
mod planned;
mod twin;
mod wires;
