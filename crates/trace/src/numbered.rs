//! Values by number, for numbers that lie close together but need not begin at zero.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A list of values by number. What is below the lowest number takes no room, or no more than the list itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbered<T> {
    first: u32,
    list: Vec<T>,
}

impl<T: Clone + Default> Numbered<T> {
    /// The value of a number, unless it is beyond those that have one.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&T> {
        // What is below the first is far beyond the last.
        self.list.get(number.wrapping_sub(self.first) as usize)
    }

    /// The value of a number, which has one from now on, like all between it and others.
    pub fn place(&mut self, number: u32) -> &mut T {
        if self.list.is_empty() {
            self.first = number;
        }
        if number < self.first {
            // Twice as long at least, so that numbers may come downwards.
            let first = number.min(self.first.saturating_sub(self.list.len() as u32));
            let more = (self.first - first) as usize;
            self.list.splice(0..0, std::iter::repeat_n(T::default(), more));
            self.first = first;
        }
        let at = (number - self.first) as usize;
        if self.list.len() <= at {
            self.list.resize(at + 1, T::default());
        }
        &mut self.list[at]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn values_stay_with_their_numbers() {
        let mut state = 7_u32;
        for base in [0, 5, 1000, u32::MAX - 3000] {
            let (mut list, mut map) = (Numbered::default(), HashMap::new());
            for value in 1..500_u32 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let number = base + (state >> 16) % 2000;
                *list.place(number) = value;
                map.insert(number, value);
            }
            for number in base.saturating_sub(10)..base + 2000 {
                let value = list.get(number).copied().filter(|value| *value != 0);
                assert_eq!(value, map.get(&number).copied(), "{number}");
            }
        }
    }

    #[test]
    fn what_is_below_takes_little_room() {
        let mut list = Numbered::default();
        *list.place(1_000_000) = 1;
        assert_eq!(list.list.len(), 1);
        (0..1000).rev().for_each(|down| *list.place(999_000 + down) = 2);
        assert!(list.list.len() < 5000, "{}", list.list.len());
        assert_eq!(
            (list.get(1_000_000), list.get(999_500), list.get(3)),
            (Some(&1), Some(&2), None)
        );
    }
}
