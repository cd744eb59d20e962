//! What can be wrong with a model's configuration. Models themselves cannot
//! fail: every record that a trace can hold has a defined effect.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::{error, fmt};

/// A configuration that makes no sense, and the field that is to blame.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A number lies outside what the field allows.
    Range {
        /// The field, as a path: `l1d.ways`.
        field: String,
        /// What was given.
        got: u64,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
    },
    /// A number must be a power of two and is not.
    PowerOfTwo {
        /// The field, as a path.
        field: String,
        /// What was given.
        got: u64,
    },
    /// A number does not suit another setting.
    Unsuited {
        /// The field, as a path.
        field: String,
        /// What was given.
        got: u64,
        /// What it must be.
        needs: &'static str,
        /// For which setting.
        setting: &'static str,
    },
    /// A number must be a multiple of another and is not.
    Multiple {
        /// The field, as a path.
        field: String,
        /// What was given.
        got: u64,
        /// What it must be a multiple of.
        of: u64,
        /// What that number is.
        why: &'static str,
    },
    /// Two settings do not go together.
    Conflict {
        /// The field, as a path.
        field: String,
        /// Why not.
        why: &'static str,
    },
    /// A word that is none of those that there are.
    Word {
        /// The field, as a path.
        field: String,
        /// What was given.
        got: String,
        /// Those that there are.
        known: String,
    },
    /// A combination of a sweep that makes no sense.
    Point {
        /// The fields and their values.
        values: String,
        /// Why not.
        error: Box<Self>,
    },
    /// A text that says neither a number nor a known word.
    Text {
        /// The field, as a path.
        field: String,
        /// What was given.
        got: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { field, got, least, most } => {
                write!(f, "{field} must lie between {least} and {most}, but is {got}")
            }
            Self::PowerOfTwo { field, got } => {
                write!(f, "{field} must be a power of two, but is {got}")
            }
            Self::Unsuited { field, got, needs, setting } => {
                write!(f, "{field} must be {needs} for {setting}, but is {got}")
            }
            Self::Multiple { field, got, of, why } => {
                write!(f, "{field} must be a multiple of {of} ({why}), but is {got}")
            }
            Self::Conflict { field, why } => write!(f, "{field}: {why}"),
            Self::Word { field, got, known } => {
                write!(f, "{field}: expected {known}, got \"{got}\"")
            }
            Self::Point { values, error } => write!(f, "{error}, in the combination {values}"),
            Self::Text { field, got, expected } => {
                write!(f, "{field}: expected {expected}, got \"{got}\"")
            }
        }
    }
}

impl error::Error for Error {}

/// Checks that `got` lies in `least..=most`.
pub(crate) fn range(field: &str, got: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&got) {
        Ok(())
    } else {
        Err(Error::Range { field: field.to_owned(), got, least, most })
    }
}

/// Checks that `got` is a power of two.
pub(crate) fn power_of_two(field: &str, got: u64) -> Result<(), Error> {
    if got.is_power_of_two() {
        Ok(())
    } else {
        Err(Error::PowerOfTwo { field: field.to_owned(), got })
    }
}

/// The error of two settings that do not go together.
pub(crate) fn conflict(field: &str, why: &'static str) -> Error {
    Error::Conflict { field: field.to_owned(), why }
}
