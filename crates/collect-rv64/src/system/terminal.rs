//! The terminal as the machine's serial port. Every key goes to the guest, so
//! Ctrl-A is the way out: Ctrl-A x ends the machine, Ctrl-A h says what there
//! is, Ctrl-A twice sends it to the guest. Input that is not a terminal is
//! passed on as it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::system::console::Console;

const ESCAPE: u8 = 1;
const HELP: &[u8] =
    b"\r\nCtrl-A x: end the machine; Ctrl-A Ctrl-A: send Ctrl-A; Ctrl-A h: this\r\n";

/// What the keys typed so far come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Keys {
    #[default]
    Plain,
    /// Ctrl-A, and what follows says what is meant.
    Escaped,
    /// The machine shall end.
    Quit,
}

impl Keys {
    /// Takes what was typed; the result is for the guest and for the screen.
    fn take(&mut self, typed: &[u8]) -> (Vec<u8>, &'static [u8]) {
        let mut sent = Vec::with_capacity(typed.len());
        let mut shown: &[u8] = &[];
        for &key in typed {
            match (*self, key) {
                (Self::Quit, _) => {}
                (Self::Plain, ESCAPE) => *self = Self::Escaped,
                (Self::Plain, key) => sent.push(key),
                (Self::Escaped, b'x' | b'X') => *self = Self::Quit,
                (Self::Escaped, key) => {
                    match key {
                        ESCAPE => sent.push(ESCAPE),
                        b'h' | b'?' => shown = HELP,
                        _ => {}
                    }
                    *self = Self::Plain;
                }
            }
        }
        (sent, shown)
    }
}

/// This process's standard input and output. While it lives, a terminal hands
/// over every key as it is typed.
#[derive(Debug)]
pub struct Terminal {
    closed: bool,
    keys: Keys,
    /// How the terminal was before; none if input is no terminal.
    before: Option<Termios>,
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Terminal {
    /// Takes the terminal over, if there is one.
    #[must_use]
    pub fn new() -> Self {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // Output stays as it was: the host's own messages go there too.
            raw.output_modes = before.output_modes;
            // A terminal that refuses stays as it is; the guest can still be used.
            let _ = tcsetattr(stdin, OptionalActions::Now, &raw);
        }
        Self { closed: false, keys: Keys::Plain, before }
    }

    fn ready(&self, wait: Duration) -> bool {
        let stdin = rustix::stdio::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        !self.closed && matches!(poll(&mut fds, Some(&wait)), Ok(n) if n > 0)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}

impl Console for Terminal {
    fn output(&mut self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        // A closed terminal must not change what the guest does.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    fn input(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        if !self.ready(Duration::ZERO) {
            return Vec::new();
        }
        let got = rustix::io::read(rustix::stdio::stdin(), &mut bytes[..]).unwrap_or(0);
        self.closed = got == 0;
        bytes.truncate(got);
        if self.before.is_none() {
            return bytes;
        }
        let (sent, shown) = self.keys.take(&bytes);
        if !shown.is_empty() {
            self.output(shown);
        }
        sent
    }

    fn idle(&mut self, until_timer: Option<Duration>) -> bool {
        // Guest time passes as real time while nothing happens.
        let wait = until_timer.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(1));
        self.ready(wait);
        !self.closed || until_timer.is_some()
    }

    fn wants_to_leave(&self) -> bool {
        self.keys == Keys::Quit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_a_is_the_way_out() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"ls\r"), (b"ls\r".to_vec(), &b""[..]));
        assert_eq!(keys.take(b"a\x01"), (b"a".to_vec(), &b""[..]));
        assert_eq!(keys.take(b"\x01b"), (b"\x01b".to_vec(), &b""[..]));
        assert_eq!(keys.take(b"\x01h\x03"), (b"\x03".to_vec(), HELP));
        assert_eq!(keys.take(b"\x01?"), (Vec::new(), HELP));
        assert_eq!(keys.take(b"y\x01"), (b"y".to_vec(), &b""[..]));
        assert_eq!(keys.take(b"xz"), (Vec::new(), &b""[..]));
        assert_eq!(keys, Keys::Quit);
    }
}
