//! Any bytes as a trace file: opened, and everything in it replayed.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ichnos_replay::fuzz::trace_file(data));
