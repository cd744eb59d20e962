//! The processor's own clock, which inserted code reads, against the system's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Instant;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    ticks: u64,
}

impl Clock {
    /// Now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now(), ticks: ticks() }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// When the processor's clock stood at `at`, in nanoseconds since the start. It is taken to run evenly, at the
    /// same rate on all processors.
    #[must_use]
    pub fn at(&self, at: u64) -> u64 {
        let (now, elapsed) = (self.now(), ticks().saturating_sub(self.ticks).max(1));
        let passed = at.saturating_sub(self.ticks).min(elapsed);
        let ns = u128::from(passed) * u128::from(now) / u128::from(elapsed);
        u64::try_from(ns).unwrap_or(now)
    }
}

fn ticks() -> u64 {
    // SAFETY: the instruction has no operands and touches no memory; every x86-64 processor has it, and
    // the kernel lets programs use it unless they ask for the contrary.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_tell_the_same() {
        let clock = Clock::start();
        std::thread::sleep(std::time::Duration::from_millis(3));
        let (before, at, after) = (clock.now(), clock.at(ticks()), clock.now());
        assert!(before.saturating_sub(200_000) <= at && at <= after, "{before} {at} {after}");
        assert_eq!(clock.at(0), 0);
    }
}
