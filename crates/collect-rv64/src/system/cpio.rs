//! Archives that the kernel unpacks as its first file system ("newc" format).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::error::Error;

const DEVICE: u32 = 0o020_000;

/// An archive under construction. Archives may follow each other.
#[derive(Debug, Default)]
pub struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    fn entry(&mut self, name: &[u8], mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            contents.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A regular file; `mode` has the permissions.
    pub fn file(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entry(name.as_bytes(), 0o100_000 | mode, (0, 0), contents);
    }

    /// A folder.
    pub fn folder(&mut self, name: &str) {
        self.entry(name.as_bytes(), 0o040_755, (0, 0), &[]);
    }

    /// A symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name.as_bytes(), 0o120_777, (0, 0), target.as_bytes());
    }

    /// A character device.
    pub fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name.as_bytes(), DEVICE | 0o600, (major, minor), &[]);
    }

    /// All that a host folder holds, sorted by name so that runs repeat.
    pub fn host_folder(&mut self, folder: &Path) -> Result<(), Error> {
        self.host_entries(folder, folder)
    }

    fn host_entries(&mut self, top: &Path, folder: &Path) -> Result<(), Error> {
        let fail = |source| Error::Read { path: folder.to_owned(), source };
        let mut entries = std::fs::read_dir(folder)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(fail)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let fail = |source| Error::Read { path: path.clone(), source };
            let name = path.strip_prefix(top).unwrap_or(&path).as_os_str().as_bytes().to_vec();
            let meta = path.symlink_metadata().map_err(fail)?;
            let contents = if meta.is_file() {
                std::fs::read(&path).map_err(fail)?
            } else if meta.is_symlink() {
                std::fs::read_link(&path).map_err(fail)?.as_os_str().as_bytes().to_vec()
            } else {
                Vec::new()
            };
            self.entry(&name, meta.mode(), (0, 0), &contents);
            if meta.is_dir() {
                self.host_entries(top, &path)?;
            }
        }
        Ok(())
    }

    /// The finished archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(b"TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_published_layout() {
        let mut cpio = Cpio::default();
        cpio.file("init", 0o755, b"hello");
        let bytes = cpio.finish();
        assert!(bytes.starts_with(b"07070100000001000081ed"));
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..121], b"hello");
        assert!(bytes.len() % 4 == 0 && bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
