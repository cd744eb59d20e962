//! Reads `/proc/PID/maps`, addresses only.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

/// The mapped stretches `(start, end)` of a process, in order.
pub fn mapped(pid: i32) -> io::Result<Vec<(u64, u64)>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(text.lines().filter_map(range).collect())
}

fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}
