//! Where a trace comes from: a file read at positions, or bytes in memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ichnos_base::FileOff;

use crate::error::Error;

/// Bytes that can be read at any place.
#[derive(Debug)]
pub(crate) enum Input {
    File { file: File, len: u64 },
    Bytes(Vec<u8>),
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Open { path: path.display().to_string(), source };
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        Ok(Self::File { file, len: about.len() })
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads up to `len` bytes at `offset` into `out`; fewer only at the end.
    pub(crate) fn read(&self, offset: FileOff, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        out.clear();
        let left = self.len().saturating_sub(offset.0);
        let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        match self {
            Self::Bytes(bytes) => {
                let start = offset.0 as usize;
                out.extend_from_slice(bytes.get(start..start + len).unwrap_or_default());
            }
            Self::File { file, .. } => {
                out.resize(len, 0);
                let mut at = 0;
                while at < len {
                    let place = offset.offset(at as u64);
                    match file.read_at(&mut out[at..], place.0) {
                        Ok(0) => break,
                        Ok(n) => at += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(source) => return Err(Error::Read { offset: place, source }),
                    }
                }
                out.truncate(at);
            }
        }
        Ok(())
    }
}
