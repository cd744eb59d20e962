//! Steps a command and prints what was counted and how fast: the figure to
//! quote for the collector alone, with a sink that only adds up.
//!
//! `cargo run --release -p ichnos-collect-step --example count -- ls -l`, with
//! `VALUES=1` in the environment to collect values, `EVENTS=1` to print events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::env;
use std::time::Instant;

use ichnos_base::{Batch, Event, Sink, ThreadId, Totals};
use ichnos_collect_step::{Config, Values, run};

#[derive(Default)]
struct Count(Totals, u64);

impl Sink for Count {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.count_batch(batch);
        Ok(true)
    }

    #[allow(clippy::print_stderr, reason = "an example talks to the terminal")]
    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if env::var_os("EVENTS").is_some() {
            eprintln!("{thread}: {event:?}");
        }
        self.1 += 1;
        Ok(true)
    }
}

#[allow(clippy::print_stderr, reason = "an example talks to the terminal")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args_os().skip(1);
    let program = args.next().ok_or("give a command")?;
    let mut sink = Count::default();
    let start = Instant::now();
    let mut config = Config::new(program).args(args);
    if env::var_os("VALUES").is_some() {
        config.values = Values::Collect;
    }
    let outcome = run(&config, &mut sink)?;
    let rate = outcome.insns as f64 / start.elapsed().as_secs_f64();
    eprintln!("{outcome:?}\n{:?}, {} events, {rate:.0} instructions/s", sink.0, sink.1);
    Ok(())
}
