//! What a verb looks at: a stored trace, or a program that is run for it.
//!
//! The verbs that answer questions take either, and a sink cannot tell which.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use ichnos_base::{Tee, ThreadId, Totals};
use ichnos_convert::{Format, ReadOptions};
use ichnos_replay::Order;
use ichnos_trace::Reader;

use crate::ahead;
use crate::answer::Stage;
use crate::erase::{AnySink, Both};
use crate::exit::Ending;
use crate::input::{Input, Part};
use crate::live::{Collector, LiveArgs, Values};
use crate::output::{TraceFile, WriteArgs};
use crate::progress::Progress;

/// A trace, or a program.
#[derive(Args, Clone, Debug)]
pub struct SubjectArgs {
    /// The trace: an .ichnos file, or any format that `convert` reads.
    #[arg(value_name = "FILE", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// The input's format, where contents and name do not tell it.
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Keep the trace of the program in this file, too.
    #[arg(short, long, value_name = "FILE", requires = "command")]
    output: Option<PathBuf>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// What runs the program, if not a code cache: programs built by `ichnos cc` trace what was built so,
    /// without their libraries, and what is asked for may need single stepping.
    #[arg(long, value_enum)]
    collector: Option<Collector>,
    /// The program and its arguments, after `--`.
    #[arg(last = true, value_name = "PROG")]
    command: Vec<OsString>,
}

/// A subject, ready to be told to a sink.
pub struct Subject<'a> {
    args: &'a SubjectArgs,
    input: Option<Input>,
}

impl SubjectArgs {
    /// Opens the trace, if it is one. `verb` is for the hint in the error.
    pub fn open(&self, verb: &str) -> Result<Subject<'_>> {
        if self.file.is_none() && self.command.is_empty() {
            bail!("name a trace, or a program after `--`: ichnos {verb} -- ls /usr/share");
        }
        let open = |file: &PathBuf| Input::open(file, self.from, &ReadOptions::default());
        Ok(Subject { args: self, input: self.file.as_ref().map(open).transpose()? })
    }

    /// What runs the program, if it is not chosen by what the program is.
    fn collector(&self) -> Option<Collector> {
        self.collector.or(self.live.needs_stepping().then_some(Collector::Step))
    }

    /// The program and its arguments, and how to run it.
    pub fn program(&self) -> (&LiveArgs, &[OsString]) {
        (&self.live, &self.command)
    }

    /// The trace, if it is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Who has standard output.
    pub const fn stage(&self) -> Stage {
        if self.file.is_some() { Stage::Free } else { Stage::Shared }
    }
}

impl Subject<'_> {
    /// What each thread counts to, where that is known beforehand.
    pub fn promised(&self) -> Vec<(ThreadId, Totals)> {
        self.input.as_ref().map(Input::promised).unwrap_or_default()
    }

    /// Whether it is a program that is still to run.
    pub const fn is_live(&self) -> bool {
        self.input.is_none()
    }

    /// The stored trace, if it is one of a single thread, which can be read in parts.
    pub fn one_thread(&self) -> Option<&Reader> {
        let reader = self.input.as_ref()?.reader()?;
        (reader.threads().len() == 1).then_some(reader)
    }

    /// The same, if its chunks can be unpacked ahead.
    pub fn one_ahead(&self) -> Option<&Reader> {
        self.one_thread().filter(|reader| ahead::is_possible(reader))
    }

    /// Tells a stored trace of a single thread to a sink that takes blocks, and unpacks it ahead.
    pub fn drive_ahead(&self, sink: &mut AnySink<'_>, doing: &'static str) -> Result<Ending> {
        let Some(reader) = self.one_ahead() else { bail!("there is no stored thread") };
        let mut sink = Progress::new(sink, self.input.as_ref().and_then(Input::insns), doing);
        let file = self.args.file().map(|file| file.display().to_string()).unwrap_or_default();
        ahead::drive(reader, &mut sink).context(file)?;
        sink.into_answer();
        Ok(Ending::Good)
    }

    /// Tells all of it to a sink; `doing` says what for.
    pub fn drive(mut self, sink: &mut AnySink<'_>, doing: &'static str) -> Result<Ending> {
        let args = self.args;
        if let Some(input) = &mut self.input {
            let mut sink = Progress::new(sink, input.insns(), doing);
            input.drive(&Part { order: Order::ByTime, ..Part::default() }, &mut sink)?;
            sink.into_answer();
            return Ok(Ending::Good);
        }
        let live = match &args.output {
            None => {
                let mut sink = Progress::new(sink, None, doing);
                let live =
                    args.live.run(args.collector(), &args.command, Values::Omit, &mut sink)?;
                sink.into_answer();
                live
            }
            Some(path) => {
                let file = TraceFile::new(path.clone(), args.write.options());
                let mut sink = Progress::new(Both(Tee::new(file, sink)), None, doing);
                let live =
                    args.live.run(args.collector(), &args.command, Values::Omit, &mut sink)?;
                sink.into_answer();
                live
            }
        };
        if let Some(why) = live.cut_short {
            eprintln!("ichnos: {why}; what ran until then is answered for");
        }
        Ok(live.ending)
    }
}
