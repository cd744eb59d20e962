//! One function a reader that feeds it any bytes at all and only asks that it
//! comes back: targets for fuzzers, and for the short run in the tests.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::io::Cursor;

use ichnos_base::{Batch, DriveError, Sink, Source};

use crate::{
    ChampSimSource, DinSource, DinStyle, DrMemtraceSource, Error, Gem5Source, LackeySource, Layout,
    PacketIds, ReadOptions, Repeats, decompress,
};

/// Checks what every consumer may rely on.
#[derive(Default)]
struct Careful {
    records: u64,
}

impl Sink for Careful {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        assert!(!batch.records.is_empty(), "a batch has records");
        self.records += batch.records.len() as u64;
        Ok(true)
    }
}

/// Drives a source to its end; its error, if it had one, can be shown.
fn run(mut source: impl Source<Error = Error>) {
    if let Err(DriveError::Source(error)) = source.drive(&mut Careful::default()) {
        assert!(!error.to_string().is_empty(), "errors say something");
    }
}

fn eager() -> ReadOptions {
    ReadOptions {
        repeats: Repeats::Merged,
        din: DinStyle::Sized,
        packet_ids: PacketIds::Threads,
        ..ReadOptions::default()
    }
}

/// Din text in both styles.
pub fn fuzz_din(bytes: &[u8]) {
    run(DinSource::new(bytes, &ReadOptions::default()));
    run(DinSource::new(bytes, &eager()));
}

/// Lackey text, repeats apart and merged.
pub fn fuzz_lackey(bytes: &[u8]) {
    run(LackeySource::new(bytes, &ReadOptions::default()));
    run(LackeySource::new(bytes, &eager()));
}

/// ChampSim records in both layouts.
pub fn fuzz_champsim(bytes: &[u8]) {
    run(ChampSimSource::new(bytes, Layout::Standard, &ReadOptions::default()));
    run(ChampSimSource::new(bytes, Layout::CloudSuite, &ReadOptions::default()));
}

/// Bare drmemtrace entries.
pub fn fuzz_drmemtrace(bytes: &[u8]) {
    run(DrMemtraceSource::from_entries(Box::new(Cursor::new(bytes.to_vec()))));
}

/// drmemtrace in an archive.
pub fn fuzz_drmemtrace_zip(bytes: &[u8]) {
    if let Ok(source) = DrMemtraceSource::from_archive(Box::new(Cursor::new(bytes.to_vec()))) {
        run(source);
    }
}

/// gem5 packets, with ids as threads and without.
pub fn fuzz_gem5(bytes: &[u8]) {
    run(Gem5Source::new(bytes, &ReadOptions::default()));
    run(Gem5Source::new(bytes, &eager()));
}

/// Compressed streams of any sort, read as the shortest of the formats.
pub fn fuzz_compressed(bytes: &[u8]) {
    if let Ok(stream) = decompress(Box::new(Cursor::new(bytes.to_vec()))) {
        run(LackeySource::new(stream, &ReadOptions::default()));
    }
}
