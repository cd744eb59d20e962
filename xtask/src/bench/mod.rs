//! Measurements, as tables. Each prints what it measured and beside what.
//!
//! Nothing here is asserted: these machines are shared and noisy, so figures
//! are minima of several runs, and ratios are of things run side by side.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod beside;
mod calvin;
mod inputs;
mod live;
mod memory;
mod model;
mod mptrace;
mod popspy;
mod simics;
mod size;
mod step;
mod stored;

use anyhow::{Result, bail};

use crate::{packages, run};

const LIST: &str = "\
  sink     records a second through a sink that does nothing
  size     bits an instruction of stored traces of bzip2, sqlite3 and lua (takes minutes)
  speed    reading and writing those traces, million instructions a second
  step     single steps a second
  model    references a second through caches, sweeps, reuse distances, from memory;
           --file: from a stored trace of 1 G references, reading included;
           --long: the memory that 10 G instructions take (records them first, takes long);
           --live: simulating running programs, beside Valgrind's cachegrind
  calvin   the tables of the calvin paper: events among instructions, what two copies of the code
           cost, sampled miss ratios beside the whole (fetches sources, takes long);
           --quick: the kernels alone, on short inputs; `events`, `costs`, `estimates`: that table
           alone; names of programs: those alone
  mptrace  the tables of the MPTRACE paper: code expansion and dilation of programs built by
           `ichnos cc`, for each level of the planner (fetches sources, takes long);
           --quick: the kernels alone, on short inputs; names of levels or programs: those alone;
           `stored`, `ended`: that table alone; --once: `ended` from one round
  popspy   what tracing unmodified executables costs, beside Valgrind's tools (takes minutes);
           long, stored, short, start, memory: these parts alone; --rounds N; --elapsed: not processor
           time; `stored` is elapsed time until the program has ended, and until its trace is complete
  simics   the tables of the SimICS paper: native, QEMU, unprofiled, profiled (takes minutes);
           --once: each measured once instead of the least of three
  convert  lines a second of the text formats
";

/// Runs the measurement that the arguments name.
pub fn dispatch(args: &[String]) -> Result<()> {
    let Some(name) = args.first() else {
        print!("{LIST}");
        return Ok(());
    };
    packages::setup()?;
    match name.as_str() {
        "sink" => run::cargo(&["bench", "-q", "-p", "ichnos-base"]),
        "size" => size::print(),
        "speed" => size::speed(),
        "step" => step::print(),
        "model" => match args.get(1).map(String::as_str) {
            None => run::cargo(&["bench", "-q", "-p", "ichnos-model"]),
            Some("--file") => model::file(),
            Some("--long") => model::long(),
            Some("--live") => live::print(),
            Some(other) => bail!("expected --file, --long or --live, found `{other}`"),
        },
        "popspy" => popspy::print(&args[1..]),
        "simics" => match args.get(1).map(String::as_str) {
            None => simics::print(simics::ROUNDS),
            Some("--once") => simics::print(1),
            Some(other) => bail!("expected --once, found `{other}`"),
        },
        "calvin" => calvin::print(&args[1..]),
        "mptrace" => mptrace::print(args.get(1..).unwrap_or_default()),
        "convert" => run::cargo(&["bench", "-q", "-p", "ichnos-convert"]),
        other => bail!("there is no measurement `{other}`; `cargo xtask bench` lists them"),
    }
}
