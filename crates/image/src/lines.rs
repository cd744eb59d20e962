//! Source lines of one image, with the chain of inlined calls.
//!
//! Split DWARF (`.dwo` files) is not followed: such units give function names
//! from the symbol table only.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use object::LittleEndian as LE;
use object::read::elf::ElfFile64;
use object::read::{Object, ObjectSection, ReadRef};

use crate::{Error, ImageVa, Result};

type Reader = EndianArcSlice<LittleEndian>;

/// One place in the source: a function, or a function inlined into the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// The function's name as it stands in the file (mangled where the compiler
    /// gives a linkage name).
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
}

/// The debugging information of one image.
pub struct Lines {
    context: Context<Reader>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Lines {
    /// Reads the debugging information in `data`, with a supplementary file (as
    /// dwz makes them) if there is one. `None` if there is no such information.
    pub(crate) fn read<'d, 's, R: ReadRef<'d>, S: ReadRef<'s>>(
        data: R,
        supplement: Option<S>,
        path: &Path,
    ) -> Result<Option<Self>> {
        let Some(mut dwarf) = load(data, path)? else { return Ok(None) };
        if let Some(sup) = supplement.and_then(|s| load(s, path).transpose()).transpose()? {
            dwarf.set_sup(sup);
        }
        match Context::from_dwarf(dwarf) {
            Ok(context) => Ok(Some(Self { context })),
            Err(source) => Err(Error::Dwarf { path: path.to_owned(), source }),
        }
    }

    /// The source of the instruction at `addr`: innermost inlined function
    /// first, the function of the symbol table last. Empty if nothing is known.
    pub fn frames(&self, addr: ImageVa) -> std::result::Result<Vec<Frame>, gimli::Error> {
        let mut found = Vec::new();
        let mut frames = self.context.find_frames(addr.0).skip_all_loads()?;
        while let Some(frame) = frames.next()? {
            let function = match &frame.function {
                Some(name) => Some(name.raw_name()?.into_owned()),
                None => None,
            };
            let place = frame.location.as_ref();
            found.push(Frame {
                function,
                file: place.and_then(|l| l.file).map(str::to_owned),
                line: place.and_then(|l| l.line).filter(|&l| l != 0),
                column: place.and_then(|l| l.column).filter(|&c| c != 0),
            });
        }
        Ok(found)
    }
}

fn load<'d, R: ReadRef<'d>>(data: R, path: &Path) -> Result<Option<Dwarf<Reader>>> {
    let damaged =
        |e: object::read::Error| Error::Damaged { path: path.to_owned(), what: e.to_string() };
    let file = ElfFile64::<LE, R>::parse(data).map_err(damaged)?;
    if file.section_by_name(".debug_info").is_none_or(|s| s.size() == 0) {
        return Ok(None);
    }
    Dwarf::load(|id: SectionId| -> Result<Reader> {
        let bytes = match file.section_by_name(id.name()) {
            Some(section) => section.uncompressed_data().map_err(damaged)?,
            None => Cow::Borrowed(&[][..]),
        };
        Ok(Reader::new(Arc::from(bytes), LittleEndian))
    })
    .map(Some)
}

/// A C++ or Rust name as its programmer wrote it; other names as they are.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    addr2line::demangle_auto(Cow::Borrowed(name), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled_and_plain_ones_left_alone() {
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(demangle("main"), "main");
    }
}
