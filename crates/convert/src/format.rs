//! The formats: their names, and how a file shows which one it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A foreign trace format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Dinero's text, one reference a line.
    Din,
    /// The text of Valgrind's `lackey --trace-mem=yes`.
    Lackey,
    /// ChampSim's 64-byte instruction records.
    ChampSim,
    /// ChampSim's 96-byte records of the CloudSuite traces.
    CloudSuite,
    /// DynamoRIO's drmemtrace, canonical form in zip files.
    DrMemtrace,
    /// gem5's packet traces in protobuf.
    Gem5,
    /// SimPoint's basic-block vectors; can only be written.
    Bbv,
}

/// What a conversion can do with a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Read it.
    Read,
    /// Write it.
    Write,
}

impl Format {
    /// All formats, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Din,
        Self::Lackey,
        Self::ChampSim,
        Self::CloudSuite,
        Self::DrMemtrace,
        Self::Gem5,
        Self::Bbv,
    ];

    /// The name in options and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Din => "din",
            Self::Lackey => "lackey",
            Self::ChampSim => "champsim",
            Self::CloudSuite => "cloudsuite",
            Self::DrMemtrace => "drmemtrace",
            Self::Gem5 => "gem5",
            Self::Bbv => "bbv",
        }
    }

    /// Whether the format can be read or written here.
    #[must_use]
    pub const fn can(self, direction: Direction) -> bool {
        match (self, direction) {
            (Self::Bbv, Direction::Read) => false,
            (_, Direction::Read | Direction::Write) => true,
        }
    }

    /// The format that a file's name tells, compression endings aside.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let bare = [".gz", ".xz", ".zst"]
            .iter()
            .find_map(|ending| name.strip_suffix(ending))
            .unwrap_or(&name);
        const ENDINGS: [(&str, Format); 11] = [
            (".din", Format::Din),
            (".lackey", Format::Lackey),
            (".champsimtrace", Format::ChampSim),
            (".champsim", Format::ChampSim),
            (".cloudsuite", Format::CloudSuite),
            (".trace.zip", Format::DrMemtrace),
            (".memtrace.zip", Format::DrMemtrace),
            (".ptrc", Format::Gem5),
            (".gem5", Format::Gem5),
            (".bbv", Format::Bbv),
            (".bb", Format::Bbv),
        ];
        ENDINGS.iter().find(|(ending, _)| bare.ends_with(ending)).map(|&(_, format)| format)
    }

    /// The format that the first bytes of (uncompressed) contents tell; a few
    /// hundred are enough. ChampSim's records have no mark and are never
    /// recognised.
    #[must_use]
    pub fn from_contents(head: &[u8]) -> Option<Self> {
        if head.starts_with(b"PK\x03\x04") {
            return Some(Self::DrMemtrace);
        }
        if head.starts_with(b"gem5") {
            return Some(Self::Gem5);
        }
        // drmemtrace without its zip: a header entry (type 25, size 0).
        if head.starts_with(&[25, 0, 0, 0]) {
            return Some(Self::DrMemtrace);
        }
        // A line cut short at the end of `head` says nothing.
        head.split_inclusive(|&b| b == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .find_map(text_format)
    }
}

/// The text format that one whole line tells.
fn text_format(line: &[u8]) -> Option<Format> {
    match line {
        [b'I', b' ', b' ', digit, ..] if digit.is_ascii_hexdigit() => Some(Format::Lackey),
        [b' ', b'L' | b'S' | b'M', b' ', digit, ..] if digit.is_ascii_hexdigit() => {
            Some(Format::Lackey)
        }
        [b'0'..=b'4', b' ' | b'\t', digit, ..] if digit.is_ascii_hexdigit() => Some(Format::Din),
        _ => None,
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no format's name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0} is not a format; the formats are din, lackey, champsim, cloudsuite, drmemtrace, gem5 and bbv"
)]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            let listed = UnknownFormat(String::new()).to_string();
            assert!(listed.contains(format.name()), "{format} is in the message");
        }
        assert!("elf".parse::<Format>().is_err());
    }

    #[test]
    fn paths_tell_formats() {
        for (path, format) in [
            ("a/b.din", Some(Format::Din)),
            ("b.din.gz", Some(Format::Din)),
            ("602.gcc_s-2226B.champsimtrace.xz", Some(Format::ChampSim)),
            ("drmemtrace.app.12.1.trace.zip", Some(Format::DrMemtrace)),
            ("x.ptrc.gz", Some(Format::Gem5)),
            ("x.bb", Some(Format::Bbv)),
            ("x.gz", None),
            ("", None),
        ] {
            assert_eq!(Format::from_path(Path::new(path)), format, "{path}");
        }
    }

    #[test]
    fn contents_tell_formats() {
        for (head, format) in [
            (&b"PK\x03\x04rest"[..], Some(Format::DrMemtrace)),
            (b"gem5\x10", Some(Format::Gem5)),
            (b"==12== Lackey\n==12== \nI  0023C790,2\n", Some(Format::Lackey)),
            (b" L 1ffe,8\n", Some(Format::Lackey)),
            (b"2 430d70\n0 1fff\n", Some(Format::Din)),
            (b"2 430d70", None),
            (b"hello\n", None),
            (b"", None),
        ] {
            assert_eq!(Format::from_contents(head), format, "{head:?}");
        }
    }
}
