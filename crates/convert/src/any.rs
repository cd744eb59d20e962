//! One door to all formats.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::path::Path;

use ichnos_base::{About, Batch, Code, DriveError, Event, Sink, Source, ThreadId};

use crate::input::{Stream, decompress, open_stream};
use crate::output::{Compression, Output};
use crate::{
    BbvSink, ChampSimSink, ChampSimSource, DinSink, DinSource, Direction, DrMemtraceSink,
    DrMemtraceSource, Error, Format, Gem5Sink, Gem5Source, LackeySink, LackeySource, Layout,
    ReadOptions, Result, WriteOptions,
};

/// A reader of any format.
#[non_exhaustive]
pub enum AnySource {
    /// Din text.
    Din(DinSource<Stream>),
    /// Lackey text.
    Lackey(LackeySource<Stream>),
    /// ChampSim records of either layout.
    ChampSim(ChampSimSource<Stream>),
    /// drmemtrace files.
    DrMemtrace(DrMemtraceSource),
    /// gem5 packets.
    Gem5(Gem5Source<Stream>),
}

/// A writer of any format.
#[non_exhaustive]
pub enum AnySink {
    /// Din text.
    Din(DinSink),
    /// Lackey text.
    Lackey(LackeySink),
    /// ChampSim records of either layout.
    ChampSim(Box<ChampSimSink>),
    /// drmemtrace files.
    DrMemtrace(Box<DrMemtraceSink>),
    /// gem5 packets.
    Gem5(Gem5Sink),
    /// Basic-block vectors.
    Bbv(Box<BbvSink>),
}

/// Opens a trace in a foreign format: a file, or for drmemtrace also a folder.
/// Compression is recognised by contents.
pub fn open_source(format: Format, path: &Path, options: &ReadOptions) -> Result<AnySource> {
    match format {
        Format::DrMemtrace => DrMemtraceSource::open(path).map(AnySource::DrMemtrace),
        _ => from_stream(format, open_stream(path)?, options),
    }
}

/// Reads a trace in a foreign format from a stream such as standard input.
/// Compression is recognised by contents. A drmemtrace stream has bare entries:
/// zip archives cannot be read from front to back.
pub fn reader_source(format: Format, input: Stream, options: &ReadOptions) -> Result<AnySource> {
    let input = decompress(input).map_err(|source| Error::Read { format, offset: 0, source })?;
    from_stream(format, input, options)
}

fn from_stream(format: Format, input: Stream, options: &ReadOptions) -> Result<AnySource> {
    let champsim = |input, layout| AnySource::ChampSim(ChampSimSource::new(input, layout, options));
    Ok(match format {
        Format::Din => AnySource::Din(DinSource::new(input, options)),
        Format::Lackey => AnySource::Lackey(LackeySource::new(input, options)),
        Format::ChampSim => champsim(input, Layout::Standard),
        Format::CloudSuite => champsim(input, Layout::CloudSuite),
        Format::DrMemtrace => AnySource::DrMemtrace(DrMemtraceSource::from_entries(input)),
        Format::Gem5 => AnySource::Gem5(Gem5Source::new(input, options)),
        Format::Bbv => {
            let what = "it can only be written".into();
            return Err(Error::Unsupported { format, what });
        }
    })
}

/// Makes a trace in a foreign format, compressed as the path's ending says.
pub fn create_sink(format: Format, path: &Path, options: &WriteOptions) -> Result<AnySink> {
    debug_assert!(format.can(Direction::Write), "all formats can be written");
    Ok(match format {
        Format::ChampSim | Format::CloudSuite => {
            let layout = match format {
                Format::ChampSim => Layout::Standard,
                _ => Layout::CloudSuite,
            };
            AnySink::ChampSim(Box::new(ChampSimSink::create(path, layout, options)?))
        }
        Format::DrMemtrace => AnySink::DrMemtrace(Box::new(DrMemtraceSink::create(path, options)?)),
        Format::Bbv => AnySink::Bbv(Box::new(BbvSink::create(path, options)?)),
        _ => return from_output(format, Output::create(path)?, options),
    })
}

/// Writes a trace in a foreign format to a stream such as standard output. Only
/// for formats that hold all threads in one stream: din, lackey and gem5.
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
        Format::Gem5 => AnySink::Gem5(Gem5Sink::new(output, options)),
        _ => {
            let what = "it needs a path, since each thread has a file of its own".into();
            return Err(Error::Unsupported { format, what });
        }
    })
}

/// The same call for whichever format it is.
macro_rules! each {
    ($any:expr, $one:ident => $call:expr, $($more:ident),*) => {
        match $any {
            Self::Din($one) => $call,
            Self::Lackey($one) => $call,
            Self::ChampSim($one) => $call,
            Self::DrMemtrace($one) => $call,
            Self::Gem5($one) => $call,
            $(Self::$more($one) => $call,)*
        }
    };
}

impl Source for AnySource {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        each!(self, source => source.drive(sink),)
    }
}

impl Sink for AnySink {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        each!(self, sink => sink.records(batch), Bbv)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        each!(self, sink => sink.event(thread, event), Bbv)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool> {
        each!(self, sink => sink.code(thread, code), Bbv)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool> {
        each!(self, sink => sink.begin(about), Bbv)
    }

    fn finish(&mut self) -> Result<()> {
        each!(self, sink => sink.finish(), Bbv)
    }
}
