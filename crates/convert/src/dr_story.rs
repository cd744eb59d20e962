//! What drmemtrace's entries mean, one after the other.
//!
//! A branch's outcome is told after its accesses, as everywhere in ichnos, and
//! its target where the entries give it: in a marker (indirect), in the code
//! (direct), or else by the next instruction of the thread. So each thread may
//! have a branch, a signal and a system call pending; `dr_marker.rs` tells
//! them when what follows shows their end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    AccessFlags, Code, EndStatus, GuestVa, InsnKind, Isa, ProcessId, Record, SignalInfo, Sink,
    ThreadId, ThreadStart,
};
use ichnos_isa_x86::{Inst, Rep, Shape};

use crate::code_map::AddrMap;
use crate::dr_entry::*;
use crate::dr_read::bad;
use crate::feed::{Feed, Halt, about};
use crate::{Error, Format};

/// Static instructions that are remembered before all are forgotten.
const REMEMBERED: usize = 1 << 22;
/// Threads and processes that are believed.
const THREADS_MAX: usize = 1 << 20;

/// Where the story stands.
#[derive(Default)]
pub(crate) struct Story {
    begun: bool,
    in_header: bool,
    filetype: u64,
    tids: AddrMap<u64, ThreadId>,
    pids: AddrMap<u64, ProcessId>,
    threads: Vec<Thread>,
    /// A thread entry whose process entry may follow.
    coming: Option<u64>,
    statics: AddrMap<(u32, u64), Static>,
    encoding: Encoding,
    /// The target that a marker gave for the next instruction.
    pub(crate) target: Option<u64>,
    /// Timestamp and processor repeated at the start of a chunk are not told.
    pub(crate) repeated: bool,
}

/// The bytes of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Encoding {
    bytes: [u8; 16],
    len: u8,
}

/// What is known of a static instruction.
#[derive(Clone, Copy)]
struct Static {
    encoding: Encoding,
    target: Option<GuestVa>,
    syscall: bool,
    repeats: bool,
}

/// What is known of a thread.
#[derive(Default)]
pub(crate) struct Thread {
    pub(crate) process: ProcessId,
    pub(crate) branch: Option<Branch>,
    pub(crate) signal: Option<SignalInfo>,
    pub(crate) returns: bool,
    pub(crate) syscall: Option<(u64, [u64; 6], usize)>,
    pub(crate) function: u64,
    pub(crate) cpu: Option<u64>,
    pub(crate) window: Option<u64>,
    /// Where the last instruction lies and where it ends.
    pub(crate) pc: u64,
    pub(crate) next: u64,
    /// What accesses are flagged with.
    pub(crate) flags: AccessFlags,
    /// A flush whose end comes in an entry of its own.
    pub(crate) flush: Option<u64>,
}

/// A branch whose outcome is still to be told.
pub(crate) struct Branch {
    pub(crate) taken: Option<bool>,
    pub(crate) target: Option<GuestVa>,
    pub(crate) next: u64,
}

/// What a part of the story answers.
pub(crate) type Told<S> = Result<(), Halt<<S as Sink>::Error>>;

impl Story {
    /// A file begins: its first entry must be a header.
    pub(crate) fn begin_file(&mut self) {
        self.in_header = true;
        self.repeated = false;
        self.target = None;
        self.encoding = Encoding::default();
    }

    /// A file is over: nothing can show how its branches ended.
    pub(crate) fn end_file<S: Sink>(&mut self, feed: &mut Feed<'_, S>) -> Told<S> {
        let now = feed.thread();
        for index in 0..self.threads.len() {
            if self.threads.get(index).is_some_and(Thread::has_pending) {
                feed.switch(ThreadId(index as u32))?;
                self.settle(None, feed)?;
            }
        }
        feed.switch(now)
    }

    /// Takes the next entry, which lies at `offset`.
    pub(crate) fn entry<S: Sink>(
        &mut self,
        entry: Entry,
        offset: u64,
        feed: &mut Feed<'_, S>,
    ) -> Told<S> {
        if self.in_header {
            return self.header(entry, offset);
        }
        match entry.kind {
            // Files may be made of several traces.
            HEADER | FOOTER => return Ok(()),
            THREAD => {
                self.arrive(None, feed)?;
                self.coming = Some(entry.addr);
                return Ok(());
            }
            PID => return self.arrive(Some(entry.addr), feed),
            MARKER if matches!(entry.size, marker::VERSION | marker::FILETYPE) => {
                return self.about_file(entry, offset);
            }
            _ => {}
        }
        self.arrive(None, feed)?;
        if self.threads.is_empty() {
            let what = format!("an entry of type {} before any thread entry", entry.kind);
            return Err(Halt::Source(bad(offset, what)));
        }
        if feed.ended() {
            if entry.kind == MARKER {
                return Ok(());
            }
            let what = format!("an entry of type {} after the thread's exit", entry.kind);
            return Err(Halt::Source(bad(offset, what)));
        }
        self.body(entry, offset, feed)
    }

    fn header<E>(&mut self, entry: Entry, offset: u64) -> Result<(), Halt<E>> {
        if entry.kind != HEADER {
            let what =
                format!("expected a header entry (type {HEADER}), found type {}", entry.kind);
            return Err(Halt::Source(bad(offset, what)));
        }
        if !(OLDEST..=VERSION).contains(&entry.addr) {
            let version = entry.addr;
            let what = format!("version {version}; versions {OLDEST} to {VERSION} are handled");
            return Err(Halt::Source(bad(offset, what)));
        }
        self.in_header = false;
        Ok(())
    }

    fn about_file<E>(&mut self, entry: Entry, offset: u64) -> Result<(), Halt<E>> {
        if entry.size == marker::FILETYPE {
            if self.begun && entry.addr != self.filetype {
                let (old, new) = (self.filetype, entry.addr);
                let what = format!("file type {new:#x} in a trace of file type {old:#x}");
                return Err(Halt::Source(bad(offset, what)));
            }
            if entry.addr & filetype::CORE_SHARDED != 0 {
                return Err(Halt::Source(Error::Unsupported {
                    format: Format::DrMemtrace,
                    what: "a trace by core scatters threads over files; the trace by thread that \
                           it was made of can be read"
                        .into(),
                }));
            }
            self.filetype = entry.addr;
        }
        Ok(())
    }

    /// Begins the trace and the thread that a thread entry announced, or goes
    /// back to it, once its process is known or known not to come.
    fn arrive<S: Sink>(&mut self, pid: Option<u64>, feed: &mut Feed<'_, S>) -> Told<S> {
        let Some(tid) = self.coming.take() else { return Ok(()) };
        if !self.begun {
            self.begun = true;
            let mut said = about("drmemtrace entries", self.isa());
            said.branches = self.filetype & filetype::IFILTERED == 0;
            feed.begin(&said)?;
        }
        if let Some(&thread) = self.tids.get(&tid) {
            return feed.switch(thread);
        }
        let pid = pid.unwrap_or(0);
        if self.threads.len() >= THREADS_MAX {
            return Err(Halt::Source(bad(0, format!("more than {THREADS_MAX} threads"))));
        }
        let fresh = ProcessId(self.pids.len() as u32);
        let process = *self.pids.entry(pid).or_insert(fresh);
        let thread = feed.start(ThreadStart {
            process,
            creator: None,
            os_pid: u32::try_from(pid).unwrap_or(0),
            os_tid: u32::try_from(tid).unwrap_or(0),
        })?;
        self.tids.insert(tid, thread);
        self.threads.push(Thread { process, ..Thread::default() });
        Ok(())
    }

    const fn isa(&self) -> Isa {
        if self.filetype & filetype::X86_64 != 0 && self.filetype & filetype::REGDEPS == 0 {
            Isa::X86_64
        } else {
            Isa::UNKNOWN
        }
    }

    fn body<S: Sink>(&mut self, entry: Entry, offset: u64, feed: &mut Feed<'_, S>) -> Told<S> {
        if let Some((kind, taken)) = kind_of(entry.kind) {
            return self.insn(entry, kind, taken, feed);
        }
        match entry.kind {
            READ | WRITE => self.access(entry, feed),
            PREFETCH..=PREFETCH_INSTR
            | HARDWARE_PREFETCH
            | PREFETCH_READ_L1_NT..=PREFETCH_WRITE_L3_NT => feed.record(Record::Prefetch {
                flags: prefetch_flags(entry.kind),
                size: u32::from(entry.size),
                addr: GuestVa(entry.addr),
            }),
            INSTR_FLUSH | INSTR_FLUSH_END | DATA_FLUSH | DATA_FLUSH_END => self.flush(entry, feed),
            ENCODING => self.encode(entry, offset),
            NO_FETCH => self.turn(feed),
            MAYBE_FETCH => match self.now(feed).is_some_and(|t| t.pc == entry.addr) {
                true => self.turn(feed),
                false => self.insn(entry, InsnKind::OTHER, None, feed),
            },
            BUNDLE => self.bundle(entry, offset, feed),
            THREAD_EXIT => {
                self.settle(None, feed)?;
                feed.end(EndStatus::Unknown)
            }
            MARKER => self.marker(entry, feed),
            other => Err(Halt::Source(bad(offset, format!("the unknown entry type {other}")))),
        }
    }

    /// The present thread.
    pub(crate) fn now<S: Sink>(&mut self, feed: &Feed<'_, S>) -> Option<&mut Thread> {
        self.threads.get_mut(feed.thread().index())
    }

    fn encode<E>(&mut self, entry: Entry, offset: u64) -> Result<(), Halt<E>> {
        let Encoding { bytes, len } = &mut self.encoding;
        let (at, more) = (usize::from(*len), usize::from(entry.size));
        match bytes.get_mut(at..at + more).filter(|_| more <= 8) {
            Some(room) => {
                let found = entry.addr.to_le_bytes();
                room.copy_from_slice(found.get(..more).unwrap_or_default());
                *len += more as u8;
                Ok(())
            }
            None => {
                let what = format!("an encoding of {} bytes; 16 are the most", at + more);
                Err(Halt::Source(bad(offset, what)))
            }
        }
    }

    fn insn<S: Sink>(
        &mut self,
        entry: Entry,
        kind: InsnKind,
        taken: Option<bool>,
        feed: &mut Feed<'_, S>,
    ) -> Told<S> {
        let encoding = std::mem::take(&mut self.encoding);
        let target = self.target.take();
        // Without a size it only says whose the following data are.
        let Ok(len @ 1..) = u8::try_from(entry.size) else { return Ok(()) };
        let pc = GuestVa(entry.addr);
        self.settle(Some(pc), feed)?;
        let known = self.learn(pc, len, encoding, feed)?;
        let filtered = self.filetype & filetype::IFILTERED != 0;
        let kind = match known {
            _ if filtered && kind.transfers() => InsnKind::OTHER,
            Some(known) if known.syscall => InsnKind::SYSCALL,
            _ => kind,
        };
        let next = pc.offset(u64::from(len)).0;
        if let Some(thread) = self.now(feed) {
            thread.pc = pc.0;
            thread.next = next;
            let repeats = known.is_some_and(|k| k.repeats);
            thread.flags = if repeats { AccessFlags::STRING } else { AccessFlags::NONE };
            thread.branch = kind.transfers().then(|| Branch {
                taken,
                target: target.map(GuestVa).or(known.and_then(|k| k.target)),
                next,
            });
        }
        feed.record(Record::insn(pc, len, kind))
    }

    /// What is known of an instruction, from its encoding now or before. Tells
    /// code that is new.
    fn learn<S: Sink>(
        &mut self,
        pc: GuestVa,
        len: u8,
        encoding: Encoding,
        feed: &mut Feed<'_, S>,
    ) -> Result<Option<Static>, Halt<S::Error>> {
        let process = self.now(feed).map(|t| t.process).unwrap_or_default();
        let key = (process.0, pc.0);
        let known = self.statics.get(&key).copied();
        if encoding.len != len || self.isa() != Isa::X86_64 {
            return Ok(known);
        }
        if let Some(known) = known.filter(|k| k.encoding == encoding) {
            return Ok(Some(known));
        }
        let bytes = encoding.bytes.get(..usize::from(len)).unwrap_or_default();
        feed.code(&Code { process, pc, bytes })?;
        let inst = Inst::decode(bytes, pc).ok();
        let repeats = inst.as_ref().is_some_and(|i| {
            i.memory().iter().any(|m| matches!(m.shape, Shape::String(rep) if rep != Rep::Once))
        });
        let fresh = Static {
            encoding,
            target: inst.as_ref().and_then(Inst::target),
            syscall: inst.is_some_and(|i| i.kind() == InsnKind::SYSCALL),
            repeats,
        };
        if self.statics.len() >= REMEMBERED {
            self.statics.clear();
        }
        self.statics.insert(key, fresh);
        Ok(Some(fresh))
    }

    fn access<S: Sink>(&mut self, entry: Entry, feed: &mut Feed<'_, S>) -> Told<S> {
        let flags = self.now(feed).map(|t| t.flags).unwrap_or_default();
        let (size, addr) = (u32::from(entry.size), GuestVa(entry.addr));
        feed.record(match entry.kind {
            WRITE => Record::Store { flags, size, addr },
            _ => Record::Load { flags, size, addr },
        })
    }

    /// Another turn of a repeated string instruction.
    fn turn<S: Sink>(&mut self, feed: &mut Feed<'_, S>) -> Told<S> {
        self.encoding = Encoding::default();
        if let Some(thread) = self.now(feed) {
            thread.flags = AccessFlags::STRING;
        }
        Ok(())
    }

    fn flush<S: Sink>(&mut self, entry: Entry, feed: &mut Feed<'_, S>) -> Told<S> {
        let ends = matches!(entry.kind, INSTR_FLUSH_END | DATA_FLUSH_END);
        let Some(thread) = self.now(feed) else { return Ok(()) };
        let (addr, size) = match (ends, thread.flush.take()) {
            (true, Some(start)) => {
                (start, u32::try_from(entry.addr.wrapping_sub(start)).unwrap_or(u32::MAX))
            }
            (true, None) => return Ok(()),
            (false, _) if entry.size == 0 => {
                thread.flush = Some(entry.addr);
                return Ok(());
            }
            (false, _) => (entry.addr, u32::from(entry.size)),
        };
        feed.record(Record::Flush { flags: AccessFlags::NONE, size, addr: GuestVa(addr) })
    }

    /// Several plain instructions that follow the last one directly.
    fn bundle<S: Sink>(&mut self, entry: Entry, offset: u64, feed: &mut Feed<'_, S>) -> Told<S> {
        let lengths = entry.addr.to_le_bytes();
        let Some(lengths) = lengths.get(..usize::from(entry.size)) else {
            let what = format!("a bundle of {} instructions; 8 are the most", entry.size);
            return Err(Halt::Source(bad(offset, what)));
        };
        for &len in lengths {
            let pc = self.now(feed).map_or(0, |t| t.next);
            self.insn(Entry::new(INSTR, u16::from(len), pc), InsnKind::OTHER, None, feed)?;
        }
        Ok(())
    }
}

impl Thread {
    const fn has_pending(&self) -> bool {
        self.branch.is_some() || self.signal.is_some() || self.syscall.is_some()
    }
}

impl Branch {
    pub(crate) fn record(&self, follower: Option<GuestVa>) -> Record {
        let taken = match (self.taken, follower) {
            (Some(taken), _) => taken,
            (None, Some(pc)) => pc.0 != self.next,
            (None, None) => false,
        };
        let target = self.target.or(follower.filter(|_| taken)).unwrap_or_default();
        Record::branch(taken, target)
    }
}

const fn prefetch_flags(kind: u16) -> AccessFlags {
    match kind {
        PREFETCH_NTA | PREFETCH_READ_L1_NT..=PREFETCH_READ_L3_NT => AccessFlags::NON_TEMPORAL,
        PREFETCH_WRITE => AccessFlags::FOR_WRITE,
        PREFETCH_WRITE_L1..=PREFETCH_WRITE_L3_NT if kind & 1 == 0 => {
            AccessFlags::FOR_WRITE.with(AccessFlags::NON_TEMPORAL)
        }
        PREFETCH_WRITE_L1..=PREFETCH_WRITE_L3_NT => AccessFlags::FOR_WRITE,
        _ => AccessFlags::NONE,
    }
}
