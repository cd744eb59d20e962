//! Ctrl-C and SIGTERM as a flag that long work looks at, so that a trace is
//! finished and not torn.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that the first interrupt sets. A second one ends the process at once,
/// as users who press Ctrl-C twice expect. What whoever started ichnos chose to ignore stays
/// ignored, for ichnos and for the program that it runs.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    for signal in [SIGINT, SIGTERM].into_iter().filter(|s| ignored >> (s - 1) & 1 == 0) {
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .with_context(|| format!("cannot listen for signal {signal}"))?;
    }
    Ok(stop)
}

/// The signals that are ignored, as bits; none if the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
