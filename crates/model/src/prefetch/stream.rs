//! Stream prefetching on misses (after Jouppi's stream buffers, ISCA 1990, and
//! their use with a direction as in POWER4): a miss near the head of a stream
//! that was seen going the same way confirms it, and a confirmed stream runs
//! ahead of the program by up to `degree` lines at each step.
//!
//! Streams are replaced least recently used first.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::LineAddr;

use super::{Outcome, Prefetcher, Seen, Wanted};

/// How far from its head, in lines, a miss still belongs to a stream.
const REACH: i64 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    line: LineAddr,
    /// +1 or -1 once known, 0 before.
    direction: i64,
    used: u64,
}

/// Ascending and descending streams.
#[derive(Debug)]
pub struct Stream {
    degree: i64,
    heads: Box<[Head]>,
    clock: u64,
}

impl Stream {
    /// Follows `streams` streams and asks for `degree` lines ahead of each.
    #[must_use]
    pub fn new(degree: u32, streams: u32) -> Self {
        let heads = vec![Head::default(); streams.max(1) as usize].into_boxed_slice();
        Self { degree: i64::from(degree), heads, clock: 0 }
    }
}

impl Prefetcher for Stream {
    fn access(&mut self, seen: &Seen, wanted: &mut Wanted) {
        if seen.outcome == Outcome::Hit {
            return;
        }
        self.clock += 1;
        let clock = self.clock;
        let step = |head: &Head| seen.line.since(head.line) as i64;
        let belongs = |head: &Head| {
            let distance = step(head);
            head.used != 0
                && distance != 0
                && distance.abs() <= REACH
                && distance.signum() * head.direction >= 0
        };
        if let Some(head) = self.heads.iter_mut().find(|head| belongs(head)) {
            let direction = step(head).signum();
            *head = Head { line: seen.line, direction, used: clock };
            for ahead in 1..=self.degree {
                wanted.push(seen.line.offset((ahead * direction) as u64));
            }
        } else if let Some(oldest) = self.heads.iter_mut().min_by_key(|head| head.used) {
            *oldest = Head { line: seen.line, direction: 0, used: clock };
        }
    }
}

#[cfg(test)]
mod tests {
    use ichnos_base::GuestVa;

    use super::*;

    fn miss(stream: &mut Stream, line: u64) -> Vec<u64> {
        let mut wanted = Wanted::new();
        let line = LineAddr(line);
        let seen = Seen { pc: GuestVa(0), addr: GuestVa(0), line, outcome: Outcome::Miss };
        stream.access(&seen, &mut wanted);
        wanted.lines().iter().map(|l| l.0).collect()
    }

    #[test]
    fn two_streams_in_opposite_directions() {
        let mut stream = Stream::new(2, 2);
        assert_eq!(miss(&mut stream, 100), []);
        assert_eq!(miss(&mut stream, 900), []);
        assert_eq!(miss(&mut stream, 101), [102, 103]);
        assert_eq!(miss(&mut stream, 899), [898, 897]);
        assert_eq!(miss(&mut stream, 103), [104, 105]);
        // Against the direction: not the same stream; the oldest gives way.
        assert_eq!(miss(&mut stream, 102), []);
        assert_eq!(miss(&mut stream, 104), [105, 106]);
    }
}
