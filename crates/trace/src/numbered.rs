//! Values by number, for numbers of which many lie close together.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Numbers that differ in so many of their lowest bits have a page together.
const BITS: u32 = 12;
const PAGE: usize = 1 << BITS;

/// A list of values by number, in pages, of which those that have no value take next to no room: processes of a tree get numbers in turn, and
/// one that lives long has few of many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbered<T> {
    /// Which page the first of the list is.
    first: u32,
    /// Empty ones have no values.
    pages: Vec<Box<[T]>>,
}

impl<T: Clone + Default> Numbered<T> {
    /// The value of a number, unless none near it has one.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.page(number).1.get(number as usize % PAGE)
    }

    /// The values of all numbers that have a page with this one, and the first of these numbers; perhaps no values.
    #[inline]
    #[must_use]
    pub fn page(&self, number: u32) -> (u32, &[T]) {
        // What is below the first is far beyond the last.
        let place = (number >> BITS).wrapping_sub(self.first) as usize;
        let page = self.pages.get(place).map_or(&[][..], |page| page);
        (number >> BITS << BITS, page)
    }

    /// The value of a number, which has one from now on.
    pub fn place(&mut self, number: u32) -> &mut T {
        let page = number >> BITS;
        if self.pages.is_empty() {
            self.first = page;
        }
        if page < self.first {
            let more = (self.first - page) as usize;
            self.pages.splice(0..0, std::iter::repeat_n(Box::default(), more));
            self.first = page;
        }
        let at = (page - self.first) as usize;
        if self.pages.len() <= at {
            self.pages.resize(at + 1, Box::default());
        }
        let page = &mut self.pages[at];
        if page.is_empty() {
            *page = vec![T::default(); PAGE].into();
        }
        &mut page[number as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn values_stay_with_their_numbers() {
        let mut state = 7_u32;
        for base in [0, 5, 1000, 1 << 20, u32::MAX - 60_000] {
            let (mut list, mut map) = (Numbered::default(), HashMap::new());
            for value in 1..500_u32 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let number = base + (state >> 8) % 60_000;
                *list.place(number) = value;
                map.insert(number, value);
            }
            for number in base.saturating_sub(5000)..=base + 60_000 {
                let value = list.get(number).copied().filter(|value| *value != 0);
                assert_eq!(value, map.get(&number).copied(), "{number}");
                let (first, page) = list.page(number);
                assert_eq!(page.get((number - first) as usize), list.get(number));
            }
        }
    }

    #[test]
    fn what_is_far_from_all_takes_no_room() {
        let mut list = Numbered::default();
        for number in [1_000_000, 3, 2_000_000] {
            *list.place(number) = number;
        }
        let room: usize = list.pages.iter().map(|page| page.len()).sum();
        assert_eq!(room, 3 * PAGE);
        assert_eq!((list.get(3), list.get(500_000), list.get(u32::MAX)), (Some(&3), None, None));
    }
}
