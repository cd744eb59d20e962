//! System mode: a whole machine with machine, supervisor and user mode, page
//! tables, timers, an interrupt controller, a serial port and a disk. It boots
//! Linux through firmware that is built in, or runs bare programs.
//!
//! Everything repeats exactly: harts take turns by instruction count, and the
//! clock is made of instructions. Only an interactive console brings in the
//! outside.
//!
//! In a trace each hart is a thread. Traps and interrupts, changes of privilege
//! and of address space are events of their own.
//!
//! # Example
//!
//! ```no_run
//! use ichnos_collect_rv64::system::{Boot, Config, Script, run_untraced};
//!
//! let boot = Boot::kernel("Image").with_initrd("initrd.cpio").with_command_line("console=ttyS0");
//! let mut console = Script::new(std::io::stdout(), vec![("# ".into(), "poweroff -f\n".into())]);
//! let outcome = run_untraced(&Config::new(boot), &mut console)?;
//! println!("{:?} after {} instructions", outcome.ending, outcome.retired);
//! # Ok::<(), ichnos_collect_rv64::Error>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bus;
mod clint;
mod console;
mod cpio;
mod csr;
mod debug;
mod disk;
mod fdt;
mod hart;
mod inspect;
mod instruction;
mod kallsyms;
mod loader;
mod machine;
mod mmu;
mod plic;
mod pmp;
mod privilege;
mod sbi;
mod tell;
mod terminal;
mod tree;
mod uart;

use std::path::PathBuf;

use ichnos_base::{About, DriveError, Isa, Sink};

use crate::engine::Speed;
use crate::error::{Error, RunError};
use crate::gdb::GdbAt;
use crate::profile::{Models, Profile, Profiled};
use crate::ram::PAGE_SIZE;
use crate::recorder::Values;
use crate::tracer::{Traced, Untraced};
use bus::Bus;
pub use console::{Console, Script};
pub use cpio::Cpio;
use disk::{Disk, Writing};
pub use inspect::Inspected;
pub use kallsyms::{KernelSymbol, kernel_symbols};
use loader::Start;
use machine::Machine;
pub use privilege::Privilege;
pub use terminal::Terminal;

/// The smallest and the largest memory.
const MEMORY: std::ops::RangeInclusive<u64> = 16 << 20..=64 << 30;

/// What to start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Boot {
    /// A Linux kernel.
    Kernel {
        /// The flat Image.
        image: PathBuf,
        /// The first file system, an archive.
        initrd: Option<PathBuf>,
        /// A host folder that is added to it.
        overlay: Option<PathBuf>,
        /// The kernel's command line.
        command_line: String,
    },
    /// A program in machine mode that writes to its `tohost` symbol to end.
    Bare(PathBuf),
}

impl Boot {
    /// A kernel on its own.
    pub fn kernel(image: impl Into<PathBuf>) -> Self {
        Self::Kernel {
            image: image.into(),
            initrd: None,
            overlay: None,
            command_line: String::new(),
        }
    }

    /// The same with a first file system.
    #[must_use]
    pub fn with_initrd(mut self, path: impl Into<PathBuf>) -> Self {
        if let Self::Kernel { initrd, .. } = &mut self {
            *initrd = Some(path.into());
        }
        self
    }

    /// The same with a host folder added to the first file system.
    #[must_use]
    pub fn with_overlay(mut self, path: impl Into<PathBuf>) -> Self {
        if let Self::Kernel { overlay, .. } = &mut self {
            *overlay = Some(path.into());
        }
        self
    }

    /// The same with a command line.
    #[must_use]
    pub fn with_command_line(mut self, line: impl Into<String>) -> Self {
        if let Self::Kernel { command_line, .. } = &mut self {
            *command_line = line.into();
        }
        self
    }
}

/// A machine and what it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// What to start.
    pub boot: Boot,
    /// How many harts, 1 to 16.
    pub harts: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// A disk image, which the guest may write.
    pub disk: Option<PathBuf>,
    /// Instructions that a hart runs before the next gets its turn.
    pub quantum: u64,
    /// Instructions, retired or trapped, after which the machine ends; about so
    /// many with several harts.
    pub limit: Option<u64>,
    /// How instructions are run when nobody watches.
    pub speed: Speed,
    /// Whether loaded and stored bytes are recorded.
    pub values: Values,
    /// Where to wait for a gdb client before anything runs.
    pub gdb: Option<GdbAt>,
}

impl Config {
    /// One hart and a gigabyte.
    #[must_use]
    pub const fn new(boot: Boot) -> Self {
        Self {
            boot,
            harts: 1,
            memory: 1 << 30,
            disk: None,
            quantum: 1000,
            limit: None,
            values: Values::Omitted,
            speed: Speed::Generated,
            gdb: None,
        }
    }
}

/// Why a machine ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ending {
    /// The guest turned it off.
    PowerOff,
    /// The guest asked for a restart.
    Reset,
    /// The guest turned it off with a failure of this number.
    Failed(u32),
    /// A bare program wrote this verdict: 0 is a pass.
    ToHost(u64),
    /// As many instructions as allowed were executed.
    Limit,
    /// All harts wait and nothing will ever wake them.
    NothingToDo,
    /// The sink had seen enough.
    SinkHasEnough,
    /// The debugger ended it.
    Killed,
    /// The one at the console ended it.
    Left,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Why.
    pub ending: Ending,
    /// Instructions retired by all harts.
    pub retired: u64,
    /// Ticks of the guest's clock, 10 million a second.
    pub ticks: u64,
}

/// Runs a machine and tells `sink` what its harts do.
pub fn run<S: Sink>(
    config: &Config,
    console: &mut dyn Console,
    sink: &mut S,
) -> Result<Outcome, RunError<S::Error>> {
    let parts = assemble(config).map_err(DriveError::Source)?;
    let about = About {
        isa: Isa::RV64,
        collector: concat!("collect-rv64 ", env!("CARGO_PKG_VERSION")),
        host: "simulated rv64 machine",
        values: config.values == Values::Recorded,
        branches: true,
        ..About::default()
    };
    if !sink.begin(&about).map_err(DriveError::Sink)? {
        sink.finish().map_err(DriveError::Sink)?;
        return Ok(Outcome { ending: Ending::SinkHasEnough, retired: 0, ticks: 0 });
    }
    let outcome = Machine::new(config, parts, console, Traced::new(sink, config.values))
        .map_err(DriveError::Source)
        .and_then(|mut machine| machine.run())?;
    sink.finish().map_err(DriveError::Sink)?;
    Ok(outcome)
}

/// Runs a machine without watching it.
pub fn run_untraced(config: &Config, console: &mut dyn Console) -> Result<Outcome, Error> {
    let mut machine = Machine::new(config, assemble(config)?, console, Untraced::default())?;
    machine.run().map_err(|e| match e {
        DriveError::Source(error) => error,
        DriveError::Sink(never) => match never {},
    })
}

/// Runs a machine and profiles it with these models, which come back.
pub fn run_profiled<M: Models>(
    config: &Config,
    console: &mut dyn Console,
    models: M,
) -> Result<(Outcome, Profile, M), Error> {
    let tracer = Profiled::new(models);
    let mut config = config.clone();
    if !tracer.allows_generated() {
        config.speed = Speed::Interpreted;
    }
    let mut machine = Machine::new(&config, assemble(&config)?, console, tracer)?;
    let outcome = machine.run().map_err(|e| match e {
        DriveError::Source(error) => error,
        DriveError::Sink(never) => match never {},
    })?;
    let (profile, models) = machine.into_tracer().finish(outcome.retired);
    Ok((outcome, profile, models))
}

/// Memory with what shall run in it.
pub(crate) fn assemble(config: &Config) -> Result<(Bus, Start), Error> {
    if !(1..=16).contains(&config.harts) {
        return Err(Error::Config(format!("a machine has 1 to 16 harts, not {}", config.harts)));
    }
    if !MEMORY.contains(&config.memory) {
        let text = "a machine has 16 MB to 64 GB of memory";
        return Err(Error::Config(format!("{text}, not {} bytes", config.memory)));
    }
    let memory = usize::try_from(config.memory).map_err(|e| Error::Config(e.to_string()))?;
    let memory = memory.next_multiple_of(PAGE_SIZE);
    let disk = config.disk.as_ref().map(|path| {
        let open = std::fs::File::options().read(true).write(true).open(path);
        let fail = |source| Error::Read { path: path.clone(), source };
        open.and_then(|file| Disk::new(file, Writing::Allowed)).map_err(fail)
    });
    let mut bus = Bus::new(memory, config.harts as usize, disk.transpose()?);
    let start = match &config.boot {
        Boot::Bare(path) => loader::bare(&mut bus, path, config.harts)?,
        Boot::Kernel { image, initrd, overlay, command_line } => {
            let mut archive = Vec::new();
            if let Some(path) = initrd {
                let fail = |source| Error::Read { path: path.clone(), source };
                archive = std::fs::read(path).map_err(fail)?;
                archive.resize(archive.len().next_multiple_of(4), 0);
            }
            if let Some(folder) = overlay {
                let mut cpio = Cpio::default();
                cpio.host_folder(folder)?;
                archive.extend(cpio.finish());
            }
            loader::kernel(&mut bus, image, &archive, (config.harts, command_line))?
        }
    };
    Ok((bus, start))
}
