//! The copies of a process's code: that of the program, and those of its libraries.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use ichnos_base::GuestVa;

use super::message::Where;
use crate::code::{Block, Copy, Form, Kind, Midway, Numbers, SyncSite};

/// Copies, the program's first, then in the order in which they were made.
#[derive(Clone, Default)]
pub(crate) struct Images {
    copies: Vec<Arc<Copy>>,
    /// All sorts of references, by their numbers.
    kinds: Vec<Kind>,
    /// What numbers are free.
    next: Numbers,
}

impl Images {
    /// Those of a program without libraries; none if it has no notes.
    pub(crate) fn of(program: Option<Arc<Copy>>) -> Self {
        let mut images = Self::default();
        images.copies.extend(program);
        images.count();
        images
    }

    /// Adds the copy of a library.
    pub(crate) fn add(&mut self, copy: Arc<Copy>) {
        if !self.copies.iter().any(|c| Arc::ptr_eq(c, &copy)) {
            self.copies.push(copy);
            self.count();
        }
    }

    /// Takes one out; its numbers stay taken.
    pub(crate) fn remove(&mut self, copy: &Arc<Copy>) {
        self.copies.retain(|c| !Arc::ptr_eq(c, copy));
    }

    fn count(&mut self) {
        let Some(last) = self.copies.last() else { return };
        let next = last.next();
        self.next.block = self.next.block.max(next.block);
        self.next.kind = self.next.kind.max(next.kind);
        self.next.call = self.next.call.max(next.call);
        let first = last.plot.first.kind as usize;
        if self.kinds.len() <= first {
            // Numbers between are those of libraries that are gone.
            self.kinds.resize(first, Kind::NONE);
            self.kinds.extend(&last.kinds.list);
        }
    }

    /// Numbers that nobody has had.
    pub(crate) const fn next(&self) -> Numbers {
        self.next
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Arc<Copy>] {
        &self.copies
    }

    /// The program's.
    pub(crate) fn program(&self) -> Option<&Arc<Copy>> {
        self.copies.first()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The one whose recorded part holds an address.
    fn at(&self, addr: u64) -> Option<&Copy> {
        self.copies.iter().find(|c| c.holds(addr)).map(Arc::as_ref)
    }

    /// Whether an address lies in one of them.
    pub(crate) fn hold(&self, addr: u64) -> bool {
        let exec = |c: &Copy| c.exec.as_ref().is_some_and(|e| e.holds(addr));
        self.copies.iter().any(|c| c.holds(addr) || exec(c))
    }

    /// Where a thread at an address is.
    pub(crate) fn place(&self, addr: u64) -> Where {
        match self.at(addr).and_then(|c| Some((c, c.original(addr)?))) {
            Some((copy, (pc, turn))) => {
                Where::Copy { pc, stored: copy.is_stored(addr), turn: usize::from(turn) }
            }
            None => {
                let exec = |c: &Arc<Copy>| c.exec.as_ref()?.original(addr);
                let exec = self.copies.iter().find_map(exec);
                exec.map_or(Where::Outside(GuestVa(addr)), Where::Exec)
            }
        }
    }

    /// Where a sequence begins again that was left at an address, if it is one.
    pub(crate) fn restart(&self, addr: u64) -> Option<u64> {
        self.at(addr)?.restart(addr)
    }

    /// The same for a thread that did not fault there, of code that stores blocks; nothing if it cannot begin again without harm.
    pub(crate) fn begun(&self, addr: u64) -> Option<u64> {
        self.at(addr).filter(|c| c.form == Form::Blocks)?.begun(addr)
    }

    /// Whether the stack pointer is lower at an address than the program's.
    pub(crate) fn is_lowered(&self, addr: u64) -> bool {
        self.at(addr).is_some_and(|copy| copy.is_lowered(addr))
    }

    /// How much of a run of references is done at an address, and not told yet.
    pub(crate) fn midway(&self, addr: u64) -> Option<Midway> {
        self.at(addr)?.midway(addr)
    }

    fn with_block(&self, number: usize) -> Option<&Copy> {
        let first = |c: &Copy| c.plot.first.block as usize;
        let has = |c: &Copy| (first(c)..first(c) + c.blocks.len()).contains(&number);
        self.copies.iter().find(|c| has(c)).map(Arc::as_ref)
    }

    /// The block with a number.
    pub(crate) fn block(&self, number: usize) -> Option<&Block> {
        let copy = self.with_block(number)?;
        copy.blocks.get(number - copy.plot.first.block as usize)
    }

    /// The call with a number that synchronises.
    pub(crate) fn call(&self, number: u32) -> Option<SyncSite> {
        let find = |c: &Arc<Copy>| {
            let at = number.checked_sub(c.plot.first.call)?;
            c.calls.get(at as usize).copied()
        };
        self.copies.iter().find_map(find)
    }

    /// In which form the code is recorded that the block with a number is of.
    pub(crate) fn form_of(&self, number: usize) -> Form {
        self.with_block(number).map_or(Form::Blocks, |c| c.form)
    }

    /// In which form all is recorded that can be.
    pub(crate) fn form(&self) -> Form {
        let one_by_one = self.copies.iter().any(|c| c.form == Form::References);
        if one_by_one { Form::References } else { Form::Blocks }
    }

    /// All sorts of references.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }
}
