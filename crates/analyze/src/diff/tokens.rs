//! A trace as sequences of numbers to be compared: which instructions, or which
//! calls, each thread executed.
//!
//! Memory: 4 bytes per token, bounded by the limit given; then the sink has
//! seen enough and says that the sequences are cut.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::BuildHasher;

use ichnos_base::{
    Batch, Event, GuestVa, InsnKind, Map, MapKind, ProcessId, Record, Sink, ThreadId,
};

use crate::hash::{FastMap, mix};

const RECENT: usize = 4096;

/// What of a trace is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum View {
    /// Every instruction, by its address.
    #[default]
    Insns,
    /// Every call instruction and return, by its address: the call trace of Ji
    /// et al.
    CallsAndReturns,
    /// Every call, by the function called.
    CallTargets,
}

/// What makes two addresses the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keys {
    /// The address itself.
    #[default]
    Addresses,
    /// The place in the image, wherever that is mapped: for runs with address
    /// randomisation. Code outside images goes by its address.
    Images,
}

/// Numbers for addresses, shared by the two traces of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    numbers: FastMap<(u64, u64), u32>,
    meanings: Vec<GuestVa>,
    seed: std::hash::RandomState,
}

impl Dictionary {
    /// The address that a token stood for when it first appeared.
    #[must_use]
    pub fn meaning(&self, token: u32) -> Option<GuestVa> {
        self.meanings.get(token as usize).copied()
    }

    fn number(&mut self, image: u64, offset: u64, pc: GuestVa) -> u32 {
        let next = self.meanings.len() as u32;
        let number = *self.numbers.entry((image, offset)).or_insert(next);
        if number == next {
            self.meanings.push(pc);
        }
        number
    }
}

/// The sequences of a trace.
#[derive(Clone, Debug, Default)]
pub struct Sequences {
    /// One per thread.
    pub threads: BTreeMap<ThreadId, Vec<u32>>,
    /// Whether the limit was reached and something is missing at the end.
    pub cut: bool,
}

/// Makes sequences of a trace.
#[derive(Debug)]
pub struct Tokens {
    view: View,
    keys: Keys,
    room: usize,
    dictionary: Dictionary,
    sequences: Sequences,
    homes: FastMap<ThreadId, ProcessId>,
    kinds: FastMap<ThreadId, (InsnKind, GuestVa)>,
    images: FastMap<ProcessId, BTreeMap<u64, Image>>,
    recent: Box<[(u64, u32, u32); RECENT]>,
}

#[derive(Clone, Copy, Debug)]
struct Image {
    last: u64,
    bias: u64,
    name: u64,
}

impl Tokens {
    /// Makes sequences of at most `limit` tokens altogether. The second trace of
    /// a comparison needs the dictionary of the first.
    #[must_use]
    pub fn new(view: View, keys: Keys, limit: usize, dictionary: Dictionary) -> Self {
        Self {
            view,
            keys,
            room: limit,
            dictionary,
            sequences: Sequences::default(),
            homes: FastMap::default(),
            kinds: FastMap::default(),
            images: FastMap::default(),
            recent: Box::new([(0, 0, u32::MAX); RECENT]),
        }
    }

    /// The sequences and the dictionary.
    #[must_use]
    pub fn into_parts(self) -> (Sequences, Dictionary) {
        (self.sequences, self.dictionary)
    }

    fn token(&mut self, process: ProcessId, pc: GuestVa) -> u32 {
        let slot = (pc.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % RECENT;
        let (addr, owner, token) = self.recent[slot];
        if addr == pc.0 && owner == process.0 && token != u32::MAX {
            return token;
        }
        let images = self.images.get(&process);
        let below = images.and_then(|images| images.range(..=pc.0).next_back());
        let image = below.map(|(_, image)| *image).filter(|image| image.last >= pc.0);
        let token = match image.filter(|_| self.keys == Keys::Images) {
            Some(image) => self.dictionary.number(image.name, pc.0.wrapping_sub(image.bias), pc),
            None => self.dictionary.number(0, pc.0, pc),
        };
        self.recent[slot] = (pc.0, process.0, token);
        token
    }

    fn map(&mut self, process: ProcessId, map: &Map<'_>) {
        if map.kind != MapKind::IMAGE && map.kind != MapKind::VDSO {
            return;
        }
        // 0 stands for no image.
        let name = mix(self.dictionary.seed.hash_one(map.path), 1) | 1;
        let last = map.start.0.saturating_add(map.len.saturating_sub(1));
        let image = Image { last, bias: map.bias, name };
        self.images.entry(process).or_default().insert(map.start.0, image);
        self.recent.fill((0, 0, u32::MAX));
    }

    fn home(&self, thread: ThreadId) -> ProcessId {
        self.homes.get(&thread).copied().unwrap_or_default()
    }
}

impl Sink for Tokens {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let process = self.home(batch.thread);
        let mut now = self.kinds.get(&batch.thread).copied().unwrap_or_default();
        let mut tokens = self.sequences.threads.remove(&batch.thread).unwrap_or_default();
        for record in batch.records {
            let calls = matches!(now.0, InsnKind::CALL | InsnKind::CALL_INDIRECT);
            let chosen = match (*record, self.view) {
                (Record::Insn { pc, kind, .. }, view) => {
                    now = (kind, pc);
                    (view == View::Insns).then_some(pc)
                }
                (Record::Branch { taken: true, target }, View::CallTargets) if calls => {
                    Some(target)
                }
                (Record::Branch { .. }, View::CallsAndReturns)
                    if calls || now.0 == InsnKind::RETURN =>
                {
                    Some(now.1)
                }
                _ => None,
            };
            if let Some(pc) = chosen {
                if self.room == 0 {
                    self.sequences.cut = true;
                    break;
                }
                self.room -= 1;
                tokens.push(self.token(process, pc));
            }
        }
        self.sequences.threads.insert(batch.thread, tokens);
        self.kinds.insert(batch.thread, now);
        Ok(!self.sequences.cut)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        let process = self.home(thread);
        match event {
            Event::ThreadStart(start) => {
                self.homes.insert(thread, start.process);
                self.sequences.threads.entry(thread).or_default();
                let parent = start.creator.map(|creator| self.home(creator));
                if let Some(images) = parent.and_then(|parent| self.images.get(&parent)) {
                    let images = images.clone();
                    self.images.entry(start.process).or_insert(images);
                }
            }
            Event::Map(map) => self.map(process, map),
            Event::Exec { .. } => {
                self.images.remove(&process);
                self.recent.fill((0, 0, u32::MAX));
            }
            _ => {}
        }
        Ok(true)
    }
}
