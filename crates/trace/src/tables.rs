//! What the executions of a chunk took, as tables: with a row for each execution and a column for each word. A table is told some
//! rows at a time, column by column, as soon as there are so many: they have just been stored, and are still in the processor's caches.
//!
//! The first executions of each place are rows of a table of their unit; all further ones, of one of the place.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::places::Places;
use crate::tile::{Before, ROWS, Rows, Tile, Told};

/// So many executions of a place are rows of its unit's table.
pub(crate) const FEW: u8 = 4;

/// For how many rows of a table there is room first, and how often that is multiplied when there are more.
const FIRST: u32 = 16;
const MORE: u32 = 4;

/// No table.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Table {
    /// Its place, or one of them.
    place: u32,
    is_own: bool,
    /// Whether there is a row before those that are to be told.
    has_before: bool,
    /// Where its rows are noted: the one before them, all others, and for how many there is room.
    first: u32,
    next: u32,
    room: u32,
    first_before: u32,
}

/// The bytes in which words lie: those of most executions, and of those that have accesses among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) apart: &'b [u8],
}

/// All tables of a chunk, while they are told.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    list: Vec<Table>,
    /// Where the words of rows begin.
    rows: Vec<u32>,
    /// The tables of places and units.
    of_place: Vec<u32>,
    of_unit: Vec<u32>,
    befores: Vec<Before>,
    tile: Box<Tile>,
}

impl Tables {
    /// A chunk begins.
    pub(crate) fn begin(&mut self) {
        let Self { list, rows, of_place, of_unit, befores, .. } = self;
        list.clear();
        of_place.clear();
        of_unit.clear();
        befores.clear();
        // Where rows without words go.
        rows.clear();
        rows.resize(ROWS, 0);
    }

    /// Where rows are noted.
    pub(crate) fn rows(&mut self) -> &mut [u32] {
        &mut self.rows
    }

    /// Notes where the words of the next row of a place begin, if there was no more room for it.
    #[inline(never)]
    pub(crate) fn make_row(
        &mut self,
        (places, place): (&mut Places, usize),
        at: u32,
        stored: Stored<'_>,
        told: &mut Told<'_>,
    ) {
        let words = places.list[place].words();
        let note = &mut places.list[place].note;
        if words == 0 {
            (note.row, note.end) = (0, ROWS as u32);
            return;
        }
        let (row, is_own) = (note.row, note.few == FEW);
        note.few += u8::from(!is_own);
        let table = self.table(places, place, is_own);
        if is_own && row > 0 {
            self.list[table].next = row;
        }
        if !self.has_room(table) {
            self.tell(places, table, stored, told);
        }
        let table = &mut self.list[table];
        self.rows[table.next as usize] = at;
        table.next += 1;
        if is_own {
            let note = &mut places.list[place].note;
            (note.row, note.end) = (table.next, table.first + 1 + table.room);
        }
    }

    /// The table for a place's next row.
    fn table(&mut self, places: &Places, place: usize, is_own: bool) -> usize {
        let nth_unit = places.nth_unit(place);
        let (of, at) =
            if is_own { (&mut self.of_place, place) } else { (&mut self.of_unit, nth_unit) };
        if of.len() <= at {
            of.resize(at + 1, NONE);
        }
        if of[at] == NONE {
            of[at] = self.list.len() as u32;
            let first = self.rows.len() as u32;
            self.rows.resize((first + 1 + FIRST) as usize, 0);
            let unit = if is_own { self.of_unit[nth_unit] } else { NONE };
            if let Some(unit) = self.list.get(unit as usize) {
                self.rows[first as usize] = self.rows[unit.next as usize - 1];
            }
            let first_before = self.befores.len();
            let words = places.list[place].words();
            self.befores.resize(first_before + words, Before::default());
            self.list.push(Table {
                place: place as u32,
                is_own,
                has_before: is_own,
                first,
                next: first + 1,
                room: FIRST,
                first_before: first_before as u32,
            });
        }
        let of = if is_own { &self.of_place } else { &self.of_unit };
        of[at] as usize
    }

    /// Whether there is room for one more row of a table, after some was made if there may be more.
    fn has_room(&mut self, table: usize) -> bool {
        let table = &mut self.list[table];
        let (first, next) = (table.first, table.next);
        if next <= first + table.room {
            return true;
        }
        let room = table.room * MORE;
        if room > ROWS as u32 {
            return false;
        }
        (table.first, table.room) = (self.rows.len() as u32, room);
        table.next = table.first + (next - first);
        self.rows.extend_from_within(first as usize..next as usize);
        self.rows.resize((table.first + 1 + room) as usize, 0);
        true
    }

    /// Tells the rows of a table.
    fn tell(&mut self, places: &Places, table: usize, stored: Stored<'_>, told: &mut Told<'_>) {
        let Self { list, rows, befores, tile, .. } = self;
        let table = &mut list[table];
        let place = table.place as usize;
        let known = places.known(place);
        let befores = &mut befores[table.first_before as usize..][..known.len()];
        let some = &rows[table.first as usize..table.next as usize];
        let is_apart = places.list[place].is_apart();
        let some = Rows {
            bytes: if is_apart { stored.apart } else { stored.bytes },
            at: some,
            has_before: table.has_before,
            is_own: table.is_own,
        };
        tile.put(some, known, befores, told);
        rows[table.first as usize] = rows[table.next as usize - 1];
        (table.next, table.has_before) = (table.first + 1, true);
    }

    /// Tells the last rows of all tables.
    pub(crate) fn end(&mut self, places: &Places, stored: Stored<'_>, told: &mut Told<'_>) {
        for (nth, place) in places.list.iter().enumerate().skip(1) {
            let unit = self.of_unit.get_mut(places.nth_unit(nth));
            let unit = unit.map_or(NONE, |unit| std::mem::replace(unit, NONE));
            let own = self.of_place.get(nth).copied().unwrap_or(NONE);
            if own != NONE {
                self.list[own as usize].next = place.note.row;
            }
            for table in [unit, own].into_iter().filter(|table| *table != NONE) {
                let table = table as usize;
                if self.list[table].next > self.list[table].first + 1 {
                    self.tell(places, table, stored, told);
                }
            }
        }
    }
}
