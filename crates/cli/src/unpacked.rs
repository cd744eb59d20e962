//! A recording that is not packed yet: its spool, and the trace that is to be made of it.
//!
//! Whoever has one holds the spool, from before its trace is begun until it is removed: nobody else packs it meanwhile, or once more.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow};
use ichnos_base::Sink;
use ichnos_collect_asm as asm;
use ichnos_collect_exec as exec;

use crate::apart::Traces;
use crate::behind::Behind;
use crate::later::Later;
use crate::packing::{Packing, Words};

/// A spool that nobody else uses, and what its note says.
pub struct Unpacked {
    maker: Maker,
    path: PathBuf,
    /// The trace that is to be made.
    pub later: Later,
}

/// What became of a spool that somebody wants to pack.
pub enum Found {
    /// It can be packed.
    Free(Box<Unpacked>),
    /// A recording still writes it, or somebody packs it.
    InUse,
    /// It is not there, or not any more: somebody has packed it.
    Gone,
}

/// What came of packing.
pub struct Packed {
    /// The files that were made.
    pub traces: Option<Traces>,
    /// Whether somebody asked for the end before all was packed.
    pub stopped: bool,
    /// What is missing, if anything.
    pub note: Option<&'static str>,
}

impl Unpacked {
    /// Takes hold of a spool.
    pub fn open(path: &Path) -> Result<Found> {
        let maker = match Maker::open(path) {
            // Whoever held it may have removed it before it was let go.
            _ if !path.exists() => return Ok(Found::Gone),
            Ok(Some(maker)) => maker,
            Ok(None) => return Ok(Found::InUse),
            Err(error) => return Err(error),
        };
        let (maker, later) = maker;
        Ok(Found::Free(Box::new(Self { maker, path: path.to_owned(), later })))
    }

    /// Where the spool is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Packs all of it into a file, or several if the name is a pattern, until `stop` is set.
    pub fn pack(&mut self, output: &Path, words: Words, stop: &AtomicBool) -> Result<Packed> {
        let mut sink = Behind::new(Traces::new(output.to_owned(), self.later.options));
        self.later.about.with(|about| sink.begin(about))?;
        let mut packing = Packing::new(words);
        let read = self.maker.pack(&mut sink, stop, &mut |done, all| packing.at(done, all));
        packing.end();
        let read = read?;
        let note = read.is_cut.then_some("the recording was killed: what came last is missing");
        Ok(Packed { traces: sink.into_inner(), stopped: read.stopped, note })
    }

    /// Removes the spool, whose trace is whole. It is let go behind that, so that nobody packs what is not there any more.
    pub fn remove(self) -> Result<()> {
        exec::remove_spool(&self.path)
            .with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// The collector that left a spool is the one that understands it: nobody else here knows which one that is.
enum Maker {
    /// The code cache.
    Exec(exec::Spooled),
    /// That of programs which record themselves.
    Asm(asm::Left),
}

/// What that one is called in notes.
const INLINE: &str = "collect-asm ";

/// How far a maker has come.
struct Read {
    /// Whether somebody asked for the end.
    stopped: bool,
    /// Whether the spool ends before its program does.
    is_cut: bool,
}

impl Maker {
    /// Takes hold of a spool, and reads its note; nothing if somebody else has.
    fn open(path: &Path) -> Result<Option<(Self, Later)>> {
        let spool = match exec::Spooled::open(path) {
            Ok(spool) => spool,
            // What the system says is of other kinds.
            Err(exec::Error::Spool { source, .. }) if source.kind() == ErrorKind::Other => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let later = Later::read(spool.note(), path)?;
        let maker = match later.about.collector.starts_with(INLINE) {
            true => Self::Asm(asm::Left::new(spool.into_spool())),
            false => Self::Exec(spool),
        };
        Ok(Some((maker, later)))
    }

    /// Tells a sink all that is in the spool.
    fn pack(
        &mut self,
        sink: &mut Behind<Traces>,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Read> {
        match self {
            Self::Exec(spool) => {
                let packed = spool.pack(sink, stop, progress).map_err(|error| match error {
                    exec::CollectError::Sink(e) => e,
                    exec::CollectError::Host(e) => e.into(),
                    _ => anyhow!("the trace cannot be made"),
                })?;
                let is_cut = packed.status.is_none() && !packed.stopped;
                Ok(Read { stopped: packed.stopped, is_cut })
            }
            Self::Asm(left) => {
                let packed = left.pack(sink, stop, progress).map_err(|error| match error {
                    asm::RecordError::Sink(e) => e,
                    asm::RecordError::Collector(e) => e.into(),
                    _ => anyhow!("the trace cannot be made"),
                })?;
                let is_cut = packed.status.is_none() && !packed.stopped;
                Ok(Read { stopped: packed.stopped, is_cut })
            }
        }
    }
}
