//! Cache misses by region of memory: each mapping of each process, by its name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{Event, GuestVa, ProcessId, ThreadId};
use ichnos_image::{AddressSpace, ImageId};
use ichnos_model::{Access, LevelCounts, Observe};

/// Counts accesses and misses by what is mapped at the address referenced.
/// Mappings of one name are one region.
#[derive(Debug, Default)]
pub struct ByRegion {
    homes: HashMap<ThreadId, ProcessId>,
    spaces: HashMap<ProcessId, AddressSpace>,
    numbers: HashMap<String, u32>,
    names: Vec<String>,
    counts: Vec<LevelCounts>,
    elsewhere: LevelCounts,
    last: Option<Last>,
}

/// The region of the last access: most accesses are to the same one again.
#[derive(Clone, Copy, Debug)]
struct Last {
    process: ProcessId,
    start: GuestVa,
    last: GuestVa,
    region: u32,
}

impl ByRegion {
    /// Takes every event, to know what is mapped where.
    pub fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        let process = self.homes.get(&thread).copied().unwrap_or_default();
        match event {
            Event::ThreadStart(start) => {
                self.homes.insert(thread, start.process);
                // A process that begins by a fork has its maker's map.
                let maker = start.creator.and_then(|t| self.homes.get(&t));
                if let Some(space) = maker.and_then(|p| self.spaces.get(p)).cloned() {
                    self.spaces.entry(start.process).or_insert(space);
                }
                return;
            }
            Event::Map(map) => {
                let name = if map.path.is_empty() { "[anonymous]" } else { map.path };
                let region = self.number(name);
                let space = self.spaces.entry(process).or_default();
                space.map(map, Some(ImageId(region)));
            }
            Event::Unmap { start, len } => {
                if let Some(space) = self.spaces.get_mut(&process) {
                    space.unmap(*start, *len);
                }
            }
            Event::Exec { .. } => {
                self.spaces.remove(&process);
            }
            _ => return,
        }
        self.last = None;
    }

    /// The regions that were referenced, most misses of the first level first.
    pub fn counts(&self) -> Vec<(String, &LevelCounts)> {
        let named = self.names.iter().cloned().zip(&self.counts);
        let all = named.chain([("elsewhere".to_owned(), &self.elsewhere)]);
        let mut all: Vec<_> = all.filter(|(_, c)| c.accesses.total() > 0).collect();
        let misses = |counts: &LevelCounts| counts.misses.first().map_or(0, |m| m.total());
        all.sort_by_key(|(_, counts)| std::cmp::Reverse(misses(counts)));
        all
    }

    /// Forgets all counts and keeps what is mapped where.
    pub fn reset(&mut self) {
        self.counts.fill(LevelCounts::default());
        self.elsewhere = LevelCounts::default();
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        self.counts.push(LevelCounts::default());
        number
    }

    fn region(&mut self, process: ProcessId, addr: GuestVa) -> Option<u32> {
        if let Some(last) = self.last
            && last.process == process
            && last.start <= addr
            && addr <= last.last
        {
            return Some(last.region);
        }
        let mapping = self.spaces.get(&process)?.find(addr)?;
        let region = mapping.image?.0;
        self.last = Some(Last { process, start: mapping.start, last: mapping.last, region });
        Some(region)
    }
}

impl Observe for ByRegion {
    fn access(&mut self, access: &Access) {
        let process = self.homes.get(&access.thread).copied().unwrap_or_default();
        let region = self.region(process, access.addr);
        match region.and_then(|region| self.counts.get_mut(region as usize)) {
            Some(counts) => counts.count(access),
            None => self.elsewhere.count(access),
        }
    }
}
