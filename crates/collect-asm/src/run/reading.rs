//! A context's words, one after the other: tags and blocks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{Event, GuestVa, Mode, Record, Sink};
use ichnos_rt::Context;

use super::collect::{BATCH, Lane, MANY, Result, Thread, Told, broken};
use super::images::Images;
use super::names::Names;
use super::raw::{Changed, is_planned};
use super::stream::{Done, Held, Played, Until, turns, turns_of};
use super::syncing::{Arguments, Results};
use super::table::{Extent, Tables};
use crate::RecordError;
use crate::code::{
    ANSWERED, ANSWERED_LEN, ASKED, ASKED_LEN, BACK, BACK_LEN, Block, CALLED, CALLED_LEN, ENTERED,
    ENTERED_LEN, Form, Kind, REFERENCE_LEN, RESUMED, RESUMED_LEN, RETURNED, RETURNED_LEN,
    SWITCHED_OFF, SWITCHED_OFF_LEN, SWITCHED_ON, SWITCHED_ON_LEN, TAG, kind_of_tag, turns_of_tag,
};
use crate::note::{u32_at, u64_at};

/// The number of the mark that tells that a sample has not the events that it should have.
const UNEVEN: u64 = 2;

/// Words being read.
pub(super) struct Reading<'a> {
    pub(super) images: &'a Images,
    pub(super) tables: &'a mut Tables,
    pub(super) names: &'a mut Names,
    pub(super) start: u64,
    /// The words, of which so many count.
    pub(super) bytes: &'a [u8],
    pub(super) len: usize,
    /// Whether its process never had but one thread: then nobody could wait for it.
    pub(super) alone: bool,
    /// The process's threads, by their handles.
    pub(super) handles: &'a HashMap<u64, u32>,
}

/// How far the reading is.
pub(super) struct Place {
    pub(super) thread: u32,
    at: usize,
    /// The block before, whose words lie in these bytes.
    held: Option<(usize, usize)>,
    /// The turns that it was told to have had.
    left: Option<usize>,
}

impl Place {
    /// The block that is held.
    pub(super) fn block(&self, of: &Lane) -> Option<usize> {
        self.held.map(|(number, _)| number).or_else(|| of.held.as_ref().map(|held| held.block))
    }
}

impl Reading<'_> {
    pub(super) fn all<S: Sink>(
        &mut self,
        thread: u32,
        state: &mut Thread,
        lane: Context,
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let Some(mut of) = state.lanes.remove(&lane) else { return Ok(()) };
        let left = of.held.as_ref().and_then(|h| h.left);
        let mut place = Place { thread, at: 0, held: None, left };
        while place.at + TAG <= self.len
            && let Some(tag) = u32_at(self.bytes, place.at)
        {
            if let Some(turns) = turns_of_tag(tag) {
                place.left = Some(turns);
                place.at += TAG;
            } else if kind_of_tag(tag).is_some() {
                self.references(&mut place, (state, &mut of), told)?;
            } else if tag >= ENTERED {
                place.at += self.event(tag, &mut place, (state, &mut of), told)?;
            } else {
                self.block(tag, &mut place, (state, &mut of), told)?;
                self.run(&mut place, (state, &mut of), told)?;
            }
        }
        if place.at > self.len {
            return Err(broken(thread, self.start + place.at as u64, "a block is cut"));
        }
        self.keep(&place, &mut of);
        state.lanes.insert(lane, of);
        Ok(())
    }

    /// Keeps the last block until it is known where it was left.
    fn keep(&self, place: &Place, of: &mut Lane) {
        if let Some((number, words)) = place.held {
            let Some(block) = self.images.block(number) else { return };
            of.held = Some(Held {
                block: number,
                at: self.start + words as u64,
                words: self.bytes.get(words..words + block.len).unwrap_or_default().to_vec(),
                done: Done::nothing(block),
                left: place.left,
            });
        } else if let Some(held) = &mut of.held {
            held.left = place.left;
        }
    }

    pub(super) fn bad<E>(&self, place: &Place, why: &'static str) -> RecordError<E> {
        broken(place.thread, self.start + place.at as u64, why)
    }

    fn block_of<E>(&self, identifier: u32, place: &Place) -> Result<(usize, &Block), E> {
        let number = (identifier as usize).wrapping_sub(1);
        let block = self.images.block(number);
        block.map(|b| (number, b)).ok_or_else(|| self.bad(place, "there is no such block"))
    }

    /// The block before was left for `next`.
    pub(super) fn close<S: Sink>(
        &mut self,
        next: GuestVa,
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let left = place.left.take();
        let until = Until::Next(next);
        let played = if let Some((before, words)) = place.held.take() {
            if self.pass((before, words, left), next, (state, of), told).is_some() {
                return Ok(());
            }
            let Some(previous) = self.images.block(before) else { return Ok(()) };
            let words = self.bytes.get(words..words + previous.len).unwrap_or_default();
            let done = (Done::nothing(previous), turns(previous, left, next));
            let block = (before, previous, words);
            told.play(place.thread, (state, of, self.names), block, done, until)?
        } else if let Some(held) = of.held.take() {
            let previous = self.images.block(held.block);
            let previous = previous.ok_or_else(|| self.bad(place, "there is no such block"))?;
            let done = (held.done, turns(previous, left, next));
            let block = (held.block, previous, held.words.as_slice());
            told.play(place.thread, (state, of, self.names), block, done, until)?
        } else {
            return Ok(());
        };
        if let Played::Over(at) = played {
            state.at = at;
        }
        Ok(())
    }

    fn block<S: Sink>(
        &mut self,
        tag: u32,
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let number = (tag as usize).wrapping_sub(1);
        let Some(Extent { entry, len, is_event, is_new, .. }) = self.tables.get(number) else {
            return Err(self.bad(place, "there is no such block"));
        };
        self.close(entry, place, (state, of), told)?;
        let follows = state.at == Some(entry) || std::mem::take(&mut of.side.fresh);
        if !follows && self.images.form_of(number) == Form::Blocks {
            told.gap(place.thread, state)?;
        }
        of.side.fresh = false;
        if let Some([rsp, back, fs]) = of.entered.take() {
            if told.raw.is_some() && of.shadow.stack() != (rsp, fs) {
                told.flush(place.thread, state)?;
                of.changed = of.changed.max(Changed::Stack);
            }
            match self.images.hold(back) {
                true => of.shadow.called(rsp, fs),
                false => of.shadow.entered(rsp, GuestVa(back), fs),
            }
        }
        of.side.seen += u64::from(is_event);
        if is_new {
            let block = self.images.block(number);
            let block = block.ok_or_else(|| self.bad(place, "there is no such block"))?;
            // What cannot be planned is told by its records.
            if told.raw.is_none() || is_planned(block) {
                self.tables.meet(number, block, told.out.made);
                told.planned(state, self.names, (number, block))?;
            } else {
                self.tables.meet_steps(number);
            }
            told.code(place.thread, state, (entry, &block.code))?;
        }
        place.held = Some((number, place.at + TAG));
        place.at += TAG + len;
        if told.out.records.len() >= BATCH || told.out.insns >= MANY {
            told.flush(place.thread, state)?;
        }
        Ok(())
    }

    /// The blocks that follow, as long as nothing else comes between them and they were met before: the same as
    /// [`Self::block`] for each.
    fn run<S: Sink>(
        &mut self,
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let Some((mut before, mut words)) = place.held else { return Ok(()) };
        let mut at = place.at;
        let mut link = None;
        let images = self.images;
        let blocks = |number: usize| images.block(number);
        let with: (&dyn Fn(usize) -> _, _) = (&blocks, told.out.made);
        while told.out.records.len() < BATCH
            && told.out.insns < MANY
            && at + TAG <= self.len
            && let Some(mut tag) = u32_at(self.bytes, at)
        {
            let rest = self.bytes.get(words..).unwrap_or_default();
            if let Some(chain) = self.tables.longest(before, rest, self.len - words) {
                if link.is_some() {
                    // A chain that ended here did not know what follows.
                    let number = (tag as usize).wrapping_sub(1);
                    self.tables.followed((link.take(), before), number, with);
                }
                let fresh = told.is_fresh().then(|| of.shadow.known());
                if let Some(reached) = of.shadow.pass_chain(self.tables, chain, rest, &mut told.out)
                {
                    state.at = Some(reached.entry);
                    of.side.seen += reached.events;
                    if let Some(raw) = &mut told.raw {
                        fresh.inspect(|known| raw.open(known, state.changes_to_tell(of)));
                        raw.put_chain((self.tables, self.names), chain, rest);
                        raw.leads(reached.entry);
                    }
                    (before, at) = (reached.number, words + reached.end);
                    words += reached.words;
                    link = Some(chain);
                    continue;
                }
            }
            let left = turns_of_tag(tag);
            if left.is_some() {
                // If there is nothing behind it yet, this is told again.
                let Some(behind) = u32_at(self.bytes, at + TAG) else { break };
                if at + 2 * TAG > self.len {
                    break;
                }
                (at, tag) = (at + TAG, behind);
            }
            let number = (tag as usize).wrapping_sub(1);
            let Some(next @ Extent { is_new: false, .. }) = self.tables.get(number) else {
                place.left = left;
                break;
            };
            if left.is_none() {
                if link.is_some() {
                    self.tables.followed((link.take(), before), number, with);
                }
                self.tables.followed((None, before), number, with);
            }
            link = None;
            let from = (before, words, left);
            let Some(to) = self.pass(from, next.entry, (state, of), told) else {
                place.left = left;
                break;
            };
            if to != next.entry {
                told.gap(place.thread, state)?;
            }
            of.side.seen += u64::from(next.is_event);
            (before, words) = (number, at + TAG);
            at += TAG + next.len;
        }
        (place.held, place.at) = (Some((before, words)), at);
        Ok(())
    }

    /// Passes by a block whose words lie there, after so many turns if that was told, on to the next; where it really led. Nothing if
    /// it has no table.
    #[inline]
    fn pass<S: Sink>(
        &mut self,
        (number, words, left): (usize, usize, Option<usize>),
        next: GuestVa,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Option<GuestVa> {
        let words = self.bytes.get(words..).unwrap_or_default();
        let fresh = told.is_fresh().then(|| of.shadow.known());
        let to = of.shadow.pass(self.tables, number, (words, left, next), &mut told.out)?;
        state.at = Some(to);
        if let Some(raw) = &mut told.raw
            && let Some(block) = self.tables.get(number)
        {
            fresh.inspect(|known| raw.open(known, state.changes_to_tell(of)));
            let turns = turns_of(block.turns, left, next == block.entry);
            raw.put_turns(self.names, number, (words, block.len), (turns, block.turns));
            raw.leads(to);
        }
        Some(to)
    }

    /// References that follow each other.
    fn references<S: Sink>(
        &mut self,
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        // A block by itself has one instruction, so it does not matter where it led to.
        self.close(GuestVa(0), place, (state, of), told)?;
        if let Some([rsp, _, fs]) = of.entered.take() {
            of.shadow.called(rsp, fs);
        }
        let bytes = self.bytes.get(place.at..self.len).unwrap_or_default();
        let before = told.out.records.len();
        one_by_one(bytes, self.images.kinds(), of.shadow.fs(), &mut told.out.records);
        let read = told.out.records.len() - before;
        if read == 0 {
            return Err(self.bad(place, "there is no such reference"));
        }
        place.at += read * REFERENCE_LEN;
        if told.out.records.len() >= BATCH {
            told.flush(place.thread, state)?;
        }
        Ok(())
    }

    /// Takes what is no block; answers how many bytes it has.
    fn event<S: Sink>(
        &mut self,
        tag: u32,
        place: &mut Place,
        (state, of): (&mut Thread, &mut Lane),
        told: &mut Told<'_, S>,
    ) -> Result<usize, S::Error> {
        let at = place.at;
        let word = |offset: usize| {
            u64_at(self.bytes, at + offset).ok_or_else(|| self.bad(place, "an entry is cut"))
        };
        match tag {
            ENTERED => {
                let [rsp, back, fs] = [word(TAG)?, word(TAG + 8)?, word(TAG + 16)?];
                of.entered = Some([rsp, back, fs]);
                Ok(ENTERED_LEN)
            }
            BACK => {
                let (rsp, back) = (word(TAG)?, GuestVa(word(TAG + 8)?));
                // Where returns lead to is not asked then.
                if self.images.form() == Form::Blocks && !self.images.hold(back.0) {
                    of.shadow.goes_back(rsp, back);
                }
                Ok(BACK_LEN)
            }
            RESUMED => {
                let mut registers = [0; 16];
                for (i, register) in registers.iter_mut().enumerate() {
                    *register = word(8 + 8 * i)?;
                }
                let fs = word(8 + 16 * 8)?;
                let identifier = u32_at(self.bytes, at + TAG).unwrap_or(0);
                let entry = self.block_of(identifier, place)?.1.entry;
                self.close(entry, place, (state, of), told)?;
                if told.raw.is_some() {
                    told.flush(place.thread, state)?;
                    of.changed = Changed::All;
                }
                of.shadow.resumed(&registers, fs);
                of.entered = None;
                Ok(RESUMED_LEN)
            }
            SWITCHED_ON => {
                let (ticks, left) = (word(TAG)?, word(TAG + 8)?);
                self.on(place.thread, (state, of), (ticks, left), told)?;
                Ok(SWITCHED_ON_LEN)
            }
            SWITCHED_OFF => {
                let ticks = word(8)?;
                let identifier = u32_at(self.bytes, at + TAG).unwrap_or(0);
                let entry = self.block_of(identifier, place)?.1.entry;
                self.close(entry, place, (state, of), told)?;
                self.off(place.thread, (state, of), ticks, told)?;
                Ok(SWITCHED_OFF_LEN)
            }
            CALLED => {
                let stored = Arguments([word(8)?, word(16)?, word(24)?, word(32)?]);
                let site = u32_at(self.bytes, at + TAG).unwrap_or(u32::MAX);
                self.called((site, stored), place, (state, of), told)?;
                Ok(CALLED_LEN)
            }
            RETURNED => {
                let stored = Results([word(8)?, word(16)?, word(24)?]);
                let site = u32_at(self.bytes, at + TAG).unwrap_or(u32::MAX);
                self.returned((site, stored), place, (state, of), told)?;
                Ok(RETURNED_LEN)
            }
            ASKED => {
                let mut passed = [0; 7];
                for (i, passed) in passed.iter_mut().enumerate() {
                    *passed = word(TAG + 8 * i)?;
                }
                self.asked(passed, place, (state, of), told)?;
                Ok(ASKED_LEN)
            }
            ANSWERED => {
                self.answered(word(TAG)?, place, (state, of), told)?;
                Ok(ANSWERED_LEN)
            }
            _ => Err(self.bad(place, "there is no such tag")),
        }
    }

    fn on<S: Sink>(
        &self,
        thread: u32,
        (state, of): (&mut Thread, &mut Lane),
        (ticks, left): (u64, u64),
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let Some(plan) = &told.plan else { return Ok(()) };
        let (skipped, stamp) = (of.side.on(plan, left), plan.stamp(ticks));
        told.skipped(thread, state, skipped)?;
        if let Some(ns) = stamp {
            told.timestamp(thread, state, ns)?;
        }
        told.mode(thread, state, Mode::Inst)
    }

    fn off<S: Sink>(
        &self,
        thread: u32,
        (state, of): (&mut Thread, &mut Lane),
        ticks: u64,
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let Some(plan) = &told.plan else { return Ok(()) };
        let (seen, stamp) = (of.side.seen, plan.stamp(ticks));
        let expected = of.side.off(plan);
        if let Some(ns) = stamp {
            told.timestamp(thread, state, ns)?;
        }
        // Events are seen by their blocks.
        let counted = self.images.form() == Form::Blocks;
        if let Some(expected) = expected.filter(|e| counted && *e != seen) {
            let text = format!("a sample of {seen} events instead of {expected}");
            told.event(thread, Some(state), &Event::Marker { id: UNEVEN, text: &text })?;
        }
        told.mode(thread, state, Mode::Exec)
    }
}

/// Makes records of references that follow each other, up to a batch.
// By itself, so that all it needs finds a register.
#[inline(never)]
fn one_by_one(bytes: &[u8], kinds: &[Kind], fs: u64, records: &mut Vec<Record>) {
    let room = BATCH.saturating_sub(records.len()).max(1);
    for one in bytes.chunks_exact(REFERENCE_LEN).take(room) {
        let kind = u32_at(one, 0).and_then(kind_of_tag).and_then(|number| kinds.get(number));
        let (Some(kind), Some(addr)) = (kind, u64_at(one, TAG)) else { return };
        let addr = GuestVa(addr.wrapping_add(fs & kind.from_fs));
        records.push(kind.kind.record(kind.flags, kind.size, addr));
    }
}
