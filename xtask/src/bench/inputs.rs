//! Programs and inputs for measuring collectors: made by arithmetic, so that they are the same
//! everywhere.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::run;

/// How long a program is kept busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Some hundredths of a second.
    Short,
    /// Some tenths.
    Long,
    /// Two to ten seconds: what starting and translating cost once weighs as it does in work that somebody waits for.
    Whole,
}

/// A program and the words that run it.
pub struct Program {
    /// What it is called in tables.
    pub name: &'static str,
    /// Path and arguments.
    pub words: Vec<String>,
}

/// The programs on inputs of a size.
pub fn programs(size: Size) -> Vec<Program> {
    let name = match size {
        Size::Short => "short",
        Size::Long => "long",
        Size::Whole => "whole",
    };
    let made = |program, line: &str| Program {
        name: program,
        words: line.split(' ').map(|w| w.replace("SIZE", name)).collect(),
    };
    vec![
        made("bzip2", "/usr/bin/bzip2 -9kc SIZE.txt"),
        Program {
            name: "sqlite3",
            words: vec!["/usr/bin/sqlite3".into(), ":memory:".into(), format!(".read {name}.sql")],
        },
        made("xz -T2", "/usr/bin/xz -T2 -2 --block-size=200000 -kc SIZE.txt"),
        made("python3", "/usr/bin/python3 -I SIZE.py"),
        made("cc1", &format!("{} -quiet -O2 SIZE.i -o /dev/null", compiler())),
        made("lua", "/usr/bin/lua5.4 SIZE.lua"),
    ]
}

/// The C compiler proper.
fn compiler() -> String {
    let path = run::output(Command::new("gcc").arg("-print-prog-name=cc1"));
    path.map_or_else(|_| "cc1".into(), |p| p.trim().to_owned())
}

/// Writes all inputs.
pub fn write(folder: &Path) -> Result<()> {
    // Bytes of text, rows, steps, functions, items.
    let sizes = [
        ("short", [400_000, 16_000, 3_000, 24, 40_000]),
        ("long", [4_000_000, 160_000, 30_000, 240, 400_000]),
        ("whole", [40_000_000, 2_400_000, 800_000, 720, 6_000_000]),
    ];
    for (name, [bytes, rows, steps, functions, items]) in sizes {
        let put =
            |end: &str, text: String| std::fs::write(folder.join(format!("{name}.{end}")), text);
        put("txt", text(bytes))?;
        put("sql", sql(rows))?;
        put("py", python(steps))?;
        put("i", c(functions))?;
        put("lua", lua(items))?;
    }
    // For programs that are fast with the others: some seconds.
    std::fs::write(folder.join("real.sql"), sql(2_400_000))?;
    std::fs::write(folder.join("real.lua"), lua(8_000_000))?;
    Ok(())
}

fn text(len: usize) -> String {
    let words = ["trace", "the", "footprint", "of", "every", "program", "cache", "a", "branch"];
    let mut text = String::new();
    let mut state = 1_u64;
    while text.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = words[(state >> 33) as usize % words.len()];
        let number = state >> 50;
        let _ = match state >> 61 {
            0 => writeln!(text, "{word}."),
            1 => write!(text, "{number} "),
            _ => write!(text, "{word} "),
        };
    }
    text
}

fn sql(rows: usize) -> String {
    format!(
        "create table t(id integer primary key, name text, n int);\n\
         with recursive c(i) as (select 1 union all select i+1 from c where i<{rows})\n\
         insert into t select i, 'name'||(i*7919%100003), i*31%997 from c;\n\
         create index x on t(n, name);\n\
         select n%10, count(*), sum(length(name)) from t group by n%10;\n\
         select count(*) from t a join t b on a.n=b.n and b.id<50;\n"
    )
}

fn python(steps: usize) -> String {
    format!(
        "import math\n\
         b = [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 39.47], [4.84, -1.16, -0.1, 0.6, 2.81, -0.02, 0.037],\n\
         \x20    [8.34, 4.12, -0.4, -1.01, 1.82, 0.008, 0.011], [12.8, -15.1, -0.22, 1.08, 0.86, -0.01, 0.0017],\n\
         \x20    [15.3, -25.9, 0.17, 0.97, 0.59, -0.034, 0.002]]\n\
         def step():\n\
         \x20   for i in range(5):\n\
         \x20       x = b[i]\n\
         \x20       for j in range(i + 1, 5):\n\
         \x20           y = b[j]\n\
         \x20           dx = x[0] - y[0]; dy = x[1] - y[1]; dz = x[2] - y[2]\n\
         \x20           d = dx * dx + dy * dy + dz * dz\n\
         \x20           m = 0.01 / (d * math.sqrt(d))\n\
         \x20           x[3] -= dx * y[6] * m; x[4] -= dy * y[6] * m; x[5] -= dz * y[6] * m\n\
         \x20           y[3] += dx * x[6] * m; y[4] += dy * x[6] * m; y[5] += dz * x[6] * m\n\
         \x20   for x in b:\n\
         \x20       x[0] += 0.01 * x[3]; x[1] += 0.01 * x[4]; x[2] += 0.01 * x[5]\n\
         for _ in range({steps}): step()\n\
         print(b[0][0])\n"
    )
}

/// Preprocessed C: functions with loops, switches, and calls from one to the next.
fn c(functions: usize) -> String {
    let mut code = String::from(
        "unsigned long strlen(const char *);\nstruct s { int a; long b; double c; struct s *n; };\n",
    );
    for i in 0..functions {
        let call =
            if i == 0 { String::new() } else { format!("r += f{}(p, k / 2, t + 1);", i - 1) };
        let _ = write!(
            code,
            "static long f{i}(struct s *p, int k, const char *t) {{ long r = {i}; int i;\n\
             for (i = 0; i < k; i++) {{ switch ((i * {} + t[i % 7]) % {}) {{\n\
             case 0: r += p->a * {}; break; case 1: r ^= p->b >> {}; break;\n\
             case 2: p->c *= 1.5 + {i}; break; case 3: if (p->n) p = p->n; else r--; break;\n\
             case 4: r += strlen(t); break; default: r += i % {}; }}\n\
             if (r > {} && p->a < k) {{ p->b += r / {}; r %= {}; }} }}\n{call} return r; }}\n",
            i + 3,
            5 + i % 11,
            i % 13 + 1,
            i % 7,
            i % 5 + 2,
            100_000 + i,
            i % 9 + 2,
            1000 + i
        );
    }
    let last = functions.saturating_sub(1);
    let _ = writeln!(
        code,
        "int main(int c, char **v) {{ struct s a = {{1, 2, 3.0, 0}}; return (int)f{last}(&a, c * 10, \"abcdefghij\"); }}"
    );
    code
}

fn lua(items: usize) -> String {
    format!(
        "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n\
         local t = {{}}\n\
         for i = 1, {items} do t[i] = (i * 7919) % 100003 end\n\
         table.sort(t)\n\
         local words = {{}}\n\
         for i = 1, {items} do local w = 'k' .. (i % 501); words[w] = (words[w] or 0) + t[i] end\n\
         print(fib(22), t[1], words.k7)\n"
    )
}
