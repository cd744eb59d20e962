//! Every test, with one closing line.
//!
//! Tests that cannot run here (a judge's program is missing, the processor has
//! no AVX-512) write a line into the file named by `ICHNOS_SKIPS`; the lines are
//! printed at the end, so that a skip is never silent. `ICHNOS_FETCH` lets tests
//! fetch Debian's riscv64 kernel into the user's cache, once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::run;

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Tests that failed, by name.
    failures: Vec<String>,
}

/// Runs `cargo test` over the workspace (or as `args` say) and sums it up.
pub fn all(args: &[String]) -> Result<()> {
    let skips = run::root().join("target/skipped-tests.txt");
    std::fs::create_dir_all(run::root().join("target"))?;
    std::fs::write(&skips, "").with_context(|| format!("cannot write {}", skips.display()))?;

    let mut command = run::cargo_command();
    command.args(["test", "--no-fail-fast"]);
    if args.is_empty() {
        command.arg("--workspace");
    }
    command.args(args).env("ICHNOS_SKIPS", &skips).env("ICHNOS_FETCH", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run cargo test")?;
    let out = child.stdout.take().context("cargo test has no output")?;
    let said = child.stderr.take().context("cargo test has no second output")?;
    let deaths = std::thread::spawn(move || deaths(BufReader::new(said), &mut std::io::stderr()));
    let tally = follow(BufReader::new(out), &mut std::io::stdout())?;
    let status = child.wait()?;
    let deaths = deaths.join().unwrap_or_default();

    let skipped = skipped(&skips)?;
    for line in &skipped {
        println!("skipped: {line}");
    }
    // Once more at the end, where one looks.
    tally.failures.iter().for_each(|name| println!("failed: {name}"));
    deaths.iter().for_each(|line| println!("died: {line}"));
    let count = skipped.len() as u64 + tally.ignored;
    println!("{} passed, {} failed, {count} skipped", tally.passed, tally.failed);
    if !status.success() || tally.failed > 0 {
        bail!("the tests failed ({status})");
    }
    if tally.passed == 0 {
        bail!("no test was run");
    }
    Ok(())
}

/// Passes cargo's output on and adds up its closing lines.
fn follow(out: impl BufRead, pass_on: &mut impl Write) -> Result<Tally> {
    let mut tally = Tally::default();
    for line in out.split(b'\n') {
        // Programs under test print what they like, text or not.
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        // A reader that hangs up (a pager, `head`) must not fail the tests.
        let _ = writeln!(pass_on, "{line}");
        if let Some((_, counts)) = line.split_once("test result: ") {
            tally.passed += number_before(counts, " passed");
            tally.failed += number_before(counts, " failed");
            tally.ignored += number_before(counts, " ignored");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"))
        {
            tally.failures.push(name.to_owned());
        }
    }
    Ok(tally)
}

/// Passes what cargo says on; gives what it says of test programs that a signal ended, of whose tests no line is
/// printed.
fn deaths(said: impl BufRead, pass_on: &mut impl Write) -> Vec<String> {
    let mut found = Vec::new();
    for line in said.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let _ = writeln!(pass_on, "{line}");
        if line.contains("process didn't exit successfully") && line.contains("(signal: ") {
            found.push(line.trim().to_owned());
        }
    }
    found
}

fn number_before(text: &str, word: &str) -> u64 {
    let Some(end) = text.find(word) else { return 0 };
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

fn skipped(path: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_closing_lines_are_added_up() {
        let text = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured\n\
                    noise: 7 passed\n\
                    test one::of_them ... FAILED\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored\n";
        let mut shown = Vec::new();
        let tally = follow(text.as_bytes(), &mut shown).unwrap();
        assert_eq!(shown, text.as_bytes());
        assert_eq!((tally.passed, tally.failed, tally.ignored), (15, 2, 1));
        assert_eq!(tally.failures, ["one::of_them"]);
    }

    #[test]
    fn test_programs_that_died_are_told() {
        let text = "     Running tests/it/main.rs (it-1)\n\
                    error: test failed, to rerun pass `--test it`\n\n\
                    Caused by:\n  process didn't exit successfully: `it-1` (signal: 9, SIGKILL: kill)\n\
                    Caused by:\n  process didn't exit successfully: `it-2` (exit status: 101)\n";
        let mut shown = Vec::new();
        let found = deaths(text.as_bytes(), &mut shown);
        assert_eq!(shown, text.as_bytes());
        assert_eq!(found, ["process didn't exit successfully: `it-1` (signal: 9, SIGKILL: kill)"]);
    }

    #[test]
    fn what_is_not_text_does_no_harm() {
        let bytes = b"BZh9\xff\xfe\x31AY\ntest result: ok. 4 passed; 0 failed; 0 ignored\n";
        let tally = follow(&bytes[..], &mut Vec::new()).unwrap();
        assert_eq!((tally.passed, tally.failed, tally.ignored), (4, 0, 0));
    }
}
