//! The place where two traces first differ, with both sides in context.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;

use ichnos_base::{Batch, DriveError, Event, Record, Sink, Source, ThreadId};

use super::error::Error;
use super::fingerprint::{Depth, Fingerprint, STRETCH};
use super::pairing::{Paired, Pairing, pair};

/// Items shown before and after a difference.
const CONTEXT: u64 = 8;

/// One thing in a thread's stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record, with its value where values are compared.
    Record(Record, Vec<u8>),
    /// An event, as words.
    Event(String),
}

/// Where one thread of each trace first differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The first trace's thread.
    pub a: ThreadId,
    /// The second trace's thread.
    pub b: ThreadId,
    /// How many compared items precede the difference.
    pub item: u64,
    /// How many instructions of the thread precede the difference.
    pub insn: u64,
    /// The last items that are equal.
    pub before: Vec<Item>,
    /// How the first trace goes on; nothing if it ends here.
    pub in_a: Vec<Item>,
    /// How the second trace goes on; nothing if it ends here.
    pub in_b: Vec<Item>,
}

/// The differences of two traces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparison {
    /// One for each pair of threads that are not equal.
    pub differences: Vec<Difference>,
    /// Which threads were compared, and which had no partner.
    pub paired: Paired,
}

impl Comparison {
    /// Whether the traces are equal in what was compared.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let Paired { only_a, only_b, .. } = &self.paired;
        self.differences.is_empty() && only_a.is_empty() && only_b.is_empty()
    }
}

/// Where two traces first differ, thread by thread. Each source is driven twice
/// and must tell the same both times, as files do.
pub fn first_difference<A: Source, B: Source>(
    a: &mut A,
    b: &mut B,
    depth: Depth,
    pairing: &Pairing,
) -> Result<Comparison, Error<A::Error, B::Error>> {
    let print_a = told(a, Fingerprint::new(depth)).map_err(Error::First)?;
    let print_b = told(b, Fingerprint::new(depth)).map_err(Error::Second)?;
    let paired = pair(&print_a.lengths(), &print_b.lengths(), pairing);
    let differing = paired.pairs.iter().filter_map(|&(x, y)| {
        let from = print_a.print(x).differs_from(&print_b.print(y))?;
        Some((x, y, from))
    });
    let differing: Vec<_> = differing.collect();
    if differing.is_empty() {
        return Ok(Comparison { paired, ..Comparison::default() });
    }
    let excerpt_a = Excerpt::new(depth, differing.iter().map(|&(x, _, from)| (x, from)));
    let excerpt_b = Excerpt::new(depth, differing.iter().map(|&(_, y, from)| (y, from)));
    let excerpt_a = told(a, excerpt_a).map_err(Error::First)?;
    let excerpt_b = told(b, excerpt_b).map_err(Error::Second)?;
    let found = differing.iter().filter_map(|&(x, y, _)| {
        Some(compare((x, excerpt_a.parts.get(&x)?), (y, excerpt_b.parts.get(&y)?)))
    });
    Ok(Comparison { differences: found.collect(), paired })
}

/// Drives a source into a sink that cannot fail.
fn told<F: Source, T: Sink<Error = Infallible>>(
    source: &mut F,
    mut sink: T,
) -> Result<T, F::Error> {
    match source.drive(&mut sink) {
        Ok(()) => Ok(sink),
        Err(DriveError::Source(error)) => Err(error),
        Err(DriveError::Sink(never)) => match never {},
    }
}

/// Keeps one stretch of some threads, with context.
struct Excerpt {
    depth: Depth,
    parts: BTreeMap<ThreadId, Part>,
}

struct Part {
    range: Range<u64>,
    seen: u64,
    /// Instructions before the first kept item.
    insns_before: u64,
    items: Vec<Item>,
}

impl Excerpt {
    fn new(depth: Depth, stretches: impl Iterator<Item = (ThreadId, u64)>) -> Self {
        let part = |from: u64| Part {
            range: from.saturating_sub(CONTEXT)..from + STRETCH + CONTEXT,
            seen: 0,
            insns_before: 0,
            items: Vec::new(),
        };
        Self { depth, parts: stretches.map(|(thread, from)| (thread, part(from))).collect() }
    }
}

impl Part {
    fn take(&mut self, item: impl FnOnce() -> Item, insns: u64) {
        if self.range.contains(&self.seen) {
            self.items.push(item());
        } else if self.seen < self.range.start {
            self.insns_before += insns;
        }
        self.seen += 1;
    }
}

impl Sink for Excerpt {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let Some(part) = self.parts.get_mut(&batch.thread) else { return Ok(true) };
        let mut values = match (self.depth, batch.values) {
            (Depth::Values, Some(values)) => values,
            _ => &[],
        };
        for record in batch.records.iter().filter(|r| self.depth.takes(r)) {
            let (mine, rest) = values.split_at(record.value_len().min(values.len()));
            values = rest;
            let insns = u64::from(matches!(record, Record::Insn { .. }));
            part.take(|| Item::Record(*record, mine.to_vec()), insns);
        }
        Ok(self.parts.values().any(|part| part.seen < part.range.end))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if let Some(part) = self.parts.get_mut(&thread)
            && let Some(text) = self.depth.event(event)
        {
            part.take(|| Item::Event(text), 0);
        }
        Ok(true)
    }
}

fn compare((a, part_a): (ThreadId, &Part), (b, part_b): (ThreadId, &Part)) -> Difference {
    let equal = part_a.items.iter().zip(&part_b.items).take_while(|(x, y)| x == y).count();
    let is_insn = |item: &&Item| matches!(item, Item::Record(Record::Insn { .. }, _));
    let insns = part_a.items[..equal].iter().filter(is_insn).count() as u64;
    let context = CONTEXT as usize;
    let after = |items: &[Item]| items[equal..items.len().min(equal + context)].to_vec();
    Difference {
        a,
        b,
        item: part_a.range.start + equal as u64,
        insn: part_a.insns_before + insns,
        before: part_a.items[equal.saturating_sub(context)..equal].to_vec(),
        in_a: after(&part_a.items),
        in_b: after(&part_b.items),
    }
}
