//! Runs a riscv64 Linux program: `cargo run --release -p ichnos-collect-rv64
//! --example user -- PROGRAM ARGS`. With `ICHNOS_COUNT=1` its records are
//! counted too, and the totals printed.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stderr, reason = "an example prints what it found")]

use std::convert::Infallible;
use std::process::ExitCode;

use ichnos_base::{Batch, EndStatus, Sink, Totals};
use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::user::{Config, run, run_untraced};

#[derive(Default)]
struct Count(Totals);

impl Sink for Count {
    type Error = Infallible;
    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.count_batch(batch);
        Ok(true)
    }
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let Some(program) = args.first().cloned() else {
        eprintln!("usage: user PROGRAM ARGS");
        return ExitCode::from(2);
    };
    let mut config = Config::new(program, args);
    config.sysroot = std::env::var_os("ICHNOS_SYSROOT").map(Into::into);
    if std::env::var_os("ICHNOS_INTERPRET").is_some() {
        config.speed = Speed::Interpreted;
    }
    let started = std::time::Instant::now();
    let outcome = if std::env::var_os("ICHNOS_COUNT").is_some() {
        let mut count = Count::default();
        let outcome = run(&config, &mut count).map_err(|e| e.to_string());
        eprintln!("{:?}", count.0);
        outcome
    } else {
        run_untraced(&config).map_err(|e| e.to_string())
    };
    let seconds = started.elapsed().as_secs_f64();
    match outcome {
        Ok(outcome) => {
            let mips = outcome.retired as f64 / seconds / 1e6;
            eprintln!("{} instructions, {seconds:.3} s, {mips:.0} MIPS", outcome.retired);
            match outcome.status {
                EndStatus::Exited(code) => ExitCode::from(code as u8),
                _ => ExitCode::from(128),
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
