//! Many models of any kind side by side, spread over threads: what a sweep does
//! where no one-pass method applies.
//!
//! Batches are copied once, shared by all workers, and queued; a queue that is
//! full makes the source wait, so memory is bounded by the queue. Of events,
//! those that models here listen to are passed on: a thread's start, end and
//! migration.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use ichnos_base::{Batch, EndStatus, Event, Record, Sink, ThreadId, ThreadStart};

/// Messages that may wait in a worker's queue.
const QUEUE: usize = 16;

/// What is told to the workers.
#[derive(Clone, Debug)]
enum Message {
    Records { thread: ThreadId, insns_before: u64, records: Arc<[Record]> },
    Start { thread: ThreadId, start: ThreadStart },
    Migrate { thread: ThreadId, cpu: u32 },
    End { thread: ThreadId, status: EndStatus },
}

/// Feeds many models at once.
#[derive(Debug)]
pub struct Parallel<S> {
    queues: Vec<SyncSender<Message>>,
    workers: Vec<JoinHandle<Vec<S>>>,
    models: usize,
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
        let mut parallel = Self { queues: Vec::new(), workers: Vec::new(), models: count };
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
    for message in messages {
        for (model, open) in share.iter_mut().filter(|(_, open)| *open) {
            let Ok(more) = match &message {
                Message::Records { thread, insns_before, records } => {
                    model.records(&Batch::new(*thread, *insns_before, records))
                }
                Message::Start { thread, start } => {
                    model.event(*thread, &Event::ThreadStart(*start))
                }
                Message::Migrate { thread, cpu } => {
                    model.event(*thread, &Event::Migrate { cpu: *cpu })
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

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        Ok(match *event {
            Event::ThreadStart(start) => self.tell(&Message::Start { thread, start }),
            Event::Migrate { cpu } => self.tell(&Message::Migrate { thread, cpu }),
            Event::ThreadEnd(status) => self.tell(&Message::End { thread, status }),
            _ => true,
        })
    }
}
