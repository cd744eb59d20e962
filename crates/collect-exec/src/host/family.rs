//! The processes of the tree: who lives, by the kernel's own word.
//!
//! The places in the tap say which processes there are; a descriptor for each says when it has ended. When
//! one has, what it left in the tap is submitted in its name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ichnos_tap::LifeState;

use super::channel::Channel;

/// How long a place may stay claimed by a parent that is gone before it is given up: its child, if there
/// is one, needs only to be scheduled once.
const GRACE: Duration = Duration::from_millis(500);

/// Who lives.
#[derive(Debug, Default)]
pub struct Family {
    watched: HashMap<usize, OwnedFd>,
    abandoned: HashMap<usize, Instant>,
}

impl Family {
    /// Looks again; how many live.
    pub fn look(&mut self, channel: &Channel) -> usize {
        let mut alive = 0;
        for (i, life) in channel.header().lives.iter().enumerate() {
            let state = life.state();
            if state == LifeState::FREE {
                continue;
            }
            let goes_on = match state {
                LifeState::LIVE => self.lives(i, life.os()),
                _ => self.may_come(i, life.os()),
            };
            if goes_on {
                alive += 1;
            } else {
                self.watched.remove(&i);
                self.abandoned.remove(&i);
                channel.header().submit_left(life.process());
                life.end();
            }
        }
        alive
    }

    /// Kills whoever lives.
    pub fn kill(&self) {
        for fd in self.watched.values() {
            // SAFETY: the call takes no memory.
            unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGKILL, 0, 0);
            }
        }
    }

    fn lives(&mut self, place: usize, os: u32) -> bool {
        self.abandoned.remove(&place);
        let fd = match self.watched.entry(place) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => match descriptor(os) {
                Ok(fd) => e.insert(fd),
                // Without a descriptor to spare nobody knows; whoever is gone is seen later.
                Err(error) => return error.raw_os_error() != Some(libc::ESRCH),
            },
        };
        !has_ended(fd)
    }

    /// Whether a process may still come to life in a place that its parent has claimed.
    fn may_come(&mut self, place: usize, parent: u32) -> bool {
        // A parent that has ended but was not waited for still has its number.
        if descriptor(parent).is_ok_and(|fd| !has_ended(&fd)) {
            self.abandoned.remove(&place);
            return true;
        }
        self.abandoned.entry(place).or_insert_with(Instant::now).elapsed() < GRACE
    }
}

fn descriptor(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn has_ended(fd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_parent_that_nobody_waited_for_has_no_more_children() {
        let mut family = Family::default();
        assert!(family.may_come(0, std::process::id()));
        assert!(family.abandoned.is_empty());
        let mut parent = Command::new("true").spawn().unwrap();
        let fd = descriptor(parent.id()).unwrap();
        while !has_ended(&fd) {
            std::thread::yield_now();
        }
        family.may_come(0, parent.id());
        assert!(family.abandoned.contains_key(&0), "it is given up once its time is over");
        parent.wait().unwrap();
    }
}
