//! Bytes that another processor has stored, brought near before somebody goes through them item by item.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Bytes of a processor's cache line, and how many are fetched at a time: few enough to stay in its first cache.
const LINE: usize = 64;
const FETCHED: usize = 16 << 10;

/// How much of some bytes was not fetched yet.
#[derive(Clone, Copy, Debug)]
pub struct Unfetched(usize);

impl Default for Unfetched {
    /// All of them.
    fn default() -> Self {
        Self(usize::MAX)
    }
}

impl Unfetched {
    /// The first of these bytes, behind which there are no others, is needed next. All lines from there on, for a while, are on
    /// their way at once then, and not one by one when it is known where the next item begins.
    #[inline(always)]
    pub fn need(&mut self, rest: &[u8]) {
        if rest.len() <= self.0 {
            self.fetch(rest);
        }
    }

    #[inline(never)]
    fn fetch(&mut self, rest: &[u8]) {
        let near = rest.get(..FETCHED).unwrap_or(rest);
        self.0 = rest.len() - near.len();
        let (lines, _) = near.as_chunks::<LINE>();
        std::hint::black_box(lines.iter().fold(0, |all, line| all ^ line[0]));
    }
}
