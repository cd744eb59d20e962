//! Several who write to a spool: one would wait for the disk most of the time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::spool::{Hurry, Pen, Spool};

/// How many write at once: most of them wait for the disk.
const WRITERS: usize = 6;
/// When so many buffers wait for somebody to write them, there is a hurry.
const MANY: usize = 2 * WRITERS;

/// Threads that write buffers, in the order in which they are given to them.
#[derive(Debug)]
pub struct Writers<T> {
    jobs: Sender<(u64, T)>,
    /// How many jobs nobody has begun.
    left: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
}

impl<T: Send + 'static> Writers<T> {
    /// Starts them for a spool that holds so many buffers; nothing if there can be none. What `writer` gives each of them puts a buffer
    /// into the spool under the number that it is given.
    pub fn start<W>(spool: &Arc<Spool>, next: u64, writer: impl Fn() -> W) -> Option<Self>
    where
        W: FnMut(&mut Pen, u64, T, Hurry) + Send + 'static,
    {
        let (jobs, taken) = channel();
        let (taken, left) = (Arc::new(Mutex::new(taken)), Arc::new(AtomicUsize::new(0)));
        let thread = |_| {
            let (taken, left, pen) = (Arc::clone(&taken), Arc::clone(&left), spool.pen());
            let mut write = writer();
            let named = Builder::new().name("spool".to_owned());
            named.spawn(move || write_all((&taken, &left), pen, &mut write)).ok()
        };
        let threads: Vec<_> = (0..WRITERS).filter_map(thread).collect();
        (!threads.is_empty()).then_some(Self { jobs, left, threads, next })
    }

    /// The number that the next buffer gets.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Gives them a buffer.
    pub fn give(&mut self, buffer: T) {
        self.left.fetch_add(1, Ordering::Relaxed);
        // They end later than this does.
        let _ = self.jobs.send((self.next, buffer));
        self.next += 1;
    }

    /// Waits until all is written.
    pub fn end(self) {
        drop(self.jobs);
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn write_all<T>(
    (jobs, left): (&Mutex<Receiver<(u64, T)>>, &AtomicUsize),
    mut pen: Pen,
    write: &mut impl FnMut(&mut Pen, u64, T, Hurry),
) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, buffer)) = job else { return };
        let many = left.fetch_sub(1, Ordering::Relaxed) > MANY;
        write(&mut pen, number, buffer, if many { Hurry::Much } else { Hurry::None });
    }
}
