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
        let Self { bytes, held, at, expected, moved, execs } = self;
        let (mut rest, mut here, mut count) = (*bytes, *at, 0);
        let (mut told, mut by) = (*expected, *moved);
        while let Some((identifier, behind)) = rest.split_first_chunk() {
            let identifier = u32::from_le_bytes(*identifier);
            // Those are never plain, and one of them is what places have that are not known by any.
            if identifier >= HIGH {
                break;
            }
            let Place { next, second, .. } = list[here];
            let mut to = next as usize;
            let is_next = list[to].note.identifier == identifier;
            if !is_next {
                // The one before the expected is the next most likely.
                to = second as usize;
            }
            let note = &mut list[to].note;
            if note.identifier != identifier || note.moves == ODD {
                break;
            }
            let Some((words, behind)) = behind.split_at_checked(note.len.into()) else { break };
            if !note.put_row(rows, (all - behind.len() - words.len()) as u32) {
                break;
            }
            note.runs += 1;
            by += i64::from(note.moves);
            if is_next {
                told += 1;
            } else {
                (list[here].next, list[here].second) = (second, next);
                put_varint(runs, std::mem::take(&mut told) << 1 | SECOND);
            }
            count += 1;
            (here, rest, *held) = (to, behind, words);
        }
        (*bytes, *at, *expected, *moved) = (rest, here, told, by);
        *execs += count;
    }
}
