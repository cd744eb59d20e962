//! What stands at the other end of the serial port.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::time::Duration;

/// The other end of the serial port.
pub trait Console {
    /// Takes what the guest wrote.
    fn output(&mut self, bytes: &[u8]);

    /// What the guest shall read next; empty if there is nothing now.
    fn input(&mut self) -> Vec<u8>;

    /// The guest has nothing to do until input comes or this much of its time
    /// has passed. Answers whether to wait on; if not, and no timer is set, the
    /// machine ends. A console that is a script need not wait at all.
    fn idle(&mut self, until_timer: Option<Duration>) -> bool {
        let _ = until_timer;
        false
    }

    /// Whether the one at the console wants the machine to end.
    fn wants_to_leave(&self) -> bool {
        false
    }
}

impl<C: Console + ?Sized> Console for &mut C {
    fn output(&mut self, bytes: &[u8]) {
        (**self).output(bytes);
    }

    fn input(&mut self) -> Vec<u8> {
        (**self).input()
    }

    fn idle(&mut self, until_timer: Option<Duration>) -> bool {
        (**self).idle(until_timer)
    }

    fn wants_to_leave(&self) -> bool {
        (**self).wants_to_leave()
    }
}

/// Writes what the guest prints, and answers by a script: when a text appears
/// in the output, send another. The same script gives the same run.
#[derive(Debug)]
pub struct Script<W> {
    out: W,
    steps: Vec<(String, String)>,
    next: usize,
    /// Output since the last step that might hold the next text.
    seen: Vec<u8>,
    pending: Vec<u8>,
}

impl<W: Write> Script<W> {
    /// A script of (expected, sent) pairs; output goes to `out`.
    pub const fn new(out: W, steps: Vec<(String, String)>) -> Self {
        Self { out, steps, next: 0, seen: Vec::new(), pending: Vec::new() }
    }

    /// How many of the expected texts have appeared.
    #[must_use]
    pub const fn steps_done(&self) -> usize {
        self.next
    }

    /// Where the output went.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> Console for Script<W> {
    fn output(&mut self, bytes: &[u8]) {
        // A closed output must not change what the guest does.
        let _ = self.out.write_all(bytes).and_then(|()| self.out.flush());
        self.seen.extend_from_slice(bytes);
        while let Some((expected, sent)) = self.steps.get(self.next) {
            let wanted = expected.as_bytes();
            let found = wanted
                .is_empty()
                .then_some(0)
                .or_else(|| self.seen.windows(wanted.len()).position(|w| w == wanted));
            let Some(at) = found else { break };
            self.seen.drain(..at + wanted.len());
            self.pending.extend_from_slice(sent.as_bytes());
            self.next += 1;
        }
        let keep =
            self.steps.get(self.next).map_or(0, |(expected, _)| expected.len().saturating_sub(1));
        if self.seen.len() > keep {
            self.seen.drain(..self.seen.len() - keep);
        }
    }

    fn input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_answers_texts_that_arrive_in_pieces() {
        let steps =
            [("login: ", "root\n"), ("# ", "ls\n")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let mut script = Script::new(Vec::new(), steps.into());
        script.output(b"# not yet, log");
        assert!(script.input().is_empty());
        script.output(b"in: ");
        assert_eq!(script.input(), b"root\n");
        script.output(b"~ # ");
        assert_eq!(script.input(), b"ls\n");
        assert_eq!(script.steps_done(), 2);
        assert_eq!(script.into_inner(), b"# not yet, login: ~ # ");
    }
}
