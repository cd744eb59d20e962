//! The compiler, run so that it finds our assembler first.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use super::rust;
use crate::Error;

/// The variable that tells our assembler where the real one is.
pub const ASSEMBLER: &str = "ICHNOS_AS";

/// A folder that holds this program under the names of tools, and goes when this does.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Whoever cannot remove it leaves two small files behind, which is no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a compiler command. `program` is this program, which acts as assembler when it is
/// called by the name `as`, and as linker of `rustc` by another. What is linked is linked with `tool`, a library of an absolute path, too.
///
/// # Errors
///
/// If the compiler cannot be run, or is asked for what cannot be done.
pub fn compile(
    program: &Path,
    command: &[OsString],
    tool: Option<&Path>,
) -> Result<ExitStatus, Error> {
    let Some((compiler, args)) = command.split_first() else { return Err(Error::NoCompiler) };
    if args.iter().any(|arg| is_lto(arg)) {
        return Err(Error::Lto);
    }
    let name = Path::new(compiler).file_name().unwrap_or(compiler).to_string_lossy().into_owned();
    let run = |source| Error::Compiler { name: name.clone(), source };
    let folder = folder_with_us(program).map_err(run)?;
    if name == "rustc" {
        let link_args = tool.into_iter().flat_map(link_with);
        let mut command = rust::command(compiler, args, &folder.0, link_args)?;
        command.env(ASSEMBLER, real_assembler(OsStr::new("cc")));
        return command.status().map_err(run);
    }
    let mut prefix = OsString::from("-B");
    prefix.push(&folder.0);
    prefix.push("/");
    let mut command = Command::new(compiler);
    command.arg(prefix).args(name.contains("clang").then_some("-fno-integrated-as"));
    command.args(args).args(tool.into_iter().flat_map(link_with));
    command.env(ASSEMBLER, real_assembler(compiler));
    command.status().map_err(run)
}

/// The words that link a program with a library, whether or not it asks for anything of it. Where nothing is linked they
/// mean nothing.
fn link_with(tool: &Path) -> [OsString; 2] {
    let mut link = OsString::from("-Wl,--push-state,--no-as-needed,");
    link.push(tool);
    link.push(",--pop-state");
    let mut find = OsString::from("-Wl,-rpath,");
    find.push(tool.parent().unwrap_or(Path::new("/")));
    [link, find]
}

fn is_lto(arg: &OsStr) -> bool {
    let arg = arg.to_string_lossy();
    arg == "-flto" || arg.starts_with("-flto=")
}

fn folder_with_us(program: &Path) -> std::io::Result<Folder> {
    let parent = std::env::temp_dir();
    for turn in 0..1000 {
        let path = parent.join(format!("ichnos-cc-{}-{turn}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => {
                let folder = Folder(path);
                symlink(program, folder.0.join("as"))?;
                symlink(program, folder.0.join(rust::NAME))?;
                return Ok(folder);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::Error::other("no name for a temporary folder is free"))
}

/// The assembler that the compiler would run.
fn real_assembler(compiler: &OsStr) -> OsString {
    let asked = Command::new(compiler)
        .arg("-print-prog-name=as")
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success());
    let name = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "as".to_owned()).into()
}
