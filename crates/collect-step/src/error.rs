//! What can go wrong before and while stepping. What happens to the traced
//! program (faults, deadly signals) is not an error but part of the trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::path::PathBuf;

/// Why a program could not be traced, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such program.
    #[error("there is no program `{}`", path.display())]
    NotFound {
        /// As it was asked for.
        path: PathBuf,
    },
    /// The file is there but may not be executed.
    #[error("`{}` is not executable: it is a folder or lacks the permission", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// An executable for another machine.
    #[error("`{}` is {found}, and only x86-64 executables can be stepped", path.display())]
    WrongMachine {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// The kernel refused to execute the file.
    #[error("`{}` could not be executed", path.display())]
    Exec {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An argument, or part of the environment, holds a zero byte.
    #[error("{what} holds a zero byte, which no program can be given")]
    ZeroByte {
        /// Which text.
        what: &'static str,
    },
    /// The kernel refused something that tracing cannot do without.
    #[error("{what} failed for thread {tid}")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// The operating system's number of the thread it was asked for.
        tid: i32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The accesses of an instruction could not be computed.
    #[error("the instruction at {pc:#x} in process {pid} cannot be traced")]
    Instruction {
        /// The operating system's number of the process.
        pid: i32,
        /// Where.
        pc: u64,
        /// Why.
        source: ichnos_isa_x86::Error,
    },
}
