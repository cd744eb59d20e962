//! The working set over time (Denning, 1968) and the footprint: distinct lines
//! per window of instructions, and how many of them are new.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Batch, Event, Record, Sink, ThreadId};

use super::references::{Lines, References};
use crate::Error;
use crate::error::{power_of_two, range};
use crate::line_map::LineMap;
use crate::spaces::Spaces;

/// One window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkingSetPoint {
    /// Instructions up to the end of the window.
    pub instructions: u64,
    /// References in the window.
    pub references: u64,
    /// Distinct lines referenced in the window.
    pub lines: u64,
    /// Those never referenced before.
    pub new_lines: u64,
}

/// Counts distinct lines per window. Memory grows with the footprint and by one
/// point a window.
#[derive(Debug)]
pub struct WorkingSet {
    lines: Lines,
    spaces: Spaces,
    window: u64,
    /// For each line the number of the window of its last reference.
    last: LineMap,
    point: WorkingSetPoint,
    points: Vec<WorkingSetPoint>,
}

impl WorkingSet {
    /// In lines of `line` bytes, with windows of `window` instructions of all
    /// threads together.
    ///
    /// # Errors
    ///
    /// If `line` is not a power of two or `window` is zero.
    pub fn new(line: u32, references: References, window: u64) -> Result<Self, Error> {
        range("line", u64::from(line), 1, 1 << 30)?;
        power_of_two("line", u64::from(line))?;
        range("window", window, 1, u64::MAX)?;
        Ok(Self {
            lines: Lines { references, shift: line.trailing_zeros(), space: 0 },
            spaces: Spaces::default(),
            window,
            last: LineMap::with_capacity(1024),
            point: WorkingSetPoint::default(),
            points: Vec::new(),
        })
    }

    /// Distinct lines of the whole trace so far.
    #[must_use]
    pub const fn footprint(&self) -> usize {
        self.last.len()
    }

    /// The windows so far; the last one may be unfinished.
    #[must_use]
    pub fn points(&self) -> Vec<WorkingSetPoint> {
        let mut points = self.points.clone();
        let begun = self.points.last().map_or(0, |last| last.instructions);
        if self.point.instructions > begun || self.point.references > 0 {
            points.push(self.point);
        }
        points
    }

    fn end_window(&mut self) {
        let instructions = self.point.instructions;
        self.points.push(self.point);
        self.point = WorkingSetPoint { instructions, ..WorkingSetPoint::default() };
    }

    fn touch(&mut self, line: u64) {
        // Windows are numbered modulo 2^32 - 1: the map keeps one value free.
        let window = (self.points.len() % (u32::MAX as usize)) as u32;
        self.point.references += 1;
        match self.last.insert(line, window) {
            None => {
                self.point.lines += 1;
                self.point.new_lines += 1;
            }
            Some(before) => self.point.lines += u64::from(before != window),
        }
    }
}

impl Sink for WorkingSet {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let lines = Lines { space: self.spaces.of(batch.thread), ..self.lines };
        for record in batch.records {
            if let Record::Insn { .. } = record {
                let begun = self.points.last().map_or(0, |last| last.instructions);
                if self.point.instructions - begun == self.window {
                    self.end_window();
                }
                self.point.instructions += 1;
            }
            lines.each(std::slice::from_ref(record), |_, line| self.touch(line.0));
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.spaces.event(thread, event);
        Ok(true)
    }
}
