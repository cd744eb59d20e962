//! Where a trace goes: a file named by the user or after the program, made only
//! when there is something to write.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use ichnos_base::{About, Batch, Chain, Code, Event, Plan, Raw, Sink, ThreadId, Totals};
use ichnos_trace::{Options, Writer};

use crate::count;

/// How to write a trace.
#[derive(Args, Clone, Debug)]
pub struct WriteArgs {
    /// zstd level of the trace file: 1 is fastest, 19 smallest.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// Write a chunk of a thread to disk after this many instructions, so that no more is lost
    /// if ichnos is killed; fewer make the file larger.
    #[arg(long, value_name = "COUNT", value_parser = count::count)]
    flush_every: Option<u64>,
}

impl WriteArgs {
    /// The writer's options.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        options.level = self.level;
        if let Some(insns) = self.flush_every {
            options.chunk_insns = insns.max(1);
        }
        options
    }
}

/// The default name: the program and this process, in the current folder.
pub fn default_path(program: &OsStr) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    PathBuf::from(format!("{name}.{}.ichnos", std::process::id()))
}

/// A trace file that is made when the trace begins, so that a program that
/// cannot be started leaves no empty file.
pub struct TraceFile {
    path: PathBuf,
    options: Options,
    writer: Option<Writer<File>>,
    /// Whether all is in the file.
    is_whole: bool,
    /// What was written, once it is closed.
    closed: Option<(Totals, u64)>,
}

impl TraceFile {
    /// A file that is still to be made.
    pub const fn new(path: PathBuf, options: Options) -> Self {
        Self { path, options, writer: None, is_whole: false, closed: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written: counts and bytes.
    pub fn written(&self) -> Option<(Totals, u64)> {
        self.closed.or_else(|| self.writer.as_ref().map(|w| (*w.totals(), w.bytes())))
    }

    /// See [`Writer::renew_packers`].
    pub fn renew_packers(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.renew_packers();
        }
    }

    /// Finishes it and keeps no more than its counts.
    pub fn close(&mut self) -> Result<()> {
        self.finish()?;
        self.closed = self.written();
        self.put_away();
        Ok(())
    }

    /// Frees what was kept to write it, which takes long where there was much code, beside what comes next.
    fn put_away(&mut self) {
        if let Some(writer) = self.writer.take_if(|_| self.is_whole) {
            // If there is no thread for it, it is freed here.
            let _ = std::thread::Builder::new().name("tidy".to_owned()).spawn(move || drop(writer));
        }
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Writer<File>) -> Result<T, ichnos_trace::Error>,
    ) -> Result<T> {
        let path = &self.path;
        if self.closed.is_some() {
            bail!("{} is closed, and more was to be written", path.display());
        }
        if self.writer.is_none() {
            let writer = Writer::create(path, self.options)
                .with_context(|| format!("cannot make {}", path.display()))?;
            self.writer = Some(writer);
        }
        let writer = self.writer.as_mut().context("the trace file was not made")?;
        work(writer).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        self.put_away();
    }
}

impl Sink for TraceFile {
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        self.with(|w| w.records(batch))
    }

    fn takes_raw(&self) -> bool {
        true
    }

    fn plan(&mut self, plan: &Plan<'_>) -> Result<bool> {
        self.with(|w| w.plan(plan))
    }

    fn chain(&mut self, chain: &Chain<'_>) -> Result<bool> {
        self.with(|w| w.chain(chain))
    }

    fn raw(&mut self, raw: &Raw<'_>) -> Result<bool> {
        self.with(|w| w.raw(raw))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        self.with(|w| w.event(thread, event))
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        self.with(|w| w.code(thread, code))
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        self.with(|w| w.begin(about))
    }

    fn finish(&mut self) -> Result<()> {
        if self.closed.is_none() {
            self.with(Writer::finish)?;
            self.is_whole = true;
        }
        Ok(())
    }
}
