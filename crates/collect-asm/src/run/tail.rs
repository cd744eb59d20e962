//! Faults in functions to which the program jumps and the copy's tails call (`code/sync.rs`): there is more on the stack than
//! the program would have, and a handler would find its own stack lower.
//!
//! So the stack pointer is raised while the kernel makes the signal's frame, and the frame then says where it really is.
//! What the kernel may write between the two is put back when the handler returns.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

use ichnos_rt::{Regs, Thread as Task};

use super::follow::Tracer;
use super::message::Where;
use crate::code::{CALLED, CALLED_LEN, TAG, TAIL_LEN};
use crate::note::{u32_at, u64_at};

/// Where in a signal frame, counted from the handler's stack pointer, the interrupted stack pointer lies.
const FRAME_RSP: u64 = 8 + 20 * 8;
/// What lies so far below the stack pointer is left alone by signals.
const RED_ZONE: u64 = 128;

/// Bytes that a frame may lie over and a function may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    at: u64,
    bytes: [u8; TAIL_LEN],
}

impl Kept {
    /// Puts them back.
    pub(super) fn restore(self, task: Task) -> io::Result<()> {
        task.write(self.at, &self.bytes)
    }
}

impl Tracer<'_> {
    /// If a thread that stopped with these registers was called by a tail, raises its stack pointer for a signal's frame.
    pub(super) fn raise_stack(&self, task: Task, regs: &Regs) -> io::Result<Option<Kept>> {
        if !self.is_in_tail(task, regs) {
            return Ok(None);
        }
        let mut kept = Kept { at: regs.rsp.wrapping_sub(RED_ZONE), bytes: [0; TAIL_LEN] };
        task.read(kept.at, &mut kept.bytes)?;
        task.set_regs(&Regs { rsp: regs.rsp.wrapping_add(TAIL_LEN as u64), ..*regs })?;
        Ok(Some(kept))
    }

    /// Behind [`Self::raise_stack`], when the thread stands at the handler, or where it was if there is none.
    pub(super) fn lower_stack(task: Task, before: &Regs) -> io::Result<()> {
        let mut regs = task.regs()?;
        let raised = before.rsp.wrapping_add(TAIL_LEN as u64);
        if task.word(regs.rsp.wrapping_add(FRAME_RSP)).ok() == Some(raised)
            && regs.rip != before.rip
        {
            return task.write(regs.rsp.wrapping_add(FRAME_RSP), &before.rsp.to_le_bytes());
        }
        if regs.rsp == raised {
            regs.rsp = before.rsp;
            task.set_regs(&regs)?;
        }
        Ok(())
    }

    /// Whether a thread is in a function that a tail has called: that is what it has stored last, and the tail's own return
    /// address is still there.
    fn is_in_tail(&self, task: Task, regs: &Regs) -> bool {
        let Some(Where::Outside(_)) = self.place(task, regs) else { return false };
        let Some(thread) = self.threads.get(&task.0) else { return false };
        let images = self.processes.get(&thread.pid).map(|p| &p.images);
        let Some((images, lane)) = images.zip(thread.lanes.last()) else { return false };
        let mut stored = [0; CALLED_LEN];
        let Some(buffer) = lane.buffer else { return false };
        let end = self.filled(lane.context, buffer);
        let Some(from) = end.checked_sub(CALLED_LEN as u64) else { return false };
        self.pool.read(self.pool.layout().buffer(buffer) + from, &mut stored);
        let site = u32_at(&stored, TAG).and_then(|number| images.call(number));
        let is_tail = site.is_some_and(|s| s.back.is_none() && s.function.operation.returns());
        let stack = u64_at(&stored, CALLED_LEN - 8).unwrap_or(0);
        let back = stack.checked_sub(TAIL_LEN as u64).filter(|back| *back >= regs.rsp);
        u32_at(&stored, 0) == Some(CALLED)
            && is_tail
            && back.is_some_and(|at| task.word(at).is_ok_and(|to| images.hold(to)))
    }
}
