//! The programs once more inside a whole simulated machine: Debian's kernel boots,
//! its init runs one of them twice, and powers off.
//!
//! Init says on the console when the program begins and when it has ended, and the
//! simulator's processor time is read each time, so that the boot does not count; nor
//! does what the kernel leaves for afterwards, as init rests first. (Without a rest the
//! first run took 0.1 to 0.3 s more, most of it in the kernel.) The first run is cold, as
//! one in user mode is: the program's code has not been translated. The second is warm.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::programs::{Program, Set};
use crate::run;

/// Where the machine's programs and inputs are, in its own file system.
const WORK: &str = "/work";

/// What init says before and behind the program.
const BEGINS: &str = "@begins";
const ENDED: &str = "@ended";

/// Seconds of the machine's own time, which pass at once where it is idle.
const REST: u32 = 2;

/// A machine that can run any of the programs.
#[derive(Debug)]
pub struct System {
    kernel: PathBuf,
    overlay: PathBuf,
}

impl System {
    /// Prepares the machine's file system. The kernel and busybox are those that the
    /// simulator's tests keep in the user's cache.
    pub fn prepare(set: &Set) -> Result<Self> {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let cache = cache.context("no folder for caches")?.join("ichnos/debian-trixie-riscv64");
        let system = Self { kernel: cache.join("Image"), overlay: set.folder.join("system") };
        if !system.kernel.exists() {
            let why = "no kernel in the cache; the simulator's tests fetch it with ICHNOS_FETCH=1";
            anyhow::bail!(why);
        }
        system.fill(set, &cache.join("busybox"))?;
        Ok(system)
    }

    fn fill(&self, set: &Set, busybox: &Path) -> Result<()> {
        for folder in ["bin", "dev", "proc", "work"] {
            fs::create_dir_all(self.overlay.join(folder))?;
        }
        fs::copy(busybox, self.overlay.join("bin/busybox"))?;
        fs::set_permissions(self.overlay.join("bin/busybox"), fs::Permissions::from_mode(0o755))?;
        for input in ["input.txt", "input.lua", "input.sql"] {
            fs::copy(set.folder.join(input), self.overlay.join("work").join(input))?;
        }
        // Libraries and packaged programs at their own places.
        run::check(Command::new("cp").arg("-a").arg(set.sysroot.join("usr")).arg(&self.overlay))?;
        let link = self.overlay.join("lib");
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink("usr/lib", link)?;
        }
        let mut cases = String::new();
        for program in &set.programs {
            let (own, args) = self.install(set, program)?;
            cases.push_str(&format!("{}) {own} {args} >/dev/null 2>&1;;\n", program.name));
        }
        // The kernel hands what it does not know of its command line to init.
        let init = format!(
            "#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\ncd {WORK}\n\
             /bin/busybox sleep {REST}\n\
             for n in 1 2; do echo {BEGINS}\ncase \"$PROGRAM\" in\n{cases}esac\n\
             echo {ENDED}; done\n\
             /bin/busybox poweroff -f\n"
        );
        fs::write(self.overlay.join("init"), init)?;
        fs::set_permissions(self.overlay.join("init"), fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Puts a program into the machine: its path there, and its arguments, quoted.
    fn install(&self, set: &Set, program: &Program) -> Result<(String, String)> {
        let file = Path::new(&program.guest[0]);
        let own = match file.strip_prefix(&set.sysroot) {
            Ok(inside) => format!("/{}", inside.display()),
            Err(_) => {
                let name = file.file_name().context("a program has a name")?;
                fs::copy(file, self.overlay.join("work").join(name))?;
                format!("{WORK}/{}", name.to_string_lossy())
            }
        };
        let args: Vec<String> = program.guest[1..].iter().map(|arg| format!("'{arg}'")).collect();
        Ok((own, args.join(" ")))
    }

    /// Boots, runs one program twice, and gives the processor time that it took: cold
    /// and warm.
    pub fn seconds(&self, program: &Program) -> Result<[f64; 2]> {
        let mut child = self.command(program).spawn()?;
        let output = child.stdout.take().context("a pipe was asked for")?;
        let (mut begun, mut runs) = (None, Vec::new());
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let said = |word: &str| line.starts_with(word.as_bytes());
            if said(BEGINS) {
                begun = Some(processor_nanoseconds(child.id())?);
            } else if let Some(begun) = begun.filter(|_| said(ENDED)) {
                let ended = processor_nanoseconds(child.id())?;
                runs.push(ended.saturating_sub(begun) as f64 / 1e9);
            }
        }
        let status = child.wait()?;
        match <[f64; 2]>::try_from(runs) {
            Ok(runs) if status.success() => Ok(runs),
            _ => anyhow::bail!("the machine ended with {status}, or its init did not say all"),
        }
    }

    fn command(&self, program: &Program) -> Command {
        let mut command = super::super::size::ichnos();
        command.args(["boot", "-q", "--mem", "1G", "--kernel"]).arg(&self.kernel);
        command.arg("--overlay").arg(&self.overlay);
        command.arg("--append").arg(format!("console=ttyS0 quiet PROGRAM={}", program.name));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}

/// The processor time of all threads of a process.
fn processor_nanoseconds(process: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let time = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        sum += time.with_context(|| format!("no time in \"{}\"", text.trim()))?;
    }
    Ok(sum)
}
