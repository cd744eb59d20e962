//! The shared-memory channel from a traced program to its collector.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
