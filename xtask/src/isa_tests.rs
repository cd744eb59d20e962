//! `cargo xtask isa-tests FOLDER`: the public RISC-V instruction tests, from a
//! checkout that has `isa/` and `env/`, built with the cross compiler and run by
//! `ichnos boot --bare`, interpreted and as generated code.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run;

/// Suites and the instruction set that they are assembled for.
const SUITES: &[(&str, &str)] = &[
    ("rv64ui", "rv64g"),
    ("rv64um", "rv64g"),
    ("rv64ua", "rv64g"),
    ("rv64uf", "rv64g"),
    ("rv64ud", "rv64g"),
    ("rv64uc", "rv64g"),
    ("rv64mi", "rv64g"),
    ("rv64si", "rv64g"),
    ("rv64uzba", "rv64g_zba"),
    ("rv64uzbb", "rv64g_zbb"),
    ("rv64uzbs", "rv64g_zbs"),
    ("rv64uzicond", "rv64g_zicond"),
    ("rv64mzicbo", "rv64g_zicboz"),
];
/// The first comes with the headers that the tests of virtual memory use.
const COMPILERS: [&str; 2] = ["riscv64-linux-gnu-gcc", "riscv64-unknown-elf-gcc"];
/// No test takes longer.
const LIMIT: &str = "20M";

/// How the tests of one suite and environment went.
#[derive(Default)]
struct Tally {
    built: usize,
    interpreted: usize,
    generated: usize,
    failed: Vec<String>,
}

/// Builds and runs all tests; any failure is an error.
pub fn all(args: &[String]) -> Result<()> {
    let [folder] = args else { bail!("usage: cargo xtask isa-tests FOLDER") };
    let folder = Path::new(folder);
    if !folder.join("isa").is_dir() || !folder.join("env/p").is_dir() {
        bail!("{} is not a checkout of the tests with their env", folder.display());
    }
    let have = |name: &&str| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    let compiler =
        COMPILERS.iter().find(|c| have(c)).context("no riscv64 compiler is installed")?;
    run::cargo(&["build", "-q", "-p", "ichnos-cli", "--bin", "ichnos"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| run::root().join("target"), PathBuf::from);
    let ichnos = target.join("debug/ichnos");
    let scratch = std::env::temp_dir().join(format!("ichnos-isa-tests-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let done = suites(folder, compiler, &ichnos, &scratch);
    std::fs::remove_dir_all(&scratch)?;
    done
}

fn suites(folder: &Path, compiler: &str, ichnos: &Path, scratch: &Path) -> Result<()> {
    println!("{:14} {:>6} {:>12} {:>10}", "suite", "built", "interpreted", "generated");
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    for (suite, isa) in SUITES {
        if !assembles(compiler, isa) {
            println!("{suite:14} skipped: {compiler} does not know {isa}");
            continue;
        }
        for env in ["p", "v"] {
            let tests = names(folder, suite, env)?;
            if tests.is_empty() {
                continue;
            }
            let mut tally = Tally::default();
            for test in &tests {
                let program = scratch.join(format!("{suite}-{env}-{test}"));
                let source = folder.join("isa").join(suite).join(format!("{test}.S"));
                build(folder, (compiler, isa, env), &source, &program)?;
                tally.built += 1;
                judge(ichnos, &program, &mut tally);
                std::fs::remove_file(&program)?;
            }
            let name = format!("{suite}-{env}");
            println!("{name:14} {:6} {:12} {:10}", tally.built, tally.interpreted, tally.generated);
            total.built += tally.built;
            total.interpreted += tally.interpreted;
            total.generated += tally.generated;
            failed.append(&mut tally.failed);
        }
    }
    println!("{:14} {:6} {:12} {:10}", "all", total.built, total.interpreted, total.generated);
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn assembles(compiler: &str, isa: &str) -> bool {
    let mut command = Command::new(compiler);
    command.args([&format!("-march={isa}"), "-mabi=lp64d", "-c", "-x", "assembler", "/dev/null"]);
    command.args(["-o", "/dev/null"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The tests that a suite's own list names for an environment.
fn names(folder: &Path, suite: &str, env: &str) -> Result<Vec<String>> {
    let path = folder.join("isa").join(suite).join("Makefrag");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    if !text.contains(&format!("{suite}_{env}_tests")) {
        return Ok(Vec::new());
    }
    let lists = text.split_once(&format!("{suite}_sc_tests"));
    let (_, list) = lists.with_context(|| format!("{} has no list", path.display()))?;
    let lines = list.lines().enumerate().take_while(|(n, line)| *n == 0 || line.contains('\\'));
    let words = lines.flat_map(|(_, line)| line.split_whitespace());
    Ok(words.filter(|w| !w.starts_with(['=', '\\'])).map(str::to_owned).collect())
}

/// Builds a test as its own Makefile does.
fn build(
    folder: &Path,
    (compiler, isa, env): (&str, &str, &str),
    source: &Path,
    program: &Path,
) -> Result<()> {
    let here = folder.join("env").join(env);
    let mut command = Command::new(compiler);
    command.args([&format!("-march={isa}"), "-mabi=lp64d", "-static", "-mcmodel=medany"]);
    command.args(["-fvisibility=hidden", "-nostdlib", "-nostartfiles", "-no-pie", "-fno-pic"]);
    command.args(["-Wl,--build-id=none", "-fno-stack-protector"]);
    command.arg("-I").arg(&here).arg("-I").arg(folder.join("isa/macros/scalar"));
    command.arg("-T").arg(here.join("link.ld"));
    if env == "v" {
        command.args(["-DENTROPY=0x1c40515", "-std=gnu99", "-O2", "-w"]);
        command.args(["entry.S", "string.c", "vm.c"].map(|name| here.join(name)));
    }
    command.arg(source).arg("-o").arg(program).stderr(Stdio::piped());
    let output = command.output().with_context(|| format!("cannot run {compiler}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{} does not build: {}", source.display(), why.trim());
    }
    Ok(())
}

/// Runs a test both ways.
fn judge(ichnos: &Path, program: &Path, tally: &mut Tally) {
    let passes = |more: &[&str]| {
        let mut command = Command::new(ichnos);
        command.args(["boot", "--mem", "128M", "--limit", LIMIT]).args(more);
        command.arg("--bare").arg(program).stdin(Stdio::null()).stdout(Stdio::null());
        let output = command.output();
        // Coming to the limit is no failure of the verb, but of the test.
        output.is_ok_and(|o| {
            o.status.success() && String::from_utf8_lossy(&o.stderr).contains("passed")
        })
    };
    let (interpreted, generated) = (passes(&["--interpret"]), passes(&[]));
    tally.interpreted += usize::from(interpreted);
    tally.generated += usize::from(generated);
    if !interpreted || !generated {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        tally.failed.push(name.into_owned());
    }
}
