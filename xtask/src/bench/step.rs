//! How fast the oracle steps.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::size::ichnos;
use crate::run;

/// Steps a small program several times and prints the best rate, beside the
/// time that the program takes alone.
pub fn print() -> Result<()> {
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench");
    std::fs::create_dir_all(&folder)?;
    let trace = folder.join("step.ichnos");
    let (mut stepped, mut alone) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        stepped = stepped
            .min(seconds(ichnos().args(["step", "-q", "-o"]).arg(&trace).args(["--", "true"]))?);
        alone = alone.min(seconds(&mut Command::new("true"))?);
    }
    let info = run::output(ichnos().args(["info", "--json"]).arg(&trace))?;
    let info: Value = serde_json::from_str(&info)?;
    let insns = info["instructions"].as_f64().unwrap_or(0.0);
    println!("stepping `true`: {insns} instructions, {:.0} steps a second", insns / stepped);
    println!("native {alone:.4} s, stepped {stepped:.2} s");
    Ok(())
}

fn seconds(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    command.stdout(Stdio::null()).status()?;
    Ok(start.elapsed().as_secs_f64())
}
