//! Tables: made once, shown as aligned text, as CSV or as JSON.
//!
//! A column has a key (for CSV and JSON, where numbers stay plain) and a title
//! (for text, where they are made readable).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;

use ichnos_base::GuestVa;
use serde_json::{Map, Value};

use crate::number;

/// One value in a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Nothing known.
    Empty,
    /// Words, aligned to the left.
    Text(String),
    /// A count, shown with commas.
    Count(u64),
    /// A number that names something, shown as it is.
    Id(u64),
    /// A number with so many digits after the point.
    Number(f64, usize),
    /// A share of 1, shown as a percentage.
    Share(f64),
    /// An amount of memory in bytes, shown with a binary unit.
    Bytes(u64),
    /// An address, in hexadecimal everywhere.
    Address(GuestVa),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

/// Rows of values under named columns. Rows that are too short are filled with
/// nothing, those that are too long lose their rest.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, PartialEq, Debug)]
struct Column {
    key: String,
    title: String,
    text: InText,
}

/// Whether text has a column; CSV and JSON have them all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InText {
    Always,
    /// If it is not all zeros.
    NotZero,
    Never,
}

impl Table {
    /// A table with these columns, each a key and a title.
    #[must_use]
    pub fn new(columns: &[(&str, &str)]) -> Self {
        let mut table = Self::default();
        for (key, title) in columns {
            table.column(key, title);
        }
        table
    }

    /// Adds a column on the right.
    pub fn column(&mut self, key: &str, title: &str) -> &mut Self {
        self.add(key, title, InText::Always)
    }

    /// Adds a column that text leaves out if there are only zeros in it.
    pub fn column_unless_zero(&mut self, key: &str, title: &str) -> &mut Self {
        self.add(key, title, InText::NotZero)
    }

    /// Adds a column that text leaves out.
    pub fn column_of_data(&mut self, key: &str) -> &mut Self {
        self.add(key, key, InText::Never)
    }

    fn add(&mut self, key: &str, title: &str, text: InText) -> &mut Self {
        self.columns.push(Column { key: key.into(), title: title.into(), text });
        for row in &mut self.rows {
            row.push(Cell::Empty);
        }
        self
    }

    /// Adds a row at the bottom.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) -> &mut Self {
        let mut row: Vec<_> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), Cell::Empty);
        self.rows.push(row);
        self
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned text: titles, then rows; words to the left, numbers to the right.
    #[must_use]
    pub fn to_text(&self) -> String {
        let columns: Vec<usize> = (0..self.columns.len()).filter(|&i| self.is_in_text(i)).collect();
        let row = |row: &Vec<Cell>| columns.iter().map(|&i| row[i].shown()).collect();
        let shown: Vec<Vec<String>> = self.rows.iter().map(row).collect();
        let titles: Vec<_> = columns.iter().map(|&i| self.columns[i].title.clone()).collect();
        let all = || std::iter::once(&titles).chain(&shown);
        let width =
            |i| all().filter_map(|row| row.get(i)).map(|text: &String| text.chars().count()).max();
        let widths: Vec<_> = (0..columns.len()).map(|i| width(i).unwrap_or(0)).collect();
        let numeric: Vec<_> = columns.iter().map(|&i| self.is_numeric(i)).collect();
        let mut out = String::new();
        for row in all() {
            let mut line = String::new();
            for (i, text) in row.iter().enumerate() {
                let (gap, width) = (if i == 0 { "" } else { "  " }, widths[i]);
                // Writing to a string cannot fail.
                let _ = match numeric[i] {
                    true => write!(line, "{gap}{text:>width$}"),
                    false => write!(line, "{gap}{text:<width$}"),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// CSV as in RFC 4180, keys first, numbers plain.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let keys: Vec<_> = self.columns.iter().map(|c| quote(&c.key)).collect();
        let mut out = keys.join(",") + "\r\n";
        for row in &self.rows {
            let cells: Vec<_> = row.iter().map(|cell| quote(&cell.plain())).collect();
            out += &(cells.join(",") + "\r\n");
        }
        out
    }

    /// A list with one object per row. What is not known is null.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Value {
            let pairs = self.columns.iter().zip(row);
            pairs.map(|(c, cell)| (c.key.clone(), cell.json())).collect::<Map<_, _>>().into()
        };
        self.rows.iter().map(object).collect()
    }

    fn is_in_text(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        match self.columns[column].text {
            InText::Always => true,
            InText::NotZero => !cells.all(|cell| matches!(cell, Cell::Count(0) | Cell::Empty)),
            InText::Never => false,
        }
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        !cells.any(|cell| matches!(cell, Cell::Text(_)))
    }
}

impl Cell {
    /// A part's share of a whole; nothing of nothing is not known.
    #[must_use]
    pub fn ratio(part: u64, whole: u64) -> Self {
        if whole == 0 { Self::Empty } else { Self::Share(part as f64 / whole as f64) }
    }

    /// So many per thousand, as in misses per thousand instructions.
    #[must_use]
    pub fn per_thousand(part: u64, whole: u64) -> Self {
        if whole == 0 { Self::Empty } else { Self::Number(part as f64 * 1e3 / whole as f64, 2) }
    }

    /// For people.
    fn shown(&self) -> String {
        match self {
            Self::Empty => "-".into(),
            Self::Text(text) => text.clone(),
            Self::Count(n) => number::thousands(*n),
            Self::Id(n) => n.to_string(),
            Self::Number(n, digits) => format!("{n:.digits$}"),
            Self::Share(share) => number::percent(*share, 1.0),
            Self::Bytes(n) => number::bytes(*n),
            Self::Address(addr) => addr.to_string(),
        }
    }

    /// For programs.
    fn plain(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Count(n) | Self::Id(n) | Self::Bytes(n) => n.to_string(),
            Self::Number(n, _) | Self::Share(n) => n.to_string(),
            Self::Text(_) | Self::Address(_) => self.shown(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Empty => Value::Null,
            Self::Count(n) | Self::Id(n) | Self::Bytes(n) => (*n).into(),
            // Infinities and the like have no place in JSON and become null.
            Self::Number(n, _) | Self::Share(n) => (*n).into(),
            Self::Text(_) | Self::Address(_) => self.shown().into(),
        }
    }
}

fn quote(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new(&[("name", "name"), ("insns", "instructions"), ("miss", "miss rate")]);
        table.row(["main, \"x\"".into(), 1_234_567.into(), Cell::Share(0.125)]);
        table.row(["é".into(), 5.into()]);
        table
    }

    #[test]
    fn text_is_aligned() {
        let expected = "\
name       instructions  miss rate
main, \"x\"     1,234,567     12.50%
é                     5          -
";
        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn text_leaves_out_zeros_and_data() {
        let mut table = Table::new(&[("name", "name")]);
        table.column_unless_zero("a", "a").column_unless_zero("b", "b").column_of_data("c");
        table.row(["x".into(), 0.into(), 0.into(), 7.into()]);
        table.row(["y".into(), Cell::Empty, 5.into(), 8.into()]);
        assert_eq!(table.to_text(), "name  b\nx     0\ny     5\n");
        assert_eq!(table.to_csv(), "name,a,b,c\r\nx,0,0,7\r\ny,,5,8\r\n");
        assert_eq!(table.to_json()[0]["c"], 7);
    }

    #[test]
    fn csv_is_quoted_and_plain() {
        assert_eq!(
            table().to_csv(),
            "name,insns,miss\r\n\"main, \"\"x\"\"\",1234567,0.125\r\né,5,\r\n"
        );
    }

    #[test]
    fn json_has_keys_and_plain_numbers() {
        let json = table().to_json();
        assert_eq!(json[0]["insns"], 1_234_567);
        assert_eq!(json[0]["miss"], 0.125);
        assert_eq!(json[1]["miss"], Value::Null);
        assert_eq!(json[1]["name"], "é");
    }
}
