//! The tables against themselves: no overlap, and encoding undoes decoding.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{COMPRESSED, Insn, Op, TABLE, compress, is_compressed};
use proptest::prelude::*;

#[test]
fn no_two_lines_match_the_same_word() {
    for (i, a) in TABLE.iter().enumerate() {
        assert_eq!(a.bits & !a.mask, 0, "{} sets bits outside its mask", a.name);
        assert_eq!(a.bits & 3, 3, "{} is not a 32-bit instruction", a.name);
        for b in &TABLE[i + 1..] {
            let both = a.mask & b.mask;
            assert_ne!(a.bits & both, b.bits & both, "{} and {} overlap", a.name, b.name);
        }
    }
}

#[test]
fn no_halfword_matches_two_lines() {
    for half in 0..=u16::MAX {
        let names: Vec<_> = COMPRESSED.iter().filter(|r| r.matches(half)).map(|r| r.name).collect();
        assert!(names.len() <= 1, "{half:#06x} is all of {names:?}");
    }
}

#[test]
fn every_line_is_found_by_its_own_bits() {
    for (i, row) in TABLE.iter().enumerate() {
        assert_eq!(row.op as usize, i);
        assert_eq!(Insn::decode(row.bits).map(|i| i.op), Some(row.op), "{}", row.name);
    }
    assert_eq!(Op::COUNT, TABLE.len());
}

#[test]
fn compressing_undoes_expanding() {
    let mut legal = 0;
    for half in (0..=u16::MAX).filter(|&h| is_compressed(u32::from(h))) {
        let Some(insn) = Insn::decode(u32::from(half)) else { continue };
        legal += 1;
        let again = compress(&insn).unwrap_or_else(|| panic!("{half:#06x} does not compress"));
        assert_eq!(Insn::decode(u32::from(again)), Some(insn), "{half:#06x} against {again:#06x}");
        let wide = insn.encode().unwrap_or_else(|| panic!("{half:#06x} does not encode"));
        assert_eq!(Insn::decode(wide), Some(Insn { len: 4, ..insn }));
    }
    assert!(legal > 40_000, "only {legal} halfwords decode");
}

proptest! {
    #[test]
    fn encoding_undoes_decoding(row in 0..TABLE.len(), free in any::<u32>()) {
        let row = &TABLE[row];
        let word = row.bits | free & !row.mask;
        if let Some(insn) = Insn::decode(word) {
            prop_assert_eq!(insn.op, row.op);
            prop_assert_eq!(insn.encode(), Some(word));
        } else {
            // Only reserved rounding modes make a matching word illegal.
            prop_assert!(matches!(word >> 12 & 7, 5 | 6));
        }
    }

    #[test]
    fn any_word_decodes_or_not_without_panic(word in any::<u32>()) {
        if let Some(insn) = Insn::decode(word) {
            let same = if insn.len == 4 { insn.encode() == Some(word) } else { is_compressed(word) };
            prop_assert!(same);
        }
    }
}
