//! The word by which recordings are switched on and off: the first four bytes of a file.
//!
//! Every process that is recorded maps the file's first page and looks at the word at its events; whoever
//! may write the file may write the word. Several recordings can have the same.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

const PAGE: u64 = 4096;

/// The word.
#[derive(Debug)]
pub struct Word(File);

impl Word {
    /// What the name of a recording's own word begins with, among the files that it has open.
    pub const NAME: &str = "ichnos-switch";

    /// A word of this process's own, zero.
    pub fn new() -> io::Result<Self> {
        let file: OwnedFd = memfd_create(Self::NAME, MemfdFlags::CLOEXEC)?;
        Self::of(File::from(file))
    }

    /// The word in a file, which is made if it is not there. What the file holds stays.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        Self::of(options.read(true).write(true).create(true).truncate(false).open(path)?)
    }

    fn of(file: File) -> io::Result<Self> {
        if file.metadata()?.len() < PAGE {
            file.set_len(PAGE)?;
        }
        Ok(Self(file))
    }

    /// Its file in this process, for others to open.
    #[must_use]
    pub fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Sets it: not zero to record.
    pub fn set(&self, value: u32) -> io::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), 0)
    }

    /// Its value.
    pub fn get(&self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, 0).map(|()| u32::from_ne_bytes(bytes))
    }
}

/// How many ancestors are asked.
const GENERATIONS: usize = 64;

impl Word {
    /// The word of the recording that a process makes, or is part of; nothing if there is none.
    pub fn of_process(pid: u32) -> io::Result<Option<Self>> {
        let mut next = Some(pid);
        for _ in 0..GENERATIONS {
            let Some(pid) = next.filter(|&pid| pid > 1) else { return Ok(None) };
            if let Some(path) = held(pid)? {
                return File::options().read(true).write(true).open(path).map(|f| Some(Self(f)));
            }
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
            next = parent.and_then(|number| number.trim().parse().ok());
        }
        Ok(None)
    }
}

/// The word that a process has open.
fn held(pid: u32) -> io::Result<Option<PathBuf>> {
    let name = format!("/memfd:{}", Word::NAME);
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        if fs::read_link(&path).is_ok_and(|target| target.to_string_lossy().starts_with(&name)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_by_its_process_and_shared_by_its_file() {
        assert!(Word::of_process(std::process::id()).unwrap().is_none());
        let word = Word::new().unwrap();
        let found = Word::of_process(std::process::id()).unwrap().unwrap();
        found.set(7).unwrap();
        assert_eq!(word.get().unwrap(), 7);
        drop(word);
        let path = std::env::temp_dir().join(format!("ichnos-word-{}", std::process::id()));
        Word::open(&path).unwrap().set(1).unwrap();
        assert_eq!(Word::open(&path).unwrap().get().unwrap(), 1);
        fs::remove_file(&path).unwrap();
    }
}
