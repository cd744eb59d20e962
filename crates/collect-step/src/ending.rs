//! Ways to end a collection before the program ends: let go, kill, abandon.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::thread;
use std::time::Duration;

use ichnos_base::{EndStatus, Sink};

use crate::OnStop;
use crate::engine::{Done, Engine};
use crate::stop::Stop;
use crate::sys::{self, Patience, Resume, Tid};
use crate::tracee::State;

impl<S: Sink> Engine<'_, S> {
    /// Lets go of, or ends, whoever still lives.
    pub(crate) fn end_early(&mut self) -> Done<S> {
        if self.alive.is_empty() {
            return Ok(());
        }
        if self.config.on_stop == OnStop::Detach {
            for id in &self.alive {
                // Failing means that it is about to end anyway.
                let _ = sys::interrupt(self.tracees[id.index()].tid);
            }
        }
        while !self.alive.is_empty() {
            match self.config.on_stop {
                OnStop::Kill => self.kill_all()?,
                OnStop::Detach => self.detach_stopped()?,
            }
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Kills everyone, also those who were made while others were killed.
    fn kill_all(&mut self) -> Done<S> {
        for id in &self.alive {
            let _ = sys::kill(self.pid_of(*id), libc::SIGKILL);
        }
        self.poll()
    }

    /// Detaches all that are stopped; the others were asked to stop.
    fn detach_stopped(&mut self) -> Done<S> {
        for id in self.alive.clone() {
            let stop = match self.tracees[id.index()].state {
                State::Ready => None,
                _ => match self.ask(id, Patience::Ask)? {
                    Some(Stop::Exited(code)) => {
                        self.bury(id, EndStatus::Exited(code))?;
                        continue;
                    }
                    Some(Stop::Killed(signal)) => {
                        self.bury(id, EndStatus::Killed(signal))?;
                        continue;
                    }
                    None => continue,
                    stop => stop,
                },
            };
            if let Some(Stop::Cloned(_)) = stop {
                self.adopt(id)?;
            }
            let tracee = &mut self.tracees[id.index()];
            let signal = match stop {
                Some(Stop::Signal(number)) => number,
                _ => tracee.signal.take().map_or(0, |signal| signal.number),
            };
            let _ = sys::resume(tracee.tid, Resume::Detach, signal);
            self.bury(id, EndStatus::Unknown)?;
        }
        Ok(())
    }

    /// Kills and reaps whoever still lives, telling nobody.
    pub(crate) fn abandon(&mut self) {
        for id in &self.alive {
            let _ = sys::kill(self.pid_of(*id), libc::SIGKILL);
        }
        // The first thread of a process is reported only after all others, so
        // nobody may be waited for singly.
        let mut left: Vec<Tid> =
            self.alive.drain(..).map(|id| self.tracees[id.index()].tid).collect();
        while !left.is_empty() {
            left.retain(|tid| match sys::wait(*tid, Patience::Ask) {
                Ok(Some(status)) => {
                    let gone =
                        matches!(Stop::from_status(status), Stop::Exited(_) | Stop::Killed(_));
                    let _ = sys::resume(*tid, Resume::Cont, 0);
                    !gone
                }
                Ok(None) => true,
                Err(_) => false,
            });
            thread::sleep(Duration::from_micros(100));
        }
    }
}
