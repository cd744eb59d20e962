//! `ichnos boot`: a whole RV64 machine.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use ichnos_collect_rv64::system::{
    Boot, Config, Console, Ending as MachineEnding, Outcome, Script, Terminal, run, run_profiled,
    run_untraced,
};
use ichnos_collect_rv64::{GdbAt, Speed, Values};
use ichnos_report::Rows;
use ichnos_report::number::thousands;

use crate::answer::{FormatArgs, Stage};
use crate::count;
use crate::exit::Ending;
use crate::hierarchy::HierarchyArgs;
use crate::live::{either, gdb_at, how_to_attach};
use crate::output::{TraceFile, WriteArgs};
use crate::profiling::{self, Profiling};
use crate::progress::Progress;

/// Boot a RISC-V kernel, or run a bare machine-mode program, in the RV64 simulator.
///
/// The terminal is the machine's serial port; `poweroff` in the guest ends it, and
/// so does Ctrl-A x on the terminal (Ctrl-A h lists such keys).
/// Everything is deterministic: the same inputs give the same instructions. A bare
/// program ends when it writes its `tohost` word, and its verdict is the exit
/// status: 0 for a pass, 1 for a failure.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos boot --kernel Image --initrd initrd.cpio --harts 2 --append 'console=ttyS0'
  ichnos boot --bare rv64ui-p-add
  ichnos boot --kernel Image --initrd initrd.cpio --profile boot.profile
  ichnos boot --bare program.elf --gdb 1234    # then, in gdb: target remote :1234
  ichnos boot --kernel Image --initrd initrd.cpio --expect '# ' --send 'poweroff -f\\n'")]
pub struct Args {
    /// A flat kernel Image.
    #[arg(long, value_name = "IMAGE", required_unless_present = "bare")]
    kernel: Option<PathBuf>,
    /// Its initial file system, a cpio archive.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    initrd: Option<PathBuf>,
    /// A folder of this machine that is added to the initial file system.
    #[arg(long, value_name = "FOLDER", requires = "kernel")]
    overlay: Option<PathBuf>,
    /// The kernel's command line.
    #[arg(
        long,
        value_name = "TEXT",
        requires = "kernel",
        default_value = "console=ttyS0 earlycon"
    )]
    append: String,
    /// A machine-mode program instead of a kernel.
    #[arg(long, value_name = "ELF", conflicts_with = "kernel")]
    bare: Option<PathBuf>,
    /// How many harts, 1 to 16.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    harts: u32,
    /// Memory: 512M, 1G.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    mem: String,
    /// A disk image, which the guest sees as a virtio block device and may write.
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// How many instructions a hart runs before the next gets its turn.
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = count::count)]
    quantum: u64,
    /// Interpret every instruction: slow, and the reference for generated code.
    #[arg(long)]
    interpret: bool,
    /// Wait for gdb at this loopback port, or at a socket of this path, before anything runs.
    #[arg(long, value_name = "PORT|PATH", value_parser = gdb_at)]
    gdb: Option<GdbAt>,
    /// End after about this many instructions.
    #[arg(long, value_name = "COUNT", value_parser = count::count)]
    limit: Option<u64>,
    /// Wait for this text on the console, then send the next --send; may be repeated.
    #[arg(long, value_name = "TEXT", requires = "send")]
    expect: Vec<String>,
    /// What to send after the --expect of the same place; `\n` is a new line.
    #[arg(long, value_name = "TEXT", requires = "expect")]
    send: Vec<String>,
    /// Keep a trace of everything, kernel included, in this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record the bytes that loads and stores move, too.
    #[arg(long, requires = "output")]
    values: bool,
    /// Profile everything, kernel included, into this file for `annotate`: executions, misses of
    /// caches and TLB and, with --branch, mispredictions of every instruction.
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    hierarchy: HierarchyArgs,
    /// Do not say how it ended.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    write: WriteArgs,
}

/// Runs the verb.
pub fn run_verb(args: &Args) -> Result<Ending> {
    let config = config(args)?;
    if let Some(at) = args.gdb.as_ref().filter(|_| !args.quiet) {
        eprintln!("ichnos: waiting for gdb: {}", how_to_attach(at));
    }
    let mut console = console(args)?;
    let outcome = match (&args.output, &args.profile) {
        (None, None) => run_untraced(&config, &mut *console)?,
        (None, Some(path)) => profile(args, &config, &mut *console, path)?,
        (Some(path), _) => {
            let file = TraceFile::new(path.clone(), args.write.options());
            let mut sink = Progress::new(file, None, "booting");
            run(&config, &mut *console, &mut sink).map_err(either)?
        }
    };
    if !args.quiet {
        eprintln!("ichnos: {} instructions, {}", thousands(outcome.retired), words(&outcome));
    }
    Ok(match outcome.ending {
        MachineEnding::Failed(_) => Ending::Found,
        MachineEnding::ToHost(verdict) if verdict != 0 => Ending::Found,
        _ => Ending::Good,
    })
}

/// Runs the machine and stores its profile. A bare program is its own image, and
/// so is a kernel, which names its functions itself.
fn profile(
    args: &Args,
    config: &Config,
    console: &mut dyn Console,
    path: &Path,
) -> Result<Outcome> {
    let models = Profiling::new(&args.hierarchy.profile_models()?)?;
    let (outcome, profile, mut models) = run_profiled(config, console, models)?;
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut stored = models.finish(&profile, command);
    let image = args.bare.as_deref().or(args.kernel.as_deref());
    stored.maps.extend(image.map(profiling::image_everywhere));
    profiling::store(path, &stored)?;
    if !args.quiet {
        models.answer(Rows::Together).print(FormatArgs::default(), Stage::Shared)?;
    }
    Ok(outcome)
}

fn config(args: &Args) -> Result<Config> {
    let boot = match (&args.kernel, &args.bare) {
        (Some(image), _) => {
            let mut boot = Boot::kernel(image).with_command_line(&*args.append);
            if let Some(path) = &args.initrd {
                boot = boot.with_initrd(path);
            }
            match &args.overlay {
                Some(path) => boot.with_overlay(path),
                None => boot,
            }
        }
        (None, Some(elf)) => Boot::Bare(elf.clone()),
        (None, None) => bail!("name a kernel (--kernel) or a bare program (--bare)"),
    };
    let mut config = Config::new(boot);
    config.harts = args.harts;
    config.memory = ichnos_model::parse_size("mem", &args.mem)?;
    config.limit = args.limit;
    config.disk.clone_from(&args.disk);
    config.quantum = args.quantum;
    config.speed = if args.interpret { Speed::Interpreted } else { Speed::Generated };
    config.gdb.clone_from(&args.gdb);
    config.values = if args.values { Values::Recorded } else { Values::Omitted };
    Ok(config)
}

fn console(args: &Args) -> Result<Box<dyn Console>> {
    if args.expect.is_empty() {
        return Ok(Box::new(Terminal::new()));
    }
    if args.expect.len() != args.send.len() {
        bail!("there are {} --expect but {} --send", args.expect.len(), args.send.len());
    }
    let send = args.send.iter().map(|text| text.replace("\\n", "\n"));
    let steps = args.expect.iter().cloned().zip(send).collect();
    Ok(Box::new(Script::new(std::io::stdout(), steps)))
}

fn words(outcome: &Outcome) -> String {
    match outcome.ending {
        MachineEnding::PowerOff => "powered off".into(),
        MachineEnding::Reset => "restart asked for".into(),
        MachineEnding::Failed(code) => format!("powered off with failure {code}"),
        MachineEnding::ToHost(0) => "passed".into(),
        MachineEnding::ToHost(verdict) => format!("failed with verdict {verdict}"),
        MachineEnding::Limit => "the limit was reached".into(),
        MachineEnding::Killed => "ended by the debugger".into(),
        MachineEnding::Left => "left by the one at the terminal".into(),
        MachineEnding::NothingToDo => "all harts wait for nothing".into(),
        other => format!("{other:?}"),
    }
}
