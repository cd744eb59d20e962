//! `ichnos annotate`: costs by function, source line and instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use ichnos_analyze::profile::Gathered;
use ichnos_report::annotate::{Order, all_insns_table, function_table, line_table};
use ichnos_report::{Positions, Subject, Table, write_cachegrind, write_callgrind};
use serde_json::{Map, Value};

use crate::annotation::{Annotated, Annotation, Keep};
use crate::answer::{Answer, FormatArgs};
use crate::charge::Charge;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::hierarchy::{HierarchyArgs, describe};
use crate::profile;
use crate::subject::SubjectArgs;

/// Say which functions, lines and instructions cost what.
///
/// Columns are named as cachegrind names them: Ir, Dr and Dw are instructions,
/// loads and stores; I1mr, D1mr and D1mw their misses in the first level, I2mr
/// and so on in the second, ILmr and so on in the last. --tlb adds ITm and DTm
/// (first-level TLB misses) and ITw and DTw (page walks) of code and data;
/// --branch adds Bc, Bi and Rt (conditional branches, indirect jumps and calls,
/// returns) and Bcm, Bim and Rtm (those mispredicted).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos annotate -- ls /usr/share
  ichnos annotate --lines --sort D1mr --top 10 ls.ichnos
  ichnos annotate --lines prog.profile
  ichnos annotate --function main --insns --branch tage ls.ichnos
  ichnos annotate --cachegrind --cachegrind-out cg.out ls.ichnos && cg_annotate cg.out")]
pub struct Args {
    #[command(flatten)]
    hierarchy: HierarchyArgs,
    #[command(flatten)]
    subject: SubjectArgs,
    /// The column that decides the order.
    #[arg(long, value_name = "COLUMN", default_value = "Ir")]
    sort: String,
    /// Only these columns, parted by commas.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    show: Vec<String>,
    /// Only functions whose name contains this.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// At most so many rows of each table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Show source lines, too.
    #[arg(long)]
    lines: bool,
    /// Show instructions, too: the costliest or, with --function, all of it in order.
    #[arg(long)]
    insns: bool,
    /// Names for a stored profile: an image that ran at its own addresses (a kernel's vmlinux), a
    /// flat kernel that names its functions itself, or lines of address, type and name (System.map,
    /// /proc/kallsyms); may be repeated. The kernel of `boot --profile` need not be named.
    #[arg(long, value_name = "FILE")]
    symbols: Vec<PathBuf>,
    /// Write a file for cg_annotate.
    #[arg(long, value_name = "FILE")]
    cachegrind_out: Option<PathBuf>,
    /// Write a file for callgrind_annotate and KCachegrind.
    #[arg(long, value_name = "FILE")]
    callgrind_out: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    if args.hierarchy.wants_list() {
        bail!("--machine list: ask `ichnos sim --machine list`");
    }
    if let Some(path) = args.subject.file().filter(|path| profile::is_profile(path)) {
        return stored(&args, path);
    }
    let models = args.hierarchy.models()?;
    let charge = Charge::new(&models)?;
    check_columns(&args, &ichnos_analyze::profile::Observer::columns(&charge))?;
    let keep = if args.insns { Keep::CostsAndCode } else { Keep::Costs };
    let mut sink = Erase(Annotation::new(charge, keep));
    let ending = args.subject.open("annotate")?.drive(&mut sink, "annotating")?;
    let annotated = sink.0.into_annotated();
    let notes = describe(&models);
    export(&args, &annotated, &notes)?;
    answer(&args, &annotated)?.print(args.format, args.subject.stage())?;
    Ok(ending)
}

/// A profile that `sim --profile` or `boot --profile` stored.
fn stored(args: &Args, path: &Path) -> Result<Ending> {
    let (annotated, notes) = profile::read(path, &args.symbols)?;
    check_columns(args, &annotated.all.columns)?;
    export(args, &annotated, &notes)?;
    answer(args, &annotated)?.print(args.format, args.subject.stage())?;
    Ok(Ending::Good)
}

/// Columns that there are not are an error before the work, not after it.
fn check_columns(args: &Args, columns: &[String]) -> Result<()> {
    let known = columns.join(", ");
    let unknown = |name: &&String| !columns.contains(name);
    let lacking = |flag: &str, name: &str| match giver(name) {
        Some(giver) => {
            anyhow!("{flag}: only {giver} gives the column \"{name}\"; there are {known}")
        }
        None => anyhow!("{flag}: there is no column called \"{name}\"; there are {known}"),
    };
    if let Some(name) = args.show.iter().find(unknown) {
        return Err(lacking("--show", name));
    }
    if unknown(&&args.sort) {
        return Err(lacking("--sort", &args.sort));
    }
    Ok(())
}

/// The flag without which there is no such column.
fn giver(column: &str) -> Option<&'static str> {
    match column {
        "ITm" | "DTm" | "ITw" | "DTw" => Some("--tlb"),
        "Bc" | "Bi" | "Rt" | "Bcm" | "Bim" | "Rtm" => Some("--branch"),
        _ => None,
    }
}

fn export(args: &Args, annotated: &Annotated, notes: &[String]) -> Result<()> {
    let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
    let subject = Subject { command: &annotated.command, notes: &notes };
    if let Some(path) = &args.cachegrind_out {
        write(path, |out| Ok(write_cachegrind(out, &subject, &annotated.all)?))?;
    }
    if let Some(path) = &args.callgrind_out {
        let positions = if args.insns { Positions::Insns } else { Positions::Lines };
        write(path, |out| Ok(write_callgrind(out, &subject, &annotated.all, positions)?))?;
    }
    Ok(())
}

fn write(path: &Path, work: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let place = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(place)?);
    work(&mut out).with_context(place)?;
    out.flush().with_context(place)
}

fn answer(args: &Args, annotated: &Annotated) -> Result<Answer> {
    let mut all = annotated.all.clone();
    if let Some(part) = &args.function {
        all.functions.retain(|key, _| key.function.contains(part.as_str()));
        if all.functions.is_empty() {
            bail!("--function: nothing that ran has a name with \"{part}\" in it");
        }
    }
    if !args.show.is_empty() {
        select(&mut all, &args.show, &args.sort);
    }
    let column = all.columns.iter().position(|name| *name == args.sort).unwrap_or(0);
    let order = Order { column, rows: args.top };
    let mut answer = Answer::new(totals_text(&all));
    answer.fact("totals", totals(&annotated.all));
    answer.table("functions", "", function_table(&all, order));
    if args.lines {
        answer.table("lines", "", line_table(&all, order));
    }
    if args.insns {
        answer.table("insns", "", insns(args, annotated, &all, order));
    }
    Ok(answer)
}

fn insns(args: &Args, annotated: &Annotated, all: &Gathered, order: Order) -> Table {
    let rows = if args.function.is_some() { usize::MAX } else { order.rows };
    all_insns_table(all, Order { rows, ..order }, |site| annotated.text(site.pc))
}

fn totals(all: &Gathered) -> Value {
    let pairs = all.columns.iter().cloned().zip(&all.total);
    Value::Object(pairs.map(|(name, total)| (name, (*total).into())).collect::<Map<_, _>>())
}

fn totals_text(all: &Gathered) -> String {
    let pairs = all.columns.iter().zip(&all.total);
    let words: Vec<_> = pairs
        .map(|(name, total)| format!("{name} {}", ichnos_report::number::thousands(*total)))
        .collect();
    format!("{}\n", words.join("  "))
}

/// Leaves only the columns to be shown, and the one that decides the order.
fn select(all: &mut Gathered, show: &[String], sort: &str) {
    let wanted: Vec<usize> = (0..all.columns.len())
        .filter(|&at| show.contains(&all.columns[at]) || all.columns[at] == sort)
        .collect();
    let pick = |costs: &[u64]| -> Vec<u64> {
        wanted.iter().map(|&at| costs.get(at).copied().unwrap_or(0)).collect()
    };
    all.columns = wanted.iter().map(|&at| all.columns[at].clone()).collect();
    all.total = pick(&all.total);
    for row in all.functions.values_mut() {
        row.costs = pick(&row.costs);
        row.lines.values_mut().for_each(|costs| *costs = pick(costs));
        row.insns.values_mut().for_each(|costs| *costs = pick(costs));
    }
}
