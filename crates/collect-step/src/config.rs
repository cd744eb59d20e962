//! What to trace and how: plain data, no decisions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::path::PathBuf;

/// What to run and what to collect.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The program: a path, or a name to be looked up in `PATH`.
    pub program: OsString,
    /// What it is told that its name is (`argv[0]`); `None`: as `program` says.
    pub name: Option<OsString>,
    /// Its arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// Its environment; `None` hands on this process's own.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// The folder to run in; `None` stays in this process's own.
    pub folder: Option<PathBuf>,
    /// Whether addresses differ from run to run.
    pub aslr: Aslr,
    /// Whether the program is told of the vdso.
    pub vdso: Vdso,
    /// Whether the bytes loaded and stored are collected.
    pub values: Values,
    /// What becomes of the program when collection ends before it does.
    pub on_stop: OnStop,
    /// End collection after so many instructions of all threads together.
    pub limit: Option<u64>,
    /// How many instructions a thread may execute before another one's turn.
    pub quantum: u32,
}

impl Config {
    /// The usual configuration: no randomisation, no values, no limit; the
    /// program is killed if collection ends early.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            name: None,
            args: Vec::new(),
            env: None,
            folder: None,
            aslr: Aslr::Off,
            vdso: Vdso::Shown,
            values: Values::Omit,
            on_stop: OnStop::Kill,
            limit: None,
            quantum: 5000,
        }
    }

    /// The same with these arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }
}

/// Address-space layout randomisation of the traced program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Aslr {
    /// Off: the same program and input give the same addresses.
    #[default]
    Off,
    /// As the system has it.
    System,
}

/// Whether programs are told of the vdso, the kernel's own little library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Vdso {
    /// As the kernel does.
    #[default]
    Shown,
    /// Not told: what the vdso would answer (the time, the processor's number) is then
    /// asked of the kernel, by system calls that the trace shows.
    Hidden,
}

/// Whether the bytes of loads and stores are collected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Values {
    /// Addresses only.
    #[default]
    Omit,
    /// The bytes too.
    Collect,
}

/// What becomes of the traced program when collection ends before it does: on
/// the stop flag, at the limit, or because the sink has seen enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnStop {
    /// It is killed.
    #[default]
    Kill,
    /// It runs on, untraced.
    Detach,
}
