//! The program as its users meet it: every verb, every message, every exit status.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod annotate;
mod choice;
mod cloned;
mod configure;
mod equality;
mod failures;
mod gaps;
mod info;
mod inline;
mod inline_compare;
mod inline_kernel;
mod inline_kernels;
mod inline_later;
mod inline_libraries;
mod inline_projects;
mod inline_rust;
mod inline_stress;
mod inline_sync;
mod models;
mod profile;
mod programs;
mod record;
mod samples;
mod spool;
mod support;
mod switching;
mod tools;
mod unpacked;
mod verbs;
