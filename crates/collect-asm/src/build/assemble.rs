//! Our assembler: the real one, run twice.
//!
//! The first run, with all local labels kept, shows where functions and labels lie.
//! The second assembles the same text with notes appended to it, in sections that are not
//! loaded: code and data of the object are those of an ordinary build, to the byte.
//! A file that cannot be understood is assembled as it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use super::labels::{Labels, Taken};
use super::object_file::{Function, functions};
use crate::Error;
use crate::note;

/// Options whose value is the next argument.
const WITH_VALUE: &[&str] = &["-o", "-I", "-MD", "--MD", "--defsym", "--debug-prefix-map", "-K"];

/// A command line of the assembler.
struct Line<'a> {
    /// All but input and output.
    options: Vec<&'a OsStr>,
    input: Option<&'a OsStr>,
    output: Option<&'a OsStr>,
    /// Whether it asks for something else than an x86-64 object.
    foreign: bool,
}

impl<'a> Line<'a> {
    fn parse(args: &'a [OsString]) -> Self {
        let mut line = Self { options: Vec::new(), input: None, output: None, foreign: false };
        let mut args = args.iter().map(OsString::as_os_str);
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy();
            if text == "-o" {
                line.output = args.next();
            } else if text.starts_with('-') && text != "-" {
                line.foreign |= matches!(&*text, "--32" | "--x32" | "--version" | "--help");
                line.options.push(arg);
                if WITH_VALUE.contains(&&*text) {
                    line.options.extend(args.next());
                }
            } else {
                // More than one input is joined by the assembler; nobody does that.
                line.foreign |= line.input.is_some();
                line.input = Some(arg);
            }
        }
        line
    }
}

/// Files that go when this does.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        for turn in 0..1000 {
            let name = format!("ichnos-as-{}-{turn}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("no name for a temporary folder is free"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-over files in the temporary folder are no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Acts as the assembler `real`.
///
/// # Errors
///
/// If the assembler cannot be run, its input cannot be read, or the input is for the
/// link-time optimiser.
pub fn assemble(real: &OsStr, args: &[OsString]) -> Result<ExitStatus, Error> {
    let failed = |source| Error::Assembler { name: real.to_string_lossy().into_owned(), source };
    let line = Line::parse(args);
    if line.foreign {
        return Command::new(real).args(args).status().map_err(failed);
    }
    let scratch = Scratch::new().map_err(failed)?;
    let text = read(line.input).map_err(failed)?;
    let given = scratch.0.join("given.s");
    fs::write(&given, &text).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let labels = Labels::of(&text);
    if labels.lto {
        return Err(Error::Lto);
    }
    let run = |input: &Path, output: &OsStr, more: &[&str]| {
        let mut command = Command::new(real);
        command.args(&line.options).args(more).arg("-o").arg(output).arg(input);
        command
    };
    let output = line.output.unwrap_or(OsStr::new("a.out"));
    let first = scratch.0.join("first.o");
    let shown = run(&given, first.as_os_str(), &["-L"]).stderr(Stdio::null()).status();
    if shown.map_err(failed)?.success() {
        let bytes = fs::read(&first).map_err(failed)?;
        let functions = functions(&bytes, &labels)?;
        let noted = scratch.0.join("noted.s");
        fs::write(&noted, format!("{text}\n{}", notes(&functions, labels.compiled)))
            .map_err(failed)?;
        let done = run(&noted, output, &[]).stderr(Stdio::null()).status().map_err(failed)?;
        if done.success() {
            return Ok(done);
        }
    }
    // As it is, with whatever the assembler has to say about it.
    match line.input {
        Some(input) if input != "-" => run(Path::new(input), output, &[]),
        _ => run(&given, output, &[]),
    }
    .status()
    .map_err(failed)
}

fn read(input: Option<&OsStr>) -> io::Result<Vec<u8>> {
    match input {
        Some(path) if path != "-" => fs::read(path),
        _ => {
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text)?;
            Ok(text)
        }
    }
}

/// The notes about functions, as assembly.
fn notes(functions: &[Function], compiled: bool) -> String {
    let mut text = String::new();
    for function in functions {
        let group = match &function.group {
            Some(name) => format!("\"G\",@progbits,{name},comdat"),
            None => "\"\",@progbits".to_owned(),
        };
        let length = note::HEAD_LEN + 4 * function.entries.len();
        let flags = if compiled { note::COMPILED } else { 0 };
        let ((start, plus), (parent, more)) = (&function.start, &function.parent);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\t.section {},{group}\n\t.long {:#x},{length}\n\t.quad {start}+{plus}\n\
             \t.quad {parent}+{more}\n\t.long {},{flags},{}\n",
            note::SECTION,
            note::MAGIC,
            function.size,
            function.entries.len(),
        );
        for (entry, what) in &function.entries {
            let flag = if *what == Taken::Pad { note::PAD } else { 0 };
            let _ = writeln!(text, "\t.long {:#x}", *entry | u64::from(flag));
        }
    }
    text
}
