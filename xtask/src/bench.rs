//! Measurements, as tables. Each is a program of its own crate; this file knows
//! their names and what they need.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::{Result, bail};

/// Runs the measurement that the arguments name.
pub fn dispatch(args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(name) => bail!("there is no measurement `{name}`"),
    }
}
