//! Builds bare programs of this folder and runs them on a machine.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::system::{Boot, Config, Ending, Outcome, Script, run_untraced};

use crate::guests::Folder;

/// Compiles a bare program; nothing if there is no compiler.
pub(crate) fn compile(folder: &Folder, name: &str) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/bare");
    let program = folder.0.join(name);
    let status = Command::new("riscv64-linux-gnu-gcc")
        .args(["-O1", "-g", "-ffreestanding", "-nostdlib", "-static", "-no-pie", "-fno-pic"])
        .args(["-mcmodel=medany", "-march=rv64gc_zicbom_zicboz", "-fno-stack-protector"])
        .args(["-Wl,--build-id=none", "-Wl,--no-warn-rwx-segments", "-T"])
        .arg(sources.join("link.ld"))
        .arg("-o")
        .arg(&program)
        .args([sources.join("start.S"), sources.join(format!("{name}.c"))])
        .status();
    match status {
        Ok(status) => {
            assert!(status.success(), "{name}.c does not compile");
            Some(program)
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let reason = "riscv64-linux-gnu-gcc is not installed";
            ichnos_testkit::tool::skip("collect-rv64: bare programs", reason);
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// A machine for a bare program, which may not run for ever.
pub(crate) fn config(program: &Path, harts: u32) -> Config {
    let mut config = Config::new(Boot::Bare(program.to_owned()));
    config.harts = harts;
    config.memory = 64 << 20;
    config.limit = Some(50_000_000);
    config
}

/// Runs a machine with nobody at its console.
pub(crate) fn run(config: &Config) -> Outcome {
    let mut console = Script::new(std::io::sink(), Vec::new());
    run_untraced(config, &mut console).expect("the machine runs")
}

/// Runs a program as generated code and by the interpreter, which must agree,
/// and expects a pass.
pub(crate) fn passes(mut config: Config) -> Outcome {
    let generated = run(&config);
    config.speed = Speed::Interpreted;
    assert_eq!(run(&config), generated, "the interpreter and generated code differ");
    assert_eq!(generated.ending, Ending::ToHost(0), "after {} instructions", generated.retired);
    generated
}
