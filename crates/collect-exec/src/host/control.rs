//! Switches the recording of a run on and off from outside.
//!
//! The switch is a word in the head of the run's tap, a file in memory that the collector holds open;
//! whoever may trace the collector may open it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ichnos_tap::{Header, MAGIC, VERSION};

use crate::Error;

/// How many ancestors are asked.
const GENERATIONS: usize = 64;

/// What becomes of the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// It goes on.
    On,
    /// It pauses.
    Off,
}

/// Switches the run of which `pid` is the collector or one of the recorded processes. Its threads notice
/// within about a million instructions of theirs.
///
/// # Errors
///
/// If there is no such run, if it may not be touched, or if it records everything and cannot be
/// switched.
pub fn control(pid: u32, to: Switch) -> Result<(), Error> {
    let failed =
        |source| Error::Process { what: "switch the recording of", pid: pid as i32, source };
    let tap = find(pid).map_err(failed)?.ok_or(Error::NoRun { pid })?;
    let word = |at: usize| {
        let mut bytes = [0; 4];
        tap.read_exact_at(&mut bytes, at as u64).map(|()| u32::from_le_bytes(bytes))
    };
    let mut magic = [0; 8];
    tap.read_exact_at(&mut magic, 0).map_err(failed)?;
    if u64::from_le_bytes(magic) != MAGIC || word(8).map_err(failed)? != VERSION {
        return Err(Error::NoRun { pid });
    }
    if word(Header::SWITCHABLE_AT).map_err(failed)? == 0 {
        return Err(Error::NoSwitch { pid });
    }
    let paused = u32::from(to == Switch::Off);
    tap.write_all_at(&paused.to_le_bytes(), Header::PAUSED_AT as u64).map_err(failed)
}

/// The tap that a process or one of its ancestors holds.
fn find(pid: u32) -> io::Result<Option<File>> {
    let mut next = Some(pid);
    for _ in 0..GENERATIONS {
        let Some(pid) = next.filter(|&pid| pid > 1) else { return Ok(None) };
        if let Some(path) = held(pid)? {
            return OpenOptions::new().read(true).write(true).open(path).map(Some);
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        next = parent.and_then(|number| number.trim().parse().ok());
    }
    Ok(None)
}

fn held(pid: u32) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        let is_tap = |target: PathBuf| target.to_string_lossy().starts_with("/memfd:ichnos-tap");
        if fs::read_link(&path).is_ok_and(is_tap) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_run_is_told_so() {
        let own = std::process::id();
        assert!(matches!(control(own, Switch::On), Err(Error::NoRun { pid }) if pid == own));
    }
}
