//! Machines described in a file (TOML): caches of any number of levels, TLBs and
//! branch predictors.
//!
//! ```toml
//! cores = 4                  # also: straddle, modify, hints
//!
//! [[level]]
//! name = "l1"
//! sharing = "private"
//! code = "32K,8,64"          # the command line's short form, or a table
//! data = { size = "48K", ways = 12, line = 64, replacement = "nru" }
//!
//! [[level]]
//! name = "l2"
//! sharing = "shared"
//! cache = { size = "2M", ways = 16, line = 64, prefetch = "stream" }
//!
//! [[tlb]]
//! name = "tlb1"
//! code = { entries = 128, ways = 8 }
//! data = { entries = 64, ways = 4, replacement = "plru" }
//!
//! [pages]
//! base = "4K"
//! regions = [{ start = "0x7f0000000000", len = "1G", page = "2M" }]
//!
//! [walk]
//! cache_entries = 32
//!
//! [branch]
//! predictor = "tage"         # and its sizes, by the names of the model's fields:
//! tables = 12
//! returns = 32
//! ```
//!
//! Every error names the file, the line and the field.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use ichnos_base::GuestVa;
use ichnos_model::{
    BranchConfig, CacheConfig, Caches, DirectionConfig, HierarchyConfig, IndirectConfig,
    LevelConfig, PageRegion, Replacement, Sharing, TlbConfig, TlbHierarchyConfig, TlbLevelConfig,
    Tlbs, parse_size,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::hierarchy::{self, Models};

/// A value and where it stands.
type Item<'a> = Spanned<DeValue<'a>>;

/// Reads a machine from a file. TLBs without levels are page sizes and walks for
/// those that somebody else chooses.
pub fn read(path: &Path) -> Result<Models> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| place.clone())?;
    File { place, text: &text }.machine()
}

/// A file being read: knows how to say where something stands.
struct File<'a> {
    place: String,
    text: &'a str,
}

impl<'a> File<'a> {
    fn machine(&self) -> Result<Models> {
        let table = DeTable::parse(self.text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            anyhow!("{}: {}", self.at(at), e.message().trim())
        })?;
        let mut caches = HierarchyConfig::default();
        let mut tlbs = TlbHierarchyConfig::default();
        let mut branch = None;
        for (key, item) in table.get_ref() {
            match key.get_ref().as_ref() {
                "level" => {
                    for (at, level) in self.list("level", item)?.iter().enumerate() {
                        self.level(&mut caches, at, level)?;
                    }
                }
                "tlb" => {
                    for (at, level) in self.list("tlb", item)?.iter().enumerate() {
                        tlbs.levels.push(self.tlb_level(at, level)?);
                    }
                }
                "pages" => self.pages(&mut tlbs, item)?,
                "walk" => self.walk(&mut tlbs, item)?,
                "branch" => branch = Some(self.branch(item)?),
                name @ ("straddle" | "modify" | "hints" | "cores") => {
                    let value = self.word(name, item)?;
                    caches.set(name, &value).map_err(|e| self.wrong(item, e))?;
                }
                other => {
                    let known = "level, tlb, pages, walk, branch, cores, straddle, modify or hints";
                    return Err(self.unknown(key.span().start, other, known));
                }
            }
        }
        self.checked(caches, tlbs, branch)
    }

    /// Checks what only makes sense as a whole; the file is all there is to name.
    fn checked(
        &self,
        caches: HierarchyConfig,
        tlbs: TlbHierarchyConfig,
        branch: Option<BranchConfig>,
    ) -> Result<Models> {
        if caches.levels.is_empty() {
            bail!("{}: level: there must be at least one [[level]] of caches", self.place);
        }
        caches.check().with_context(|| self.place.clone())?;
        // Pages and walks may stand for themselves, for the TLBs of `--tlb`.
        let mut whole = tlbs.clone();
        if whole.levels.is_empty() {
            whole.levels = hierarchy::default_tlbs().levels;
        }
        whole.check().with_context(|| self.place.clone())?;
        let tlbs = (tlbs != TlbHierarchyConfig::default()).then_some(tlbs);
        if let Some(branch) = &branch {
            branch.check().with_context(|| format!("{}: branch", self.place))?;
        }
        Ok(Models { caches, tlbs, branch })
    }

    fn level(&self, caches: &mut HierarchyConfig, at: usize, item: &Item<'a>) -> Result<()> {
        let table = self.table("level", item)?;
        let name = self.name("level", table, item, format!("l{}", at + 1))?;
        let sides = ["code", "data", "cache"].map(|side| table.get(side));
        // Any cache will do to begin with: the fields are set one by one below.
        let blank = || CacheConfig::new(1 << 15, 8, 64);
        let shape = match sides {
            [Some(_), Some(_), None] => Caches::Split { code: blank(), data: blank() },
            [Some(_), None, None] => Caches::Code(blank()),
            [None, Some(_), None] => Caches::Data(blank()),
            [None, None, Some(_)] => Caches::Unified(blank()),
            _ => {
                let line = self.at(item.span().start);
                bail!("{line}: {name}: give either `cache`, or `code` and `data` or one of them")
            }
        };
        for side in ["", "i", "d"] {
            let name = format!("{name}{side}");
            let level = caches.levels.iter().any(|level| level.name == name);
            if level || caches.cache_mut(&name).is_some() {
                let line = self.at(item.span().start);
                bail!("{line}: level.name: there is another cache or level called \"{name}\"");
            }
        }
        let sharing = Sharing::Private;
        caches.levels.push(LevelConfig { name: name.clone(), caches: shape, sharing });
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "name" => {}
                "sharing" => {
                    let word = self.word(&format!("{name}.sharing"), value)?;
                    let field = format!("{name}.sharing");
                    caches.set(&field, &word).map_err(|e| self.wrong(value, e))?;
                }
                "code" => self.cache(caches, &format!("{name}i"), value)?,
                "data" => self.cache(caches, &format!("{name}d"), value)?,
                "cache" => self.cache(caches, &name, value)?,
                other => {
                    let field = format!("{name}.{other}");
                    let known = "name, sharing, code, data or cache";
                    return Err(self.unknown(key.span().start, &field, known));
                }
            }
        }
        Ok(())
    }

    /// One cache: a table of fields, or the short form.
    fn cache(&self, caches: &mut HierarchyConfig, name: &str, item: &Item<'a>) -> Result<()> {
        if let DeValue::String(short) = item.get_ref() {
            let parsed = CacheConfig::parse(name, short).map_err(|e| self.wrong(item, e))?;
            let cache = caches.cache_mut(name).context("the level was just made")?;
            *cache = parsed;
            return Ok(());
        }
        let table = self.table(name, item)?;
        for needed in ["size", "ways", "line"] {
            if !table.contains_key(needed) {
                bail!("{}: {name}.{needed} is missing", self.at(item.span().start));
            }
        }
        for (key, value) in table {
            let field = format!("{name}.{}", key.get_ref());
            let word = self.word(&field, value)?;
            caches.set(&field, &word).map_err(|e| self.wrong(value, e))?;
        }
        let cache = caches.cache_mut(name).context("the level was just made")?;
        cache.check(name).map_err(|e| self.wrong(item, e))
    }

    fn tlb_level(&self, at: usize, item: &Item<'a>) -> Result<TlbLevelConfig> {
        let table = self.table("tlb", item)?;
        let name = self.name("tlb", table, item, format!("tlb{}", at + 1))?;
        if let Some((key, _)) = table
            .iter()
            .find(|(key, _)| !["name", "code", "data", "unified"].contains(&key.get_ref().as_ref()))
        {
            let field = format!("{name}.{}", key.get_ref());
            return Err(self.unknown(key.span().start, &field, "name, code, data or unified"));
        }
        let side = |side: &str, field: String| {
            table.get(side).map(|value| self.tlb(&field, value)).transpose()
        };
        let code = side("code", format!("{name}i"))?;
        let data = side("data", format!("{name}d"))?;
        let tlbs = match (code, data, side("unified", name.clone())?) {
            (Some(code), Some(data), None) => Tlbs::Split { code, data },
            (None, None, Some(tlb)) => Tlbs::Unified(tlb),
            _ => {
                let line = self.at(item.span().start);
                bail!("{line}: {name}: give either `unified`, or `code` and `data`")
            }
        };
        Ok(TlbLevelConfig { name, tlbs })
    }

    fn tlb(&self, name: &str, item: &Item<'a>) -> Result<TlbConfig> {
        let mut tlb = TlbConfig::new(0, 0);
        for (key, value) in self.table(name, item)? {
            let field = format!("{name}.{}", key.get_ref());
            match key.get_ref().as_ref() {
                "entries" => tlb.entries = self.small(&field, value)?,
                "ways" => tlb.ways = self.small(&field, value)?,
                "replacement" => {
                    let word = self.word(&field, value)?;
                    tlb.replacement = Replacement::from_name(&word).ok_or_else(|| {
                        let line = self.at(value.span().start);
                        anyhow!("{line}: {field}: there is no replacement called \"{word}\"")
                    })?;
                }
                _ => {
                    let known = "entries, ways or replacement";
                    return Err(self.unknown(key.span().start, &field, known));
                }
            }
        }
        if tlb.entries == 0 || tlb.ways == 0 {
            let line = self.at(item.span().start);
            bail!("{line}: {name}: both {name}.entries and {name}.ways must be given");
        }
        Ok(tlb)
    }

    fn pages(&self, tlbs: &mut TlbHierarchyConfig, item: &Item<'a>) -> Result<()> {
        for (key, value) in self.table("pages", item)? {
            match key.get_ref().as_ref() {
                "base" => tlbs.pages.base = self.size("pages.base", value)?,
                "regions" => {
                    for region in self.list("pages.regions", value)? {
                        tlbs.pages.regions.push(self.region(region)?);
                    }
                }
                other => {
                    let field = format!("pages.{other}");
                    return Err(self.unknown(key.span().start, &field, "base or regions"));
                }
            }
        }
        Ok(())
    }

    fn region(&self, item: &Item<'a>) -> Result<PageRegion> {
        let (mut start, mut len, mut page) = (None, None, None);
        for (key, value) in self.table("pages.regions", item)? {
            let field = format!("pages.regions.{}", key.get_ref());
            match key.get_ref().as_ref() {
                "start" => start = Some(self.address(&field, value)?),
                "len" => len = Some(self.size(&field, value)?),
                "page" => page = Some(self.size(&field, value)?),
                _ => return Err(self.unknown(key.span().start, &field, "start, len or page")),
            }
        }
        match (start, len, page) {
            (Some(start), Some(len), Some(page)) => Ok(PageRegion { start, len, page }),
            _ => {
                let line = self.at(item.span().start);
                bail!("{line}: pages.regions: start, len and page are all needed")
            }
        }
    }

    fn address(&self, field: &str, item: &Item<'a>) -> Result<GuestVa> {
        let word = self.word(field, item)?;
        let address = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        address.map(GuestVa).map_err(|_| {
            let line = self.at(item.span().start);
            anyhow!(
                "{line}: {field}: expected an address such as \"0x7f0000000000\" or 4096, got \
                 \"{word}\""
            )
        })
    }

    fn walk(&self, tlbs: &mut TlbHierarchyConfig, item: &Item<'a>) -> Result<()> {
        for (key, value) in self.table("walk", item)? {
            let field = format!("walk.{}", key.get_ref());
            let slot = match key.get_ref().as_ref() {
                "address_bits" => &mut tlbs.walk.address_bits,
                "bits_per_level" => &mut tlbs.walk.bits_per_level,
                "cycles_per_access" => &mut tlbs.walk.cycles_per_access,
                "cache_entries" => &mut tlbs.walk.cache_entries,
                _ => {
                    let known = "address_bits, bits_per_level, cycles_per_access or cache_entries";
                    return Err(self.unknown(key.span().start, &field, known));
                }
            };
            *slot = self.small(&field, value)?;
        }
        Ok(())
    }

    fn branch(&self, item: &Item<'a>) -> Result<BranchConfig> {
        let mut config = BranchConfig::default();
        let mut sizes = Vec::new();
        for (key, value) in self.table("branch", item)? {
            let field = format!("branch.{}", key.get_ref());
            let line = self.at(value.span().start);
            match key.get_ref().as_ref() {
                "predictor" => {
                    let word = self.word(&field, value)?;
                    config.direction =
                        predictor(&word).with_context(|| format!("{line}: {field}"))?;
                }
                "btb_sets" => config.btb_sets = self.small(&field, value)?,
                "btb_ways" => config.btb_ways = self.small(&field, value)?,
                "returns" => config.returns = self.small(&field, value)?,
                "indirect" => {
                    config.indirect = match self.word(&field, value)?.as_str() {
                        "last-target" => IndirectConfig::LastTarget,
                        "path" => BranchConfig::default().indirect,
                        other => {
                            bail!("{line}: {field}: expected path or last-target, got \"{other}\"")
                        }
                    }
                }
                size => sizes.push((size.to_owned(), key.span().start, self.small(&field, value))),
            }
        }
        // Which sizes there are depends on the predictor, wherever that stands.
        for (name, offset, size) in sizes {
            let Some(slot) = config.direction.size_mut(&name) else {
                let sizes = DirectionConfig::SIZES.into_iter();
                let sizes: Vec<_> =
                    sizes.filter(|size| config.direction.size_mut(size).is_some()).collect();
                let known = format!(
                    "predictor, btb_sets, btb_ways, returns, indirect, or a size of the predictor \
                     ({})",
                    if sizes.is_empty() { "it has none".to_owned() } else { sizes.join(", ") }
                );
                return Err(self.unknown(offset, &format!("branch.{name}"), &known));
            };
            *slot = size?;
        }
        Ok(config)
    }

    fn table<'t>(&self, field: &str, item: &'t Item<'a>) -> Result<&'t DeTable<'a>> {
        item.get_ref().as_table().ok_or_else(|| self.not(field, item, "a table"))
    }

    fn list<'t>(&self, field: &str, item: &'t Item<'a>) -> Result<&'t [Item<'a>]> {
        let array = item.get_ref().as_array();
        array.map(|a| &**a).ok_or_else(|| self.not(field, item, "tables as in [[level]]"))
    }

    fn name(
        &self,
        field: &str,
        table: &DeTable<'a>,
        item: &Item<'a>,
        default: String,
    ) -> Result<String> {
        let Some(value) = table.get("name") else { return Ok(default) };
        let name = self.word(&format!("{field}.name"), value)?;
        if name.is_empty() || name.contains(['.', ',', '=']) {
            let line = self.at(item.span().start);
            bail!("{line}: {field}.name: expected a word such as l1, got \"{name}\"");
        }
        Ok(name)
    }

    /// A string or a whole number, as text.
    fn word(&self, field: &str, item: &Item<'a>) -> Result<String> {
        match item.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            _ => Err(self.not(field, item, "a string or a whole number")),
        }
    }

    fn size(&self, field: &str, item: &Item<'a>) -> Result<u64> {
        let word = self.word(field, item)?;
        parse_size(field, &word).map_err(|e| self.wrong(item, e))
    }

    fn small(&self, field: &str, item: &Item<'a>) -> Result<u32> {
        let value = self.size(field, item)?;
        u32::try_from(value).map_err(|_| {
            anyhow!("{}: {field} must be below 2^32, but is {value}", self.at(item.span().start))
        })
    }

    /// The file and line of a byte.
    fn at(&self, offset: usize) -> String {
        let before = self.text.as_bytes().iter().take(offset);
        format!("{}:{}", self.place, 1 + before.filter(|b| **b == b'\n').count())
    }

    fn wrong(&self, item: &Item<'a>, error: ichnos_model::Error) -> anyhow::Error {
        anyhow!("{}: {error}", self.at(item.span().start))
    }

    fn not(&self, field: &str, item: &Item<'a>, expected: &str) -> anyhow::Error {
        let line = self.at(item.span().start);
        anyhow!("{line}: {field}: expected {expected}, got {}", item.get_ref().type_str())
    }

    fn unknown(&self, offset: usize, field: &str, known: &str) -> anyhow::Error {
        anyhow!("{}: {field}: there is no such field; expected {known}", self.at(offset))
    }
}

/// The direction predictor of that name.
pub fn predictor(name: &str) -> Result<DirectionConfig> {
    DirectionConfig::from_name(name).ok_or_else(|| {
        let known: Vec<_> = DirectionConfig::ALL.iter().map(|(name, _)| *name).collect();
        anyhow!("there is no predictor called \"{name}\"; there are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests;
