//! The unpacker of raw executions: the columns of a chunk become executions and words again. Everything is
//! checked, as `unpack` does, which knows what lies between executions.
//!
//! Where the thread went and how far words are from what was expected is read when the chunk begins; what that comes to, when it is asked for.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Leave, Step};

use crate::bytes::{Cursor, Parse};
use crate::chain::{MAX_CHAINS, Unit, Which};
use crate::error::Flaw;
use crate::flex::get_runs;
use crate::hash::QuickMap;
use crate::mark;
use crate::pack::{COLUMNS, FLEX, IDS, MARKS, MISSES, RUNS};
use crate::places::{NOWHERE, Places, SECOND, Taking};
use crate::raw_pack::{BITS, HEADS, MOST_RAW, MOST_SILENT};
use crate::roadmap::{Entry, MAX_BLOCKS, Roadmap};
use crate::tables::FEW;
use crate::tile::{Before, Guess, ROWS, Read};
use crate::unpack::{BURST, Burst, TOO_MANY};

/// Where a chunk of raw executions is being read.
#[derive(Debug, Default)]
pub(crate) struct RawUnpacker {
    places: Places,
    /// The places of all executions, and how many of them are out.
    executions: Vec<u32>,
    out: usize,
    /// How many executions of each place were rows of its unit's table, as far as they are read or out.
    few: Vec<u8>,
    /// All tables, row by row: what words are, or as long as they are not out how far they are from what is expected.
    words: Vec<u64>,
    /// How the words of each column of each tile are guessed, and what each column of each table knows from row to row.
    guesses: Vec<Guess>,
    befores: Vec<Before>,
    tables: Vec<Table>,
    /// The tables of units, behind those of places.
    units: usize,
    /// Where those of the last two executions begin.
    previous: [usize; 2],
    /// The last addresses of slots whose accesses are told one by one.
    flexible: QuickMap<u32, u64>,
}

/// Where a table is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    columns: usize,
    /// All its rows, and those that are read or out; where the first begins.
    rows: usize,
    row: usize,
    first: usize,
    first_guess: usize,
    first_before: usize,
}

impl Table {
    /// Where the next row begins that is not out.
    const fn at(&self) -> usize {
        self.first + self.row * self.columns
    }
}

/// Columns of which not all was used.
const LEFT_OVER: Flaw = Flaw("a column has bytes left over");

impl RawUnpacker {
    /// A chunk begins.
    pub(crate) fn begin(
        &mut self,
        roadmap: &Roadmap,
        bits: u32,
        columns: &[Vec<u8>; COLUMNS],
    ) -> Parse<()> {
        self.places.begin(bits);
        self.executions.clear();
        (self.out, self.previous) = (0, [0; 2]);
        self.flexible.clear();
        self.follow(roadmap, columns)?;
        self.lay_out();
        self.read_tables(columns)
    }

    /// The table of the next execution at a place; nothing if that takes no words.
    #[inline(always)]
    fn table(&mut self, place: usize) -> Option<usize> {
        if self.places.list[place].words() == 0 {
            return None;
        }
        let few = &mut self.few[place];
        if *few == FEW {
            return Some(place);
        }
        *few += 1;
        Some(self.units + self.places.nth_unit(place))
    }

    /// Finds out how large all tables are.
    fn lay_out(&mut self) {
        let places = self.places.list.len();
        self.units = places;
        self.tables.clear();
        self.tables.resize(places + self.places.units(), Table::default());
        self.few.clear();
        self.few.resize(places, 0);
        for nth in 0..self.executions.len() {
            let place = self.executions[nth] as usize;
            if let Some(table) = self.table(place) {
                let table = &mut self.tables[table];
                table.columns = self.places.list[place].words();
                table.rows += 1;
            }
        }
        let (mut first, mut first_guess, mut first_before) = (0, 0, 0);
        for table in &mut self.tables {
            (table.first, table.first_guess, table.first_before) =
                (first, first_guess, first_before);
            first += table.rows * table.columns;
            first_guess += table.rows.div_ceil(ROWS) * table.columns;
            first_before += if table.rows > 0 { table.columns } else { 0 };
        }
        self.words.clear();
        self.words.resize(first, 0);
        self.guesses.clear();
        self.guesses.resize(first_guess, Guess::default());
        self.befores.clear();
        self.befores.resize(first_before, Before::default());
    }

    /// Reads where the thread went.
    fn follow(&mut self, roadmap: &Roadmap, columns: &[Vec<u8>; COLUMNS]) -> Parse<()> {
        let (mut runs, mut ids) = (Cursor::new(&columns[RUNS]), Cursor::new(&columns[IDS]));
        let none = Flaw("it expects a block where none came before");
        // Executions that are expected, and how the one behind them is told.
        let (mut expected, mut told) = next_run(&mut runs)?;
        let mut words = 0;
        mark::executions(&columns[MARKS], |count| {
            // Behind a mark nothing is expected from what came before.
            let mut at = NOWHERE;
            for _ in 0..count {
                at = if expected > 0 {
                    expected -= 1;
                    self.places.next(at).ok_or(none)?.0
                } else {
                    let unit = if told == SECOND {
                        self.places.second(at).ok_or(none)?.1
                    } else {
                        Unit(ids.u32()?)
                    };
                    (expected, told) = next_run(&mut runs)?;
                    self.turn(roadmap, at, unit)?
                };
                words += self.places.list[at].words();
                if self.executions.len() >= MOST_RAW || words > MOST_RAW {
                    return Err(TOO_MANY);
                }
                self.executions.push(at as u32);
            }
            Ok(())
        })?;
        if expected > 0 || told != 0 || runs.left() > 0 {
            return Err(Flaw("it expects executions that it does not have"));
        }
        if ids.left() > 0 { Err(LEFT_OVER) } else { Ok(()) }
    }

    /// The place of a unit that was not expected.
    fn turn(&mut self, roadmap: &Roadmap, at: usize, unit: Unit) -> Parse<usize> {
        let none = Flaw("it needs a block or chain that is not there");
        if unit.0 >> 1 >= MAX_BLOCKS.max(MAX_CHAINS) {
            return Err(none);
        }
        let words = match unit.which() {
            Which::Block(id) => {
                roadmap.get(id).map(|entry| (&*entry.shape.words, entry.shape.flexes > 0))
            }
            Which::Chain(number) => roadmap.chain(number).map(|(_, words)| (words, false)),
        };
        let (words, is_apart) = words.ok_or(none)?;
        let words = words.iter().map(|word| word.taken);
        Ok(self.places.turn(at, unit, Taking { words, is_apart }).0)
    }

    /// Reads how far all words are from what was expected.
    fn read_tables(&mut self, columns: &[Vec<u8>; COLUMNS]) -> Parse<()> {
        let mut read = Read {
            heads: Cursor::new(&columns[HEADS]),
            bits: Cursor::new(&columns[BITS]),
            planes: std::array::from_fn(|i| Cursor::new(&columns[MISSES + i])),
        };
        self.few.fill(0);
        for nth in 0..self.executions.len() {
            let Some(table) = self.table(self.executions[nth] as usize) else { continue };
            // The rows before are told when there is one more.
            if self.tables[table].row > 0 && self.tables[table].row.is_multiple_of(ROWS) {
                self.read_tile(table, ROWS, &mut read)?;
            }
            self.tables[table].row += 1;
        }
        for place in 1..self.units {
            let unit = self.units + self.places.nth_unit(place);
            for table in [unit, place] {
                let rows = self.tables[table].row;
                if rows > 0 {
                    self.read_tile(table, (rows - 1) % ROWS + 1, &mut read)?;
                    // Another place of the unit comes later.
                    self.tables[table].row = 0;
                }
            }
        }
        self.few.fill(0);
        let left = [&read.heads, &read.bits].into_iter().chain(&read.planes);
        let unused = columns[BITS + 1..FLEX].iter().any(|column| !column.is_empty());
        if unused || left.map(Cursor::left).sum::<usize>() > 0 { Err(LEFT_OVER) } else { Ok(()) }
    }

    /// Reads the last of those rows of a table that were counted.
    fn read_tile(&mut self, table: usize, rows: usize, read: &mut Read<'_>) -> Parse<()> {
        let Table { columns, row, first, first_guess, .. } = self.tables[table];
        let before = row - rows;
        let tile = &mut self.words[first + before * columns..][..rows * columns];
        let guesses = &mut self.guesses[first_guess + before / ROWS * columns..][..columns];
        for (column, guess) in guesses.iter_mut().enumerate() {
            *guess = read.get(rows, columns, &mut tile[column..])?;
        }
        Ok(())
    }

    /// Fills a burst with some of the next executions, of which there are `left` before a mark, and whose blocks are at most
    /// so many more than their units; answers whether how the last was left follows from the next.
    pub(crate) fn fill(
        &mut self,
        (flex, at): (&[u8], &mut usize),
        roadmap: &Roadmap,
        (left, may_follow): (&mut u64, &mut u64),
        burst: &mut Burst,
    ) -> Parse<bool> {
        let mut from = Cursor::new(flex.get(*at..).unwrap_or_default());
        let mut follows = false;
        while *left > 0 {
            // All were counted when they were read.
            let Some(&place) = self.executions.get(self.out) else { break };
            let place = place as usize;
            let Some(unit) = self.places.unit(place) else { break };
            let next = match unit.which() {
                Which::Block(id) => {
                    let entry =
                        roadmap.get(id).ok_or(Flaw("it needs a block that is not there"))?;
                    if burst.blocks.len() < BURST || entry.shape.is_silent() {
                        if burst.blocks.len() >= BURST + 2 * MOST_SILENT {
                            return Err(Flaw("it has too many silent blocks in a row"));
                        }
                        burst.blocks.push(id);
                        self.words(place, burst);
                        if entry.shape.flexes > 0 {
                            self.flexes(&mut from, entry, burst)?;
                        }
                        *left -= 1;
                        continue;
                    }
                    entry.shape.entry
                }
                Which::Chain(number) => {
                    let chain = roadmap.chain(number);
                    let (blocks, _) = chain.ok_or(Flaw("it needs a chain that is not there"))?;
                    if burst.blocks.len() < BURST {
                        let rest = may_follow.checked_sub(blocks.len() as u64 - 1);
                        *may_follow = rest.ok_or(TOO_MANY)?;
                        burst.blocks.extend_from_slice(blocks);
                        self.words(place, burst);
                        *left -= 1;
                        continue;
                    }
                    let entry = blocks.first().and_then(|id| roadmap.entry_pc(*id));
                    entry.unwrap_or(GuestVa(0))
                }
            };
            burst.leave = Leave::Next(next);
            follows = true;
            break;
        }
        *at = flex.len() - from.left();
        Ok(follows)
    }

    /// Appends the words of the next execution, which is at this place.
    #[inline]
    fn words(&mut self, place: usize, burst: &mut Burst) {
        self.out += 1;
        let Some(nth_table) = self.table(place) else {
            self.previous = [0, self.previous[0]];
            return;
        };
        let is_own = nth_table == place;
        let table = &mut self.tables[nth_table];
        let (row, at, columns) = (table.row, table.at(), table.columns);
        let Table { first_guess, first_before, .. } = *table;
        table.row += 1;
        let before = match row {
            0 if is_own => {
                let unit = &self.tables[self.units + self.places.nth_unit(place)];
                Some(unit.at() - columns)
            }
            0 => None,
            _ => Some(at - columns),
        };
        let guesses = &self.guesses[first_guess + row / ROWS * columns..][..columns];
        let befores = &mut self.befores[first_before..][..columns];
        let rows = [at, self.previous[0], self.previous[1]];
        let known = self.places.known(place);
        let words = &mut self.words;
        for (nth, ((known, guess), state)) in known.iter().zip(guesses).zip(befores).enumerate() {
            let last = before.map_or(0, |before| words[before + nth]);
            let base = || match known.base.at(is_own) {
                Some((back, nth)) => words[rows[back] + nth],
                None => last,
            };
            let word = guess.word(words[at + nth], state, last, base);
            words[at + nth] = known.taken.cut(word);
        }
        burst.words.extend_from_slice(&words[at..at + columns]);
        self.previous = [at, self.previous[0]];
    }

    #[cold]
    fn flexes(&mut self, from: &mut Cursor<'_>, entry: &Entry, burst: &mut Burst) -> Parse<()> {
        for step in entry.block.steps.iter() {
            if let Step::Flex { slot } = step {
                let last = self.flexible.entry(slot.0).or_default();
                let count = get_runs(from, &mut burst.runs, last)?;
                burst.flexes.push(count as u32);
            }
        }
        Ok(())
    }
}

/// How many executions are expected, and how the one behind them is told.
fn next_run(runs: &mut Cursor<'_>) -> Parse<(u64, u64)> {
    let run = runs.varint()?;
    Ok((run >> 1, run & 1))
}
