//! Reads ChampSim's records.
//!
//! A record has neither length nor branch target: both come from the record that
//! follows, so the reader stays one record behind. A length that the flow of
//! control does not show is the one seen last for that address, or the options'.
//! Not known, and told as 0, is where an untaken branch would have gone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Read;

use ichnos_base::{DriveError, GuestVa, InsnKind, Isa, Record, Sink, Source, ThreadStart};

use crate::champsim_record::{ChampSimRecord, Layout};
use crate::code_map::AddrMap;
use crate::feed::{Feed, Halt, about, drive};
use crate::input::read_full;
use crate::{Error, Format, ReadOptions};

/// Lengths that are remembered before all are forgotten.
const REMEMBERED: usize = 1 << 20;
/// The longest instruction of any processor that ChampSim traces come from.
const LONGEST: u64 = 15;
/// Records read at once.
const AT_ONCE: usize = 1024;

/// A source of ChampSim's records.
pub struct ChampSimSource<R> {
    input: R,
    layout: Layout,
    insn_len: u8,
    access_size: u32,
    lengths: AddrMap<u64, u8>,
    /// Bytes taken so far.
    offset: u64,
}

impl<R: Read> ChampSimSource<R> {
    /// Reads from `input`, which is not compressed.
    pub fn new(input: R, layout: Layout, options: &ReadOptions) -> Self {
        Self {
            input,
            layout,
            insn_len: options.insn_len,
            access_size: options.access_size,
            lengths: AddrMap::default(),
            offset: 0,
        }
    }

    const fn format(&self) -> Format {
        match self.layout {
            Layout::Standard => Format::ChampSim,
            Layout::CloudSuite => Format::CloudSuite,
        }
    }

    fn tell<S: Sink>(&mut self, feed: &mut Feed<'_, S>) -> Result<(), Halt<S::Error>> {
        let (format, size) = (self.format(), self.layout.size());
        let mut block = vec![0; size * AT_ONCE];
        let mut behind: Option<ChampSimRecord> = None;
        loop {
            let read = read_full(&mut self.input, &mut block).map_err(|source| Error::Read {
                format,
                offset: self.offset,
                source,
            })?;
            for bytes in block.get(..read).unwrap_or_default().chunks(size) {
                let Some(record) = ChampSimRecord::decode(self.layout, bytes) else {
                    let what = format!(
                        "the last record has {} of {size} bytes; is it another format?",
                        bytes.len()
                    );
                    return Err(Halt::Source(Error::Bytes { format, offset: self.offset, what }));
                };
                self.offset += size as u64;
                if let Some(before) = behind.replace(record) {
                    self.one(&before, Some(record.ip), feed)?;
                }
            }
            if read < block.len() {
                break;
            }
        }
        match behind {
            Some(last) => self.one(&last, None, feed),
            None => Ok(()),
        }
    }

    fn one<S: Sink>(
        &mut self,
        record: &ChampSimRecord,
        next: Option<u64>,
        feed: &mut Feed<'_, S>,
    ) -> Result<(), Halt<S::Error>> {
        let (kind, taken) = record.kind();
        let len = self.length(record.ip, next.filter(|_| !taken));
        feed.record(Record::insn(GuestVa(record.ip), len, kind))?;
        let size = self.access_size;
        for &addr in record.src_mem.iter().filter(|&&a| a != 0) {
            feed.record(Record::load(GuestVa(addr), size))?;
        }
        for &addr in record.dest_mem.iter().filter(|&&a| a != 0) {
            feed.record(Record::store(GuestVa(addr), size))?;
        }
        if kind != InsnKind::OTHER {
            let target = if taken { next.unwrap_or(0) } else { 0 };
            feed.record(Record::branch(taken, GuestVa(target)))?;
        }
        Ok(())
    }

    fn length(&mut self, ip: u64, follower: Option<u64>) -> u8 {
        match follower.map(|next| next.wrapping_sub(ip)) {
            Some(len @ 1..=LONGEST) => {
                if self.lengths.len() >= REMEMBERED {
                    self.lengths.clear();
                }
                let len = len as u8;
                self.lengths.insert(ip, len);
                len
            }
            _ => self.lengths.get(&ip).copied().unwrap_or(self.insn_len),
        }
    }
}

impl<R: Read> Source for ChampSimSource<R> {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        drive(sink, |feed| {
            let mut said = about("champsim records", Isa::UNKNOWN);
            said.branches = true;
            feed.begin(&said)?;
            feed.start(ThreadStart::default())?;
            self.tell(feed)
        })
    }
}
