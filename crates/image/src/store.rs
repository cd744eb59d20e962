//! The images a trace names, each opened at most once and only when needed.
//!
//! An image is named by path and build-id together: after an update of a
//! library during a long trace both its versions have an id.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ichnos_base::MapKind;

use crate::{DebugFolders, Error, Frame, Image, ImageVa};

/// One image that a trace names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageId(pub u32);

/// Why an image gives no names.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file is not the one that was traced.
    OtherBuild {
        /// Which file.
        path: PathBuf,
        /// The build-id in the trace.
        traced: Vec<u8>,
        /// The build-id of the file now; empty if it has none.
        found: Vec<u8>,
    },
    /// The file cannot be opened as an image.
    Unreadable(Error),
    /// The file's debugging information cannot be used; its symbols can.
    NoLines(Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherBuild { path, traced, found } => {
                write!(f, "{} is not the file that was traced: its build-id is ", path.display())?;
                match found.is_empty() {
                    true => write!(f, "missing")?,
                    false => write!(f, "{}", Hex(found))?,
                }
                write!(f, ", the trace says {}", Hex(traced))
            }
            Self::Unreadable(error) | Self::NoLines(error) => {
                write!(f, "{error}")?;
                match std::error::Error::source(error) {
                    Some(source) if matches!(error, Error::Io { .. }) => write!(f, ": {source}"),
                    _ => Ok(()),
                }
            }
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Frames kept per image before the cache starts over: bounds its memory.
const FRAMES_KEPT: usize = 1 << 16;

#[derive(Debug)]
struct Named {
    path: String,
    build_id: Vec<u8>,
    has_file: bool,
    opened: bool,
    image: Option<Image>,
    frames: HashMap<ImageVa, Vec<Frame>>,
    lines_failed: bool,
}

/// All images by id.
#[derive(Debug, Default)]
pub(crate) struct Store {
    folders: DebugFolders,
    images: Vec<Named>,
    ids: HashMap<(String, Vec<u8>), ImageId>,
    problems: Vec<Problem>,
}

impl Store {
    pub(crate) fn new(folders: DebugFolders) -> Self {
        Self { folders, ..Self::default() }
    }

    /// The id of an image or of a named mapping without a file; `None` for
    /// memory without a name, or past four thousand million names.
    pub(crate) fn id(&mut self, path: &str, build_id: &[u8], kind: MapKind) -> Option<ImageId> {
        if path.is_empty() {
            return None;
        }
        let key = (path.to_owned(), build_id.to_vec());
        if let Some(&id) = self.ids.get(&key) {
            return Some(id);
        }
        let id = ImageId(u32::try_from(self.images.len()).ok()?);
        self.images.push(Named {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            has_file: kind == MapKind::IMAGE && path.starts_with('/'),
            opened: false,
            image: None,
            frames: HashMap::new(),
            lines_failed: false,
        });
        self.ids.insert(key, id);
        Some(id)
    }

    pub(crate) fn name(&self, id: ImageId) -> &str {
        self.images.get(id.0 as usize).map_or("", |n| n.path.as_str())
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The image, if it is there and the one that was traced.
    pub(crate) fn image(&mut self, id: ImageId) -> Option<&Image> {
        let named = self.images.get_mut(id.0 as usize)?;
        if !named.opened {
            named.opened = true;
            if named.has_file {
                let (image, problem) = open(&named.path, &named.build_id, &self.folders);
                named.image = image;
                self.problems.extend(problem);
            }
        }
        named.image.as_ref()
    }

    /// The image, if it has been opened before.
    pub(crate) fn opened(&self, id: ImageId) -> Option<&Image> {
        self.images.get(id.0 as usize)?.image.as_ref()
    }

    /// The source of an address of an image, innermost first.
    pub(crate) fn frames(&mut self, id: ImageId, addr: ImageVa) -> &[Frame] {
        if self.image(id).is_none() {
            return &[];
        }
        let Some(named) = self.images.get_mut(id.0 as usize) else { return &[] };
        if !named.frames.contains_key(&addr) {
            let found = match named.image.as_ref().map(|image| image.frames(addr)) {
                Some(Ok(frames)) => frames,
                Some(Err(error)) if !named.lines_failed => {
                    named.lines_failed = true;
                    self.problems.push(Problem::NoLines(error));
                    Vec::new()
                }
                _ => Vec::new(),
            };
            if named.frames.len() >= FRAMES_KEPT {
                named.frames.clear();
            }
            named.frames.insert(addr, found);
        }
        named.frames.get(&addr).map_or(&[], Vec::as_slice)
    }
}

/// Opens what was traced: the file if its build-id fits, else the separate debug
/// file with that build-id, whose symbols and lines are the same.
fn open(path: &str, traced: &[u8], folders: &DebugFolders) -> (Option<Image>, Option<Problem>) {
    let problem = match Image::open_with(Path::new(path), folders) {
        Ok(image) if traced.is_empty() || image.build_id() == traced => return (Some(image), None),
        Ok(image) => Problem::OtherBuild {
            path: path.into(),
            traced: traced.to_vec(),
            found: image.build_id().to_vec(),
        },
        Err(error) => Problem::Unreadable(error),
    };
    let debug = folders
        .by_build_id(traced)
        .filter_map(|path| Image::open_with(&path, folders).ok())
        .find(|image| image.build_id() == traced);
    match debug {
        Some(image) => (Some(image), None),
        None => (None, Some(problem)),
    }
}
