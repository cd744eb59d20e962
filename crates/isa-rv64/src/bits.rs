//! Immediates as lists of bit runs, so that taking one out of a word and
//! putting one in are the same table read in two directions.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A run of consecutive bits: `width` bits at `word` in the instruction are
/// those at `value` in the immediate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    word: u8,
    value: u8,
    width: u8,
}

/// Where an immediate's bits stand in an instruction word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    runs: &'static [Run],
    /// The bit that is extended upwards; none if the value is unsigned.
    sign: Option<u8>,
}

const fn run(word: u8, value: u8, width: u8) -> Run {
    Run { word, value, width }
}

const fn signed(runs: &'static [Run], sign: u8) -> Field {
    Field { runs, sign: Some(sign) }
}

const fn unsigned(runs: &'static [Run]) -> Field {
    Field { runs, sign: None }
}

impl Field {
    pub(crate) const NONE: Self = unsigned(&[]);
    pub(crate) const I: Self = signed(&[run(20, 0, 12)], 11);
    pub(crate) const S: Self = signed(&[run(7, 0, 5), run(25, 5, 7)], 11);
    pub(crate) const B: Self =
        signed(&[run(8, 1, 4), run(25, 5, 6), run(7, 11, 1), run(31, 12, 1)], 12);
    pub(crate) const U: Self = signed(&[run(12, 12, 20)], 31);
    pub(crate) const J: Self =
        signed(&[run(21, 1, 10), run(20, 11, 1), run(12, 12, 8), run(31, 20, 1)], 20);
    pub(crate) const SHIFT6: Self = unsigned(&[run(20, 0, 6)]);
    pub(crate) const SHIFT5: Self = unsigned(&[run(20, 0, 5)]);
    pub(crate) const HIGH12: Self = unsigned(&[run(20, 0, 12)]);

    pub(crate) const CIW: Self =
        unsigned(&[run(5, 3, 1), run(6, 2, 1), run(7, 6, 4), run(11, 4, 2)]);
    pub(crate) const CLW: Self = unsigned(&[run(5, 6, 1), run(6, 2, 1), run(10, 3, 3)]);
    pub(crate) const CLD: Self = unsigned(&[run(5, 6, 2), run(10, 3, 3)]);
    pub(crate) const CI: Self = signed(&[run(2, 0, 5), run(12, 5, 1)], 5);
    pub(crate) const CSHIFT: Self = unsigned(&[run(2, 0, 5), run(12, 5, 1)]);
    pub(crate) const CLUI: Self = signed(&[run(2, 12, 5), run(12, 17, 1)], 17);
    pub(crate) const CADDI16SP: Self =
        signed(&[run(2, 5, 1), run(3, 7, 2), run(5, 6, 1), run(6, 4, 1), run(12, 9, 1)], 9);
    pub(crate) const CJ: Self = signed(
        &[
            run(2, 5, 1),
            run(3, 1, 3),
            run(6, 7, 1),
            run(7, 6, 1),
            run(8, 10, 1),
            run(9, 8, 2),
            run(11, 4, 1),
            run(12, 11, 1),
        ],
        11,
    );
    pub(crate) const CB: Self =
        signed(&[run(2, 5, 1), run(3, 1, 2), run(5, 6, 2), run(10, 3, 2), run(12, 8, 1)], 8);
    pub(crate) const CLWSP: Self = unsigned(&[run(2, 6, 2), run(4, 2, 3), run(12, 5, 1)]);
    pub(crate) const CLDSP: Self = unsigned(&[run(2, 6, 3), run(5, 3, 2), run(12, 5, 1)]);
    pub(crate) const CSWSP: Self = unsigned(&[run(7, 6, 2), run(9, 2, 4)]);
    pub(crate) const CSDSP: Self = unsigned(&[run(7, 6, 3), run(10, 3, 3)]);

    /// The immediate in `word`.
    pub(crate) fn take(self, word: u32) -> i32 {
        let mut value = 0u32;
        for r in self.runs {
            value |= (word >> r.word & ones(r.width)) << r.value;
        }
        match self.sign {
            Some(bit) => ((value << (31 - bit)) as i32) >> (31 - bit),
            None => value as i32,
        }
    }

    /// The bits that stand for `value`, or nothing if it does not fit.
    pub(crate) fn put(self, value: i32) -> Option<u32> {
        let mut word = 0u32;
        for r in self.runs {
            word |= (value as u32 >> r.value & ones(r.width)) << r.word;
        }
        (self.take(word) == value).then_some(word)
    }
}

const fn ones(width: u8) -> u32 {
    (1 << width) - 1
}
