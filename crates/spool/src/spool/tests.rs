//! Buffers into a spool and out of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::thread;

use super::pen::Form;
use super::*;
use crate::Label;

fn label(thread: u32, len: u64) -> Label {
    Label { numbers: [0, thread, 3], len }
}

/// A buffer of which nothing comes again.
fn rough() -> Vec<u8> {
    let words = (0..PAGE as u32 / 4).map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes());
    words.flatten().collect()
}

/// A spool with two buffers in a folder of its own, and where it is.
fn example(name: &str, limit: u64) -> (Arc<Spool>, PathBuf) {
    let name = format!("ichnos-spool-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let spool = Spool::create(&path, b"a note", limit).unwrap();
    // Who is second waits for the first.
    let (mut pen, mut other) = (spool.pen(), spool.pen());
    let second = thread::spawn(move || other.put(1, label(2, PAGE), &rough(), Hurry::None));
    let first = pen.put(0, label(1, 100), &[7; PAGE as usize], Hurry::None).unwrap();
    let second = second.join().unwrap().unwrap();
    assert_eq!((first.form, first.start), (Form::Squeezed, PAGE + ENTRY_LEN as u64));
    assert_eq!((second.form, second.start, second.len), (Form::Plain, 3 * PAGE, PAGE));
    (spool, path)
}

fn all(path: &Path) -> (Vec<(u32, Vec<u8>)>, Option<ExitStatus>) {
    let mut left = Left::open(path).unwrap();
    assert_eq!(left.note(), b"a note");
    let mut found = Vec::new();
    loop {
        match left.next_entry().unwrap() {
            Next::Buffer(label, bytes) => found.push((label.numbers[1], bytes.to_vec())),
            Next::End(status) => return (found, Some(status)),
            Next::Cut => return (found, None),
        }
    }
}

#[test]
fn what_was_put_comes_back() {
    let (spool, path) = example("whole", 1 << 20);
    let two = vec![(1, vec![7; 100]), (2, rough())];
    assert!(Left::open(&path).is_err(), "it is in use");
    spool.end(ExitStatus::from_raw(0x300)).unwrap();
    drop(spool);
    assert_eq!(all(&path), (two.clone(), Some(ExitStatus::from_raw(0x300))));
    // A file that was cut anywhere holds what lies whole before the cut.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for (len, count) in [(16384, 2), (16383, 1), (8192, 1), (8191, 0), (4096, 0)] {
        file.set_len(len).unwrap();
        assert_eq!(all(&path), (two[..count].to_vec(), None), "{len}");
    }
    file.set_len(20).unwrap();
    assert!(Left::open(&path).is_err());
    fs::remove_file(path).unwrap();
}

#[test]
fn spools_of_any_size_are_removed() {
    for len in [0, LARGE - 1, LARGE] {
        let path = std::env::temp_dir().join(format!("ichnos-gone-{}", std::process::id()));
        File::create(&path).and_then(|file| file.set_len(len)).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists(), "{len}");
        assert_eq!(remove(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn a_spool_ends_before_what_was_never_written() {
    let (spool, path) = example("hole", 1 << 20);
    assert!(spool.claim(2, PAGE).is_some());
    spool.pen().put(3, label(4, 100), &[1; PAGE as usize], Hurry::Much).unwrap();
    drop(spool);
    assert_eq!(all(&path).0.len(), 2);
    fs::remove_file(path).unwrap();
}

#[test]
fn a_damaged_buffer_ends_a_spool() {
    let (spool, path) = example("damage", 1 << 20);
    drop(spool);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 8], PAGE + ENTRY_LEN as u64).unwrap();
    assert_eq!(all(&path).0.len(), 0);
    fs::remove_file(path).unwrap();
}

#[test]
fn a_full_spool_takes_no_more() {
    let (spool, path) = example("full", 4 * PAGE + 100);
    let mut pen = spool.pen();
    let mut put = |sequence| pen.put(sequence, label(1, 100), &[1; PAGE as usize], Hurry::Much);
    assert!(put(2).is_err() && put(3).is_err());
    drop((pen, spool));
    assert_eq!(all(&path).0.len(), 2);
    fs::remove_file(path).unwrap();
}
