//! A sweep as people write it: `l1d.size=8K..1M,l1d.ways=1,2,4,8`.
//!
//! Each `field=` begins an axis; what follows up to the next one are its values.
//! `A..B` stands for A and all its doublings up to B. Every combination is one
//! point.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::{conflict, range};
use crate::size::parse_size;
use crate::{Error, HierarchyConfig};

/// The most points of a sweep.
const MOST_POINTS: u64 = 1 << 16;

/// One field and the values it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axis {
    /// The field, as in [`HierarchyConfig::set`].
    pub field: String,
    /// Its values.
    pub values: Vec<String>,
}

/// All combinations of the values of some fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grid {
    /// The fields; the last one varies fastest.
    pub axes: Vec<Axis>,
}

/// One combination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridPoint {
    /// The value of each axis.
    pub values: Vec<String>,
    /// The hierarchy with those values.
    pub config: HierarchyConfig,
}

impl Grid {
    /// Reads a sweep.
    ///
    /// ```
    /// use ichnos_model::Grid;
    ///
    /// let grid = Grid::parse("l1d.size=8K..32K,l1d.ways=1,2")?;
    /// assert_eq!(grid.axes[0].values, ["8K", "16384", "32768"]);
    /// assert_eq!(grid.axes[1].values, ["1", "2"]);
    /// # Ok::<(), ichnos_model::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is not of that form. Fields and values are looked at when
    /// the [points](Self::points) are made.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut grid = Self::default();
        for item in text.split(',').map(str::trim) {
            // `stride=4` is a value, `l1d.prefetch=stride=4` begins an axis.
            let begins = item.split_once('=').filter(|(field, _)| is_field(field));
            let value = match begins {
                Some((field, value)) => {
                    let field = field.trim();
                    if grid.axes.iter().any(|axis| axis.field == field) {
                        let why = "the field is swept twice; give all its values at once";
                        return Err(conflict(field, why));
                    }
                    grid.axes.push(Axis { field: field.to_owned(), values: Vec::new() });
                    value.trim()
                }
                None => item,
            };
            let Some(axis) = grid.axes.last_mut() else {
                return Err(Error::Text {
                    field: "sweep".to_owned(),
                    got: item.to_owned(),
                    expected: "field=values such as l1d.size=8K..1M",
                });
            };
            add(axis, value)?;
        }
        Ok(grid)
    }

    /// Every combination on top of `base`, each checked.
    ///
    /// # Errors
    ///
    /// The first field or combination that makes no sense, or too many of them.
    pub fn points(&self, base: &HierarchyConfig) -> Result<Vec<GridPoint>, Error> {
        let count = self.axes.iter().try_fold(1u64, |n, a| n.checked_mul(a.values.len() as u64));
        range("sweep.points", count.unwrap_or(u64::MAX), 1, MOST_POINTS)?;
        let mut points = vec![GridPoint { values: Vec::new(), config: base.clone() }];
        for axis in &self.axes {
            let mut next = Vec::with_capacity(points.len() * axis.values.len());
            for point in &points {
                for value in &axis.values {
                    let mut point = point.clone();
                    point.config.set(&axis.field, value)?;
                    point.values.push(value.clone());
                    next.push(point);
                }
            }
            points = next;
        }
        for point in &points {
            point.config.check().map_err(|error| self.impossible(point, error))?;
        }
        Ok(points)
    }

    /// The error of a combination, which says which one it is.
    fn impossible(&self, point: &GridPoint, error: Error) -> Error {
        let values = self.axes.iter().zip(&point.values);
        let values: Vec<_> =
            values.map(|(axis, value)| format!("{}={value}", axis.field)).collect();
        Error::Point { values: values.join(","), error: Box::new(error) }
    }
}

fn is_field(text: &str) -> bool {
    text.contains('.') || ["straddle", "modify", "hints", "cores"].contains(&text.trim())
}

/// Adds a value, or the doublings of a range.
fn add(axis: &mut Axis, value: &str) -> Result<(), Error> {
    let Some((from, to)) = value.split_once("..") else {
        axis.values.push(value.to_owned());
        return Ok(());
    };
    let (first, last) = (parse_size(&axis.field, from)?, parse_size(&axis.field, to)?);
    range(&axis.field, first, 1, last)?;
    axis.values.push(from.trim().to_owned());
    let mut size = first;
    while let Some(next) = size.checked_mul(2).filter(|&next| next <= last) {
        axis.values.push(next.to_string());
        size = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheConfig, Caches, LevelConfig, Sharing};

    fn base() -> HierarchyConfig {
        let caches = Caches::Data(CacheConfig::new(32 << 10, 8, 64));
        let level = LevelConfig { name: "l1".to_owned(), caches, sharing: Sharing::Private };
        HierarchyConfig { levels: vec![level], ..HierarchyConfig::default() }
    }

    #[test]
    fn every_combination_is_a_point() {
        let grid = Grid::parse("l1d.size=8K..1M, l1d.ways=1,2,4,8, l1d.prefetch=none,stride=4");
        let points = grid.expect("right").points(&base()).expect("right");
        assert_eq!(points.len(), 8 * 4 * 2);
        assert_eq!(points[0].values, ["8K", "1", "none"]);
        let mut last = points[63].config.clone();
        let cache = last.cache_mut("l1d").expect("it exists");
        assert_eq!((cache.size, cache.ways), (1 << 20, 8));
    }

    #[test]
    fn errors_name_the_field() {
        for (text, begin) in [
            ("", "sweep: expected field=values"),
            ("8K", "sweep: expected field=values"),
            ("l1d.size=8K..x", "l1d.size: expected a size"),
            ("l1d.size=8K..4K", "l1d.size must lie between 1 and 4096, but is 8192"),
            ("l1x.size=8K", "l1x.size: expected a field"),
            (
                "l1d.size=8K,12K,l1d.ways=2,3",
                "l1d.size must be a multiple of 192 (ways times line), but is 8192, in the \
                 combination l1d.size=8K,l1d.ways=3",
            ),
            ("l1d.size=8K,l1d.size=16K", "l1d.size: the field is swept twice"),
        ] {
            let error = Grid::parse(text).and_then(|grid| grid.points(&base()));
            let message = error.expect_err(text).to_string();
            assert!(message.starts_with(begin), "{text}: {message}");
        }
    }
}
