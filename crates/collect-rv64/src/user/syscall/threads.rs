//! What threads of one process need of each other: futexes and identities.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::io::Errno;

use super::{Answer, Call};
use crate::user::process::Wait;

const WAIT: u64 = 0;
const WAKE: u64 = 1;
const REQUEUE: u64 = 3;
const CMP_REQUEUE: u64 = 4;
const WAKE_OP: u64 = 5;
const WAIT_BITSET: u64 = 9;
const WAKE_BITSET: u64 = 10;
const CLOCK_REALTIME: u64 = 256;

impl Call<'_> {
    pub(super) fn set_tid_address(&mut self) -> Result<u64, Errno> {
        let t = &mut self.kernel.threads[self.thread];
        t.clear_tid = self.args[0];
        Ok(t.tid.into())
    }

    pub(super) fn futex(&mut self) -> Result<Answer, Errno> {
        let [va, operation, value, fourth, second, third] = self.args;
        if va % 4 != 0 {
            return Err(Errno::INVAL);
        }
        match operation & 0x7f {
            WAIT => {
                let until = self.deadline(fourth, Some(self.kernel.now))?;
                self.futex_wait(va, value as u32, u32::MAX, until)
            }
            WAIT_BITSET => {
                // An absolute time, on the clock that the operation names.
                let base = match operation & CLOCK_REALTIME != 0 {
                    true => Some(0u64.wrapping_sub(self.kernel.start_time_ns)),
                    false => Some(0),
                };
                let until = self.deadline(fourth, base)?;
                self.futex_wait(va, value as u32, third as u32, until)
            }
            WAKE => self.wake(va, value, u32::MAX).map(Answer::Value),
            WAKE_BITSET => self.wake(va, value, third as u32).map(Answer::Value),
            REQUEUE => self.requeue(va, value, second, fourth).map(Answer::Value),
            CMP_REQUEUE => {
                if self.view().read_u32(va)? != third as u32 {
                    return Err(Errno::AGAIN);
                }
                self.requeue(va, value, second, fourth).map(Answer::Value)
            }
            WAKE_OP => self.wake_op(va, value, (second, fourth), third as u32).map(Answer::Value),
            _ => Err(Errno::NOSYS),
        }
    }

    /// A `timespec` at `va` on the machine's clock: nothing if `va` is zero.
    fn deadline(&mut self, va: u64, base: Option<u64>) -> Result<Option<u64>, Errno> {
        if va == 0 {
            return Ok(None);
        }
        let time = self.read_time(va)?;
        Ok(base.map(|base| base.wrapping_add(time)))
    }

    /// Nanoseconds from a `timespec`.
    pub(super) fn read_time(&mut self, va: u64) -> Result<u64, Errno> {
        let mut view = self.view();
        let (seconds, nanoseconds) = (view.read_u64(va)?, view.read_u64(va + 8)?);
        if nanoseconds >= 1_000_000_000 || seconds > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        Ok(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }

    fn futex_wait(
        &mut self,
        va: u64,
        value: u32,
        mask: u32,
        until: Option<u64>,
    ) -> Result<Answer, Errno> {
        if mask == 0 {
            return Err(Errno::INVAL);
        }
        if self.view().read_u32(va)? != value {
            return Err(Errno::AGAIN);
        }
        let key = self.kernel.futex_key(self.thread, va)?;
        Ok(Answer::WaitThen(Wait::Futex { key, mask, until }))
    }

    fn wake(&mut self, va: u64, count: u64, mask: u32) -> Result<u64, Errno> {
        let key = self.kernel.futex_key(self.thread, va)?;
        Ok(self.kernel.futex_wake(key, count as u32 as u64, mask))
    }

    /// Wakes some, and lets others wait for another word.
    fn requeue(&mut self, from: u64, wake: u64, to: u64, most: u64) -> Result<u64, Errno> {
        let woken = self.wake(from, wake, u32::MAX)?;
        let (from, to) =
            (self.kernel.futex_key(self.thread, from)?, self.kernel.futex_key(self.thread, to)?);
        let mut moved = 0;
        for t in &mut self.kernel.threads {
            if let Wait::Futex { key, .. } = &mut t.wait
                && *key == from
                && moved < most
            {
                *key = to;
                moved += 1;
            }
        }
        Ok(woken + moved)
    }

    /// Changes a second word and wakes its waiters too if it held what was asked.
    fn wake_op(
        &mut self,
        va: u64,
        count: u64,
        (second, most): (u64, u64),
        code: u32,
    ) -> Result<u64, Errno> {
        let old = self.view().read_u32(second)?;
        let operand = (code >> 12 & 0xfff) as i32;
        let operand =
            if code >> 31 != 0 { 1u32.wrapping_shl(operand as u32) } else { operand as u32 };
        let new = match code >> 28 & 7 {
            0 => operand,
            1 => old.wrapping_add(operand),
            2 => old | operand,
            3 => old & !operand,
            4 => old ^ operand,
            _ => return Err(Errno::NOSYS),
        };
        self.view().write_u32(second, new)?;
        let (old, compared) = (old as i32, (code & 0xfff) as i32);
        let holds = match code >> 24 & 15 {
            0 => old == compared,
            1 => old != compared,
            2 => old < compared,
            3 => old <= compared,
            4 => old > compared,
            5 => old >= compared,
            _ => return Err(Errno::NOSYS),
        };
        let mut woken = self.wake(va, count, u32::MAX)?;
        if holds {
            woken += self.wake(second, most, u32::MAX)?;
        }
        Ok(woken)
    }
}
