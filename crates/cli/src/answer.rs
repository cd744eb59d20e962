//! An answer: facts and tables, printed as text, JSON or CSV.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;

use anyhow::Result;
use clap::Args;
use ichnos_report::Table;
use serde_json::{Map, Value};

/// How an answer is printed.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FormatArgs {
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV; several tables are parted by an empty line.
    #[arg(long)]
    csv: bool,
}

impl FormatArgs {
    /// Whether the answer is for people.
    pub const fn is_text(self) -> bool {
        !self.json && !self.csv
    }
}

/// Who else uses standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nobody.
    Free,
    /// The program that was traced: text goes to standard error, unless it was
    /// asked for in a machine's form.
    Shared,
}

/// Prints text; a reader that goes away (`| head`) is an error, not a panic.
pub fn out(text: &str) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Facts and tables.
#[derive(Default)]
pub struct Answer {
    headline: String,
    facts: Map<String, Value>,
    sections: Vec<Section>,
}

struct Section {
    key: String,
    title: String,
    table: Table,
    note: String,
}

impl Answer {
    /// An answer that begins with a line of text.
    pub fn new(headline: String) -> Self {
        Self { headline, ..Self::default() }
    }

    /// Adds a value that only JSON shows.
    pub fn fact(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.facts.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a table under a key for JSON and a title for people.
    pub fn table(&mut self, key: &str, title: &str, table: Table) -> &mut Self {
        let (key, title) = (key.to_owned(), title.to_owned());
        self.sections.push(Section { key, title, table, note: String::new() });
        self
    }

    /// Adds a line of text under the last table.
    pub fn note(&mut self, text: &str) -> &mut Self {
        if let Some(section) = self.sections.last_mut() {
            section.note.push_str(text);
        }
        self
    }

    /// Prints it.
    pub fn print(&self, format: FormatArgs, stage: Stage) -> Result<()> {
        if format.json {
            out(&format!("{}\n", self.to_json()))
        } else if format.csv {
            out(&self.to_csv())
        } else if stage == Stage::Shared {
            let mark = if self.headline.is_empty() { "" } else { "ichnos: " };
            eprint!("\n{mark}{}", self.to_text());
            Ok(())
        } else {
            out(&self.to_text())
        }
    }

    fn to_json(&self) -> Value {
        let tables = self.sections.iter().map(|s| (s.key.clone(), s.table.to_json()));
        Value::Object(self.facts.clone().into_iter().chain(tables).collect())
    }

    fn to_csv(&self) -> String {
        let tables: Vec<_> = self.sections.iter().map(|s| s.table.to_csv()).collect();
        tables.join("\r\n")
    }

    fn to_text(&self) -> String {
        let mut text = self.headline.clone();
        if !text.is_empty() {
            text.push('\n');
        }
        for (at, section) in self.sections.iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            if !section.title.is_empty() {
                text.push_str(&section.title);
                text.push('\n');
            }
            text.push_str(&section.table.to_text());
            text.push_str(&section.note);
        }
        text
    }
}
