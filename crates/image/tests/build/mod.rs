//! Programs for the tests: sources, compilers, and a folder per test.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A C program with a function that the compiler inlines at -O2.
pub const C_SOURCE: &str = "#include <stdio.h>\n\
static inline int twice(int x) {\n\
    return x * 2 + getchar();\n\
}\n\
__attribute__((noinline)) int work(int n) {\n\
    int sum = 0;\n\
    for (int i = 0; i < n; i++)\n\
        sum += twice(i);\n\
    return sum;\n\
}\n\
int main(int argc, char **argv) {\n\
    printf(\"%d %s\\n\", work(argc), argv[0]);\n\
    return twice(argc);\n\
}\n";

/// A C++ program with templates and nested inlining.
pub const CPP_SOURCE: &str = "#include <cstdio>\n\
namespace zoo {\n\
template <class T> struct Cage {\n\
    T inside;\n\
    T peek() const { return inside + getchar(); }\n\
};\n\
static inline long look(const Cage<long> &c) {\n\
    return c.peek() * 3;\n\
}\n\
__attribute__((noinline)) long work(long n) {\n\
    Cage<long> cage{n};\n\
    long sum = 0;\n\
    for (long i = 0; i < n; i++)\n\
        sum ^= look(cage);\n\
    return sum;\n\
}\n\
}\n\
int main(int argc, char **) {\n\
    return static_cast<int>(zoo::work(argc));\n\
}\n";

/// A folder of one test's own, empty at first.
pub struct Scratch(PathBuf);

/// Makes the folder of the test `name`.
pub fn scratch(name: &str) -> Scratch {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("image-{name}"));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("leftovers are ours");
    }
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    Scratch(folder)
}

impl Scratch {
    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles `source` to the program `name`.
    pub fn compile(&self, compiler: &str, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let extension = if compiler == "g++" { "cc" } else { "c" };
        let input = self.path(&format!("{name}.{extension}"));
        std::fs::write(&input, source).expect("writable");
        let output = self.path(name);
        let mut args = flags.to_vec();
        args.extend([input.to_str().expect("text"), "-o", output.to_str().expect("text")]);
        run(compiler, &args);
        output
    }
}

/// Runs a tool and returns what it prints.
pub fn run(tool: &str, args: &[&str]) -> String {
    let output = Command::new(tool).args(args).output().unwrap_or_else(|e| panic!("{tool}: {e}"));
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {args:?}: {says}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
