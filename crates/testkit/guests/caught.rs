//! Threads that fill maps, and panic and are caught: `caught THREADS [together]`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Equal in every run.
type Map = HashMap<u64, u64, BuildHasherDefault<DefaultHasher>>;

trait Shape {
    fn area(&self) -> f64;
}

struct Square(f64);
struct Circle(f64);

impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}

impl Shape for Circle {
    fn area(&self) -> f64 {
        3.0 * self.0 * self.0
    }
}

/// Tells that it was dropped, also while a panic passes.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn fill(from: u64) -> u64 {
    let mut map = Map::default();
    for i in from..from + 60 {
        *map.entry(i.wrapping_mul(2_654_435_761) % 23).or_default() += i;
    }
    let sorted: BTreeMap<_, _> = map.iter().collect();
    sorted.into_iter().fold(0, |sum, (key, value)| sum * 31 % 1_000_003 + key * value)
}

#[inline(never)]
fn no_threes(x: u64, dropped: &AtomicU64) -> u64 {
    let _counted = Counted(dropped);
    match x % 3 {
        0 => panic!("three divides {x}"),
        1 if x > 10 => resume_unwind(Box::new(x)),
        _ => x * 2,
    }
}

fn work(number: u64, dropped: &AtomicU64) -> String {
    let sum = fill(number * 100);
    let mut caught = 0;
    for i in 0..15 {
        if catch_unwind(|| no_threes(i + number, dropped)).is_err() {
            caught += 1;
        }
    }
    let shapes: Vec<Box<dyn Shape>> =
        (0..8).map(|i| -> Box<dyn Shape> {
            if i % 2 == 0 { Box::new(Square(i as f64)) } else { Box::new(Circle(i as f64)) }
        }).collect();
    let area: f64 = shapes.iter().map(|shape| shape.area()).sum();
    format!("{number}: {sum} {caught} {area}")
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    let dropped = Arc::new(AtomicU64::new(0));
    // One after the other, so that equal runs are equal.
    for number in 0..count {
        let dropped = Arc::clone(&dropped);
        let thread = std::thread::spawn(move || work(number, &dropped));
        println!("{}", thread.join().unwrap());
    }
    if std::env::args().nth(2).is_some() {
        let all: Vec<_> = (0..count)
            .map(|number| {
                let dropped = Arc::clone(&dropped);
                std::thread::spawn(move || work(number, &dropped))
            })
            .collect();
        let texts: Vec<String> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        println!("{texts:?}");
    }
    println!("{}", dropped.load(Ordering::Relaxed));
}
