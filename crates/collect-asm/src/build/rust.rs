//! Rust programs. `rustc` assembles by itself, so it is asked for the program's assembly, too, and this program stands in for the
//! linker: it gives the object that was assembled from that, with notes, to the real linker instead of `rustc`'s own.
//!
//! The program's crate is one unit then. Crates that it uses are linked as they are: what of them is generic or inlined is part of
//! the program's own code.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

use super::assemble::assemble;
use crate::Error;

/// The variable that tells our linker where the real one is.
pub const LINKER: &str = "ICHNOS_LINKER";
/// The variable that tells it where the program's assembly is.
const UNIT: &str = "ICHNOS_UNIT";
/// The name by which this program is the linker: `rustc` knows by it how to speak to it.
pub(super) const NAME: &str = "cc";

/// Options of `rustc` whose value may be the next argument.
const OUTPUT: &str = "-o";
const EMIT: &str = "--emit";
const CODEGEN: [&str; 2] = ["-C", "--codegen"];

/// Assembly has this where a line of the source begins.
const LINES: &[u8] = b"\t.loc\t";

/// What matters in a command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    /// All arguments that are passed on.
    args: Vec<OsString>,
    /// What is written where, if that is said by `-o` alone.
    output: Option<OsString>,
    /// Whether it says what to make.
    emits: bool,
    linker: Option<OsString>,
    lto: bool,
}

impl Line {
    fn parse(args: &[OsString]) -> Self {
        let mut line = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let text = arg.to_string_lossy();
            if text == OUTPUT {
                line.output = rest.next().cloned();
                continue;
            }
            line.emits |= text.starts_with(EMIT);
            line.args.push(arg.clone());
            let option = if CODEGEN.contains(&&*text) {
                let next = rest.next();
                line.args.extend(next.cloned());
                next.map(|next| next.to_string_lossy().into_owned())
            } else {
                let same = text.strip_prefix("--codegen=").or_else(|| text.strip_prefix("-C"));
                same.map(ToOwned::to_owned)
            };
            line.codegen(option.as_deref().unwrap_or_default());
        }
        if line.emits
            && let Some(output) = line.output.take()
        {
            line.args.extend([OUTPUT.into(), output]);
        }
        line
    }

    fn codegen(&mut self, option: &str) {
        const OFF: [&str; 4] = ["off", "no", "n", "false"];
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "linker" => self.linker = Some(value.into()),
            "lto" | "linker-plugin-lto" => self.lto |= !OFF.contains(&value),
            _ => {}
        }
    }
}

/// Runs `rustc`. `folder` has this program under the name of the linker, and room for more; `link_args` are for the linker.
pub(super) fn command(
    rustc: &OsStr,
    args: &[OsString],
    folder: &Path,
    link_args: impl IntoIterator<Item = OsString>,
) -> Result<Command, Error> {
    let line = Line::parse(args);
    if line.lto {
        return Err(Error::Lto);
    }
    let with = |before: &str, value: &OsStr| {
        let mut word = OsString::from(before);
        word.push(value);
        word
    };
    let unit = folder.join("unit.s");
    let mut command = Command::new(rustc);
    command.args(&line.args).arg(EMIT).arg(with("asm=", unit.as_os_str()));
    match &line.output {
        _ if line.emits => {}
        Some(output) => drop(command.arg(EMIT).arg(with("link=", output))),
        None => drop(command.args([EMIT, "link"])),
    }
    // What is stripped would be the notes, too; cargo asks for it.
    command.args(["-C", "codegen-units=1", "-C", "strip=none"]);
    command.arg("-C").arg(with("linker=", folder.join(NAME).as_os_str()));
    for arg in link_args {
        command.arg("-C").arg(with("link-arg=", &arg));
    }
    let linker = line.linker.unwrap_or_else(|| "cc".into());
    command.env(LINKER, linker).env(UNIT, unit);
    Ok(command)
}

/// Acts as the linker `real`, for `rustc`; `assembler` assembles.
///
/// # Errors
///
/// If the assembler or the linker cannot be run, or no object is that of the program's assembly.
pub fn link(real: &OsStr, assembler: &OsStr, args: &[OsString]) -> Result<ExitStatus, Error> {
    let failed = |source| Error::Compiler { name: real.to_string_lossy().into_owned(), source };
    let mut args = args.to_vec();
    if let Some(unit) = std::env::var_os(UNIT).map(PathBuf::from).filter(|unit| unit.exists()) {
        let noted = unit.with_extension("o");
        let mut line = vec!["-o".into(), noted.clone().into_os_string()];
        // Only so does the assembler understand how lines of the source are told.
        if fs::read(&unit).map_err(failed)?.windows(LINES.len()).any(|w| w == LINES) {
            line.push("--gdwarf-5".into());
        }
        line.push(unit.into_os_string());
        let assembled = assemble(assembler, &line)?;
        if !assembled.success() {
            return Ok(assembled);
        }
        let wanted = names(noted.as_os_str()).unwrap_or_default();
        let is_same = |arg: &&mut OsString| {
            Path::new(arg).extension() == Some(OsStr::new("o"))
                && names(arg).is_some_and(|names| names == wanted)
        };
        let object = args.iter_mut().find(is_same).ok_or(Error::RustUnits)?;
        *object = noted.into_os_string();
    }
    Command::new(real).args(args).status().map_err(failed)
}

/// The names that an object defines for others.
fn names(path: &OsStr) -> Option<BTreeSet<Vec<u8>>> {
    let bytes = fs::read(path).ok()?;
    let file: ElfFile64<'_> = ElfFile64::parse(bytes.as_slice()).ok()?;
    let offered = file.symbols().filter(|s| s.is_definition() && s.is_global());
    let names: BTreeSet<_> =
        offered.filter_map(|s| s.name_bytes().ok()).map(<[u8]>::to_vec).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Line {
        Line::parse(&text.split_whitespace().map(Into::into).collect::<Vec<_>>())
    }

    #[test]
    fn command_lines_are_understood() {
        let line = parse("-O prog.rs -o prog -C linker=clang -Copt-level=3");
        let words = |text: &str| text.split_whitespace().map(Into::into).collect::<Vec<OsString>>();
        assert_eq!(line.args, words("-O prog.rs -C linker=clang -Copt-level=3"));
        assert_eq!((line.output, line.emits, line.lto), (Some("prog".into()), false, false));
        assert_eq!(line.linker, Some("clang".into()));
        // Who says what to make says where, too.
        let line = parse("prog.rs -o prog --emit=dep-info,link --codegen=linker=ld");
        assert_eq!(line.args, words("prog.rs --emit=dep-info,link --codegen=linker=ld -o prog"));
        assert!(line.emits && line.output.is_none() && line.linker == Some("ld".into()));
        for text in ["-Clto", "-C lto=thin", "--codegen lto=fat", "-Clinker-plugin-lto"] {
            assert!(parse(text).lto, "{text}");
        }
        for text in ["-C lto=off", "-Clto=no", "-C opt-level=3"] {
            assert!(!parse(text).lto, "{text}");
        }
    }
}
