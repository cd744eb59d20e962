//! A whole sweep as one sink: the one-pass method where it applies, models in
//! parallel where it does not.
//!
//! The one-pass method answers for hierarchies of a single level of plain LRU
//! caches with a power of two of sets, under the default counting of straddling
//! accesses and read-modify-writes; with several threads in the trace it applies
//! to shared caches only, so private ones go the other way. It counts no traffic:
//! with a write-through cache everything goes the other way, too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::num::NonZeroUsize;

use ichnos_base::{About, Batch, Blocks, Event, Sink, ThreadId};

use super::lru::LruSweep;
use super::parallel::Parallel;
use crate::cache::{
    CacheConfig, CacheStats, Caches, Classify, Hierarchy, HierarchyConfig, Hints, Modify, Sharing,
    Straddle, WritePolicy,
};
use crate::{ByKind, Error, References};

/// The counts of one cache of one point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SweepCache {
    /// The cache's name.
    pub name: String,
    /// Its accesses.
    pub accesses: ByKind,
    /// Its misses.
    pub misses: ByKind,
    /// The instructions of the run.
    pub instructions: u64,
    /// All its counts; the one-pass method knows accesses and misses alone.
    pub stats: Option<CacheStats>,
    /// Whether its misses are sorted by cause.
    pub classified: bool,
}

/// Simulates many hierarchies over one trace.
#[derive(Debug)]
pub struct Sweep {
    method: Method,
}

#[derive(Debug)]
enum Method {
    /// One sweep for each way into the caches, with the names of the caches.
    OnePass(Vec<(String, LruSweep)>, usize),
    Parallel(Parallel<Hierarchy>),
}

impl Sweep {
    /// For these hierarchies, on at most `threads` threads.
    ///
    /// # Errors
    ///
    /// The first hierarchy that makes no sense.
    pub fn new(configs: &[HierarchyConfig], threads: NonZeroUsize) -> Result<Self, Error> {
        for config in configs {
            config.check()?;
        }
        if let Some(method) = one_pass(configs)? {
            return Ok(Self { method });
        }
        let models: Result<Vec<Hierarchy>, Error> = configs.iter().map(Hierarchy::new).collect();
        Ok(Self { method: Method::Parallel(Parallel::new(models?, threads)) })
    }

    /// Whether one pass serves all hierarchies.
    #[must_use]
    pub const fn is_one_pass(&self) -> bool {
        matches!(self.method, Method::OnePass(..))
    }

    /// The counts of each hierarchy, in the order given.
    #[must_use]
    pub fn into_results(self) -> Vec<Vec<SweepCache>> {
        match self.method {
            Method::OnePass(sweeps, points) => {
                let mut results = vec![Vec::new(); points];
                for (name, sweep) in sweeps {
                    for (result, point) in results.iter_mut().zip(sweep.report()) {
                        let (accesses, misses) = (point.accesses, point.misses);
                        result.push(SweepCache {
                            name: name.clone(),
                            accesses,
                            misses,
                            instructions: sweep.instructions(),
                            stats: None,
                            classified: false,
                        });
                    }
                }
                results
            }
            Method::Parallel(parallel) => parallel.into_models().iter().map(counts).collect(),
        }
    }
}

fn counts(model: &Hierarchy) -> Vec<SweepCache> {
    let report = model.report();
    let total = |name: &str| {
        let stats = report.total(name)?;
        Some(SweepCache {
            name: name.to_owned(),
            accesses: stats.accesses,
            misses: stats.misses,
            instructions: report.instructions,
            stats: Some(stats),
            classified: report.is_classified(name),
        })
    };
    report.names().into_iter().filter_map(total).collect()
}

/// The sweeps that serve all hierarchies, if the method applies to all.
fn one_pass(configs: &[HierarchyConfig]) -> Result<Option<Method>, Error> {
    let mut sides: Vec<(String, References, Vec<CacheConfig>)> = Vec::new();
    for (at, config) in configs.iter().enumerate() {
        let Some(caches) = plain_caches(config) else { return Ok(None) };
        if at == 0 {
            sides = caches.iter().map(|(n, r, _)| (n.clone(), *r, Vec::new())).collect();
        }
        let same = sides.len() == caches.len()
            && sides.iter().zip(&caches).all(|(side, cache)| side.0 == cache.0);
        if !same {
            return Ok(None);
        }
        for (side, (_, _, cache)) in sides.iter_mut().zip(caches) {
            side.2.push(cache);
        }
    }
    let mut sweeps = Vec::new();
    for (name, references, caches) in sides {
        sweeps.push((name, LruSweep::new(&caches, references)?));
    }
    Ok(Some(Method::OnePass(sweeps, configs.len())))
}

/// The caches of a hierarchy to which the one-pass method applies.
fn plain_caches(config: &HierarchyConfig) -> Option<Vec<(String, References, CacheConfig)>> {
    let [level] = config.levels.as_slice() else { return None };
    let counts = config.straddle == Straddle::Split && config.modify == Modify::Both;
    // Prefetch and flush instructions change contents; a sweep knows neither.
    if !counts || config.hints != Hints::Ignore || level.sharing != Sharing::Shared {
        return None;
    }
    let name = |side: &str| format!("{}{side}", level.name);
    let caches = match level.caches.clone() {
        Caches::Unified(cache) => vec![(name(""), References::All, cache)],
        Caches::Code(cache) => vec![(name("i"), References::Code, cache)],
        Caches::Data(cache) => vec![(name("d"), References::Data, cache)],
        Caches::Split { code, data } => {
            vec![(name("i"), References::Code, code), (name("d"), References::Data, data)]
        }
    };
    let plain = |cache: &CacheConfig| {
        let geometry = CacheConfig {
            write: cache.write,
            ..CacheConfig::new(cache.size, cache.ways, cache.line)
        };
        *cache == geometry
            && cache.write != WritePolicy::Through
            && cache.sets().is_power_of_two()
            && cache.classify == Classify::No
    };
    // Whoever asks for write-through wants to know the traffic.
    caches.iter().all(|(_, _, cache)| plain(cache)).then_some(caches)
}

impl Sink for Sweep {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        match &mut self.method {
            Method::OnePass(sweeps, _) => {
                for (_, sweep) in sweeps {
                    sweep.records(batch)?;
                }
                Ok(true)
            }
            Method::Parallel(parallel) => parallel.records(batch),
        }
    }

    fn takes_blocks(&self) -> bool {
        match &self.method {
            Method::OnePass(sweeps, _) => sweeps.iter().all(|(_, sweep)| sweep.takes_blocks()),
            Method::Parallel(parallel) => parallel.takes_blocks(),
        }
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        match &mut self.method {
            Method::OnePass(sweeps, _) => {
                for (_, sweep) in sweeps {
                    sweep.blocks(blocks)?;
                }
                Ok(true)
            }
            Method::Parallel(parallel) => parallel.blocks(blocks),
        }
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        match &mut self.method {
            Method::OnePass(sweeps, _) => {
                for (_, sweep) in sweeps {
                    sweep.begin(about)?;
                }
                Ok(true)
            }
            Method::Parallel(parallel) => parallel.begin(about),
        }
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match &mut self.method {
            Method::OnePass(sweeps, _) => {
                for (_, sweep) in sweeps {
                    sweep.event(thread, event)?;
                }
                Ok(true)
            }
            Method::Parallel(parallel) => parallel.event(thread, event),
        }
    }
}
