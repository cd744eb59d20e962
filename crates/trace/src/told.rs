//! A thread's stream that is told executions by its source's numbers: they go to the packer without becoming
//! records. The path that is open meanwhile is a state of the process's [`Ways`], and its words wait in `held`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use ichnos_base::{BlockId, GuestVa, Paths, Record};

use crate::error::Error;
use crate::stream::{Stream, Tools};
use crate::ways::{NONE, Turn, Way, Ways, filled};

const TOO_FEW: Error = Error::Misuse("executions have fewer words than their accesses need");

/// How far a stretch of executions is packed.
struct Progress<'a> {
    paths: &'a Paths<'a>,
    /// Executions and words that are behind.
    at: usize,
    word: usize,
}

impl<'a> Progress<'a> {
    /// The execution that comes next.
    fn way(&self) -> Option<Way<'a>> {
        let told = &self.paths.blocks;
        let id = *told.blocks.get(self.at)?;
        let records = told.shapes.records(id);
        let taken = told.shapes.is_taken(id);
        Some(Way { id, records, taken, next: self.next(self.at + 1) })
    }

    /// Where an execution begins; behind the last, where that went.
    fn next(&self, at: usize) -> GuestVa {
        let told = &self.paths.blocks;
        let first = told.blocks.get(at).and_then(|id| told.shapes.records(*id).first());
        match first {
            Some(Record::Insn { pc, .. }) => *pc,
            _ => self.paths.next,
        }
    }
}

impl Stream {
    /// Packs a stretch of executions.
    pub(crate) fn paths<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        paths: &Paths<'_>,
    ) -> Result<(), Error> {
        if self.flags != 0 && !paths.blocks.blocks.is_empty() {
            self.close(tools)?;
            self.flags = 0;
        }
        let mut ways = tools.ways.remove(&self.process.0).unwrap_or_default();
        let done = self.pack_paths(tools, &mut ways, &mut Progress { paths, at: 0, word: 0 });
        tools.ways.insert(self.process.0, ways);
        done
    }

    fn pack_paths<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        ways: &mut Ways,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let told = &progress.paths.blocks;
        self.open(tools).grow(&tools.book.roadmap);
        while let Some(id) = told.blocks.get(progress.at) {
            let mut turn = ways.turn(self.state, *id);
            if turn.is_unknown() || !self.path.is_empty() {
                let Some(known) = self.look(tools, ways, progress)? else { continue };
                turn = known;
            }
            if turn.blocks[0] != NONE {
                self.pack_turn(tools, &turn, progress)?;
            }
            self.state = turn.then;
            progress.at += 1;
        }
        let rest = told.words.get(progress.word..).ok_or(TOO_FEW)?;
        self.held.extend_from_slice(rest);
        if self.held.len() != ways.open_path(self.state).1 {
            return Err(Error::Misuse("executions have other words than their accesses need"));
        }
        let open = if self.state == 0 { &self.path.records } else { ways.open_path(self.state).0 };
        let next = match open.first() {
            Some(Record::Insn { pc, .. }) => *pc,
            _ => progress.paths.next,
        };
        if let Some(packer) = &mut self.packer {
            packer.went(next);
        }
        Ok(())
    }

    /// What the next execution does, found out; nothing if it was packed by its records.
    #[cold]
    fn look<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        ways: &mut Ways,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Turn>, Error> {
        let Some(way) = progress.way() else { return Ok(None) };
        // What records began may end here, and then numbers are enough again.
        if let Some(first) = way.records.first() {
            self.make_way(tools, first)?;
        }
        if self.path.is_empty()
            && let Some(turn) = ways.learn(&mut tools.book, self.process, self.state, &way)?
        {
            self.open(tools).grow(&tools.book.roadmap);
            return Ok(Some(turn));
        }
        // What of the open path's words is not held stands at the front.
        let open = ways.open_path(self.state).1.saturating_sub(self.held.len());
        let words = progress.paths.blocks.words;
        self.held.extend_from_slice(
            words.get(progress.word..progress.word.saturating_add(open)).ok_or(TOO_FEW)?,
        );
        progress.word += open;
        self.lay_out(ways)?;
        for record in way.records() {
            let mut rest = words.get(progress.word..).unwrap_or_default().iter().copied();
            let record = filled(record, &mut rest).ok_or(TOO_FEW)?;
            progress.word = words.len() - rest.len();
            self.record(tools, &record)?;
        }
        progress.at += 1;
        Ok(None)
    }

    /// The open path becomes records.
    pub(crate) fn lay_out(&mut self, ways: &Ways) -> Result<(), Error> {
        let mut words = self.held.drain(..);
        for record in ways.open_path(self.state).0 {
            let record = filled(*record, &mut words).ok_or(TOO_FEW)?;
            self.path.take(&record);
        }
        self.state = 0;
        Ok(())
    }

    /// Packs the blocks that an execution completes.
    #[inline]
    fn pack_turn<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        turn: &Turn,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let words = progress.paths.blocks.words;
        let count = 1 + usize::from(turn.blocks[1] != NONE);
        for (i, block) in turn.blocks.iter().take(count).enumerate() {
            let id = BlockId(*block);
            let taken = turn.taken && i + 1 == count;
            if self.packer.is_none() {
                self.open(tools);
            }
            let Some(packer) = &mut self.packer else { return Ok(()) };
            let missing = packer.words_of(id).checked_sub(self.held.len()).ok_or(TOO_FEW)?;
            let told = words.get(progress.word..progress.word + missing).ok_or(TOO_FEW)?;
            progress.word += missing;
            if self.held.is_empty() {
                packer.execute_way(id, told, taken);
            } else {
                self.held.extend_from_slice(told);
                packer.execute_way(id, &self.held, taken);
                self.held.clear();
            }
            if self.is_long(tools) {
                if let Some(packer) = &mut self.packer {
                    packer.went(progress.next(progress.at + 1));
                }
                self.close_if_full(tools)?;
            }
        }
        Ok(())
    }
}
