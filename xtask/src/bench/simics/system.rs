//! The programs once more inside a whole simulated machine: Debian's kernel boots,
//! its init runs one of them several times, and powers off. What the boot itself
//! takes is measured alone and taken off.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::programs::{Program, Set};
use crate::run;

/// Where the machine's programs and inputs are, in its own file system.
const WORK: &str = "/work";

/// How often a machine runs its program, as one run may be short beside the boot.
pub const REPEATS: u32 = 5;

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
             for n in $(/bin/busybox seq {REPEATS}); do case \"$PROGRAM\" in\n{cases}esac; done\n\
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

    /// Boots and runs one program [`REPEATS`] times, or none.
    pub fn command(&self, program: Option<&Program>) -> Command {
        let mut command = super::super::size::ichnos();
        let name = program.map_or("none", |program| program.name);
        command.args(["boot", "-q", "--mem", "1G", "--kernel"]).arg(&self.kernel);
        command.arg("--overlay").arg(&self.overlay);
        command.arg("--append").arg(format!("console=ttyS0 quiet PROGRAM={name}"));
        command
    }
}
