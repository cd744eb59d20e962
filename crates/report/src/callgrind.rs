//! Profiles with calls in callgrind's format (version 1), for
//! `callgrind_annotate` and KCachegrind.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::io::Write;

use ichnos_analyze::profile::{CallRow, FunctionKey, FunctionRow, Gathered, Site};

use crate::cachegrind::Subject;
use crate::error::Error;
use crate::profile_text::{costs, events, name};

/// What each row of costs stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Positions {
    /// A source line.
    #[default]
    Lines,
    /// An instruction and its source line.
    Insns,
}

/// Writes a profile as a `callgrind.out` file.
pub fn write_callgrind(
    out: &mut impl Write,
    subject: &Subject<'_>,
    all: &Gathered,
    positions: Positions,
) -> Result<(), Error> {
    writeln!(out, "# callgrind format\nversion: 1\ncreator: ichnos {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "cmd: {}", name(subject.command))?;
    for note in subject.notes {
        writeln!(out, "desc: {}", name(note))?;
    }
    let words = if positions == Positions::Lines { "line" } else { "instr line" };
    writeln!(out, "positions: {words}\nevents: {}", events(all))?;
    writeln!(out, "summary:{}\n", costs(&all.total, all))?;
    let mut writer = Writer { out, all, positions, numbers: HashMap::new() };
    for (key, row) in &all.functions {
        writer.function(key, row)?;
    }
    writeln!(out, "totals:{}", costs(&all.total, all))?;
    Ok(())
}

struct Writer<'a, W> {
    out: &'a mut W,
    all: &'a Gathered,
    positions: Positions,
    /// Numbers given to names, per sort of name.
    numbers: HashMap<(&'static str, String), usize>,
}

impl<W: Write> Writer<'_, W> {
    /// A name, written out only the first time.
    fn numbered(&mut self, sort: &'static str, text: &str) -> String {
        let next = self.numbers.len() + 1;
        let text = name(text);
        let number = *self.numbers.entry((sort, text.clone())).or_insert(next);
        if number == next { format!("({number}) {text}") } else { format!("({number})") }
    }

    fn function(&mut self, key: &FunctionKey, row: &FunctionRow) -> Result<(), Error> {
        let ob = self.numbered("ob", &key.image);
        let fl = self.numbered("fl", &key.file);
        let function = self.numbered("fn", &key.function);
        writeln!(self.out, "ob={ob}\nfl={fl}\nfn={function}")?;
        match self.positions {
            Positions::Lines => {
                for (line, row) in &row.lines {
                    writeln!(self.out, "{line}{}", costs(row, self.all))?;
                }
            }
            Positions::Insns => {
                for (site, row) in &row.insns {
                    writeln!(self.out, "{}{}", self.position(*site), costs(row, self.all))?;
                }
            }
        }
        for call in &row.calls {
            self.call(call)?;
        }
        writeln!(self.out)?;
        Ok(())
    }

    fn call(&mut self, call: &CallRow) -> Result<(), Error> {
        let ob = self.numbered("ob", &call.to.image);
        let fl = self.numbered("fl", &call.to.file);
        let function = self.numbered("fn", &call.to.function);
        let (from, to) = (self.position(call.from), self.position(call.target));
        writeln!(self.out, "cob={ob}\ncfi={fl}\ncfn={function}\ncalls={} {to}", call.count)?;
        writeln!(self.out, "{from}{}", costs(&call.inclusive, self.all))?;
        Ok(())
    }

    fn position(&self, site: Site) -> String {
        match self.positions {
            Positions::Lines => site.line.to_string(),
            Positions::Insns => format!("{} {}", site.pc, site.line),
        }
    }
}
