//! `ichnos check`: does the trace keep every rule?
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use anyhow::Result;
use ichnos_analyze::check::{Checker, Config, Extent, Order as Told};
use ichnos_convert::ReadOptions;
use ichnos_replay::Order;

use crate::answer::out;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::input::{Input, Part};
use crate::progress::Progress;

/// Check a trace against every rule that a true trace obeys.
///
/// Control flow must be continuous, accesses must lie in mapped memory, events
/// must pair, counts must agree with the file's own. Exit status 0 if all rules
/// are kept, 1 if not or if the file ends early, 2 if it cannot be read.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ichnos check ls.ichnos")]
pub struct Args {
    /// The trace.
    file: PathBuf,
    /// How many violations of each rule to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    show: usize,
    /// Print the verdict as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let mut input = Input::open(&args.file, None, &ReadOptions::default())?;
    let unfinished = input.unfinished();
    let extent = if unfinished { Extent::Part } else { Extent::Whole };
    let config = Config { extent, order: Told::Time, keep_per_rule: args.show };
    let mut checker = Checker::new(config);
    for (thread, totals) in input.promised() {
        checker.expect(thread, totals);
    }
    let mut sink = Progress::new(Erase(checker), input.insns(), "checking");
    input.drive(&Part { order: Order::ByTime, ..Part::default() }, &mut sink)?;
    let verdict = sink.into_inner().0.into_verdict();
    let clean = verdict.is_clean() && !unfinished;
    if args.json {
        let mut json = ichnos_report::verdict_json(&verdict);
        json["complete"] = (!unfinished).into();
        json["clean"] = clean.into();
        out(&format!("{json}\n"))?;
    } else {
        let said = verdict.to_string();
        // What is whole may keep all rules; the file is still not what its writer meant it to be.
        let said = match said.strip_prefix("clean: ").filter(|_| unfinished) {
            Some(kept) => format!("ends early: {kept}"),
            None => said,
        };
        out(&format!("{}: {said}\n", args.file.display()))?;
    }
    Ok(if clean { Ending::Good } else { Ending::Found })
}
