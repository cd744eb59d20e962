//! `ichnos cc`: a compiler whose programs can be traced inline.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use anyhow::{Context, Result};
use ichnos_collect_asm as asm;

use crate::exit::Ending;

/// Run a compiler so that `record` can trace what it builds at little cost.
///
/// Each object gets notes about its functions, in a section that is not loaded. Nothing else
/// changes: the program is the one that the compiler alone would build.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos cc -- gcc -O2 -pthread prog.c -o prog
  make CC='ichnos cc -- gcc' CXX='ichnos cc -- g++'
  ichnos cc -- rustc -O prog.rs
  ichnos cc --tool ./libmine.so -- gcc -O2 prog.c -o prog")]
pub struct Args {
    /// Let `record` call functions of this library before each block, load and store that it records
    /// (`docs/MODELS.md`); the program is linked with it.
    #[arg(long, value_name = "LIB")]
    tool: Option<PathBuf>,
    /// The compiler and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMPILER"
    )]
    command: Vec<OsString>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    let program = std::env::current_exe().context("ichnos does not know its own file")?;
    let absolute = |tool: &PathBuf| {
        std::fs::canonicalize(tool).with_context(|| format!("--tool {}", tool.display()))
    };
    let tool = args.tool.as_ref().map(absolute).transpose()?;
    Ok(ending(asm::compile(&program, &args.command, tool.as_deref())?))
}

/// Acts as the assembler or as the linker, if that is the name by which a compiler that `cc` runs has called this program.
pub fn tool() -> Option<Result<Ending>> {
    let mut args = std::env::args_os();
    let name = args.next()?;
    let assembler = std::env::var_os(asm::ASSEMBLER)?;
    let args: Vec<OsString> = args.collect();
    let done = match std::path::Path::new(&name).file_name()?.to_str()? {
        "as" => asm::assemble(&assembler, &args),
        "cc" => asm::link(&std::env::var_os(asm::LINKER)?, &assembler, &args),
        _ => return None,
    };
    Some(done.map(ending).map_err(Into::into))
}

fn ending(status: ExitStatus) -> Ending {
    let signal = || 128 + status.signal().unwrap_or(0);
    Ending::Program((status.code().unwrap_or_else(signal) & 0xff) as u8)
}
