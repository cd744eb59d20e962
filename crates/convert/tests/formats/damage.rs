//! Bad bytes of all sorts: an error or a trace, never a panic or a hang.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, Instant};

use ichnos_convert::{Compression, Format, Output, ReadOptions, WriteOptions, fuzz};
use std::io::Write;

use crate::program::{Step, execution};
use crate::tape::{Shared, Tape, read_file, scratch, write_file, written};
use ichnos_base::InsnKind;

fn sample() -> Tape {
    let mut steps = Vec::new();
    for i in 0..40_u8 {
        steps.push(Step::Plain { load: Some(0x1000 + u64::from(i)), store: Some(0x2000) });
        steps.push(Step::Direct { kind: InsnKind::BRANCH, by: 5, taken: i % 3 == 0 });
        steps.push(Step::Repeat { from: Some(0x3000), to: 0x4000, times: i % 5 });
        steps.push(Step::Indirect { kind: InsnKind::RETURN, to: u16::from(i) * 64 });
        steps.push(Step::Syscall { number: 1, result: -1 });
        steps.push(Step::Signal { number: 11 });
    }
    execution(&steps)
}

/// A small generator, the same numbers every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides.max(1)
    }

    fn hurt(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.roll(6) {
            let at = self.roll(bytes.len());
            match self.roll(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at.min(bytes.len()), self.roll(256) as u8),
                2 if !bytes.is_empty() => drop(bytes.remove(at)),
                3 if !bytes.is_empty() => bytes[at] ^= 1 << self.roll(8),
                4 if !bytes.is_empty() => bytes[at] = [0, 0xff, 0x80, b'\n'][self.roll(4)],
                _ if !bytes.is_empty() => bytes[at] = self.roll(256) as u8,
                _ => bytes.push(self.roll(256) as u8),
            }
        }
    }
}

/// Feeds a target damaged samples and noise for a while.
fn torment(target: fn(&[u8]), sample: &[u8]) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    target(sample);
    target(&[]);
    let end = Instant::now() + Duration::from_millis(150);
    let mut rounds = 0;
    while rounds < 50 || Instant::now() < end {
        let mut bytes = sample.to_vec();
        dice.hurt(&mut bytes);
        target(&bytes);
        let noise: Vec<u8> = (0..dice.roll(400)).map(|_| dice.roll(256) as u8).collect();
        target(&noise);
        rounds += 1;
    }
}

fn zip_bytes(tape: &Tape, name: &str) -> Vec<u8> {
    let path = scratch(name);
    let mut options = WriteOptions::default();
    options.chunk_insns = 50;
    write_file(Format::DrMemtrace, tape, &path, &options);
    std::fs::read(path).expect("just written")
}

#[test]
fn readers_survive_damage() {
    let tape = sample();
    let text = |format| written(format, &tape, &WriteOptions::default());
    torment(fuzz::fuzz_din, &text(Format::Din));
    torment(fuzz::fuzz_lackey, &text(Format::Lackey));
    torment(fuzz::fuzz_gem5, &text(Format::Gem5));
    let path = scratch("damage.champsim");
    write_file(Format::ChampSim, &tape, &path, &WriteOptions::default());
    torment(fuzz::fuzz_champsim, &std::fs::read(&path).expect("just written"));
    let archive = zip_bytes(&tape, "damage.trace.zip");
    torment(fuzz::fuzz_drmemtrace_zip, &archive);
    let mut entries = Vec::new();
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(archive)).expect("ours");
    for i in 0..zip.len() {
        let mut member = zip.by_index(i).expect("ours");
        std::io::copy(&mut member, &mut entries).expect("whole");
    }
    torment(fuzz::fuzz_drmemtrace, &entries);
    for compression in Compression::ALL {
        let shared = Shared::default();
        let mut output = Output::new(Box::new(shared.clone()), compression).expect("memory");
        output.write_all(&text(Format::Lackey)).expect("memory");
        output.finish().expect("memory");
        torment(fuzz::fuzz_compressed, &shared.bytes());
    }
}

#[test]
fn every_truncation_of_an_archive_is_an_error() {
    let whole = zip_bytes(&sample(), "whole.trace.zip");
    let path = scratch("cut.trace.zip");
    for cut in (0..whole.len()).step_by(13) {
        std::fs::write(&path, &whole[..cut]).expect("writable");
        let result = read_file(Format::DrMemtrace, &path, &ReadOptions::default());
        assert!(result.is_err(), "cut at {cut} of {}", whole.len());
    }
}

#[test]
fn truncated_compressed_files_are_errors() {
    let tape = sample();
    for ending in ["gz", "xz", "zst"] {
        for format in [Format::Lackey, Format::Din, Format::Gem5, Format::ChampSim] {
            let path = scratch(&format!("cut.{format}.{ending}"));
            write_file(format, &tape, &path, &WriteOptions::default());
            assert!(read_file(format, &path, &ReadOptions::default()).is_ok());
            let whole = std::fs::read(&path).expect("just written");
            for cut in [whole.len() - 1, whole.len() - 9, whole.len() / 2, 30] {
                std::fs::write(&path, &whole[..cut]).expect("writable");
                let error = read_file(format, &path, &ReadOptions::default())
                    .expect_err("a truncated stream");
                assert!(error.to_string().contains(format.name()), "{error}");
            }
        }
    }
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let tape = sample();
    for format in Format::ALL {
        let path = scratch("no/such/folder/x.zip");
        let made = ichnos_convert::create_sink(format, &path, &WriteOptions::default());
        let error = made.err().expect("the folder is not there");
        assert!(error.to_string().contains("no/such/folder"), "{error}");
    }
    // A full disk.
    for format in [Format::Din, Format::Lackey, Format::Gem5] {
        let full = std::path::Path::new("/dev/full");
        let mut sink =
            ichnos_convert::create_sink(format, full, &WriteOptions::default()).expect("opens");
        let error = tape.play(&mut sink).expect_err("nothing fits");
        assert!(error.to_string().contains("No space left"), "{error}");
    }
}
