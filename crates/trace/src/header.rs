//! The file header: magic, version, instruction set and provenance.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{About, Isa};

use crate::bytes::{Cursor, Parse, put_bytes, put_varint};
use crate::error::{Error, Flaw};

/// What every trace begins with.
pub(crate) const MAGIC: [u8; 8] = *b"iChnos\x1a\n";

/// The format version that this crate writes, and the newest that it reads.
pub const VERSION: u16 = 8;

/// Magic, version, instruction set and length of the body.
pub(crate) const PREFIX_LEN: usize = 16;

/// The longest header body that is accepted: a command line of two megabytes,
/// the system's own limit, fits many times.
pub(crate) const MAX_BODY: u32 = 16 << 20;

/// A trace's provenance, owned: see [`About`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// The instruction set of the traced program.
    pub isa: Isa,
    /// Which collector or converted format.
    pub collector: String,
    /// The traced command, program first.
    pub command: Vec<String>,
    /// The folder in which the command ran.
    pub folder: String,
    /// Host name, kernel and processor in words.
    pub host: String,
    /// When collection started, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Whether batches carry values.
    pub values: bool,
    /// Whether branch outcomes are told.
    pub branches: bool,
}

impl Provenance {
    /// Keeps what was told.
    #[must_use]
    pub fn new(about: &About<'_>) -> Self {
        Self {
            isa: about.isa,
            collector: about.collector.to_owned(),
            command: about.command.iter().map(|&s| s.to_owned()).collect(),
            folder: about.folder.to_owned(),
            host: about.host.to_owned(),
            started_ns: about.started_ns,
            values: about.values,
            branches: about.branches,
        }
    }

    /// Tells it again.
    pub fn with<R>(&self, tell: impl FnOnce(&About<'_>) -> R) -> R {
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        tell(&About {
            isa: self.isa,
            collector: &self.collector,
            command: &command,
            folder: &self.folder,
            host: &self.host,
            started_ns: self.started_ns,
            values: self.values,
            branches: self.branches,
        })
    }

    /// The header's bytes.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut body = vec![u8::from(self.values) | u8::from(self.branches) << 1];
        put_varint(&mut body, self.started_ns);
        for text in [&self.collector, &self.folder, &self.host] {
            put_bytes(&mut body, text.as_bytes());
        }
        put_varint(&mut body, self.command.len() as u64);
        for text in &self.command {
            put_bytes(&mut body, text.as_bytes());
        }
        if body.len() > MAX_BODY as usize {
            return Err(Error::Misuse("the provenance is longer than 16 MiB"));
        }
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.isa.0.to_le_bytes());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&body);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        Ok(out)
    }

    /// How long the whole header is, from its first 16 bytes. Only magic and
    /// version are judged: the checksum has not been seen yet.
    pub(crate) fn len(prefix: &[u8]) -> Result<usize, Error> {
        let mut from = Cursor::new(prefix);
        let short = |_| Error::NotATrace;
        if from.array().map_err(short)? != MAGIC {
            return Err(Error::NotATrace);
        }
        let version = u16::from_le_bytes(from.array().map_err(short)?);
        let _isa: [u8; 2] = from.array().map_err(short)?;
        let body = u32::from_le_bytes(from.array().map_err(short)?);
        if version != VERSION {
            return Err(Error::Version { found: version, known: VERSION });
        }
        if body > MAX_BODY {
            return Err(Error::Header { flaw: "it is longer than a header may be" });
        }
        Ok(PREFIX_LEN + body as usize + 4)
    }

    /// Reads a whole header.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let flaw = |f: Flaw| Error::Header { flaw: f.0 };
        let len = Self::len(bytes)?;
        let body_len = len - PREFIX_LEN - 4;
        let bytes = bytes.get(..len).ok_or(Error::Header { flaw: "it ends too early" })?;
        let (all, crc) = bytes.split_at(len - 4);
        if crc != crc32fast::hash(all).to_le_bytes() {
            return Err(Error::Header { flaw: "its checksum is wrong" });
        }
        let isa = Isa(u16::from_le_bytes([all[10], all[11]]));
        if isa.name().is_none() {
            return Err(Error::Isa(isa.0));
        }
        let mut from = Cursor::new(&all[PREFIX_LEN..PREFIX_LEN + body_len]);
        let parsed = Self::parse_body(isa, &mut from).map_err(flaw)?;
        from.end().map_err(flaw)?;
        Ok(parsed)
    }

    fn parse_body(isa: Isa, from: &mut Cursor<'_>) -> Parse<Self> {
        let flags = from.u8()?;
        if flags > 3 {
            return Err(Flaw("it has unknown flags"));
        }
        let started_ns = from.varint()?;
        let [collector, folder, host] =
            [from.text()?, from.text()?, from.text()?].map(str::to_owned);
        let count = from.count()?;
        let mut command = Vec::new();
        for _ in 0..count {
            command.push(from.text()?.to_owned());
        }
        Ok(Self {
            isa,
            collector,
            command,
            folder,
            host,
            started_ns,
            values: flags & 1 != 0,
            branches: flags & 2 != 0,
        })
    }
}
