//! The programs of the benchmark, for the host and for riscv64, and their
//! inputs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::apt::{Apt, Kind};
use crate::run;

const SUITE: &str = "trixie";
/// Debian packages of riscv64 whose files the programs need.
const PACKAGES: &[&str] = &[
    "bzip2",
    "libbz2-1.0",
    "lua5.4",
    "liblua5.4-0",
    "sqlite3",
    "libsqlite3-0",
    "libreadline8t64",
    "libtinfo6",
    "libncursesw6",
    "zlib1g",
    "libc6",
];

/// A program and how it is run.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: &'static str,
    pub native: Vec<String>,
    pub guest: Vec<String>,
}

impl Program {
    pub fn kilobytes(&self) -> u64 {
        fs::metadata(&self.guest[0]).map_or(0, |file| file.len() / 1024)
    }
}

/// All of them, and where they live.
#[derive(Clone, Debug)]
pub struct Set {
    pub folder: PathBuf,
    pub sysroot: PathBuf,
    pub programs: Vec<Program>,
}

/// Fetches, compiles and writes what is missing.
pub fn prepare(folder: &Path) -> Result<Set> {
    let sysroot = folder.join("root");
    if !sysroot.join("usr/bin/sqlite3").exists() {
        fetch(folder, &sysroot).context("cannot fetch Debian's riscv64 programs")?;
    }
    inputs(folder)?;
    let mut programs = vec![
        packaged("bzip2", &sysroot, &["-9", "-c", "input.txt"]),
        packaged("lua5.4", &sysroot, &["input.lua"]),
        packaged("sqlite3", &sysroot, &[":memory:", ".read input.sql"]),
    ];
    programs.push(compiled("quicksort", folder, "1000000")?);
    programs.push(compiled("matrix", folder, "500")?);
    Ok(Set { folder: folder.to_owned(), sysroot, programs })
}

fn packaged(name: &'static str, sysroot: &Path, args: &[&str]) -> Program {
    let words = |program: String| {
        std::iter::once(program).chain(args.iter().map(|arg| (*arg).to_owned())).collect()
    };
    let guest = sysroot.join("usr/bin").join(name).to_string_lossy().into_owned();
    Program { name, native: words(name.to_owned()), guest: words(guest) }
}

fn compiled(name: &'static str, folder: &Path, size: &str) -> Result<Program> {
    let source = run::root().join(format!("crates/collect-rv64/tests/guests/{name}.c"));
    let build = |compiler: &str, kind: &str, more: &[&str]| -> Result<Vec<String>> {
        let program = folder.join(format!("{name}.{kind}"));
        let mut command = Command::new(compiler);
        command.args(["-O2", "-o"]).arg(&program).arg(&source).args(more);
        run::check(&mut command)?;
        Ok(vec![program.to_string_lossy().into_owned(), size.to_owned()])
    };
    Ok(Program {
        name,
        native: build("gcc", "native", &[])?,
        guest: build("riscv64-linux-gnu-gcc", "riscv", &["-static"])?,
    })
}

/// Inputs that are the same everywhere.
fn inputs(folder: &Path) -> Result<()> {
    let words = ["trace", "the", "footprint", "of", "every", "program", "cache", "a", "branch"];
    let (mut text, mut state) = (String::new(), 1_u64);
    while text.len() < 1_000_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(words[(state >> 33) as usize % words.len()]);
        text.push(if state >> 60 == 0 { '\n' } else { ' ' });
    }
    fs::write(folder.join("input.txt"), text)?;
    let lua = "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n\
        local s = 0 for i = 1, 300000 do s = s + (i % 7) * (i % 13) end\n\
        local t = {} for i = 1, 100000 do t[#t + 1] = tostring(i) end\n\
        print(fib(27), s, #table.concat(t))\n";
    fs::write(folder.join("input.lua"), lua)?;
    let sql = "create table t(a integer primary key, b text, c real);\n\
        with recursive n(i) as (select 1 union all select i+1 from n where i<60000)\n\
        insert into t select i, 'row '||(i*37%101), i/7.0 from n;\n\
        select b, count(*), round(sum(c),6) from t group by b order by 2 desc, 1 limit 5;\n\
        create index x on t(b); select avg(c), min(b), max(a) from t where b like 'row 5%';\n";
    fs::write(folder.join("input.sql"), sql)?;
    Ok(())
}

/// Fetches packages by name with the host's own client into a private place.
fn fetch(folder: &Path, sysroot: &Path) -> Result<()> {
    let apt = Apt::new(&folder.join("packages"), SUITE, Kind::Binary("riscv64"))?;
    apt.get(&[&["download"], PACKAGES].concat())?;
    fs::create_dir_all(sysroot)?;
    apt.unpack(sysroot)?;
    // A merged /usr: the interpreter is named by the short path.
    for name in ["lib", "bin"] {
        let link = sysroot.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(format!("usr/{name}"), link)?;
        }
    }
    if !sysroot.join("usr/bin/sqlite3").exists() {
        bail!("the packages hold no sqlite3");
    }
    Ok(())
}
