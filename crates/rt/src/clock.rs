//! The processor's own clock, which inserted code reads, in nanoseconds. All times of a recording come from it, so that they
//! are in the order in which things happened.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, Instant};

/// A moment on the processor's clock, and how fast that runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: u64,
    /// Nanoseconds a tick, in parts of [`ONE`].
    rate: u128,
}

const ONE: u128 = 1 << 40;
/// For how long its rate is measured: to some parts of a hundred thousand.
const MEASURED: Duration = Duration::from_millis(4);

impl Clock {
    /// Now.
    #[must_use]
    pub fn start() -> Self {
        let (start, from) = both();
        std::thread::sleep(MEASURED);
        let (end, to) = both();
        let ticks = end.saturating_sub(start).max(1);
        Self { start, rate: to.duration_since(from).as_nanos() * ONE / u128::from(ticks) }
    }

    /// Its start, and its rate, for whoever reads what was stored when the clock is gone.
    #[must_use]
    pub fn parts(&self) -> (u64, u64) {
        (self.start, u64::try_from(self.rate).unwrap_or(u64::MAX))
    }

    /// The clock of such parts.
    #[must_use]
    pub fn of((start, rate): (u64, u64)) -> Self {
        Self { start, rate: rate.into() }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.at(ticks())
    }

    /// When the processor's clock stood at `at`, in nanoseconds since the start. It is taken to run evenly, at the
    /// same rate on all processors.
    #[must_use]
    pub fn at(&self, at: u64) -> u64 {
        let passed = u128::from(at.saturating_sub(self.start));
        u64::try_from(passed * self.rate / ONE).unwrap_or(u64::MAX)
    }
}

/// The same moment on both clocks, as nearly as it can be had.
fn both() -> (u64, Instant) {
    const TRIES: usize = 8;
    let read = || {
        let before = ticks();
        let now = Instant::now();
        let took = ticks().saturating_sub(before);
        (took, before + took / 2, now)
    };
    let first = read();
    let best = (1..TRIES).map(|_| read()).fold(first, |a, b| if b.0 < a.0 { b } else { a });
    (best.1, best.2)
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
        let began = Instant::now();
        let clock = Clock::start();
        std::thread::sleep(Duration::from_millis(3));
        let now = clock.now();
        assert!(now >= 7_000_000 - 200_000, "{now}");
        let most = began.elapsed().as_nanos() * 101 / 100 + 200_000;
        assert!(u128::from(now) <= most, "{now} {most}");
        assert_eq!(clock.at(0), 0);
        let (first, second) = (ticks(), ticks());
        assert!(clock.at(first) <= clock.at(second));
    }
}
