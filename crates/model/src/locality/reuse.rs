//! The exact reuse-distance histogram: for each reference, how many distinct
//! other lines were referenced since the last reference to the same line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{About, Batch, Blocks, Event, LineAddr, Sink, ThreadId};

use super::curve::MissRatioCurve;
use super::references::{Lines, References};
use super::stack::Stack;
use crate::Error;
use crate::error::{power_of_two, range};
use crate::outline::Outlines;
use crate::spaces::Spaces;

/// A histogram of distances.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReuseHistogram {
    /// Bytes per line.
    pub line: u32,
    /// References at each distance: `distances[d]` of them had exactly `d`
    /// distinct other lines between.
    pub distances: Vec<u64>,
    /// References to lines not referenced before: the footprint in lines.
    pub first: u64,
}

impl ReuseHistogram {
    /// All references.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.first + self.distances.iter().sum::<u64>()
    }

    /// The misses of a fully associative LRU cache of so many lines.
    #[must_use]
    pub fn misses(&self, lines: u64) -> u64 {
        let from = usize::try_from(lines).unwrap_or(usize::MAX).min(self.distances.len());
        self.first + self.distances.iter().skip(from).sum::<u64>()
    }

    /// The miss ratios of all sizes.
    #[must_use]
    pub fn curve(&self) -> MissRatioCurve {
        let weights = self.distances.iter().enumerate().map(|(d, &n)| (d as u64, n as f64));
        MissRatioCurve::from_histogram(weights, self.first as f64)
    }
}

/// Measures every reuse distance. Memory is bounded by the footprint.
#[derive(Debug)]
pub struct ReuseDistance {
    lines: Lines,
    spaces: Spaces,
    stack: Stack,
    last: Option<LineAddr>,
    histogram: ReuseHistogram,
    outlines: Outlines,
}

impl ReuseDistance {
    /// In lines of `line` bytes, a power of two of 1 to 1 GiB.
    ///
    /// # Errors
    ///
    /// If `line` is not.
    pub fn new(line: u32, references: References) -> Result<Self, Error> {
        range("line", u64::from(line), 1, 1 << 30)?;
        power_of_two("line", u64::from(line))?;
        Ok(Self {
            lines: Lines { references, shift: line.trailing_zeros(), space: 0 },
            spaces: Spaces::default(),
            stack: Stack::new(),
            last: None,
            histogram: ReuseHistogram { line, distances: vec![0; 64], first: 0 },
            outlines: Outlines::default(),
        })
    }

    /// Takes one reference.
    #[inline]
    pub fn reference(&mut self, line: LineAddr) {
        if self.last == Some(line) {
            self.histogram.distances[0] += 1;
            return;
        }
        self.last = Some(line);
        match self.stack.reference(line.0) {
            None => self.histogram.first += 1,
            Some(distance) => {
                if distance >= self.histogram.distances.len() {
                    self.histogram.distances.resize((distance + 1).next_power_of_two(), 0);
                }
                self.histogram.distances[distance] += 1;
            }
        }
    }

    /// Distinct lines so far.
    #[must_use]
    pub const fn footprint(&self) -> usize {
        self.stack.lines()
    }

    /// The histogram so far, without empty distances at its end.
    #[must_use]
    pub fn histogram(&self) -> ReuseHistogram {
        let mut histogram = self.histogram.clone();
        let used = histogram.distances.iter().rposition(|&n| n != 0).map_or(0, |at| at + 1);
        histogram.distances.truncate(used);
        histogram
    }
}

impl Sink for ReuseDistance {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let space = self.spaces.of(batch.thread);
        let lines = Lines { space, ..self.lines };
        lines.each(batch.records, |_, line| self.reference(line));
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        self.lines.by_blocks()
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        let lines = Lines { space: self.spaces.of(blocks.thread), ..self.lines };
        let mut outlines = std::mem::take(&mut self.outlines);
        lines.each_of_blocks(blocks, &mut outlines, |_, line| self.reference(line));
        self.outlines = outlines;
        Ok(true)
    }

    fn begin(&mut self, _: &About<'_>) -> Result<bool, Infallible> {
        self.outlines.forget();
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.spaces.event(thread, event);
        Ok(true)
    }
}
