//! A virtio block device on the memory-mapped transport, version 2, with one
//! split queue. Requests are carried out when the guest rings the bell.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::ram::Ram;

pub(crate) const BASE: u64 = 0x1000_1000;
pub(crate) const SIZE: u64 = 0x1000;
/// Its interrupt source.
pub(crate) const SOURCE: u32 = 1;

const SECTOR: u64 = 512;
const QUEUE_MOST: u32 = 256;
/// The longest piece of a request that is carried out.
const PIECE_MOST: u32 = 1 << 24;
const NEXT: u16 = 1;
const DEVICE_WRITES: u16 = 2;
const VERSION_1: u32 = 1;
const FLUSH: u32 = 1 << 9;

/// Whether the guest may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writing {
    Allowed,
    Refused,
}

/// The block device.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    sectors: u64,
    writing: Writing,
    status: u32,
    features_page: u32,
    queue_size: u32,
    queue_ready: bool,
    descriptors: u64,
    available: u64,
    used: u64,
    seen: u16,
    interrupt: u32,
}

/// One piece of a request.
#[derive(Clone, Copy)]
struct Piece {
    address: u64,
    len: u32,
    flags: u16,
}

/// Guest memory as devices see it: physical addresses.
pub(crate) struct Dma<'a> {
    pub(crate) ram: &'a mut Ram,
    pub(crate) base: u64,
}

impl Dma<'_> {
    fn read(&self, pa: u64, len: usize) -> Option<&[u8]> {
        self.ram.slice(usize::try_from(pa.checked_sub(self.base)?).ok()?, len)
    }

    fn write(&mut self, pa: u64, bytes: &[u8]) -> Option<()> {
        let index = usize::try_from(pa.checked_sub(self.base)?).ok()?;
        self.ram.slice_mut(index, bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    fn number<const N: usize>(&self, pa: u64) -> Option<u64> {
        let mut word = [0; 8];
        word[..N].copy_from_slice(self.read(pa, N)?);
        Some(u64::from_le_bytes(word))
    }
}

impl Disk {
    /// A disk over a file, rounded down to whole sectors.
    pub(crate) fn new(file: File, writing: Writing) -> std::io::Result<Self> {
        let sectors = file.metadata()?.len() / SECTOR;
        Ok(Self {
            file,
            sectors,
            writing,
            status: 0,
            features_page: 0,
            queue_size: 0,
            queue_ready: false,
            descriptors: 0,
            available: 0,
            used: 0,
            seen: 0,
            interrupt: 0,
        })
    }

    pub(crate) fn interrupts(&self) -> bool {
        self.interrupt != 0
    }

    pub(crate) fn read(&self, offset: u64) -> u64 {
        let value = match offset {
            0x000 => 0x7472_6976,
            0x004 => 2,
            0x008 => 2,
            0x00c => 0x6863_6e69,
            0x010 => match self.features_page {
                0 if self.writing == Writing::Refused => FLUSH | 1 << 5,
                0 => FLUSH,
                1 => VERSION_1,
                _ => 0,
            },
            0x034 => QUEUE_MOST,
            0x044 => self.queue_ready.into(),
            0x060 => self.interrupt,
            0x070 => self.status,
            0x100 => self.sectors as u32,
            0x104 => (self.sectors >> 32) as u32,
            _ => 0,
        };
        value.into()
    }

    /// Writes a register; the bell carries out requests.
    pub(crate) fn write(&mut self, offset: u64, value: u64, dma: &mut Dma<'_>) {
        let value = value as u32;
        let low = |old: u64| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            0x014 => self.features_page = value,
            0x038 => self.queue_size = value.min(QUEUE_MOST),
            0x044 => self.queue_ready = value & 1 != 0,
            0x050 => self.serve(dma),
            0x064 => self.interrupt &= !value,
            0x070 => {
                self.status = value;
                if value == 0 {
                    (self.queue_ready, self.seen, self.interrupt) = (false, 0, 0);
                }
            }
            0x080 => self.descriptors = low(self.descriptors),
            0x084 => self.descriptors = high(self.descriptors),
            0x090 => self.available = low(self.available),
            0x094 => self.available = high(self.available),
            0x0a0 => self.used = low(self.used),
            0x0a4 => self.used = high(self.used),
            _ => {}
        }
    }

    /// Carries out all requests that are available. A queue that leads outside
    /// of memory ends it: such a guest has lost its disk.
    fn serve(&mut self, dma: &mut Dma<'_>) {
        if !self.queue_ready || self.queue_size == 0 {
            return;
        }
        while let Some(available) = dma.number::<2>(self.available.wrapping_add(2)) {
            if available as u16 == self.seen || self.serve_next(dma).is_none() {
                break;
            }
        }
    }

    fn serve_next(&mut self, dma: &mut Dma<'_>) -> Option<()> {
        let size = u64::from(self.queue_size);
        let slot = u64::from(self.seen) % size;
        let head = dma.number::<2>(self.available.wrapping_add(4 + 2 * slot))?;
        let written = self.request(dma, head)?;
        let index = dma.number::<2>(self.used.wrapping_add(2))?;
        let entry = self.used.wrapping_add(4 + 8 * (index % size));
        dma.write(entry, &(head as u32).to_le_bytes())?;
        dma.write(entry.wrapping_add(4), &written.to_le_bytes())?;
        dma.write(self.used.wrapping_add(2), &(index as u16).wrapping_add(1).to_le_bytes())?;
        self.seen = self.seen.wrapping_add(1);
        self.interrupt |= 1;
        Some(())
    }

    /// The pieces of a request, at most as many as the queue has.
    fn pieces(&self, dma: &Dma<'_>, head: u64) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut index = head;
        while pieces.len() < self.queue_size as usize {
            let at = self.descriptors.wrapping_add(16 * (index % u64::from(self.queue_size)));
            let flags = dma.number::<2>(at.wrapping_add(12))? as u16;
            let len = dma.number::<4>(at.wrapping_add(8))? as u32;
            pieces.push(Piece { address: dma.number::<8>(at)?, len: len.min(PIECE_MOST), flags });
            if flags & NEXT == 0 {
                break;
            }
            index = dma.number::<2>(at.wrapping_add(14))?;
        }
        Some(pieces)
    }

    /// One request; the result is how many bytes of memory were written.
    fn request(&mut self, dma: &mut Dma<'_>, head: u64) -> Option<u32> {
        let pieces = self.pieces(dma, head)?;
        let [first, data @ .., last] = pieces.as_slice() else { return Some(0) };
        let kind = dma.number::<4>(first.address)?;
        let mut at = dma.number::<8>(first.address.wrapping_add(8))?.wrapping_mul(SECTOR);
        let mut written = 0;
        let mut good = true;
        for piece in data {
            let done = match kind {
                0 if piece.flags & DEVICE_WRITES != 0 => self.read_piece(dma, piece, at),
                1 if piece.flags & DEVICE_WRITES == 0 => self.write_piece(dma, piece, at),
                4 => Some(()),
                _ => None,
            };
            good &= done.is_some();
            if kind == 0 {
                written += piece.len;
            }
            at = at.wrapping_add(piece.len.into());
        }
        let status = match kind {
            0 | 1 | 4 => u8::from(!good),
            _ => 2,
        };
        dma.write(last.address, &[status])?;
        Some(written + 1)
    }

    fn inside(&self, at: u64, len: u32) -> bool {
        at.checked_add(len.into()).is_some_and(|end| end <= self.sectors * SECTOR)
    }

    fn read_piece(&self, dma: &mut Dma<'_>, piece: &Piece, at: u64) -> Option<()> {
        if !self.inside(at, piece.len) {
            return None;
        }
        let mut bytes = vec![0; piece.len as usize];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        dma.write(piece.address, &bytes)
    }

    fn write_piece(&self, dma: &Dma<'_>, piece: &Piece, at: u64) -> Option<()> {
        if self.writing == Writing::Refused || !self.inside(at, piece.len) {
            return None;
        }
        let bytes = dma.read(piece.address, piece.len as usize)?;
        self.file.write_all_at(bytes, at).ok()
    }
}
