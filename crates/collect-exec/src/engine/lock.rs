//! A lock that needs neither libc nor thread-local state, and can be made anew in the child
//! of a fork.
//!
//! As long as the process has one thread it costs two plain stores: the engine takes its locks a dozen times for each fragment, and
//! an atomic exchange waits for all that was stored before it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::sys;

/// Whether nobody but the calling thread can take a lock.
static ALONE: AtomicBool = AtomicBool::new(false);

/// This process has one thread.
pub fn alone() {
    ALONE.store(true, Ordering::Release);
}

/// From here on there may be others.
pub fn no_longer_alone() {
    ALONE.store(false, Ordering::Release);
}

fn is_alone() -> bool {
    ALONE.load(Ordering::Relaxed)
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const WANTED: u32 = 2;

/// A value that one thread at a time may use.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, while held.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    pub fn lock(&self) -> Guard<'_, T> {
        if is_alone() && self.state.load(Ordering::Relaxed) == FREE {
            self.state.store(HELD, Ordering::Relaxed);
            return Guard { lock: self };
        }
        let quick = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if quick.is_err() {
            self.wait();
        }
        Guard { lock: self }
    }

    #[cold]
    fn wait(&self) {
        while self.state.swap(WANTED, Ordering::Acquire) != FREE {
            let op = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
            let at = self.state.as_ptr() as u64;
            // SAFETY: the word is live; waiting changes no memory.
            unsafe { sys::call(libc::SYS_futex, [at, op, u64::from(WANTED), 0, 0, 0]) };
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if is_alone() {
            self.lock.state.store(FREE, Ordering::Release);
            return;
        }
        if self.lock.state.swap(FREE, Ordering::Release) == WANTED {
            let op = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
            let at = self.lock.state.as_ptr() as u64;
            // SAFETY: the word is live; waking changes no memory.
            unsafe { sys::call(libc::SYS_futex, [at, op, 1, 0, 0, 0]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_threads_apart() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }
}
