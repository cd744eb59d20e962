//! Any bytes to the gem5 reader.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ichnos_convert::fuzz::fuzz_gem5(data));
