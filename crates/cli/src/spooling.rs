//! Recording by way of a spool: the program does not wait until its trace is packed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, Result};
use clap::Args;
use ichnos_collect_exec as exec;

use crate::apart::Traces;
use crate::behind::Behind;
use crate::count;
use crate::later::Later;
use crate::live::{Live, LiveArgs};
use crate::packing::{Packing, Words};
use crate::progress::Progress;

/// The most bytes that are put on a disk unless somebody says how many.
const MOST: u64 = 32 << 30;

/// Where what nobody has packed yet is put.
#[derive(Args, Clone, Debug, Default)]
pub struct SpoolArgs {
    /// The folder for what nobody has packed yet: without this, FILE.spool beside the trace. It is removed when all is packed.
    #[arg(long, value_name = "FOLDER")]
    spool: Option<PathBuf>,
    /// The most bytes of it; then the program waits until they are packed. 0 lets it wait from the beginning. Without this, half of
    /// what the disk has free and at most 32 GiB.
    #[arg(long, value_name = "BYTES", value_parser = count::count)]
    spool_limit: Option<u64>,
}

/// What a kept trace goes through.
type Kept = Progress<Behind<Traces>>;

impl SpoolArgs {
    /// Runs a program from the code cache and packs its trace.
    pub fn record(
        &self,
        (live, command): (&LiveArgs, &[OsString]),
        later: &Later,
        words: Words,
        sink: &mut Kept,
    ) -> Result<Live> {
        let (program, args) = command.split_first().context("no program is named")?;
        let place = self.place(later);
        let spool = place.path.clone();
        let packing = RefCell::new(Packing::new(words));
        let mut ended = |sink: &mut Kept, _: ExitStatus| {
            *packing.borrow_mut() = Packing::new(words);
            // The program alone wrote there: whoever reads it must see its end.
            let _ = File::options().write(true).open("/dev/null").map(rustix::stdio::dup2_stdout);
            // Packing was to stand back for the program, which it need not any more.
            sink.rest().rest()
        };
        let mut progress = |done, all| packing.borrow_mut().at(done, all);
        let spooling = exec::Spooling { place, ended: &mut ended, progress: &mut progress };
        let what = (exec::Record::All, &later.about);
        let done = live.exec_by((program, args), what, sink, |tracee, sink, watch| {
            tracee.collect_spooled(sink, watch, spooling)
        });
        packing.borrow_mut().end();
        done.with_context(|| match spool.exists() {
            true => format!("what was recorded is in {}: `ichnos pack`", spool.display()),
            false => "the trace is not complete".to_owned(),
        })
    }

    fn place(&self, later: &Later) -> exec::SpoolPlace {
        let path = self.path(&later.path);
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
        let free = rustix::fs::statvfs(folder.unwrap_or_else(|| Path::new(".")))
            .map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        let limit = self.spool_limit.unwrap_or_else(|| (free / 2).min(MOST));
        exec::SpoolPlace { path, limit, note: later.note() }
    }

    /// The spool of a trace.
    fn path(&self, trace: &Path) -> PathBuf {
        let beside = spool_of(trace);
        // A device or pipe has nothing beside it.
        let is_file = trace.metadata().map_or(true, |found| found.is_file());
        let folder = match &self.spool {
            Some(folder) => folder.clone(),
            None if is_file => return beside,
            None => std::env::temp_dir(),
        };
        folder.join(beside.file_name().unwrap_or_default())
    }
}

/// Where the spool of a trace is unless somebody says so.
pub fn spool_of(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".spool");
    name.into()
}
