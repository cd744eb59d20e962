//! What drmemtrace's markers mean, and when what they announce can be told.
//!
//! The rest of [`Story`] is in `dr_story.rs`. Markers that only concern
//! drmemtrace's own simulators are left out; `docs/CONVERT.md` lists the others.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Event, GapReason, GuestVa, SignalInfo, Sink};

use crate::dr_entry::{EPOCH_US, Entry, SYSCALL_BASE, marker};
use crate::dr_story::{Branch, Story, Told};
use crate::feed::Feed;

impl Story {
    /// Takes a marker of the present thread.
    pub(crate) fn marker<S: Sink>(&mut self, entry: Entry, feed: &mut Feed<'_, S>) -> Told<S> {
        let (kind, value) = (entry.size, entry.addr);
        if !matches!(kind, marker::FUNC_ID | marker::FUNC_ARG | marker::MAYBE_BLOCKING) {
            self.settle_syscall(feed)?;
        }
        if kind != marker::BRANCH_TARGET {
            self.settle_known_branch(feed)?;
        }
        let repeated = self.repeated;
        if kind == marker::CPU_ID {
            self.repeated = false;
        }
        let Some(thread) = self.now(feed) else { return Ok(()) };
        match kind {
            marker::BRANCH_TARGET => self.target = Some(value),
            marker::CHUNK_FOOTER => self.repeated = true,
            marker::TIMESTAMP if !repeated => {
                let ns = value.saturating_sub(EPOCH_US).saturating_mul(1000);
                feed.event(&Event::Timestamp { ns })?;
            }
            marker::CPU_ID if !repeated && thread.cpu != Some(value) && value != u64::MAX => {
                thread.cpu = Some(value);
                // Above the processor's number stands its node's.
                feed.event(&Event::Migrate { cpu: (value & 0xfff) as u32 })?;
            }
            marker::SYSCALL => thread.syscall = Some((value, [0; 6], 0)),
            marker::FUNC_ID => thread.function = value,
            marker::FUNC_ARG => {
                let function = thread.function;
                if let Some((number, args, n)) = &mut thread.syscall
                    && function == SYSCALL_BASE.wrapping_add(*number)
                    && let Some(arg) = args.get_mut(*n)
                {
                    *arg = value;
                    *n += 1;
                }
            }
            marker::FUNC_RETVAL if thread.function >= SYSCALL_BASE => {
                let number = thread.function - SYSCALL_BASE;
                feed.event(&Event::SyscallReturn { number, result: value as i64 })?;
            }
            marker::KERNEL_EVENT => {
                let interrupted = GuestVa(value);
                // A handler that returns into the next signal, or is interrupted
                // at its very beginning, executes nothing in between.
                if thread.returns || thread.signal.is_some() {
                    self.settle(Some(interrupted), feed)?;
                }
                if let Some(thread) = self.now(feed) {
                    let handler = GuestVa(0);
                    thread.signal = Some(SignalInfo { number: 0, code: 0, interrupted, handler });
                }
            }
            marker::SIGNAL_NUMBER => {
                if let Some(signal) = &mut thread.signal {
                    signal.number = value as i32;
                }
            }
            marker::KERNEL_XFER => thread.returns = true,
            marker::RSEQ_ABORT => {
                feed.event(&Event::Marker { id: value, text: "restartable sequence aborted" })?;
            }
            marker::WINDOW_ID => {
                let old = thread.window.replace(value);
                if old.is_some_and(|old| old != value) {
                    let reason = GapReason::Sampling;
                    feed.event(&Event::Gap { reason, insns: None, skipped: None })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn settle_syscall<S: Sink>(&mut self, feed: &mut Feed<'_, S>) -> Told<S> {
        match self.now(feed).and_then(|t| t.syscall.take()) {
            Some((number, args, _)) => feed.event(&Event::Syscall { number, args }),
            None => Ok(()),
        }
    }

    /// Tells a branch whose outcome needs no following instruction, so that
    /// events come after it. In traces without encodings or targets a branch may
    /// be told after the events that follow it.
    fn settle_known_branch<S: Sink>(&mut self, feed: &mut Feed<'_, S>) -> Told<S> {
        let known =
            |b: &mut Branch| b.taken == Some(false) || (b.taken.is_some() && b.target.is_some());
        match self.now(feed).and_then(|t| t.branch.take_if(known)) {
            Some(branch) => feed.record(branch.record(None)),
            None => Ok(()),
        }
    }

    /// Tells what was pending when the instruction at `next` comes; `None` when
    /// none will come.
    pub(crate) fn settle<S: Sink>(
        &mut self,
        next: Option<GuestVa>,
        feed: &mut Feed<'_, S>,
    ) -> Told<S> {
        self.settle_syscall(feed)?;
        let Some(thread) = self.now(feed) else { return Ok(()) };
        let (signal, returns) = (thread.signal.take(), std::mem::take(&mut thread.returns));
        if let Some(branch) = thread.branch.take() {
            // A signal says where the program would have gone on.
            let follower = signal.map(|s| s.interrupted).or(next);
            feed.record(branch.record(follower))?;
        }
        if let Some(signal) = signal {
            let handler = next.unwrap_or_default();
            feed.event(&Event::Signal(SignalInfo { handler, ..signal }))?;
        }
        match next.filter(|_| returns) {
            Some(pc) => feed.event(&Event::SignalReturn { pc }),
            None => Ok(()),
        }
    }
}
