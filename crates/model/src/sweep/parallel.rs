//! Many models of any kind side by side, spread over threads: what a sweep does
//! where no one-pass method applies.
//!
//! Batches are copied once, shared by all workers, and queued; a queue that is
//! full makes the source wait, so memory is bounded by the queue. Blocks are told
//! as such if all models take them, and what a block is goes ahead of its first
//! execution. Of events, those that models here listen to are passed on: a
//! thread's start, end and migration.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use ichnos_base::{
    About, Batch, BlockId, Blocks, EndStatus, Event, GapReason, Record, Shapes, Sink, ThreadId,
    ThreadStart,
};

/// Messages that may wait in a worker's queue.
const QUEUE: usize = 16;

/// What is told to the workers.
#[derive(Clone, Debug)]
enum Message {
    Begin,
    Shape { block: BlockId, records: Arc<[Record]> },
    Blocks { thread: ThreadId, insns_before: u64, blocks: Arc<[BlockId]>, words: Arc<[u64]> },
    Records { thread: ThreadId, insns_before: u64, records: Arc<[Record]> },
    Start { thread: ThreadId, start: ThreadStart },
    Migrate { thread: ThreadId, cpu: u32 },
    Gap { thread: ThreadId, reason: GapReason },
    End { thread: ThreadId, status: EndStatus },
}

/// Feeds many models at once.
#[derive(Debug)]
pub struct Parallel<S> {
    queues: Vec<SyncSender<Message>>,
    workers: Vec<JoinHandle<Vec<S>>>,
    models: usize,
    by_blocks: bool,
    /// Blocks that the workers know, by number.
    known: Vec<bool>,
}

/// The blocks that a worker knows.
#[derive(Debug, Default)]
struct Known(Vec<Option<Arc<[Record]>>>);

impl Known {
    fn add(&mut self, block: BlockId, records: &Arc<[Record]>) {
        if self.0.len() <= block.index() {
            self.0.resize(block.index() + 1, None);
        }
        self.0[block.index()] = Some(Arc::clone(records));
    }
}

impl Shapes for Known {
    fn records(&self, block: BlockId) -> &[Record] {
        self.0.get(block.index()).and_then(Option::as_deref).unwrap_or_default()
    }
}

impl<S: Sink<Error = Infallible> + Send + 'static> Parallel<S> {
    /// Spreads models over at most `threads` threads.
    #[must_use]
    pub fn new(models: Vec<S>, threads: NonZeroUsize) -> Self {
        let count = models.len();
        let workers = threads.get().min(count.max(1));
        let mut shares: Vec<Vec<S>> = (0..workers).map(|_| Vec::new()).collect();
        for (at, model) in models.into_iter().enumerate() {
            shares[at % workers].push(model);
        }
        let mut parallel = Self {
            queues: Vec::new(),
            workers: Vec::new(),
            models: count,
            by_blocks: shares.iter().flatten().all(Sink::takes_blocks),
            known: Vec::new(),
        };
        for share in shares {
            let (queue, messages) = sync_channel(QUEUE);
            parallel.queues.push(queue);
            parallel.workers.push(thread::spawn(move || work(share, &messages)));
        }
        parallel
    }

    /// Waits for the workers and gives the models back in their order. A worker
    /// that panicked passes its panic on.
    #[must_use]
    pub fn into_models(self) -> Vec<S> {
        drop(self.queues);
        let mut shares: Vec<std::vec::IntoIter<S>> = Vec::new();
        for worker in self.workers {
            match worker.join() {
                Ok(share) => shares.push(share.into_iter()),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let workers = shares.len().max(1);
        (0..self.models).filter_map(|at| shares.get_mut(at % workers)?.next()).collect()
    }

    /// Tells the workers what a block is.
    #[cold]
    fn introduce(&mut self, block: BlockId, shapes: &dyn Shapes) {
        if self.known.len() <= block.index() {
            self.known.resize(block.index() + 1, false);
        }
        self.known[block.index()] = true;
        self.tell(&Message::Shape { block, records: Arc::from(shapes.records(block)) });
    }

    /// Queues a message everywhere; whether anybody still listens.
    fn tell(&self, message: &Message) -> bool {
        let mut heard = false;
        for queue in &self.queues {
            heard |= queue.send(message.clone()).is_ok();
        }
        heard
    }
}

/// A worker's life: each message to each of its models that wants more.
fn work<S: Sink<Error = Infallible>>(share: Vec<S>, messages: &Receiver<Message>) -> Vec<S> {
    let mut share: Vec<(S, bool)> = share.into_iter().map(|model| (model, true)).collect();
    let mut known = Known::default();
    for message in messages {
        match &message {
            Message::Begin => known = Known::default(),
            Message::Shape { block, records } => known.add(*block, records),
            _ => {}
        }
        for (model, open) in share.iter_mut().filter(|(_, open)| *open) {
            let Ok(more) = match &message {
                Message::Begin => model.begin(&About::default()),
                Message::Shape { .. } => Ok(true),
                Message::Blocks { thread, insns_before, blocks, words } => {
                    let (thread, insns_before) = (*thread, *insns_before);
                    model.blocks(&Blocks { thread, insns_before, blocks, words, shapes: &known })
                }
                Message::Records { thread, insns_before, records } => {
                    model.records(&Batch::new(*thread, *insns_before, records))
                }
                Message::Start { thread, start } => {
                    model.event(*thread, &Event::ThreadStart(*start))
                }
                Message::Migrate { thread, cpu } => {
                    model.event(*thread, &Event::Migrate { cpu: *cpu })
                }
                &Message::Gap { thread, reason } => {
                    model.event(thread, &Event::Gap { reason, insns: None, skipped: None })
                }
                Message::End { thread, status } => model.event(*thread, &Event::ThreadEnd(*status)),
            };
            *open = more;
        }
    }
    share
        .into_iter()
        .map(|(mut model, _)| {
            let Ok(()) = model.finish();
            model
        })
        .collect()
}

impl<S: Sink<Error = Infallible> + Send + 'static> Sink for Parallel<S> {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let records: Arc<[Record]> = Arc::from(batch.records);
        let Batch { thread, insns_before, .. } = *batch;
        Ok(self.tell(&Message::Records { thread, insns_before, records }))
    }

    fn takes_blocks(&self) -> bool {
        self.by_blocks
    }

    fn blocks(&mut self, told: &Blocks<'_>) -> Result<bool, Infallible> {
        for &block in told.blocks {
            if !self.known.get(block.index()).copied().unwrap_or(false) {
                self.introduce(block, told.shapes);
            }
        }
        let Blocks { thread, insns_before, .. } = *told;
        let (blocks, words) = (Arc::from(told.blocks), Arc::from(told.words));
        Ok(self.tell(&Message::Blocks { thread, insns_before, blocks, words }))
    }

    fn begin(&mut self, _: &About<'_>) -> Result<bool, Infallible> {
        self.known.clear();
        Ok(self.tell(&Message::Begin))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        Ok(match *event {
            Event::ThreadStart(start) => self.tell(&Message::Start { thread, start }),
            Event::Migrate { cpu } => self.tell(&Message::Migrate { thread, cpu }),
            Event::Gap { reason, .. } => self.tell(&Message::Gap { thread, reason }),
            Event::ThreadEnd(status) => self.tell(&Message::End { thread, status }),
            _ => true,
        })
    }
}
