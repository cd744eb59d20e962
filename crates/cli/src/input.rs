//! Opening a trace, whatever format it is in, and driving it into a sink.
//!
//! Verbs that only read records take any format that ichnos can read; those that
//! need the file itself (info about chunks, salvage) ask for an `.ichnos` one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{ErrorKind, Read};
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
use crate::whole::{self, There, Whole};

/// An open trace.
pub struct Input {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Trace(Box<Trace>),
    Foreign(Box<AnySource>),
}

/// An open `.ichnos` file.
pub struct Trace {
    pub reader: Reader,
    /// The file that is read: not the one that was named if that was not packed.
    pub file: PathBuf,
    /// How long it is.
    pub bytes: u64,
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
        if let Some(format) = head(path).ok().and_then(|head| recognise(path, &head)) {
            let source = open_foreign(path, format, options).with_context(place)?;
            return Ok(Self { path: path.to_owned(), kind: Kind::Foreign(Box::new(source)) });
        }
        Ok(Self { path: path.to_owned(), kind: Kind::Trace(Box::new(Trace::open(path)?)) })
    }

    /// The `.ichnos` file, if it is one.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.kind {
            Kind::Trace(trace) => Some(&trace.reader),
            Kind::Foreign(_) => None,
        }
    }

    /// The `.ichnos` file that is read, which must not be written meanwhile.
    pub fn file(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Trace(trace) => Some(&trace.file),
            Kind::Foreign(_) => None,
        }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> Result<u64> {
        match &self.kind {
            Kind::Trace(trace) => Ok(trace.bytes),
            Kind::Foreign(_) => {
                let found = std::fs::metadata(&self.path);
                Ok(found.with_context(|| self.path.display().to_string())?.len())
            }
        }
    }

    /// How many instructions there are, if that is known beforehand.
    pub fn insns(&self) -> Option<u64> {
        match &self.kind {
            Kind::Trace(trace) => Some(trace.reader.totals().insns),
            Kind::Foreign(_) => None,
        }
    }

    /// What each thread must count to, if the file says so.
    pub fn promised(&self) -> Vec<(ThreadId, Totals)> {
        match &self.kind {
            Kind::Trace(trace) => trace.reader.threads().iter().map(|t| (t.id, t.totals)).collect(),
            Kind::Foreign(_) => Vec::new(),
        }
    }

    /// Whether the trace may end before its program did.
    pub fn unfinished(&self) -> bool {
        match &self.kind {
            Kind::Trace(trace) => *trace.reader.condition() != Condition::Complete,
            Kind::Foreign(_) => false,
        }
    }

    /// Tells what came before a part of an `.ichnos` file to a sink, so that it
    /// knows what is mapped where the part begins. Other formats have no
    /// mappings, and nothing is told.
    pub fn drive_before(&mut self, part: &Part, sink: &mut AnySink<'_>) -> Result<()> {
        let place = self.path.display().to_string();
        match (&self.kind, &part.insns) {
            (Kind::Trace(trace), Some(insns)) if insns.start > 0 => finish(
                Replay::new(&trace.reader).insns(0..insns.start).drive(&mut { sink }),
                &place,
            ),
            _ => Ok(()),
        }
    }

    /// Tells a part of the trace to a sink.
    pub fn drive(&mut self, part: &Part, sink: &mut AnySink<'_>) -> Result<()> {
        let place = self.path.display().to_string();
        match &mut self.kind {
            Kind::Trace(trace) => {
                let mut replay = Replay::new(&trace.reader).order(part.order);
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

impl Trace {
    /// Opens an `.ichnos` file: packs it first if it is not packed yet, and says so if it ends early all the same.
    pub fn open(path: &Path) -> Result<Self> {
        let place = || path.display().to_string();
        let there = match head(path) {
            Ok(head) if whole::is_spool(&head) => Err(There::Spool),
            Ok(head) if head.is_empty() => Err(There::Nothing),
            Ok(_) => Ok(Reader::open(path).with_context(place)?),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(There::Nothing),
            Err(error) => return Err(error).with_context(place),
        };
        let whole = match &there {
            Ok(reader) if *reader.condition() == Condition::Complete => {
                whole::say_if_more(path);
                None
            }
            Ok(reader) => whole::of(path, There::Begun(reader))?,
            Err(there) => whole::of(path, *there)?,
        };
        let file = whole.as_ref().map_or(path, Whole::path);
        let reader = match there {
            Ok(reader) if whole.is_none() => reader,
            _ => {
                head(file).with_context(place)?;
                Reader::open(file).with_context(place)?
            }
        };
        say_if_unfinished(path, &reader)?;
        let bytes = std::fs::metadata(file).with_context(place)?.len();
        Ok(Self { reader, file: file.to_owned(), bytes })
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
    if threads == 0 {
        let spool = spool_of(Path::new(path.file_name().unwrap_or_default()));
        bail!(
            "{place}: the file ends early, before the first part of a thread was whole; if it was recorded with `--spool FOLDER`, \
             name FOLDER/{} instead",
            spool.display()
        );
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
    if head.starts_with(b"iChnos") || whole::is_spool(head) {
        return None;
    }
    Format::from_path(path).or_else(|| Format::from_contents(head))
}
