//! What is told is read in its order, wherever it lay meanwhile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use ichnos_rt::{Context, Layout};

use super::*;

const LEN: u64 = 2 * PAGE;
const BUFFERS: u32 = 8;
const LANE: Context = Context(0);

/// A backlog, who tells it something, and the buffers that come back.
struct Example {
    pool: Arc<Pool>,
    backlog: Arc<Backlog>,
    tell: Option<Sender<Message>>,
    freed: Receiver<u32>,
    taker: thread::JoinHandle<()>,
}

fn example(name: &str, limit: u64) -> Example {
    example_of(name, limit, Reads::Beside)
}

fn example_of(name: &str, limit: u64, when: Reads) -> Example {
    let layout = Layout { contexts: 1, buffers: BUFFERS, buffer_len: LEN };
    let pool = Arc::new(Pool::new(layout).unwrap());
    let (give, freed) = channel();
    let backlog = Backlog::new(Arc::clone(&pool), Buffers::new(give));
    let path = std::env::temp_dir().join(format!("ichnos-backlog-{name}-{}", std::process::id()));
    let (tell, messages) = channel();
    let taking = Arc::clone(&backlog);
    let taker = thread::spawn(move || {
        let place = Place { path: path.clone(), limit, when };
        let known = (Level::Flow, Clock::of((0, 1)));
        taking.take(messages, (place, known), &AtomicBool::new(false));
        assert_eq!(path.exists(), taking.is_left(), "the spool has a name if it is left");
        let _ = std::fs::remove_file(path);
    });
    Example { pool, backlog, tell: Some(tell), freed, taker }
}

impl Example {
    /// A thread fills the first part of a buffer with a number, and tells of it.
    fn store(&self, buffer: u32, number: u64, (len, last): (u64, bool)) {
        for at in (0..len).step_by(8) {
            self.pool.set_word(self.pool.layout().buffer(buffer) + at, number ^ at);
        }
        let message = Message::Words { thread: number as u32, lane: LANE, buffer, to: len, last };
        self.tell.as_ref().unwrap().send(message).unwrap();
    }

    /// Nothing more is told, and all was taken.
    fn end(&mut self) {
        self.tell = None;
        while !self.backlog.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads one message: the number, and whether its words were in memory.
    fn read(&self, reader: Reader, desk: &mut Desk) -> Option<(u32, bool)> {
        let work = |message: &Message, words: Option<&[u8]>| {
            let &Message::Words { thread, buffer, to, .. } = message else { panic!("no words") };
            for at in (0..to).step_by(8) {
                let word = match words {
                    Some(words) => u64_of(&words[at as usize..]),
                    None => self.pool.word(self.pool.layout().buffer(buffer) + at),
                };
                assert_eq!(word, u64::from(thread) ^ at, "{thread} at {at}");
            }
            (thread, words.is_none())
        };
        self.backlog.read(reader, desk, work).unwrap()
    }

    fn rest(&self) -> Vec<(u32, bool)> {
        let mut desk = Desk::default();
        std::iter::from_fn(|| self.read(Reader::Behind, &mut desk)).collect()
    }

    fn freed(&self) -> Option<u32> {
        self.freed.recv_timeout(Duration::from_secs(20)).ok()
    }
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

#[test]
fn half_stays_in_memory_and_the_rest_goes_to_disk() {
    let mut example = example("half", 1 << 30);
    let mut buffers: VecDeque<u32> = (0..BUFFERS).collect();
    for number in 0..40 {
        // Nobody reads, and yet there is always one.
        let buffer = buffers.pop_front().or_else(|| example.freed()).expect("a buffer comes back");
        example.store(buffer, number, (LEN - 8 * (number % 3), true));
    }
    example.end();
    let memory: Vec<bool> = (0..40).map(|number| number < BUFFERS / KEPT).collect();
    assert_eq!(example.rest(), (0..40).zip(memory).collect::<Vec<_>>());
    example.taker.join().unwrap();
    let stored = |number: u64| LEN - 8 * (number % 3);
    assert_eq!(example.backlog.spooled(), (u64::from(BUFFERS / KEPT)..40).map(stored).sum());
    assert_eq!(example.backlog.bytes(), 0);
}

#[test]
fn what_was_told_of_an_open_buffer_goes_with_it() {
    let mut example = example("open", 1 << 30);
    (0..4).for_each(|buffer| example.store(buffer, 100 + u64::from(buffer), (LEN, true)));
    // Told twice before it is full; another thread is told of between.
    example.store(5, 7, (64, false));
    example.store(6, 8, (LEN, true));
    example.store(5, 7, (PAGE, false));
    example.store(5, 7, (LEN, true));
    // The buffer that came back is filled again, with something else.
    let again: Vec<u32> = (0..2).filter_map(|_| example.freed()).collect();
    assert!(again.contains(&5) && again.contains(&6), "{again:?}");
    example.store(5, 9, (LEN, false));
    example.end();
    let rest = example.rest();
    let numbers: Vec<u32> = rest.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [100, 101, 102, 103, 7, 8, 7, 7, 9]);
    assert_eq!(rest[4..], [(7, false), (8, false), (7, false), (7, false), (9, true)]);
    example.taker.join().unwrap();
}

#[test]
fn without_room_buffers_wait_and_nobody_stands_aside() {
    for (name, limit) in [("none", 1), ("some", PAGE * 4)] {
        let mut example = example(name, limit);
        (0..BUFFERS).for_each(|buffer| example.store(buffer, buffer.into(), (LEN, true)));
        let mut desk = Desk::default();
        // Who reads at once leaves nothing for the spool.
        while example.backlog.bytes() < u64::from(BUFFERS) * LEN {
            thread::sleep(Duration::from_millis(1));
        }
        // Sent away as soon as it is known that there is no room.
        let aside: Vec<u32> =
            std::iter::from_fn(|| example.read(Reader::Aside, &mut desk)).map(|r| r.0).collect();
        example.end();
        let rest = std::iter::from_fn(|| example.read(Reader::Behind, &mut desk)).map(|r| r.0);
        assert_eq!(aside.into_iter().chain(rest).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        let mut freed: Vec<u32> = (0..BUFFERS).filter_map(|_| example.freed()).collect();
        freed.sort_unstable();
        assert_eq!(freed, (0..BUFFERS).collect::<Vec<_>>());
        example.taker.join().unwrap();
    }
}

/// Who waits for a buffer while nobody reads is not left waiting.
#[test]
fn whoever_waits_hears_that_nobody_reads() {
    let example = example("gone", 1 << 30);
    example.store(0, 1, (LEN, true));
    example.backlog.give_up();
    assert!(example.freed.recv().is_err());
    // The taker ends with the next message.
    let tell = example.tell.unwrap();
    let words = || Message::Words { thread: 1, lane: LANE, buffer: 1, to: 8, last: true };
    let ends = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        tell.send(words()).is_err()
    });
    assert!(ends);
    example.taker.join().unwrap();
}

/// What is to be read later is left alone, and all of it is in the spool.
#[test]
fn what_is_read_later_is_left() {
    let mut example = example_of("later", 1 << 30, Reads::Later(b"a note".to_vec()));
    let backlog = Arc::clone(&example.backlog);
    let reader = thread::spawn(move || {
        let read = backlog.read(Reader::Aside, &mut Desk::default(), |_, _| ());
        (read.unwrap().is_none(), backlog.is_over())
    });
    let mut buffers: VecDeque<u32> = (0..BUFFERS).collect();
    for number in 0..40 {
        let buffer = buffers.pop_front().or_else(|| example.freed()).expect("a buffer comes back");
        example.store(buffer, number, (LEN, true));
    }
    example.end();
    assert_eq!(reader.join().unwrap(), (true, true), "somebody read what was to be left");
    assert!(example.backlog.is_left());
    assert_eq!(example.backlog.spooled(), 40 * LEN);
    example.taker.join().unwrap();
}

/// If it is little, or there is no room for it, it is read all the same.
#[test]
fn what_finds_no_room_is_read() {
    for (name, limit, count) in [("few", 1 << 30, BUFFERS - 1), ("no-room", 4 * PAGE, BUFFERS)] {
        let mut example = example_of(name, limit, Reads::Later(Vec::new()));
        (0..count).for_each(|buffer| example.store(buffer, buffer.into(), (LEN, true)));
        example.end();
        assert!(!example.backlog.is_left());
        let rest: Vec<u32> = example.rest().into_iter().map(|(number, _)| number).collect();
        assert_eq!(rest, (0..count).collect::<Vec<_>>());
        example.taker.join().unwrap();
    }
}
