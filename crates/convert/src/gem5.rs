//! gem5's packet traces: the mark `gem5`, then messages, each after its length
//! as a varint: one `PacketHeader`, then `Packet`s.
//!
//! Of the commands only plain reads (1) and writes (4) have the same number in
//! every version of gem5, and only they are records; the rest (responses,
//! prefetches, coherence) is left out, as gem5's own decoding script does not
//! name it either. A read with the instruction-fetch flag is an instruction
//! record.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{BufRead, BufReader, Read, Write};

use ichnos_base::{
    Batch, DriveError, GuestVa, InsnKind, Isa, Record, Sink, Source, ThreadId, ThreadStart,
};

use crate::code_map::AddrMap;
use crate::feed::{Feed, Halt, about, drive};
use crate::output::Output;
use crate::wire::{Field, push_bytes, push_number, push_varint, take_field};
use crate::{Error, Format, PacketIds, ReadOptions, Result, WriteOptions};

const MAGIC: &[u8; 4] = b"gem5";
const READ: u64 = 1;
const WRITE: u64 = 4;
/// The request flag of an instruction fetch.
const FETCH: u64 = 0x100;
/// Ticks are picoseconds.
const TICKS_PER_SECOND: u64 = 1_000_000_000_000;
/// The longest message that is believed; a packet has some 60 bytes, a header
/// names every requestor.
const MESSAGE_MAX: u64 = 1 << 20;
/// Different packet ids that are believed to be threads.
const THREADS_MAX: usize = 1 << 16;

/// A source of gem5 packets.
pub struct Gem5Source<R> {
    input: BufReader<R>,
    ids: PacketIds,
    /// Bytes taken so far.
    offset: u64,
    message: Vec<u8>,
}

/// One packet, as far as it matters here.
#[derive(Default)]
struct Packet {
    cmd: Option<u64>,
    addr: Option<u64>,
    size: Option<u64>,
    tick: Option<u64>,
    flags: u64,
    id: u64,
}

impl<R: Read> Gem5Source<R> {
    /// Reads from `input`, which is not compressed.
    pub fn new(input: R, options: &ReadOptions) -> Self {
        let input = BufReader::with_capacity(1 << 17, input);
        Self { input, ids: options.packet_ids, offset: 0, message: Vec::new() }
    }

    fn bad(&self, what: impl Into<String>) -> Error {
        Error::Bytes { format: Format::Gem5, offset: self.offset, what: what.into() }
    }

    fn read_error(&self, source: std::io::Error) -> Error {
        Error::Read { format: Format::Gem5, offset: self.offset, source }
    }

    fn magic(&mut self) -> Result<()> {
        let mut mark = [0; 4];
        let n = crate::input::read_full(&mut self.input, &mut mark)
            .map_err(|source| self.read_error(source))?;
        if mark != *MAGIC {
            let found = mark.get(..n).unwrap_or_default().escape_ascii();
            return Err(self.bad(format!("expected the mark \"gem5\", found \"{found}\"")));
        }
        self.offset = 4;
        Ok(())
    }

    /// Reads the next message into `self.message`; whether there was one.
    fn next_message(&mut self) -> Result<bool> {
        let Some(len) = self.length()? else { return Ok(false) };
        if len > MESSAGE_MAX {
            return Err(
                self.bad(format!("a message of {len} bytes; the longest has {MESSAGE_MAX}"))
            );
        }
        self.message.resize(len as usize, 0);
        let n = crate::input::read_full(&mut self.input, &mut self.message);
        let n = n.map_err(|source| self.read_error(source))?;
        if (n as u64) < len {
            return Err(self.bad(format!("the input ends after {n} of a message's {len} bytes")));
        }
        self.offset += len;
        Ok(true)
    }

    /// The length before a message; `None` at the end of the input.
    fn length(&mut self) -> Result<Option<u64>> {
        let mut value = 0;
        for i in 0..5 {
            let head = self.input.fill_buf().map_err(|source| Error::Read {
                format: Format::Gem5,
                offset: self.offset,
                source,
            })?;
            let Some(&byte) = head.first() else {
                if i == 0 {
                    return Ok(None);
                }
                return Err(self.bad("the input ends inside a message's length"));
            };
            self.input.consume(1);
            self.offset += 1;
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return Ok(Some(value));
            }
        }
        Err(self.bad("a message's length has more than five bytes"))
    }

    fn header(&self) -> Result<()> {
        let mut rest = &self.message[..];
        let mut frequency = None;
        while !rest.is_empty() {
            match take_field(&mut rest) {
                Some(Field::Number(3, hertz)) => frequency = Some(hertz),
                Some(_) => {}
                None => return Err(self.bad("the header message is malformed")),
            }
        }
        match frequency {
            Some(_) => Ok(()),
            None => {
                Err(self.bad("the first message is no packet header: it has no tick frequency"))
            }
        }
    }

    fn packet(&self) -> Result<Packet> {
        let mut rest = &self.message[..];
        let mut packet = Packet::default();
        while !rest.is_empty() {
            match take_field(&mut rest) {
                Some(Field::Number(1, tick)) => packet.tick = Some(tick),
                Some(Field::Number(2, cmd)) => packet.cmd = Some(cmd),
                Some(Field::Number(3, addr)) => packet.addr = Some(addr),
                Some(Field::Number(4, size)) => packet.size = Some(size),
                Some(Field::Number(5, flags)) => packet.flags = flags,
                Some(Field::Number(6, id)) => packet.id = id,
                Some(_) => {}
                None => return Err(self.bad("a packet message before here is malformed")),
            }
        }
        match packet {
            Packet { tick: Some(_), cmd: Some(_), addr: Some(_), size: Some(_), .. } => Ok(packet),
            _ => Err(self.bad("a packet before here lacks its tick, command, address or size")),
        }
    }

    fn tell<S: Sink>(&mut self, feed: &mut Feed<'_, S>) -> Result<(), Halt<S::Error>> {
        self.magic()?;
        if !self.next_message()? {
            return Err(Halt::Source(self.bad("there is no header message")));
        }
        self.header()?;
        let mut threads: AddrMap<u64, ThreadId> = AddrMap::default();
        if self.ids == PacketIds::Ignored {
            feed.start(ThreadStart::default())?;
        }
        while self.next_message()? {
            let packet = self.packet()?;
            let Some(record) = record(&packet).map_err(|what| self.bad(what))? else { continue };
            if self.ids == PacketIds::Threads {
                match threads.get(&packet.id) {
                    Some(&thread) => feed.switch(thread)?,
                    None if threads.len() >= THREADS_MAX => {
                        let what = format!("more than {THREADS_MAX} different packet ids");
                        return Err(Halt::Source(self.bad(what)));
                    }
                    None => {
                        let id = feed.start(ThreadStart::default())?;
                        threads.insert(packet.id, id);
                    }
                }
            }
            feed.record(record)?;
        }
        Ok(())
    }
}

fn record(packet: &Packet) -> Result<Option<Record>, String> {
    let addr = GuestVa(packet.addr.unwrap_or(0));
    let size = u32::try_from(packet.size.unwrap_or(0))
        .map_err(|_| "a packet before here is larger than 2^32 bytes".to_owned())?;
    Ok(match packet.cmd {
        Some(READ) if packet.flags & FETCH != 0 => {
            // Fetches of whole lines are longer than any instruction.
            let len = u8::try_from(size).unwrap_or(u8::MAX);
            Some(Record::insn(addr, len, InsnKind::OTHER))
        }
        Some(READ) => Some(Record::load(addr, size)),
        Some(WRITE) => Some(Record::store(addr, size)),
        _ => None,
    })
}

impl<R: Read> Source for Gem5Source<R> {
    type Error = Error;

    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Error, S::Error>> {
        drive(sink, |feed| {
            feed.begin(&about("gem5 packets", Isa::UNKNOWN))?;
            self.tell(feed)
        })
    }
}

/// A sink that writes gem5 packets. All threads share the file; a packet's id is
/// its thread, and its tick grows with its thread's instructions.
pub struct Gem5Sink {
    output: Option<Output>,
    thread: Option<ThreadId>,
    ticks_per_insn: u64,
    insns: AddrMap<u32, (u64, GuestVa)>,
    message: Vec<u8>,
    bytes: Vec<u8>,
}

impl Gem5Sink {
    /// Writes to `output`.
    pub fn new(output: Output, options: &WriteOptions) -> Self {
        let mut header = Vec::new();
        push_bytes(&mut header, 1, b"ichnos");
        push_number(&mut header, 2, 0);
        push_number(&mut header, 3, TICKS_PER_SECOND);
        let mut bytes = MAGIC.to_vec();
        push_varint(&mut bytes, header.len() as u64);
        bytes.extend_from_slice(&header);
        Self {
            output: Some(output),
            thread: options.thread,
            ticks_per_insn: options.ticks_per_insn,
            insns: AddrMap::default(),
            message: Vec::new(),
            bytes,
        }
    }

    fn write(&mut self) -> Result<()> {
        if let Some(output) = &mut self.output {
            output
                .write_all(&self.bytes)
                .map_err(|source| Error::Write { format: Format::Gem5, source })?;
        }
        self.bytes.clear();
        Ok(())
    }
}

impl Sink for Gem5Sink {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        if self.thread.is_some_and(|wanted| wanted != batch.thread) {
            return Ok(true);
        }
        let (mut insns, mut at) = self.insns.get(&batch.thread.0).copied().unwrap_or_default();
        for record in batch.records {
            let (cmd, addr, size, flags) = match *record {
                Record::Insn { len, pc, .. } => {
                    insns += 1;
                    at = pc;
                    (READ, pc, u32::from(len), FETCH)
                }
                Record::Load { size, addr, .. } => (READ, addr, size, 0),
                Record::Store { size, addr, .. } => (WRITE, addr, size, 0),
                _ => continue,
            };
            let message = &mut self.message;
            message.clear();
            push_number(message, 1, insns.wrapping_mul(self.ticks_per_insn));
            push_number(message, 2, cmd);
            push_number(message, 3, addr.0);
            push_number(message, 4, u64::from(size));
            push_number(message, 5, flags);
            push_number(message, 6, u64::from(batch.thread.0));
            push_number(message, 7, at.0);
            push_varint(&mut self.bytes, self.message.len() as u64);
            self.bytes.extend_from_slice(&self.message);
        }
        self.insns.insert(batch.thread.0, (insns, at));
        self.write()?;
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        self.write()?;
        match self.output.take() {
            Some(output) => {
                output.finish().map_err(|source| Error::Write { format: Format::Gem5, source })
            }
            None => Ok(()),
        }
    }
}
