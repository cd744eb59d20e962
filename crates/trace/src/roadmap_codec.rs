//! Roadmap blocks as bytes and back. A roadmap chunk is self-contained: a block
//! may repeat a stretch of an earlier block of the same chunk, never of another,
//! so a lost roadmap chunk takes no other with it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    AccessFlags, Address, BlockId, ExitKind, GuestVa, InsnKind, ProcessId, Ref, RefKind, Register,
    Slot, Step, Sum, Value, Width,
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

/// Gathers the blocks of one roadmap chunk.
#[derive(Debug, Default)]
pub(crate) struct RoadmapEncoder {
    first: u32,
    count: u32,
    unfolded: usize,
    body: Vec<u8>,
    code: Vec<u8>,
    last: Last,
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
        self.count == 0
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
        RoadmapColumns { first: done.first, count: done.count, columns: [done.body, done.code] }
    }
}

/// What a roadmap chunk holds.
#[derive(Debug)]
pub(crate) struct RoadmapColumns {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) columns: [Vec<u8>; 2],
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

/// Reads the blocks of one roadmap chunk into `roadmap`.
pub(crate) fn read_blocks(
    roadmap: &mut Roadmap,
    (first, count): (u32, u32),
    body: &[u8],
    code: &[u8],
) -> Parse<()> {
    let before = roadmap.len();
    let done = roadmap.skip_to(first).and_then(|()| read_all(roadmap, (first, count), body, code));
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
) -> Parse<()> {
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
    code.end()
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
    let mut block = Block {
        process: ProcessId(last.process),
        entry: GuestVa(last.pc),
        exits: if flags & 1 != 0 { Exits::Side } else { Exits::Last },
        steps: Vec::with_capacity(count),
        code: Vec::new(),
    };
    while block.steps.len() < count {
        let tag = body.u8()?;
        if tag == COPY {
            repeat_steps(roadmap, first, body, &mut block)?;
            continue;
        }
        let step = read_step(body, tag, last)?;
        if flags & 2 != 0 {
            block.code.extend_from_slice(code.take(step.insn_len())?);
        }
        block.steps.push(step);
    }
    if block.steps.len() != count {
        return Err(Flaw("a block repeats more steps than it has"));
    }
    Ok(block)
}

fn repeat_steps(
    roadmap: &Roadmap,
    first: u32,
    body: &mut Cursor<'_>,
    block: &mut Block,
) -> Parse<()> {
    const FLAW: Flaw = Flaw("a block repeats steps that do not exist");
    let back = body.u32()?;
    let from = (roadmap.len() as u32).checked_sub(back).filter(|f| *f >= first).ok_or(FLAW)?;
    let step = body.varint()? as usize;
    let len = body.varint()? as usize;
    let old = &roadmap.get(BlockId(from)).ok_or(FLAW)?.block;
    let end = step.checked_add(len).ok_or(FLAW)?;
    let steps = old.steps.get(step..end).ok_or(FLAW)?;
    if len == 0 || block.steps.len() + len > MAX_STEPS {
        return Err(FLAW);
    }
    let at = code_len(&old.steps[..step]);
    block.steps.extend_from_slice(steps);
    if !old.code.is_empty() {
        block.code.extend_from_slice(old.code.get(at..at + code_len(steps)).ok_or(FLAW)?);
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
