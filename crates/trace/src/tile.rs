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
    /// The words, behind the one before them.
    words: [W; ROWS + 1],
    /// How far each is from what was expected, behind what that was before.
    apart: [W; ROWS + 1],
    /// How far that is from the one before.
    steps: [W; ROWS],
}

impl<W: Word> Default for Column<W> {
    fn default() -> Self {
        let (words, steps) = ([W::default(); ROWS + 1], [W::default(); ROWS]);
        Self { words, apart: words, steps }
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
    /// Tells a column of some rows.
    pub(crate) fn put(
        &mut self,
        rows: Rows<'_>,
        known: &Known,
        before: &mut Before,
        told: &mut Told<'_>,
    ) {
        if known.taken.is_wide() {
            self.wide.put(rows, known, before, told);
        } else {
            self.narrow.put(rows, known, before, told);
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

impl<W: Word> Column<W> {
    #[inline(never)]
    fn put(&mut self, rows: Rows<'_>, known: &Known, state: &mut Before, told: &mut Told<'_>) {
        let Self { words, apart: differences, steps } = self;
        let Rows { bytes, at, .. } = rows;
        let (count, offset) = (at.len() - 1, usize::from(known.offset));
        let words = &mut words[..=count];
        for (word, at) in words.iter_mut().zip(at) {
            *word = W::load(bytes, *at as usize + offset);
        }
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
        if apart(differences, steps) {
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
            if guess & AS_BEFORE != 0 {
                apart(differences, steps);
            }
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::places::{Base, Taken};

    /// How a column's words come about.
    fn column() -> impl Strategy<Value = Vec<u64>> {
        let steps = prop_oneof![
            Just(0_u64),
            Just(8),
            Just(u64::MAX),
            any::<u8>().prop_map(u64::from),
            any::<u64>()
        ];
        prop::collection::vec((0..5_u8, steps), 1..600).prop_map(|moves| {
            let (mut word, mut by) = (0x7fff_1234_5678_u64, 0);
            let moves = moves.iter().map(|(how, step)| {
                match how {
                    0 => by = *step,
                    1 => word = *step,
                    _ => {}
                }
                word = word.wrapping_add(by);
                word
            });
            moves.collect()
        })
    }

    proptest! {
        /// Tiles of a column and of one beside it come back, whatever their width.
        #[test]
        fn tiles_come_back(
            words in column(),
            others in column(),
            is_wide in any::<bool>(),
            is_base_wide in any::<bool>(),
            is_own in any::<bool>(),
            rows in 1..=ROWS,
        ) {
            let width = |is_wide| if is_wide { ichnos_base::Width::Eight } else { ichnos_base::Width::Four };
            let taken = |is_wide| Taken::new(ichnos_base::Register(3), width(is_wide));
            let len = |is_wide| if is_wide { 8 } else { 4 };
            // Each row: the other word, as one of an execution before, four bytes, and the word.
            let (mut bytes, mut at) = (Vec::new(), vec![0]);
            let before = len(is_base_wide) + 4;
            for (word, other) in words.iter().zip(&others) {
                bytes.extend_from_slice(&other.to_le_bytes()[..len(is_base_wide)]);
                bytes.extend_from_slice(&[0xee; 4]);
                at.push(bytes.len() as u32);
                bytes.extend_from_slice(&word.to_le_bytes()[..len(is_wide)]);
            }
            let other = Known { taken: taken(is_base_wide), offset: 0, base: Base::NONE };
            let base = Base::new(1, 0, &other, -(before as i32));
            let known = Known { taken: taken(is_wide), offset: 0, base };
            let (mut heads, mut bits) = (Vec::new(), Vec::new());
            let mut planes: [Vec<u8>; PLANES] = Default::default();
            let mut told = Told { heads: &mut heads, bits: &mut bits, planes: &mut planes };
            let (mut tile, mut state) = (Tile::default(), Before::default());
            let count = at.len() - 1;
            for first in (0..count).step_by(rows) {
                let at = &at[first..=count.min(first + rows)];
                let rows = Rows { bytes: &bytes, at, has_before: first > 0, is_own };
                tile.put(rows, &known, &mut state, &mut told);
            }
            let mut read = Read {
                heads: Cursor::new(&heads),
                bits: Cursor::new(&bits),
                planes: std::array::from_fn(|i| Cursor::new(&planes[i])),
            };
            let (mut state, mut last) = (Before::default(), 0);
            for first in (0..count).step_by(rows) {
                let rows = rows.min(count - first);
                let mut out = vec![0; rows];
                let guess = read.get(rows, 1, &mut out).expect("a tile");
                for (nth, difference) in out.into_iter().enumerate() {
                    let cut = |word: u64, is_wide: bool| taken(is_wide).cut(word);
                    let base = || if is_own { cut(others[first + nth], is_base_wide) } else { last };
                    last = cut(guess.word(difference, &mut state, last, base), is_wide);
                    prop_assert_eq!(last, cut(words[first + nth], is_wide));
                }
            }
            let left = [&read.heads, &read.bits].into_iter().chain(&read.planes);
            prop_assert_eq!(left.map(Cursor::left).sum::<usize>(), 0);
        }
    }

    /// What repeats or goes on in steps takes a byte for all rows; what differs a little, a byte each.
    #[test]
    fn regular_columns_are_short() {
        let len = |word: fn(u64) -> u64| {
            let bytes: Vec<u8> = (0..=ROWS as u64).flat_map(|i| word(i).to_le_bytes()).collect();
            let at: Vec<u32> = (0..=ROWS as u32).map(|i| i * 8).collect();
            let taken = Taken::new(ichnos_base::Register(0), ichnos_base::Width::Eight);
            let known = Known { taken, offset: 0, base: Base::NONE };
            let (mut heads, mut bits) = (Vec::new(), Vec::new());
            let mut planes: [Vec<u8>; PLANES] = Default::default();
            let mut told = Told { heads: &mut heads, bits: &mut bits, planes: &mut planes };
            let rows = Rows { bytes: &bytes, at: &at, has_before: true, is_own: true };
            let mut state = Before { by_last: 8, by_base: 0 };
            Tile::default().put(rows, &known, &mut state, &mut told);
            heads.len() + bits.len() + planes.iter().map(Vec::len).sum::<usize>()
        };
        assert_eq!(len(|_| 7), 1);
        assert_eq!(len(|i| 0x7000 + 8 * i), 1);
        assert_eq!(len(|i| 0x7000 + (i * i) % 90), 1 + ROWS);
        // One that differs: a bit for each, and its bytes.
        assert_eq!(len(|i| if i == 100 { 0x1_0000 } else { 0 }), 1 + ROWS / 8 + 2 * 3);
    }
}
