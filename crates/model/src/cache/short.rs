//! A cache in a few characters, as on a command line: `32K,8,64`, and further
//! words for what is not the default: `1M,16,64,plru,exclusive,victim=8`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::config::{Allocate, CacheConfig, Classify, Inclusion, Placement, WritePolicy};
use crate::error::conflict;
use crate::prefetch::PrefetchConfig;
use crate::size::parse_size;
use crate::{Error, Replacement};

const WORDS: &str = "lru, plru, fifo, random[=SEED], nru, srrip, brrip, drrip, modulo, xor, skewed, \
    write-back, write-through, write-ignore, allocate, no-allocate, inclusive, exclusive, \
    non-inclusive, victim=LINES, sectors=N, 3c, next-line[=N], stride[=N], stream[=N] or best-offset";

impl CacheConfig {
    /// Reads `size,ways,line` and any further words; `name` begins the field
    /// names in errors. The result is checked by itself.
    ///
    /// ```
    /// use ichnos_model::CacheConfig;
    ///
    /// let l1d = CacheConfig::parse("l1d", "48K,12,64")?;
    /// assert_eq!(l1d.sets(), 64);
    /// let wrong = CacheConfig::parse("l1d", "48K,12,60").unwrap_err();
    /// assert_eq!(wrong.to_string(), "l1d.line must be a power of two, but is 60");
    /// # Ok::<(), ichnos_model::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What [`Error`] says about text, and all of [`CacheConfig::check`].
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let mut fields = text.split(',').map(str::trim);
        let mut number = |field: &str| {
            let field = format!("{name}.{field}");
            match fields.next() {
                Some(text) => parse_size(&field, text),
                None => Err(Error::Text {
                    field,
                    got: text.to_owned(),
                    expected: "size,ways,line such as 32K,8,64",
                }),
            }
        };
        let size = number("size")?;
        let ways = small(&format!("{name}.ways"), number("ways")?)?;
        let line = small(&format!("{name}.line"), number("line")?)?;
        let mut config = Self::new(size, ways, line);
        for word in fields {
            config.word(name, word)?;
        }
        config.check(name)?;
        Ok(config)
    }

    /// Applies one word; `name` is the field that errors name.
    pub(super) fn word(&mut self, name: &str, word: &str) -> Result<(), Error> {
        let (key, value) = word.split_once('=').map_or((word, None), |(k, v)| (k, Some(v)));
        let unknown =
            || Error::Text { field: name.to_owned(), got: word.to_owned(), expected: WORDS };
        let number = |default: u32| match value {
            Some(text) => {
                small(&format!("{name}.{key}"), parse_size(&format!("{name}.{key}"), text)?)
            }
            None => Ok(default),
        };
        let takes_number =
            ["random", "victim", "sectors", "next-line", "stride", "stream"].contains(&key);
        if value.is_some() && !takes_number {
            return Err(unknown());
        }
        if let Some(policy) = Replacement::from_name(key) {
            self.replacement = match policy {
                Replacement::Random { .. } => Replacement::Random { seed: number(0)?.into() },
                other => other,
            };
            return Ok(());
        }
        match key {
            "opt" | "optimal" | "belady" => {
                return Err(conflict(
                    name,
                    "the optimal replacement (Belady) must know the future, which a running \
                     simulation does not; `ichnos locality --optimal SIZE,WAYS,LINE` gives its \
                     misses beside LRU's",
                ));
            }
            "modulo" => self.placement = Placement::Modulo,
            "xor" => self.placement = Placement::XorHash,
            "skewed" => self.placement = Placement::Skewed,
            "write-back" => self.write = WritePolicy::Back,
            "write-through" => self.write = WritePolicy::Through,
            "write-ignore" => self.write = WritePolicy::Ignore,
            "allocate" => self.allocate = Allocate::OnWrite,
            "no-allocate" => self.allocate = Allocate::OnReadOnly,
            "inclusive" => self.inclusion = Inclusion::Inclusive,
            "exclusive" => self.inclusion = Inclusion::Exclusive,
            "non-inclusive" => self.inclusion = Inclusion::NonInclusive,
            "victim" if value.is_some() => self.victim_lines = number(0)?,
            "sectors" if value.is_some() => self.sectors = number(1)?,
            "3c" => self.classify = Classify::ThreeC,
            "next-line" => self.prefetch = PrefetchConfig::NextLine { degree: number(1)? },
            "stride" => {
                self.prefetch = PrefetchConfig::Stride { degree: number(2)?, entries: 256 };
            }
            "stream" => self.prefetch = PrefetchConfig::Stream { degree: number(4)?, streams: 16 },
            "best-offset" => self.prefetch = PrefetchConfig::BestOffset,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

pub(super) fn small(field: &str, number: u64) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| Error::Range {
        field: field.to_owned(),
        got: number,
        least: 0,
        most: u64::from(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field() {
        for (text, begin) in [
            ("", "l1d.size: expected a size"),
            ("32K", "l1d.ways: expected size,ways,line"),
            ("32K,8", "l1d.line: expected size,ways,line"),
            ("32K,x,64", "l1d.ways: expected a size"),
            ("32K,0,64", "l1d.ways must lie between 1 and"),
            ("32K,8,4", "l1d.line must lie between 8 and"),
            ("33000,8,64", "l1d.size must be a multiple of 512 (ways times line), but is 33000"),
            ("48K,12,64,plru", "l1d.ways must be a power of two, but is 12"),
            ("24K,4,64,xor", "l1d.sets must be a power of two, but is 96"),
            ("32K,8,64,mru", "l1d: expected lru, plru"),
            ("32K,8,64,belady", "l1d: the optimal replacement (Belady) must know the future"),
            ("32K,8,64,opt", "l1d: the optimal replacement (Belady) must know the future"),
            ("32K,8,64,lru=3", "l1d: expected lru, plru"),
            ("32K,8,64,sectors=3", "l1d.sectors must be a power of two"),
            ("32K,8,64,skewed,fifo", "l1d.placement: a skewed cache"),
            ("32K,8,64,stream=99", "l1d.prefetch.degree must lie between 1 and 16"),
        ] {
            let message = CacheConfig::parse("l1d", text).map_err(|e| e.to_string()).unwrap_err();
            assert!(message.starts_with(begin), "{text}: {message}");
        }
    }

    #[test]
    fn words_set_fields() {
        let got = CacheConfig::parse("l2", "1M,16,64,srrip,xor,exclusive,victim=8,3c").unwrap();
        let want = CacheConfig {
            replacement: Replacement::Srrip,
            placement: Placement::XorHash,
            inclusion: Inclusion::Exclusive,
            victim_lines: 8,
            classify: Classify::ThreeC,
            ..CacheConfig::new(1 << 20, 16, 64)
        };
        assert_eq!(got, want);
    }
}
