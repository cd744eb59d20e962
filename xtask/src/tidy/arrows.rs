//! Which crate may know which: the picture of `ARCHITECTURE.md` as a table.
//!
//! Collectors, trace, consumers: no collector knows replay, a model, an analysis
//! or another collector; no consumer knows a collector. Only `cli`, `testkit` and
//! `xtask` see across.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::{Context, Result};
use serde_json::Value;

use super::Problem;
use crate::run;

/// A crate and the ichnos crates that it may depend on (dev-dependencies apart).
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("image", &["base"]),
    ("isa-x86", &["base"]),
    ("isa-rv64", &["base"]),
    ("trace", &["base"]),
    ("flow", &["base", "trace"]),
    ("replay", &["base", "trace"]),
    ("sync", &["base"]),
    ("tap", &["base"]),
    ("lift", &["base", "flow", "isa-x86", "trace"]),
    ("rt", &[]),
    ("spool", &[]),
    ("codemem", &["base"]),
    ("collect-step", &["base", "image", "isa-x86"]),
    ("collect-asm", &["base", "flow", "isa-x86", "lift", "rt", "spool", "sync", "trace"]),
    (
        "collect-exec",
        &["base", "codemem", "flow", "image", "isa-x86", "lift", "spool", "sync", "tap", "trace"],
    ),
    ("collect-rv64", &["base", "codemem", "image", "isa-rv64"]),
    ("model", &["base"]),
    ("plugin", &["base"]),
    ("analyze", &["base"]),
    ("convert", &["base", "isa-x86"]),
    ("report", &["analyze", "base", "model"]),
];

/// Crates that may depend on all others.
const OVERVIEW: &[&str] = &["cli", "testkit"];

/// Compares `cargo metadata` with the table.
pub fn check() -> Result<Vec<Problem>> {
    let mut cargo = run::cargo_command();
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&run::output(&mut cargo)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(name) = name.strip_prefix("ichnos-") else { continue };
        if OVERVIEW.contains(&name) {
            continue;
        }
        let place = format!("crates/{name}/Cargo.toml");
        let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| *n == name) else {
            problems.push(Problem::new(place, "the crate is not in the table of arrows"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(to) = dependency["name"].as_str().and_then(|n| n.strip_prefix("ichnos-"))
            else {
                continue;
            };
            let only_dev = dependency["kind"].as_str() == Some("dev");
            if !only_dev && !allowed.contains(&to) {
                problems.push(Problem::new(&place, format!("{name} must not depend on {to}")));
            }
        }
    }
    Ok(problems)
}
