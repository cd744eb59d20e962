//! What the tracer told, as bytes for a spool, and back. Together with full buffers it says everything: a trace can be made of the two
//! when the program is long gone.
//!
//! It is a row of notes, each a tag and its fields. A copy of an image is noted before the first message that speaks of it, by what it
//! was made from, and made again from that; a digest of both tells whether it has become the same. Words lie in buffers of
//! their own, by the number of their filling.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bytes;
mod fields;

use std::path::Path;
use std::sync::Arc;

use ichnos_flow::Level;
use ichnos_rt::Clock;

use self::bytes::Bytes;
use super::images::Images;
use super::message::Message;
use crate::Error;
use crate::code::{Copy, Form, Image, Plot, Tool};

/// The notes that are no messages.
const BEGIN: u8 = 0;
const COPY: u8 = 1;
const MESSAGE: u8 = 2;

/// What is to be put into the spool.
pub(super) enum Put {
    /// The file of the copies with this number.
    File(u32, Arc<Copy>),
    /// Notes.
    Notes(Vec<u8>),
}

/// Who writes notes.
pub(super) struct Writer {
    notes: Vec<u8>,
    /// The copies that were noted.
    copies: Vec<Arc<Copy>>,
    /// Those of them whose files nobody has taken yet.
    files: Vec<(u32, Arc<Copy>)>,
}

impl Writer {
    /// With what is known of a recording.
    pub(super) fn new(level: Level, clock: &Clock) -> Self {
        let mut notes = vec![BEGIN];
        let level = Level::ALL.iter().position(|l| *l == level).unwrap_or(0);
        (level as u8, clock.parts()).put(&mut notes);
        Self { notes, copies: Vec::new(), files: Vec::new() }
    }

    /// Notes a message; if it tells of words, of this filling.
    pub(super) fn message(&mut self, message: &Message, filling: Option<u64>) {
        match message {
            Message::Program { images, .. } => images.all().iter().for_each(|c| self.copy(c)),
            Message::Library { copy, .. } => self.copy(copy),
            _ => {}
        }
        self.notes.push(MESSAGE);
        filling.put(&mut self.notes);
        let Self { notes, copies, .. } = self;
        let same = |copy: &Arc<Copy>| copies.iter().position(|c| Arc::ptr_eq(c, copy));
        fields::put(message, notes, |copy| same(copy).unwrap_or(0) as u32);
    }

    fn copy(&mut self, copy: &Arc<Copy>) {
        if self.copies.iter().any(|c| Arc::ptr_eq(c, copy)) {
            return;
        }
        let number = self.copies.len() as u32;
        self.copies.push(Arc::clone(copy));
        self.files.push((number, Arc::clone(copy)));
        let source = copy.source.as_ref();
        let about = source.map_or((0, false), |s| (s.bias, s.of_library));
        self.notes.push(COPY);
        (about, copy.plot).put(&mut self.notes);
        copy.digest().put(&mut self.notes);
    }

    /// How many bytes of notes nobody has taken yet.
    pub(super) const fn len(&self) -> usize {
        self.notes.len()
    }

    /// All that was noted and nobody has taken yet.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Put> {
        let files = std::mem::take(&mut self.files).into_iter();
        let notes = Some(std::mem::take(&mut self.notes)).filter(|notes| !notes.is_empty());
        files.map(|(number, copy)| Put::File(number, copy)).chain(notes.map(Put::Notes))
    }
}

/// A note, read.
pub(super) enum Note {
    /// How fast the processor's clock ran.
    Begin(Clock),
    /// A message; if it tells of words, of this filling.
    Message(Message, Option<u64>),
}

/// Who reads notes.
pub(super) struct Reader {
    level: Level,
    copies: Vec<Arc<Copy>>,
    /// The program's copy that was made last: its libraries call its tool.
    tool: Option<Tool>,
}

/// Why a note cannot be read.
#[derive(Debug)]
pub(super) enum Flaw {
    /// It makes no sense.
    Damaged,
    /// A copy cannot be made again.
    Copy(Error),
    /// A copy was made again and is another one.
    Differs,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { level: Level::Flow, copies: Vec::new(), tool: None }
    }

    /// The next note; nothing at the end. `file` answers where the file of the copy with a number lies.
    pub(super) fn next<F: AsRef<Path>>(
        &mut self,
        notes: &mut &[u8],
        mut file: impl FnMut(u32) -> Option<F>,
    ) -> Result<Option<Note>, Flaw> {
        loop {
            let Some((tag, rest)) = notes.split_first() else { return Ok(None) };
            *notes = rest;
            match *tag {
                BEGIN => {
                    let (level, clock) = Bytes::get(notes).ok_or(Flaw::Damaged)?;
                    let level: u8 = level;
                    self.level = *Level::ALL.get(usize::from(level)).ok_or(Flaw::Damaged)?;
                    return Ok(Some(Note::Begin(Clock::of(clock))));
                }
                COPY => {
                    let file = file(self.copies.len() as u32).ok_or(Flaw::Damaged)?;
                    self.copy(notes, file.as_ref())?;
                }
                MESSAGE => {
                    let filling = Bytes::get(notes).ok_or(Flaw::Damaged)?;
                    let copies = &self.copies;
                    let copy = |number: u32| copies.get(number as usize).cloned();
                    let message = fields::get(notes, copy).ok_or(Flaw::Damaged)?;
                    return Ok(Some(Note::Message(message, filling)));
                }
                _ => return Err(Flaw::Damaged),
            }
        }
    }

    /// Makes the next copy again.
    fn copy(&mut self, notes: &mut &[u8], file: &Path) -> Result<(), Flaw> {
        let about: Option<((u64, bool), Plot)> = Bytes::get(notes);
        let (((bias, of_library), plot), digest) =
            about.zip(u64::get(notes)).ok_or(Flaw::Damaged)?;
        let image = Image::open(file).map_err(Flaw::Copy)?.ok_or(Flaw::Damaged)?;
        if !of_library {
            self.tool = Tool::of(file);
        }
        let how = (&self.level.into(), Form::Blocks);
        let copy = Copy::new((&image, bias, plot), how, (None, self.tool.clone()));
        let copy = copy.map_err(Flaw::Copy)?;
        if copy.digest() != digest {
            return Err(Flaw::Differs);
        }
        self.copies.push(Arc::new(copy));
        Ok(())
    }
}

/// The images of copies.
fn images(copies: impl Iterator<Item = Arc<Copy>>) -> Images {
    let mut images = Images::default();
    copies.for_each(|copy| images.add(copy));
    images
}

#[cfg(test)]
mod tests;
