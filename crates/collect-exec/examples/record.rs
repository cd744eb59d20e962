//! Runs a program under the engine and counts or prints its records: `record [-p|-n] PROG
//! ARGS...`; `-n` drops them unseen.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "this is a command")]

use std::convert::Infallible;
use std::io::Write;
use std::process::exit;
use std::sync::atomic::AtomicBool;

use ichnos_base::{Batch, Event, Sink, ThreadId};
use ichnos_collect_exec::{Launch, Record, Watch};

struct Count {
    print: bool,
    records: u64,
}

impl Sink for Count {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.records += batch.records.len() as u64;
        if self.print {
            let mut err = std::io::stderr().lock();
            for record in batch.records {
                let _ = writeln!(err, "{} {record:?}", batch.thread);
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if self.print {
            eprintln!("{thread} {event:?}");
        }
        Ok(true)
    }
}

fn main() {
    let mut args = std::env::args_os().skip(1).peekable();
    let print = args.next_if(|a| a == "-p").is_some();
    let drop = args.next_if(|a| a == "-n").is_some();
    let Some(program) = args.next() else {
        eprintln!("usage: record [-p] PROG ARGS...");
        exit(2);
    };
    let mut launch = Launch::new(program);
    launch.record(Record::All);
    launch.command().args(args);
    if let Ok(bits) = std::env::var("ICHNOS_DEBUG") {
        launch.debug(bits.parse().unwrap_or(0));
    }
    if let Ok(bytes) = std::env::var("ICHNOS_CACHE") {
        launch.cache_limit(bytes.parse().unwrap_or(0));
    }
    let mut count = Count { print, records: 0 };
    if drop {
        let watch = Watch { stop: &AtomicBool::new(false), left_behind: &mut |_| () };
        match launch.spawn().and_then(|tracee| tracee.drain(watch)) {
            Ok(outcome) => {
                eprintln!("{outcome:?}");
                exit(outcome.status.code().unwrap_or(1));
            }
            Err(error) => {
                eprintln!("record: {error}");
                exit(2);
            }
        }
    }
    let outcome = launch.spawn().map_err(|e| e.to_string());
    match outcome.and_then(|t| t.collect(&mut count).map_err(|e| e.to_string())) {
        Ok(outcome) => {
            eprintln!("{outcome:?}, {} records", count.records);
            exit(outcome.status.code().unwrap_or(1));
        }
        Err(error) => {
            eprintln!("record: {error}");
            exit(2);
        }
    }
}
