//! Real projects built through `ichnos cc` by their own build files, then traced inline.
//!
//! Their sources are fetched when the tests run (`ICHNOS_FETCH`), by a script that the benchmarks
//! use too. bzip2 and lua are built always; with `ICHNOS_INLINE=all` zstd (by make and by cmake) and
//! sqlite3 are, too, and at more levels. All but bzip2 also as small programs with most of their code in a shared library.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ichnos_collect_asm as asm;
use ichnos_flow::Level;
use ichnos_testkit::tool;

use crate::inline_compare::Stepped;
use crate::support::{Folder, Run, good, ichnos, native, shell};

fn long() -> bool {
    std::env::var("ICHNOS_INLINE").as_deref() == Ok("all")
}

/// Builds a project; nothing if its sources or tools are missing.
pub fn build(folder: &Folder, name: &str, flags: &str) -> Option<PathBuf> {
    if !tool::have(&format!("inline_projects {name}"), &["gcc", "make"]) {
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/projects/build.sh");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("projects");
    let made = folder.path().join(format!("{name}{flags}"));
    let compiler = format!("{} cc -- gcc", env!("CARGO_BIN_EXE_ichnos"));
    let mut command = Command::new("sh");
    command.arg(script).arg(cache).arg(name).arg(&made).args([&compiler, flags]);
    let run: Run = command.output().expect("a shell").into();
    if run.status == 3 {
        tool::skip(
            &format!("inline_projects {name}"),
            "its sources cannot be had; ICHNOS_FETCH=1 fetches them",
        );
        return None;
    }
    good(run);
    let program = made.join(name);
    assert!(asm::has_notes(&program), "{name} has no notes");
    Some(program)
}

/// The program traced and alone: same output and status; the trace is a good one.
fn as_alone(folder: &Folder, program: &Path, args: &[&str]) -> Run {
    let program = program.to_str().unwrap();
    let alone = native(folder, program, args);
    let line = [&["record", "-q", "-o", "t.ichnos", "--", program][..], args].concat();
    let traced = ichnos(folder, &line);
    assert_eq!(traced.stdout, alone.stdout, "{program} {args:?}: {}", traced.stderr);
    assert_eq!(traced.status, alone.status, "{program} {args:?}: {}", traced.stderr);
    let check = ichnos(folder, &["check", "t.ichnos"]);
    assert_eq!(check.status, 0, "{program} {args:?}: {}{}", check.stdout, check.stderr);
    traced
}

fn equals_step(program: &Path, args: &[&str], levels: &[Level]) {
    equals_step_with(program, &[], args, levels);
}

/// The same of a program with libraries that have notes.
fn equals_step_with(program: &Path, libraries: &[&Path], args: &[&str], levels: &[Level]) {
    let args: Vec<OsString> = args.iter().map(Into::into).collect();
    let stepped = Stepped::of_images(program.as_os_str(), &args, libraries);
    for level in levels {
        let compared = stepped.compare(*level);
        assert!(compared.insns > 10_000, "{compared:?}");
    }
}

/// Text that packs neither too well nor too badly.
fn text(lines: usize) -> String {
    let mut text = String::new();
    for i in 0..lines {
        let _ = writeln!(text, "{} line {i} of {lines}, {:x}", i * 7919 % 1009, i * i);
    }
    text
}

#[test]
fn bzip2_packs_and_unpacks_while_traced() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "bzip2", "-O2") else { return };
    folder.write("in.txt", text(300).as_bytes());
    let name = program.to_str().unwrap();
    let line = format!("'{}' record -q -o t.ichnos -- '{name}' -kc in.txt > in.bz2", ichnos_path());
    good(shell(&folder, &line));
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let back = as_alone(&folder, &program, &["-dc", "in.bz2"]);
    assert_eq!(back.stdout, text(300));
    // Its own samples, as its Makefile's test uses them.
    let made = program.parent().unwrap();
    for number in 1..=3 {
        let sample = made.join(format!("sample{number}.bz2"));
        let line = format!(
            "'{}' record -o none -- '{name}' -dc '{}' | cmp - '{}'",
            ichnos_path(),
            sample.display(),
            made.join(format!("sample{number}.ref")).display()
        );
        good(shell(&folder, &line));
    }
    folder.write("small.txt", text(2).as_bytes());
    let levels = if long() { &Level::ALL[..] } else { &[Level::Flow] };
    equals_step(&program, &["-1kc", folder.path().join("small.txt").to_str().unwrap()], levels);
}

/// Building again after a change builds what changed, with notes.
#[test]
fn an_incremental_build_keeps_its_notes() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "bzip2", "-O1") else { return };
    let before = asm::noted(&program).unwrap().len();
    let made = program.parent().unwrap().display();
    let line = format!(
        "cd '{made}' && echo 'int added(int x) {{ return x * 3; }}' >> huffman.c && \
         make -j2 CC='{} cc -- gcc' bzip2 && make -q CC='{} cc -- gcc' bzip2",
        ichnos_path(),
        ichnos_path()
    );
    let run = good(shell(&folder, &line));
    assert!(!run.stdout.contains("compress.c"), "{}", run.stdout);
    assert_eq!(asm::noted(&program).unwrap().len(), before + 1);
}

const LUA: &str = r#"
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
assert(fib(15) == 610)
local t = {}
for i = 1, 500 do t[i] = (i * 7919) % 1003 end
table.sort(t)
for i = 2, #t do assert(t[i - 1] <= t[i]) end
assert(not pcall(error, "thrown"))
local ok, message = pcall(function() local x = nil; return x.y end)
assert(not ok and message:find("index"))
local made = coroutine.wrap(function() for i = 1, 5 do coroutine.yield(i * i) end end)
local sum = 0
for _ = 1, 5 do sum = sum + made() end
assert(sum == 55)
assert(("%5.2f|%x|%q"):format(3.14159, 255, "a\nb") == ' 3.14|ff|"a\\\nb"')
assert(("hello world"):gsub("o", "0") == "hell0 w0rld")
local counted = setmetatable({}, {__index = function(_, k) return k * 2 end, __gc = function() end})
assert(counted[21] == 42)
collectgarbage()
assert(load("return 1 + 2 * 3")() == 7)
assert(math.maxinteger + 1 == math.mininteger and 7 // 2 == 3 and 2^53 == 2^53 + 0.0)
assert(utf8.char(228, 8364) == "\u{e4}\u{20ac}" and #utf8.char(8364) == 3)
print("all right", sum, table.concat(t, ",", 1, 5))
"#;

const SMALL_LUA: &str = "local t = {} for i = 1, 20 do t[i] = tostring(i * 7 % 5) end \
    table.sort(t) print(pcall(error, #table.concat(t)))";

#[test]
fn lua_runs_while_traced() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "lua", "-O2") else { return };
    folder.write("t.lua", LUA.as_bytes());
    let run = as_alone(&folder, &program, &["t.lua"]);
    assert!(run.stdout.starts_with("all right\t55"), "{}", run.stdout);
    let levels = if long() { &Level::ALL[..] } else { &[Level::Flow] };
    equals_step(&program, &["-e", SMALL_LUA], levels);
}

#[test]
fn lua_as_a_library_runs_while_traced() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "lua-shared", "-O2") else { return };
    folder.write("t.lua", LUA.as_bytes());
    let run = as_alone(&folder, &program, &["t.lua"]);
    assert!(run.stdout.starts_with("all right\t55"), "{}", run.stdout);
    let levels = if long() { &Level::ALL[..] } else { &[Level::Flow] };
    let library = program.with_file_name("liblua.so");
    equals_step_with(&program, &[&library], &["-e", SMALL_LUA], levels);
    for how in ["1000:10", "7:3"] {
        let line = ["record", "-q", "-o", "t.ichnos", "--sample", how, "--"];
        let traced = ichnos(&folder, &[&line[..], &[program.to_str().unwrap(), "t.lua"]].concat());
        assert_eq!((traced.status, traced.stdout), (0, run.stdout.clone()), "{}", traced.stderr);
        good(ichnos(&folder, &["check", "t.ichnos"]));
    }
}

const SQL: &str = "create table t(id integer primary key, name text, n int);
with recursive c(i) as (select 1 union all select i + 1 from c where i < 2000)
insert into t select i, 'name' || (i * 7919 % 1009), i * 31 % 97 from c;
create index x on t(n, name);
select count(*), sum(n), min(name), max(id) from t;
select n % 5, count(*) from t group by 1 order by 1;
delete from t where id % 3 = 0; select count(*) from t;
begin; update t set n = n + 1; rollback; select sum(n) from t;
select upper(substr(name, 1, 5)), hex(length(name)) from t where id = 7;
pragma integrity_check;
";

#[test]
fn sqlite3_answers_while_traced() {
    let tools = ["tclsh"];
    if !long() {
        tool::skip("inline_projects sqlite3", "takes long to build; ICHNOS_INLINE=all runs it");
        return;
    }
    let folder = Folder::new();
    if !tool::have("inline_projects sqlite3", &tools) {
        return;
    }
    let Some(program) = build(&folder, "sqlite3", "-O2") else { return };
    answers(&folder, &program);
    equals_step(&program, &[":memory:", "select 1 + 2, upper('a');"], &Level::ALL);
    let Some(program) = build(&folder, "sqlite3-shared", "-O2") else { return };
    answers(&folder, &program);
    let library = program.with_file_name("libsqlite3.so");
    let line = [":memory:", "select 1 + 2, upper('a');"];
    equals_step_with(&program, &[&library], &line, &[Level::Flow]);
}

/// Gives the right answers while it is traced.
fn answers(folder: &Folder, program: &Path) {
    folder.write("t.sql", SQL.as_bytes());
    let run = as_alone(folder, program, &[":memory:", ".read t.sql"]);
    let n = |i: u32| i * 31 % 97;
    let all: u32 = (1..=2000).map(n).sum();
    let kept: u32 = (1..=2000).filter(|i| i % 3 != 0).map(n).sum();
    assert!(run.stdout.starts_with(&format!("2000|{all}|name0|2000\n")), "{}", run.stdout);
    assert!(run.stdout.contains(&format!("\n1334\n{kept}\nNAME9|")), "{}", run.stdout);
    assert!(run.stdout.ends_with("ok\n"), "{}", run.stdout);
}

#[test]
fn zstd_goes_round_while_traced() {
    if !long() {
        tool::skip("inline_projects zstd", "takes long to build; ICHNOS_INLINE=all runs it");
        return;
    }
    let folder = Folder::new();
    folder.write("in.txt", text(20_000).as_bytes());
    let small = folder.write("small.txt", text(2).as_bytes());
    for (name, flags) in [("zstd", "-O2"), ("zstd-cmake", "-O3"), ("zstd-shared", "-O2")] {
        let Some(program) = build(&folder, name, flags) else { return };
        let (own, name) = (ichnos_path(), program.display());
        for level in ["-1", "-5 -T2", "-19 --long"] {
            let line = format!(
                "'{own}' record -o none -- '{name}' -q {level} -c in.txt > in.zst && \
                 '{own}' record -o none -- '{name}' -q -d -c in.zst | cmp - in.txt"
            );
            good(shell(&folder, &line));
        }
        // Without threads whose ways depend on who comes first.
        let alone = ["-q", "-c", "--single-thread", "--no-asyncio", &small];
        let library = program.with_file_name("libzstd.so.1");
        let libraries: &[&Path] = if library.exists() { &[&library] } else { &[] };
        equals_step_with(&program, libraries, &alone, &[Level::Flow]);
    }
}

fn ichnos_path() -> &'static str {
    env!("CARGO_BIN_EXE_ichnos")
}
