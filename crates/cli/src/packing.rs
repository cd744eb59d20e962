//! What is said while a trace is packed whose program has ended: nothing if that does not take long.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Packing that takes no longer is not spoken of.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is spoken of on a terminal, where the line is always the same.
const OFTEN: Duration = Duration::from_millis(500);
/// How often elsewhere.
const SELDOM: Duration = Duration::from_secs(10);

/// Whether anything is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Words {
    /// Nothing.
    None,
    /// How far it is.
    Said,
}

/// How far packing is.
pub struct Packing {
    words: Words,
    terminal: bool,
    started: Instant,
    said: Option<Instant>,
}

impl Packing {
    /// It begins now.
    pub fn new(words: Words) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { words, terminal, started: Instant::now(), said: None }
    }

    /// So much of all has been packed.
    pub fn at(&mut self, done: u64, all: u64) {
        let often = if self.terminal { OFTEN } else { SELDOM };
        let since = self.started.elapsed();
        let early = self.said.map_or(since < PATIENCE, |said| said.elapsed() < often);
        if self.words == Words::None || early || done == 0 || done >= all {
            return;
        }
        self.said = Some(Instant::now());
        let (share, left) = outlook(done, all, since);
        match self.terminal {
            true => eprint!("\r\x1b[Kichnos: packing: {share} %, {left} s left"),
            false => eprintln!("ichnos: packing: {share} %, {left} s left"),
        }
    }

    /// It has ended.
    pub fn end(&mut self) {
        if self.terminal && self.said.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

/// How much has been done, in percent, and how many seconds the rest will take.
fn outlook(done: u64, all: u64, since: Duration) -> (u64, u64) {
    let part = done as f64 / all.max(1) as f64;
    let left = since.as_secs_f64() * (1.0 - part) / part.max(1e-9);
    ((part * 100.0) as u64, left.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_its_share() {
        assert_eq!(outlook(25, 100, Duration::from_secs(10)), (25, 30));
        assert_eq!(outlook(999, 1000, Duration::from_secs(10)), (99, 1));
        assert_eq!(outlook(0, 0, Duration::ZERO), (0, 0));
    }
}
