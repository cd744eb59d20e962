//! Any bytes as a damaged trace file: salvaged, and what was kept replayed.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ichnos_replay::fuzz::trace_salvage(data));
