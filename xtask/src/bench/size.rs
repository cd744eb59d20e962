//! How small stored traces are: Valgrind's lackey runs real programs, its text
//! goes through `ichnos convert`, and `ichnos info` says how many bits of file an
//! instruction takes, all data addresses included.
//!
//! Lackey is the source because single stepping fifty million instructions takes
//! half an hour. Its text has no code bytes and no branch outcomes; neither costs
//! much in the file (code is stored once, and outcomes follow from what is
//! executed next).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run;

/// Instructions of each trace.
const INSNS: &str = "50M";

/// A program and the shell words that run it on its input.
const PROGRAMS: &[(&str, &str)] = &[
    ("bzip2", "bzip2 -9 -c input.txt"),
    // So short an input that most instructions belong to block sorting, whose
    // addresses are close to random: the hard case.
    ("bzip2-short", "bzip2 -9 -c short.txt"),
    // The same with prose that people wrote: the licences that come with every Debian.
    ("bzip2-prose", "bzip2 -9 -c prose.txt"),
    ("sqlite3", "sqlite3 :memory: .read\\ input.sql"),
    ("lua", "lua5.4 input.lua"),
];

/// Makes the traces that are missing and prints their sizes.
pub fn print() -> Result<()> {
    println!(
        "{:<10} {:>13} {:>13} {:>11} {:>9}",
        "program", "instructions", "references", "bytes", "bits/insn"
    );
    for trace in traces()? {
        let mut info = ichnos();
        info.args(["info", "--json"]).arg(&trace);
        let info: Value = serde_json::from_str(&run::output(&mut info)?)?;
        let count = |key: &str| info[key].as_u64().unwrap_or(0);
        println!(
            "{:<10} {:>13} {:>13} {:>11} {:>9.3}",
            trace.file_stem().unwrap_or_default().to_string_lossy(),
            count("instructions"),
            count("loads") + count("stores"),
            count("file_bytes"),
            info["bits_per_instruction"].as_f64().unwrap_or(f64::NAN),
        );
    }
    Ok(())
}

/// Prints how fast the traces are read and written.
pub fn speed() -> Result<()> {
    let traces = traces()?;
    let mut cargo = run::cargo_command();
    cargo.args(["bench", "-q", "-p", "ichnos-replay", "--bench", "pack", "--"]).args(traces);
    run::check(&mut cargo)
}

/// The release build of `ichnos`.
pub fn ichnos() -> Command {
    Command::new(run::root().join("target/release/ichnos"))
}

/// The traces, made if they are not there yet or are of another format version.
fn traces() -> Result<Vec<PathBuf>> {
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench");
    std::fs::create_dir_all(&folder)?;
    inputs(&folder)?;
    let mut made = Vec::new();
    for (name, words) in PROGRAMS {
        let path = folder.join(format!("{name}.ichnos"));
        if !path.exists() || run::output(ichnos().arg("info").arg(&path)).is_err() {
            record(&folder, words, &path).with_context(|| format!("cannot trace {name}"))?;
        }
        made.push(path);
    }
    Ok(made)
}

fn record(folder: &Path, words: &str, path: &Path) -> Result<()> {
    // Once the range of the only thread is full, convert hangs up and valgrind dies
    // of the pipe.
    let line = format!(
        "valgrind --tool=lackey --trace-mem=yes --log-fd=9 {words} 9>&1 >/dev/null 2>/dev/null | \
         '{}' convert - --from lackey --thread 0 --range ..{INSNS} --to ichnos -o '{}.part'",
        ichnos().get_program().to_string_lossy(),
        path.display()
    );
    run::check(Command::new("bash").args(["-c", &line]).current_dir(folder))?;
    Ok(std::fs::rename(format!("{}.part", path.display()), path)?)
}

/// The first 254,000 bytes of all licences in the order of their names.
fn prose() -> Result<Vec<u8>> {
    let listed = std::fs::read_dir("/usr/share/common-licenses")?;
    let mut paths = listed.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let mut text = Vec::new();
    for path in paths {
        text.extend(std::fs::read(&path).with_context(|| path.display().to_string())?);
    }
    text.truncate(254_000);
    Ok(text)
}

/// Inputs that are the same everywhere, but for the prose: made by arithmetic, not by chance.
pub fn inputs(folder: &Path) -> Result<()> {
    let mut text = String::new();
    let mut state = 1_u64;
    let words = ["trace", "the", "footprint", "of", "every", "program", "cache", "a", "branch"];
    while text.len() < 3_000_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = words[(state >> 33) as usize % words.len()];
        let _ = write!(text, "{word}{}", if state >> 60 == 0 { ".\n" } else { " " });
    }
    std::fs::write(folder.join("short.txt"), &text[..250_000])?;
    std::fs::write(folder.join("prose.txt"), prose()?)?;
    std::fs::write(folder.join("input.txt"), text)?;
    let sql = "create table t(id integer primary key, name text, n int);\n\
        with recursive c(i) as (select 1 union all select i+1 from c where i<40000)\n\
        insert into t select i, 'name'||(i*7919%10007), i*31%997 from c;\n\
        create index x on t(n);\n\
        select n, count(*), min(name) from t group by n order by 2 desc, 1 limit 5;\n";
    std::fs::write(folder.join("input.sql"), sql)?;
    let lua = "local t = {}\n\
        for i = 1, 60000 do t[i] = (i * 7919) % 100003 end\n\
        table.sort(t)\n\
        local words = {}\n\
        for i = 1, 20000 do local w = 'k' .. (i % 501); words[w] = (words[w] or 0) + t[i] end\n\
        local keys = {}\n\
        for k, v in pairs(words) do keys[#keys + 1] = k .. '=' .. v end\n\
        table.sort(keys)\n\
        print(#keys, keys[1])\n";
    Ok(std::fs::write(folder.join("input.lua"), lua)?)
}
