//! Running a program under a collector: the one place that chooses which.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use ichnos_base::{DriveError, EndStatus, Isa, Sink};
use ichnos_collect_asm as asm;
use ichnos_collect_exec as exec;
use ichnos_collect_rv64 as rv64;
use ichnos_collect_step as step;
use ichnos_flow::Level;
use ichnos_trace::Provenance;

use crate::choice::ChoiceArgs;
use crate::count;
use crate::exit::Ending;
use crate::interrupt::{self, Interrupt};
use crate::profiling::Profiling;
use crate::switcher::Switcher;

/// How to run a program that is to be traced.
#[derive(Args, Clone, Debug)]
pub struct LiveArgs {
    /// Leave address-space randomisation on; without this, equal runs have equal addresses.
    #[arg(long)]
    aslr: bool,
    /// Hide the vdso from the program: what it would answer (the time, above all) is then asked
    /// of the kernel, by system calls that the trace shows.
    #[arg(long)]
    no_vdso: bool,
    /// Which paths through the program become one piece of code: none, those that are taken often, or, for tests, all that are
    /// taken a few times. The trace is the same (the code cache only).
    #[arg(long, value_name = "WHICH", default_value = "hot")]
    paths: Paths,
    /// Let a program go on untraced from where it cannot be followed, instead of ending it with a message; what
    /// was recorded is kept, and the trace says that the rest is missing (the code cache only).
    #[arg(long)]
    fallback: bool,
    /// How many bytes of translated code a process may have, in each of two places; when they are used up
    /// all is translated anew (the code cache only).
    #[arg(long, value_name = "BYTES", value_parser = count::count)]
    cache: Option<u64>,
    /// Stop after this many instructions of all threads together; the program is then killed
    /// (single stepping only).
    #[arg(long, value_name = "COUNT", value_parser = count::count)]
    limit: Option<u64>,
    /// Where a riscv64 program's interpreter and libraries are looked up first.
    #[arg(long, value_name = "FOLDER")]
    sysroot: Option<PathBuf>,
    /// A riscv64 program that runs beside the first, in turns with it; its words are separated by
    /// blanks. May be repeated.
    #[arg(long, value_name = "PROG ARGS")]
    beside: Vec<String>,
    /// Let a riscv64 program wait for gdb at this loopback port, or at a socket of this path.
    #[arg(long, value_name = "PORT|PATH", value_parser = gdb_at)]
    gdb: Option<rv64::GdbAt>,
    /// What is recorded, if not everything.
    #[arg(skip)]
    choice: ChoiceArgs,
    /// How much is left for replay to work out, for programs built by `ichnos cc`: `flow`, or, for samples,
    /// which are not worth the planning, `superblock`, if nothing is said.
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    opt: Option<Level>,
}

fn level(name: &str) -> Result<Level> {
    let names = Level::ALL.map(Level::name).join(", ");
    Level::from_name(name).with_context(|| format!("there is no level {name}: there are {names}"))
}

/// Which paths through a program become one piece of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Paths {
    /// None.
    Off,
    /// Those that are taken often.
    Hot,
    /// All that are taken a few times.
    Eager,
}

/// Which collector runs an x86-64 program. A riscv64 one always runs in the
/// simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Collector {
    /// Single stepping: slow, and right to the last reference.
    Step,
    /// A code cache inside the program: fast, and all of the program, however it was built.
    Exec,
}

/// A run under the code cache of which nothing is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bare {
    /// The trace is taken from the program and dropped.
    Dropped,
    /// There is no trace.
    Untraced,
}

/// Whether the bytes of loads and stores are collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Addresses only.
    Omit,
    /// The bytes too.
    Collect,
}

/// What a run came to.
pub struct Live {
    /// How the verb ends.
    pub ending: Ending,
    /// Why the trace ends before the program did, if so.
    pub cut_short: Option<&'static str>,
}

type Collected = Result<exec::Outcome, exec::CollectError<anyhow::Error>>;
/// What came of a program that records itself.
type Recorded = Result<asm::Outcome, asm::RecordError<anyhow::Error>>;

impl LiveArgs {
    /// Whether only single stepping can do what is asked for.
    pub const fn needs_stepping(&self) -> bool {
        self.limit.is_some()
    }

    /// Runs `command` and tells everything to `sink`. Without a collector, programs built by `ichnos cc` trace
    /// themselves and others run from the code cache.
    pub fn run<S>(
        &self,
        collector: Option<Collector>,
        command: &[OsString],
        values: Values,
        sink: &mut S,
    ) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        let (program, args) = command.split_first().context("no program is named")?;
        let path = Path::new(program);
        if path.is_file() && rv64::user::is_riscv_program(path) {
            return self.simulate(command, values, sink);
        }
        if self.gdb.is_some() || !self.beside.is_empty() {
            bail!("--gdb and --beside are for riscv64 programs, which {} is not", path.display());
        }
        match collector {
            Some(Collector::Step) => self.step(program, args, values, sink),
            None if is_noted(program) => self.inline(program, args, values, sink),
            Some(Collector::Exec) | None => self.exec(program, args, values, sink),
        }
    }

    fn step<S>(
        &self,
        program: &OsString,
        args: &[OsString],
        values: Values,
        sink: &mut S,
    ) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        let mut config = step::Config::new(program).args(args);
        config.aslr = if self.aslr { step::Aslr::System } else { step::Aslr::Off };
        config.vdso = if self.no_vdso { step::Vdso::Hidden } else { step::Vdso::Shown };
        config.values = match values {
            Values::Omit => step::Values::Omit,
            Values::Collect => step::Values::Collect,
        };
        config.limit = self.limit;
        let interrupt = interrupt::flag()?;
        let collector = step::Collector::new(&config).stop_flag(&interrupt.stop);
        let outcome = collector.run(sink).map_err(either)?;
        let stopped = outcome.ending == step::Ending::Stopped;
        let status = match outcome.status {
            // It was not waited for any more.
            EndStatus::Unknown if stopped => KILLED,
            status => shell_status(status),
        };
        Ok(Live {
            ending: Ending::Program(asked(status, stopped, &interrupt)),
            cut_short: match outcome.ending {
                step::Ending::Stopped => Some("interrupted"),
                step::Ending::Limit => Some("the limit was reached"),
                _ => None,
            },
        })
    }

    fn exec<S>(
        &self,
        program: &OsString,
        args: &[OsString],
        values: Values,
        sink: &mut S,
    ) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        self.refuse_stepping(values)?;
        // Samples and windows choose by what is recorded, so all of it must be.
        let what = match sink.sieve().filter(|_| self.choice.is_all()) {
            Some(sieve) => exec::Record::Sifted(sieve),
            None => exec::Record::All,
        };
        let about = from_cache(program, args);
        self.exec_by((program, args), (what, &about), sink, |tracee, sink, watch| {
            tracee.collect_watched(sink, watch)
        })
    }

    /// Runs a program from the code cache; `collect` brings what it does to the sink.
    pub fn exec_by<S>(
        &self,
        (program, args): (&OsString, &[OsString]),
        (what, about): (exec::Record, &Provenance),
        sink: &mut S,
        collect: impl FnOnce(exec::Tracee, &mut S, exec::Watch<'_>) -> Collected,
    ) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        let name = || program.to_string_lossy().into_owned();
        let tracee = self.launch(program, args, what)?;
        about.with(|about| sink.begin(about))?;
        let interrupt = interrupt::flag()?;
        let mut left_behind = left_behind(program);
        let watch = exec::Watch { stop: &interrupt.stop, left_behind: &mut left_behind };
        let outcome = collect(tracee, sink, watch).map_err(|error| match error {
            exec::CollectError::Sink(e) => e,
            exec::CollectError::Host(e) => anyhow::Error::from(e).context(name()),
            _ => anyhow::anyhow!("{}: the trace cannot be collected", name()),
        })?;
        let status = asked(host_status(outcome.status), outcome.stopped, &interrupt);
        let ending = Ending::Program(status);
        let cut_short = match outcome {
            outcome if outcome.left => {
                Some("packing was interrupted; `ichnos pack` makes the whole")
            }
            outcome => outcome.stopped.then_some("interrupted"),
        };
        Ok(Live { ending, cut_short })
    }

    /// Starts a program in the code cache.
    fn launch(
        &self,
        program: &OsString,
        args: &[OsString],
        what: exec::Record,
    ) -> Result<exec::Tracee> {
        let mut launch = exec::Launch::new(program);
        launch.record(what);
        if let Some(choice) = self.choice.exec()? {
            launch.choose(choice);
        }
        launch.vdso(if self.no_vdso { exec::Vdso::Hidden } else { exec::Vdso::Shown });
        if self.fallback {
            launch.fallback(exec::Fallback::Untraced);
        }
        if let Some(bytes) = self.cache {
            launch.cache_limit(bytes);
        }
        launch.paths(match self.paths {
            Paths::Off => exec::Paths::Off,
            Paths::Hot => exec::Paths::Hot,
            Paths::Eager => exec::Paths::Eager,
        });
        launch.randomize(if self.aslr { exec::Randomize::System } else { exec::Randomize::Off });
        launch.command().args(args);
        launch.spawn().with_context(|| program.to_string_lossy().into_owned())
    }

    /// The function at which the recording begins, if one does.
    pub fn begins_at(&self) -> Option<&str> {
        self.choice.begins_at()
    }

    /// Records not everything but this.
    pub fn choose(&mut self, choice: ChoiceArgs) {
        self.choice = choice;
    }

    /// Refuses to record parts of something.
    pub fn refuse_choice(&self, of: &str) -> Result<()> {
        if !self.choice.is_all() {
            bail!("--sample, --start, --stop, --control and the like: all is recorded of {of}");
        }
        Ok(())
    }

    /// Whether a program is one that `ichnos cc` built, and records itself.
    pub fn runs_inline(&self, collector: Option<Collector>, command: &[OsString]) -> bool {
        let alone = self.gdb.is_none() && self.beside.is_empty();
        collector.is_none() && alone && command.first().is_some_and(is_noted)
    }

    /// Whether a program is run from the code cache, as far as can be said before.
    pub fn runs_from_cache(&self, collector: Option<Collector>, command: &[OsString]) -> bool {
        let Some(program) = command.first() else { return false };
        let path = Path::new(program);
        let simulated = path.is_file() && rv64::user::is_riscv_program(path);
        let chosen = match collector {
            Some(collector) => collector == Collector::Exec,
            None => !is_noted(program),
        };
        chosen && !simulated && self.gdb.is_none() && self.beside.is_empty()
    }

    /// Refuses what only single stepping can do.
    pub fn refuse_stepping(&self, values: Values) -> Result<()> {
        if self.needs_stepping() || values == Values::Collect {
            bail!("--limit and --values need single stepping: `ichnos step`");
        }
        Ok(())
    }

    /// Runs `command` from the code cache; nobody sees what it does.
    pub fn run_bare(&self, how: Bare, command: &[OsString]) -> Result<Live> {
        let (program, args) = command.split_first().context("no program is named")?;
        self.refuse_stepping(Values::Omit)?;
        let name = || program.to_string_lossy().into_owned();
        let what = match how {
            Bare::Dropped => exec::Record::All,
            Bare::Untraced => exec::Record::Nothing,
        };
        let mut tracee = self.launch(program, args, what)?;
        if how == Bare::Untraced {
            let status = host_status(tracee.wait().with_context(name)?);
            return Ok(Live { ending: Ending::Program(status), cut_short: None });
        }
        let interrupt = interrupt::flag()?;
        let mut left_behind = left_behind(program);
        let watch = exec::Watch { stop: &interrupt.stop, left_behind: &mut left_behind };
        let outcome = tracee.drain(watch).with_context(name)?;
        let status = asked(host_status(outcome.status), outcome.stopped, &interrupt);
        Ok(Live { ending: Ending::Program(status), cut_short: None })
    }

    fn inline<S>(
        &self,
        program: &OsString,
        args: &[OsString],
        values: Values,
        sink: &mut S,
    ) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        self.refuse_stepping(values)?;
        self.inline_by(((program, args), &from_inline(program, args)), sink, asm::record)
    }

    /// Runs a program built by `ichnos cc`, whose trace comes from there; `collect` brings what it does to the sink.
    pub fn inline_by<S>(
        &self,
        ((program, args), about): ((&OsString, &[OsString]), &Provenance),
        sink: &mut S,
        collect: impl FnOnce(&asm::Config, &mut S) -> Recorded,
    ) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        if self.no_vdso {
            bail!("a program that traces itself sees the vdso; without it: `ichnos step`");
        }
        about.with(|about| sink.begin(about))?;
        let (config, switcher) = self.inline_config(program, args)?;
        let outcome = collect(&config, sink);
        drop(switcher);
        let outcome = outcome.map_err(|error| match error {
            asm::RecordError::Sink(e) => e,
            asm::RecordError::Collector(e) => e.into(),
            _ => anyhow::anyhow!("the trace cannot be collected"),
        })?;
        Ok(Live { ending: Ending::Program(shell_status(outcome.status)), cut_short: None })
    }

    /// How a program built by `ichnos cc` is run, and what switches the recording meanwhile.
    fn inline_config(
        &self,
        program: &OsString,
        args: &[OsString],
    ) -> Result<(asm::Config, Option<Switcher>)> {
        let mut config = asm::Config::new(program, args.iter().cloned());
        config.level = self.opt.unwrap_or(self.choice.level());
        config.one_by_one = self.opt.is_none();
        config.randomize = if self.aslr { asm::Randomize::System } else { asm::Randomize::Off };
        let Some((choice, switched)) = self.choice.inline()? else { return Ok((config, None)) };
        config.choice = Some(choice);
        Ok((config, switched.map(|(word, schedule)| Switcher::start(word, schedule))))
    }

    /// Runs a program built by `ichnos cc` without recording anything: what its switch points cost. Nothing if it is
    /// another one.
    pub fn run_plain(&self, command: &[OsString]) -> Result<Option<(Ending, asm::Outcome)>> {
        let (program, args) = command.split_first().context("no program is named")?;
        if !is_noted(program) {
            return Ok(None);
        }
        let (mut config, _) = self.inline_config(program, args)?;
        config.level = self.opt.unwrap_or(Level::Superblock);
        if config.choice.is_none() {
            let word = asm::Word::new().context("there is no memory for a switch")?;
            config.choice = Some(asm::Choice::new(asm::When::Shared(word.into())));
        }
        let outcome = asm::drain(&config)?;
        Ok(Some((Ending::Program(shell_status(outcome.status)), outcome)))
    }

    /// Runs a program built by `ichnos cc`, takes what it stores and drops it; nothing if it is
    /// another one.
    pub fn drain(&self, command: &[OsString]) -> Result<Option<(Ending, asm::Outcome)>> {
        let (program, args) = command.split_first().context("no program is named")?;
        if !is_noted(program) {
            return Ok(None);
        }
        self.refuse_stepping(Values::Omit)?;
        let (config, switcher) = self.inline_config(program, args)?;
        let outcome = asm::drain(&config)?;
        drop(switcher);
        Ok(Some((Ending::Program(shell_status(outcome.status)), outcome)))
    }

    fn simulate<S>(&self, command: &[OsString], values: Values, sink: &mut S) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        self.refuse_choice("riscv64 programs")?;
        let mut config = self.rv64(command)?;
        config.values = match values {
            Values::Omit => rv64::Values::Omitted,
            Values::Collect => rv64::Values::Recorded,
        };
        for line in &self.beside {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let file = args.first().context("--beside names no program")?.into();
            config.beside.push(rv64::user::Program { file, args });
        }
        config.gdb.clone_from(&self.gdb);
        if let Some(at) = &self.gdb {
            eprintln!("ichnos: waiting for gdb: {}", how_to_attach(at));
        }
        let outcome = rv64::user::run(&config, sink).map_err(either)?;
        Ok(Live { ending: Ending::Program(shell_status(outcome.status)), cut_short: None })
    }

    fn rv64(&self, command: &[OsString]) -> Result<rv64::user::Config> {
        let program = command.first().context("no program is named")?;
        let mut config = rv64::user::Config::new(program, command.iter().cloned());
        config.sysroot.clone_from(&self.sysroot);
        Ok(config)
    }

    /// Runs a riscv64 program and profiles it.
    pub fn profile(
        &self,
        command: &[OsString],
        (models, speed): (Profiling, rv64::Speed),
    ) -> Result<(Ending, rv64::profile::Profile, Profiling)> {
        let program = command.first().context("--profile needs a program after `--`")?;
        if !rv64::user::is_riscv_program(Path::new(program)) {
            let name = program.to_string_lossy();
            bail!("--profile: {name} is no riscv64 program; use `annotate` for others");
        }
        let mut config = self.rv64(command)?;
        config.speed = speed;
        let (outcome, profile, models) = rv64::user::run_profiled(&config, models)?;
        Ok((Ending::Program(shell_status(outcome.status)), profile, models))
    }
}

/// A port or a path where gdb finds the machine.
pub fn gdb_at(text: &str) -> Result<rv64::GdbAt, String> {
    if text.is_empty() {
        return Err("name a port or a path".into());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(rv64::GdbAt::Port).map_err(|_| "a port is 0 to 65535".into());
    }
    Ok(rv64::GdbAt::Path(text.into()))
}

/// What to type in gdb.
pub fn how_to_attach(at: &rv64::GdbAt) -> String {
    match at {
        rv64::GdbAt::Port(port) => format!("target remote :{port}"),
        rv64::GdbAt::Path(path) => format!("target remote {}", path.display()),
        _ => "target remote".into(),
    }
}

/// Whether a program was built by `ichnos cc`. It is looked up as a shell would.
fn is_noted(program: &OsString) -> bool {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return asm::has_notes(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|f| f.join(path)).find(|p| p.is_file());
    found.is_some_and(|path| asm::has_notes(&path))
}

/// Where the trace of a program that runs from the code cache comes from.
pub fn from_cache(program: &OsString, args: &[OsString]) -> Provenance {
    provenance(concat!("collect-exec ", env!("CARGO_PKG_VERSION")), program, args)
}

/// Where the trace of a program comes from that records itself.
pub fn from_inline(program: &OsString, args: &[OsString]) -> Provenance {
    provenance(concat!("collect-asm ", env!("CARGO_PKG_VERSION")), program, args)
}

/// Where a trace comes from: the collector knows only what runs.
fn provenance(collector: &str, program: &OsString, args: &[OsString]) -> Provenance {
    let words = std::iter::once(program).chain(args).map(|w| w.to_string_lossy().into_owned());
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Provenance {
        isa: Isa::X86_64,
        collector: collector.to_owned(),
        command: words.collect(),
        folder: std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned(),
        started_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(0),
        branches: true,
        ..Provenance::default()
    }
}

/// Either side's error.
pub fn either<E>(error: DriveError<E, anyhow::Error>) -> anyhow::Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    match error {
        DriveError::Source(e) => e.into(),
        DriveError::Sink(e) => e,
    }
}

/// The status of a program that was killed, as a shell tells it.
const KILLED: u8 = 128 + 9;

/// The status to end with: that of the program, unless it was killed because ichnos was interrupted.
pub fn asked(status: u8, stopped: bool, interrupt: &Interrupt) -> u8 {
    let wanted = interrupt.status().filter(|_| stopped);
    wanted.filter(|_| status == KILLED).unwrap_or(status)
}

/// Says that a program has left so many processes behind.
fn left_behind(program: &OsStr) -> impl FnMut(usize) {
    move |count| {
        eprintln!(
            "ichnos: {} has ended, but {count} of the processes that it started still run; \
             interrupt to end them and the trace",
            program.to_string_lossy()
        );
    }
}

/// A program's end as a shell tells it.
fn shell_status(status: EndStatus) -> u8 {
    match status {
        EndStatus::Exited(code) => (code & 0xff) as u8,
        EndStatus::Killed(signal) => 128_u8.wrapping_add((signal & 0x7f) as u8),
        _ => 0,
    }
}

fn host_status(status: ExitStatus) -> u8 {
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => EndStatus::Exited(code),
        (None, Some(signal)) => EndStatus::Killed(signal),
        (None, None) => EndStatus::Unknown,
    };
    shell_status(end)
}
