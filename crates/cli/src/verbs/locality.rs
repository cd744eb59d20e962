//! `ichnos locality`: what a reference stream is like before any cache is
//! chosen.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::{Result, bail};
use ichnos_model::{CacheConfig, Optimal, Phases, PhasesConfig, References};
use ichnos_report::{
    Sizes, curve_table, mix_table, number, optimal_table, phase_table, reuse_table, stride_table,
    working_set_table,
};

use crate::answer::{Answer, FormatArgs};
use crate::count;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::locality_models::{Locality, Wanted};
use crate::subject::SubjectArgs;

/// Show the locality of a trace, or of a program.
///
/// The miss ratios of fully associative LRU caches of all sizes, the reuse
/// distances behind them, the working set over time, how loads and stores move
/// from one execution to the next, the instruction mix and, on request, phases
/// and the fewest misses that any replacement could have.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos locality -- ls /usr/share
  ichnos locality --show curve --all-sizes --csv ls.ichnos
  ichnos locality --shards 100 --references all ls.ichnos
  ichnos locality --show optimal --optimal 32K,8,64 --optimal 32K,512,64 ls.ichnos
  ichnos locality --show phases --phases 100K --json ls.ichnos | jq .phases")]
pub struct Args {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Only these, parted by commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_enum)]
    show: Vec<Part>,
    /// Bytes a line.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    line: u32,
    /// Which references count for curve, reuse distances and working set.
    #[arg(long, value_enum, default_value_t = Which::Data)]
    references: Which,
    /// Estimate the curve from one line in N instead of measuring all distances: far less memory
    /// and time, no histogram, and no sizes below N lines.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    shards: Option<u32>,
    /// With --shards, never watch more than this many lines at once.
    #[arg(long, value_name = "LINES", default_value_t = 16384, requires = "shards", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    shards_most: u32,
    /// The fewest misses that any replacement could have (Belady) in such a cache, beside LRU's; may
    /// be given several times. It takes the references that --references says, of all threads
    /// together.
    #[arg(long, value_name = "SIZE,WAYS,LINE[,xor]")]
    optimal: Vec<String>,
    /// With --optimal, stop at so many references, not counting those to the line of the one before;
    /// each takes nine bytes of memory, for each cache.
    #[arg(long, value_name = "COUNT", default_value = "100M", value_parser = count::some, requires = "optimal")]
    optimal_most: u64,
    /// List every size at which the curve changes, not only doublings.
    #[arg(long)]
    all_sizes: bool,
    /// Instructions a window of the working set.
    #[arg(long, value_name = "COUNT", default_value = "100K", value_parser = count::some)]
    window: u64,
    /// Find phases among intervals of so many instructions, and simulation points that stand for
    /// them.
    #[arg(long, value_name = "COUNT", value_parser = count::some)]
    phases: Option<u64>,
    /// The most phases [default: 30, or the square root of the number of intervals if less].
    #[arg(long, value_name = "N", requires = "phases")]
    most_phases: Option<u32>,
    /// How many accesses the stride profile lists.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    format: FormatArgs,
}

/// What can be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Part {
    /// Miss ratios by size.
    Curve,
    /// The histogram of reuse distances.
    Reuse,
    /// The fewest possible misses (with --optimal).
    Optimal,
    /// The working set over time.
    WorkingSet,
    /// How accesses move.
    Strides,
    /// The instruction mix.
    Mix,
    /// Phases and simulation points (with --phases).
    Phases,
}

/// Which references count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Which {
    /// Loads and stores.
    Data,
    /// Instruction fetches.
    Code,
    /// Both.
    All,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let mut sink = Erase(Locality::new(&args.wanted()?)?);
    let ending = args.subject.open("locality")?.drive(&mut sink, "measuring")?;
    answer(&args, sink.0).print(args.format, args.subject.stage())?;
    Ok(ending)
}

impl Args {
    fn shows(&self, part: Part) -> bool {
        match part {
            // A sample has no histogram, and phases need to know how long an interval is.
            Part::Reuse if self.shards.is_some() => false,
            Part::Phases if self.phases.is_none() => false,
            Part::Optimal if self.optimal.is_empty() => false,
            _ => self.show.is_empty() || self.show.contains(&part),
        }
    }

    fn wanted(&self) -> Result<Wanted> {
        if self.show.contains(&Part::Phases) && self.phases.is_none() {
            bail!("--show phases needs --phases COUNT, the length of an interval");
        }
        if self.show.contains(&Part::Reuse) && self.shards.is_some() {
            bail!("--show reuse: a sample (--shards) has no histogram");
        }
        if self.show.contains(&Part::Optimal) && self.optimal.is_empty() {
            bail!("--show optimal needs --optimal SIZE,WAYS,LINE, the cache");
        }
        let distances = self.shows(Part::Curve) || self.shows(Part::Reuse);
        Ok(Wanted {
            line: self.line,
            references: match self.references {
                Which::Data => References::Data,
                Which::Code => References::Code,
                Which::All => References::All,
            },
            exact: distances && self.shards.is_none(),
            sample: self.shards.filter(|_| distances).map(|one_in| (one_in, self.shards_most)),
            optimal: (self.caches()?, usize::try_from(self.optimal_most).unwrap_or(usize::MAX)),
            window: self.shows(Part::WorkingSet).then_some(self.window),
            strides: self.shows(Part::Strides),
            mix: self.shows(Part::Mix),
            interval: self.phases.filter(|_| self.shows(Part::Phases)),
        })
    }
}

impl Args {
    /// The caches of which the fewest misses are wanted.
    fn caches(&self) -> Result<Vec<CacheConfig>> {
        if !self.shows(Part::Optimal) {
            return Ok(Vec::new());
        }
        let cache = |text: &String| {
            let cache = CacheConfig::parse("--optimal", text)?;
            let geometry = CacheConfig {
                placement: cache.placement,
                ..CacheConfig::new(cache.size, cache.ways, cache.line)
            };
            if cache != geometry {
                bail!(
                    "--optimal: only size, ways, line and the words modulo and xor mean something here, got \"{text}\""
                );
            }
            Ok(cache)
        };
        self.optimal.iter().map(cache).collect()
    }
}

fn answer(args: &Args, mut found: Locality) -> Answer {
    let mut answer = Answer::default();
    answer.fact("line", args.line);
    curve(args, &found, &mut answer);
    if args.shows(Part::Optimal) {
        let reports: Vec<_> = found.optimal.iter().map(Optimal::report).collect();
        let named = args.optimal.iter().map(String::as_str).zip(&reports);
        answer.table("optimal", "Fewest possible misses", optimal_table(named));
        if reports.iter().any(|report| report.cut) {
            answer.note("Cut short by --optimal-most: later references were not looked at.\n");
        }
    }
    if let Some(set) = &found.working_set {
        let lines = set.footprint() as u64;
        let bytes = number::bytes(lines.saturating_mul(u64::from(args.line)));
        let title = format!("Working set (footprint {} lines, {bytes})", number::thousands(lines));
        answer.fact("footprint_lines", lines);
        answer.table("working_set", &title, working_set_table(&set.points(), args.line));
    }
    if let Some(strides) = &found.strides {
        let mut reports = strides.report();
        answer.fact("accesses_profiled", reports.len());
        reports.truncate(args.top);
        let table = stride_table(&reports, |report| found.images.name_anywhere(report.pc));
        answer.table("strides", "Strides", table);
    }
    if let Some(mix) = &found.mix {
        answer.table("mix", "Instruction mix", mix_table(&mix.report()));
    }
    if let Some(blocks) = &found.blocks {
        // With as many phases as intervals each one is perfect and says nothing.
        let root = (blocks.intervals().len() as f64).sqrt().ceil() as u32;
        let usual = PhasesConfig::default();
        let most = args.most_phases.unwrap_or(usual.most.min(root));
        let config = PhasesConfig { most, ..usual };
        let phases = Phases::find(blocks.intervals(), &config);
        answer.fact("intervals", phases.of_interval.clone());
        answer.fact("blocks", blocks.leaders().len());
        let title = format!("Phases of {} intervals", phases.of_interval.len());
        answer.table("phases", &title, phase_table(&phases, blocks.intervals()));
    }
    answer
}

fn curve(args: &Args, found: &Locality, answer: &mut Answer) {
    let sizes = if args.all_sizes { Sizes::All } else { Sizes::Doublings };
    if let Some(reuse) = &found.reuse {
        let histogram = reuse.histogram();
        answer.fact("references", histogram.references());
        if args.shows(Part::Curve) {
            let table = curve_table(&histogram.curve(), args.line, sizes, 0);
            answer.table("curve", "Miss ratio by size (fully associative, LRU)", table);
        }
        if args.shows(Part::Reuse) {
            answer.table("reuse", "Reuse distances", reuse_table(&histogram));
        }
    }
    if let Some(shards) = &found.sample {
        let title = format!("Miss ratio by size, estimated from {:.4} of the lines", shards.rate());
        answer.fact("sampling_rate", shards.rate());
        let least = shards.resolution();
        answer.fact("least_lines", least);
        answer.table("curve", &title, curve_table(&shards.curve(), args.line, sizes, least));
        if least > 1 {
            let least = number::thousands(least);
            answer.note(&format!("Below {least} lines such a sample tells nothing.\n"));
        }
    }
}
