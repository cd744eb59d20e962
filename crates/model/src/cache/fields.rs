//! Fields of a hierarchy by name, as configuration files, command lines and
//! sweeps write them: `l1d.size = 32K`, `l2.replacement = srrip`,
//! `l3.sharing = shared`, `straddle = one`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::config::{
    CacheConfig, Caches, HierarchyConfig, Hints, LevelConfig, Modify, Sharing, Straddle,
};
use super::short::small;
use crate::Error;
use crate::size::parse_size;

impl HierarchyConfig {
    /// Sets one field. The hierarchy as a whole is not checked: that is for
    /// [`check`](Self::check), when all fields are set.
    ///
    /// ```
    /// use ichnos_model::Machine;
    ///
    /// let mut caches = Machine::named("skylake").unwrap().caches;
    /// caches.set("l2.size", "1M")?;
    /// caches.set("l2.ways", "16")?;
    /// caches.check()?;
    /// let wrong = caches.set("l2.colour", "red").unwrap_err();
    /// assert!(wrong.to_string().starts_with("l2.colour: expected a field of a cache: size, ways"));
    /// # Ok::<(), ichnos_model::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such field, or the value makes no sense for it.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), Error> {
        let value = value.trim();
        match field {
            "straddle" => {
                self.straddle = choose(field, value, STRADDLE)?;
                return Ok(());
            }
            "modify" => {
                self.modify = choose(field, value, MODIFY)?;
                return Ok(());
            }
            "hints" => {
                self.hints = choose(field, value, HINTS)?;
                return Ok(());
            }
            "cores" => {
                self.cores = small(field, parse_size(field, value)?)?;
                return Ok(());
            }
            _ => {}
        }
        let Some((name, part)) = field.split_once('.') else { return Err(self.unknown(field)) };
        if part == "sharing" {
            let Some(at) = self.levels.iter().position(|level| level.name == name) else {
                return Err(self.unknown(field));
            };
            self.levels[at].sharing = choose(field, value, SHARING)?;
            return Ok(());
        }
        match self.cache_mut(name) {
            Some(cache) => cache.set(name, part, value),
            None => Err(self.unknown(field)),
        }
    }

    /// The error of a field that no cache here has.
    fn unknown(&self, field: &str) -> Error {
        let caches = self.levels.iter().flat_map(super::check::named).map(|(name, _)| name);
        let levels = self.levels.iter().map(|level| level.name.as_str());
        let known = format!(
            "a field of a cache ({}), the sharing of a level ({}), or straddle, modify, hints or \
             cores",
            caches.collect::<Vec<_>>().join(", "),
            levels.collect::<Vec<_>>().join(", "),
        );
        Error::Word { field: field.to_owned(), got: field.to_owned(), known }
    }

    /// The cache of that name: `l1i`, `l1d`, `l2`.
    pub fn cache_mut(&mut self, name: &str) -> Option<&mut CacheConfig> {
        self.levels.iter_mut().find_map(|level| cache_of(level, name))
    }
}

fn cache_of<'a>(level: &'a mut LevelConfig, name: &str) -> Option<&'a mut CacheConfig> {
    let side = name.strip_prefix(level.name.as_str())?;
    match (&mut level.caches, side) {
        (Caches::Unified(cache), "")
        | (Caches::Code(cache) | Caches::Split { code: cache, .. }, "i")
        | (Caches::Data(cache) | Caches::Split { data: cache, .. }, "d") => Some(cache),
        _ => None,
    }
}

impl CacheConfig {
    /// Sets field `part` of the cache called `name`.
    fn set(&mut self, name: &str, part: &str, value: &str) -> Result<(), Error> {
        let field = format!("{name}.{part}");
        let number = || small(&field, parse_size(&field, value)?);
        match part {
            "size" => self.size = parse_size(&field, value)?,
            "ways" => self.ways = number()?,
            "line" => self.line = number()?,
            "victim" => self.victim_lines = number()?,
            "sectors" => self.sectors = number()?,
            "replacement" | "placement" | "write" | "allocate" | "inclusion" | "classify"
            | "prefetch" => self.set_word(&field, part, value)?,
            _ => {
                return Err(Error::Text {
                    got: part.to_owned(),
                    field,
                    expected: "a field of a cache: size, ways, line, replacement, placement, \
                               write, allocate, inclusion, victim, sectors, classify or prefetch",
                });
            }
        }
        Ok(())
    }
}

const STRADDLE: &[(&str, Straddle)] = &[("split", Straddle::Split), ("one", Straddle::One)];
const MODIFY: &[(&str, Modify)] = &[("both", Modify::Both), ("load-only", Modify::LoadOnly)];
const HINTS: &[(&str, Hints)] = &[("obey", Hints::Obey), ("ignore", Hints::Ignore)];
const SHARING: &[(&str, Sharing)] = &[("private", Sharing::Private), ("shared", Sharing::Shared)];

fn choose<T: Copy>(field: &str, value: &str, known: &[(&'static str, T)]) -> Result<T, Error> {
    let found = known.iter().find(|(name, _)| *name == value);
    found.map(|&(_, value)| value).ok_or_else(|| Error::Text {
        field: field.to_owned(),
        got: value.to_owned(),
        expected: match known.first().map(|&(name, _)| name) {
            Some("split") => "split or one",
            Some("both") => "both or load-only",
            Some("obey") => "obey or ignore",
            _ => "private or shared",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefetch::PrefetchConfig;
    use crate::{Inclusion, Replacement};

    fn base() -> HierarchyConfig {
        let cache = || CacheConfig::new(32 << 10, 8, 64);
        HierarchyConfig {
            levels: vec![
                LevelConfig {
                    name: "l1".to_owned(),
                    caches: Caches::Split { code: cache(), data: cache() },
                    sharing: Sharing::Private,
                },
                LevelConfig {
                    name: "l2".to_owned(),
                    caches: Caches::Unified(cache()),
                    sharing: Sharing::Private,
                },
            ],
            ..HierarchyConfig::default()
        }
    }

    #[test]
    fn sets_what_it_names() {
        let mut config = base();
        for (field, value) in [
            ("l1d.size", "48K"),
            ("l1d.ways", "12"),
            ("l2.replacement", "srrip"),
            ("l2.inclusion", "exclusive"),
            ("l2.sharing", "shared"),
            ("l1i.prefetch", "next-line=2"),
            ("straddle", "one"),
            ("cores", "4"),
        ] {
            config.set(field, value).expect(field);
        }
        let l2 = config.cache_mut("l2").cloned().expect("it exists");
        assert_eq!((l2.replacement, l2.inclusion), (Replacement::Srrip, Inclusion::Exclusive));
        assert_eq!(config.cache_mut("l1d").expect("it exists").sets(), 64);
        let l1i = config.cache_mut("l1i").expect("it exists");
        assert_eq!(l1i.prefetch, PrefetchConfig::NextLine { degree: 2 });
        assert_eq!((config.straddle, config.cores), (Straddle::One, 4));
        assert_eq!(config.levels[1].sharing, Sharing::Shared);
    }

    #[test]
    fn errors_name_the_field() {
        let mut config = base();
        for (field, value, begin) in [
            ("l1.size", "1K", "l1.size: expected a field"),
            (
                "l2d.size",
                "1K",
                "l2d.size: expected a field of a cache (l1i, l1d, l2), the sharing of",
            ),
            ("l1d.colour", "red", "l1d.colour: expected a field of a cache: size, ways, line"),
            ("l1d.replacement", "stream", "l1d.replacement: expected lru, plru"),
            ("l1d.write", "allocate", "l1d.write: expected write-back, write-through"),
            ("l1d.size", "many", "l1d.size: expected a size"),
            ("l1d.replacement", "best", "l1d.replacement: expected lru, plru"),
            ("l2.sharing", "all", "l2.sharing: expected private or shared"),
            ("straddle", "two", "straddle: expected split or one"),
            ("nothing", "1", "nothing: expected a field"),
        ] {
            let message = config.set(field, value).expect_err(field).to_string();
            assert!(message.starts_with(begin), "{message}");
        }
    }
}
