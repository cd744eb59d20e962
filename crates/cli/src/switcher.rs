//! A thread that writes the word by which recordings are switched, as time goes by.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ichnos_collect_asm::Word;

/// When the word is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// Once in every so much time, for so long.
    Periodic { every: Duration, length: Duration },
    /// From a time on, until another.
    Once { start: Option<Duration>, stop: Option<Duration> },
}

impl Schedule {
    /// The moments, counted from the beginning, at which the word changes, and what it becomes.
    fn changes(self) -> Box<dyn Iterator<Item = (Duration, u32)>> {
        match self {
            Self::Periodic { every, length } => Box::new((0u32..).flat_map(move |turn| {
                let begin = every.saturating_mul(turn + 1).saturating_sub(length.min(every));
                [(begin, 1), (begin.saturating_add(length), 0)]
            })),
            Self::Once { start, stop } => {
                Box::new(start.map(|s| (s, 1)).into_iter().chain(stop.map(|s| (s, 0))))
            }
        }
    }

    /// Follows it for `limit`, or until `wait`, which waits for a moment, says that it is over.
    pub fn follow(
        self,
        word: &Word,
        limit: Option<Duration>,
        wait: impl Fn(Duration) -> bool,
    ) -> io::Result<()> {
        let begun = Instant::now();
        for (at, value) in self.changes() {
            let last = limit.is_some_and(|limit| at >= limit);
            let at = limit.map_or(at, |limit| at.min(limit));
            if !wait(at.saturating_sub(begun.elapsed())) || last {
                break;
            }
            word.set(value)?;
        }
        if matches!(self, Self::Periodic { .. }) { word.set(0) } else { Ok(()) }
    }
}

/// The thread; it ends when this is dropped.
pub struct Switcher {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Switcher {
    /// Begins to follow a schedule.
    pub fn start(word: Arc<Word>, schedule: Schedule) -> Self {
        let (stop, stopped) = channel();
        let wait = move |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let thread = std::thread::spawn(move || {
            // A word that cannot be written was refused when it was opened.
            let _ = schedule.follow(&word, None, wait);
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Switcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_end_with_the_recorded_part() {
        let ms = Duration::from_millis;
        let schedule = Schedule::Periodic { every: ms(100), length: ms(10) };
        let first: Vec<_> = schedule.changes().take(4).collect();
        assert_eq!(first, [(ms(90), 1), (ms(100), 0), (ms(190), 1), (ms(200), 0)]);
        let once = Schedule::Once { start: Some(ms(5)), stop: None };
        assert_eq!(once.changes().collect::<Vec<_>>(), [(ms(5), 1)]);
    }
}
