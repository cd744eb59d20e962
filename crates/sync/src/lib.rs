//! Synchronisation of threads: the functions of the C library that do it, and what is to be told when one is called and
//! when it returns. Whoever sees such calls, in whatever way, tells the same.
//!
//! A lock is requested when its function is entered and acquired when that returns, if the result says so; it is released
//! when the function is entered that releases it. Waiting for a condition releases its mutex and acquires it again.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![forbid(unsafe_code)]

mod call;
mod function;

pub use call::{Call, Held, Told, What};
pub use function::{Argument, FUNCTIONS, Function, Operation, WRAPPERS};
