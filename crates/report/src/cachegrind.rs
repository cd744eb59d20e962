//! Profiles in cachegrind's format, for `cg_annotate` and what else reads it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::io::Write;

use ichnos_analyze::profile::{FunctionRow, Gathered};

use crate::error::Error;
use crate::profile_text::{costs, events, name};

/// What a profile is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Subject<'a> {
    /// The command, as the user would type it.
    pub command: &'a str,
    /// What else is worth knowing, such as the caches simulated; a line each.
    pub notes: &'a [&'a str],
}

/// Writes a profile as a `cachegrind.out` file.
pub fn write_cachegrind(
    out: &mut impl Write,
    subject: &Subject<'_>,
    all: &Gathered,
) -> Result<(), Error> {
    for note in subject.notes {
        writeln!(out, "desc: {}", name(note))?;
    }
    writeln!(out, "cmd: {}", name(subject.command))?;
    writeln!(out, "events: {}", events(all))?;
    // The format has no place for images: functions of one name and file are one.
    let mut functions = BTreeMap::<(String, String), Vec<&FunctionRow>>::new();
    for (key, row) in &all.functions {
        functions.entry((name(&key.file), name(&key.function))).or_default().push(row);
    }
    let mut file = None;
    for ((fl, function), rows) in &functions {
        if file != Some(fl) {
            writeln!(out, "fl={fl}")?;
            file = Some(fl);
        }
        writeln!(out, "fn={function}")?;
        for (line, row) in rows.iter().flat_map(|row| &row.lines) {
            writeln!(out, "{line}{}", costs(row, all))?;
        }
    }
    writeln!(out, "summary:{}", costs(&all.total, all))?;
    Ok(())
}
