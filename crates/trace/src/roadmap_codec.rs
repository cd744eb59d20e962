//! Roadmap blocks and chains as bytes and back. A roadmap chunk is self-contained: a block
//! may repeat a stretch of an earlier block of the same chunk, never of another, and a chain begin like the one
//! before it. So a lost roadmap chunk takes no other with it, but for chains of its blocks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    AccessFlags, Address, BlockId, Chain, ExitKind, GuestVa, InsnKind, ProcessId, Ref, RefKind,
    Register, Slot, Step, Sum, Value, Width,
};

use crate::block::{Block, Exits, MAX_STEPS};
use crate::bytes::{Cursor, Parse, put_signed, put_varint};
use crate::error::Flaw;
use crate::roadmap::Roadmap;

const INSN: u8 = 0;
const TAKE4: u8 = 1;
const TAKE8: u8 = 2;
const DERIVE: u8 = 3;
const FORGET: u8 = 4;
const REF_WORD: u8 = 5;
const REF_SUM: u8 = 6;
const FLEX: u8 = 7;
const EXIT: u8 = 8;
const COPY: u8 = 9;
/// Plain instructions of up to 15 bytes: the length is `tag - SHORT`.
const SHORT: u8 = 16;

/// The most code and steps that one roadmap chunk may unfold to, in units of one
/// step or one byte of code. Bounds what a hostile chunk of repeats can demand.
pub(crate) const MAX_UNFOLDED: usize = 1 << 24;

/// How many columns a roadmap chunk has.
pub(crate) const ROADMAP_COLUMNS: usize = 3;

/// Gathers the blocks and chains of one roadmap chunk.
#[derive(Debug, Default)]
pub(crate) struct RoadmapEncoder {
    first: u32,
    count: u32,
    unfolded: usize,
    body: Vec<u8>,
    code: Vec<u8>,
    last: Last,
    first_chain: u32,
    chain_count: u32,
    chains: Vec<u8>,
    /// The blocks of the chain before.
    last_chain: Vec<BlockId>,
}

/// What deltas refer to.
#[derive(Debug, Default, Clone, Copy)]
struct Last {
    pc: u64,
    process: u32,
    slot: u32,
}

/// Where in the same chunk an instruction's steps already stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) block: u32,
    pub(crate) step: u32,
}

impl RoadmapEncoder {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.chain_count == 0
    }

    /// How much the chunk unfolds to so far; see [`MAX_UNFOLDED`].
    pub(crate) const fn unfolded(&self) -> usize {
        self.unfolded
    }

    /// Adds a block. `seen` says for a step that begins an instruction where the same
    /// instruction may already stand; a wrong hint costs nothing but a look.
    pub(crate) fn add(
        &mut self,
        roadmap: &Roadmap,
        block: &Block,
        seen: impl Fn(usize) -> Option<Seen>,
    ) {
        put_varint(&mut self.body, u64::from(block.process.0 ^ self.last.process));
        self.last.process = block.process.0;
        put_signed(&mut self.body, block.entry.0.wrapping_sub(self.last.pc) as i64);
        self.last.pc = block.entry.0;
        let flags = u8::from(block.exits == Exits::Side) | (u8::from(!block.code.is_empty()) << 1);
        self.body.push(flags);
        put_varint(&mut self.body, block.steps.len() as u64);
        let mut i = 0;
        let mut at = 0;
        while let Some(step) = block.steps.get(i) {
            if let Some((from, len)) = self.repeat(roadmap, block, (i, at), seen(i)) {
                self.body.push(COPY);
                put_varint(&mut self.body, u64::from(self.first + self.count - from.block));
                put_varint(&mut self.body, u64::from(from.step));
                put_varint(&mut self.body, len as u64);
                at += code_len(&block.steps[i..i + len]);
                i += len;
                continue;
            }
            put_step(&mut self.body, step, &mut self.last, block.entry.0);
            let end = at + step.insn_len();
            if !block.code.is_empty() {
                self.code.extend_from_slice(block.code.get(at..end).unwrap_or_default());
            }
            at = end;
            i += 1;
        }
        self.unfolded += block.steps.len() + block.code.len();
        self.count += 1;
    }

    /// Adds a chain of blocks that are in this chunk or before it.
    pub(crate) fn add_chain(&mut self, blocks: &[BlockId]) {
        if self.chain_count == 0 {
            put_varint(&mut self.chains, u64::from(self.first_chain));
        }
        let shared = self.last_chain.iter().zip(blocks).take_while(|(a, b)| a == b).count();
        self.last_chain.truncate(shared);
        put_varint(&mut self.chains, shared as u64);
        put_varint(&mut self.chains, (blocks.len() - shared) as u64);
        for id in &blocks[shared..] {
            let before = self.last_chain.last().map_or(0, |before| before.0);
            put_signed(&mut self.chains, i64::from(id.0) - i64::from(before));
            self.last_chain.push(*id);
        }
        self.unfolded += blocks.len();
        self.chain_count += 1;
    }

    /// How far the steps from `i` on, whose code begins at `at`, repeat what stands
    /// at `seen`.
    fn repeat(
        &self,
        roadmap: &Roadmap,
        block: &Block,
        (i, at): (usize, usize),
        seen: Option<Seen>,
    ) -> Option<(Seen, usize)> {
        let seen = seen.filter(|s| s.block >= self.first)?;
        let old = &roadmap.get(BlockId(seen.block))?.block;
        let steps = old.steps.get(seen.step as usize..)?;
        let len = steps.iter().zip(&block.steps[i..]).take_while(|(a, b)| a == b).count();
        let bytes = code_len(&steps[..len]);
        let old_at = code_len(&old.steps[..seen.step as usize]);
        let same = old.code.is_empty() == block.code.is_empty()
            && old.code.get(old_at..old_at + bytes) == block.code.get(at..at + bytes);
        (len >= 2 && same).then_some((seen, len))
    }

    /// The chunk's columns; the encoder starts over for the next chunk.
    pub(crate) fn finish(&mut self) -> RoadmapColumns {
        let done = std::mem::take(self);
        self.first = done.first + done.count;
        self.first_chain = done.first_chain + done.chain_count;
        let columns = [done.body, done.code, done.chains];
        RoadmapColumns { first: done.first, count: done.count, columns }
    }
}

/// What a roadmap chunk holds.
#[derive(Debug)]
pub(crate) struct RoadmapColumns {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) columns: [Vec<u8>; ROADMAP_COLUMNS],
}

fn code_len(steps: &[Step]) -> usize {
    steps.iter().map(Step::insn_len).sum()
}

fn put_step(out: &mut Vec<u8>, step: &Step, last: &mut Last, entry: u64) {
    let mut slot_delta = |out: &mut Vec<u8>, slot: Slot| {
        put_signed(out, i64::from(slot.0) - i64::from(last.slot));
        last.slot = slot.0.wrapping_add(1);
    };
    match *step {
        Step::Insn { len, kind: InsnKind::OTHER } if len < 16 => out.push(SHORT + len),
        Step::Insn { len, kind } => out.extend_from_slice(&[INSN, len, kind.0]),
        Step::Take { register, width, slot } => {
            let tag = if width == Width::Four { TAKE4 } else { TAKE8 };
            out.extend_from_slice(&[tag, register.0]);
            slot_delta(out, slot);
        }
        Step::Derive { register, value } => {
            out.extend_from_slice(&[DERIVE, register.0]);
            put_value(out, value);
        }
        Step::Forget { register } => out.extend_from_slice(&[FORGET, register.0]),
        Step::Ref(Ref { kind, flags, size, address }) => {
            let tag = if matches!(address, Address::Word(_)) { REF_WORD } else { REF_SUM };
            out.extend_from_slice(&[tag, kind.code(), flags.0]);
            put_varint(out, u64::from(size));
            match address {
                Address::Word(slot) => slot_delta(out, slot),
                Address::Known(sum) => put_sum(out, sum),
            }
        }
        Step::Flex { slot } => {
            out.push(FLEX);
            slot_delta(out, slot);
        }
        Step::Exit { kind, target } => {
            out.extend_from_slice(&[EXIT, kind as u8]);
            if kind != ExitKind::Indirect {
                put_signed(out, target.0.wrapping_sub(entry) as i64);
            }
        }
    }
}

fn put_sum(out: &mut Vec<u8>, sum: Sum) {
    out.push(sum.base.map_or(0, |r| r.0 + 1));
    out.push(sum.index.map_or(0, |(r, _)| r.0 + 1));
    if let Some((_, scale)) = sum.index {
        out.push(scale);
    }
    put_signed(out, sum.disp);
}

fn put_value(out: &mut Vec<u8>, value: Value) {
    match value {
        Value::Sum(sum) => {
            out.push(0);
            put_sum(out, sum);
        }
        Value::Difference(a, b) => out.extend_from_slice(&[1, a.0, b.0]),
        Value::And(r, mask) => {
            out.extend_from_slice(&[2, r.0]);
            put_varint(out, mask);
        }
        Value::ShiftLeft(r, n) => out.extend_from_slice(&[3, r.0, n]),
        Value::ShiftRight(r, n) => out.extend_from_slice(&[4, r.0, n]),
        Value::ShiftRightSigned(r, n) => out.extend_from_slice(&[5, r.0, n]),
        Value::Low32(r) => out.extend_from_slice(&[6, r.0]),
        Value::Low32Signed(r) => out.extend_from_slice(&[7, r.0]),
    }
}

/// Reads the blocks and chains of one roadmap chunk into `roadmap`.
pub(crate) fn read_roadmap(
    roadmap: &mut Roadmap,
    (first, count): (u32, u32),
    columns: &[Vec<u8>; ROADMAP_COLUMNS],
) -> Parse<()> {
    let before = roadmap.extent();
    let [body, code, chains] = columns;
    let blocks =
        roadmap.skip_to(first).and_then(|()| read_all(roadmap, (first, count), body, code));
    let done = blocks.and_then(|budget| read_chains(roadmap, chains, budget));
    if done.is_err() {
        // A chunk is known as a whole or not at all.
        roadmap.truncate(before);
    }
    done
}

fn read_all(
    roadmap: &mut Roadmap,
    (first, count): (u32, u32),
    body: &[u8],
    code: &[u8],
) -> Parse<usize> {
    let mut body = Cursor::new(body);
    let mut code = Cursor::new(code);
    let mut last = Last::default();
    let mut budget = MAX_UNFOLDED;
    for _ in 0..count {
        let block = read_block(roadmap, first, &mut body, (&mut code, &mut last))?;
        budget = budget
            .checked_sub(block.steps.len() + block.code.len())
            .ok_or(Flaw("its blocks unfold to too much"))?;
        roadmap.push(block)?;
    }
    body.end()?;
    code.end()?;
    Ok(budget)
}

/// Reads the chains of a chunk, which may unfold to so much.
fn read_chains(roadmap: &mut Roadmap, chains: &[u8], mut budget: usize) -> Parse<()> {
    if chains.is_empty() {
        return Ok(());
    }
    let mut from = Cursor::new(chains);
    roadmap.skip_chains_to(from.u32()?)?;
    let mut blocks: Vec<BlockId> = Vec::new();
    while from.left() > 0 {
        let (shared, more) = (from.varint()?, from.varint()?);
        if shared > blocks.len() as u64 {
            return Err(Flaw("a chain begins like none before it"));
        }
        if shared.saturating_add(more) > Chain::MOST_BLOCKS as u64 {
            return Err(Flaw("a chain has too few blocks, or too many"));
        }
        blocks.truncate(shared as usize);
        for _ in 0..more {
            let before = blocks.last().map_or(0, |before| before.0);
            let id = i64::from(before).checked_add(from.signed()?);
            let id = id.and_then(|id| u32::try_from(id).ok());
            blocks.push(BlockId(id.ok_or(Flaw("a chain has a block that does not exist"))?));
        }
        let too_much = Flaw("its chains unfold to too much");
        budget = budget.checked_sub(blocks.len()).ok_or(too_much)?;
        roadmap.push_chain(&blocks)?;
    }
    Ok(())
}

fn read_block(
    roadmap: &Roadmap,
    first: u32,
    body: &mut Cursor<'_>,
    (code, last): (&mut Cursor<'_>, &mut Last),
) -> Parse<Block> {
    last.process ^= body.u32()?;
    last.pc = last.pc.wrapping_add(body.signed()? as u64);
    let flags = body.u8()?;
    if flags > 3 {
        return Err(Flaw("a block has unknown flags"));
    }
    let count = body.varint()? as usize;
    if count > MAX_STEPS {
        return Err(Flaw("a block has too many steps"));
    }
    let (mut steps, mut bytes) = (Vec::with_capacity(count), Vec::new());
    while steps.len() < count {
        let tag = body.u8()?;
        if tag == COPY {
            repeat_steps(roadmap, first, body, (&mut steps, &mut bytes))?;
            continue;
        }
        let step = read_step(body, tag, last)?;
        if flags & 2 != 0 {
            bytes.extend_from_slice(code.take(step.insn_len())?);
        }
        steps.push(step);
    }
    if steps.len() != count {
        return Err(Flaw("a block repeats more steps than it has"));
    }
    Ok(Block {
        process: ProcessId(last.process),
        entry: GuestVa(last.pc),
        exits: if flags & 1 != 0 { Exits::Side } else { Exits::Last },
        steps: steps.into(),
        code: bytes.into(),
    })
}

fn repeat_steps(
    roadmap: &Roadmap,
    first: u32,
    body: &mut Cursor<'_>,
    (own, code): (&mut Vec<Step>, &mut Vec<u8>),
) -> Parse<()> {
    const FLAW: Flaw = Flaw("a block repeats steps that do not exist");
    let back = body.u32()?;
    let from = (roadmap.len() as u32).checked_sub(back).filter(|f| *f >= first).ok_or(FLAW)?;
    let step = body.varint()? as usize;
    let len = body.varint()? as usize;
    let old = &roadmap.get(BlockId(from)).ok_or(FLAW)?.block;
    let end = step.checked_add(len).ok_or(FLAW)?;
    let steps = old.steps.get(step..end).ok_or(FLAW)?;
    if len == 0 || own.len() + len > MAX_STEPS {
        return Err(FLAW);
    }
    let at = code_len(&old.steps[..step]);
    own.extend_from_slice(steps);
    if !old.code.is_empty() {
        code.extend_from_slice(old.code.get(at..at + code_len(steps)).ok_or(FLAW)?);
    }
    Ok(())
}

fn read_step(body: &mut Cursor<'_>, tag: u8, last: &mut Last) -> Parse<Step> {
    let entry = last.pc;
    let mut slot = |body: &mut Cursor<'_>| -> Parse<Slot> {
        let slot = i64::from(last.slot).checked_add(body.signed()?);
        let slot =
            slot.and_then(|s| u32::try_from(s).ok()).ok_or(Flaw("a slot is out of range"))?;
        last.slot = slot.wrapping_add(1);
        Ok(Slot(slot))
    };
    Ok(match tag {
        INSN => Step::Insn { len: body.u8()?, kind: InsnKind(body.u8()?) },
        TAKE4 | TAKE8 => {
            let width = if tag == TAKE4 { Width::Four } else { Width::Eight };
            Step::Take { register: Register(body.u8()?), width, slot: slot(body)? }
        }
        DERIVE => Step::Derive { register: Register(body.u8()?), value: read_value(body)? },
        FORGET => Step::Forget { register: Register(body.u8()?) },
        REF_WORD | REF_SUM => {
            let kind = RefKind::from_code(body.u8()?).ok_or(Flaw("a reference is of no kind"))?;
            let flags = AccessFlags(body.u8()?);
            let size = body.u32()?;
            let address = if tag == REF_WORD {
                Address::Word(slot(body)?)
            } else {
                Address::Known(read_sum(body)?)
            };
            Step::Ref(Ref { kind, flags, size, address })
        }
        FLEX => Step::Flex { slot: slot(body)? },
        EXIT => match body.u8()? {
            2 => Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) },
            kind @ 0..=1 => {
                let target = GuestVa(entry.wrapping_add(body.signed()? as u64));
                let kind = if kind == 0 { ExitKind::Direct } else { ExitKind::Conditional };
                Step::Exit { kind, target }
            }
            _ => return Err(Flaw("an exit is of no kind")),
        },
        SHORT..=31 => Step::Insn { len: tag - SHORT, kind: InsnKind::OTHER },
        _ => return Err(Flaw("a step is of no kind")),
    })
}

fn read_sum(body: &mut Cursor<'_>) -> Parse<Sum> {
    let base = body.u8()?.checked_sub(1).map(Register);
    let index = match body.u8()?.checked_sub(1) {
        Some(register) => Some((Register(register), body.u8()?)),
        None => None,
    };
    Ok(Sum { base, index, disp: body.signed()? })
}

fn read_value(body: &mut Cursor<'_>) -> Parse<Value> {
    let tag = body.u8()?;
    if tag == 0 {
        return Ok(Value::Sum(read_sum(body)?));
    }
    let register = Register(body.u8()?);
    Ok(match tag {
        1 => Value::Difference(register, Register(body.u8()?)),
        2 => Value::And(register, body.varint()?),
        3 => Value::ShiftLeft(register, body.u8()?),
        4 => Value::ShiftRight(register, body.u8()?),
        5 => Value::ShiftRightSigned(register, body.u8()?),
        6 => Value::Low32(register),
        7 => Value::Low32Signed(register),
        _ => return Err(Flaw("an expression is of no kind")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight blocks of an instruction each, and the columns of these chains.
    fn encoded(chains: &[&[u32]]) -> [RoadmapColumns; 2] {
        let mut encoder = RoadmapEncoder::default();
        let roadmap = Roadmap::default();
        let steps = vec![Step::Insn { len: 1, kind: InsnKind::OTHER }];
        let (process, exits, code) = (ProcessId(0), Exits::Side, Vec::new());
        let (steps, code) = (steps.into(), code.into());
        let block = Block { process, entry: GuestVa(0), exits, steps, code };
        (0..8).for_each(|_| encoder.add(&roadmap, &block, |_| None));
        let (early, late) = chains.split_at(chains.len() / 2);
        early.iter().for_each(|chain| encoder.add_chain(&ids(chain)));
        let first = encoder.finish();
        late.iter().for_each(|chain| encoder.add_chain(&ids(chain)));
        assert!(!encoder.is_empty());
        [first, encoder.finish()]
    }

    fn ids(blocks: &[u32]) -> Vec<BlockId> {
        blocks.iter().copied().map(BlockId).collect()
    }

    fn read(roadmap: &mut Roadmap, from: &RoadmapColumns) -> Parse<()> {
        read_roadmap(roadmap, (from.first, from.count), &from.columns)
    }

    #[test]
    fn chains_come_back() {
        let long: Vec<u32> = (0..63).map(|i| i * 5 % 8).collect();
        let told: [&[u32]; 8] =
            [&[0, 1], &[0, 1, 7], &[0, 1, 7, 7], &[0, 1], &[0, 1], &[3, 2, 3, 2], &long, &[0, 1]];
        let [first, second] = encoded(&told);
        let mut roadmap = Roadmap::default();
        read(&mut roadmap, &first).unwrap();
        assert_eq!(roadmap.chains(), 4);
        read(&mut roadmap, &second).unwrap();
        for (number, blocks) in told.iter().enumerate() {
            assert_eq!(roadmap.chain(number as u32).map(|chain| chain.0), Some(&*ids(blocks)));
        }
        // One that begins like the one before it takes three bytes, with the number of the first.
        assert!(first.columns[2].len() < 4 * 5, "{:?}", first.columns[2]);
        // Without the first chunk its chains are lost, and so are those of its blocks.
        let mut roadmap = Roadmap::default();
        read(&mut roadmap, &second).unwrap();
        assert_eq!((roadmap.len(), roadmap.chains()), (8, 8));
        assert!((0..8).all(|number| roadmap.chain(number).is_none()));
    }

    #[test]
    fn damaged_chains_are_refused_and_leave_nothing() {
        let [first, _] = encoded(&[&[0, 1], &[0, 1, 2], &[5, 5], &[6, 7]]);
        let mut refused = 0;
        let mut hostile = |chains: Vec<u8>| {
            let [body, code, _] = first.columns.clone();
            let mut roadmap = Roadmap::default();
            let done = read_roadmap(&mut roadmap, (0, 8), &[body, code, chains]);
            if done.is_err() {
                refused += 1;
                assert_eq!((roadmap.len(), roadmap.chains()), (0, 0));
            }
            done.is_ok()
        };
        let good = &first.columns[2];
        assert!(hostile(good.clone()));
        for len in 1..good.len() {
            hostile(good[..len].to_vec());
        }
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[at] = value;
                hostile(bad);
            }
        }
        let mut number = |numbers: &[u64]| {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|n| put_varint(&mut bytes, *n));
            hostile(bytes)
        };
        let first = u64::from(crate::chain::MAX_CHAINS);
        assert!(!number(&[first + 1]) && !number(&[u64::MAX]));
        assert!(!number(&[0, 0, u64::MAX]) && !number(&[0, u64::MAX, 2]));
        assert!(!number(&[0, 0, 64]) && !number(&[0, 1, 2, 0, 0]));
        assert!(!number(&[0, 0, 2, u64::MAX, 0]) && !number(&[0, 0, 2, 0, u64::MAX - 1]));
        assert!(number(&[1000, 0, 2, 0, 0]));
        // The same chain again and again takes three bytes, but unfolds to its length.
        let mut chains = vec![0, 0, 63];
        chains.extend([0; 63]);
        (0..MAX_UNFOLDED / 63).for_each(|_| chains.extend([63, 0]));
        assert!(!hostile(chains));
        assert!(refused > 100);
    }
}
