//! The bytes loaded and stored, word by word, each predicted by what was last
//! seen at its address or at its place in the program.
//!
//! The coder walks over records, so it knows nothing of blocks or slots; packer and
//! replay walk over the same records of a chunk and keep equal states.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record};

use crate::bytes::{Cursor, Parse};
use crate::error::Flaw;

const BY_ADDRESS: u8 = 0;
const BY_PLACE: u8 = 1;
const BY_STRIDE: u8 = 2;
const WRITTEN: u8 = 3;
const TABLE_BITS: u32 = 16;

/// Predicts values along the records of one chunk.
#[derive(Debug)]
pub struct Values {
    by_address: Vec<u64>,
    by_place: Vec<(u64, u64)>,
    pc: u64,
    ordinal: u64,
}

struct Guess {
    address: usize,
    place: usize,
    words: [u64; 3],
}

impl Values {
    pub(crate) fn new() -> Self {
        Self {
            by_address: vec![0; 1 << TABLE_BITS],
            by_place: vec![(0, 0); 1 << TABLE_BITS],
            pc: 0,
            ordinal: 0,
        }
    }

    /// Forgets everything: a chunk begins.
    pub(crate) fn reset(&mut self) {
        self.by_address.fill(0);
        self.by_place.fill((0, 0));
        self.pc = 0;
        self.ordinal = 0;
    }

    /// Appends the values of `records`; answers how many bytes of `bytes` they were, or
    /// nothing if there are too few.
    pub(crate) fn encode(
        &mut self,
        records: &[Record],
        bytes: &[u8],
        tokens: &mut Vec<u8>,
        written: &mut Vec<u8>,
    ) -> Option<usize> {
        let mut at = 0usize;
        for record in records {
            let Some((addr, size)) = self.step(record) else { continue };
            let value = bytes.get(at..at.checked_add(size)?)?;
            at += size;
            for (i, part) in value.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                let word = u64::from_le_bytes(word);
                let guess = self.guess(addr.offset(i as u64 * 8), part.len());
                let token = guess.words.iter().position(|w| *w == word);
                tokens.push(token.map_or(WRITTEN, |t| t as u8));
                if token.is_none() {
                    written.extend_from_slice(part);
                }
                self.update(&guess, word);
            }
        }
        Some(at)
    }

    fn decode(&mut self, addr: GuestVa, size: usize, from: &mut ValueColumns<'_>) -> Parse<()> {
        let mut left = size;
        let mut at = addr;
        while left > 0 {
            let len = left.min(8);
            let guess = self.guess(at, len);
            let word = match from.tokens.u8()? {
                token @ (BY_ADDRESS | BY_PLACE | BY_STRIDE) => guess.words[usize::from(token)],
                WRITTEN => {
                    let mut word = [0; 8];
                    word[..len].copy_from_slice(from.written.take(len)?);
                    u64::from_le_bytes(word)
                }
                _ => return Err(Flaw("a value's token is unknown")),
            };
            from.out.extend_from_slice(&word.to_le_bytes()[..len]);
            self.update(&guess, word);
            at = at.offset(8);
            left -= len;
        }
        Ok(())
    }

    /// Moves over a record; answers address and size if it has a value.
    fn step(&mut self, record: &Record) -> Option<(GuestVa, usize)> {
        match *record {
            Record::Insn { pc, .. } => {
                self.pc = pc.0;
                self.ordinal = 0;
                None
            }
            Record::Load { size, addr, .. } | Record::Store { size, addr, .. } => {
                Some((addr, size as usize))
            }
            _ => None,
        }
    }

    fn guess(&mut self, addr: GuestVa, len: usize) -> Guess {
        let place = index(self.pc ^ self.ordinal << 56);
        self.ordinal += 1;
        let address = index(addr.0);
        let mask = u64::MAX >> (64 - 8 * len as u32);
        let (last, stride) = self.by_place[place];
        let words = [self.by_address[address], last, last.wrapping_add(stride)].map(|w| w & mask);
        Guess { address, place, words }
    }

    fn update(&mut self, guess: &Guess, word: u64) {
        self.by_address[guess.address] = word;
        let place = &mut self.by_place[guess.place];
        *place = (word, word.wrapping_sub(place.0));
    }
}

struct ValueColumns<'a> {
    tokens: Cursor<'a>,
    written: Cursor<'a>,
    out: &'a mut Vec<u8>,
}

/// Reads the values of one chunk, in step with its records.
#[derive(Debug)]
pub(crate) struct ValueReader {
    pub(crate) values: Values,
    pub(crate) tokens: usize,
    pub(crate) written: usize,
}

impl ValueReader {
    /// Appends the values of `records` to `out`.
    pub(crate) fn read(
        &mut self,
        records: &[Record],
        (tokens, written): (&[u8], &[u8]),
        out: &mut Vec<u8>,
    ) -> Parse<()> {
        let rest = |column: &'_ [u8], at: usize| column.len().saturating_sub(at);
        let mut from = ValueColumns {
            tokens: Cursor::new(tokens.get(self.tokens..).unwrap_or_default()),
            written: Cursor::new(written.get(self.written..).unwrap_or_default()),
            out,
        };
        for record in records {
            if let Some((addr, size)) = self.values.step(record) {
                // Each eight bytes need a token: a size that lies is found out
                // before it becomes memory.
                if size.div_ceil(8) > from.tokens.left() {
                    return Err(Flaw("it holds fewer values than its accesses need"));
                }
                self.values.decode(addr, size, &mut from)?;
            }
        }
        self.tokens += rest(tokens, self.tokens) - from.tokens.left();
        self.written += rest(written, self.written) - from.written.left();
        Ok(())
    }
}

#[inline]
fn index(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as usize
}
