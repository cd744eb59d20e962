//! Writes the smallest ELF executables: one segment that may do anything.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Where the segment's contents begin in the file, and above its base in memory.
pub(crate) const HEADER: u64 = 120;

/// An executable whose bytes, headers first, are loaded at `base` and entered
/// `entry` bytes after the headers.
pub(crate) fn executable(base: u64, contents: &[u8], entry: u64) -> Vec<u8> {
    let size = HEADER + contents.len() as u64;
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |file: &mut Vec<u8>, n: u16| file.extend_from_slice(&n.to_le_bytes());
    let word = |file: &mut Vec<u8>, n: u32| file.extend_from_slice(&n.to_le_bytes());
    let double = |file: &mut Vec<u8>, n: u64| file.extend_from_slice(&n.to_le_bytes());
    half(&mut file, 2);
    half(&mut file, 243);
    word(&mut file, 1);
    double(&mut file, base + HEADER + entry);
    double(&mut file, 64);
    double(&mut file, 0);
    // Compressed instructions and double-precision arguments.
    word(&mut file, 5);
    for n in [64, 56, 1, 0, 0, 0] {
        half(&mut file, n);
    }
    word(&mut file, 1);
    word(&mut file, 7);
    double(&mut file, 0);
    double(&mut file, base);
    double(&mut file, base);
    double(&mut file, size);
    double(&mut file, size);
    double(&mut file, 4096);
    file.extend_from_slice(contents);
    file
}
