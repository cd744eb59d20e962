//! `ichnos diff`: where two traces first differ, and how alike they are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};

use anyhow::Result;
use ichnos_analyze::diff::{
    Budget, Depth, Dictionary, Keys, Pairing, Sequences, Tokens, View, first_difference, similarity,
};
use ichnos_replay::Replay;
use ichnos_trace::Reader;

use crate::answer::out;
use crate::count;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::input::Trace;
use crate::progress::Progress;

/// Compare two traces.
///
/// Shows the first difference of each pair of threads and how alike the traces
/// are: 1 less the edit distance over the longer length, for instructions and
/// for calls. Exit status 0 if nothing differs, 1 if something does.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos diff before.ichnos after.ichnos
  ichnos diff --only insns --relocated run1.ichnos run2.ichnos")]
pub struct Args {
    /// The first trace.
    first: PathBuf,
    /// The second trace.
    second: PathBuf,
    /// What is compared for the first difference.
    #[arg(long, value_enum, default_value_t = Only::Events)]
    only: Only,
    /// Pair threads by length instead of by id.
    #[arg(long)]
    by_length: bool,
    /// Take addresses relative to their images when looking for similarity: for runs with
    /// address randomisation.
    #[arg(long)]
    relocated: bool,
    /// Do not work out the similarity.
    #[arg(long)]
    first_only: bool,
    /// Look at no more than this many instructions of each trace for the similarity.
    #[arg(long, value_name = "COUNT", default_value = "100M", value_parser = count::count)]
    limit: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How deep the comparison goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Only {
    /// Instructions.
    Insns,
    /// Instructions, accesses and branches.
    Records,
    /// Records and events, but for clocks and the system's numbers.
    Events,
    /// Events, records and values.
    Values,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let (a, b) = (Trace::open(&args.first)?.reader, Trace::open(&args.second)?.reader);
    let depth = match args.only {
        Only::Insns => Depth::Insns,
        Only::Records => Depth::Records,
        Only::Events => Depth::Events,
        Only::Values => Depth::Values,
    };
    let pairing = if args.by_length { Pairing::ByLength } else { Pairing::ById };
    let found = first_difference(&mut Replay::new(&a), &mut Replay::new(&b), depth, &pairing)?;
    let views = [("instructions", View::Insns), ("calls", View::CallsAndReturns)];
    let mut rows = Vec::new();
    if !args.first_only {
        for (name, view) in views {
            let (sa, sb) = sequences(&args, view, &a, &b)?;
            let (all, threads) = similarity(&sa, &sb, &pairing, &Budget::default());
            rows.push((name, all, threads, sa.cut || sb.cut));
        }
    }
    if args.json {
        let mut json = ichnos_report::comparison_json(&found);
        for (name, all, threads, truncated) in &rows {
            json["similarity"][name] = serde_json::json!({
                "low": all.low(),
                "high": all.high(),
                "truncated": truncated,
                "threads": ichnos_report::similarity_table(all, threads).to_json(),
            });
        }
        out(&format!("{json}\n"))?;
    } else {
        out(&ichnos_report::comparison_text(&found))?;
        for (name, all, threads, truncated) in &rows {
            out(&format!("\nsimilarity of {name}\n"))?;
            out(&ichnos_report::similarity_table(all, threads).to_text())?;
            if *truncated {
                out(&format!("(of the first {} instructions)\n", args.limit))?;
            }
        }
    }
    Ok(if found.is_equal() { Ending::Good } else { Ending::Found })
}

fn sequences(args: &Args, view: View, a: &Reader, b: &Reader) -> Result<(Sequences, Sequences)> {
    let keys = if args.relocated { Keys::Images } else { Keys::Addresses };
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let gather = |path: &Path, reader: &Reader, dictionary| -> Result<_> {
        let tokens = Tokens::new(view, keys, limit, dictionary);
        let mut sink = Progress::new(Erase(tokens), Some(reader.totals().insns), "comparing");
        crate::input::replay(path, Replay::new(reader), &mut sink)?;
        Ok(sink.into_inner().0.into_parts())
    };
    let (sa, dictionary) = gather(&args.first, a, Dictionary::default())?;
    let (sb, _) = gather(&args.second, b, dictionary)?;
    Ok((sa, sb))
}
