//! Runs a program under the engine, without a trace: `run PROG ARGS...`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::unix::process::ExitStatusExt;
use std::process::exit;

use ichnos_collect_exec::Launch;

fn main() {
    let mut args = std::env::args_os().skip(1);
    let Some(program) = args.next() else {
        fail("usage: run PROG ARGS...");
    };
    let mut launch = Launch::new(program);
    launch.command().args(args);
    if let Ok(bits) = std::env::var("ICHNOS_DEBUG") {
        launch.debug(bits.parse().unwrap_or(0));
    }
    if let Ok(bytes) = std::env::var("ICHNOS_CACHE") {
        launch.cache_limit(bytes.parse().unwrap_or(0));
    }
    let status =
        launch.spawn().map_err(anyhow_text).and_then(|mut t| t.wait().map_err(anyhow_text));
    match status {
        Ok(status) => exit(status.code().unwrap_or(128 + status.signal().unwrap_or(0))),
        Err(text) => fail(&text),
    }
}

fn anyhow_text(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

#[allow(clippy::print_stderr, reason = "this is a command")]
fn fail(text: &str) -> ! {
    eprintln!("run: {text}");
    exit(2)
}
