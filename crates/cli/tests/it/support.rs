//! Running `ichnos` and other programs in a folder of their own.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ichnos_base::Totals;
use ichnos_testkit::guest::{self, Link};
use ichnos_trace::Reader;

/// A scratch folder that goes away with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and gives its whole path.
    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn install(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        guest::install(&path, bytes);
        path.to_str().unwrap().to_owned()
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }

    /// A file's size; 0 if it is not there.
    pub fn size(&self, name: &str) -> u64 {
        std::fs::metadata(self.0.join(name)).map_or(0, |m| m.len())
    }

    /// Waits until somebody has written to a file; not for ever.
    pub fn wait_for(&self, name: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.size(name) == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn list(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A file that a killed child still holds open must not fail the test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a program did.
#[derive(Debug)]
pub struct Run {
    /// Its exit status; 128 + n for death by signal n.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}\n{}", self.stdout, self.stderr))
    }
}

impl From<Output> for Run {
    fn from(out: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let status = out.status.code().or_else(|| out.status.signal().map(|s| 128 + s));
        Self {
            status: status.unwrap(),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }
}

/// Runs `ichnos`.
pub fn ichnos(folder: &Folder, args: &[&str]) -> Run {
    native(folder, env!("CARGO_BIN_EXE_ichnos"), args)
}

/// Runs any program, with nothing on its standard input.
pub fn native(folder: &Folder, program: &str, args: &[&str]) -> Run {
    let out = Command::new(program)
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    out.into()
}

/// Runs a line of bash.
pub fn shell(folder: &Folder, line: &str) -> Run {
    native(folder, "bash", &["-c", line])
}

/// What a trace counts, as far as that is known without reading its records.
#[track_caller]
pub fn totals(folder: &Folder, file: &str) -> Totals {
    Reader::open(&folder.path().join(file)).unwrap().totals()
}

/// A trace that many tests read: a small sort without libraries.
pub fn sample() -> (&'static Folder, &'static str) {
    static SAMPLE: OnceLock<(Folder, String)> = OnceLock::new();
    let (folder, program) = SAMPLE.get_or_init(|| {
        let folder = Folder::new();
        let program = guest::build("bare_sort.c", Link::Bare, &["-g"]);
        let program = program.to_str().unwrap().to_owned();
        let run = ichnos(&folder, &["step", "-q", "-o", "sort.ichnos", "--", &program]);
        assert_eq!(run.stderr, "");
        (folder, program)
    });
    (folder, program)
}

/// A run that must have ended well.
#[track_caller]
pub fn good(run: Run) -> Run {
    assert_eq!(run.status, 0, "{}{}", run.stdout, run.stderr);
    run
}

/// The JSON answer of a verb about the sample.
#[track_caller]
pub fn ask(verb: &str, args: &[&str]) -> serde_json::Value {
    let args = [&[verb, "--json"], args, &["sort.ichnos"]].concat();
    good(ichnos(sample().0, &args)).json()
}

/// Starts a recording into `t.ichnos` that begins with nothing, and waits until it can be switched.
pub fn paused(folder: &Folder, program: &[&str]) -> Child {
    const PATIENCE: Duration = Duration::from_secs(20);
    let recorder = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["record", "-q", "--paused", "-o", "t.ichnos", "--"])
        .args(program)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .spawn()
        .expect("it starts");
    let number = recorder.id().to_string();
    // It takes a moment until there is something to switch.
    let begun = Instant::now();
    while ichnos(folder, &["control", &number, "off"]).status != 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    recorder
}
