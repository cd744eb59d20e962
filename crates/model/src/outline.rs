//! What a model keeps of the blocks of a program, so that it need not look at every
//! record of every execution ([`Sink::blocks`](ichnos_base::Sink::blocks)).
//!
//! An outline lists the references of one execution that a model must look at, in order.
//! Left out are *quiet* fetches: those that lie in the line of the fetch before,
//! which some models only count. A flush between the two ends the quiet.
//!
//! A model whose fetches concern nobody else while they hit looks at the lines of a block's fetches first, and then at
//! what is no fetch ([`Outlines::seen`]).
//! Memory grows with the program's code, by 16 bytes a fetch and 32 an access.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, GuestVa, Record, Shapes};

/// One reference of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// The instruction.
    pub(crate) pc: GuestVa,
    /// Bytes of the instruction, or of the access.
    pub(crate) size: u32,
    /// What it does.
    pub(crate) what: What,
    /// How far behind the instruction's first byte a fetch begins.
    pub(crate) skip: u8,
}

/// What a reference does. All but fetches take their address from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Fetch,
    Load,
    Store,
    Prefetch,
    Flush,
}

/// One block, in one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub(crate) struct Outline {
    /// Its instructions.
    pub(crate) insns: u32,
    /// The fetches among them that are not listed.
    pub(crate) quiet: u32,
    /// The fetches that are listed.
    pub(crate) fetches: u32,
    /// Its loads and stores.
    pub(crate) loads: u32,
    pub(crate) stores: u32,
    /// All references begin at `start`, those that are no fetches at `others`.
    start: u32,
    others: u32,
    end: u32,
    /// Whether it has neither prefetches nor flushes, and each listed fetch lies in one line.
    pub(crate) plain: bool,
    /// The lines of the first two listed fetches.
    pub(crate) lines: [u64; 2],
}

const UNKNOWN: Outline = Outline {
    insns: u32::MAX,
    quiet: 0,
    fetches: 0,
    loads: 0,
    stores: 0,
    start: 0,
    others: 0,
    end: 0,
    plain: false,
    lines: [0; 2],
};

/// Which fetches are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fetches {
    /// None.
    #[default]
    Omitted,
    /// All but quiet ones.
    Lines {
        /// Bytes of a line as a power of two.
        shift: u32,
        /// Whether a fetch across lines is one of each line, or one of the first alone.
        split: bool,
    },
}

/// All blocks seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outlines {
    fetches: Fetches,
    blocks: Vec<Outline>,
    steps: Vec<Step>,
}

impl Outlines {
    /// No blocks yet.
    pub(crate) const fn new(fetches: Fetches) -> Self {
        Self { fetches, blocks: Vec::new(), steps: Vec::new() }
    }

    /// Another trace begins: numbers get another meaning.
    pub(crate) fn forget(&mut self) {
        self.blocks.clear();
        self.steps.clear();
    }

    /// A block.
    #[inline]
    pub(crate) fn get(&mut self, id: BlockId, shapes: &dyn Shapes) -> Outline {
        match self.blocks.get(id.index()) {
            Some(outline) if outline.insns != UNKNOWN.insns => *outline,
            _ => self.add(id, shapes.records(id)),
        }
    }

    /// A block that was looked at before.
    #[inline(always)]
    pub(crate) fn seen(&self, id: BlockId) -> Option<&Outline> {
        self.blocks.get(id.index()).filter(|outline| outline.insns != UNKNOWN.insns)
    }

    /// The references of a block.
    #[inline]
    pub(crate) fn steps(&self, outline: &Outline) -> &[Step] {
        self.steps.get(outline.start as usize..outline.others as usize).unwrap_or_default()
    }

    /// The references of a block that are no fetches.
    #[inline]
    pub(crate) fn others(&self, outline: &Outline) -> &[Step] {
        // A block without fetches lists its references once.
        let from = if outline.fetches > 0 { outline.others } else { outline.start };
        self.steps.get(from as usize..outline.end as usize).unwrap_or_default()
    }

    #[cold]
    fn add(&mut self, id: BlockId, records: &[Record]) -> Outline {
        let start = self.steps.len() as u32;
        let mut outline = Outline { insns: 0, start, plain: true, ..UNKNOWN };
        let (mut at, mut line) = (GuestVa(0), None);
        for record in records {
            let (what, size) = match *record {
                Record::Insn { len, pc, .. } => {
                    at = pc;
                    outline.insns += 1;
                    line = self.add_fetch(&mut outline, pc, u32::from(len), line);
                    continue;
                }
                Record::Load { size, .. } => {
                    outline.loads += 1;
                    (What::Load, size)
                }
                Record::Store { size, .. } => {
                    outline.stores += 1;
                    (What::Store, size)
                }
                Record::Prefetch { size, .. } => {
                    outline.plain = false;
                    (What::Prefetch, size)
                }
                Record::Flush { size, .. } => {
                    outline.plain = false;
                    line = None;
                    (What::Flush, size)
                }
                Record::Branch { .. } => continue,
            };
            self.steps.push(Step { pc: at, size, what, skip: 0 });
        }
        outline.others = self.steps.len() as u32;
        for at in start as usize..self.steps.len() {
            if outline.fetches > 0 && self.steps[at].what != What::Fetch {
                self.steps.push(self.steps[at]);
            }
        }
        outline.end = self.steps.len() as u32;
        if self.blocks.len() <= id.index() {
            self.blocks.resize(id.index() + 1, UNKNOWN);
        }
        self.blocks[id.index()] = outline;
        outline
    }

    /// Lists a fetch unless it is quiet: in the line of the fetch before, which is given; gives
    /// the line of this one, if it is one.
    fn add_fetch(
        &mut self,
        outline: &mut Outline,
        pc: GuestVa,
        len: u32,
        before: Option<u64>,
    ) -> Option<u64> {
        let Fetches::Lines { shift, split } = self.fetches else {
            outline.quiet += 1;
            return None;
        };
        let last = pc.offset(u64::from(len.max(1)) - 1).0 >> shift;
        let one = pc.0 >> shift == last;
        if one && before == Some(last) {
            outline.quiet += 1;
            return before;
        }
        let mut skip = 0;
        while skip < len || skip == 0 {
            let at = pc.offset(u64::from(skip)).0;
            let room = (1 << shift) - (at & ((1 << shift) - 1));
            let size = if split { (len - skip).min(room as u32) } else { len };
            self.steps.push(Step { pc, size, what: What::Fetch, skip: skip as u8 });
            outline.plain &= u64::from(size) <= room;
            if let Some(place) = outline.lines.get_mut(outline.fetches as usize) {
                *place = at >> shift;
            }
            outline.fetches += 1;
            skip += size.max(1);
        }
        (one || split).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use ichnos_base::InsnKind;

    use super::*;

    struct One(Vec<Record>);

    impl Shapes for One {
        fn records(&self, _: BlockId) -> &[Record] {
            &self.0
        }
    }

    fn outlined(fetches: Fetches, records: Vec<Record>) -> (Outline, Vec<What>) {
        let mut outlines = Outlines::new(fetches);
        let shapes = One(records);
        let outline = outlines.get(BlockId(3), &shapes);
        assert_eq!(outlines.get(BlockId(3), &One(Vec::new())), outline, "it is looked at once");
        (outline, outlines.steps(&outline).iter().map(|step| step.what).collect())
    }

    #[test]
    fn quiet_fetches_are_left_out() {
        let insn = |pc, len| Record::insn(GuestVa(pc), len, InsnKind::OTHER);
        let load = Record::load(GuestVa(0), 8);
        let flush =
            Record::Flush { flags: ichnos_base::AccessFlags::NONE, size: 0, addr: GuestVa(0) };
        let records = vec![
            insn(0x10, 4),
            load,
            insn(0x14, 4),
            // Across the line's end, so not quiet, nor is the one behind it unless each line is fetched.
            insn(0x3e, 4),
            insn(0x42, 2),
            insn(0x44, 2),
            flush,
            insn(0x46, 2),
        ];
        let whole = Fetches::Lines { shift: 6, split: false };
        let (outline, steps) = outlined(whole, records.clone());
        assert_eq!((outline.insns, outline.quiet, outline.fetches), (6, 2, 4));
        let (f, l, x) = (What::Fetch, What::Load, What::Flush);
        assert_eq!(steps, [f, l, f, f, x, f]);
        let split = Fetches::Lines { shift: 6, split: true };
        let (outline, steps) = outlined(split, records.clone());
        assert_eq!((outline.insns, outline.quiet, outline.fetches), (6, 3, 4));
        assert_eq!(steps, [f, l, f, f, x, f]);
        let (outline, steps) = outlined(Fetches::Omitted, records);
        assert_eq!((outline.insns, outline.quiet, steps), (6, 6, vec![l, x]));
    }
}
