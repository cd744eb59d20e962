//! What is taken back, wherever a buffer ends.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Batch, EndStatus, Known, Lines, Sink, ThreadId};
use ichnos_tap::{BufferKind, Layout, Taken};

use super::*;
use crate::host::gather::Gather;

const SIEVE: Sieve = {
    let lines = Lines { shift: 6, sets: 0, ways: 4, known: Known::All };
    Sieve { code: lines, data: lines }
};

/// What a sink is told.
#[derive(Default)]
struct Ears {
    lines: Vec<Line>,
    held: Held,
}

impl Sink for Ears {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn sieve(&self) -> Option<Sieve> {
        Some(SIEVE)
    }

    fn sifted(&mut self, _: ThreadId, lines: &[Line]) -> Result<bool, Infallible> {
        self.lines.extend_from_slice(lines);
        Ok(true)
    }

    fn held(&mut self, _: ThreadId, held: &Held) -> Result<bool, Infallible> {
        self.held = *held;
        Ok(true)
    }
}

fn word(tag: u32, value: u64) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &value.to_le_bytes()].concat()
}

fn instead(comes: u64, goes: u64) -> Vec<u8> {
    [word(words::INSTEAD, comes), goes.to_le_bytes().to_vec()].concat()
}

/// An instruction that took back so many references.
fn undone(told: u64) -> Vec<u8> {
    let head = [words::UNDONE, 16, sieve::FIRST_PIECE, 0];
    let head = head.iter().flat_map(|word| word.to_le_bytes());
    head.chain(told.to_le_bytes()).collect()
}

/// What a thread tells in these buffers, each of which begins with the time.
fn heard(buffers: &[&[Vec<u8>]]) -> Ears {
    let channel = Arc::new(Channel::new(Layout::new(1, 4096), 0).expect("a tap"));
    let mut ears = Ears::default();
    let mut gather = Gather::new(&mut ears, Some(Sifted::new(channel, SIEVE)));
    for items in buffers {
        let bytes = [word(words::TIME, 1), items.concat()].concat();
        let (kind, len) = (BufferKind::STREAM, bytes.len() as u64);
        let taken = Taken { index: 0, kind, thread: 0, process: 0, len, noted: false };
        gather.buffer(&taken, &bytes).expect("it is whole");
    }
    gather.finish(EndStatus::Exited(0)).expect("nobody fails");
    ears
}

#[test]
fn a_buffer_may_end_between_what_is_told_and_its_fault() {
    let items = [
        word(words::LINE, 0x1000 | line::LOAD),
        word(words::LINE, 0x8000 | line::FETCH),
        instead(0x2000 | line::LOAD | line::STORE, 0x1000),
        undone(2),
        word(words::LINE, 0x1000 | line::LATE | line::LOAD),
    ];
    let loads = [Line::Load(GuestVa(0x1000)); 2];
    for end in 0..=items.len() {
        let (first, second) = items.split_at(end);
        let ears = heard(&[first, second]);
        assert_eq!(ears.lines, loads, "{end}");
        assert_eq!(ears.held, Held { loads: 2_u64.wrapping_neg(), ..Held::default() }, "{end}");
    }
    let ears = heard(&items.iter().map(std::slice::from_ref).collect::<Vec<_>>());
    assert_eq!(ears.lines, loads);
}
