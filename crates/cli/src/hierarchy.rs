//! Cache hierarchies as users describe them on the command line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::{Result, bail};
use clap::Args;
use ichnos_model::{CacheConfig, Caches, HierarchyConfig, LevelConfig, Sharing};

/// What the caches are like when nothing else is said: the first two levels of
/// many of today's cores, and a small shared third.
const DEFAULT: [&str; 4] = ["32K,8,64", "32K,8,64", "1M,16,64", "8M,16,64"];

/// A cache hierarchy.
#[derive(Args, Clone, Debug)]
pub struct HierarchyArgs {
    /// First-level instruction cache [default: 32K,8,64].
    #[arg(long, value_name = "SIZE,WAYS,LINE[,WORDS]")]
    l1i: Option<String>,
    /// First-level data cache [default: 32K,8,64].
    #[arg(long, value_name = "SIZE,WAYS,LINE[,WORDS]")]
    l1d: Option<String>,
    /// Second level, unified, one for each core [default: 1M,16,64; `none` leaves it out].
    #[arg(long, value_name = "SIZE,WAYS,LINE[,WORDS]")]
    l2: Option<String>,
    /// Third level, unified, shared by all cores [default: 8M,16,64; `none` leaves it out].
    #[arg(long, value_name = "SIZE,WAYS,LINE[,WORDS]")]
    l3: Option<String>,
    /// How many cores the threads share; 0 gives each thread a core of its own.
    #[arg(long, value_name = "N", default_value_t = 0)]
    cores: u32,
    /// Count exactly as `valgrind --tool=cachegrind` does: I1, D1 and a last level (--l3, or --l2
    /// when there is no --l3), everything shared, an access across lines counted once.
    #[arg(long)]
    cachegrind: bool,
}

impl HierarchyArgs {
    /// The hierarchy, checked.
    pub fn config(&self) -> Result<HierarchyConfig> {
        let [i, d, l2, l3] = DEFAULT;
        let code = CacheConfig::parse("l1i", self.l1i.as_deref().unwrap_or(i))?;
        let data = CacheConfig::parse("l1d", self.l1d.as_deref().unwrap_or(d))?;
        let l2 = level("l2", self.l2.as_deref(), l2)?;
        let l3 = level("l3", self.l3.as_deref(), l3)?;
        if self.cachegrind {
            let Some(last) = l3.or(l2) else {
                bail!("--cachegrind needs a last level: --l2 or --l3");
            };
            return Ok(HierarchyConfig::cachegrind(code, data, last));
        }
        let mut levels = vec![LevelConfig {
            name: "l1".into(),
            caches: Caches::Split { code, data },
            sharing: Sharing::Private,
        }];
        let unified = |name: &str, cache, sharing| LevelConfig {
            name: name.into(),
            caches: Caches::Unified(cache),
            sharing,
        };
        levels.extend(l2.map(|c| unified("l2", c, Sharing::Private)));
        levels.extend(l3.map(|c| unified("l3", c, Sharing::Shared)));
        let config = HierarchyConfig { levels, cores: self.cores, ..HierarchyConfig::default() };
        config.check()?;
        Ok(config)
    }
}

fn level(name: &str, given: Option<&str>, default: &str) -> Result<Option<CacheConfig>> {
    match given {
        Some("none") => Ok(None),
        text => Ok(Some(CacheConfig::parse(name, text.unwrap_or(default))?)),
    }
}
