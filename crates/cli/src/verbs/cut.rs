//! `ichnos cut`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::Result;

use crate::exit::Ending;

/// To come.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: Args) -> Result<Ending> {
    Ok(Ending::Good)
}
