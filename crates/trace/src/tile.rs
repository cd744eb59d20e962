//! The words of some rows of a column, by one guess for all of them: how far each is from the one that was expected is written
//! byte by byte, into columns of bytes of like weight. Nothing here depends on a single word but its difference, so that the loops are short.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::{Cursor, Parse, unzigzag};
use crate::error::Flaw;
use crate::places::Known;

/// The most rows that are told at a time.
pub(crate) const ROWS: usize = 256;

/// How words are guessed: as far from the last word of the column, or from another word of the same register, as nothing, or as the
/// row before.
const BY_BASE: u8 = 2;
const AS_BEFORE: u8 = 1;
/// Which differences are 0 is told by a bit for each.
const SPARSE: u8 = 4;
const WIDTH_SHIFT: u32 = 3;

/// About so many rows tell how costly a guess is.
const SAMPLE: usize = 32;

/// So many differences are compared at a time.
const SOON: usize = 32;

/// Of so many columns side by side words are fetched at a time, if all have eight bytes: then each row is gone to once for them.
const BESIDE: usize = 4;

/// What a column of a table knows from one tile to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Before {
    /// How far the row before was from the last word, and from the other word, when that was last told.
    by_last: u64,
    by_base: u64,
}

/// The columns of bytes that tiles are told in.
#[derive(Debug)]
pub(crate) struct Told<'c> {
    pub(crate) heads: &'c mut Vec<u8>,
    pub(crate) bits: &'c mut Vec<u8>,
    pub(crate) planes: &'c mut [Vec<u8>],
}

/// How many columns there are for the bytes of differences.
pub(crate) const PLANES: usize = 8;

/// A word as it was stored.
trait Word: Copy + Default + Eq {
    /// The one that begins here.
    fn load(bytes: &[u8], at: usize) -> Self;
    fn cut(word: u64) -> Self;
    fn minus(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    /// A difference with its sign in the lowest bit.
    fn zigzag(self) -> Self;
    fn byte(self, nth: usize) -> u8;
    /// Bits of a number.
    fn bits(self) -> u32;
    fn whole(self) -> u64;

    /// The one that begins here, if it is made of one of that width.
    #[inline(always)]
    fn load_as(bytes: &[u8], at: usize, is_wide: bool) -> Self {
        Self::cut(if is_wide { u64::load(bytes, at) } else { u32::load(bytes, at).into() })
    }
}

macro_rules! word {
    ($word:ty, $signed:ty) => {
        impl Word for $word {
            #[inline(always)]
            fn load(bytes: &[u8], at: usize) -> Self {
                let rest = bytes.get(at..).and_then(<[u8]>::first_chunk);
                rest.map_or(0, |word| Self::from_le_bytes(*word))
            }

            #[inline(always)]
            fn cut(word: u64) -> Self {
                word as Self
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn zigzag(self) -> Self {
                (self << 1) ^ (self as $signed >> (Self::BITS - 1)) as Self
            }

            #[inline(always)]
            fn byte(self, nth: usize) -> u8 {
                (self >> (8 * nth)) as u8
            }

            #[inline(always)]
            fn bits(self) -> u32 {
                Self::BITS - self.leading_zeros()
            }

            #[inline(always)]
            fn whole(self) -> u64 {
                self.into()
            }
        }
    };
}

word!(u32, i32);
word!(u64, i64);

/// Some rows of a column while they are told.
#[derive(Debug, Default)]
pub(crate) struct Tile {
    narrow: Column<u32>,
    wide: Column<u64>,
}

#[derive(Debug)]
struct Column<W> {
    /// The words of so many columns, behind the one before them.
    words: [[W; ROWS + 1]; BESIDE],
    /// How far each is from what was expected, behind what that was before.
    apart: [W; ROWS + 1],
    /// How far that is from the one before.
    steps: [W; ROWS],
}

impl<W: Word> Default for Column<W> {
    fn default() -> Self {
        let (words, steps) = ([W::default(); ROWS + 1], [W::default(); ROWS]);
        Self { words: [words; BESIDE], apart: words, steps }
    }
}

/// Where rows lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'t> {
    pub(crate) bytes: &'t [u8],
    /// Where each begins, behind the one before them if there is one; and as many otherwise.
    pub(crate) at: &'t [u32],
    pub(crate) has_before: bool,
    /// Whether what lies before each is known.
    pub(crate) is_own: bool,
}

impl Tile {
    /// Tells the columns of some rows, which lie side by side.
    pub(crate) fn put(
        &mut self,
        rows: Rows<'_>,
        known: &[Known],
        befores: &mut [Before],
        told: &mut Told<'_>,
    ) {
        let (mut known, mut befores) = (known, befores);
        while let Some(first) = known.first() {
            let beside = known.iter().take(BESIDE);
            let wide = beside.take_while(|known| known.taken.is_wide()).count();
            let count = match wide {
                0 => self.narrow.fetch(rows, first),
                _ => self.wide.fetch_some(rows, first, wide),
            };
            let (some, own) = (&known[..count], &mut befores[..count]);
            for (nth, (known, before)) in some.iter().zip(own).enumerate() {
                match wide {
                    0 => self.narrow.put((rows, nth), known, before, told),
                    _ => self.wide.put((rows, nth), known, before, told),
                }
            }
            (known, befores) = (&known[count..], &mut befores[count..]);
        }
    }
}

/// How far each is from the one before; whether all are the same.
#[inline(always)]
fn apart<W: Word>(words: &[W], out: &mut [W]) -> bool {
    let mut any = W::default();
    for ((word, before), out) in words[1..].iter().zip(words).zip(out) {
        let difference = word.minus(*before);
        *out = difference;
        any = any.or(difference);
    }
    any == W::default()
}

/// Whether all are the same. Most that are not differ soon.
#[inline(always)]
fn goes_on<W: Word>(differences: &[W]) -> bool {
    let first = differences[0];
    let differs = |some: &[W]| some.iter().fold(W::default(), |any, one| any.or(one.minus(first)));
    differences.chunks(SOON).all(|some| differs(some) == W::default())
}

/// About how many bits some of these differences take, and some of those between neighbours; the first is the one before.
#[inline(always)]
fn costs<W: Word>(rows: usize, mut difference: impl FnMut(usize) -> W) -> [u32; 2] {
    let mut costs = [0; 2];
    for at in (1..=rows).step_by((rows / SAMPLE).max(1)) {
        let (own, before) = (difference(at), difference(at - 1));
        costs[0] += own.zigzag().bits();
        costs[1] += own.minus(before).zigzag().bits();
    }
    costs
}

impl Column<u64> {
    /// Fetches the words of up to so many columns side by side, of which this is the first; of how many it were.
    fn fetch_some(&mut self, rows: Rows<'_>, first: &Known, count: usize) -> usize {
        let Rows { bytes, at, .. } = rows;
        debug_assert!(at.is_sorted());
        // Rows lie in order. What is behind the words of the last may be fetched with them, if there is anything.
        let last = at.last().map_or(0, |at| *at as usize) + usize::from(first.offset);
        let left = bytes.len().saturating_sub(last) / size_of::<u64>();
        match count {
            1 => self.fetch(rows, first),
            3.. if left >= BESIDE => self.fetch_all(rows, first).min(count),
            _ => self.fetch_two(rows, first),
        }
    }

    /// Fetches the words of [`BESIDE`] columns.
    #[inline(never)]
    fn fetch_all(&mut self, Rows { bytes, at, .. }: Rows<'_>, first: &Known) -> usize {
        let offset = usize::from(first.offset);
        let [a, b, c, d] = &mut self.words;
        let words = a.iter_mut().zip(b).zip(c).zip(d);
        for (at, (((a, b), c), d)) in at.iter().zip(words) {
            let all: [u8; 8 * BESIDE] = piece(bytes, *at as usize + offset);
            let word = |nth: usize| u64::load(&all, 8 * nth);
            (*a, *b, *c, *d) = (word(0), word(1), word(2), word(3));
        }
        BESIDE
    }

    /// Fetches those of two.
    #[inline(never)]
    fn fetch_two(&mut self, Rows { bytes, at, .. }: Rows<'_>, first: &Known) -> usize {
        let offset = usize::from(first.offset);
        let [a, b, ..] = &mut self.words;
        for (at, (a, b)) in at.iter().zip(a.iter_mut().zip(b)) {
            let all: [u8; 16] = piece(bytes, *at as usize + offset);
            (*a, *b) = (u64::load(&all, 0), u64::load(&all, 8));
        }
        2
    }
}

/// Some bytes that begin there.
#[inline(always)]
fn piece<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

impl<W: Word> Column<W> {
    /// Fetches the words of one column.
    #[inline(never)]
    fn fetch(&mut self, Rows { bytes, at, .. }: Rows<'_>, known: &Known) -> usize {
        let offset = usize::from(known.offset);
        for (word, at) in self.words[0].iter_mut().zip(at) {
            *word = W::load(bytes, *at as usize + offset);
        }
        1
    }

    /// Tells a column, the words of which have been fetched as the `nth` of some.
    #[inline(never)]
    fn put(
        &mut self,
        (rows, nth): (Rows<'_>, usize),
        known: &Known,
        state: &mut Before,
        told: &mut Told<'_>,
    ) {
        let Self { words, apart: differences, steps } = self;
        let Rows { bytes, at, .. } = rows;
        let count = at.len() - 1;
        let words = &mut words[nth][..=count];
        if !rows.has_before {
            words[0] = W::default();
        }
        let (differences, steps) = (&mut differences[..=count], &mut steps[..count]);
        differences[0] = W::cut(state.by_last);
        if apart(words, &mut differences[1..]) {
            state.by_last = 0;
            told.heads.push(0);
            return;
        }
        if goes_on(differences) {
            state.by_last = differences[count].whole();
            told.heads.push(AS_BEFORE);
            return;
        }
        let base = known.base.from(rows.is_own);
        let base = base.map(|(from, is_wide)| {
            move |nth: usize| {
                let word = W::load_as(bytes, (at[nth] as usize).wrapping_add_signed(from), is_wide);
                words[nth].minus(word)
            }
        });
        let [own, step] = costs(count, |nth| differences[nth]);
        let mut guess = if step < own { AS_BEFORE } else { 0 };
        if let Some(base) = &base {
            let before = W::cut(state.by_base);
            let by_base = costs(count, |nth| if nth == 0 { before } else { base(nth) });
            if by_base[0].min(by_base[1]) < own.min(step) {
                guess = BY_BASE | if by_base[1] < by_base[0] { AS_BEFORE } else { 0 };
            }
        }
        if let Some(base) = base.filter(|_| guess & BY_BASE != 0) {
            differences[0] = W::cut(state.by_base);
            for (nth, difference) in differences.iter_mut().enumerate().skip(1) {
                *difference = base(nth);
            }
        }
        if guess & AS_BEFORE != 0 {
            apart(differences, steps);
        }
        let last = differences[count].whole();
        *if guess & BY_BASE == 0 { &mut state.by_last } else { &mut state.by_base } = last;
        let misses = if guess & AS_BEFORE == 0 { &mut differences[1..] } else { steps };
        put(guess, misses, told);
    }
}

/// Writes differences.
fn put<W: Word>(guess: u8, differences: &mut [W], told: &mut Told<'_>) {
    let mut any = W::default();
    for difference in differences.iter_mut() {
        *difference = difference.zigzag();
        any = any.or(*difference);
    }
    let none = W::default();
    let count = differences.iter().filter(|difference| **difference != none).count();
    let bytes = any.bits().div_ceil(8);
    let head = guess | (bytes as u8) << WIDTH_SHIFT;
    let planes = &mut told.planes[..bytes as usize];
    if count * 4 > differences.len() || any == none {
        told.heads.push(head);
        for (nth, plane) in planes.iter_mut().enumerate() {
            plane.extend(differences.iter().map(|difference| difference.byte(nth)));
        }
        return;
    }
    told.heads.push(head | SPARSE);
    for some in differences.chunks(8) {
        let bit = |(nth, difference): (usize, &W)| u8::from(*difference != none) << nth;
        told.bits.push(some.iter().enumerate().map(bit).fold(0, |all, bit| all | bit));
    }
    for difference in differences.iter().filter(|difference| **difference != none) {
        for (nth, plane) in planes.iter_mut().enumerate() {
            plane.push(difference.byte(nth));
        }
    }
}

/// The columns of bytes that tiles are read from.
#[derive(Debug)]
pub(crate) struct Read<'c> {
    pub(crate) heads: Cursor<'c>,
    pub(crate) bits: Cursor<'c>,
    pub(crate) planes: [Cursor<'c>; PLANES],
}

/// How the words of a tile were guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Guess(u8);

impl Read<'_> {
    /// Reads the differences of a tile of so many rows, each to every `stride`th of these; how they were guessed.
    pub(crate) fn get(&mut self, rows: usize, stride: usize, out: &mut [u64]) -> Parse<Guess> {
        let head = self.heads.u8()?;
        let bytes = usize::from(head >> WIDTH_SHIFT);
        if bytes > PLANES {
            return Err(Flaw("a number is longer than 64 bits"));
        }
        let out = out.iter_mut().step_by(stride).take(rows);
        if head & SPARSE != 0 {
            let bits = self.bits.take(rows.div_ceil(8))?;
            let is_set = |nth: usize| bits[nth / 8] >> (nth % 8) & 1 != 0;
            for (_, out) in out.enumerate().filter(|(nth, _)| is_set(*nth)) {
                let mut value = 0;
                for (nth, plane) in self.planes[..bytes].iter_mut().enumerate() {
                    value |= u64::from(plane.u8()?) << (8 * nth);
                }
                *out = unzigzag(value) as u64;
            }
        } else if bytes > 0 {
            let mut planes: [&[u8]; PLANES] = [&[]; PLANES];
            for (plane, from) in planes.iter_mut().zip(&mut self.planes).take(bytes) {
                *plane = from.take(rows)?;
            }
            for (row, out) in out.enumerate() {
                let mut value = 0;
                for (nth, plane) in planes[..bytes].iter().enumerate() {
                    value |= u64::from(plane[row]) << (8 * nth);
                }
                *out = unzigzag(value) as u64;
            }
        }
        Ok(Guess(head & (BY_BASE | AS_BEFORE)))
    }
}

impl Guess {
    /// The word that is so far from what was expected, before it is cut to its width.
    #[inline(always)]
    pub(crate) fn word(
        self,
        difference: u64,
        before: &mut Before,
        last: u64,
        base: impl FnOnce() -> u64,
    ) -> u64 {
        let by_base = self.0 & BY_BASE != 0;
        let (from, before) =
            if by_base { (base(), &mut before.by_base) } else { (last, &mut before.by_last) };
        let was = if self.0 & AS_BEFORE != 0 { *before } else { 0 };
        *before = was.wrapping_add(difference);
        from.wrapping_add(*before)
    }
}

#[cfg(test)]
mod tests;
