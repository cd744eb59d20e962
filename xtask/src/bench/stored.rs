//! What packing and storing a trace costs, in elapsed time over native: until the program has ended, and until its file is complete.
//!
//! The two are far apart: what cannot be packed as fast as the program runs goes to a spool, and is packed from there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::inputs::{self, Program, Size};
use crate::run;

const FILE: &str = "stored.ichnos";
/// What a command says on standard error.
const SAID: &str = "said";

/// Whether a trace is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// No: packing is interrupted.
    Ended,
    /// Yes.
    Complete,
}

/// Prints the table. Programs run so many times, of which one is packed to its end.
pub fn print(folder: &Path, ichnos: &Path, rounds: usize) -> Result<()> {
    println!(
        "packed and stored, elapsed time over native: until the program has ended (the least of {rounds} runs), until the file"
    );
    println!(
        "is complete (one of them), and the same if the program waits for it, without a spool; and until all is stored that"
    );
    println!("is packed later (--pack later; the least)\n");
    println!(
        "{:<10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "program", "native s", "ended", "complete", "waiting", "later", "bits/insn"
    );
    let (mut products, mut rows) = ([0.0; 4], 0);
    for program in inputs::programs(Size::Long) {
        if !Path::new(&program.words[0]).exists() {
            println!("{:<10} is not installed", program.name);
            continue;
        }
        let record = |options: &[&str], until: Until| {
            time(folder, &recording(ichnos, options, &program), until)
        };
        let (mut native, mut ended, mut later) = (f64::MAX, f64::MAX, f64::MAX);
        for round in 0..rounds.max(1) {
            native = native.min(time(folder, &program.words, Until::Complete)?.0);
            later = later.min(record(&["-q", "--pack", "later"], Until::Complete)?.1);
            remove(&folder.join(FILE))?;
            if round > 0 {
                ended = ended.min(record(&["-q"], Until::Ended)?.0);
                remove(&folder.join(FILE))?;
            }
        }
        let waiting = record(&["-q", "--spool-limit", "0"], Until::Complete)?.1;
        let (first, complete) = record(&[], Until::Complete)?;
        let bits = said_bits(folder)?;
        remove(&folder.join(FILE))?;
        let ratios = [ended.min(first), complete, waiting, later].map(|seconds| seconds / native);
        let [ended, complete, waiting, later] = ratios;
        println!(
            "{:<10} {native:>9.3} {ended:>10.2} {complete:>10.2} {waiting:>10.2} {later:>10.2} {bits:>10.3}",
            program.name
        );
        std::io::stdout().flush()?;
        products.iter_mut().zip(ratios).for_each(|(product, ratio)| *product += ratio.ln());
        rows += 1;
    }
    let means = products.map(|product| (product / f64::from(rows)).exp());
    let [ended, complete, waiting, later] = means;
    println!(
        "{:<10} {:>9} {ended:>10.2} {complete:>10.2} {waiting:>10.2} {later:>10.2}",
        "geomean", ""
    );
    Ok(())
}

/// Prints what it costs if the program waits, for inputs that keep it busy for two to five seconds: so much would not fit into a
/// spool.
pub fn print_waiting(folder: &Path, ichnos: &Path, rounds: usize) -> Result<()> {
    println!(
        "packed and stored while the program waits: elapsed time until the file is complete, over"
    );
    println!("the least native time of {rounds} runs\n");
    println!("{:<10} {:>9} {:>10} {:>10}", "program", "native s", "waiting", "bits/insn");
    let (mut product, mut rows) = (0.0, 0);
    for program in inputs::programs(Size::Whole) {
        if !Path::new(&program.words[0]).exists() {
            println!("{:<10} is not installed", program.name);
            continue;
        }
        let mut native = f64::MAX;
        for _ in 0..rounds.max(1) {
            native = native.min(time(folder, &program.words, Until::Complete)?.0);
        }
        let words = recording(ichnos, &["--spool-limit", "0"], &program);
        let ratio = time(folder, &words, Until::Complete)?.1 / native;
        let bits = said_bits(folder)?;
        remove(&folder.join(FILE))?;
        println!("{:<10} {native:>9.3} {ratio:>10.2} {bits:>10.3}", program.name);
        std::io::stdout().flush()?;
        product += ratio.ln();
        rows += 1;
    }
    println!("{:<10} {:>9} {:>10.2}", "geomean", "", (product / f64::from(rows)).exp());
    Ok(())
}

/// The words of a command that records a program.
fn recording(ichnos: &Path, options: &[&str], program: &Program) -> Vec<String> {
    let mut words = vec![ichnos.to_string_lossy().into_owned(), "record".into()];
    words.extend(options.iter().map(|&option| option.to_owned()));
    words.extend(["-o", FILE, "--"].map(str::to_owned));
    words.extend(program.words.iter().cloned());
    words
}

/// Seconds until a command's output ends, which is when its program does, and until it has ended itself.
pub fn time(folder: &Path, words: &[String], until: Until) -> Result<(f64, f64)> {
    let mut command = Command::new(&words[0]);
    let said = File::create(folder.join(SAID))?;
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null()).stderr(said);
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start a program")?;
    let mut out = child.stdout.take().context("there is no output")?;
    let mut buffer = vec![0; 1 << 16];
    while out.read(&mut buffer)? != 0 {}
    let ended = start.elapsed().as_secs_f64();
    if until == Until::Ended {
        run::output(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    }
    let status = child.wait()?;
    ensure!(until == Until::Ended || status.success(), "{}: {status}", words.join(" "));
    Ok((ended, start.elapsed().as_secs_f64()))
}

/// Removes a trace, and its spool if there is one.
pub fn remove(file: &Path) -> Result<()> {
    std::fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    let mut spool = file.as_os_str().to_owned();
    spool.push(".spool");
    let _ = std::fs::remove_file(spool);
    Ok(())
}

/// Bits an instruction of a stored trace, as the command said that was timed last.
fn said_bits(folder: &Path) -> Result<f64> {
    let said = std::fs::read_to_string(folder.join(SAID))?;
    let bits =
        said.rsplit_once(" bits an instruction").and_then(|(before, _)| before.rsplit_once('('));
    let (_, bits) = bits.context("nobody said how large the trace is")?;
    Ok(bits.parse()?)
}
