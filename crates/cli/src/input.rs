//! Opening a trace, whatever format it is in, and driving it into a sink.
//!
//! Verbs that only read records take any format that ichnos can read; those that
//! need the file itself (info about chunks, salvage) ask for an `.ichnos` one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ichnos_analyze::select::{Others, Select, Selection};
use ichnos_base::{DriveError, Source, ThreadId, Totals};
use ichnos_convert::{AnySource, Format, ReadOptions};
use ichnos_replay::{Order, Replay};
use ichnos_report::number::thousands;
use ichnos_trace::{Condition, Reader};

use crate::erase::AnySink;
use crate::spooling::spool_of;

/// An open trace.
pub struct Input {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Trace(Box<Reader>),
    Foreign(Box<AnySource>),
}

/// Which part of a trace to drive, and how.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Only these threads; all if none is named.
    pub threads: Vec<ThreadId>,
    /// Only these instructions of each thread.
    pub insns: Option<Range<u64>>,
    /// In which order threads come.
    pub order: Order,
}

impl Input {
    /// Opens a trace: by its contents, or in the format that the user named. Says so if it ends early.
    pub fn open(path: &Path, format: Option<Format>, options: &ReadOptions) -> Result<Self> {
        let place = || path.display().to_string();
        if let Some(format) = format {
            let source = open_foreign(path, format, options).with_context(place)?;
            return Ok(Self { path: path.to_owned(), kind: Kind::Foreign(Box::new(source)) });
        }
        let head = head(path).with_context(place)?;
        if let Some(format) = recognise(path, &head) {
            let source = open_foreign(path, format, options).with_context(place)?;
            return Ok(Self { path: path.to_owned(), kind: Kind::Foreign(Box::new(source)) });
        }
        let reader = Reader::open(path).with_context(place)?;
        say_if_unfinished(path, &reader)?;
        Ok(Self { path: path.to_owned(), kind: Kind::Trace(Box::new(reader)) })
    }

    /// Opens an `.ichnos` file, likewise.
    pub fn trace(path: &Path) -> Result<Reader> {
        let reader = head(path)
            .map_err(anyhow::Error::from)
            .and_then(|_| Ok(Reader::open(path)?))
            .with_context(|| path.display().to_string())?;
        say_if_unfinished(path, &reader)?;
        Ok(reader)
    }

    /// The `.ichnos` file, if it is one.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.kind {
            Kind::Trace(reader) => Some(reader),
            Kind::Foreign(_) => None,
        }
    }

    /// How many instructions there are, if that is known beforehand.
    pub fn insns(&self) -> Option<u64> {
        match &self.kind {
            Kind::Trace(reader) => Some(reader.totals().insns),
            Kind::Foreign(_) => None,
        }
    }

    /// What each thread must count to, if the file says so.
    pub fn promised(&self) -> Vec<(ThreadId, Totals)> {
        match &self.kind {
            Kind::Trace(reader) => reader.threads().iter().map(|t| (t.id, t.totals)).collect(),
            Kind::Foreign(_) => Vec::new(),
        }
    }

    /// Whether the trace may end before its program did.
    pub fn unfinished(&self) -> bool {
        match &self.kind {
            Kind::Trace(reader) => *reader.condition() != Condition::Complete,
            Kind::Foreign(_) => false,
        }
    }

    /// Tells what came before a part of an `.ichnos` file to a sink, so that it
    /// knows what is mapped where the part begins. Other formats have no
    /// mappings, and nothing is told.
    pub fn drive_before(&mut self, part: &Part, sink: &mut AnySink<'_>) -> Result<()> {
        let place = self.path.display().to_string();
        match (&self.kind, &part.insns) {
            (Kind::Trace(reader), Some(insns)) if insns.start > 0 => {
                finish(Replay::new(reader).insns(0..insns.start).drive(&mut { sink }), &place)
            }
            _ => Ok(()),
        }
    }

    /// Tells a part of the trace to a sink.
    pub fn drive(&mut self, part: &Part, sink: &mut AnySink<'_>) -> Result<()> {
        let place = self.path.display().to_string();
        match &mut self.kind {
            Kind::Trace(reader) => {
                let mut replay = Replay::new(reader).order(part.order);
                if !part.threads.is_empty() {
                    replay = replay.threads(part.threads.iter().copied());
                }
                if let Some(insns) = &part.insns {
                    replay = replay.insns(insns.clone());
                }
                finish(replay.drive(&mut { sink }), &place)
            }
            Kind::Foreign(source) => {
                let mut sink = Select::new(part.selection(), sink);
                finish(source.drive(&mut sink), &place)
            }
        }
    }
}

impl Part {
    fn selection(&self) -> Selection {
        Selection {
            threads: self.threads.iter().copied().collect(),
            insns: self.insns.clone(),
            others: Others::Drop,
        }
    }
}

/// Tells what a replay says to a sink; errors name the file.
pub fn replay(path: &Path, mut replay: Replay<'_>, sink: &mut AnySink<'_>) -> Result<()> {
    finish(replay.drive(&mut { sink }), &path.display().to_string())
}

/// The source's errors name the file; the sink's speak for themselves.
pub fn finish<F>(result: Result<(), DriveError<F, anyhow::Error>>, place: &str) -> Result<()>
where
    F: std::error::Error + Send + Sync + 'static,
{
    result.map_err(|error| match error {
        DriveError::Source(e) => anyhow::Error::from(e).context(place.to_owned()),
        DriveError::Sink(e) => e,
    })
}

/// Says that a file ends early and what can be answered for; an error if that is nothing.
fn say_if_unfinished(path: &Path, reader: &Reader) -> Result<()> {
    if *reader.condition() == Condition::Complete {
        return Ok(());
    }
    let (place, threads) = (path.display(), reader.threads().len());
    if threads == 0 && spool_of(path).exists() {
        bail!("{place}: it is not packed yet: `ichnos pack {place}` makes the trace");
    }
    if threads == 0 {
        bail!("{place}: the file ends early, before the first part of a thread was whole");
    }
    let insns = thousands(reader.totals().insns);
    let threads = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
    eprintln!(
        "ichnos: {place}: the file ends early: it was cut short, or its writer was stopped or still writes; \
         what is whole, {insns} instructions of {threads}, is answered for"
    );
    Ok(())
}

fn open_foreign(path: &Path, format: Format, options: &ReadOptions) -> Result<AnySource> {
    if path.as_os_str() == "-" {
        let input = Box::new(std::io::BufReader::with_capacity(1 << 20, std::io::stdin()));
        return Ok(ichnos_convert::reader_source(format, input, options)?);
    }
    let source = ichnos_convert::open_source(format, path, options)?;
    if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) {
        eprintln!("ichnos: {}: the file is empty", path.display());
    }
    Ok(source)
}

/// The first bytes of a file.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(512).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The foreign format of a file, unless it is one of ours.
fn recognise(path: &Path, head: &[u8]) -> Option<Format> {
    if head.starts_with(b"iChnos") {
        return None;
    }
    Format::from_path(path).or_else(|| Format::from_contents(head))
}
