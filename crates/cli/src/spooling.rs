//! Recording by way of a spool: the program does not wait until its trace is packed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, Result};
use clap::Args;
use ichnos_collect_asm as asm;
use ichnos_collect_exec as exec;

use crate::apart::Traces;
use crate::behind::Behind;
use crate::count;
use crate::exit::Ending;
use crate::interrupt;
use crate::later::Later;
use crate::live::{Live, LiveArgs, Values, asked};
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
    /// When the trace is packed: beside the program as far as there is time, and then the rest, or later, by `ichnos pack`. Then nothing
    /// is done for it but to store what the program tells, which costs the program and its user least.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pack: Pack,
}

/// When a trace is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Pack {
    /// Beside the program, and then what is left.
    #[default]
    Beside,
    /// When `ichnos pack` is called. A recording that fits into memory is packed at its end, and one that finds no more room is
    /// packed as if it was not to wait.
    Later,
}

/// What a recording by way of a spool came to.
pub struct Recorded {
    pub live: Live,
    /// The spool, if nothing has been packed yet.
    pub unpacked: Option<PathBuf>,
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
    ) -> Result<Recorded> {
        let (program, args) = command.split_first().context("no program is named")?;
        let when = match self.pack {
            Pack::Beside => exec::When::Beside,
            Pack::Later => exec::When::Later,
        };
        let place = self.place(later);
        let spool = place.path.clone();
        let packing = RefCell::new(Packing::new(words));
        let mut ended = |sink: &mut Kept, _: ExitStatus| {
            *packing.borrow_mut() = Packing::new(words);
            go_on_alone(sink)
        };
        let mut progress = |done, all| packing.borrow_mut().at(done, all);
        let spooling = exec::Spooling {
            place,
            when,
            hurried: &mut hurry,
            ended: &mut ended,
            progress: &mut progress,
        };
        let mut left = false;
        let what = (exec::Record::All, &later.about);
        let done = live.exec_by((program, args), what, sink, |tracee, sink, watch| {
            let outcome = tracee.collect_spooled(sink, watch, spooling)?;
            left = outcome.left;
            Ok(outcome)
        });
        packing.borrow_mut().end();
        let live = done.with_context(|| match spool.exists() {
            true => format!("what was recorded is in {}: `ichnos pack`", spool.display()),
            false => "the trace is not complete".to_owned(),
        })?;
        let unpacked = (left && when == exec::When::Later).then_some(spool);
        Ok(Recorded { live, unpacked })
    }

    /// Runs a program that records itself and packs its trace.
    pub fn record_inline(
        &self,
        (live, command): (&LiveArgs, &[OsString]),
        later: &Later,
        words: Words,
        sink: &mut Kept,
    ) -> Result<Recorded> {
        let (path, limit) = self.room(&later.path);
        if limit == 0 {
            let live = live.run(None, command, Values::Omit, sink)?;
            return Ok(Recorded { live, unpacked: None });
        }
        let when = match self.pack {
            Pack::Beside => asm::Reads::Beside,
            Pack::Later => asm::Reads::Later(later.note()),
        };
        if self.is_later() {
            live.refuse_choice("a program built by `ichnos cc` whose trace is packed later")?;
        }
        let (spool, mut left) = (path.clone(), false);
        let (program, args) = command.split_first().context("no program is named")?;
        let packing = RefCell::new(Packing::new(words));
        let interrupt = interrupt::flag()?;
        // Whoever interrupted the program wants its trace; who interrupts packing does not.
        let early = Cell::new(false);
        let is_broken_off = || interrupt.is_set() && !early.get();
        let mut ended = |sink: &mut Kept| {
            early.set(interrupt.is_set());
            *packing.borrow_mut() = Packing::new(words);
            go_on_alone(sink)
        };
        let mut progress = |done, all| {
            packing.borrow_mut().at(done, all);
            !is_broken_off()
        };
        let what = ((program, args), &later.about);
        let live = live.inline_by(what, sink, |config, sink| {
            let (place, stop) = (asm::SpoolPlace { path, limit, when }, &*interrupt.stop);
            let (hurried, ended, progress) = (&mut hurry, &mut ended, &mut progress);
            let spooling = asm::Spooling { place, stop, hurried, ended, progress };
            let outcome = asm::record_spooled(config, sink, spooling)?;
            left = outcome.left;
            Ok(outcome)
        });
        packing.borrow_mut().end();
        let live = live.with_context(|| match self.is_later() && spool.exists() {
            true => format!("what was recorded is in {}: `ichnos pack`", spool.display()),
            false => "the trace is not complete".to_owned(),
        })?;
        let ending = match live.ending {
            Ending::Program(status) => Ending::Program(asked(status, early.get(), &interrupt)),
            other => other,
        };
        let cut_short = match early.get() {
            true => Some("interrupted"),
            false => is_broken_off().then_some("packing was interrupted"),
        };
        let unpacked = left.then_some(spool);
        Ok(Recorded { live: Live { ending, cut_short }, unpacked })
    }

    /// Whether the trace is to be packed when somebody asks for it.
    pub fn is_later(&self) -> bool {
        self.pack == Pack::Later
    }

    fn place(&self, later: &Later) -> exec::SpoolPlace {
        let (path, limit) = self.room(&later.path);
        exec::SpoolPlace { path, limit, note: later.note() }
    }

    /// Where the spool of a trace goes, and the most bytes that it may have.
    fn room(&self, trace: &Path) -> (PathBuf, u64) {
        let path = self.path(trace);
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
        let free = rustix::fs::statvfs(folder.unwrap_or_else(|| Path::new(".")))
            .map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        let limit = self.spool_limit.unwrap_or_else(|| (free / 2).min(MOST));
        (path, limit)
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

/// The program has ended, and what is left is packed.
fn go_on_alone(sink: &mut Kept) -> Result<()> {
    // The program alone wrote there: whoever reads it must see its end.
    let _ = File::options().write(true).open("/dev/null").map(rustix::stdio::dup2_stdout);
    hurry(sink);
    sink.rest().rest()
}

/// Packing was to stand back for the program, which it must not do any more.
fn hurry(sink: &mut Kept) {
    if let Some(traces) = sink.rest().told_at_once() {
        traces.renew_packers();
    }
}

/// Where the spool of a trace is unless somebody says so.
pub fn spool_of(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".spool");
    name.into()
}
