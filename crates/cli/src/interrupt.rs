//! Ctrl-C and SIGTERM as a flag that long work looks at, so that a trace is
//! finished and not torn.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that the first interrupt sets. A second one ends the process at once,
/// as users who press Ctrl-C twice expect.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .with_context(|| format!("cannot listen for signal {signal}"))?;
    }
    Ok(stop)
}
