//! Where a writer's bytes go: files, compressed as their names say, one for all
//! threads or one for each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result};
use ichnos_base::ThreadId;

/// How a stream is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// zstd.
    Zstd,
}

impl Compression {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Gzip, Self::Xz, Self::Zstd];

    /// What a file's name asks for.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()) {
            Some("gz") => Self::Gzip,
            Some("xz") => Self::Xz,
            Some("zst") => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// A compressing writer. Its end must be written by [`Output::finish`]; one
/// dropped without leaves a stream that readers find truncated, as it is.
pub struct Output(Kind);

type Sealed = BufWriter<Box<dyn Write + Send>>;

enum Kind {
    None(Sealed),
    Gzip(flate2::write::GzEncoder<Sealed>),
    Xz(liblzma::write::XzEncoder<Sealed>),
    Zstd(zstd::stream::write::Encoder<'static, Sealed>),
}

impl Output {
    /// Compresses what is written and passes it on to `to`.
    pub fn new(to: Box<dyn Write + Send>, compression: Compression) -> io::Result<Self> {
        let to = BufWriter::with_capacity(1 << 17, to);
        Ok(Self(match compression {
            Compression::None => Kind::None(to),
            Compression::Gzip => {
                Kind::Gzip(flate2::write::GzEncoder::new(to, flate2::Compression::default()))
            }
            Compression::Xz => Kind::Xz(liblzma::write::XzEncoder::new(to, 6)),
            Compression::Zstd => Kind::Zstd(zstd::stream::write::Encoder::new(to, 3)?),
        }))
    }

    /// Makes the file `path`, compressed as its name says.
    pub fn create(path: &Path) -> Result<Self> {
        let open = |source| Error::Open { path: path.to_owned(), source };
        let file = File::create(path).map_err(open)?;
        Self::new(Box::new(file), Compression::from_path(path)).map_err(open)
    }

    /// Writes what is left and the stream's end.
    pub fn finish(self) -> io::Result<()> {
        let mut inner = match self.0 {
            Kind::None(to) => to,
            Kind::Gzip(encoder) => encoder.finish()?,
            Kind::Xz(encoder) => encoder.finish()?,
            Kind::Zstd(encoder) => encoder.finish()?,
        };
        inner.flush()
    }
}

impl Write for Output {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::None(to) => to.write(bytes),
            Kind::Gzip(to) => to.write(bytes),
            Kind::Xz(to) => to.write(bytes),
            Kind::Zstd(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::None(to) => to.flush(),
            Kind::Gzip(to) => to.flush(),
            Kind::Xz(to) => to.flush(),
            Kind::Zstd(to) => to.flush(),
        }
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

/// The file of a thread, for formats that hold one thread a file: the first
/// thread that executes anything has the path that was asked for, the others
/// have their number before the last ending (a compression's and one more).
#[must_use]
pub fn thread_path(path: &Path, thread: Option<ThreadId>) -> PathBuf {
    let (Some(thread), Some(name)) = (thread, path.file_name().and_then(|n| n.to_str())) else {
        return path.to_owned();
    };
    let compressed = [".gz", ".xz", ".zst", ".zip"].iter().find(|e| name.ends_with(*e));
    let bare = &name[..name.len() - compressed.map_or(0, |e| e.len())];
    // A name that begins with its only dot has no ending.
    let cut = bare.rfind('.').filter(|&at| at > 0).unwrap_or(bare.len());
    path.with_file_name(format!("{}.t{thread}{}", &name[..cut], &name[cut..]))
}

#[cfg(test)]
pub(crate) fn compress_all(compression: Compression, plain: &[u8]) -> Vec<u8> {
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let shared = Shared::default();
    let mut output = Output::new(Box::new(shared.clone()), compression).expect("memory");
    output.write_all(plain).expect("memory");
    output.finish().expect("memory");
    shared.0.lock().expect("not poisoned").clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_files_of_their_own() {
        for (path, other) in [
            ("a/x.champsimtrace.xz", "a/x.t3.champsimtrace.xz"),
            ("602.gcc.champsim", "602.gcc.t3.champsim"),
            ("x.trace.zip", "x.t3.trace.zip"),
            ("x", "x.t3"),
            (".x", ".x.t3"),
            ("x.gz", "x.t3.gz"),
        ] {
            let path = Path::new(path);
            assert_eq!(thread_path(path, None), path);
            assert_eq!(thread_path(path, Some(ThreadId(3))), Path::new(other));
        }
    }
}
