//! A program to be judged, its arguments and its environment; and the same run under
//! the collector with its texts placed as under Valgrind.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;
use std::process::Stdio;

use ichnos_base::EndStatus;
use ichnos_collect_step::{Config, Values, Vdso, run};
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::{Recording, lackey};

use crate::run::check_recording;

/// What is run.
pub struct Subject {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// By what path the kernel is asked for it; the program is told `program`.
    path: PathBuf,
}

impl Subject {
    /// A program without arguments and environment.
    pub fn bare(program: PathBuf) -> Self {
        Self { path: program.clone(), program, args: Vec::new(), env: Vec::new() }
    }

    /// A program as Valgrind, given `env`, would run it. The functions of the C library
    /// read whole aligned words, so its texts must lie in their pages as they do there.
    pub fn as_under_lackey(program: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let stand_in = guest::build("bare_where.c", Link::Bare, &[]).display().to_string();
        let longest = program.len().max(stand_in.len());
        let program = lengthened(program, longest);
        let mut subject = Self {
            path: PathBuf::from(&program),
            program: PathBuf::from(&program),
            args: args.iter().copied().map(String::from).collect(),
            env: lackey::environment(env),
        };
        let theirs = place_under_lackey(&lengthened(&stand_in, longest), args, env);
        let ours = subject.texts().iter().sum::<u64>().wrapping_add(8).wrapping_neg();
        let lower = ours.wrapping_sub(theirs) % 4096;
        subject.path = lengthened(&program, program.len() + lower as usize).into();
        subject
    }

    /// How many bytes the texts on a new program's stack take, each with its zero, in
    /// the order in which they lie there.
    pub fn texts(&self) -> Vec<u64> {
        let name = self.program.as_os_str().len() as u64 + 1;
        let args = self.args.iter().map(|arg| arg.len() as u64 + 1);
        let env = self.env.iter().map(|(name, value)| (name.len() + value.len()) as u64 + 2);
        let path = self.path.as_os_str().len() as u64 + 1;
        std::iter::once(name).chain(args).chain(env).chain([path]).collect()
    }

    /// Steps the program to its end.
    pub fn record(&self) -> Recording {
        let mut config = Config::new(&self.path).args(&self.args);
        config.name = Some(self.program.clone().into());
        config.env = Some(self.env.iter().map(|(n, v)| (n.into(), v.into())).collect());
        config.vdso = Vdso::Hidden;
        config.values = Values::Collect;
        let mut recording = Recording::new();
        let outcome = run(&config, &mut recording).expect("the program can be traced");
        assert!(matches!(outcome.status, EndStatus::Exited(_)));
        check_recording(&recording);
        recording
    }
}

/// The same path with more slashes before its last name.
fn lengthened(path: &str, len: usize) -> String {
    let (folder, name) = path.rsplit_once('/').expect("a whole path");
    format!("{folder}{}{name}", "/".repeat(1 + len - path.len()))
}

/// Where Valgrind puts the name of a program that is called like this.
fn place_under_lackey(stand_in: &str, args: &[&str], env: &[(&str, &str)]) -> u64 {
    let output = lackey::command(env)
        .arg(stand_in)
        .args(args)
        .stderr(Stdio::null())
        .output()
        .expect("valgrind runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("an address")
}
