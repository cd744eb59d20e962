//! `ichnos dump`: a trace's records and events in words.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use ichnos_base::{Sink, ThreadId};
use ichnos_convert::{Compression, Format, ReadOptions, WriteOptions};
use ichnos_replay::Order;
use ichnos_report::{DumpJson, DumpLackey, DumpText};

use crate::count;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::input::{Input, Part};
use crate::names::Names;

/// Print a trace's records and events.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos dump --symbols ls.ichnos | less
  ichnos dump --format jsonl --thread 1 --range 1M..1001K server.ichnos")]
pub struct Args {
    /// The trace: an .ichnos file, or any format that `convert` reads.
    file: PathBuf,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Shape::Text)]
    format: Shape,
    /// The input's format, where contents and name do not tell it.
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Only this thread; may be given several times.
    #[arg(long, value_name = "ID")]
    thread: Vec<u32>,
    /// Only these instructions of each thread: A..B, counted from 0.
    #[arg(long, value_name = "RANGE", value_parser = count::range)]
    range: Option<Range<u64>>,
    /// Name functions and source lines (text and jsonl).
    #[arg(long)]
    symbols: bool,
    /// Mix the threads in order of time instead of one after the other.
    #[arg(long)]
    by_time: bool,
}

/// How records are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Shape {
    /// A line a record, for people.
    Text,
    /// A JSON object a line.
    Jsonl,
    /// As Valgrind's lackey prints.
    Lackey,
    /// Dinero's text.
    Din,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let mut input = Input::open(&args.file, args.from, &ReadOptions::default())?;
    let part = Part {
        threads: args.thread.iter().copied().map(ThreadId).collect(),
        insns: args.range.clone(),
        order: if args.by_time { Order::ByTime } else { Order::ByThread },
    };
    let out = BufWriter::with_capacity(1 << 16, std::io::stdout());
    match (args.format, args.symbols) {
        (Shape::Text, false) => print(&mut input, &part, DumpText::new(out))?,
        (Shape::Text, true) => {
            let names = names(&mut input, &part)?;
            print(&mut input, &part, DumpText::with_symbols(out, names))?;
        }
        (Shape::Jsonl, false) => print(&mut input, &part, DumpJson::new(out))?,
        (Shape::Jsonl, true) => {
            let names = names(&mut input, &part)?;
            print(&mut input, &part, DumpJson::with_symbols(out, names))?;
        }
        (Shape::Lackey, _) => print(&mut input, &part, DumpLackey::new(out))?,
        (Shape::Din, _) => {
            let out: Box<dyn Write + Send> = Box::new(out);
            let options = WriteOptions::default();
            let sink = ichnos_convert::writer_sink(Format::Din, out, Compression::None, &options)?;
            print(&mut input, &part, sink)?;
        }
    }
    Ok(Ending::Good)
}

/// Names that know what is mapped where the part begins.
fn names(input: &mut Input, part: &Part) -> Result<Names> {
    let mut names = Erase(Names::new());
    input.drive_before(part, &mut names)?;
    Ok(names.0)
}

fn print<S>(input: &mut Input, part: &Part, sink: S) -> Result<()>
where
    S: Sink,
    S::Error: Into<anyhow::Error>,
{
    input.drive(part, &mut Erase(sink))
}
