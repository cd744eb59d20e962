//! Where a reader's bytes come from: a stream, decompressed if its first bytes
//! say so, and for text whole lines at a time.
//!
//! Decompressors are told how much memory they may take, and a stream that ends
//! before its format says it ends is an error, never a short trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::{Error, Format, Result};

/// What readers read from.
pub type Stream = Box<dyn Read + Send>;

/// Memory that an xz stream may ask for. `xz -9` asks for 65 MiB.
const XZ_MEMORY: u64 = 512 << 20;

/// Opens a file and decompresses it if it is compressed.
pub fn open_stream(path: &Path) -> Result<Stream> {
    let open = |source| Error::Open { path: path.to_owned(), source };
    decompress(Box::new(File::open(path).map_err(open)?)).map_err(open)
}

/// Decompresses `input` if its first bytes are those of gzip, xz or zstd.
pub fn decompress(input: Stream) -> io::Result<Stream> {
    let mut input = BufReader::with_capacity(1 << 16, Start::new(input)?);
    let head = input.fill_buf()?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(input)));
    }
    if head.starts_with(b"\xfd7zXZ\0") {
        let stream =
            liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)?;
        return Ok(Box::new(liblzma::bufread::XzDecoder::new_stream(input, stream)));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(Box::new(zstd::stream::read::Decoder::with_buffer(input)?));
    }
    Ok(Box::new(input))
}

/// A stream whose first bytes arrive in one piece, however a pipe cuts them, so
/// that a look at the first buffer sees every magic number.
struct Start {
    head: [u8; 6],
    len: usize,
    given: usize,
    rest: Stream,
}

impl Start {
    fn new(mut rest: Stream) -> io::Result<Self> {
        let mut head = [0; 6];
        let len = read_full(&mut rest, &mut head)?;
        Ok(Self { head, len, given: 0, rest })
    }
}

impl Read for Start {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut left = self.head.get(self.given..self.len).unwrap_or(&[]);
        if left.is_empty() {
            return self.rest.read(into);
        }
        let n = left.read(into)?;
        self.given += n;
        Ok(n)
    }
}

/// Reads until `into` is full or the input ends; how much it was.
pub(crate) fn read_full(input: &mut dyn Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|r| !r.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// The longest line that a text format may have.
const LINE_MAX: usize = 1 << 16;
/// How much text is read at once: enough that the system calls do not count.
const TEXT_BLOCK: usize = 1 << 18;

/// Text in portions of whole lines.
pub(crate) struct Text<R> {
    format: Format,
    input: R,
    buffer: Vec<u8>,
    /// What of the buffer has been handed out, and what is filled.
    given: usize,
    filled: usize,
    /// Bytes of contents before the buffer.
    before: u64,
    ended: bool,
}

impl<R: Read> Text<R> {
    pub(crate) fn new(format: Format, input: R) -> Self {
        let buffer = vec![0; TEXT_BLOCK];
        Self { format, input, buffer, given: 0, filled: 0, before: 0, ended: false }
    }

    /// The next whole lines, each with its newline except perhaps the very last;
    /// `None` at the end. `line` is the number of the first, for the error.
    pub(crate) fn lines(&mut self, line: u64) -> Result<Option<&[u8]>> {
        self.buffer.copy_within(self.given..self.filled, 0);
        self.filled -= self.given;
        self.before += self.given as u64;
        self.given = 0;
        // What is left over from the last portion has no newline in it.
        let mut searched = self.filled;
        loop {
            if self.ended {
                self.given = self.filled;
                return Ok(self.buffer.get(..self.filled).filter(|b| !b.is_empty()));
            }
            let space = self.buffer.get_mut(self.filled..).unwrap_or_default();
            let n = match self.input.read(space) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    let offset = self.before + self.filled as u64;
                    return Err(Error::Read { format: self.format, offset, source });
                }
            };
            self.ended = n == 0;
            self.filled += n;
            let fresh = self.buffer.get(searched..self.filled).unwrap_or_default();
            if let Some(at) = fresh.iter().rposition(|&b| b == b'\n') {
                self.given = searched + at + 1;
                return Ok(self.buffer.get(..self.given));
            }
            searched = self.filled;
            if self.filled > LINE_MAX {
                let what = format!("it is longer than {LINE_MAX} bytes");
                return Err(Error::Line { format: self.format, line, what });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of one, two, three... bytes, as pipes may.
    struct Dribble(Vec<u8>, usize, usize);

    impl Read for Dribble {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.2 = self.2 % 7 + 1;
            let n = self.2.min(into.len()).min(self.0.len() - self.1);
            into[..n].copy_from_slice(&self.0[self.1..self.1 + n]);
            self.1 += n;
            Ok(n)
        }
    }

    #[test]
    fn lines_stay_whole_however_they_arrive() {
        let text: String = (0..5000).map(|i| format!("{i} {}\n", "x".repeat(i % 50))).collect();
        for ending in ["", "the last one has no newline"] {
            let whole = format!("{text}{ending}").into_bytes();
            let mut read = Text::new(Format::Din, Dribble(whole.clone(), 0, 0));
            let mut seen = Vec::new();
            while let Some(lines) = read.lines(1).expect("no errors here") {
                seen.extend_from_slice(lines);
                assert!(lines.ends_with(b"\n") || seen.len() == whole.len());
            }
            assert_eq!(seen, whole);
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut read = Text::new(Format::Din, io::repeat(b'x'));
        assert!(matches!(read.lines(3), Err(Error::Line { line: 3, .. })));
    }

    #[test]
    fn compressed_streams_are_recognised_and_must_be_whole() {
        let plain: Vec<u8> =
            (0..100_000_u32).flat_map(|i| i.wrapping_mul(i).to_le_bytes()).collect();
        for compression in crate::output::Compression::ALL {
            let packed = crate::output::compress_all(compression, &plain);
            let read = |bytes: Vec<u8>| {
                let mut out = Vec::new();
                decompress(Box::new(Dribble(bytes, 0, 0)))
                    .and_then(|mut s| s.read_to_end(&mut out))
                    .map(|_| out)
            };
            assert_eq!(read(packed.clone()).expect("whole"), plain, "{compression:?}");
            if compression != crate::output::Compression::None {
                for cut in [packed.len() - 1, packed.len() / 2, 20] {
                    let cut_short = packed[..cut].to_vec();
                    assert!(read(cut_short).is_err(), "{compression:?} cut at {cut}");
                }
            }
        }
    }
}
