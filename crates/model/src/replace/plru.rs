//! Tree pseudo-LRU: the ways are the leaves of a binary tree, and each inner
//! node has a bit that says in which half the next victim lies. A use turns the
//! bits on its path to the other half.
//!
//! The tree of a set is one word: node 1 is the root, node `n` has children
//! `2n` and `2n + 1`, and bit `n` is node `n`'s.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Policy, Shape};

/// Tree pseudo-LRU over a power of two of ways, at most 64.
#[derive(Debug)]
pub struct TreePlru {
    depth: u32,
    trees: Box<[u64]>,
}

impl Policy for TreePlru {
    const FILL_SETTLES: bool = true;

    fn new(shape: Shape) -> Self {
        let depth = shape.ways.trailing_zeros();
        Self { depth, trees: vec![0; shape.sets].into_boxed_slice() }
    }

    fn hit(&mut self, set: usize, way: usize) {
        let tree = &mut self.trees[set];
        let mut node = 1;
        for level in (0..self.depth).rev() {
            let half = (way >> level) & 1;
            if half == 0 {
                *tree |= 1 << node;
            } else {
                *tree &= !(1 << node);
            }
            node = 2 * node + half;
        }
    }

    fn fill(&mut self, set: usize, way: usize) {
        self.hit(set, way);
    }

    fn victim(&mut self, set: usize) -> usize {
        let tree = self.trees[set];
        let mut node = 1;
        for _ in 0..self.depth {
            node = 2 * node + ((tree >> node) & 1) as usize;
        }
        node - (1 << self.depth)
    }
}
