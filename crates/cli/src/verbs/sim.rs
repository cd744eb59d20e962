//! `ichnos sim`: a trace, or a running program, through caches, TLBs and branch
//! predictors; one machine, or many caches at once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Result, bail};
use ichnos_base::{Sink, ThreadId, Totals};
use ichnos_collect_rv64::Speed;
use ichnos_model::{Caches, Grid, HierarchyConfig, Hints, Machine, Sharing, Sweep, Windowed};
use ichnos_report::{Rows, estimate_table, machine_table, machine_text, sweep_table};

use crate::answer::{self, Answer, FormatArgs, Stage};
use crate::count;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::hierarchy::HierarchyArgs;
use crate::profiling::{self, Profiling};
use crate::sampling::{self, Plan, Sampled, Start};
use crate::simulation::{Breakdown, Simulation};
use crate::subject::{Subject, SubjectArgs};

/// Run a trace, or a program, through caches.
///
/// A cache is SIZE,WAYS,LINE and further words: lru, plru, fifo, random, nru,
/// srrip, brrip, drrip; modulo, xor, skewed; write-back, write-through;
/// allocate, no-allocate; inclusive, exclusive, non-inclusive; victim=LINES,
/// sectors=N, 3c; next-line, stride, stream, best-offset.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos sim -- ls /usr/share
  ichnos sim --machine zen3 --tlb --branch tage ls.ichnos
  ichnos sim --l1d 32K,8,64,plru --l2 2M,16,64,3c --l3 none ls.ichnos
  ichnos sim --sweep l1d.size=8K..1M,l1d.ways=1,2,4,8 --csv ls.ichnos
  ichnos sim --sample 1M:10K:50K big.ichnos
  ichnos sim --profile prog.profile -- ./prog.riscv && ichnos annotate prog.profile
  ichnos sim --sample 1G:10M:100M --apart huge.ichnos
  ichnos sim --model ./libmine.so:64K -- ls
  ichnos sim --by time=100K --json ls.ichnos | jq '.by_time[0]'")]
pub struct Args {
    #[command(flatten)]
    hierarchy: HierarchyArgs,
    /// Many caches in one pass: every combination of these values, such as
    /// l1d.size=8K..1M,l1d.ways=1,2,4,8. Levels behind those named are left out, unless they are
    /// given.
    #[arg(long, value_name = "FIELD=VALUES,...", conflicts_with_all = ["by", "warmup", "tlb", "branch", "per_core"])]
    sweep: Option<String>,
    /// Do not count the first so many instructions of all threads together, which only warm the
    /// models.
    #[arg(long, value_name = "COUNT", value_parser = count::count)]
    warmup: Option<u64>,
    /// Simulate only LENGTH of every PERIOD instructions, after a warm-up of WARMUP, and estimate
    /// miss ratios with their 95 % confidence intervals.
    #[arg(long, value_name = "PERIOD:LENGTH[:WARMUP]", value_parser = Plan::parse, conflicts_with_all = ["by", "warmup", "sweep", "per_core"])]
    sample: Option<Plan>,
    /// Begin each sample with empty models, instead of what the sample before left in them. Samples of
    /// a stored thread are then simulated on all processors, and what lies between them is not
    /// read; a warm-up too short to fill the models shows as too many misses.
    #[arg(long, requires = "sample")]
    apart: bool,
    /// Break the caches' counts down: thread, region (what is mapped at the address) or time=COUNT
    /// (every so many instructions); may be given twice to add time to another.
    #[arg(long, value_name = "WHAT", value_parser = by)]
    by: Vec<By>,
    /// Profile a riscv64 program at the speed of generated code: executions, misses of caches and
    /// TLB and, with --branch, mispredictions of every instruction go into this file, for
    /// `annotate`. Without --tlb the TLB has 64 entries for code and data, replaced in turn.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["by", "warmup", "sweep", "sample", "file", "output"])]
    profile: Option<PathBuf>,
    /// Interpret a profiled program instead of generating code.
    #[arg(long, requires = "profile")]
    interpret: bool,
    /// A model of your own: a shared library with the interface of ichnos_model.h, and what it is
    /// given to read; may be given several times.
    #[arg(long = "model", value_name = "LIB[:ARGS]", conflicts_with_all = ["sweep", "sample"])]
    models: Vec<String>,
    /// Use at most so many processors [default: all]; the answer does not depend on it.
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    subject: SubjectArgs,
    /// Show each core's caches in rows of their own.
    #[arg(long)]
    per_core: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// What counts are broken down by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Thread,
    Region,
    Time(NonZeroU64),
}

fn by(text: &str) -> Result<By, String> {
    match (text, text.split_once('=')) {
        ("thread", _) => Ok(By::Thread),
        ("region", _) => Ok(By::Region),
        (_, Some(("time", window))) => {
            let window = NonZeroU64::new(count::count(window)?);
            window.map(By::Time).ok_or_else(|| "a window of no instructions never ends".into())
        }
        _ => Err("expected thread, region or time=COUNT".into()),
    }
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    if args.hierarchy.wants_list() {
        list(args.format)?;
        return Ok(Ending::Good);
    }
    let (breakdown, window) = args.breakdown()?;
    if let Some(text) = &args.sweep {
        return sweep(&args, text);
    }
    if let Some(path) = &args.profile {
        return profile(&args, path);
    }
    if let Some(plan) = args.sample {
        return sample(&args, plan);
    }
    let mut models = Simulation::new(&args.hierarchy.models()?, breakdown)?;
    models.add_users(&args.models)?;
    let subject = args.subject.open("sim")?;
    let ending = match (args.warmup.and_then(NonZeroU64::new), window) {
        (None, None) => simulate(subject, &mut models, args.jobs())?,
        (None, Some(window)) => {
            let mark = |models: &mut &mut Simulation, _| models.mark();
            let mut sink = Erase(Windowed::new(&mut models, window, mark));
            subject.drive(&mut sink, "simulating")?
        }
        (Some(warmup), _) => warmed(subject, &mut models, warmup)?,
    };
    let rows = if args.per_core { Rows::EachCore } else { Rows::Together };
    models.answer(rows).print(args.format, args.subject.stage())?;
    Ok(ending)
}

impl Args {
    fn jobs(&self) -> NonZeroUsize {
        self.jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }

    /// The breakdown of counts, and the window of time, if any.
    fn breakdown(&self) -> Result<(Breakdown, Option<NonZeroU64>)> {
        let (mut breakdown, mut window) = (Breakdown::None, None);
        for by in &self.by {
            match by {
                By::Time(length) if window.is_none() => window = Some(*length),
                By::Thread if breakdown == Breakdown::None => breakdown = Breakdown::Thread,
                By::Region if breakdown == Breakdown::None => breakdown = Breakdown::Region,
                _ => bail!("--by: at most one of thread and region, and one time=COUNT"),
            }
        }
        if self.warmup.is_some() && window.is_some() {
            bail!(
                "--warmup and --by time=COUNT do not go together: the first windows are the warm-up"
            );
        }
        Ok((breakdown, window))
    }
}

/// Simulates, each model beside the others and beside the source where it may. Of a stored
/// thread, chunks are unpacked ahead where the models take blocks.
fn simulate(subject: Subject<'_>, models: &mut Simulation, jobs: NonZeroUsize) -> Result<Ending> {
    if jobs.get() > 1 && models.takes_blocks() && subject.one_ahead().is_some() {
        return subject.drive_ahead(&mut Erase(models), "simulating");
    }
    // What a live program need not tell costs less than a thread to tell it to.
    let sifted = subject.is_live() && models.sieve().is_some();
    let parallel = if sifted { None } else { models.split(jobs) };
    let Some(parallel) = parallel else {
        return subject.drive(&mut Erase(models), "simulating");
    };
    let mut sink = Erase(parallel);
    let ending = subject.drive(&mut sink, "simulating");
    models.join(sink.0);
    ending
}

/// Simulates with the counts beginning behind a warm-up.
fn warmed(subject: Subject<'_>, models: &mut Simulation, warmup: NonZeroU64) -> Result<Ending> {
    let mut begun = None;
    let mut total = 0;
    let end = |models: &mut &mut Simulation, instructions: u64| {
        total = instructions;
        if begun.is_none() && instructions >= warmup.get() {
            begun = Some(instructions);
            models.end_warmup();
        }
    };
    let ending = subject.drive(&mut Erase(Windowed::new(models, warmup, end)), "simulating")?;
    if begun.is_none_or(|begun| begun == total) {
        bail!("--warmup: there are only {total} instructions, so none is left to count");
    }
    Ok(ending)
}

fn profile(args: &Args, path: &Path) -> Result<Ending> {
    let models = Profiling::new(&args.hierarchy.profile_models()?)?;
    let (live, command) = args.subject.program();
    let speed = if args.interpret { Speed::Interpreted } else { Speed::Generated };
    let (ending, profile, mut models) = live.profile(command, (models, speed))?;
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    profiling::store(path, &models.finish(&profile, words.join(" ")))?;
    let rows = if args.per_core { Rows::EachCore } else { Rows::Together };
    models.answer(rows).print(args.format, args.subject.stage())?;
    Ok(ending)
}

fn sample(args: &Args, plan: Plan) -> Result<Ending> {
    let models = args.hierarchy.models()?;
    let fresh = || Simulation::new(&models, Breakdown::None);
    let plan = plan.starting(if args.apart { Start::Empty } else { Start::Stale });
    let subject = args.subject.open("sim")?;
    let (ending, taken) = match subject.one_thread().filter(|_| args.apart) {
        Some(reader) => (Ending::Good, sampling::apart(reader, plan, args.jobs(), fresh)?),
        None => {
            let mut sink = Sampled::new(&fresh, plan)?;
            let ending = subject.drive(&mut sink, "simulating")?;
            (ending, sink.into_taken())
        }
    };
    let (seen, samples) = (taken.seen, taken.samples.len() as u64);
    if samples == 0 {
        bail!("--sample: there are only {seen} instructions, too few for a sample");
    }
    let measured = samples * plan.length();
    let headline =
        format!("{seen} instructions, of which {measured} measured in {samples} samples");
    let mut answer = Answer::new(headline);
    answer.fact("instructions", seen).fact("measured", measured).fact("samples", samples);
    answer.table("estimates", "", estimate_table(&taken.samples));
    answer.print(args.format, args.subject.stage())?;
    Ok(ending)
}

/// Prints the known machines.
fn list(format: FormatArgs) -> Result<()> {
    let machines = Machine::all();
    if format.is_text() {
        return answer::out(&machine_text(&machines));
    }
    let mut answer = Answer::default();
    answer.table("machines", "", machine_table(&machines));
    answer.print(format, Stage::Free)
}

fn sweep(args: &Args, text: &str) -> Result<Ending> {
    let grid = Grid::parse(text)?;
    let mut base = args.hierarchy.models()?.caches;
    if !args.hierarchy.says_levels() {
        leave_out_unnamed(&mut base, &grid);
    }
    let points = grid.points(&base)?;
    let subject = args.subject.open("sim")?;
    let mut configs: Vec<_> = points.iter().map(|point| point.config.clone()).collect();
    ease(&mut configs, &subject.promised());
    let mut sink = Erase(Sweep::new(&configs, args.jobs())?);
    let ending = subject.drive(&mut sink, "simulating")?;
    let one_pass = sink.0.is_one_pass();
    let results = sink.0.into_results();
    let caches = if points.len() == 1 { "configuration" } else { "configurations" };
    let mut answer = Answer::new(format!("{} {caches}", points.len()));
    answer.fact("configurations", points.len()).fact("one_pass", one_pass);
    answer.table("sweep", "", sweep_table(&grid, &points, &results));
    answer.print(args.format, args.subject.stage())?;
    Ok(ending)
}

/// Leaves out the levels behind the last one that a sweep names, and the other
/// side of that one: what the rest counts does not depend on them.
fn leave_out_unnamed(base: &mut HierarchyConfig, grid: &Grid) {
    let named = |name: &str| grid.axes.iter().any(|axis| axis.field.starts_with(name));
    let Some(last) = base.levels.iter().rposition(|level| named(&level.name)) else { return };
    base.levels.truncate(last + 1);
    let Some(level) = base.levels.last_mut().filter(|_| last == 0) else { return };
    let [code, data] = ["i.", "d."].map(|side| named(&format!("{}{side}", level.name)));
    level.caches = match level.caches.clone() {
        Caches::Split { data, .. } if !code => Caches::Data(data),
        Caches::Split { code, .. } if !data => Caches::Code(code),
        both => both,
    };
}

/// Puts equivalent settings in place of those that the one-pass method does not
/// know, where the trace shows beforehand that they make no difference: one
/// thread's private caches may as well be shared, and without prefetch and flush
/// instructions these may as well be ignored.
fn ease(configs: &mut [HierarchyConfig], promised: &[(ThreadId, Totals)]) {
    let one_thread = promised.len() == 1;
    let hints = promised.iter().any(|(_, totals)| totals.prefetches + totals.flushes > 0);
    for config in configs {
        if one_thread {
            config.levels.iter_mut().for_each(|level| level.sharing = Sharing::Shared);
        }
        if !promised.is_empty() && !hints {
            config.hints = Hints::Ignore;
        }
    }
}
