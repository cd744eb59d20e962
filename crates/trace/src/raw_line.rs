//! The line on which raw chunks are packed: several packers side by side, each with a thread of its own; what they made
//! comes back in the order in which it was handed in.
//!
//! Memory: the chunks on the line, at most a few more than there are packers; and for each packer what its chunk becomes, at most
//! four bytes and a third for each of its executions, 16 megabytes and the plans.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ichnos_base::ThreadId;

use crate::error::Error;
use crate::followed::Followed;
use crate::lore::Plans;
use crate::raw_pack::{From, Gathered, Packed, RawPacker, Rest};

/// Chunks that may wait beside those that are being packed, or for one before them that takes longer.
const WAITING: usize = 3;

/// A chunk that was handed in.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) thread: ThreadId,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) gathered: Gathered,
    /// From whom its packer learns what a register that is followed held before, and whom it tells what that holds behind.
    pub(crate) before: Option<Receiver<u64>>,
    pub(crate) after: Option<Sender<u64>>,
}

/// The same when it is packed.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) chunk: Chunk,
    /// The chunk, or several if it was too much for one.
    pub(crate) packed: Result<Vec<Packed>, Error>,
}

/// The line.
#[derive(Debug)]
pub(crate) struct RawLine {
    plans: Plans,
    level: i32,
    /// How many packers there are to be.
    packers: usize,
    pool: Option<Pool>,
    waiting: VecDeque<Receiver<Done>>,
    /// Gathered things whose memory is used again.
    spare: Vec<Gathered>,
}

type Job = (Chunk, Sender<Done>);

#[derive(Debug)]
struct Pool {
    jobs: Sender<Job>,
    threads: Vec<JoinHandle<()>>,
}

impl RawLine {
    /// Nothing on it; threads are started with the first chunk.
    pub(crate) fn new(level: i32, packers: usize) -> Self {
        // What is left over is little and in good order: lower levels make it hardly larger, and take less time.
        let level = if level > 3 { level - 2 } else { level.min(1) };
        let (plans, pool, waiting, spare) = (Plans::default(), None, VecDeque::new(), Vec::new());
        Self { plans, level, packers: packers.max(1), pool, waiting, spare }
    }

    /// What the packers know of blocks.
    pub(crate) const fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Something to gather in.
    pub(crate) fn fresh(&mut self) -> Gathered {
        self.spare.pop().unwrap_or_default()
    }

    /// Hands in a chunk.
    pub(crate) fn put(&mut self, chunk: Chunk) -> Result<(), Error> {
        let failed = |source| Error::Write { written: 0, source };
        if self.pool.is_none() {
            let pool = Pool::new(&self.plans, self.level, self.packers).map_err(failed)?;
            self.pool = Some(pool);
        }
        let (done, waits) = channel();
        let gone = || failed(io::Error::other("the threads that pack are gone"));
        let pool = self.pool.as_ref().ok_or_else(gone)?;
        pool.jobs.send((chunk, done)).map_err(|_| gone())?;
        self.waiting.push_back(waits);
        Ok(())
    }

    /// The first chunk of the line, if there are so many that somebody has to wait for it.
    pub(crate) fn next_if_full(&mut self) -> Option<Result<Done, Error>> {
        if self.waiting.len() <= self.packers + WAITING {
            return None;
        }
        self.next()
    }

    /// The first chunk of the line.
    pub(crate) fn next(&mut self) -> Option<Result<Done, Error>> {
        let gone = |_| {
            let source = io::Error::other("a thread that packs has panicked");
            Error::Write { written: 0, source }
        };
        Some(self.waiting.pop_front()?.recv().map_err(gone))
    }

    /// Ends the threads when they have packed what was handed in. The next are started by whoever hands in the next chunk.
    pub(crate) fn renew(&mut self) {
        let Some(Pool { jobs, threads }) = self.pool.take() else { return };
        drop(jobs);
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Gives back what was gathered in.
    pub(crate) fn reuse(&mut self, mut gathered: Gathered) {
        gathered.clear();
        self.spare.push(gathered);
    }
}

impl Drop for RawLine {
    fn drop(&mut self) {
        self.renew();
    }
}

impl Pool {
    fn new(plans: &Plans, level: i32, packers: usize) -> io::Result<Self> {
        let (jobs, takes) = channel();
        let takes = Arc::new(Mutex::new(takes));
        let mut threads = Vec::new();
        for _ in 0..packers {
            let (plans, takes) = (Arc::clone(plans), Arc::clone(&takes));
            let packer = RawPacker::new(level)?;
            let named = std::thread::Builder::new().name("packer".to_owned());
            threads.push(named.spawn(move || work(packer, &plans, &takes))?);
        }
        Ok(Self { jobs, threads })
    }
}

/// Packs as long as there is something to pack.
fn work(mut packer: RawPacker, plans: &Plans, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((mut chunk, done)) = job else { return };
        let (before, after) = (chunk.before.take(), chunk.after.take());
        let followed = Followed::new(chunk.gathered.follows, before, after);
        let packed = pack(&mut packer, plans, &chunk.gathered, followed);
        let (thread, at) = (chunk.thread, packer.place);
        let packed = packed.map_err(|error| match error {
            Error::Misuse(flaw) => Error::Raw { thread, at, flaw },
            error => error,
        });
        // Who waited for it may have given up.
        let _ = done.send(Done { chunk, packed });
    }
}

fn pack(
    packer: &mut RawPacker,
    plans: &Plans,
    gathered: &Gathered,
    followed: Followed,
) -> Result<Vec<Packed>, Error> {
    let mut rest = Some(Rest { from: From::default(), followed });
    let mut all = Vec::new();
    while let Some(next) = rest {
        let packed;
        (packed, rest) = packer.pack(plans, gathered, next)?;
        all.push(packed);
    }
    Ok(all)
}
