//! An adaptive binary coder: yes-or-no decisions to bytes and back. What is likely costs next
//! to nothing, and how likely it is, is learned from the decisions themselves, apart in
//! each context.
//!
//! Range coding as Martin published it in 1979, in binary, over 64 bits: an interval is divided in the proportion of
//! the [`Chance`]; when it gets narrow, its upper 32 bits are settled and go out. Encoder and
//! decoder move by the same steps, so that the decoder has read exactly what
//! was written when the last decision is out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::Parse;
use crate::error::Flaw;

/// How likely a *no* is, learned from the decisions so far: the chance in the upper 22 bits, how many
/// there were, up to [`LIMIT`], in the lower ten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chance(u32);

const COUNT_BITS: u32 = 10;

/// A chance moves by one part in this many at the least: past decisions are forgotten at that speed.
const LIMIT: u32 = 255;

/// An interval is divided into two to this many parts.
const PART_BITS: u32 = 16;

/// By what a distance is multiplied, and divided by 2^16, after so many decisions.
const RATES: [u32; LIMIT as usize + 1] = {
    let mut rates = [0; LIMIT as usize + 1];
    let mut n = 0;
    while n < rates.len() {
        rates[n] = (1 << 17) / (2 * n as u32 + 3);
        n += 1;
    }
    rates
};

impl Default for Chance {
    fn default() -> Self {
        Self(1 << 31)
    }
}

impl Chance {
    /// How many of the parts belong to *no*: at least one, and not all.
    #[inline]
    const fn parts(self) -> u64 {
        (self.0 >> (32 - PART_BITS)) as u64
    }

    #[inline]
    fn learn(&mut self, yes: bool) {
        let count = self.0 & ((1 << COUNT_BITS) - 1);
        let chance = self.0 >> COUNT_BITS;
        let rate = u64::from(RATES[(count & LIMIT) as usize]);
        let top = (1 << (32 - COUNT_BITS)) - 1;
        let chance = if yes {
            chance - ((u64::from(chance) * rate) >> 16) as u32
        } else {
            chance + ((u64::from(top - chance) * rate) >> 16) as u32
        };
        self.0 = chance << COUNT_BITS | (count + 1).min(LIMIT);
    }
}

/// An interval narrower than this is widened.
const NARROW: u64 = 1 << 32;

/// Bytes that are settled when the interval is widened, and that are written at the end.
const SETTLED: usize = 4;
const LAST: usize = 8;

/// Writes decisions.
#[derive(Debug)]
pub(crate) struct Encoder {
    low: u64,
    range: u64,
}

impl Encoder {
    pub(crate) const fn new() -> Self {
        Self { low: 0, range: u64::MAX }
    }

    /// Appends a decision.
    #[inline]
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, chance: &mut Chance, yes: bool) {
        let no = (self.range >> PART_BITS) * chance.parts();
        if yes {
            let (low, carry) = self.low.overflowing_add(no);
            if carry {
                carry_over(out);
            }
            self.low = low;
            self.range -= no;
        } else {
            self.range = no;
        }
        chance.learn(yes);
        if self.range < NARROW {
            out.extend_from_slice(&((self.low >> 32) as u32).to_be_bytes());
            self.low <<= 32;
            self.range <<= 32;
        }
    }

    /// Appends a number below 16, by the chances of a tree.
    #[inline]
    pub(crate) fn put_small(&mut self, out: &mut Vec<u8>, tree: &mut [Chance; 16], number: u8) {
        let mut node = 1;
        for bit in (0..4).rev() {
            let yes = number >> bit & 1 != 0;
            self.put(out, &mut tree[node & 15], yes);
            node = node << 1 | usize::from(yes);
        }
    }

    /// Writes what is needed to tell the last decisions.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.low.to_be_bytes());
        *self = Self::new();
    }
}

/// Adds one to the number that the bytes are. It fits: the interval lies within what they can tell.
#[cold]
fn carry_over(out: &mut [u8]) {
    for byte in out.iter_mut().rev() {
        let (sum, carry) = byte.overflowing_add(1);
        *byte = sum;
        if !carry {
            return;
        }
    }
}

/// Where a decoder is; the bytes are elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decoding {
    code: u64,
    range: u64,
    /// Bytes read. More than there are if there were too few.
    at: usize,
}

impl Decoding {
    pub(crate) fn new(bytes: &[u8]) -> Parse<Self> {
        let first = bytes.first_chunk::<LAST>().ok_or(Flaw("it ends too early"))?;
        Ok(Self { code: u64::from_be_bytes(*first), range: u64::MAX, at: LAST })
    }

    /// Whether what was read were these bytes and no more.
    pub(crate) const fn is_at_end(&self, bytes: &[u8]) -> bool {
        self.at == bytes.len()
    }

    /// Complains if bytes were read that are not there. What was decided then means nothing.
    pub(crate) const fn check(&self, bytes: &[u8]) -> Parse<()> {
        if self.at <= bytes.len() { Ok(()) } else { Err(Flaw("it ends too early")) }
    }

    /// The next decision.
    #[inline]
    pub(crate) fn get(&mut self, bytes: &[u8], chance: &mut Chance) -> bool {
        let no = (self.range >> PART_BITS) * chance.parts();
        let yes = self.code >= no;
        if yes {
            self.code -= no;
            self.range -= no;
        } else {
            self.range = no;
        }
        chance.learn(yes);
        if self.range < NARROW {
            let next = bytes.get(self.at..).and_then(|b| b.first_chunk::<SETTLED>());
            self.code = self.code << 32 | next.map_or(0, |b| u64::from(u32::from_be_bytes(*b)));
            self.range <<= 32;
            self.at += SETTLED;
        }
        yes
    }

    /// A number below 16.
    #[inline]
    pub(crate) fn get_small(&mut self, bytes: &[u8], tree: &mut [Chance; 16]) -> u8 {
        let mut node = 1;
        for _ in 0..4 {
            node = node << 1 | usize::from(self.get(bytes, &mut tree[node & 15]));
        }
        node as u8 & 15
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequence of numbers that looks random.
    fn numbers(mut seed: u64) -> impl Iterator<Item = u64> {
        std::iter::from_fn(move || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            Some(seed >> 33)
        })
    }

    /// Decisions of four contexts, from never to nearly always.
    fn decisions(seed: u64, count: usize) -> Vec<(usize, bool)> {
        let often = [0, 1, 500, 999];
        let decide = |n: u64| ((n % 4) as usize, n / 4 % 1000 < often[(n % 4) as usize]);
        numbers(seed).map(decide).take(count).collect()
    }

    fn encode(decisions: &[(usize, bool)]) -> Vec<u8> {
        let (mut encoder, mut out) = (Encoder::new(), Vec::new());
        let mut chances = [Chance::default(); 4];
        for (context, yes) in decisions {
            encoder.put(&mut out, &mut chances[*context], *yes);
        }
        encoder.finish(&mut out);
        out
    }

    #[test]
    fn decisions_come_back_and_use_up_their_bytes() {
        for seed in 0..300 {
            let given = decisions(seed, (seed * seed) as usize);
            let bytes = encode(&given);
            let mut chances = [Chance::default(); 4];
            let mut from = Decoding::new(&bytes).unwrap();
            for (context, yes) in &given {
                assert_eq!(from.get(&bytes, &mut chances[*context]), *yes, "seed {seed}");
            }
            assert!(from.is_at_end(&bytes), "seed {seed}");
        }
    }

    #[test]
    fn decisions_cost_what_they_tell() {
        let given = decisions(7, 400_000);
        // The entropy of the four contexts: 0, 0.0114, 1 and 0.0114 bits.
        let least = 100_000.0 * (1.0 + 2.0 * 0.0114) / 8.0;
        let took = encode(&given).len() as f64;
        assert!(took > least * 0.98 && took < least * 1.02, "{took} bytes, at least {least}");
    }

    #[test]
    fn a_carry_runs_through() {
        let mut bytes = vec![3, 0xff, 0xff];
        carry_over(&mut bytes);
        assert_eq!(bytes, [4, 0, 0]);
    }

    #[test]
    fn a_chance_never_gets_to_certainty() {
        for yes in [false, true] {
            let mut chance = Chance::default();
            for _ in 0..1_000_000 {
                chance.learn(yes);
                assert!((1..1 << PART_BITS).contains(&chance.parts()), "{chance:?}");
            }
        }
    }

    #[test]
    fn missing_bytes_are_noticed() {
        let given = decisions(3, 5000);
        let bytes = encode(&given);
        let short = &bytes[..bytes.len() / 2];
        let mut chances = [Chance::default(); 4];
        let mut from = Decoding::new(short).unwrap();
        given.iter().for_each(|(context, _)| {
            from.get(short, &mut chances[*context]);
        });
        assert!(from.check(short).is_err());
        assert!(Decoding::new(&bytes[..7]).is_err());
    }

    #[test]
    fn small_numbers_come_back() {
        let given: Vec<u8> = numbers(5).map(|n| (n & n >> 8 & 15) as u8).take(3000).collect();
        let (mut encoder, mut out) = (Encoder::new(), Vec::new());
        let mut tree = [Chance::default(); 16];
        given.iter().for_each(|n| encoder.put_small(&mut out, &mut tree, *n));
        encoder.finish(&mut out);
        let mut tree = [Chance::default(); 16];
        let mut from = Decoding::new(&out).unwrap();
        for n in given {
            assert_eq!(from.get_small(&out, &mut tree), n);
        }
    }
}
