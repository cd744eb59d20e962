//! `ichnos info`: what is in a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread::available_parallelism;

use anyhow::Result;
use ichnos_analyze::inventory::{Inventory, Share};
use ichnos_base::{DriveError, Sink};
use ichnos_convert::{Format, ReadOptions};
use ichnos_replay::{Piece, Replay};
use ichnos_trace::{Error, Reader};
use serde_json::Value;

use crate::answer::out;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::input::{Input, Part, finish};
use crate::progress::Progress;

/// Say what is in a trace.
///
/// Counts of instructions, loads, stores and branches, in all and per thread;
/// images, system calls, memory touched, the hottest instructions, and how many
/// bits of file an instruction takes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  ichnos info ls.ichnos\n  ichnos info --json ls.ichnos | jq .instructions"
)]
pub struct Args {
    /// The trace: an .ichnos file, or any format that `convert` reads.
    file: PathBuf,
    /// The format, where contents and name do not tell it.
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// How many of the hottest instructions to list.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let mut input = Input::open(&args.file, args.from, &ReadOptions::default())?;
    let complete = !input.unfinished();
    let bytes = input.bytes()?;
    let place = args.file.display().to_string();
    let stock = Inventory::with_totals(input.promised());
    let mut sink = Progress::new(Erase(stock), input.insns(), "reading");
    match input.reader() {
        Some(reader) => finish(by_chunks(reader, &mut sink), &place)?,
        None => input.drive(&Part::default(), &mut sink)?,
    }
    let stock = sink.into_inner().0.into_stock(args.top);
    if args.json {
        let mut info = ichnos_report::info_json(&stock, Some(bytes));
        info["complete"] = Value::Bool(complete);
        out(&format!("{info}\n"))?;
    } else {
        out(&ichnos_report::info_text(&stock, Some(bytes)))?;
        if !complete {
            out("\nThe file ends early: its writer was stopped. All that is listed is whole.\n")?;
        }
    }
    Ok(Ending::Good)
}

/// Takes stock of a stored trace, a chunk on each processor.
fn by_chunks(
    reader: &Reader,
    sink: &mut Progress<Erase<Inventory>>,
) -> Result<(), DriveError<Error, anyhow::Error>> {
    reader.about().with(|about| sink.begin(about)).map_err(DriveError::Sink)?;
    let jobs = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let found = |piece: &Piece, share: Share| (*piece, share);
    let add = |(piece, share): (Piece, Share)| {
        let come = piece.first_insn + piece.totals.insns;
        sink.come(piece.thread, come).0.add(share);
        true
    };
    let done = Replay::new(reader).map_chunks_in_order(jobs, |_| Share::new(), found, add);
    done.map_err(|error| match error {
        DriveError::Source(error) => DriveError::Source(error),
        DriveError::Sink(never) => match never {},
    })
}
