//! Writes ChampSim's records, one file a thread.
//!
//! A record is complete when the next instruction, an event or the end comes.
//! Registers come from the machine code, decoded once per static instruction;
//! without code only control transfers name registers, those that ChampSim needs
//! to see what they are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::path::{Path, PathBuf};

use ichnos_base::{About, Batch, Code, Event, GuestVa, InsnKind, Isa, Record, Sink, ThreadId};
use ichnos_isa_x86::Inst;

use crate::champsim_record::{ChampSimRecord, Layout};
use crate::champsim_regs::Registers;
use crate::code_map::{AddrMap, CodeMap, Processes};
use crate::output::{Output, thread_path};
use crate::{Error, Excess, Format, Result, WriteOptions};

/// Records collected before they are handed on.
const BLOCK: usize = 1 << 16;
/// Static instructions whose registers are remembered before all are forgotten.
const REMEMBERED: usize = 1 << 20;

/// A sink that writes ChampSim's records.
pub struct ChampSimSink {
    layout: Layout,
    path: PathBuf,
    options: WriteOptions,
    isa: Isa,
    code: CodeMap,
    processes: Processes,
    /// By process, address and kind: without code, one place may execute
    /// different instructions unannounced.
    registers: AddrMap<(u32, u64, u8), Registers>,
    threads: AddrMap<u32, Thread>,
}

struct Thread {
    output: Output,
    bytes: Vec<u8>,
    /// The instruction being collected, and how many loads and stores it has.
    pending: Option<(ChampSimRecord, usize, usize)>,
}

impl ChampSimSink {
    /// Writes the first thread that executes anything to `path`, and others
    /// beside it, compressed as the path's ending says. The file is made at once,
    /// so that a bad path is found before the work.
    pub fn create(path: &Path, layout: Layout, options: &WriteOptions) -> Result<Self> {
        drop(Output::create(path)?);
        Ok(Self {
            layout,
            path: path.to_owned(),
            options: options.clone(),
            isa: Isa::UNKNOWN,
            code: CodeMap::default(),
            processes: Processes::default(),
            registers: AddrMap::default(),
            threads: AddrMap::default(),
        })
    }

    const fn format(&self) -> Format {
        match self.layout {
            Layout::Standard => Format::ChampSim,
            Layout::CloudSuite => Format::CloudSuite,
        }
    }

    fn open(&mut self, thread: ThreadId) -> Result<()> {
        if !self.threads.contains_key(&thread.0) {
            let first = self.threads.is_empty() || self.options.thread.is_some();
            let path = thread_path(&self.path, (!first).then_some(thread));
            let output = Output::create(&path)?;
            let bytes = Vec::with_capacity(BLOCK + self.layout.size());
            self.threads.insert(thread.0, Thread { output, bytes, pending: None });
        }
        Ok(())
    }

    fn registers(&mut self, thread: ThreadId, pc: GuestVa, len: u8, kind: InsnKind) -> Registers {
        let process = self.processes.of(thread);
        let key = (process.0, pc.0, kind.0);
        if let Some(known) = self.registers.get(&key) {
            return *known;
        }
        let code = if self.isa == Isa::X86_64 { self.code.get(process, pc, len) } else { None };
        let inst = code.and_then(|bytes| Inst::decode(bytes.as_slice(), pc).ok());
        let registers = match inst {
            Some(inst) => Registers::of(&inst, kind),
            None => Registers::of_kind(kind),
        };
        if self.registers.len() >= REMEMBERED {
            self.registers.clear();
        }
        self.registers.insert(key, registers);
        registers
    }

    fn record(&mut self, thread: ThreadId, record: &Record) -> Result<()> {
        match *record {
            Record::Insn { len, kind, pc } => {
                let regs = self.registers(thread, pc, len, kind);
                let fresh = ChampSimRecord {
                    ip: pc.0,
                    is_branch: kind.transfers(),
                    // Unless told otherwise: address-only traces tell nothing.
                    taken: kind.transfers() && kind != InsnKind::BRANCH,
                    dest_regs: regs.dest,
                    src_regs: regs.src,
                    ..ChampSimRecord::default()
                };
                self.complete(thread)?;
                if let Some(t) = self.threads.get_mut(&thread.0) {
                    t.pending = Some((fresh, 0, 0));
                }
                Ok(())
            }
            Record::Load { addr, .. } => self.access(thread, addr, Role::Load),
            Record::Store { addr, .. } => self.access(thread, addr, Role::Store),
            Record::Branch { taken, .. } => {
                let pending = self.threads.get_mut(&thread.0).and_then(|t| t.pending.as_mut());
                if let Some((record, ..)) = pending {
                    record.taken = taken;
                }
                Ok(())
            }
            Record::Prefetch { .. } | Record::Flush { .. } => Ok(()),
        }
    }

    /// Adds an address. Those of address 0 have no place: 0 is an empty slot.
    fn access(&mut self, thread: ThreadId, addr: GuestVa, role: Role) -> Result<()> {
        let (layout, excess) = (self.layout, self.options.excess);
        for _ in 0..2 {
            let Some(t) = self.threads.get_mut(&thread.0) else { return Ok(()) };
            let Some((record, loads, stores)) = t.pending.as_mut() else { return Ok(()) };
            let slots = match role {
                Role::Load => (record.src_mem.get_mut(*loads), loads),
                Role::Store if *stores < layout.destinations() => {
                    (record.dest_mem.get_mut(*stores), stores)
                }
                Role::Store => (None, stores),
            };
            match slots {
                (Some(slot), used) => {
                    *slot = addr.0;
                    *used += usize::from(addr.0 != 0);
                    return Ok(());
                }
                (None, _) if excess == Excess::Drop => return Ok(()),
                (None, _) => {
                    let mut more = *record;
                    more.src_mem = [0; 4];
                    more.dest_mem = [0; 4];
                    self.complete(thread)?;
                    if let Some(t) = self.threads.get_mut(&thread.0) {
                        t.pending = Some((more, 0, 0));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the instruction being collected.
    fn complete(&mut self, thread: ThreadId) -> Result<()> {
        let format = self.format();
        let Some(t) = self.threads.get_mut(&thread.0) else { return Ok(()) };
        if let Some((record, ..)) = t.pending.take() {
            record.encode(self.layout, &mut t.bytes);
            if t.bytes.len() >= BLOCK {
                t.write().map_err(|source| Error::Write { format, source })?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Load,
    Store,
}

impl Thread {
    fn write(&mut self) -> std::io::Result<()> {
        self.output.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

impl Sink for ChampSimSink {
    type Error = Error;

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        self.isa = about.isa;
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        self.processes.note(thread, event);
        Ok(true)
    }

    fn code(&mut self, _thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        if self.code.add(code) {
            self.registers.clear();
        }
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        if self.options.thread.is_some_and(|wanted| wanted != batch.thread) {
            return Ok(true);
        }
        self.open(batch.thread)?;
        for record in batch.records {
            self.record(batch.thread, record)?;
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        let format = self.format();
        let ids: Vec<u32> = self.threads.keys().copied().collect();
        for id in ids {
            self.complete(ThreadId(id))?;
        }
        for (_, mut thread) in self.threads.drain() {
            let done = thread.write().and_then(|()| thread.output.finish());
            done.map_err(|source| Error::Write { format, source })?;
        }
        Ok(())
    }
}
