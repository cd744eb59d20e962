//! Compares a program's records with those of single stepping: `compare PROG ARGS...`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "this is a command")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::exit;

use ichnos_base::{Batch, Record, Sink};
use ichnos_collect_exec::{Launch, Record as What};

#[derive(Default)]
struct Keep(BTreeMap<u32, Vec<Record>>);

impl Sink for Keep {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.entry(batch.thread.0).or_default().extend_from_slice(batch.records);
        Ok(true)
    }
}

fn main() {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((program, rest)) = args.split_first() else { exit(2) };
    let mut launch = Launch::new(program);
    launch.record(What::All);
    launch.command().args(rest);
    let mut ours = Keep::default();
    let tracee = launch.spawn().unwrap_or_else(|e| panic!("{e}"));
    let outcome = tracee.collect(&mut ours).unwrap_or_else(|e| panic!("{e}"));
    let mut config = ichnos_collect_step::Config::new(program);
    config.args = rest.to_vec();
    let mut theirs = Keep::default();
    let stepped = ichnos_collect_step::run(&config, &mut theirs).unwrap_or_else(|e| panic!("{e}"));
    eprintln!("{:?} {:?}", outcome.status, stepped.status);
    let mut bad = ours.0.len() != theirs.0.len();
    for (id, want) in &theirs.0 {
        let got = ours.0.get(id).map_or(&[][..], |v| &v[..]);
        let same = got.iter().zip(want).take_while(|(a, b)| a == b).count();
        eprintln!("thread {id}: {} records here, {} stepped, {same} same", got.len(), want.len());
        if same == got.len() && same == want.len() {
            continue;
        }
        bad = true;
        let from = same.saturating_sub(6);
        for i in from..same + 6 {
            eprintln!("  {i} {:?} | {:?}", got.get(i), want.get(i));
        }
    }
    exit(i32::from(bad));
}
