//! What to simulate, as users describe it on the command line: a known machine,
//! a file, or caches one by one, with or without TLBs and a branch predictor.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use ichnos_model::{
    BranchConfig, CacheConfig, Caches, HierarchyConfig, LevelConfig, Machine, Replacement, Sharing,
    TlbConfig, TlbHierarchyConfig, TlbLevelConfig, Tlbs, WritePolicy,
};

use crate::config_file;

/// What the caches are like when nothing else is said: the first two levels of
/// many of today's cores, and a small shared third.
const DEFAULT: [&str; 4] = ["32K,8,64", "32K,8,64", "1M,16,64", "8M,16,64"];

/// What is simulated in one pass.
#[derive(Clone, Debug)]
pub struct Models {
    /// The caches.
    pub caches: HierarchyConfig,
    /// The TLBs, if wanted.
    pub tlbs: Option<TlbHierarchyConfig>,
    /// The branch predictor, if wanted.
    pub branch: Option<BranchConfig>,
}

/// A memory hierarchy.
#[derive(Args, Clone, Debug)]
pub struct HierarchyArgs {
    /// The caches and TLBs of a known machine; `list` prints them all with their sources.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    machine: Option<String>,
    /// Caches of any number of levels, TLBs and branch predictor from a TOML file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    /// How many cores the threads share; 0, the default, gives each thread a core of its own.
    #[arg(long, value_name = "N")]
    cores: Option<u32>,
    /// Count exactly as `valgrind --tool=cachegrind` does: I1, D1 and a last level (--l3, or --l2
    /// when there is no --l3), everything shared, an access across lines counted once.
    #[arg(long, conflicts_with_all = ["machine", "config"])]
    cachegrind: bool,
    /// Simulate TLBs, too: those of --machine or --config, else 64 entries of 4 ways for each of
    /// code and data, and 1536 of 12 ways behind them.
    #[arg(long)]
    tlb: bool,
    /// Simulate a branch predictor, too: taken, not-taken, btfn, bimodal, gshare, local,
    /// tournament, perceptron or tage, with target buffer and return stack.
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
}

impl HierarchyArgs {
    /// Whether only the list of machines is asked for.
    pub fn wants_list(&self) -> bool {
        self.machine.as_deref() == Some("list")
    }

    /// Whether the user said what the levels behind the first are.
    pub fn says_levels(&self) -> bool {
        self.machine.is_some()
            || self.config.is_some()
            || self.l2.is_some()
            || self.l3.is_some()
            || self.cachegrind
    }

    /// What to simulate, checked.
    pub fn models(&self) -> Result<Models> {
        self.with_tlbs(self.tlb.then(default_tlbs))
    }

    /// What to simulate in a profile, which always has a TLB.
    pub fn profile_models(&self) -> Result<Models> {
        self.with_tlbs(Some(if self.tlb { default_tlbs() } else { round_robin_tlb() }))
    }

    /// What to simulate, with these TLBs where the user describes none; page sizes and
    /// walks are the user's in any case.
    fn with_tlbs(&self, usual: Option<TlbHierarchyConfig>) -> Result<Models> {
        let mut models = self.base()?;
        if !self.tlb && self.config.is_none() {
            models.tlbs = None;
        }
        models.tlbs = match (models.tlbs, usual) {
            (Some(tlbs), usual) if tlbs.levels.is_empty() => {
                usual.map(|usual| TlbHierarchyConfig { levels: usual.levels, ..tlbs })
            }
            (Some(tlbs), _) => Some(tlbs),
            (None, usual) => usual,
        };
        if let Some(name) = &self.branch {
            let direction = config_file::predictor(name).context("--branch")?;
            let rest = models.branch.unwrap_or_default();
            models.branch = Some(BranchConfig { direction, ..rest });
        }
        models.caches.check()?;
        Ok(models)
    }

    fn base(&self) -> Result<Models> {
        if self.cachegrind {
            return self.as_cachegrind();
        }
        let mut models = match (&self.machine, &self.config) {
            (Some(name), _) => machine(name)?,
            (None, Some(path)) => config_file::read(path)?,
            (None, None) => Models { caches: default_caches()?, tlbs: None, branch: None },
        };
        for (name, given) in self.given() {
            if let Some(text) = given {
                set(&mut models.caches, name, text)?;
            }
        }
        if let Some(cores) = self.cores {
            models.caches.cores = cores;
        }
        Ok(models)
    }

    fn given(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("l1i", self.l1i.as_deref()),
            ("l1d", self.l1d.as_deref()),
            ("l2", self.l2.as_deref()),
            ("l3", self.l3.as_deref()),
        ]
    }

    fn as_cachegrind(&self) -> Result<Models> {
        let [i, d, l2, l3] = DEFAULT;
        let code = cachegrind_cache("l1i", self.l1i.as_deref().unwrap_or(i))?;
        let data = cachegrind_cache("l1d", self.l1d.as_deref().unwrap_or(d))?;
        let last = match (self.l2.as_deref(), self.l3.as_deref()) {
            (Some("none"), Some("none")) => {
                bail!("--cachegrind needs a last level: --l2 or --l3")
            }
            (None, Some("none")) => cachegrind_cache("l2", l2)?,
            (None | Some("none"), last) => cachegrind_cache("l3", last.unwrap_or(l3))?,
            (Some(last), None | Some("none")) => cachegrind_cache("l2", last)?,
            (Some(_), Some(_)) => {
                bail!("--cachegrind has two levels: give --l2 or --l3, not both")
            }
        };
        let caches = HierarchyConfig::cachegrind(code, data, last);
        Ok(Models { caches, tlbs: None, branch: None })
    }
}

/// A cache as cachegrind has them: it knows nothing but their geometry.
fn cachegrind_cache(name: &str, text: &str) -> Result<CacheConfig> {
    let cache = CacheConfig::parse(name, text)?;
    let plain =
        CacheConfig { write: cache.write, ..CacheConfig::new(cache.size, cache.ways, cache.line) };
    if cache != plain || cache.write == WritePolicy::Through {
        bail!("--{name}: with --cachegrind a cache has SIZE,WAYS,LINE alone, got \"{text}\"");
    }
    Ok(cache)
}

fn machine(name: &str) -> Result<Models> {
    let machine = Machine::named(name).ok_or_else(|| {
        let known: Vec<_> = Machine::all().iter().map(|m| m.name).collect();
        anyhow!("--machine: there is no machine called \"{name}\"; there are {}", known.join(", "))
    })?;
    Ok(Models { caches: machine.caches, tlbs: Some(machine.tlbs), branch: None })
}

fn default_caches() -> Result<HierarchyConfig> {
    let [i, d, l2, l3] = DEFAULT;
    let (code, data) = (CacheConfig::parse("l1i", i)?, CacheConfig::parse("l1d", d)?);
    let level =
        |name: &str, caches, sharing| LevelConfig { name: name.to_owned(), caches, sharing };
    let unified =
        |name, text| Ok::<_, ichnos_model::Error>(Caches::Unified(CacheConfig::parse(name, text)?));
    let levels = vec![
        level("l1", Caches::Split { code, data }, Sharing::Private),
        level("l2", unified("l2", l2)?, Sharing::Private),
        level("l3", unified("l3", l3)?, Sharing::Shared),
    ];
    Ok(HierarchyConfig { levels, ..HierarchyConfig::default() })
}

/// What a profile has for a TLB when nothing else is said: 64 pages of code and
/// data together, replaced in turn.
fn round_robin_tlb() -> TlbHierarchyConfig {
    let one = TlbConfig { replacement: Replacement::Fifo, ..TlbConfig::new(64, 64) };
    let level = TlbLevelConfig { name: "tlb".to_owned(), tlbs: Tlbs::Unified(one) };
    TlbHierarchyConfig { levels: vec![level], ..TlbHierarchyConfig::default() }
}

/// The TLBs of `--tlb` when nothing else is said.
pub fn default_tlbs() -> TlbHierarchyConfig {
    let first = Tlbs::Split { code: TlbConfig::new(64, 4), data: TlbConfig::new(64, 4) };
    let second = Tlbs::Unified(TlbConfig::new(1536, 12));
    let level = |name: &str, tlbs| TlbLevelConfig { name: name.to_owned(), tlbs };
    let levels = vec![level("tlb1", first), level("tlb2", second)];
    TlbHierarchyConfig { levels, ..TlbHierarchyConfig::default() }
}

/// Puts a cache of the short form in the place of the one of that name; `none`
/// takes its level away, and a further unified level can be added at the end.
fn set(caches: &mut HierarchyConfig, name: &str, text: &str) -> Result<()> {
    if text == "none" {
        let before = caches.levels.len();
        caches.levels.retain(|level| level.name != name);
        if caches.levels.len() == before && name.starts_with("l1") {
            bail!("--{name}: only a whole level can be left out");
        }
        return Ok(());
    }
    let cache = CacheConfig::parse(name, text)?;
    if let Some(place) = caches.cache_mut(name) {
        *place = cache;
        return Ok(());
    }
    if name.starts_with("l1") || caches.levels.iter().any(|level| level.name == name) {
        bail!("--{name}: the machine has no cache of that name");
    }
    let sharing = caches.levels.last().map_or(Sharing::Private, |level| level.sharing);
    let caches_of = Caches::Unified(cache);
    caches.levels.push(LevelConfig { name: name.to_owned(), caches: caches_of, sharing });
    Ok(())
}

/// The models in words, a line each, for the heads of exported profiles.
pub fn describe(models: &Models) -> Vec<String> {
    let cache = |name: String, c: &CacheConfig| {
        format!("{name} cache: {} B, {} B, {}-way associative", c.size, c.line, c.ways)
    };
    let mut lines = Vec::new();
    for level in &models.caches.levels {
        let name = |side: &str| format!("{}{side}", level.name);
        match &level.caches {
            Caches::Unified(one) => lines.push(cache(name(""), one)),
            Caches::Code(one) => lines.push(cache(name("i"), one)),
            Caches::Data(one) => lines.push(cache(name("d"), one)),
            Caches::Split { code, data } => {
                lines.push(cache(name("i"), code));
                lines.push(cache(name("d"), data));
            }
        }
    }
    lines
}
