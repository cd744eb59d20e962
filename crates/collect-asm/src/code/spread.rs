//! Work on many things that have nothing to do with each other, on all processors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// So many are taken at a time: to begin a thread takes as long as some functions.
const AT_ONCE: usize = 32;

/// What becomes of each, in their order.
pub(crate) fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let helpers = (processors - 1).min(all.len() / AT_ONCE / 2);
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        loop {
            let from = next.fetch_add(AT_ONCE, Ordering::Relaxed).min(all.len());
            let mine = &all[from..all.len().min(from + AT_ONCE)];
            if mine.is_empty() {
                return done;
            }
            done.push((from, mine.iter().map(&work).collect::<Vec<R>>()));
        }
    };
    let mut done = thread::scope(|scope| {
        // Where no thread can be had there is one fewer.
        let begin = |_| thread::Builder::new().spawn_scoped(scope, some).ok();
        let helpers: Vec<_> = (0..helpers).filter_map(begin).collect();
        let mut done = some();
        for helper in helpers {
            match helper.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(from, _)| *from);
    done.into_iter().flat_map(|(_, some)| some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        for len in [0, 1, 31, 64, 65, 1000, 12_345] {
            let all: Vec<usize> = (0..len).collect();
            let squares = each(&all, |n| n * n);
            assert_eq!(squares, all.iter().map(|n| n * n).collect::<Vec<_>>());
        }
    }
}
