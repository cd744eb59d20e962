//! One thread's drmemtrace file while it is written: chunks, entries, and the
//! count of those that drmemtrace's readers show to their tools.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use ichnos_base::{AccessFlags, Event, GuestVa, InsnKind, Isa, ProcessId, Record};
use ichnos_isa_x86::{Inst, Role, Shape};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::code_map::{AddrMap, CodeMap};
use crate::dr_entry::*;
use crate::{Error, Format, Result};

/// Bytes collected before they are handed on.
const BLOCK: usize = 1 << 16;
/// The largest size that an entry can hold.
const SIZE_MAX: u32 = u16::MAX as u32;

/// What a file begins with.
pub(crate) struct Opening {
    pub(crate) process: ProcessId,
    pub(crate) tid: u64,
    pub(crate) pid: u64,
    pub(crate) encodings: bool,
    pub(crate) isa: Isa,
    pub(crate) ns: u64,
    pub(crate) cpu: u64,
    pub(crate) chunk_insns: u64,
}

/// A control transfer whose outcome is not known yet.
struct Transfer {
    pc: GuestVa,
    len: u8,
    kind: InsnKind,
    accesses: Vec<Entry>,
}

/// The file of one thread.
pub(crate) struct ThreadFile {
    zip: ZipWriter<BufWriter<File>>,
    bytes: Vec<u8>,
    process: ProcessId,
    tid: u64,
    encodings: bool,
    chunk_insns: u64,
    chunk: u64,
    insns: u64,
    /// Entries that drmemtrace's readers show to their tools.
    visible: u64,
    /// Instructions whose code this chunk has.
    shown: AddrMap<u64, ()>,
    clock: u64,
    cpu: u64,
    /// A timestamp has been written whose processor is still to come.
    owes_cpu: bool,
    window: u64,
    transfer: Option<Transfer>,
    /// The last instruction, and how many accesses a turn of it makes (0 if not
    /// known) and has made, for repeated string instructions.
    pc: GuestVa,
    len: u8,
    per_turn: Option<u32>,
    made: u32,
    last_loads: bool,
}

impl ThreadFile {
    pub(crate) fn create(path: &Path, opening: &Opening) -> Result<Self> {
        let file =
            File::create(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
        let mut new = Self {
            zip: ZipWriter::new(BufWriter::with_capacity(1 << 17, file)),
            bytes: Vec::with_capacity(BLOCK + ENTRY),
            process: opening.process,
            tid: opening.tid,
            encodings: opening.encodings,
            chunk_insns: opening.chunk_insns,
            chunk: 0,
            insns: 0,
            visible: 0,
            shown: AddrMap::default(),
            clock: (opening.ns / 1000).saturating_add(EPOCH_US),
            cpu: opening.cpu,
            owes_cpu: false,
            window: 0,
            transfer: None,
            pc: GuestVa(0),
            len: 0,
            per_turn: None,
            made: 0,
            last_loads: false,
        };
        new.start_member()?;
        new.head(opening)?;
        Ok(new)
    }

    fn head(&mut self, opening: &Opening) -> Result<()> {
        let arch = if opening.isa == Isa::X86_64 { filetype::X86_64 } else { 0 };
        let coded = filetype::ENCODINGS | filetype::SYSCALL_NUMBERS;
        let file_type = arch | if opening.encodings { coded } else { 0 };
        self.hidden(Entry::new(HEADER, 0, VERSION))?;
        self.show(Entry::marker(marker::VERSION, VERSION))?;
        self.show(Entry::marker(marker::FILETYPE, file_type))?;
        self.hidden(Entry::new(THREAD, 4, opening.tid))?;
        self.hidden(Entry::new(PID, 4, opening.pid))?;
        self.show(Entry::marker(marker::CACHE_LINE_SIZE, 64))?;
        self.show(Entry::marker(marker::CHUNK_INSTR_COUNT, opening.chunk_insns))?;
        self.show(Entry::marker(marker::PAGE_SIZE, 4096))?;
        self.show(Entry::marker(marker::TIMESTAMP, self.clock))?;
        self.show(Entry::marker(marker::CPU_ID, self.cpu))
    }

    /// The code of some instruction has changed: all is to be shown again.
    pub(crate) fn forget_code(&mut self) {
        self.shown.clear();
    }

    pub(crate) fn record(&mut self, record: &Record, code: &CodeMap) -> Result<()> {
        match *record {
            Record::Insn { pc, len, kind } => {
                self.settle(None, code)?;
                if kind.transfers() {
                    self.transfer = Some(Transfer { pc, len, kind, accesses: Vec::new() });
                    return Ok(());
                }
                self.insn(Entry::new(INSTR, u16::from(len), pc.0), None, code)
            }
            Record::Load { size, addr, flags } => {
                self.turn(READ, flags, code)?;
                self.data(READ, size, addr)
            }
            Record::Store { size, addr, flags } => {
                self.turn(WRITE, flags, code)?;
                self.data(WRITE, size, addr)
            }
            Record::Prefetch { size, addr, flags } => {
                let kind =
                    match (flags.has(AccessFlags::FOR_WRITE), flags.has(AccessFlags::NON_TEMPORAL))
                    {
                        (true, false) => PREFETCH_WRITE_L1,
                        (true, true) => PREFETCH_WRITE_L1_NT,
                        (false, true) => PREFETCH_NTA,
                        (false, false) => PREFETCH,
                    };
                self.data(kind, size.max(1), addr)
            }
            // Without a size the entry would be the first half of a long flush.
            Record::Flush { size: 0, addr, .. } => self.data(DATA_FLUSH, 64, addr),
            Record::Flush { size, addr, .. } => self.data(DATA_FLUSH, size, addr),
            Record::Branch { taken, target } => self.settle(Some((taken, target)), code),
        }
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) -> Result<()> {
        match *event {
            Event::Timestamp { ns } => {
                self.clock = (ns / 1000).saturating_add(EPOCH_US);
                self.show(Entry::marker(marker::TIMESTAMP, self.clock))?;
                self.owes_cpu = true;
                Ok(())
            }
            Event::Migrate { cpu } => {
                self.cpu = u64::from(cpu);
                self.owes_cpu = false;
                self.show(Entry::marker(marker::CPU_ID, self.cpu))
            }
            Event::Syscall { number, args } => {
                self.show(Entry::marker(marker::SYSCALL, number))?;
                // drmemtrace's own traces leave arguments out when not asked.
                if args == [0; 6] {
                    return Ok(());
                }
                self.show(Entry::marker(marker::FUNC_ID, SYSCALL_BASE.wrapping_add(number)))?;
                args.iter().try_for_each(|&arg| self.show(Entry::marker(marker::FUNC_ARG, arg)))
            }
            Event::SyscallReturn { number, result } => {
                self.show(Entry::marker(marker::FUNC_ID, SYSCALL_BASE.wrapping_add(number)))?;
                self.show(Entry::marker(marker::FUNC_RETVAL, result as u64))
            }
            Event::Signal(signal) => {
                self.show(Entry::marker(marker::KERNEL_EVENT, signal.interrupted.0))?;
                self.show(Entry::marker(marker::SIGNAL_NUMBER, signal.number as u64))
            }
            Event::SignalReturn { .. } => {
                let after = self.pc.offset(u64::from(self.len));
                self.show(Entry::marker(marker::KERNEL_XFER, after.0))
            }
            Event::Gap { .. } => {
                // The first gap is where the second window begins.
                if self.window == 0 {
                    self.show(Entry::marker(marker::WINDOW_ID, 0))?;
                }
                self.window += 1;
                self.show(Entry::marker(marker::WINDOW_ID, self.window))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.settle(None, &CodeMap::default())?;
        self.show(Entry::new(THREAD_EXIT, 4, self.tid))?;
        self.hidden(Entry::new(FOOTER, 0, 0))?;
        self.write()?;
        let file = self.zip.finish().map_err(failed)?;
        file.into_inner().map(drop).map_err(|e| failed_io(e.into_error()))
    }

    /// Writes the transfer that was waiting for its outcome.
    fn settle(&mut self, outcome: Option<(bool, GuestVa)>, code: &CodeMap) -> Result<()> {
        let Some(t) = self.transfer.take() else { return Ok(()) };
        let kind = type_of(t.kind, outcome.map(|(taken, _)| taken));
        let indirect = matches!(kind, INDIRECT_JUMP | INDIRECT_CALL | RETURN);
        let target = outcome.map(|(_, target)| target).filter(|_| indirect);
        self.insn(Entry::new(kind, u16::from(t.len), t.pc.0), target, code)?;
        t.accesses.into_iter().try_for_each(|entry| self.show(entry))
    }

    fn insn(&mut self, entry: Entry, target: Option<GuestVa>, code: &CodeMap) -> Result<()> {
        if self.insns >= self.chunk_insns {
            self.next_chunk()?;
        }
        self.insns += 1;
        self.pc = GuestVa(entry.addr);
        self.len = entry.size as u8;
        self.per_turn = None;
        self.made = 0;
        self.last_loads = false;
        if self.encodings && self.shown.insert(entry.addr, ()).is_none() {
            let bytes = code.get(self.process, self.pc, self.len);
            let bytes = bytes.ok_or(Error::NoCode { format: Format::DrMemtrace, pc: self.pc })?;
            for part in bytes.as_slice().chunks(8) {
                let mut word = [0; 8];
                word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                self.hidden(Entry::new(ENCODING, part.len() as u16, u64::from_le_bytes(word)))?;
            }
        }
        if let Some(target) = target {
            self.hidden(Entry::marker(marker::BRANCH_TARGET, target.0))?;
        }
        self.show(entry)
    }

    /// Begins another turn of a repeated string instruction if the access that
    /// comes does not belong to the present one.
    fn turn(&mut self, kind: u16, flags: AccessFlags, code: &CodeMap) -> Result<()> {
        if !flags.has(AccessFlags::STRING) || self.transfer.is_some() {
            return Ok(());
        }
        let per_turn = *self.per_turn.get_or_insert_with(|| {
            let bytes = code.get(self.process, self.pc, self.len);
            let inst = bytes.and_then(|b| Inst::decode(b.as_slice(), self.pc).ok());
            inst.map_or(0, |inst| turn_accesses(&inst))
        });
        // Without the code, a store after a load belongs to the same turn.
        let full = match per_turn {
            0 => self.made > 0 && !(kind == WRITE && self.last_loads),
            n => self.made >= n,
        };
        if full {
            self.show(Entry::new(NO_FETCH, u16::from(self.len), self.pc.0))?;
            self.made = 0;
        }
        self.made += 1;
        self.last_loads = kind == READ;
        Ok(())
    }

    fn data(&mut self, kind: u16, size: u32, addr: GuestVa) -> Result<()> {
        let entry = Entry::new(kind, size.min(SIZE_MAX) as u16, addr.0);
        match &mut self.transfer {
            Some(transfer) if transfer.accesses.len() < 64 => {
                transfer.accesses.push(entry);
                Ok(())
            }
            _ => self.show(entry),
        }
    }

    fn next_chunk(&mut self) -> Result<()> {
        self.show(Entry::marker(marker::CHUNK_FOOTER, self.chunk))?;
        self.write()?;
        self.chunk += 1;
        self.insns = 0;
        self.shown.clear();
        self.start_member()?;
        self.hidden(Entry::marker(marker::RECORD_ORDINAL, self.visible))?;
        self.hidden(Entry::marker(marker::TIMESTAMP, self.clock))?;
        self.hidden(Entry::marker(marker::CPU_ID, self.cpu))
    }

    fn start_member(&mut self) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default());
        self.zip.start_file(format!("chunk.{:04}", self.chunk), options).map_err(failed)
    }

    fn show(&mut self, entry: Entry) -> Result<()> {
        self.hidden(entry)?;
        self.visible += 1;
        Ok(())
    }

    fn hidden(&mut self, entry: Entry) -> Result<()> {
        if std::mem::take(&mut self.owes_cpu) {
            self.show(Entry::marker(marker::CPU_ID, self.cpu))?;
        }
        entry.encode(&mut self.bytes);
        if self.bytes.len() >= BLOCK { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.zip.write_all(&self.bytes).map_err(failed_io)?;
        self.bytes.clear();
        Ok(())
    }
}

/// Accesses that one turn of a string instruction makes.
fn turn_accesses(inst: &Inst) -> u32 {
    let strings = inst.memory().iter().filter(|m| matches!(m.shape, Shape::String(_)));
    strings.map(|m| if m.role == Role::Both { 2 } else { 1 }).sum()
}

fn failed(error: zip::result::ZipError) -> Error {
    failed_io(error.into())
}

fn failed_io(source: std::io::Error) -> Error {
    Error::Write { format: Format::DrMemtrace, source }
}
