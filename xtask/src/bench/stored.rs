//! What packing and storing a trace costs, in elapsed time over native: until the program has ended, and until its file is complete.
//!
//! The two are far apart: what cannot be packed as fast as the program runs goes to a spool, and is packed from there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::inputs::{self, Size};
use crate::run;

const FILE: &str = "stored.ichnos";

/// Whether a trace is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// No: packing is interrupted.
    Ended,
    /// Yes.
    Complete,
}

/// Prints the table. Programs run so many times, of which one is packed to its end.
pub fn print(folder: &Path, ichnos: &Path, rounds: usize) -> Result<()> {
    println!(
        "packed and stored, elapsed time over native: until the program has ended (the least of {rounds} runs), and until"
    );
    println!("the file is complete (one of them)\n");
    println!("{:<10} {:>9} {:>10} {:>10}  bits/insn", "program", "native s", "ended", "complete");
    let (mut products, mut rows) = ([0.0; 2], 0);
    for program in inputs::programs(Size::Long) {
        if !Path::new(&program.words[0]).exists() {
            println!("{:<10} is not installed", program.name);
            continue;
        }
        let (mut native, mut ended, mut complete) = (f64::MAX, f64::MAX, f64::MAX);
        for round in 0..rounds.max(1) {
            native = native.min(time(folder, &program.words, Until::Complete)?.0);
            let until = if round == 0 { Until::Complete } else { Until::Ended };
            let file = folder.join(if round == 0 { FILE } else { "interrupted.ichnos" });
            let mut words = vec![ichnos.to_string_lossy().into_owned()];
            words.extend(["record", "-q", "-o"].map(str::to_owned));
            words.extend([file.to_string_lossy().into_owned(), "--".into()]);
            words.extend(program.words.iter().cloned());
            let (first, second) = time(folder, &words, until)?;
            ended = ended.min(first);
            if until == Until::Complete {
                complete = second;
            } else {
                remove(&file)?;
            }
        }
        let ratios = [ended / native, complete / native];
        let bits = bits(ichnos, &folder.join(FILE))?;
        println!(
            "{:<10} {native:>9.3} {:>10.2} {:>10.2} {bits:>10.3}",
            program.name, ratios[0], ratios[1]
        );
        std::io::stdout().flush()?;
        products.iter_mut().zip(ratios).for_each(|(product, ratio)| *product += ratio.ln());
        rows += 1;
    }
    let [ended, complete] = products.map(|product| (product / f64::from(rows)).exp());
    println!("{:<10} {:>9} {ended:>10.2} {complete:>10.2}", "geomean", "");
    Ok(())
}

/// Seconds until a command's output ends, which is when its program does, and until it has ended itself.
fn time(folder: &Path, words: &[String], until: Until) -> Result<(f64, f64)> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start a program")?;
    let mut out = child.stdout.take().context("there is no output")?;
    let mut buffer = vec![0; 1 << 16];
    while out.read(&mut buffer)? != 0 {}
    let ended = start.elapsed().as_secs_f64();
    if until == Until::Ended {
        run::output(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    }
    child.wait()?;
    Ok((ended, start.elapsed().as_secs_f64()))
}

/// Removes a trace, and its spool if there is one.
fn remove(file: &Path) -> Result<()> {
    std::fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    let mut spool = file.as_os_str().to_owned();
    spool.push(".spool");
    let _ = std::fs::remove_file(spool);
    Ok(())
}

/// Bits an instruction of a stored trace.
fn bits(ichnos: &Path, file: &Path) -> Result<f64> {
    let mut info = Command::new(ichnos);
    info.args(["info", "--json"]).arg(file);
    let info: Value = serde_json::from_str(&run::output(&mut info)?)?;
    let insns = info["instructions"].as_f64().context("the trace says no instructions")?;
    Ok(std::fs::metadata(file)?.len() as f64 * 8.0 / insns.max(1.0))
}
