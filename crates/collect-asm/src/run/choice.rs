//! What of a run is recorded, when that is not everything.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use ichnos_base::GuestVa;
use ichnos_rt::Word;

use super::Config;
use crate::Error;
use crate::code::{Switching, Trigger};

/// Who skips fewer events than this at a time wants each of them to be looked at; who skips the rest of the run has one window,
/// which begins where it was told.
const FEW: u64 = 64;
/// So many events that nobody counts them.
pub(crate) const NEVER: u64 = i64::MAX as u64 / 2;

/// When threads are recorded, and where that can change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// When.
    pub when: When,
    /// Where.
    pub events: Events,
    /// Where in these functions, by name.
    pub events_for: Vec<(String, Events)>,
}

/// When threads are recorded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum When {
    /// Each thread counts its own events.
    Counted {
        /// So many at its beginning are not recorded,
        first: u64,
        /// then so many are,
        recorded: u64,
        /// then, in turns, so many are not.
        skipped: u64,
    },
    /// From where a function is entered until another one is; again and again. Only functions with notes.
    Functions {
        /// The first.
        start: String,
        /// The other; if there is none, to the end.
        stop: Option<String>,
    },
    /// While a word in memory is not zero. All threads of all processes look at it, at their events.
    Shared(Arc<Word>),
}

/// Where a thread can begin and cease to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Events {
    /// Where a function is entered.
    #[default]
    Calls,
    /// There, and where a turn of a loop begins.
    CallsAndLoops,
    /// Where a turn of a loop begins.
    Loops,
    /// Nowhere.
    None,
}

impl Events {
    pub(crate) const fn calls(self) -> bool {
        matches!(self, Self::Calls | Self::CallsAndLoops)
    }

    pub(crate) const fn loops(self) -> bool {
        matches!(self, Self::Loops | Self::CallsAndLoops)
    }
}

impl Choice {
    /// Records when `when` says, switching at calls.
    #[must_use]
    pub const fn new(when: When) -> Self {
        Self { when, events: Events::Calls, events_for: Vec::new() }
    }

    /// In turns, so many events of each thread not and then so many.
    #[must_use]
    pub const fn sample(skipped: u64, recorded: u64) -> Self {
        Self::new(When::Counted { first: skipped, recorded, skipped })
    }

    /// One window of each thread: after `start` events and for `len`.
    #[must_use]
    pub const fn window(start: u64, len: u64) -> Self {
        Self::new(When::Counted { first: start, recorded: len, skipped: NEVER })
    }
}

impl Config {
    /// How threads of a program switch, if they do. `find` tells where a function lies in it.
    pub(super) fn switching(
        &self,
        find: impl Fn(&str) -> Result<GuestVa, Error>,
    ) -> Result<Option<Switching>, Error> {
        let Some(choice) = &self.choice else { return Ok(None) };
        let trigger = match &choice.when {
            When::Counted { recorded, skipped, .. } => {
                let (exec, inst) = ((*skipped).clamp(1, NEVER), (*recorded).clamp(1, NEVER));
                Trigger::Counted { exec, inst }
            }
            When::Functions { start, stop } => {
                let stop = stop.as_deref().map(&find).transpose()?;
                Trigger::Named { start: find(start)?, stop }
            }
            When::Shared(_) => Trigger::Shared,
        };
        let of = choice.events_for.iter().map(|(name, events)| Ok((find(name)?, *events)));
        let of = of.collect::<Result<_, Error>>()?;
        let together = match trigger {
            Trigger::Counted { exec, .. } => (FEW..NEVER).contains(&exec),
            Trigger::Shared => true,
            Trigger::Named { .. } => false,
        };
        Ok(Some(Switching { trigger, events: choice.events, of, together }))
    }

    /// The word that switches, if one does.
    pub(super) fn word(&self) -> Option<&Word> {
        match &self.choice.as_ref()?.when {
            When::Shared(word) => Some(word),
            _ => None,
        }
    }

    /// How many events a thread has before it is recorded.
    pub(super) fn first_count(&self) -> u64 {
        match self.choice.as_ref().map(|c| &c.when) {
            Some(When::Counted { first, .. }) => (*first).min(NEVER),
            _ => 0,
        }
    }
}
