//! A loaded library and the model it made: every call across the C interface.
//!
//! What the language cannot check is that the library keeps the contract of
//! `include/ichnos_model.h`; whoever loads a library trusts it with that, as with
//! all else it does in this process. Invariants kept on this side:
//!
//! * The table is copied only after its version is known to be ours.
//! * The model pointer came from `create`, is not null, and goes to functions of
//!   the same library only, one at a time (`&mut self`), until `destroy`.
//! * The library stays loaded as long as the model: `library` is dropped last.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

use libloading::Library;

use crate::Error;
use crate::abi::{ABI, ENTRY, RawBatch, RawRecord, RawReport};
use crate::model::{Finding, Value};

/// `ICHNOS_TELL_SAMPLES`.
const TELL_SAMPLES: u32 = 1;
/// `ICHNOS_REFERENCES_ONLY`.
const REFERENCES_ONLY: u32 = 2;

/// How long a model's sentence about a failure may be.
const SENTENCE: usize = 512;

/// `ichnos_model`. A C function pointer may be null, so all are optional here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawModel {
    abi: u32,
    flags: u32,
    name: *const c_char,
    create: Option<Create>,
    records: Option<Records>,
    thread: Option<Thread>,
    reset: Option<OfModel>,
    report: Option<Report>,
    destroy: Option<OfModel>,
}

/// `create`.
type Create = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> *mut c_void;
/// `records`.
type Records = unsafe extern "C" fn(*mut c_void, *const RawBatch) -> c_int;
/// `thread`.
type Thread = unsafe extern "C" fn(*mut c_void, u32, u32, c_int);
/// `reset` and `destroy`.
type OfModel = unsafe extern "C" fn(*mut c_void);
/// `report`.
type Report = unsafe extern "C" fn(*mut c_void, *const RawReport);
/// `ichnos_model_entry`.
type Entry = unsafe extern "C" fn() -> *const RawModel;

/// A model in a library.
#[derive(Debug)]
pub(crate) struct Loaded {
    name: String,
    flags: u32,
    model: NonNull<c_void>,
    records: Records,
    thread: Option<Thread>,
    reset: Option<OfModel>,
    report: Report,
    destroy: Option<OfModel>,
    /// Keeps the functions above in memory; dropped after `Drop::drop` ran.
    _library: Library,
}

impl Loaded {
    /// Loads a library and makes its model.
    pub(crate) fn new(path: &Path, args: &str) -> Result<Self, Error> {
        let at = || path.to_owned();
        let text = CString::new(args).map_err(|_| Error::ZeroByte { path: at() })?;
        // SAFETY: loading runs the library's initialisers, which the user who named
        // the library trusts like the rest of it.
        let library = unsafe { Library::new(path) }
            .map_err(|e| Error::Load { path: at(), reason: reason(&e) })?;
        let table = table(&library, path)?;
        let lacks = |what| Error::Lacks { path: at(), what };
        let create = table.create.ok_or_else(|| lacks("create"))?;
        let records = table.records.ok_or_else(|| lacks("records"))?;
        let report = table.report.ok_or_else(|| lacks("report"))?;
        if table.name.is_null() {
            return Err(lacks("name"));
        }
        // SAFETY: the name is not null, and by the contract a string that lives as
        // long as the library; it is copied here.
        let name = unsafe { CStr::from_ptr(table.name) }.to_string_lossy().into_owned();
        let mut sentence = [0; SENTENCE];
        let room: *mut c_char = sentence.as_mut_ptr().cast();
        // SAFETY: both texts live until the call returns, and the last byte of
        // the room is kept from the library, so it stays the end.
        let model = unsafe { create(text.as_ptr(), room, SENTENCE - 1) };
        let Some(model) = NonNull::new(model) else {
            let said = CStr::from_bytes_until_nul(&sentence).unwrap_or_default();
            let reason = said.to_string_lossy().into_owned();
            return Err(Error::Refused { path: at(), args: args.to_owned(), reason });
        };
        let RawModel { thread, reset, destroy, .. } = table;
        let flags = table.flags;
        Ok(Self { name, flags, model, records, thread, reset, report, destroy, _library: library })
    }

    /// What the model calls itself.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the model looks at references alone.
    pub(crate) const fn takes_references(&self) -> bool {
        self.flags & REFERENCES_ONLY != 0
    }

    /// Shows records; whether the model wants more.
    pub(crate) fn records(&mut self, batch: &Told<'_>) -> bool {
        let raw = RawBatch {
            thread: batch.thread,
            process: batch.process,
            insns_before: batch.insns_before,
            records: batch.records.as_ptr(),
            count: batch.records.len(),
        };
        // SAFETY: the model is alive and not in use elsewhere; the batch and its
        // records outlive the call.
        let enough = unsafe { (self.records)(self.model.as_ptr(), &raw) };
        enough == 0
    }

    /// Tells of a thread.
    pub(crate) fn thread(&mut self, thread: u32, process: u32, alive: Alive) {
        let told = alive != Alive::Sampled || self.flags & TELL_SAMPLES != 0;
        if let Some(function) = self.thread.filter(|_| told) {
            // SAFETY: the model is alive and not in use elsewhere.
            unsafe { function(self.model.as_ptr(), thread, process, alive as _) };
        }
    }

    /// Tells that a warm-up is over; whether the model knows what that means.
    pub(crate) fn reset(&mut self) -> bool {
        if let Some(function) = self.reset {
            // SAFETY: the model is alive and not in use elsewhere.
            unsafe { function(self.model.as_ptr()) };
        }
        self.reset.is_some()
    }

    /// Asks for the results.
    pub(crate) fn report(&mut self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        let raw = RawReport {
            context: (&raw mut findings).cast(),
            count: take_count,
            number: take_number,
            text: take_text,
        };
        // SAFETY: the model is alive and not in use elsewhere; the context is the
        // vector above, which nothing else touches until the call is over.
        unsafe { (self.report)(self.model.as_ptr(), &raw) };
        findings
    }
}

impl Loaded {
    /// Asks for the counts among the results alone, in their order: what is cheap enough to be asked often.
    pub(crate) fn counts(&mut self, counts: &mut Vec<u64>) {
        counts.clear();
        let raw = RawReport {
            context: std::ptr::from_mut(counts).cast(),
            count: note_count,
            number: no_number,
            text: no_text,
        };
        // SAFETY: the model is alive and not in use elsewhere; the context is the
        // caller's vector, which nothing else touches until the call is over.
        unsafe { (self.report)(self.model.as_ptr(), &raw) };
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the model is alive, and not used after this.
            unsafe { destroy(self.model.as_ptr()) };
        }
    }
}

/// Whether a thread begins, has ended, or begins to be seen again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alive {
    Ended = 0,
    Begins = 1,
    Sampled = 2,
}

/// A batch in the words of the interface.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) thread: u32,
    pub(crate) process: u32,
    pub(crate) insns_before: u64,
    pub(crate) records: &'a [RawRecord],
}

/// The library's table of functions, once its version is known to be ours.
/// What the loader said, which is the cause of the error that says which call failed.
fn reason(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn table(library: &Library, path: &Path) -> Result<RawModel, Error> {
    let path = || path.to_owned();
    // SAFETY: a library that exports this name means the header's function by it.
    let entry = unsafe { library.get::<Entry>(ENTRY) }
        .map_err(|e| Error::NoEntry { path: path(), reason: e.to_string() })?;
    // SAFETY: the function takes nothing, and its library is loaded.
    let table = unsafe { entry() };
    if table.is_null() {
        return Err(Error::Lacks { path: path(), what: ENTRY });
    }
    // SAFETY: every version's table begins with its version, and the table
    // lives as long as the library.
    let found = unsafe { (&raw const (*table).abi).read() };
    if found != ABI {
        return Err(Error::Version { path: path(), found });
    }
    // SAFETY: it is of our version, so it has all of our fields.
    Ok(unsafe { table.read() })
}

extern "C" fn take_count(context: *mut c_void, key: *const c_char, value: u64) {
    take(context, key, Value::Count(value));
}

extern "C" fn take_number(context: *mut c_void, key: *const c_char, value: f64) {
    take(context, key, Value::Number(value));
}

extern "C" fn take_text(context: *mut c_void, key: *const c_char, value: *const c_char) {
    take(context, key, Value::Text(copied(value)));
}

extern "C" fn note_count(context: *mut c_void, _: *const c_char, value: u64) {
    // SAFETY: the contract has the model give back the context of the report that
    // it was called with, and that is a vector that waits for this.
    if let Some(counts) = unsafe { context.cast::<Vec<u64>>().as_mut() } {
        counts.push(value);
    }
}

extern "C" fn no_number(_: *mut c_void, _: *const c_char, _: f64) {}

extern "C" fn no_text(_: *mut c_void, _: *const c_char, _: *const c_char) {}

fn take(context: *mut c_void, key: *const c_char, value: Value) {
    // SAFETY: the contract has the model give back the context of the report that
    // it was called with, and that is a vector that waits for this.
    if let Some(findings) = unsafe { context.cast::<Vec<Finding>>().as_mut() } {
        findings.push(Finding { key: copied(key), value });
    }
}

fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, and by the contract ends with 0.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
