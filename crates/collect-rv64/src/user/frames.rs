//! Frames: pages of RAM given out to address spaces and taken back.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ram::{PAGE_SIZE, Ram};

/// Pages by which RAM grows at least.
const STEP: usize = 256;

/// Gives out frames, each with the number of its owners.
#[derive(Debug)]
pub(crate) struct Frames {
    free: Vec<usize>,
    owners: Vec<u32>,
    limit: usize,
}

impl Frames {
    /// At most `limit` pages are ever in use.
    pub(crate) fn new(limit: usize) -> Self {
        Self { free: Vec::new(), owners: Vec::new(), limit }
    }

    /// The index into RAM of a zeroed frame; none if the limit is reached.
    pub(crate) fn take(&mut self, ram: &mut Ram) -> Option<usize> {
        if let Some(index) = self.free.pop() {
            ram.slice_mut(index, PAGE_SIZE)?.fill(0);
            self.owners[index / PAGE_SIZE] = 1;
            return Some(index);
        }
        let page = self.owners.len();
        if page >= self.limit {
            return None;
        }
        if page >= ram.pages() {
            ram.grow(STEP.max(ram.pages() / 4).min(self.limit - page));
        }
        self.owners.push(1);
        Some(page * PAGE_SIZE)
    }

    /// One more owner.
    pub(crate) fn share(&mut self, index: usize) {
        if let Some(owners) = self.owners.get_mut(index / PAGE_SIZE) {
            *owners += 1;
        }
    }

    /// Whether it has more than one owner.
    pub(crate) fn is_shared(&self, index: usize) -> bool {
        self.owners.get(index / PAGE_SIZE).is_some_and(|&n| n > 1)
    }

    /// One owner less; without any the frame is free.
    pub(crate) fn give_back(&mut self, index: usize) {
        if let Some(owners) = self.owners.get_mut(index / PAGE_SIZE).filter(|n| **n > 0) {
            *owners -= 1;
            if *owners == 0 {
                self.free.push(index);
            }
        }
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> usize {
        self.owners.len() - self.free.len()
    }
}
