//! Builds guest programs and runs them here and under QEMU.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{ErrorKind, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ichnos_base::EndStatus;
use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::user::{Config, Outcome, run_untraced};

/// A folder that goes away at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ichnos-rv64-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the test's files");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a program left behind.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) status: EndStatus,
    pub(crate) output: String,
}

/// Compiles a program of this folder; nothing if there is no compiler.
pub(crate) fn compile(folder: &Folder, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(format!("{name}.c"));
    let program = folder.0.join(name);
    let status = Command::new("riscv64-linux-gnu-gcc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags)
        .args(["-lm", "-pthread"])
        .status();
    match status {
        Ok(status) => {
            assert!(status.success(), "{name}.c does not compile");
            Some(program)
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            ichnos_testkit::tool::skip(
                "collect-rv64: programs",
                "riscv64-linux-gnu-gcc is not installed",
            );
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Runs a program under QEMU; nothing if it is not installed.
pub(crate) fn under_qemu(
    program: &Path,
    args: &[&str],
    sysroot: Option<&str>,
) -> Option<(Left, Vec<u8>)> {
    let mut command = Command::new("qemu-riscv64");
    if let Some(root) = sysroot {
        command.args(["-L", root]);
    }
    let output = command.arg(program).args(args).stdin(Stdio::null()).output();
    let output = match output {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            ichnos_testkit::tool::skip("collect-rv64: programs", "qemu-riscv64 is not installed");
            return None;
        }
        other => other.expect("qemu runs"),
    };
    let status = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => EndStatus::Exited(code),
        (None, Some(signal)) => EndStatus::Killed(signal),
        _ => EndStatus::Unknown,
    };
    Some((
        Left { status, output: String::from_utf8_lossy(&output.stdout).into_owned() },
        output.stdout,
    ))
}

/// A configuration with no input, and its output in a file.
pub(crate) fn config(
    program: &Path,
    args: &[&str],
    folder: &Folder,
    sysroot: Option<&str>,
) -> (Config, std::fs::File) {
    let path = folder.0.join("output");
    let open =
        || std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = open().expect("an output file");
    let null: OwnedFd = std::fs::File::open("/dev/null").expect("/dev/null").into();
    let name = program.to_string_lossy().into_owned();
    let all = std::iter::once(name).chain(args.iter().map(|a| (*a).to_owned()));
    let mut config = Config::new(program, all);
    config.sysroot = sysroot.map(Into::into);
    config.stdio = [Some(null), Some(file.try_clone().expect("a second handle").into()), None];
    (config, file)
}

/// What a program left behind, its output in bytes, and how the run ended.
type Run = (Left, Vec<u8>, Outcome);

/// Runs a program here.
pub(crate) fn here(program: &Path, args: &[&str], folder: &Folder, sysroot: Option<&str>) -> Run {
    here_at(Speed::Generated, program, args, folder, sysroot)
}

/// Runs a program here, in a certain way.
pub(crate) fn here_at(
    speed: Speed,
    program: &Path,
    args: &[&str],
    folder: &Folder,
    sysroot: Option<&str>,
) -> Run {
    let (mut config, mut file) = config(program, args, folder, sysroot);
    config.speed = speed;
    let outcome = run_untraced(&config).expect("the simulator runs");
    let mut output = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut output)).expect("the output can be read");
    let text = String::from_utf8_lossy(&output).into_owned();
    (Left { status: outcome.status, output: text }, output, outcome)
}
