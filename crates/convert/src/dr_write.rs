//! Writes drmemtrace's canonical form, version 7: a zip file a thread, in chunks
//! that can each be read alone.
//!
//! Encodings are written if the machine code of the thread's first instruction
//! is known, and then that of every instruction must be. A control transfer is
//! written when its outcome is known, since its entry says it; everything else
//! at once, so that a repeated instruction of any length needs no memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};

use ichnos_base::{
    About, Batch, Code, Event, Isa, Record, SignalInfo, Sink, ThreadId, ThreadStart,
};

use crate::code_map::{AddrMap, CodeMap, Processes};
use crate::dr_thread::{Opening, ThreadFile};
use crate::output::thread_path;
use crate::{Error, Format, Result, WriteOptions};

/// Events before a thread's first instruction that are kept for its file.
const WAITING_MAX: usize = 1024;

/// A sink that writes drmemtrace files.
pub struct DrMemtraceSink {
    place: Place,
    options: WriteOptions,
    isa: Isa,
    app: String,
    started_ns: u64,
    code: CodeMap,
    processes: Processes,
    starts: AddrMap<u32, ThreadStart>,
    /// What happened to threads that have not executed anything yet.
    waiting: AddrMap<u32, Vec<Event<'static>>>,
    files: AddrMap<u32, ThreadFile>,
    opened: u32,
}

enum Place {
    /// The first thread's file; others lie beside it.
    File(PathBuf),
    /// A folder for all, with names as drmemtrace gives them.
    Folder(PathBuf),
}

impl DrMemtraceSink {
    /// Writes to the file `path` if its name ends in `.zip`, else to the folder
    /// `path/trace`, which is made.
    pub fn create(path: &Path, options: &WriteOptions) -> Result<Self> {
        let open = |source| Error::Open { path: path.to_owned(), source };
        let place = if path.extension().is_some_and(|e| e == "zip") {
            std::fs::File::create(path).map_err(open)?;
            Place::File(path.to_owned())
        } else {
            let folder = path.join("trace");
            std::fs::create_dir_all(&folder).map_err(open)?;
            Place::Folder(folder)
        };
        Ok(Self {
            place,
            options: options.clone(),
            isa: Isa::UNKNOWN,
            app: "program".into(),
            started_ns: 0,
            code: CodeMap::default(),
            processes: Processes::default(),
            starts: AddrMap::default(),
            waiting: AddrMap::default(),
            files: AddrMap::default(),
            opened: 0,
        })
    }

    fn leaves_out(&self, thread: ThreadId) -> bool {
        self.options.thread.is_some_and(|wanted| wanted != thread)
    }

    fn open(&mut self, thread: ThreadId, records: &[Record]) -> Result<()> {
        let process = self.processes.of(thread);
        let start = self.starts.get(&thread.0).copied().unwrap_or_default();
        let mut waiting = self.waiting.remove(&thread.0).unwrap_or_default();
        // The first clock and processor make the file's head.
        let clock = take_first(&mut waiting, |e| match e {
            Event::Timestamp { ns } => Some(*ns),
            _ => None,
        });
        let cpu = take_first(&mut waiting, |e| match e {
            Event::Migrate { cpu } => Some(*cpu),
            _ => None,
        });
        let first = records.iter().find_map(|r| match *r {
            Record::Insn { pc, len, .. } => Some((pc, len)),
            _ => None,
        });
        let coded = first.and_then(|(pc, len)| self.code.get(process, pc, len)).is_some();
        // drmemtrace takes 0 for "not known yet".
        let known =
            |os: u32, other: u32| if os == 0 { u64::from(other) + 1 } else { u64::from(os) };
        let opening = Opening {
            process,
            tid: known(start.os_tid, thread.0),
            pid: known(start.os_pid, process.0),
            encodings: coded && self.isa == Isa::X86_64,
            isa: self.isa,
            ns: clock.unwrap_or(self.started_ns),
            cpu: cpu.map_or(u64::MAX, u64::from),
            chunk_insns: self.options.chunk_insns.max(1),
        };
        let path = self.path(thread, opening.tid);
        let mut file = ThreadFile::create(&path, &opening)?;
        for event in &waiting {
            file.event(event)?;
        }
        self.files.insert(thread.0, file);
        self.opened += 1;
        Ok(())
    }

    fn path(&self, thread: ThreadId, tid: u64) -> PathBuf {
        match &self.place {
            Place::File(path) if self.opened == 0 => path.clone(),
            Place::File(path) => thread_path(path, Some(thread)),
            Place::Folder(folder) => {
                let n = thread.0 % 10_000;
                folder.join(format!("drmemtrace.{}.{tid}.{n:04}.trace.zip", self.app))
            }
        }
    }
}

impl Sink for DrMemtraceSink {
    type Error = Error;

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        self.isa = about.isa;
        self.started_ns = about.started_ns;
        let program = about.command.first().and_then(|c| Path::new(c).file_name()?.to_str());
        if let Some(name) = program.filter(|n| !n.is_empty()) {
            self.app = name.to_owned();
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        self.processes.note(thread, event);
        if self.leaves_out(thread) {
            return Ok(true);
        }
        if let Event::ThreadStart(start) = event {
            self.starts.insert(thread.0, *start);
        }
        match self.files.get_mut(&thread.0) {
            Some(file) => file.event(event)?,
            None => {
                let waiting = self.waiting.entry(thread.0).or_default();
                if waiting.len() < WAITING_MAX {
                    waiting.extend(kept(event));
                }
            }
        }
        if matches!(event, Event::ThreadEnd(_)) {
            self.waiting.remove(&thread.0);
            if let Some(file) = self.files.remove(&thread.0) {
                file.finish()?;
            }
        }
        Ok(true)
    }

    fn code(&mut self, _thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        if self.code.add(code) {
            self.files.values_mut().for_each(ThreadFile::forget_code);
        }
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        if self.leaves_out(batch.thread) {
            return Ok(true);
        }
        if !self.files.contains_key(&batch.thread.0) {
            self.open(batch.thread, batch.records)?;
        }
        if let Some(file) = self.files.get_mut(&batch.thread.0) {
            for record in batch.records {
                file.record(record, &self.code)?;
            }
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        for (_, file) in self.files.drain() {
            file.finish()?;
        }
        match &self.place {
            // An archive without members is not one that drmemtrace opens; the
            // empty file that was made to test the path would be worse.
            Place::File(path) if self.opened == 0 => std::fs::remove_file(path)
                .map_err(|source| Error::Write { format: Format::DrMemtrace, source }),
            _ => Ok(()),
        }
    }
}

/// An event that can wait for its thread's file, if drmemtrace has a place for it.
fn kept(event: &Event<'_>) -> Option<Event<'static>> {
    Some(match *event {
        Event::Timestamp { ns } => Event::Timestamp { ns },
        Event::Migrate { cpu } => Event::Migrate { cpu },
        Event::Syscall { number, args } => Event::Syscall { number, args },
        Event::SyscallReturn { number, result } => Event::SyscallReturn { number, result },
        Event::Signal(signal) => Event::Signal(signal),
        Event::SignalReturn { pc } => Event::SignalReturn { pc },
        // To drmemtrace, whatever the kernel does to a thread is one kind of event.
        Event::Trap(trap) => Event::Signal(SignalInfo {
            number: (trap.cause & 63) as i32,
            code: 0,
            interrupted: trap.interrupted,
            handler: trap.handler,
        }),
        Event::Gap { reason, insns, skipped } => Event::Gap { reason, insns, skipped },
        _ => return None,
    })
}

/// Takes out the first event for which `pick` has an answer.
fn take_first<T>(
    events: &mut Vec<Event<'static>>,
    pick: impl Fn(&Event<'static>) -> Option<T>,
) -> Option<T> {
    let at = events.iter().position(|e| pick(e).is_some())?;
    pick(&events.remove(at))
}
