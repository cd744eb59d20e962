//! How the program ends: the one place where errors become words and a status.
//!
//! 0 is good, 1 means that a check or comparison found something, 2 means that
//! ichnos itself failed. A verb that runs a program ends as the program did.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// How a verb ended, when it did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All is well.
    Good,
    /// A check found faults, or a comparison differences.
    Found,
    /// The traced program ended with this status (128 + n for signal n, as the
    /// shell has it).
    Program(u8),
}

/// The process's exit status for what a verb returned, printing the error if any.
pub fn status(result: anyhow::Result<Ending>) -> ExitCode {
    match result {
        Ok(Ending::Good) => ExitCode::SUCCESS,
        Ok(Ending::Found) => ExitCode::from(1),
        Ok(Ending::Program(status)) => ExitCode::from(status),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ichnos: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the reader of our output went away: `ichnos dump FILE | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    })
}
