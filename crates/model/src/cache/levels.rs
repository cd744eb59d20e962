//! A hierarchy from caches in short form, as a command line names them: `l1i`,
//! `l1d`, `l2`, `l3`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::config::{CacheConfig, Caches, HierarchyConfig, LevelConfig, Sharing};
use crate::Error;
use crate::error::conflict;

impl HierarchyConfig {
    /// Builds a hierarchy from names and short forms, nearest first. Names that
    /// differ only in a final `i` or `d` are the two sides of one level. Besides
    /// the words of [`CacheConfig::parse`], `private` and `shared` say who uses a
    /// cache; without them the last of several levels is shared and the others
    /// are private. The result is checked as a whole.
    ///
    /// ```
    /// use ichnos_model::HierarchyConfig;
    ///
    /// let caches = HierarchyConfig::from_short(&[
    ///     ("l1i", "32K,8,64"),
    ///     ("l1d", "48K,12,64"),
    ///     ("l2", "2M,16,64,srrip"),
    /// ])?;
    /// assert_eq!(caches.levels.len(), 2);
    /// # Ok::<(), ichnos_model::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What [`CacheConfig::parse`] and [`HierarchyConfig::check`] say, and names
    /// that are empty or come twice.
    pub fn from_short(caches: &[(&str, &str)]) -> Result<Self, Error> {
        let mut config = Self::default();
        let mut said: Vec<Option<Sharing>> = Vec::new();
        for &(name, text) in caches {
            let (words, sharing) = take_sharing(name, text)?;
            let cache = CacheConfig::parse(name, &words)?;
            let (level, side) = split_name(name)?;
            let at = match config.levels.iter().position(|known| known.name == level) {
                Some(at) => at,
                None => {
                    let caches = alone(side, cache.clone());
                    let name = level.to_owned();
                    config.levels.push(LevelConfig { name, caches, sharing: Sharing::Private });
                    said.push(sharing);
                    continue;
                }
            };
            join(name, &mut config.levels[at].caches, side, cache)?;
            if sharing.is_some() && said[at].is_some() && sharing != said[at] {
                return Err(conflict(name, "both sides of a level are shared, or neither is"));
            }
            said[at] = said[at].or(sharing);
        }
        let last = config.levels.len().saturating_sub(1);
        for (at, (level, said)) in config.levels.iter_mut().zip(said).enumerate() {
            let usual = if at == last && at > 0 { Sharing::Shared } else { Sharing::Private };
            level.sharing = said.unwrap_or(usual);
        }
        config.check()?;
        Ok(config)
    }
}

/// Which references a cache is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Code,
    Data,
    Both,
}

fn split_name(name: &str) -> Result<(&str, Side), Error> {
    let (level, side) = match name.char_indices().last() {
        Some((at, 'i')) => (&name[..at], Side::Code),
        Some((at, 'd')) => (&name[..at], Side::Data),
        _ => (name, Side::Both),
    };
    if level.is_empty() || level.contains('.') {
        return Err(conflict(name, "a cache needs a name such as l1i, l1d or l2"));
    }
    Ok((level, side))
}

/// The text without the words that say who uses the cache, and what they say.
fn take_sharing(name: &str, text: &str) -> Result<(String, Option<Sharing>), Error> {
    let mut sharing = None;
    let mut words = Vec::new();
    for word in text.split(',') {
        let now = match word.trim() {
            "private" => Sharing::Private,
            "shared" => Sharing::Shared,
            _ => {
                words.push(word);
                continue;
            }
        };
        if sharing.is_some_and(|before| before != now) {
            return Err(conflict(name, "a cache cannot be private and shared"));
        }
        sharing = Some(now);
    }
    Ok((words.join(","), sharing))
}

const fn alone(side: Side, cache: CacheConfig) -> Caches {
    match side {
        Side::Code => Caches::Code(cache),
        Side::Data => Caches::Data(cache),
        Side::Both => Caches::Unified(cache),
    }
}

/// Adds the other side to a level.
fn join(name: &str, caches: &mut Caches, side: Side, cache: CacheConfig) -> Result<(), Error> {
    let both = match (&*caches, side) {
        (Caches::Code(code), Side::Data) => Caches::Split { code: code.clone(), data: cache },
        (Caches::Data(data), Side::Code) => Caches::Split { code: cache, data: data.clone() },
        _ => return Err(conflict(name, "this cache is there already")),
    };
    *caches = both;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_join_and_the_last_level_is_shared() {
        let config = HierarchyConfig::from_short(&[
            ("l1d", "32K,8,64"),
            ("l1i", "16K,4,64"),
            ("l2", "256K,4,64"),
            ("l3", "8M,16,64,inclusive"),
        ])
        .expect("right");
        let CacheConfig { size, .. } = match &config.levels[0].caches {
            Caches::Split { code, .. } => code.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(size, 16 << 10);
        let sharing: Vec<Sharing> = config.levels.iter().map(|level| level.sharing).collect();
        assert_eq!(sharing, [Sharing::Private, Sharing::Private, Sharing::Shared]);
        let one = HierarchyConfig::from_short(&[("l1d", "32K,8,64,shared")]).expect("right");
        assert_eq!(one.levels[0].sharing, Sharing::Shared);
    }

    #[test]
    fn errors_name_the_cache() {
        for (caches, begin) in [
            (&[("l1d", "32K,8,64"), ("l1d", "32K,8,64")][..], "l1d: this cache is there already"),
            (&[("l1", "32K,8,64"), ("l1d", "32K,8,64")], "l1d: this cache is there already"),
            (&[("d", "32K,8,64")], "d: a cache needs a name"),
            (&[("l1d", "32K,8,64,private,shared")], "l1d: a cache cannot be private and shared"),
            (&[("l1", "32K,8,64"), ("l2d", "64K,8,64")], "l2.caches: a level below a unified"),
            (&[("l1d", "32K,7,64")], "l1d.size must be a multiple of 448"),
            (&[], "levels must lie between 1 and 16"),
        ] {
            let message = HierarchyConfig::from_short(caches).expect_err(begin).to_string();
            assert!(message.starts_with(begin), "{message}");
        }
    }
}
