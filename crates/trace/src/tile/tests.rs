//! Tiles come back, and regular columns are short.
// SPDX-License-Identifier: MIT OR Apache-2.0

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
            tile.put(rows, &[known], std::slice::from_mut(&mut state), &mut told);
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
        Tile::default().put(rows, &[known], std::slice::from_mut(&mut state), &mut told);
        heads.len() + bits.len() + planes.iter().map(Vec::len).sum::<usize>()
    };
    assert_eq!(len(|_| 7), 1);
    assert_eq!(len(|i| 0x7000 + 8 * i), 1);
    assert_eq!(len(|i| 0x7000 + (i * i) % 90), 1 + ROWS);
    // One that differs: a bit for each, and its bytes.
    assert_eq!(len(|i| if i == 100 { 0x1_0000 } else { 0 }), 1 + ROWS / 8 + 2 * 3);
}

/// Columns that are told together are told as each is by itself, also where nothing lies behind the last of them.
#[test]
fn columns_side_by_side_are_told_as_by_themselves() {
    for widths in 1..1_u32 << 7 {
        // A bit for each column, under one that ends them.
        let count = widths.ilog2();
        let width = |nth: u32| match widths >> nth & 1 {
            0 => ichnos_base::Width::Four,
            _ => ichnos_base::Width::Eight,
        };
        let mut offset = 0;
        let known = (0..count).map(|nth| {
            let taken = Taken::new(ichnos_base::Register(nth as u8), width(nth));
            let known = Known { taken, offset, base: Base::NONE };
            offset += taken.len() as u16;
            known
        });
        let known: Vec<Known> = known.collect();
        let len = usize::from(offset);
        let bytes: Vec<u8> = (0..40 * len).map(|i| (i * i % 251) as u8).collect();
        let at: Vec<u32> = (0..40).map(|row| (row * len) as u32).collect();
        let rows = Rows { bytes: &bytes, at: &at, has_before: true, is_own: true };
        let tell = |together: usize| {
            let (mut heads, mut bits) = (Vec::new(), Vec::new());
            let mut planes: [Vec<u8>; PLANES] = Default::default();
            let mut told = Told { heads: &mut heads, bits: &mut bits, planes: &mut planes };
            let mut befores = vec![Before::default(); known.len()];
            let mut tile = Tile::default();
            for (known, befores) in known.chunks(together).zip(befores.chunks_mut(together)) {
                tile.put(rows, known, befores, &mut told);
            }
            (heads, bits, planes, befores)
        };
        assert_eq!(tell(1), tell(known.len().max(1)), "{widths:b}");
    }
}
