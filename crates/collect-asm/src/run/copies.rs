//! The copies that were made so far, and the files that they were made from.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ichnos_base::GuestVa;
use ichnos_flow::Options;

use super::Config;
use super::setup::bias;
use crate::Error;
use crate::code::{Copy, Form, Image, Loading, Plot, Source, Tool, may_have_notes, symbol};

/// A file as it was at a time.
type File = (PathBuf, Option<SystemTime>);

/// Copies, by file, where that was loaded, and where they lie.
#[derive(Default)]
pub(crate) struct Copies {
    made: HashMap<(File, u64, Plot), Option<Arc<Copy>>>,
    /// Libraries that were looked into; nothing of those without notes.
    files: HashMap<File, Option<Arc<Image>>>,
    /// Functions that were asked for and that some image has.
    found: HashSet<String>,
}

/// How copies are made.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    pub(crate) options: &'a Options,
    pub(crate) form: Form,
    pub(crate) config: &'a Config,
}

/// A library with notes in a process.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// How far from its own addresses it was loaded.
    pub(crate) bias: u64,
    pub(crate) image: Arc<Image>,
}

impl Found {
    /// Whether both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.path == other.path && self.bias == other.bias
    }

    /// From where to where it lies.
    pub(crate) fn span(&self) -> (u64, u64) {
        let (low, high) = self.image.span;
        (low.wrapping_add(self.bias), high.wrapping_add(self.bias))
    }
}

impl Copies {
    /// The copy for the program that a process just began to run; nothing if it has no notes.
    pub(crate) fn program(
        &mut self,
        pid: i32,
        manner: Manner<'_>,
    ) -> Result<Option<Arc<Copy>>, Error> {
        let link = PathBuf::from(format!("/proc/{pid}/exe"));
        let Ok(path) = fs::read_link(&link) else { return Ok(None) };
        let Ok(Some(image)) = Image::open(&link) else { return Ok(None) };
        let bias = if image.movable { bias(pid, &path, &image) } else { Some(0) };
        let Some(bias) = bias else { return Ok(None) };
        let plot = Plot::of_program(&image, bias);
        let key = ((path, time(&link)), bias, plot);
        if let Some(copy) = self.made.get(&key) {
            return Ok(copy.clone());
        }
        let found = self.functions(&link, (&image, bias), manner.config);
        if image.loading == Loading::Alone {
            let program = key.0.0.to_string_lossy().into_owned();
            self.all_found(manner.config, program)?;
        }
        let tool = Tool::of(&link);
        let switching = manner.config.switching(|name| found.get(name).copied());
        let how = (manner.options, manner.form);
        let mut copy = Copy::new((&image, bias, plot), how, (switching, tool))?;
        copy.source = source(&link, (bias, false), manner.config);
        let copy = (!copy.blocks.is_empty()).then(|| Arc::new(copy));
        self.made.insert(key, copy.clone());
        Ok(copy)
    }

    /// The copy of a library; nothing if none of its functions can be copied.
    pub(crate) fn library(
        &mut self,
        library: &Found,
        plot: Plot,
        manner: Manner<'_>,
        tool: Option<&Tool>,
    ) -> Result<Option<Arc<Copy>>, Error> {
        let Found { path, bias, image } = library;
        let key = ((path.clone(), time(path)), *bias, plot);
        if let Some(copy) = self.made.get(&key) {
            return Ok(copy.clone());
        }
        let found = self.functions(path, (image, *bias), manner.config);
        let switching = manner.config.switching(|name| found.get(name).copied());
        let how = (manner.options, manner.form);
        let mut copy = Copy::new((image, *bias, plot), how, (switching, tool.cloned()))?;
        copy.source = source(path, (*bias, true), manner.config);
        let copy = (!copy.blocks.is_empty()).then(|| Arc::new(copy));
        self.made.insert(key, copy.clone());
        Ok(copy)
    }

    /// What a library's file holds; nothing if it has no notes.
    pub(crate) fn image(&mut self, path: &Path) -> Option<Arc<Image>> {
        let key = (path.to_owned(), time(path));
        let look = || {
            let image = may_have_notes(path).then(|| Image::open(path).ok().flatten());
            image.flatten().map(Arc::new)
        };
        self.files.entry(key).or_insert_with(look).clone()
    }

    /// Where an image has the functions that were asked for, of those that a compiler made.
    fn functions<'a>(
        &mut self,
        path: &Path,
        (image, bias): (&Image, u64),
        config: &'a Config,
    ) -> HashMap<&'a str, GuestVa> {
        let mut places = HashMap::new();
        for name in config.functions() {
            let own = symbol(path, name).map(|(own, _)| own);
            let noted = |own: &u64| image.notes.iter().any(|n| n.start == *own && n.compiled);
            if let Some(own) = own.filter(noted) {
                self.found.insert(name.to_owned());
                places.insert(name, GuestVa(own.wrapping_add(bias)));
            }
        }
        places
    }

    /// Whether all functions that were asked for were found.
    pub(crate) fn all_found(&self, config: &Config, program: String) -> Result<(), Error> {
        match config.functions().find(|name| !self.found.contains(*name)) {
            Some(name) => Err(Error::NoFunction { name: name.to_owned(), program }),
            None => Ok(()),
        }
    }
}

/// What a copy was made from, if somebody may have to make it again when the file has become another one.
fn source(path: &Path, (bias, of_library): (u64, bool), config: &Config) -> Option<Source> {
    let file = config.keeps_files.then(|| fs::read(path).ok()).flatten()?;
    Some(Source { file, bias, of_library })
}

fn time(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}
