//! A cache in a few characters, as on a command line: `32K,8,64`, and further
//! words for what is not the default: `1M,16,64,plru,exclusive,victim=8`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::config::{Allocate, CacheConfig, Classify, Inclusion, Placement, WritePolicy};
use crate::error::conflict;
use crate::prefetch::PrefetchConfig;
use crate::size::parse_size;
use crate::{Error, Replacement};

/// The words behind size, ways and line, by the field that they set. Of each field
/// there may be one; `[=N]` may be left out.
const WORDS: &[(&str, &str)] = &[
    ("replacement", "lru, plru, fifo, random[=SEED], nru, srrip, brrip or drrip"),
    ("placement", "modulo, xor or skewed"),
    ("write", "write-back, write-through or write-ignore"),
    ("allocate", "allocate or no-allocate"),
    ("inclusion", "inclusive, exclusive or non-inclusive"),
    ("victim", "victim=LINES"),
    ("sectors", "sectors=N"),
    ("classify", "3c"),
    ("prefetch", "next-line[=N], stride[=N], stream[=N] or best-offset"),
];

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
        let mut set: Vec<&str> = Vec::new();
        for word in fields {
            let part = config.word(name, word)?;
            if set.contains(&part) {
                let why = "there are two words for it; one is enough";
                return Err(conflict(&format!("{name}.{part}"), why));
            }
            set.push(part);
        }
        config.check(name)?;
        Ok(config)
    }

    /// Every word that [`parse`](Self::parse) knows behind size, ways and line, with
    /// the field that it sets.
    pub fn words() -> impl Iterator<Item = (&'static str, &'static str)> {
        WORDS.iter().flat_map(|&(part, words)| {
            let words = words.split(", ").flat_map(|some| some.split(" or "));
            words.map(move |word| (part, word.split(['[', '=']).next().unwrap_or(word)))
        })
    }

    /// Applies one word and says which field it sets; `name` is the field that errors
    /// name.
    fn word(&mut self, name: &str, word: &str) -> Result<&'static str, Error> {
        let key = word.split_once('=').map_or(word, |(key, _)| key);
        if ["opt", "optimal", "belady"].contains(&key) {
            return Err(conflict(name, BELADY));
        }
        match Self::words().find(|&(_, known)| known == key) {
            Some((part, _)) => self.set_word(name, part, word).map(|()| part),
            None => Err(expected(name, word, WORDS.iter().map(|&(_, words)| words))),
        }
    }

    /// Sets field `part` by a word for it; `name` is the field that errors name.
    pub(super) fn set_word(&mut self, name: &str, part: &str, word: &str) -> Result<(), Error> {
        let (key, value) = word.split_once('=').map_or((word, None), |(k, v)| (k, Some(v)));
        let words = || WORDS.iter().filter(|&&(known, _)| known == part).map(|&(_, words)| words);
        let unknown = || expected(name, word, words());
        let number = |default: u32| match value {
            Some(text) => {
                small(&format!("{name}.{key}"), parse_size(&format!("{name}.{key}"), text)?)
            }
            None => Ok(default),
        };
        let takes_number = words().any(|words| words.contains(&format!("{key}=")))
            || words().any(|words| words.contains(&format!("{key}[=")));
        if value.is_some() && !takes_number {
            return Err(unknown());
        }
        match (part, key) {
            ("replacement", "opt" | "optimal" | "belady") => return Err(conflict(name, BELADY)),
            ("replacement", _) => {
                self.replacement = match Replacement::from_name(key).ok_or_else(unknown)? {
                    Replacement::Random { .. } => Replacement::Random { seed: number(0)?.into() },
                    other => other,
                };
            }
            ("placement", "modulo") => self.placement = Placement::Modulo,
            ("placement", "xor") => self.placement = Placement::XorHash,
            ("placement", "skewed") => self.placement = Placement::Skewed,
            ("write", "write-back") => self.write = WritePolicy::Back,
            ("write", "write-through") => self.write = WritePolicy::Through,
            ("write", "write-ignore") => self.write = WritePolicy::Ignore,
            ("allocate", "allocate") => self.allocate = Allocate::OnWrite,
            ("allocate", "no-allocate") => self.allocate = Allocate::OnReadOnly,
            ("inclusion", "inclusive") => self.inclusion = Inclusion::Inclusive,
            ("inclusion", "exclusive") => self.inclusion = Inclusion::Exclusive,
            ("inclusion", "non-inclusive") => self.inclusion = Inclusion::NonInclusive,
            ("victim", _) if value.is_some() => self.victim_lines = number(0)?,
            ("sectors", _) if value.is_some() => self.sectors = number(1)?,
            ("classify", "none") => self.classify = Classify::No,
            ("classify", "3c") => self.classify = Classify::ThreeC,
            ("prefetch", "none") => self.prefetch = PrefetchConfig::None,
            ("prefetch", "next-line") => {
                self.prefetch = PrefetchConfig::NextLine { degree: number(1)? };
            }
            ("prefetch", "stride") => {
                self.prefetch = PrefetchConfig::Stride { degree: number(2)?, entries: 256 };
            }
            ("prefetch", "stream") => {
                self.prefetch = PrefetchConfig::Stream { degree: number(4)?, streams: 16 };
            }
            ("prefetch", "best-offset") => self.prefetch = PrefetchConfig::BestOffset,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

/// What is said of a policy that must know the future.
const BELADY: &str = "the optimal replacement (Belady) must know the future, which a running \
    simulation does not; `ichnos locality --optimal SIZE,WAYS,LINE` gives its misses beside LRU's";

fn expected(name: &str, word: &str, words: impl Iterator<Item = &'static str>) -> Error {
    let words: Vec<_> = words.collect();
    Error::Word { field: name.to_owned(), got: word.to_owned(), known: words.join("; ") }
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
            ("48K,12,64,plru", "l1d.ways must be a power of two of at most 64 for plru, but is 12"),
            ("96K,96,64,nru", "l1d.ways must be at most 64 for nru, but is 96"),
            ("24K,4,64,xor", "l1d.sets must be a power of two for xor, but is 96"),
            ("32K,8,64,mru", "l1d: expected lru, plru"),
            ("32K,8,64,belady", "l1d: the optimal replacement (Belady) must know the future"),
            ("32K,8,64,opt", "l1d: the optimal replacement (Belady) must know the future"),
            ("32K,8,64,lru=3", "l1d: expected lru, plru"),
            ("32K,8,64,lru,fifo", "l1d.replacement: there are two words for it"),
            ("32K,8,64,stream,stride", "l1d.prefetch: there are two words for it"),
            ("32K,8,64,victim=8,victim=8", "l1d.victim: there are two words for it"),
            ("32K,8,64,victim", "l1d: expected victim=LINES, got \"victim\""),
            ("32K,8,64,victim=70000", "l1d.victim must lie between 0 and 65536, but is 70000"),
            ("32K,8,64,none", "l1d: expected lru, plru"),
            ("32K,8,64,sectors=3", "l1d.sectors must be a power of two"),
            ("32K,8,64,skewed,fifo", "l1d.placement: a skewed cache"),
            ("32K,8,64,stream=99", "l1d.prefetch.degree must lie between 1 and 16"),
        ] {
            let message = CacheConfig::parse("l1d", text).map_err(|e| e.to_string()).unwrap_err();
            assert!(message.starts_with(begin), "{text}: {message}");
        }
    }

    /// Every word is taken, and sets the field that it is said to set.
    #[test]
    fn all_words_are_known() {
        for (part, word) in CacheConfig::words() {
            let with = |word: &str| {
                if part == "victim" || part == "sectors" {
                    format!("{word}=2")
                } else {
                    word.to_owned()
                }
            };
            let mut plain = CacheConfig::new(1 << 15, 8, 64);
            assert_eq!(plain.word("l1d", &with(word)), Ok(part), "{word}");
        }
        let replacements = CacheConfig::words().filter(|&(part, _)| part == "replacement");
        let names: Vec<_> = Replacement::ALL.iter().map(|policy| policy.name()).collect();
        assert_eq!(replacements.map(|(_, word)| word).collect::<Vec<_>>(), names);
    }

    /// Users find every word, and every size of a predictor, in the document.
    #[test]
    fn the_document_has_all_words() {
        let document = include_str!("../../../../docs/MODELS.md");
        let predictors = crate::DirectionConfig::ALL.iter().map(|&(name, _)| name);
        let words = CacheConfig::words().flat_map(|(part, word)| [part, word]);
        for word in words.chain(predictors).chain(crate::DirectionConfig::SIZES) {
            let found = [format!("`{word}`"), format!("`{word}=")];
            assert!(found.iter().any(|text| document.contains(text)), "{word}");
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
