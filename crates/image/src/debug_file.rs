//! Where debugging information lives when it was split off an image.
//!
//! The order is gdb's: by build-id under each debug folder, then by the name in
//! `.gnu_debuglink` beside the image, in `.debug` beside it, and under each
//! debug folder. A candidate counts only if its build-id is the image's, or,
//! without build-ids, its checksum the one of the link.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folders that hold separate debug files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DebugFolders(pub Vec<PathBuf>);

impl Default for DebugFolders {
    /// The one folder that every distribution uses.
    fn default() -> Self {
        Self(vec![PathBuf::from("/usr/lib/debug")])
    }
}

impl DebugFolders {
    /// Where a debug file with this build-id would lie.
    pub fn by_build_id(&self, build_id: &[u8]) -> impl Iterator<Item = PathBuf> {
        let name =
            build_id.split_first().filter(|(_, rest)| !rest.is_empty()).map(|(first, rest)| {
                let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
                format!(".build-id/{first:02x}/{rest}.debug")
            });
        self.0.iter().filter_map(move |folder| Some(folder.join(name.as_ref()?)))
    }

    /// Where a debug file with this link name would lie, for an image at `image`.
    pub fn by_link(&self, image: &Path, link: &[u8]) -> Vec<PathBuf> {
        let link = Path::new(OsStr::from_bytes(link));
        // A link is a bare file name; anything else would lead elsewhere.
        if link.components().count() != 1 || link.file_name().is_none() {
            return Vec::new();
        }
        let image = fs::canonicalize(image).unwrap_or_else(|_| image.to_owned());
        let Some(folder) = image.parent() else { return Vec::new() };
        let mut found = vec![folder.join(link), folder.join(".debug").join(link)];
        for root in &self.0 {
            let inside = folder.strip_prefix("/").unwrap_or(folder);
            found.push(root.join(inside).join(link));
        }
        found.retain(|candidate| *candidate != image);
        found
    }
}

/// The checksum that `.gnu_debuglink` carries, of a whole file.
pub(crate) fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = File::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(buffer.get(..n).unwrap_or(&[])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_id_paths_are_split_after_the_first_byte() {
        let folders = DebugFolders(vec!["/d".into()]);
        let paths: Vec<_> = folders.by_build_id(&[0xab, 0x0c, 0xde]).collect();
        assert_eq!(paths, [PathBuf::from("/d/.build-id/ab/0cde.debug")]);
        assert_eq!(folders.by_build_id(&[]).count(), 0);
        assert_eq!(folders.by_build_id(&[1]).count(), 0);
    }

    #[test]
    fn links_with_folders_in_them_are_refused() {
        let folders = DebugFolders(vec!["/d".into()]);
        assert!(folders.by_link(Path::new("/no/such/image"), b"../../etc/passwd").is_empty());
        assert!(folders.by_link(Path::new("/no/such/image"), b"..").is_empty());
        assert_eq!(
            folders.by_link(Path::new("/no/such/image"), b"image.debug"),
            ["/no/such/image.debug", "/no/such/.debug/image.debug", "/d/no/such/image.debug"]
                .map(PathBuf::from)
        );
    }
}
