//! What a profile asks of models: the boundary between the simulator and
//! whatever caches, TLBs and predictors stand behind it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ichnos_base::{Event, GuestVa, InsnKind, ThreadId};

/// Times of last use, by slot: written by the simulator, read by a model.
pub type Stamps = Arc<[AtomicU64]>;

/// What is set in the word of a line that was written, see [`Models::marks`].
pub const WRITTEN: u64 = 2;

/// A first-level cache of data in sets of eight, LRU, written back, lines of 64 bytes,
/// in front of memory: the simulator brings lines into it by itself.
#[derive(Clone, Debug)]
pub struct Sets {
    /// The lines, by slot: eight times a line's number, and one, and [`WRITTEN`] if it
    /// was written; zero if there is none. The slots of a set follow each other.
    pub words: Stamps,
    /// Their times of use. A line that was used longest ago, or the first of several
    /// such ones, has to go for another; an empty slot's time is zero.
    pub stamps: Stamps,
    /// How many sets there are, less one: a mask of a line's number.
    pub mask: u64,
    /// What an address is combined with by exclusive or, before its upper bits are a
    /// line's number.
    pub space: u64,
}

/// A TLB of pages of 4 KiB for code and data together, replaced in turn: the simulator
/// brings pages into it by itself.
#[derive(Clone, Debug)]
pub struct Ring {
    /// First a word for each page, in the order of arrival: eight times its number, and
    /// the tag; zero if there is none. See [`NEXT`](Self::NEXT) and
    /// [`COUNTS`](Self::COUNTS) for the rest.
    pub words: Stamps,
    /// How many pages there may be, not more than 64.
    pub capacity: u64,
    /// What an address is combined with by exclusive or, before its upper bits are a
    /// page's number.
    pub space: u64,
    /// What a page's word has besides: nothing in the 55 bits of its number.
    pub tag: u64,
}

impl Ring {
    /// The word with the number of the word that is filled next. If that holds a page,
    /// the TLB is full, and the page has to go.
    pub const NEXT: usize = 64;
    /// The first word of those that count, for the lowest bits of pages' numbers, how
    /// many pages have them, a byte each.
    pub const COUNTS: usize = 66;
    /// How many bytes these are.
    pub const COUNTED: usize = 1 << 12;
    /// All words.
    pub const WORDS: usize = Self::COUNTS + Self::COUNTED / 8;
}

/// Why memory was referenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceKind {
    /// An instruction was fetched.
    Fetch,
    /// Data was read.
    Load,
    /// Data was written.
    Store,
}

/// A reference that the tables could not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Who made it.
    pub thread: ThreadId,
    /// The instruction.
    pub pc: GuestVa,
    /// What it references.
    pub addr: GuestVa,
    /// How many bytes of it.
    pub size: u32,
    /// How.
    pub kind: ReferenceKind,
    /// The time, four a retired instruction: never less than that of an earlier
    /// reference.
    pub now: u64,
}

/// A control transfer that retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The instruction.
    pub pc: GuestVa,
    /// Its length in bytes.
    pub len: u8,
    /// What sort it is.
    pub kind: InsnKind,
    /// Whether it was taken.
    pub taken: bool,
    /// Where it goes if taken.
    pub target: GuestVa,
}

/// What may pass without being told, from now on until the line or its page is
/// said to be [`Gone`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Nothing.
    Nothing,
    /// Loads of the line, or fetches; their time belongs into this slot.
    Loads(u32),
    /// Stores, too.
    All(u32),
}

/// What may no longer pass.
#[derive(Debug, Default)]
pub struct Gone {
    /// The line that had to go for the one referenced, of the same sort, if it is the
    /// only one that went.
    pub line: Option<GuestVa>,
    /// The page that had to go for the one referenced, if it is the only one that went.
    pub page: Option<GuestVa>,
    /// Lines of code, by an address in them.
    pub code: Vec<GuestVa>,
    /// Lines of data.
    pub data: Vec<GuestVa>,
    /// Pages, for both.
    pub pages: Vec<GuestVa>,
}

/// How much models must be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// What the tables let through; fetches of one line in succession once.
    Lines,
    /// Every reference.
    Everything,
}

/// What the tables must know of the models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes of a line of code: a power of two of 8 to 4096.
    pub code_line: u64,
    /// Bytes of a line of data: a power of two of 8 to 4096.
    pub data_line: u64,
    /// Bytes of a page of the TLB: a power of two, not less than a line.
    pub page: u64,
    /// How much to tell.
    pub detail: Detail,
    /// Whether every control transfer is told.
    pub transfers: bool,
}

impl Shape {
    /// Whether tables can be built for it.
    pub(super) fn is_possible(&self) -> bool {
        let line = |bytes: u64| bytes.is_power_of_two() && (8..=4096).contains(&bytes);
        line(self.code_line)
            && line(self.data_line)
            && self.page.is_power_of_two()
            && self.page >= self.code_line
            && self.page >= self.data_line
    }
}

/// Caches, TLBs and predictors, as the simulator sees them.
pub trait Models {
    /// What the tables must know. Asked once, before anything runs.
    fn shape(&mut self) -> Shape;

    /// Where a thread's times of use belong, for fetches or for data; none if
    /// nobody wants them. Asked when a thread first runs.
    fn stamps(&mut self, thread: ThreadId, kind: ReferenceKind) -> Option<Stamps>;

    /// A thread's turn begins: what may no longer pass since its last one.
    fn resume(&mut self, thread: ThreadId, gone: &mut Gone);

    /// Takes a reference for the TLBs. Says whether further ones to its page may
    /// pass, and what no longer may.
    fn translate(&mut self, reference: &Reference, gone: &mut Gone) -> bool;

    /// Takes a reference for the caches. Says what may pass henceforth, and what no
    /// longer may.
    fn reference(&mut self, reference: &Reference, gone: &mut Gone) -> Pass;

    /// Takes a reference to one line if that is absent from the caches and they know at
    /// once what becomes of it: where it is now, and the line of the same sort that had
    /// to go, if one had to. Fetches or loads may pass henceforth; stores, too, after a
    /// store. None, and nothing is taken, in every other case: then it comes as any
    /// reference.
    ///
    /// What is taken so counts as a reference that passed.
    fn miss(&mut self, reference: &Reference) -> Option<(u32, Option<GuestVa>)> {
        let _ = reference;
        None
    }

    /// Where the simulator marks a line of data as written, by slot, instead of telling
    /// a store to a line of which only loads pass so far: it sets [`WRITTEN`] in its
    /// word, and lets stores pass. None if such stores must be told. Asked when a
    /// thread first runs.
    fn marks(&mut self, thread: ThreadId) -> Option<Stamps> {
        let _ = thread;
        None
    }

    /// A thread's first-level cache of data, if the simulator may bring lines into it
    /// by itself. Asked when a thread first runs, and after events.
    fn sets(&mut self, thread: ThreadId) -> Option<Sets> {
        let _ = thread;
        None
    }

    /// An instruction missed so often in [`sets`](Self::sets), by loads or by stores.
    /// The accesses count as passed.
    fn missed(&mut self, thread: ThreadId, who: (ReferenceKind, GuestVa), count: u64) {
        let _ = (thread, who, count);
    }

    /// So many lines had to go from there, and so many of them were written.
    fn evicted(&mut self, thread: ThreadId, evictions: u64, write_backs: u64) {
        let _ = (thread, evictions, write_backs);
    }

    /// A thread's TLB, if the simulator may bring pages into it by itself. Asked when a
    /// thread first runs, and after events.
    fn ring(&mut self, thread: ThreadId) -> Option<Ring> {
        let _ = thread;
        None
    }

    /// An instruction missed so often in the [`ring`](Self::ring), by fetches, loads or
    /// stores.
    fn walked(&mut self, thread: ThreadId, who: (ReferenceKind, GuestVa), count: u64) {
        let _ = (thread, who, count);
    }

    /// Takes a control transfer, if the [`Shape`] asks for them.
    fn transfer(&mut self, thread: ThreadId, transfer: &Transfer);

    /// Takes an event: threads, processes, mappings.
    fn event(&mut self, thread: ThreadId, event: &Event<'_>);
}
