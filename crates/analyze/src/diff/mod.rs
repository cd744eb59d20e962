//! How two traces differ: where first, and how much.
//!
//! *Where first* ([`first_difference`]) compares records and events thread by
//! thread in two passes over each trace: the first keeps one hash per 4096
//! items, the second fetches only the stretch around the first difference. The
//! order between threads does not matter.
//!
//! *How much* ([`Similarity`]) is the edit distance of Ji et al. (2013): the
//! fewest insertions, deletions and replacements that turn one sequence into
//! the other, over the longer one's length, taken from 1. The sequences are the
//! executed instructions, or the calls. Near-equal sequences of any length get
//! the exact answer; for very different ones the work is bounded and the answer
//! is a pair of certain bounds.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod anchors;
mod distance;
mod edits;
mod error;
mod excerpt;
mod fingerprint;
mod pairing;
mod similarity;
mod tiles;
mod tokens;

pub use distance::{Budget, Distance};
pub use edits::{Edit, edits};
pub use error::Error;
pub use excerpt::{Comparison, Difference, Item, first_difference};
pub use fingerprint::{Depth, Fingerprint};
pub use pairing::{Paired, Pairing, pair};
pub use similarity::{Similarity, ThreadSimilarity, distance, similarity};
pub use tokens::{Dictionary, Keys, Sequences, Tokens, View};
