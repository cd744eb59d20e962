//! The C interface as Rust sees it: the types of `include/ichnos_model.h`, field
//! by field, and records as they are told there; the table of functions is with its
//! callers in `library.rs`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{c_char, c_void};

use ichnos_base::Record;

/// The version of the interface.
pub const ABI: u32 = 1;

/// The function that a library exports.
pub(crate) const ENTRY: &str = "ichnos_model_entry";

/// `ichnos_record`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawRecord {
    pub(crate) kind: u8,
    pub(crate) detail: u8,
    unused: u16,
    pub(crate) size: u32,
    pub(crate) addr: u64,
}

const _: () = assert!(size_of::<RawRecord>() == 16);

impl RawRecord {
    #[inline]
    const fn new(kind: u8, detail: u8, size: u32, addr: u64) -> Self {
        Self { kind, detail, unused: 0, size, addr }
    }
}

impl From<&Record> for RawRecord {
    #[inline]
    fn from(record: &Record) -> Self {
        match *record {
            // The four with the same fields first: they are one case to the processor.
            Record::Load { flags, size, addr } => Self::new(1, flags.0, size, addr.0),
            Record::Store { flags, size, addr } => Self::new(2, flags.0, size, addr.0),
            Record::Prefetch { flags, size, addr } => Self::new(3, flags.0, size, addr.0),
            Record::Flush { flags, size, addr } => Self::new(4, flags.0, size, addr.0),
            Record::Insn { len, kind, pc } => Self::new(0, kind.0, u32::from(len), pc.0),
            Record::Branch { taken, target } => Self::new(5, u8::from(taken), 0, target.0),
        }
    }
}

/// `ichnos_batch`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawBatch {
    pub(crate) thread: u32,
    pub(crate) process: u32,
    pub(crate) insns_before: u64,
    pub(crate) records: *const RawRecord,
    pub(crate) count: usize,
}

/// `ichnos_report`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawReport {
    pub(crate) context: *mut c_void,
    pub(crate) count: extern "C" fn(*mut c_void, *const c_char, u64),
    pub(crate) number: extern "C" fn(*mut c_void, *const c_char, f64),
    pub(crate) text: extern "C" fn(*mut c_void, *const c_char, *const c_char),
}
