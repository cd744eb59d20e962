//! Following a thread of raw executions as long as it goes where it went before: the loop in which most executions are packed.
//! Nothing is looked up here but places, and all that it needs finds a register of the processor.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::put_varint;
use crate::followed::ODD;
use crate::lore::HIGH;
use crate::places::{Place, SECOND};

/// Where a thread is among what it stored.
#[derive(Debug)]
pub(crate) struct Onward<'b> {
    /// What is not packed yet.
    pub(crate) bytes: &'b [u8],
    /// The words of the execution before.
    pub(crate) held: &'b [u8],
    /// The place where the thread is.
    pub(crate) at: usize,
    /// Expected executions since one that was not.
    pub(crate) expected: u64,
    /// How far the register that is followed was moved.
    pub(crate) moved: i64,
    pub(crate) execs: u64,
}

impl Onward<'_> {
    /// Goes on until an execution is at a place that is not known to come next, or needs more than to be counted. All bytes
    /// have so many; where words begin is noted in `rows`, and what was told of the way in `runs`.
    #[inline(never)]
    pub(crate) fn go(
        &mut self,
        list: &mut [Place],
        rows: &mut [u32],
        runs: &mut Vec<u8>,
        all: usize,
    ) {
        let bytes = self.bytes;
        let before = all - bytes.len();
        let (mut here, mut by, mut count) = (self.at, self.moved, 0);
        // Where the next execution begins, and the words of the one before it; and how many were expected before all of them.
        let (mut at, mut held, mut told) = (0, 0, self.expected);
        while let Some(identifier) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            let identifier = u32::from_le_bytes(*identifier);
            // Those are never plain, and one of them is what places have that are not known by any.
            if identifier >= HIGH {
                break;
            }
            let mut to = list[here].next as usize;
            let is_next = list[to].note.identifier == identifier;
            if !is_next {
                let Some(second) = second(list, here, identifier) else { break };
                to = second;
            }
            let note = &mut list[to].note;
            let start = at + size_of::<u32>();
            let end = start + usize::from(note.len);
            let is_whole = end <= bytes.len() && note.moves != ODD;
            if !is_whole || !note.put_row(rows, (before + start) as u32) {
                break;
            }
            note.runs += 1;
            by += i64::from(note.moves);
            if !is_next {
                let from = &mut list[here];
                (from.next, from.second) = (from.second, from.next);
                put_varint(runs, told.wrapping_add(count) << 1 | SECOND);
                // Counts this one out.
                told = (count + 1).wrapping_neg();
            }
            count += 1;
            (here, held, at) = (to, start, end);
        }
        if count > 0 {
            self.held = bytes.get(held..at).unwrap_or_default();
        }
        self.bytes = bytes.get(at..).unwrap_or_default();
        (self.at, self.expected, self.moved) = (here, told.wrapping_add(count), by);
        self.execs += count;
    }
}

/// The place before the expected one, which is the next most likely, if that is it.
// By itself, so that the processor guesses which one it is, and need not wait for what says so.
#[inline(never)]
fn second(list: &[Place], here: usize, identifier: u32) -> Option<usize> {
    let second = list[here].second as usize;
    (list[second].note.identifier == identifier).then_some(second)
}
