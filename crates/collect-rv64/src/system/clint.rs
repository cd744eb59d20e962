//! The core-local interruptor: per hart a software interrupt and a timer.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub(crate) const BASE: u64 = 0x0200_0000;
pub(crate) const SIZE: u64 = 0x1_0000;
const TIMERS: u64 = 0x4000;
const TIME: u64 = 0xbff8;

/// Software interrupts and timers of all harts.
#[derive(Debug)]
pub(crate) struct Clint {
    software: Vec<bool>,
    compare: Vec<u64>,
    /// What is added to the machine's clock: software may set the time.
    offset: u64,
}

impl Clint {
    pub(crate) fn new(harts: usize) -> Self {
        Self { software: vec![false; harts], compare: vec![u64::MAX; harts], offset: 0 }
    }

    /// The time that guests read, from the machine's clock.
    pub(crate) fn time(&self, clock: u64) -> u64 {
        clock.wrapping_add(self.offset)
    }

    /// Whether a hart's software interrupt is raised.
    pub(crate) fn software(&self, hart: usize) -> bool {
        self.software[hart]
    }

    /// Whether a hart's timer has come.
    pub(crate) fn timer(&self, hart: usize, clock: u64) -> bool {
        self.time(clock) >= self.compare[hart]
    }

    /// The machine's clock at which a hart's timer comes.
    pub(crate) fn deadline(&self, hart: usize) -> Option<u64> {
        let compare = self.compare[hart];
        (compare != u64::MAX).then(|| compare.saturating_sub(self.offset))
    }

    pub(crate) fn read(&self, offset: u64, clock: u64) -> u64 {
        let index = |start: u64, size: u64| ((offset - start) / size) as usize;
        match offset {
            0..TIMERS => self.software.get(index(0, 4)).copied().unwrap_or(false).into(),
            TIMERS..TIME => {
                let value = self.compare.get(index(TIMERS, 8)).copied().unwrap_or(0);
                value >> (8 * (offset % 8))
            }
            _ => self.time(clock) >> (8 * (offset % 8)),
        }
    }

    pub(crate) fn write(&mut self, offset: u64, size: usize, value: u64, clock: u64) {
        let part = |old: u64| {
            let shift = 8 * (offset % 8);
            let mask = if size == 8 { u64::MAX } else { ((1 << (8 * size)) - 1) << shift };
            old & !mask | value << shift & mask
        };
        match offset {
            0..TIMERS => {
                if let Some(software) = self.software.get_mut((offset / 4) as usize) {
                    *software = value & 1 != 0;
                }
            }
            TIMERS..TIME => {
                if let Some(compare) = self.compare.get_mut(((offset - TIMERS) / 8) as usize) {
                    *compare = part(*compare);
                }
            }
            _ => self.offset = part(self.time(clock)).wrapping_sub(clock),
        }
    }
}
