//! Ctrl-C and SIGTERM as a flag that long work looks at, so that a trace is
//! finished and not torn; and which of them it was, for the exit status.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// An interrupt that may come.
pub struct Interrupt {
    /// Set by the first one.
    pub stop: Arc<AtomicBool>,
    /// The signal that came last; 0 if none did.
    signal: Arc<AtomicUsize>,
    /// Whether nobody looks at the flag any more.
    past: Arc<AtomicBool>,
}

impl Interrupt {
    /// Whether one came.
    pub fn is_set(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The status of a program that had to be killed because of the interrupt: as if the signal
    /// had reached it, as the shell has it.
    pub fn status(&self) -> Option<u8> {
        let signal = u8::try_from(self.signal.load(Ordering::Relaxed)).ok();
        signal.filter(|&signal| signal > 0).map(|signal| 128 + signal)
    }
}

/// A flag that the first interrupt sets. A second one ends the process at once,
/// as users who press Ctrl-C twice expect. What whoever started ichnos chose to ignore stays
/// ignored, for ichnos and for the program that it runs.
pub fn flag() -> Result<Interrupt> {
    let (stop, which) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let past = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    for signal in [SIGINT, SIGTERM].into_iter().filter(|s| ignored >> (s - 1) & 1 == 0) {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&past))
            .and_then(|_| {
                signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop))
            })
            .and_then(|_| {
                let number = signal.unsigned_abs() as usize;
                signal_hook::flag::register_usize(signal, Arc::clone(&which), number)
            })
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .with_context(|| format!("cannot listen for signal {signal}"))?;
    }
    Ok(Interrupt { stop, signal: which, past })
}

/// Does work that looks at the flag, before other work that does not: an interrupt then ends the process as if
/// nobody had ever listened. Whether one came is said, too.
pub fn during<T>(work: impl FnOnce(&AtomicBool) -> T) -> Result<(T, bool)> {
    static INTERRUPT: OnceLock<Interrupt> = OnceLock::new();
    let interrupt = match INTERRUPT.get() {
        Some(known) => known,
        None => {
            let new = flag()?;
            INTERRUPT.get_or_init(|| new)
        }
    };
    interrupt.past.store(false, Ordering::SeqCst);
    let done = work(&interrupt.stop);
    interrupt.past.store(true, Ordering::SeqCst);
    Ok((done, interrupt.is_set()))
}

/// The signals that are ignored, as bits; none if the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
