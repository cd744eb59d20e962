//! Boots a machine: `boot bare ELF` or `boot kernel IMAGE INITRD [HARTS]`, with
//! the terminal as its serial port. `ICHNOS_SCRIPT="expect=>send;;..."` answers
//! by a script instead; `ICHNOS_QUANTUM` sets the turn's length.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stderr, reason = "an example prints what it found")]

use std::process::ExitCode;

use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::system::{Boot, Config, Console, Ending, Script, Terminal, run_untraced};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (boot, harts) = match args[..] {
        ["bare", elf] => (Boot::Bare(elf.into()), "1"),
        ["kernel", image, initrd] => (Boot::kernel(image).with_initrd(initrd), "1"),
        ["kernel", image, initrd, harts] => (Boot::kernel(image).with_initrd(initrd), harts),
        _ => {
            eprintln!("usage: boot bare ELF | boot kernel IMAGE INITRD [HARTS]");
            return ExitCode::from(2);
        }
    };
    let mut config = Config::new(boot.with_command_line("console=ttyS0 earlycon"));
    config.harts = harts.parse().unwrap_or(1);
    if let Some(quantum) = std::env::var("ICHNOS_QUANTUM").ok().and_then(|q| q.parse().ok()) {
        config.quantum = quantum;
    }
    if matches!(config.boot, Boot::Bare(_)) {
        config.memory = 128 << 20;
        config.limit = Some(100_000_000);
    }
    let script = std::env::var("ICHNOS_SCRIPT").ok().map(|text| {
        let step = |step: &str| {
            let (expected, sent) = step.split_once("=>").unwrap_or((step, ""));
            (expected.to_owned(), sent.replace("\\n", "\n"))
        };
        Script::new(std::io::stdout(), text.split(";;").map(step).collect())
    });
    let mut console: Box<dyn Console> = match script {
        Some(script) => Box::new(script),
        None => Box::new(Terminal::default()),
    };
    if std::env::var_os("ICHNOS_INTERPRET").is_some() {
        config.speed = Speed::Interpreted;
    }
    let started = std::time::Instant::now();
    match run_untraced(&config, &mut *console) {
        Ok(outcome) => {
            let seconds = started.elapsed().as_secs_f64();
            let mips = outcome.retired as f64 / seconds / 1e6;
            eprintln!(
                "{:?}: {} instructions, {} ticks, {seconds:.3} s, {mips:.0} MIPS",
                outcome.ending, outcome.retired, outcome.ticks
            );
            let good = matches!(outcome.ending, Ending::PowerOff | Ending::ToHost(0));
            ExitCode::from(u8::from(!good))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
