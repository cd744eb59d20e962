//! The C program that executes instructions, built by gcc when the tests run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use crate::machine::{Machine, STATE_BYTES};

pub const ARENAS: usize = 4;
pub const WINDOW: usize = 1024;

/// The first writable byte of an arena, and the first behind it.
pub const fn arena(i: usize) -> (u64, u64) {
    let first = 0x4000_0000 + 0x10_0000 * i as u64 + 0x1_0000;
    (first, first + 0x1_0000)
}

/// The same of an arena that cannot be written.
pub const fn readonly(i: usize) -> (u64, u64) {
    let (first, end) = arena(i);
    (first + 0x800_0000, end + 0x800_0000)
}

/// The middle of an arena.
pub const fn centre(i: usize) -> u64 {
    arena(i).0 + 0x8000
}

/// Memory around each arena's centre.
pub type Windows = [[u8; WINDOW]; ARENAS];

/// One execution to be made.
pub struct Request {
    pub code: Vec<u8>,
    pub before: Machine,
    /// Memory to put there first; with it the whole outcome is reported,
    /// without it only faults.
    pub windows: Option<Box<Windows>>,
}

/// What came of it.
pub struct Outcome {
    pub signal: u32,
    /// The page-fault error code: bit 1 is set for a write.
    pub error: u32,
    pub address: u64,
    pub after: Option<(Box<Machine>, Box<Windows>)>,
}

/// The probe, built once; `None` if the processor lacks the vector extensions that
/// it saves and restores.
pub fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    if !std::is_x86_feature_detected!("avx512bw") {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probe.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe");
    let fresh = program.with_extension(std::process::id().to_string());
    let status = Command::new("gcc")
        .args(["-O1", "-static", "-no-pie", "-o"])
        .arg(&fresh)
        .arg(&source)
        .status()
        .expect("gcc can be started");
    assert!(status.success(), "gcc cannot build {}", source.display());
    // Another run of the tests may be using the old one.
    std::fs::rename(&fresh, &program).expect("the probe can be put in place");
    Some(program)
}

/// Executes all requests and hands each outcome to `judge`.
pub fn execute(program: &Path, requests: Vec<Request>, mut judge: impl FnMut(usize, Outcome)) {
    let full: Vec<bool> = requests.iter().map(|r| r.windows.is_some()).collect();
    let (mut child, writer, mut answers) = start(program, requests);
    for (i, full) in full.into_iter().enumerate() {
        let mut head = [0; 16];
        if answers.read_exact(&mut head).is_err() {
            let status = child.wait();
            panic!("the probe ended at request {i}: {status:?}");
        }
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let signal = word(0);
        let address = u64::from_le_bytes(head[8..16].try_into().unwrap());
        let after = (full && signal == 0).then(|| read_state(&mut answers));
        judge(i, Outcome { signal, error: word(4), address, after });
    }
    writer.join().expect("the writer ends");
    assert!(child.wait().expect("the probe ends").success());
}

fn start(
    program: &Path,
    requests: Vec<Request>,
) -> (Child, JoinHandle<()>, BufReader<ChildStdout>) {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the probe starts");
    let mut input = BufWriter::with_capacity(1 << 20, child.stdin.take().expect("piped"));
    let answers = BufReader::with_capacity(1 << 20, child.stdout.take().expect("piped"));
    let writer = std::thread::spawn(move || {
        for request in requests {
            // A probe that died shows on the reading side.
            if send(&mut input, &request).is_err() {
                return;
            }
        }
    });
    (child, writer, answers)
}

fn send(input: &mut impl Write, request: &Request) -> std::io::Result<()> {
    let mut code = request.code.clone();
    let length = code.len() as u32;
    code.resize(24, 0x90);
    input.write_all(&u32::from(request.windows.is_some()).to_le_bytes())?;
    input.write_all(&length.to_le_bytes())?;
    input.write_all(&code)?;
    input.write_all(&request.before.to_bytes())?;
    for window in request.windows.iter().flat_map(|w| w.iter()) {
        input.write_all(window)?;
    }
    Ok(())
}

fn read_state(answers: &mut impl Read) -> (Box<Machine>, Box<Windows>) {
    let mut bytes = vec![0; STATE_BYTES];
    answers.read_exact(&mut bytes).expect("a whole state");
    let mut windows = Box::new([[0; WINDOW]; ARENAS]);
    for window in windows.iter_mut() {
        answers.read_exact(window).expect("a whole window");
    }
    (Box::new(Machine::from_bytes(&bytes)), windows)
}
