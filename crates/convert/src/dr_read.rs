//! Reads drmemtrace's canonical form: zip files of chunks, or the bare entries,
//! one file a thread or a core, told one file after the other.
//!
//! This file takes entries out of containers; `dr_story.rs` says what they mean.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use ichnos_base::{DriveError, Sink, Source};
use zip::ZipArchive;

use crate::dr_entry::{ENTRY, Entry, FOOTER};
use crate::dr_story::Story;
use crate::feed::{Feed, Halt, drive};
use crate::input::{Stream, open_stream, read_full};
use crate::{Error, Format, Result};

const FORMAT: Format = Format::DrMemtrace;
/// Entries read at once.
const AT_ONCE: usize = 4096;

/// What archives are read from.
pub trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// Where entries come from.
enum Container {
    Path(PathBuf),
    Zip(Box<ZipArchive<Box<dyn ReadSeek>>>),
    Bare(Stream),
}

/// A source of drmemtrace entries.
pub struct DrMemtraceSource {
    containers: Vec<Container>,
}

impl DrMemtraceSource {
    /// Opens a file, or all files of a folder (or of its subfolder `trace`) in
    /// the order of their names.
    pub fn open(path: &Path) -> Result<Self> {
        let open = |source| Error::Open { path: path.to_owned(), source };
        if !std::fs::metadata(path).map_err(open)?.is_dir() {
            return Ok(Self { containers: vec![Container::open(path)?] });
        }
        let inside = path.join("trace");
        let folder = if inside.is_dir() { inside } else { path.to_owned() };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(open)? {
            let path = entry.map_err(open)?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            if name.ends_with(".trace.zip") || name.ends_with(".trace.gz") {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            let what = format!("{} has no *.trace.zip or *.trace.gz", folder.display());
            return Err(Error::Unsupported { format: FORMAT, what });
        }
        paths.sort();
        // Opened one at a time: a trace of a thousand threads has as many files.
        Ok(Self { containers: paths.into_iter().map(Container::Path).collect() })
    }

    /// Reads a zip archive.
    pub fn from_archive(input: Box<dyn ReadSeek>) -> Result<Self> {
        Ok(Self { containers: vec![Container::zip(input)?] })
    }

    /// Reads bare entries, not compressed and in no archive.
    #[must_use]
    pub fn from_entries(input: Stream) -> Self {
        Self { containers: vec![Container::Bare(input)] }
    }
}

impl Container {
    fn open(path: &Path) -> Result<Self> {
        let open = |source| Error::Open { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(open)?;
        let mut mark = [0; 2];
        let n = read_full(&mut file, &mut mark).map_err(open)?;
        if n == 2 && mark == *b"PK" {
            file.rewind().map_err(open)?;
            return Self::zip(Box::new(BufReader::with_capacity(1 << 16, file)));
        }
        Ok(Self::Bare(open_stream(path)?))
    }

    fn zip(input: Box<dyn ReadSeek>) -> Result<Self> {
        let archive =
            ZipArchive::new(input).map_err(|e| bad(0, format!("no good archive: {e}")))?;
        Ok(Self::Zip(Box::new(archive)))
    }

    fn tell<S: Sink>(
        self,
        story: &mut Story,
        feed: &mut Feed<'_, S>,
    ) -> Result<(), Halt<S::Error>> {
        story.begin_file();
        let mut entries = Entries { offset: 0, last: None };
        match self {
            Self::Path(path) => return Self::open(&path)?.tell(story, feed),
            Self::Bare(mut stream) => entries.tell(&mut stream, story, feed)?,
            Self::Zip(mut archive) => {
                for index in 0..archive.len() {
                    let mut member = archive.by_index(index).map_err(|e| {
                        bad(entries.offset, format!("member {index} of the archive: {e}"))
                    })?;
                    entries.tell(&mut member, story, feed)?;
                }
            }
        }
        if entries.last != Some(FOOTER) {
            let what = "it ends without a footer entry: the trace is cut short".to_owned();
            return Err(Halt::Source(bad(entries.offset, what)));
        }
        story.end_file(feed)
    }
}

/// Entries on their way from bytes to the story.
struct Entries {
    /// Bytes of contents before the entry at hand.
    offset: u64,
    /// The type of the last entry.
    last: Option<u16>,
}

impl Entries {
    fn tell<S: Sink>(
        &mut self,
        input: &mut dyn Read,
        story: &mut Story,
        feed: &mut Feed<'_, S>,
    ) -> Result<(), Halt<S::Error>> {
        let mut block = vec![0; ENTRY * AT_ONCE];
        loop {
            let read = read_full(input, &mut block).map_err(|source| Error::Read {
                format: FORMAT,
                offset: self.offset,
                source,
            })?;
            let whole = block.get(..read).unwrap_or_default();
            let mut pieces = whole.chunks_exact(ENTRY);
            for bytes in pieces.by_ref() {
                let Some(bytes) = bytes.first_chunk() else { continue };
                let entry = Entry::decode(bytes);
                story.entry(entry, self.offset, feed)?;
                self.last = Some(entry.kind);
                self.offset += ENTRY as u64;
            }
            let left = pieces.remainder().len();
            if left != 0 {
                let what = format!("{left} bytes are left over; an entry has {ENTRY}");
                return Err(Halt::Source(bad(self.offset, what)));
            }
            if read < block.len() {
                return Ok(());
            }
        }
    }
}

pub(crate) fn bad(offset: u64, what: String) -> Error {
    Error::Bytes { format: FORMAT, offset, what }
}

impl Source for DrMemtraceSource {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        let containers = std::mem::take(&mut self.containers);
        drive(sink, |feed| {
            let mut story = Story::default();
            for container in containers {
                container.tell(&mut story, feed)?;
            }
            Ok(())
        })
    }
}
