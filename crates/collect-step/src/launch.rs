//! From a command to a tracee that has just executed its program: finds the
//! file, refuses what cannot be stepped, forks, seizes, and waits for the exec.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::stop::Stop;
use crate::sys::{self, Patience, Resume, Tid};
use crate::{Aslr, Config, Error, Vdso, auxv};

/// Starts the program and answers its process number. It is stopped inside its
/// exec, before its first instruction.
pub(crate) fn launch(config: &Config) -> Result<Tid, Error> {
    let path = find(&config.program, search_path(config))?;
    check_machine(&path)?;
    let launch = prepare(config, &path)?;
    let failed = |source| Error::Exec { path: path.clone(), source };
    let mut child = sys::fork(&launch).map_err(failed)?;
    let tid = child.pid.0;
    let result = sys::seize(child.pid)
        .map_err(|source| Error::Os { what: "seizing the new process", tid, source })
        .and_then(|()| child.release().map_err(failed))
        .and_then(|()| await_exec(&mut child, &path))
        .and_then(|()| match config.vdso {
            Vdso::Shown => Ok(()),
            Vdso::Hidden => auxv::hide_vdso(child.pid).map_err(|source| hidden(child.pid, source)),
        });
    if result.is_err() {
        // Whatever became of it, it must not stay.
        let _ = sys::kill(child.pid, libc::SIGKILL);
        while let Ok(Some(_)) = sys::wait(child.pid, Patience::Sleep) {
            let _ = sys::resume(child.pid, Resume::Cont, 0);
        }
    }
    result.map(|()| child.pid)
}

/// The vdso cannot be hidden.
pub(crate) const fn hidden(tid: Tid, source: io::Error) -> Error {
    Error::Os { what: "hiding the vdso", tid: tid.0, source }
}

/// Waits until the child has executed its program.
fn await_exec(child: &mut sys::Child, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Exec { path: path.into(), source };
    loop {
        match sys::wait(child.pid, Patience::Sleep).map_err(failed)?.map(Stop::from_status) {
            Some(Stop::Exec) => return Ok(()),
            Some(Stop::Exited(_) | Stop::Killed(_)) | None => {
                let source = child.failure().unwrap_or_else(|| io::ErrorKind::Other.into());
                return Err(failed(source));
            }
            Some(stop) => {
                let signal = if let Stop::Signal(n) = stop { n } else { 0 };
                sys::resume(child.pid, Resume::Cont, signal).map_err(failed)?;
            }
        }
    }
}

/// The `PATH` that the program's own environment will have, else this
/// process's: as `env NAME=value command` does.
fn search_path(config: &Config) -> OsString {
    let own = config.env.as_ref().and_then(|env| {
        env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone())
    });
    own.or_else(|| env::var_os("PATH")).unwrap_or_else(|| "/bin:/usr/bin".into())
}

/// The file that a command names, by the shell's rules.
fn find(program: &OsStr, search: OsString) -> Result<PathBuf, Error> {
    if program.as_bytes().contains(&b'/') {
        return executable(Path::new(program));
    }
    let mut refused = None;
    for folder in env::split_paths(&search) {
        match executable(&folder.join(program)) {
            Ok(path) => return Ok(path),
            Err(error @ Error::NotExecutable { .. }) => refused = refused.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| Error::NotFound { path: program.into() }))
}

fn executable(path: &Path) -> Result<PathBuf, Error> {
    let meta = path.metadata().map_err(|_| Error::NotFound { path: path.into() })?;
    if meta.is_file() && sys::may_execute(&text(path.as_os_str(), "the program's name")?) {
        Ok(path.into())
    } else {
        Err(Error::NotExecutable { path: path.into() })
    }
}

/// Refuses executables of other machines with a clear word, where the kernel
/// would only say "exec format error" or run what we cannot decode.
fn check_machine(path: &Path) -> Result<(), Error> {
    let mut head = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() {
        return Ok(()); // Unreadable or tiny: the kernel will judge.
    }
    match machine(&head) {
        Machine::X86_64 | Machine::NotElf => Ok(()),
        Machine::Other(found) => Err(Error::WrongMachine { path: path.into(), found }),
    }
}

/// What the first bytes of a file say about the machine it is for.
#[derive(PartialEq, Eq, Debug)]
enum Machine {
    X86_64,
    NotElf,
    Other(String),
}

fn machine(head: &[u8; 20]) -> Machine {
    if !head.starts_with(b"\x7fELF") {
        return Machine::NotElf;
    }
    let (class, number) = (head[4], u16::from_le_bytes([head[18], head[19]]));
    match (class, number) {
        (2, 62) => Machine::X86_64,
        (1, 3) => Machine::Other("a 32-bit x86 executable".into()),
        (1, 62) => Machine::Other("an x32 executable".into()),
        (2, 243) => Machine::Other("a RISC-V executable".into()),
        (2, 183) => Machine::Other("an AArch64 executable".into()),
        _ => Machine::Other(format!("an executable for ELF machine {number}")),
    }
}

fn prepare(config: &Config, path: &Path) -> Result<sys::Launch, Error> {
    let program = text(config.name.as_ref().unwrap_or(&config.program), "the program's name")?;
    let rest = config.args.iter().map(|arg| text(arg, "an argument"));
    let args = std::iter::once(Ok(program)).chain(rest).collect::<Result<_, _>>()?;
    let inherited = || env::vars_os().collect();
    let env = config.env.clone().unwrap_or_else(inherited);
    let env = env.into_iter().map(|(name, value)| pair(name, &value)).collect::<Result<_, _>>()?;
    let folder = config.folder.as_deref().map(|f| text(f.as_os_str(), "the folder's name"));
    Ok(sys::Launch {
        path: text(path.as_os_str(), "the program's name")?,
        args,
        env,
        folder: folder.transpose()?,
        personality: match config.aslr {
            Aslr::Off => libc::ADDR_NO_RANDOMIZE,
            Aslr::System => 0,
        },
    })
}

fn pair(name: OsString, value: &OsStr) -> Result<CString, Error> {
    let mut bytes = name.into_vec();
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    CString::new(bytes).map_err(|_| Error::ZeroByte { what: "the environment" })
}

fn text(s: &OsStr, what: &'static str) -> Result<CString, Error> {
    CString::new(s.as_bytes()).map_err(|_| Error::ZeroByte { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_told_apart() {
        let mut head = [0u8; 20];
        assert_eq!(machine(&head), Machine::NotElf);
        head[..4].copy_from_slice(b"\x7fELF");
        (head[4], head[18]) = (2, 62);
        assert_eq!(machine(&head), Machine::X86_64);
        (head[4], head[18]) = (1, 3);
        assert_eq!(machine(&head), Machine::Other("a 32-bit x86 executable".into()));
    }

    #[test]
    fn names_without_a_slash_are_searched() {
        assert!(find(OsStr::new("sh"), "/nonexistent:/bin:/usr/bin".into()).is_ok());
        let missing = find(OsStr::new("no-such-program"), "/bin".into());
        assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
        let folder = find(OsStr::new("/tmp"), OsString::new());
        assert!(matches!(folder, Err(Error::NotExecutable { .. })), "{folder:?}");
    }
}
