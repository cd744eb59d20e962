//! The locality models side by side in one pass, each only if it is wanted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{About, Batch, Blocks, Event, Sink, ThreadId};
use ichnos_model::{
    BlockVectors, CacheConfig, Caches, Error, InsnMix, Optimal, References, ReuseDistance, Shards,
    StrideProfile, WorkingSet,
};

use crate::images::Images;

/// Which models are wanted, and how.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Bytes per line.
    pub line: u32,
    /// Which references count.
    pub references: References,
    /// Exact reuse distances.
    pub exact: bool,
    /// A sample of them: one line in so many, and at most so many lines.
    pub sample: Option<(u32, u32)>,
    /// The fewest possible misses of these caches, from at most so many references each.
    pub optimal: (Vec<CacheConfig>, usize),
    /// The working set, by windows of so many instructions.
    pub window: Option<u64>,
    /// The stride profile.
    pub strides: bool,
    /// The instruction mix.
    pub mix: bool,
    /// Block vectors, by intervals of so many instructions.
    pub interval: Option<u64>,
}

/// The models.
pub struct Locality {
    /// Exact reuse distances.
    pub reuse: Option<ReuseDistance>,
    /// Sampled ones.
    pub sample: Option<Shards>,
    /// The fewest possible misses.
    pub optimal: Vec<Optimal>,
    /// The working set.
    pub working_set: Option<WorkingSet>,
    /// The stride profile.
    pub strides: Option<StrideProfile>,
    /// The instruction mix.
    pub mix: Option<InsnMix>,
    /// Block vectors.
    pub blocks: Option<BlockVectors>,
    /// Names for the stride profile.
    pub images: Images,
}

impl Locality {
    /// Nothing seen yet.
    pub fn new(wanted: &Wanted) -> Result<Self, Error> {
        let Wanted { line, references, .. } = *wanted;
        let exact = wanted.exact.then(|| ReuseDistance::new(line, references));
        let sample = wanted.sample.map(|(n, most)| Shards::new(line, references, n, most));
        let window = wanted.window.map(|window| WorkingSet::new(line, references, window));
        let side = |cache: &CacheConfig| match references {
            References::Code => Caches::Code(cache.clone()),
            References::Data => Caches::Data(cache.clone()),
            References::All => Caches::Unified(cache.clone()),
        };
        let (caches, limit) = &wanted.optimal;
        let optimal = caches.iter().map(|cache| Optimal::new(&side(cache), *limit));
        Ok(Self {
            optimal: optimal.collect::<Result<_, _>>()?,
            reuse: exact.transpose()?,
            sample: sample.transpose()?,
            working_set: window.transpose()?,
            strides: wanted.strides.then(StrideProfile::new),
            mix: wanted.mix.then(InsnMix::new),
            blocks: wanted.interval.map(BlockVectors::new).transpose()?,
            images: Images::new(),
        })
    }

    /// Calls each model that is wanted.
    fn each(&mut self, mut call: impl FnMut(&mut Model<'_>)) {
        fn model<'a, S: Sink<Error = Infallible>>(
            sink: &'a mut Option<S>,
        ) -> Option<&'a mut Model<'a>> {
            sink.as_mut().map(|sink| sink as &mut Model<'a>)
        }
        let models = [
            model(&mut self.reuse),
            model(&mut self.sample),
            model(&mut self.working_set),
            model(&mut self.strides),
            model(&mut self.mix),
            model(&mut self.blocks),
        ];
        for sink in models.into_iter().flatten() {
            call(sink);
        }
        for sink in &mut self.optimal {
            call(sink);
        }
    }
}

/// Any model.
type Model<'a> = dyn Sink<Error = Infallible> + 'a;

impl Sink for Locality {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.each(|sink| {
            let Ok(_) = sink.records(batch);
        });
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        self.reuse.as_ref().is_none_or(Sink::takes_blocks)
            && self.sample.as_ref().is_none_or(Sink::takes_blocks)
            && self.working_set.as_ref().is_none_or(Sink::takes_blocks)
            && self.strides.as_ref().is_none_or(Sink::takes_blocks)
            && self.mix.as_ref().is_none_or(Sink::takes_blocks)
            && self.optimal.iter().all(Sink::takes_blocks)
            && self.blocks.as_ref().is_none_or(Sink::takes_blocks)
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        self.each(|sink| {
            let Ok(_) = sink.blocks(blocks);
        });
        Ok(true)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.each(|sink| {
            let Ok(_) = sink.begin(about);
        });
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.images.event(thread, event);
        self.each(|sink| {
            let Ok(_) = sink.event(thread, event);
        });
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        self.each(|sink| {
            let Ok(()) = sink.finish();
        });
        Ok(())
    }
}
