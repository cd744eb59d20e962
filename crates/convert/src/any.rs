//! One door to all formats.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::path::Path;

use ichnos_base::{About, Batch, Code, DriveError, Event, Sink, Source, ThreadId};

use crate::input::{Stream, decompress, open_stream};
use crate::output::{Compression, Output};
use crate::{
    DinSink, DinSource, Error, Format, LackeySink, LackeySource, ReadOptions, Result, WriteOptions,
};

/// A reader of any format.
#[non_exhaustive]
pub enum AnySource {
    /// Din text.
    Din(DinSource<Stream>),
    /// Lackey text.
    Lackey(LackeySource<Stream>),
}

/// A writer of any format.
#[non_exhaustive]
pub enum AnySink {
    /// Din text.
    Din(DinSink),
    /// Lackey text.
    Lackey(LackeySink),
}

/// Opens a trace in a foreign format. Compression is recognised by contents.
pub fn open_source(format: Format, path: &Path, options: &ReadOptions) -> Result<AnySource> {
    from_stream(format, open_stream(path)?, options)
}

/// Reads a trace in a foreign format from a stream such as standard input.
/// Compression is recognised by contents.
pub fn reader_source(format: Format, input: Stream, options: &ReadOptions) -> Result<AnySource> {
    let input = decompress(input).map_err(|source| Error::Read { format, offset: 0, source })?;
    from_stream(format, input, options)
}

fn from_stream(format: Format, input: Stream, options: &ReadOptions) -> Result<AnySource> {
    Ok(match format {
        Format::Din => AnySource::Din(DinSource::new(input, options)),
        Format::Lackey => AnySource::Lackey(LackeySource::new(input, options)),
        _ => return Err(Error::Unsupported { format, what: "it can only be written".into() }),
    })
}

/// Makes a trace in a foreign format, compressed as the path's ending says.
pub fn create_sink(format: Format, path: &Path, options: &WriteOptions) -> Result<AnySink> {
    from_output(format, Output::create(path)?, options)
}

/// Writes a trace in a foreign format to a stream such as standard output.
pub fn writer_sink(
    format: Format,
    to: Box<dyn Write + Send>,
    compression: Compression,
    options: &WriteOptions,
) -> Result<AnySink> {
    let output = Output::new(to, compression).map_err(|source| Error::Write { format, source })?;
    from_output(format, output, options)
}

fn from_output(format: Format, output: Output, options: &WriteOptions) -> Result<AnySink> {
    Ok(match format {
        Format::Din => AnySink::Din(DinSink::new(output, options)),
        Format::Lackey => AnySink::Lackey(LackeySink::new(output, options)),
        _ => {
            let what = "it needs a path, since each thread has a file of its own".into();
            return Err(Error::Unsupported { format, what });
        }
    })
}

macro_rules! each {
    ($any:expr, $one:ident => $call:expr) => {
        match $any {
            Self::Din($one) => $call,
            Self::Lackey($one) => $call,
        }
    };
}

impl Source for AnySource {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        each!(self, source => source.drive(sink))
    }
}

impl Sink for AnySink {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        each!(self, sink => sink.records(batch))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        each!(self, sink => sink.event(thread, event))
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        each!(self, sink => sink.code(thread, code))
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        each!(self, sink => sink.begin(about))
    }

    fn finish(&mut self) -> Result<()> {
        each!(self, sink => sink.finish())
    }
}
