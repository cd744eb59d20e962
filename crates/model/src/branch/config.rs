//! Which predictors a branch model has.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::Direction;
use super::bimodal::Bimodal;
use super::fixed::Fixed;
use super::gshare::Gshare;
use super::local::Local;
use super::perceptron::Perceptron;
use super::tage::{Tage, TageConfig};
use super::tournament::Tournament;
use crate::Error;
use crate::error::range;

/// A direction predictor by name and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DirectionConfig {
    /// A static rule.
    Fixed(Fixed),
    /// See [`Bimodal`].
    Bimodal {
        /// Counters, as a power of two.
        log_entries: u32,
    },
    /// See [`Gshare`].
    Gshare {
        /// Counters, as a power of two.
        log_entries: u32,
        /// Outcomes.
        history: u32,
    },
    /// See [`Local`].
    Local {
        /// Histories, as a power of two.
        log_entries: u32,
        /// Outcomes in each.
        history: u32,
    },
    /// See [`Tournament`].
    Tournament {
        /// Local histories, as a power of two.
        log_local: u32,
        /// Outcomes in each.
        local_history: u32,
        /// Global counters, as a power of two.
        log_global: u32,
    },
    /// See [`Perceptron`].
    Perceptron {
        /// Perceptrons.
        entries: u32,
        /// Outcomes.
        history: u32,
    },
    /// See [`Tage`].
    Tage(TageConfig),
}

impl DirectionConfig {
    /// One of each sort, in usual sizes (about 4 KiB of state, the static rules
    /// none and TAGE 16 KiB), with their names.
    pub const ALL: [(&'static str, Self); 9] = [
        ("taken", Self::Fixed(Fixed::Taken)),
        ("not-taken", Self::Fixed(Fixed::NotTaken)),
        ("btfn", Self::Fixed(Fixed::BackwardTaken)),
        ("bimodal", Self::Bimodal { log_entries: 14 }),
        ("gshare", Self::Gshare { log_entries: 14, history: 14 }),
        ("local", Self::Local { log_entries: 10, history: 12 }),
        // The Alpha 21264's sizes (Kessler, IEEE Micro 1999).
        ("tournament", Self::Tournament { log_local: 10, local_history: 10, log_global: 12 }),
        ("perceptron", Self::Perceptron { entries: 128, history: 31 }),
        (
            "tage",
            Self::Tage(TageConfig {
                tables: 8,
                log_entries: 10,
                log_bimodal: 13,
                tag_bits: 10,
                shortest: 4,
                longest: 256,
            }),
        ),
    ];

    /// The names of all sizes that predictors have.
    pub const SIZES: [&'static str; 11] = [
        "log_entries",
        "history",
        "entries",
        "log_local",
        "local_history",
        "log_global",
        "tables",
        "log_bimodal",
        "tag_bits",
        "shortest",
        "longest",
    ];

    /// The predictor of that name in its usual size.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|&(known, _)| known == name).map(|(_, config)| config)
    }

    /// The size of that name, if the predictor has it; sizes have the names of the
    /// fields here.
    pub fn size_mut(&mut self, name: &str) -> Option<&mut u32> {
        Some(match (self, name) {
            (Self::Bimodal { log_entries }, "log_entries")
            | (Self::Gshare { log_entries, .. }, "log_entries")
            | (Self::Local { log_entries, .. }, "log_entries") => log_entries,
            (Self::Gshare { history, .. }, "history")
            | (Self::Local { history, .. }, "history")
            | (Self::Perceptron { history, .. }, "history") => history,
            (Self::Tournament { log_local, .. }, "log_local") => log_local,
            (Self::Tournament { local_history, .. }, "local_history") => local_history,
            (Self::Tournament { log_global, .. }, "log_global") => log_global,
            (Self::Perceptron { entries, .. }, "entries") => entries,
            (Self::Tage(tage), "tables") => &mut tage.tables,
            (Self::Tage(tage), "log_entries") => &mut tage.log_entries,
            (Self::Tage(tage), "log_bimodal") => &mut tage.log_bimodal,
            (Self::Tage(tage), "tag_bits") => &mut tage.tag_bits,
            (Self::Tage(tage), "shortest") => &mut tage.shortest,
            (Self::Tage(tage), "longest") => &mut tage.longest,
            _ => return None,
        })
    }

    fn check(&self) -> Result<(), Error> {
        let log = |field, value: u32| range(field, u64::from(value), 1, 28);
        match *self {
            Self::Fixed(_) => Ok(()),
            Self::Bimodal { log_entries } => log("bimodal.log_entries", log_entries),
            Self::Gshare { log_entries, history } => {
                log("gshare.log_entries", log_entries)?;
                range("gshare.history", u64::from(history), 0, 63)
            }
            Self::Local { log_entries, history } => {
                log("local.log_entries", log_entries)?;
                range("local.history", u64::from(history), 1, 24)
            }
            Self::Tournament { log_local, local_history, log_global } => {
                log("tournament.log_local", log_local)?;
                range("tournament.local_history", u64::from(local_history), 1, 24)?;
                log("tournament.log_global", log_global)
            }
            Self::Perceptron { entries, history } => {
                range("perceptron.entries", u64::from(entries), 1, 1 << 20)?;
                range("perceptron.history", u64::from(history), 0, 256)
            }
            Self::Tage(tage) => {
                range("tage.tables", u64::from(tage.tables), 1, 20)?;
                range("tage.log_entries", u64::from(tage.log_entries), 1, 20)?;
                log("tage.log_bimodal", tage.log_bimodal)?;
                range("tage.tag_bits", u64::from(tage.tag_bits), 2, 30)?;
                range("tage.shortest", u64::from(tage.shortest), 1, 1000)?;
                let least = u64::from(tage.shortest) + 1;
                range("tage.longest", u64::from(tage.longest), least, 4000)
            }
        }
    }

    /// A cold predictor.
    #[must_use]
    pub fn build(&self) -> Box<dyn Direction> {
        match *self {
            Self::Fixed(rule) => Box::new(rule),
            Self::Bimodal { log_entries } => Box::new(Bimodal::new(log_entries)),
            Self::Gshare { log_entries, history } => Box::new(Gshare::new(log_entries, history)),
            Self::Local { log_entries, history } => Box::new(Local::new(log_entries, history)),
            Self::Tournament { log_local, local_history, log_global } => {
                Box::new(Tournament::new(log_local, local_history, log_global))
            }
            Self::Perceptron { entries, history } => Box::new(Perceptron::new(entries, history)),
            Self::Tage(tage) => Box::new(Tage::new(tage)),
        }
    }
}

/// How indirect targets are predicted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndirectConfig {
    /// By the target buffer: the last target.
    LastTarget,
    /// By the path; see [`super::PathTargets`].
    Path {
        /// Targets in each table, as a power of two.
        log_entries: u32,
    },
}

/// A whole front end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BranchConfig {
    /// Of conditional branches.
    pub direction: DirectionConfig,
    /// Sets of the target buffer.
    pub btb_sets: u32,
    /// Ways of the target buffer.
    pub btb_ways: u32,
    /// Depth of the return stack.
    pub returns: u32,
    /// Of indirect jumps and calls.
    pub indirect: IndirectConfig,
}

impl Default for BranchConfig {
    fn default() -> Self {
        Self {
            direction: DirectionConfig::Tage(TageConfig::default()),
            btb_sets: 1024,
            btb_ways: 4,
            returns: 16,
            indirect: IndirectConfig::Path { log_entries: 9 },
        }
    }
}

impl BranchConfig {
    /// Checks all numbers.
    ///
    /// # Errors
    ///
    /// The first field out of range.
    pub fn check(&self) -> Result<(), Error> {
        self.direction.check()?;
        range("btb.sets", u64::from(self.btb_sets), 1, 1 << 24)?;
        range("btb.ways", u64::from(self.btb_ways), 1, 64)?;
        range("returns", u64::from(self.returns), 1, 1 << 16)?;
        match self.indirect {
            IndirectConfig::LastTarget => Ok(()),
            IndirectConfig::Path { log_entries } => {
                range("indirect.log_entries", u64::from(log_entries), 1, 24)
            }
        }
    }
}
