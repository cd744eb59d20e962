//! What is needed to make a trace later: the note at the head of a spool.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ichnos_base::Isa;
use ichnos_trace::{Options, Provenance};
use serde_json::{Value, json};

/// A trace that is to be made.
pub struct Later {
    /// Its file, or a pattern for several.
    pub path: PathBuf,
    /// How it is written.
    pub options: Options,
    /// Where it comes from.
    pub about: Provenance,
}

impl Later {
    /// A trace that goes there.
    pub const fn new(path: PathBuf, options: Options, about: Provenance) -> Self {
        Self { path, options, about }
    }

    /// As bytes for the spool.
    pub fn note(&self) -> Vec<u8> {
        // It may be read in another folder.
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let Provenance { collector, command, folder, host, started_ns, .. } = &self.about;
        let note = json!({
            "path": path.as_os_str().as_bytes(),
            "level": self.options.level,
            "chunk_insns": self.options.chunk_insns,
            "collector": collector,
            "command": command,
            "folder": folder,
            "host": host,
            "started_ns": started_ns,
        });
        note.to_string().into_bytes()
    }

    /// From such bytes.
    pub fn read(note: &[u8], spool: &Path) -> Result<Self> {
        let read = || -> Option<Self> {
            let note: Value = serde_json::from_slice(note).ok()?;
            let text = |key: &str| note[key].as_str().map(str::to_owned);
            let bytes = note["path"].as_array()?.iter();
            let bytes: Option<Vec<u8>> =
                bytes.map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
            let mut options = Options::default();
            options.level = i32::try_from(note["level"].as_i64()?).ok()?;
            options.chunk_insns = note["chunk_insns"].as_u64()?.max(1);
            let words = note["command"].as_array()?.iter();
            let command: Option<Vec<String>> =
                words.map(|word| Some(word.as_str()?.to_owned())).collect();
            let about = Provenance {
                isa: Isa::X86_64,
                collector: text("collector")?,
                command: command?,
                folder: text("folder")?,
                host: text("host")?,
                started_ns: note["started_ns"].as_u64()?,
                branches: true,
                ..Provenance::default()
            };
            Some(Self { path: OsString::from_vec(bytes?).into(), options, about })
        };
        read().with_context(|| format!("{}: its note makes no sense", spool.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_it_all() {
        let about = Provenance {
            isa: Isa::X86_64,
            collector: "a \"test\"".into(),
            command: vec!["ls".into(), "\n".into()],
            folder: "/tmp".into(),
            started_ns: u64::MAX,
            branches: true,
            ..Provenance::default()
        };
        let path = PathBuf::from(OsString::from_vec(b"/a/\xff.ichnos".to_vec()));
        let mut options = Options::default();
        options.level = 7;
        let later = Later::new(path, options, about);
        let again = Later::read(&later.note(), Path::new("x")).unwrap();
        assert_eq!(
            (&again.path, again.options, &again.about),
            (&later.path, options, &later.about)
        );
        assert!(Later::read(b"{}", Path::new("x")).is_err());
        assert!(Later::read(b"\xff", Path::new("x")).is_err());
    }
}
