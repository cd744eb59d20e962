//! The platform-level interrupt controller: device interrupts to harts. Each
//! hart has two contexts, for machine and for supervisor mode.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub(crate) const BASE: u64 = 0x0c00_0000;
pub(crate) const SIZE: u64 = 0x0040_0000;
/// Interrupt sources; source 0 does not exist.
pub(crate) const SOURCES: usize = 32;
const PENDING: u64 = 0x1000;
const ENABLE: u64 = 0x2000;
const ENABLE_END: u64 = 0x1f_2000;
const CONTEXT: u64 = 0x20_0000;

#[derive(Clone, Debug, Default)]
struct Context {
    enabled: u32,
    threshold: u32,
    /// Sources taken and not yet completed.
    claimed: u32,
}

/// Level-triggered device interrupts.
#[derive(Debug)]
pub(crate) struct Plic {
    priority: [u32; SOURCES],
    /// What devices assert.
    level: u32,
    contexts: Vec<Context>,
}

impl Plic {
    pub(crate) fn new(harts: usize) -> Self {
        Self { priority: [0; SOURCES], level: 0, contexts: vec![Context::default(); 2 * harts] }
    }

    /// A device raises or lowers its line.
    pub(crate) fn set_level(&mut self, source: u32, high: bool) {
        let bit = 1 << source;
        self.level = if high { self.level | bit } else { self.level & !bit };
    }

    /// Sources that are taken by some context are not offered again.
    fn offered(&self) -> u32 {
        self.level & !self.contexts.iter().fold(0, |all, c| all | c.claimed)
    }

    /// The most urgent source for a context, if it is above the threshold.
    fn best(&self, context: &Context) -> Option<usize> {
        let candidates = self.offered() & context.enabled;
        (1..SOURCES)
            .filter(|&s| candidates >> s & 1 != 0 && self.priority[s] > context.threshold)
            .max_by_key(|&s| (self.priority[s], SOURCES - s))
    }

    /// Whether a context's interrupt line is high.
    pub(crate) fn line(&self, context: usize) -> bool {
        self.level != 0 && self.contexts.get(context).is_some_and(|c| self.best(c).is_some())
    }

    pub(crate) fn read(&mut self, offset: u64) -> u64 {
        let word = (offset / 4) as usize;
        match offset {
            0..PENDING => self.priority.get(word).copied().unwrap_or(0).into(),
            PENDING..ENABLE if offset == PENDING => self.offered().into(),
            ENABLE..ENABLE_END => {
                let context = self.contexts.get(((offset - ENABLE) / 0x80) as usize);
                context.filter(|_| offset.is_multiple_of(0x80)).map_or(0, |c| c.enabled.into())
            }
            CONTEXT.. => {
                let n = ((offset - CONTEXT) / 0x1000) as usize;
                match (self.contexts.get(n), offset % 0x1000) {
                    (Some(c), 0) => c.threshold.into(),
                    (Some(_), 4) => self.claim(n),
                    _ => 0,
                }
            }
            _ => 0,
        }
    }

    fn claim(&mut self, n: usize) -> u64 {
        let source = self.best(&self.contexts[n]).unwrap_or(0);
        if source != 0 {
            self.contexts[n].claimed |= 1 << source;
        }
        source as u64
    }

    pub(crate) fn write(&mut self, offset: u64, value: u64) {
        let value = value as u32;
        match offset {
            0..PENDING => {
                if let Some(priority) = self.priority.get_mut((offset / 4) as usize) {
                    *priority = value & 7;
                }
            }
            ENABLE..ENABLE_END if offset.is_multiple_of(0x80) => {
                if let Some(context) = self.contexts.get_mut(((offset - ENABLE) / 0x80) as usize) {
                    context.enabled = value & !1;
                }
            }
            CONTEXT.. => {
                if let Some(context) = self.contexts.get_mut(((offset - CONTEXT) / 0x1000) as usize)
                {
                    match offset % 0x1000 {
                        0 => context.threshold = value & 7,
                        4 => context.claimed &= !1u32.wrapping_shl(value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_and_complete() {
        let mut plic = Plic::new(1);
        plic.write(4 * 10, 3);
        plic.write(4 * 11, 3);
        plic.write(ENABLE + 0x80, 1 << 10 | 1 << 11);
        assert!(!plic.line(1));
        plic.set_level(11, true);
        plic.set_level(10, true);
        assert!(plic.line(1) && !plic.line(0));
        assert_eq!(plic.read(CONTEXT + 0x1004), 10);
        assert_eq!(plic.read(CONTEXT + 0x1004), 11);
        assert_eq!(plic.read(CONTEXT + 0x1004), 0);
        assert!(!plic.line(1));
        plic.write(CONTEXT + 0x1004, 10);
        assert!(plic.line(1), "the line is still high");
        plic.write(CONTEXT + 0x1000, 3);
        assert!(!plic.line(1), "the threshold hides it");
    }
}
