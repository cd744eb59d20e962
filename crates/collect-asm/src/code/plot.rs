//! Where the copies of an image lie, and what they share with those of other images.
//!
//! Copies lie in *rooms*, pairs of stretches of [`ROOM`] bytes each: P_inst in the first, P_exec in the second. That an address
//! lies in a room is all that inserted code asks of return addresses. A program has a room of its own, of which the second stretch
//! lies just below it if it can; its libraries share rooms, each with a *plot* in it, since not many rooms are near enough to
//! a library, and there both stretches lie side by side.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use super::image::Image;
use super::switch::{FROM_LABELS, ROOM, TO_INST};
use super::tool;
use super::ways::AWAY;
use crate::Error;

pub(crate) const PAGE: u64 = 4096;
/// Between a program and its copy, so that neither its heap nor its libraries come in the way.
const DISTANCE: u64 = 1 << 30;
/// Code reaches what is less than this away.
const REACH: u64 = 1 << 31;
/// What the ends of an image and of a room are apart at least, less than [`REACH`].
const SLACK: u64 = 1 << 24;
/// The tables of rooms lie so far from each other.
const TABLES: u64 = 16 * ROOM;
/// So many rooms, and so many libraries at once, are the most.
const ROOMS: u64 = 64;
const LIBRARIES: u64 = 256;
/// Where libraries' tables of labels lie, and how far from each other.
const LABELS: u64 = TO_INST + ROOMS * TABLES;
const LABELS_EACH: u64 = 4 * ROOM;

/// Where an image's copies lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Plot {
    /// The room: the stretch for P_inst, and the one for P_exec, which the shared word begins.
    pub(crate) room: u64,
    pub(crate) exec_room: u64,
    /// Where P_inst begins, the ways between the copies, and P_exec.
    pub(crate) inst: u64,
    pub(crate) ways: u64,
    pub(crate) exec: u64,
    /// Where the tables lie that lead to P_inst: from P_exec, from the image's own labels.
    pub(crate) to_inst: u64,
    pub(crate) from_labels: u64,
    /// What of its blocks, sorts of references and calls that synchronise comes first.
    pub(crate) first: Numbers,
}

/// Numbers that are used once in a process: those of blocks, of sorts of references, and of calls that synchronise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) block: u32,
    pub(crate) kind: u32,
    pub(crate) call: u32,
}

/// A room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// Where it lies.
    pub(crate) at: u64,
    /// Its number among the rooms of a process; that of the program has number zero.
    pub(crate) number: u64,
}

impl Room {
    /// Bytes of a room's two halves.
    pub(crate) const LEN: u64 = 2 * ROOM;

    /// Where P_exec's half begins, with the shared word.
    pub(crate) const fn exec(self) -> u64 {
        self.at + ROOM
    }

    /// The table that leads from P_exec to P_inst.
    pub(crate) const fn to_inst(self) -> u64 {
        TO_INST + TABLES * self.number
    }

    /// Where the page for calls of a tool lies.
    pub(crate) const fn tool_page(self) -> u64 {
        self.at + tool::AT
    }

    /// Whether copies of an image that lies from `low` to `high` can be in it.
    pub(crate) const fn reaches(self, (low, high): (u64, u64)) -> bool {
        let (least, most) = (high.saturating_sub(REACH - SLACK), low + (REACH - SLACK));
        least <= self.at && self.at + Self::LEN <= most
    }

    /// Rooms that an image could have, the best first: as far below it as can be, since that is where programs map
    /// memory last.
    pub(crate) fn candidates((low, high): (u64, u64), number: u64) -> impl Iterator<Item = Self> {
        let lowest = high.saturating_sub(REACH - SLACK).max(DISTANCE).next_multiple_of(ROOM);
        let count = if number < ROOMS { 2 * REACH / ROOM } else { 0 };
        let places = (0..count).map(move |i| lowest + i * ROOM);
        places.map(move |at| Self { at, number }).filter(move |room| room.reaches((low, high)))
    }

    /// Where P_inst, ways and P_exec of an image begin that comes behind others, which end there.
    fn behind(self, ends: impl Iterator<Item = [u64; 3]>) -> [u64; 3] {
        let mut next = [self.at, self.at + AWAY, self.exec() + PAGE];
        for ends in ends {
            for (next, end) in next.iter_mut().zip(ends) {
                *next = (*next).max(end.next_multiple_of(PAGE));
            }
        }
        next
    }
}

impl Plot {
    /// The place of a program's copies: below it, if there is room, else above.
    pub(crate) fn of_program(image: &Image, bias: u64) -> Self {
        let (low, high) = (image.span.0.wrapping_add(bias), image.span.1.wrapping_add(bias));
        let room = match low.checked_sub(DISTANCE) {
            Some(below) if below > DISTANCE => below / ROOM * ROOM,
            _ => (high + DISTANCE).next_multiple_of(ROOM),
        };
        Self {
            room,
            exec_room: room + ROOM,
            inst: room,
            ways: room + AWAY,
            exec: room + ROOM + PAGE,
            to_inst: TO_INST,
            from_labels: FROM_LABELS,
            first: Numbers::default(),
        }
    }

    /// The place of a library's copies in a room, behind those of others, whose parts end there. No other library of the process has
    /// its number. Nothing if there are too many.
    pub(crate) fn of_library(
        room: Room,
        others: impl Iterator<Item = [u64; 3]>,
        (number, first): (u64, Numbers),
    ) -> Option<Self> {
        let [inst, ways, exec] = room.behind(others);
        let from_labels = LABELS + LABELS_EACH * number;
        let to_inst = room.to_inst();
        let (room, exec_room) = (room.at, room.exec());
        let plot = Self { room, exec_room, inst, ways, exec, to_inst, from_labels, first };
        (number < LIBRARIES).then_some(plot)
    }

    /// With P_exec, which has at the most so many bytes, just below the image, if it is a program's and there is room. Calls
    /// by pointer and of libraries go from one to the other, and jumps that change more than the lower 24 bits of the
    /// address are dear on some processors.
    pub(crate) fn near(self, image: &Image, bias: u64, most: impl Fn() -> u64) -> Self {
        let low = image.span.0.wrapping_add(bias) / PAGE * PAGE;
        let room = low.checked_sub(ROOM).filter(|room| *room >= ROOM);
        let Some(exec_room) = room.filter(|_| self.to_inst == TO_INST) else { return self };
        match low.checked_sub(most().next_multiple_of(PAGE)) {
            Some(exec) if exec >= exec_room + PAGE => Self { exec_room, exec, ..self },
            _ => self,
        }
    }

    /// The addresses that inserted code takes for those of copies.
    pub(crate) fn windows(&self) -> [Range<u64>; 2] {
        [self.room, self.exec_room].map(|at| at..at + ROOM)
    }

    /// Whether copies fit of which P_inst and P_exec end there.
    ///
    /// # Errors
    ///
    /// If they do not.
    pub(crate) fn holds(&self, [inst, exec]: [u64; 2]) -> Result<(), Error> {
        if inst > self.tool_page() || exec > self.exec_room + ROOM {
            let why = "it is larger than 192 MiB".into();
            return Err(Error::Layout { base: self.inst, why });
        }
        Ok(())
    }

    /// Where the page for calls of a tool lies.
    pub(crate) const fn tool_page(&self) -> u64 {
        self.room + tool::AT
    }
}
