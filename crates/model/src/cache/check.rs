//! The rules between the caches of a hierarchy; those of a single cache stand
//! with [`CacheConfig`].
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::config::{
    CacheConfig, Caches, HierarchyConfig, Inclusion, LevelConfig, Sharing, Straddle, WritePolicy,
};
use crate::Error;
use crate::error::{conflict, range};

/// Checks every cache and every pair of levels.
pub(super) fn hierarchy(config: &HierarchyConfig) -> Result<(), Error> {
    range("levels", config.levels.len() as u64, 1, 16)?;
    range("cores", u64::from(config.cores), 0, 1 << 16)?;
    for (at, level) in config.levels.iter().enumerate() {
        for (name, cache) in named(level) {
            cache.check(&name)?;
            stand_alone(config, at, &name, cache)?;
        }
    }
    let levels = config.levels.iter().map(|level| level.name.clone());
    once(levels)?;
    once(config.levels.iter().flat_map(named).map(|(name, _)| name))?;
    for pair in config.levels.windows(2) {
        if let [above, below] = pair {
            neighbours(above, below)?;
        }
    }
    Ok(())
}

/// Checks that no two have the same name: counts are told apart by it.
fn once(names: impl Iterator<Item = String>) -> Result<(), Error> {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(conflict(&format!("{name}.name"), "there are two of this name"));
        }
        seen.push(name);
    }
    Ok(())
}

/// The caches of a level with their names: `l1i` and `l1d`, or `l2`.
pub(super) fn named(level: &LevelConfig) -> Vec<(String, &CacheConfig)> {
    let name = &level.name;
    match &level.caches {
        Caches::Unified(cache) => vec![(name.clone(), cache)],
        Caches::Split { code, data } => {
            vec![(format!("{name}i"), code), (format!("{name}d"), data)]
        }
        Caches::Code(cache) => vec![(format!("{name}i"), cache)],
        Caches::Data(cache) => vec![(format!("{name}d"), cache)],
    }
}

fn stand_alone(
    config: &HierarchyConfig,
    at: usize,
    name: &str,
    cache: &CacheConfig,
) -> Result<(), Error> {
    let field = |f: &str| format!("{name}.{f}");
    if at == 0 && cache.inclusion != Inclusion::NonInclusive {
        return Err(conflict(
            &field("inclusion"),
            "the first level has no level above to include or exclude",
        ));
    }
    let plain =
        cache.inclusion == Inclusion::NonInclusive && cache.victim_lines == 0 && cache.sectors == 1;
    if config.straddle == Straddle::One && !plain {
        return Err(conflict(
            &field("straddle"),
            "counting straddling accesses as one needs non-inclusive caches without victim cache and sectors",
        ));
    }
    let moves = cache.inclusion == Inclusion::Exclusive || cache.victim_lines > 0;
    if moves && cache.sectors > 1 {
        return Err(conflict(
            &field("sectors"),
            "lines that move between caches cannot be sectored",
        ));
    }
    if cache.victim_lines > 0 && cache.write == WritePolicy::Through {
        return Err(conflict(
            &field("victim"),
            "a victim cache hands dirty lines back, which a write-through cache cannot take",
        ));
    }
    Ok(())
}

fn neighbours(above: &LevelConfig, below: &LevelConfig) -> Result<(), Error> {
    if above.sharing == Sharing::Shared && below.sharing == Sharing::Private {
        return Err(conflict(
            &format!("{}.sharing", below.name),
            "a level below a shared one must be shared",
        ));
    }
    let unified = |l: &LevelConfig| matches!(l.caches, Caches::Unified(_));
    if unified(above) && !unified(below) {
        return Err(conflict(
            &format!("{}.caches", below.name),
            "a level below a unified one must be unified",
        ));
    }
    for (_, upper) in named(above) {
        for (name, lower) in named(below) {
            pair(upper, &name, lower)?;
        }
    }
    Ok(())
}

fn pair(upper: &CacheConfig, name: &str, lower: &CacheConfig) -> Result<(), Error> {
    let most = 1 << 16;
    range(&format!("{name}.line"), u64::from(lower.line), u64::from(upper.line), most)?;
    if lower.inclusion != Inclusion::Exclusive {
        return Ok(());
    }
    let field = format!("{name}.inclusion");
    if lower.line != upper.line {
        return Err(conflict(&field, "an exclusive level needs the line size of the level above"));
    }
    if upper.write == WritePolicy::Through || upper.sectors > 1 {
        return Err(conflict(
            &field,
            "an exclusive level hands dirty whole lines up, which a write-through or sectored cache above cannot take",
        ));
    }
    Ok(())
}
