//! Memory: what a writer and a reader hold does not grow with the length of the trace, and what a
//! reader takes for hostile files stays within the stated bound.
//!
//! Measured from outside, zstd's memory included: each measurement runs in a process of its own,
//! this test binary again with a role in its environment, and is the peak that the kernel saw.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::process::Command;

use ichnos_base::*;
use ichnos_replay::Replay;
use ichnos_trace::{Options, Reader, Writer};

const ROLE: &str = "ICHNOS_MEMORY_ROLE";

/// Peaks of runs of different lengths may differ by this much: the list of chunks, and chance.
const SLACK: u64 = 4 << 20;

/// What the most hostile of the files below may make a reader take: one payload and one set of
/// columns of 64 MiB, the roadmap of one chunk, the tables of a decoder, and the file itself.
const BOUND: u64 = 1 << 30;

/// The peak resident size of a process of its own that plays a role.
fn peak(role: &str) -> u64 {
    let exe = std::env::current_exe().expect("this test");
    let mut child = Command::new(exe);
    child.args(["memory::role", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    let out = child.output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let peak = text.lines().find_map(|l| l.trim().strip_prefix("peak "));
    let kib = peak.and_then(|l| l.parse::<u64>().ok());
    let why = String::from_utf8_lossy(&out.stderr);
    kib.unwrap_or_else(|| panic!("{role}: {text} {why}")) << 10
}

/// Plays the role that the environment names. Alone it has nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, count) = role.split_once(' ').expect("a role and a number");
    let count: u64 = count.parse().expect("a number");
    match role {
        "write" => write(count, std::io::sink()),
        "read" => {
            let path = std::env::temp_dir().join(format!("ichnos-memory-{}", std::process::id()));
            write(count, std::fs::File::create(&path).expect("a file"));
            // What writing took is not asked for.
            std::fs::write("/proc/self/clear_refs", "5").expect("the peak is forgotten");
            let reader = Reader::open(&path).expect("it opens");
            Replay::new(&reader).drive(&mut Null).expect("it replays");
            std::fs::remove_file(&path).expect("removed");
        }
        _ => hostile(count),
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel's view");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
    #[allow(clippy::print_stdout, reason = "the parent reads this")]
    {
        println!("\npeak {}", line.trim().trim_end_matches(" kB"));
    }
}

/// Writes so many turns of a loop with regular and random accesses.
fn write<W: std::io::Write>(turns: u64, out: W) {
    let mut options = Options::default();
    options.chunk_insns = 50_000;
    let mut writer = Writer::new(out, options).expect("a writer");
    let mut state = 1_u64;
    for start in (0..turns).step_by(1000) {
        let mut records = Vec::new();
        for turn in start..start + 1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            records.push(Record::insn(GuestVa(0x1000), 4, InsnKind::OTHER));
            records.push(Record::load(GuestVa(0x10_0000 + turn % 10_000 * 4), 4));
            records.push(Record::insn(GuestVa(0x1004), 4, InsnKind::OTHER));
            records.push(Record::store(GuestVa(0x90_0000 + (state >> 50)), 1));
        }
        writer.records(&Batch::new(ThreadId(0), start * 2, &records)).expect("written");
    }
    writer.finish().expect("finished");
}

/// Reads so many files whose checksums are right and whose chunks are not.
fn hostile(count: u64) {
    let mut good = Vec::new();
    write(2000, &mut good);
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let chunks = chunks(&good);
    for _ in 0..count {
        let mut bytes = good.clone();
        let (at, len) = chunks[random(chunks.len())];
        for _ in 0..1 + random(3) {
            let place = if random(4) == 0 { at + 16 + random(92) } else { at + 116 + random(len) };
            bytes[place] = random(256) as u8;
        }
        let payload = crc32(&bytes[at + 116..at + 116 + len]);
        bytes[at + 108..at + 112].copy_from_slice(&payload.to_le_bytes());
        let header = crc32(&bytes[at..at + 112]);
        bytes[at + 112..at + 116].copy_from_slice(&header.to_le_bytes());
        if let Ok(reader) = Reader::from_bytes(bytes) {
            let _ = Replay::new(&reader).drive(&mut Null);
        }
    }
}

/// Where chunks begin, and how long their payloads are.
fn chunks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let starts = (0..bytes.len() - 116).filter(|at| bytes[*at..].starts_with(b"iCk\x1a"));
    let len = |at: usize| bytes[at + 20..at + 24].try_into().map(u32::from_le_bytes);
    starts.map(|at| (at, len(at).expect("four bytes") as usize)).filter(|c| c.1 > 0).collect()
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8)
            .fold(crc ^ u32::from(*byte), |c, _| c >> 1 ^ (0xedb8_8320 & 0_u32.wrapping_sub(c & 1)))
    })
}

#[test]
fn a_longer_trace_takes_no_more_memory() {
    for role in ["write", "read"] {
        let short = peak(&format!("{role} 150000"));
        let long = peak(&format!("{role} 1500000"));
        assert!(long < short + SLACK, "{role}: {short} bytes, ten times as long: {long}");
    }
}

#[test]
fn hostile_files_stay_within_the_bound() {
    let peak = peak("hostile 3000");
    assert!(peak < BOUND, "{peak} bytes");
}
