//! How fast text is read and written: `cargo bench -p ichnos-convert`.
//!
//! Strength: the text has the mix of lines of a real program (a quarter of the
//! instructions load, an eighth store). Weakness: it comes from memory, so a
//! pipe's copying is not in the figure. The best of several runs counts, since
//! other work on the machine can only slow one down.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::time::Instant;

use ichnos_base::{Batch, Sink, Source, Totals};
use ichnos_convert::{Compression, Format, ReadOptions, WriteOptions, reader_source, writer_sink};

const RUNS: usize = 5;

#[derive(Default)]
struct Count(Totals);

impl Sink for Count {
    type Error = std::convert::Infallible;
    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.0.count_batch(batch);
        Ok(true)
    }
}

fn lackey_text(lines: u64) -> Vec<u8> {
    let mut text = String::new();
    let mut pc = 0x0040_1000_u64;
    let mut data = 0x1f_fe00_0000_u64;
    for i in 0..lines {
        match i % 11 {
            3 | 7 => text.push_str(&format!(" L {data:08x},8\n")),
            9 => text.push_str(&format!(" S {data:08x},4\n")),
            _ => text.push_str(&format!("I  {pc:08x},{}\n", i % 7 + 1)),
        }
        pc = 0x0040_1000 + (pc * 5 + i) % 0x20000;
        data = 0x1f_fe00_0000 + (data * 13 + i) % 0x100_0000;
    }
    text.into_bytes()
}

fn best(mut run: impl FnMut()) -> f64 {
    (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let lines = 5_000_000;
    let text: &'static [u8] = lackey_text(lines).leak();
    let options = ReadOptions::default();
    let reading = best(|| {
        let mut count = Count::default();
        let mut source = reader_source(Format::Lackey, Box::new(text), &options).expect("opens");
        assert!(source.drive(&mut count).is_ok());
        assert_eq!(count.0.insns + count.0.references(), lines);
        black_box(count.0);
    });
    println!("lackey read:  {:6.1} M lines/s", lines as f64 / reading / 1e6);
    let mut din = Vec::new();
    for format in [Format::Lackey, Format::Din] {
        let writing = best(|| {
            let mut source =
                reader_source(Format::Lackey, Box::new(text), &options).expect("opens");
            let to = Box::new(std::io::sink());
            let write = WriteOptions::default();
            let mut sink = writer_sink(format, to, Compression::None, &write).expect("opens");
            assert!(source.drive(&mut sink).is_ok());
        });
        println!("lackey to {format}: {:6.1} M lines/s", lines as f64 / writing / 1e6);
    }
    for line in text.split(|&b| b == b'\n').filter(|l| l.len() > 3) {
        let label = match line[1] {
            b'L' => "0 ",
            b'S' => "1 ",
            _ => "2 ",
        };
        din.extend_from_slice(label.as_bytes());
        din.extend(line[3..].iter().take_while(|&&b| b != b','));
        din.push(b'\n');
    }
    let din: &'static [u8] = din.leak();
    let reading = best(|| {
        let mut count = Count::default();
        let mut source = reader_source(Format::Din, Box::new(din), &options).expect("opens");
        assert!(source.drive(&mut count).is_ok());
        black_box(count.0);
    });
    println!("din read:     {:6.1} M lines/s", lines as f64 / reading / 1e6);
}
