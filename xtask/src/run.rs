//! Running other programs, said aloud, with failure named.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs us.
pub fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command to its end; anything but success is an error that names it.
pub fn check(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", line(command));
    let status = command.status().with_context(|| format!("cannot run `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed with {status}", line(command));
    }
    Ok(())
}

/// Runs cargo to its end.
pub fn cargo(args: &[&str]) -> Result<()> {
    check(cargo_command().args(args))
}

/// Builds the documentation with warnings as errors.
pub fn documentation() -> Result<()> {
    check(
        cargo_command()
            .args(["doc", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// What a command prints, as text.
pub fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot run `{}`", line(command)))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        bail!("`{}` failed with {}: {}", line(command), out.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}
