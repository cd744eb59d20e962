//! Branch prediction: directions, targets, returns. One predictor a file.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod bimodal;
mod btb;
mod config;
mod counter;
mod fixed;
mod gshare;
mod history;
mod indirect;
mod local;
mod model;
mod perceptron;
mod returns;
mod tage;
mod tournament;

pub use bimodal::Bimodal;
pub use btb::TargetBuffer;
pub use config::{BranchConfig, DirectionConfig, IndirectConfig};
pub use fixed::Fixed;
pub use gshare::Gshare;
pub use indirect::PathTargets;
pub use local::Local;
pub use model::{BranchModel, BranchObserve, BranchReport, PredictionCount};
pub use perceptron::Perceptron;
pub use returns::{Return, ReturnStack};
pub use tage::{Tage, TageConfig};
pub use tournament::Tournament;

use std::fmt::Debug;

use ichnos_base::GuestVa;

/// One executed conditional branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditional {
    /// The branch.
    pub pc: GuestVa,
    /// Where it leads when taken.
    pub target: GuestVa,
    /// Whether it was taken.
    pub taken: bool,
}

/// Predicts the direction of conditional branches.
pub trait Direction: Debug + Send {
    /// Predicts a branch from what came before it, then learns its outcome.
    /// Returns the prediction.
    fn predict(&mut self, branch: &Conditional) -> bool;

    /// Takes note of a control transfer that needs no direction, for predictors
    /// whose history holds those too.
    fn unconditional(&mut self, pc: GuestVa) {
        let _ = pc;
    }
}
