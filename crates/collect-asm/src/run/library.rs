//! What the tracer knows of a process's libraries: which have copies, and where those lie.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ichnos_rt::Thread;

use super::copies::{Copies, Found};
use super::maps::{self, Mapped};
use crate::code::{Copy, Form, HOOK_LEN, Image, Listed, Numbers, PAGE, Plot, Room, imports};

/// A library that has copies.
#[derive(Clone)]
pub(crate) struct Library {
    path: PathBuf,
    bias: u64,
    /// A number that no other one has meanwhile.
    number: u64,
    pub(crate) copy: Arc<Copy>,
}

impl Library {
    pub(crate) fn new(found: &Found, number: u64, copy: Arc<Copy>) -> Self {
        Self { path: found.path.clone(), bias: found.bias, number, copy }
    }

    fn is(&self, found: &Found) -> bool {
        self.path == found.path && self.bias == found.bias
    }

    /// Whether its functions lead to the copies: if it was loaded again meanwhile, they do not.
    fn is_led(&self, thread: Thread) -> bool {
        let Some(first) = self.copy.patches.first() else { return false };
        let mut bytes = vec![0; first.bytes.len()];
        thread.read(first.at.0, &mut bytes).is_ok() && bytes == first.bytes
    }

    /// Whether both cannot have copies at once.
    fn meets(&self, other: &Self) -> bool {
        let both = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let parts = || other.copy.parts();
        self.number == other.number || self.copy.parts().any(|a| parts().any(|b| both(&a, &b)))
    }
}

/// A process's libraries.
#[derive(Clone, Default)]
pub(crate) struct Libraries {
    /// Where the loader stops when it has changed which there are.
    pub(crate) stop: Option<u64>,
    /// The list by which the unwinder finds copies.
    pub(crate) listed: Option<Listed>,
    /// Rooms for their copies, and the form in which those record.
    rooms: Vec<(Room, Form)>,
    /// Those with copies, and those that had some.
    loaded: Vec<Library>,
    gone: Vec<Library>,
    /// Those that run as they are.
    refused: Vec<Found>,
    /// The mappings that were told.
    pub(crate) told: Vec<Mapped>,
}

impl Libraries {
    /// Whether some are not there any more, or others came.
    pub(crate) fn changes(&self, thread: Thread, found: &[Found]) -> bool {
        let stays = |l: &Library| found.iter().any(|f| l.is(f)) && l.is_led(thread);
        !self.loaded.iter().all(stays) || !found.iter().all(|f| self.has(f))
    }

    /// Takes out those that are not there any more.
    pub(crate) fn unload(&mut self, thread: Thread, found: &[Found]) -> Vec<Library> {
        let stays = |l: &Library| found.iter().any(|f| l.is(f)) && l.is_led(thread);
        let (loaded, gone) = std::mem::take(&mut self.loaded).into_iter().partition(stays);
        self.loaded = loaded;
        self.refused.retain(|refused| found.iter().any(|f| refused.is(f)));
        let gone: Vec<Library> = gone;
        self.gone.extend(gone.iter().cloned());
        gone
    }

    /// Whether one is known.
    pub(crate) fn has(&self, found: &Found) -> bool {
        self.loaded.iter().any(|l| l.is(found)) || self.refused.iter().any(|r| r.is(found))
    }

    /// One runs as it is while it is there.
    pub(crate) fn refuse(&mut self, found: &Found) {
        self.refused.push(found.clone());
    }

    /// One that was there before at the same place, if its copies can be where they were.
    pub(crate) fn again(&mut self, found: &Found) -> Option<Library> {
        let free = |l: &Library| !self.loaded.iter().any(|other| l.meets(other));
        let i = self.gone.iter().position(|l| l.is(found) && free(l))?;
        Some(self.gone.swap_remove(i))
    }

    /// Adds one.
    pub(crate) fn add(&mut self, library: Library) {
        self.loaded.push(library);
    }

    /// A room for copies that record in a form; whether it must be made. Nothing if there is no memory near enough.
    pub(crate) fn room(
        &self,
        found: &Found,
        form: Form,
        maps: &[Range<u64>],
    ) -> Option<(Room, bool)> {
        let span = found.span();
        let known = self.rooms.iter().find(|(room, of)| *of == form && room.reaches(span));
        if let Some((room, _)) = known {
            return Some((*room, false));
        }
        let free = |room: &Room| {
            let end = room.at + Room::LEN;
            !maps.iter().any(|m| m.start < end && room.at < m.end)
        };
        let number = self.rooms.len() as u64 + 1;
        Room::candidates(span, number).find(free).map(|room| (room, true))
    }

    /// Adds a room.
    pub(crate) fn add_room(&mut self, room: Room, form: Form) {
        self.rooms.push((room, form));
    }

    /// A place in a room for the copies of a library, with its number.
    pub(crate) fn plot(&self, room: Room, first: Numbers) -> Option<(Plot, u64)> {
        let in_room = |l: &&Library| l.copy.plot.room == room.at;
        let ends = self.loaded.iter().filter(in_room).map(|l| l.copy.ends());
        let used = |number: &u64| self.loaded.iter().any(|l| l.number == *number);
        let number = (0..).find(|number| !used(number))?;
        Some((Plot::of_library(room, ends, (number, first))?, number))
    }

    /// Pages for calls of a tool.
    pub(crate) fn tool_pages(&self) -> impl Iterator<Item = u64> {
        self.rooms.iter().map(|(room, _)| room.tool_page())
    }

    /// What of the process's memory is the tracer's.
    pub(crate) fn ours(&self) -> impl Iterator<Item = Range<u64>> {
        let rooms = self.rooms.iter().map(|(room, _)| room.at..room.at + Room::LEN);
        let hook = self.listed.iter().map(Listed::hook).map(|at| at..at + HOOK_LEN);
        rooms.chain(hook)
    }
}

/// The libraries with notes among a process's mappings.
pub(crate) fn find(text: &str, program: &Path, copies: &mut Copies) -> Vec<Found> {
    let page = |x: u64| x / PAGE * PAGE;
    let mut all: Vec<Found> = Vec::new();
    for line in maps::lines(text).filter(|l| l.runs && l.path.starts_with('/')) {
        let path = Path::new(line.path);
        if path == program {
            continue;
        }
        let Some(image) = copies.image(path) else { continue };
        let segment = image.executable.iter().find(|(offset, _)| page(*offset) == line.offset);
        let Some(bias) = segment.map(|(_, own)| line.range.start.wrapping_sub(page(*own))) else {
            continue;
        };
        if !all.iter().any(|f| f.path == path && f.bias == bias) {
            all.push(Found { path: path.to_owned(), bias, image });
        }
    }
    all
}

/// Whether something in a process may load more libraries.
pub(crate) fn can_load(text: &str) -> bool {
    const LOADS: [&str; 2] = ["dlopen", "dlmopen"];
    // The C library loads parts of itself, and those have no notes.
    let is_libc = |path: &Path| {
        let name = path.file_name().map(|n| n.to_string_lossy());
        name.is_some_and(|n| n.starts_with("libc.so") || n.starts_with("ld-"))
    };
    let files: HashSet<&Path> = maps::lines(text)
        .filter(|l| l.runs && l.path.starts_with('/'))
        .map(|l| Path::new(l.path))
        .collect();
    let mut others = files.into_iter().filter(|path| !is_libc(path));
    others.any(|path| LOADS.iter().any(|name| imports(path, name)))
}

/// Whether a process has the code that the file has: nobody has changed one or the other.
pub(crate) fn is_same(thread: Thread, found: &Found) -> io::Result<bool> {
    let image: &Image = &found.image;
    for note in &image.notes {
        let Some(code) = image.bytes(note.start, u64::from(note.size)) else { continue };
        let mut bytes = vec![0; code.len()];
        thread.read(note.start.wrapping_add(found.bias), &mut bytes)?;
        if bytes != code {
            return Ok(false);
        }
    }
    Ok(true)
}
