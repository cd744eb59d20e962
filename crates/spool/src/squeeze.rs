//! Makes buffers of the tap smaller, quickly: what repeats is said once.
//!
//! All that is in a buffer lies at multiples of four bytes, so repetitions are looked for in words of four, which is a quarter of the
//! places that a compressor of bytes looks at. A squeezed buffer is a row of sequences, each a head of four bytes and so many words: how many words
//! are new (one byte), how many come again behind them (one byte, none or at least two), and from how many words before
//! (two bytes); bytes behind the last whole word come last, as they are. A loop's words come again and again, so that buffers become
//! three to twenty times smaller.
// SPDX-License-Identifier: MIT OR Apache-2.0

const WORD: usize = 4;
/// The most words that one sequence says are new, or come again.
const MOST: usize = 255;
/// How far back repetitions are found: as far as two bytes say.
const REACH: usize = 0xffff;
/// Bits of a place in the table of pairs seen.
const TABLE_BITS: u32 = 14;
/// So many new words are copied at once, whether they are new or not: most rows are shorter.
const STRIDE: usize = 32;
/// How many bytes are compared at once while they are the same.
const WIDE: usize = 32;

/// Squeezes buffers, one after the other.
pub struct Squeezer {
    /// Where a pair of words was seen last, in words, by its hash: also what earlier buffers left, since whatever is found is compared.
    seen: Box<[u32; 1 << TABLE_BITS]>,
}

impl Squeezer {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self { seen: Box::new([0; 1 << TABLE_BITS]) }
    }

    /// The most bytes that so many may become.
    pub const fn most(len: usize) -> usize {
        len + len / MOST + STRIDE + 16
    }

    /// Squeezes a buffer into `out`, from its start; how many bytes it came to. Nothing if there is no room for [`Squeezer::most`].
    pub fn squeeze(&mut self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        if out.len() < Self::most(bytes.len()) {
            return None;
        }
        let words = bytes.len() / WORD;
        let mut out = Out { bytes: out, len: 0 };
        let (mut at, mut told) = (0, 0);
        while let Some(pair) = pair(bytes, at) {
            let place = pair.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - TABLE_BITS);
            let before = std::mem::replace(&mut self.seen[place as usize], at as u32) as usize;
            let distance = at.wrapping_sub(before);
            if distance.wrapping_sub(1) >= REACH || self::pair(bytes, before) != Some(pair) {
                at += 1;
                continue;
            }
            let again = same(bytes, before, at);
            out.new_words(bytes, &mut told, at, again, distance)?;
            at += again;
            told = at;
        }
        out.new_words(bytes, &mut told, words, 0, 0)?;
        out.put(bytes.get(words * WORD..)?)?;
        Some(out.len)
    }
}

/// Two words from this one on.
#[inline]
fn pair(bytes: &[u8], word: usize) -> Option<u64> {
    let at = word * WORD;
    Some(u64::from_le_bytes(bytes.get(at..at + 2 * WORD)?.try_into().ok()?))
}

/// How many words from `at` on are those from `before` on, of which two are known to be.
#[inline]
fn same(bytes: &[u8], before: usize, at: usize) -> usize {
    let mut same = 2;
    let wide = |word: usize| bytes.get(word * WORD..word * WORD + WIDE);
    while same + WIDE / WORD <= MOST
        && wide(at + same).is_some_and(|w| Some(w) == wide(before + same))
    {
        same += WIDE / WORD;
    }
    while same + 2 <= MOST
        && let (Some(one), Some(other)) = (pair(bytes, at + same), pair(bytes, before + same))
    {
        match (one ^ other).trailing_zeros() {
            64 => same += 2,
            32.. => return same + 1,
            _ => return same,
        }
    }
    same
}

/// What is being made.
struct Out<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Out<'_> {
    /// Says which words are new since `told`, up to `until`, and that so many come again from some distance.
    #[inline]
    fn new_words(
        &mut self,
        bytes: &[u8],
        told: &mut usize,
        until: usize,
        again: usize,
        distance: usize,
    ) -> Option<()> {
        while until - *told > MOST {
            self.sequence(bytes, *told, MOST, 0)?;
            *told += MOST;
        }
        let new = until - *told;
        if new + again != 0 {
            self.sequence(bytes, *told, new, again << 8 | distance << 16)?;
        }
        *told = until;
        Some(())
    }

    #[inline]
    fn sequence(&mut self, bytes: &[u8], from: usize, new: usize, rest: usize) -> Option<()> {
        self.put(&((new | rest) as u32).to_le_bytes())?;
        let (from, new) = (from * WORD, new * WORD);
        if new <= STRIDE
            && let Some(wide) = bytes.get(from..from + STRIDE)
            && let Some(room) = self.bytes.get_mut(self.len..self.len + STRIDE)
        {
            room.copy_from_slice(wide);
            self.len += new;
            return Some(());
        }
        self.put(bytes.get(from..from + new)?)
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }
}

/// Makes a buffer of so many bytes again; nothing if that is no squeezed buffer.
pub fn stretch(mut squeezed: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    let whole = len / WORD * WORD;
    while out.len() < whole {
        let (head, rest) = squeezed.split_at_checked(WORD)?;
        let head = u32::from_le_bytes(head.try_into().ok()?) as usize;
        let (new, again, distance) = (head & 0xff, head >> 8 & 0xff, head >> 16);
        let (words, rest) = rest.split_at_checked(new * WORD)?;
        squeezed = rest;
        out.extend_from_slice(words);
        let mut from = out.len().checked_sub(distance * WORD)?;
        let mut left = again * WORD;
        let none = new + again == 0 || (again != 0 && distance == 0);
        if none || out.len() + left > whole {
            return None;
        }
        // What comes again may reach into itself.
        while left != 0 {
            let part = left.min(out.len() - from);
            out.extend_from_within(from..from + part);
            (from, left) = (from + part, left - part);
        }
    }
    out.extend_from_slice(squeezed);
    (out.len() == len).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of several kinds: all the same, loops that change a little, and none alike.
    fn examples() -> Vec<Vec<u8>> {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let mut all = vec![vec![], vec![7], vec![7; 7], vec![0; 1 << 18], vec![1; 4 * 513 + 2]];
        for len in [4_usize, 8, 12, 1000, 1020, 1024, 4096, 1 << 18, (1 << 18) + 4, 1 << 20] {
            all.push((0..len).map(|_| random() as u8).collect());
            let mut turns = Vec::new();
            let period = 1 + random() % 40;
            for turn in 0..len as u64 / 4 {
                let odd = random() % 16 == 0;
                let word = if odd { random() } else { turn % period };
                turns.extend((word as u32).to_le_bytes());
            }
            turns.extend(vec![3; len % 4]);
            all.push(turns);
        }
        all
    }

    #[test]
    fn what_was_squeezed_comes_back() {
        let mut squeezer = Squeezer::new();
        let mut again = Vec::new();
        for bytes in examples() {
            let mut out = vec![0xaa; Squeezer::most(bytes.len())];
            let len = squeezer.squeeze(&bytes, &mut out).unwrap();
            assert_eq!(stretch(&out[..len], bytes.len(), &mut again), Some(()));
            assert!(again == bytes, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn loops_become_small() {
        let turn: Vec<u8> = (0..60).collect();
        let bytes = turn.repeat(1000);
        let mut out = vec![0; Squeezer::most(bytes.len())];
        let len = Squeezer::new().squeeze(&bytes, &mut out).unwrap();
        assert!(len * 50 < bytes.len(), "{len} of {}", bytes.len());
        assert_eq!(Squeezer::new().squeeze(&bytes, &mut out[1..]), None);
    }

    /// Whatever is damaged, there is an answer, and it is never longer than it should be.
    #[test]
    fn damage_is_no_harm() {
        let mut squeezer = Squeezer::new();
        let mut again = Vec::new();
        for bytes in examples().iter().filter(|bytes| bytes.len() < 5000) {
            let mut out = vec![0; Squeezer::most(bytes.len())];
            let len = squeezer.squeeze(bytes, &mut out).unwrap();
            for at in 0..len.min(200) {
                let mut damaged = out[..len].to_vec();
                damaged[at] ^= 0x55;
                if stretch(&damaged, bytes.len(), &mut again).is_some() {
                    assert_eq!(again.len(), bytes.len());
                }
                let cut = stretch(&out[..at], bytes.len(), &mut again);
                assert!(cut.is_none() || bytes.is_empty(), "{at} of {len}");
            }
        }
    }
}
