//! The system packages that the tests use, by name, and how they get here.
//!
//! Nothing is fetched but through the machine's own package client, and nothing
//! when all is present. A package that cannot be had is no error: the tests that
//! need its program say that they were skipped and why.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

/// A Debian package, the file that shows it is installed, and who needs it.
struct Package {
    name: &'static str,
    shows: &'static [&'static str],
    used_for: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "gcc", shows: &["/usr/bin/gcc"], used_for: "guest programs" },
    Package { name: "g++", shows: &["/usr/bin/g++"], used_for: "guest programs in C++" },
    Package { name: "libc6-dev", shows: &["/usr/include/stdio.h"], used_for: "guest programs" },
    Package { name: "binutils", shows: &["/usr/bin/objdump"], used_for: "a second disassembler" },
    Package {
        name: "valgrind",
        shows: &["/usr/bin/valgrind"],
        used_for: "lackey, callgrind and cachegrind as judges",
    },
    Package { name: "bzip2", shows: &["/usr/bin/bzip2", "/bin/bzip2"], used_for: "a real program" },
    Package { name: "gzip", shows: &["/usr/bin/gzip", "/bin/gzip"], used_for: "a real program" },
    Package { name: "sqlite3", shows: &["/usr/bin/sqlite3"], used_for: "a real program" },
    Package {
        name: "busybox-static",
        shows: &["/usr/bin/busybox", "/bin/busybox"],
        used_for: "a real static program",
    },
    Package {
        name: "gcc-riscv64-linux-gnu",
        shows: &["/usr/bin/riscv64-linux-gnu-gcc"],
        used_for: "riscv64 guest programs",
    },
    Package {
        name: "libc6-dev-riscv64-cross",
        shows: &["/usr/riscv64-linux-gnu/include/stdio.h"],
        used_for: "riscv64 guest programs",
    },
    Package { name: "qemu-user", shows: &["/usr/bin/qemu-riscv64"], used_for: "a judge for RV64" },
    Package {
        name: "gdb-multiarch",
        shows: &["/usr/bin/gdb-multiarch"],
        used_for: "a debugger for RV64 machines",
    },
    Package { name: "pigz", shows: &["/usr/bin/pigz"], used_for: "a real program, measured" },
    Package {
        name: "gfortran",
        shows: &["/usr/bin/gfortran"],
        used_for: "a guest program in Fortran",
    },
    Package { name: "make", shows: &["/usr/bin/make"], used_for: "real projects built inline" },
    Package { name: "cmake", shows: &["/usr/bin/cmake"], used_for: "real projects built inline" },
    Package {
        name: "tcl",
        shows: &["/usr/bin/tclsh"],
        used_for: "building sqlite3 from its own sources",
    },
    Package { name: "clang", shows: &["/usr/bin/clang"], used_for: "guest programs" },
    Package { name: "lua5.4", shows: &["/usr/bin/lua5.4"], used_for: "a real program" },
];

/// Installs what is missing. Says what cannot be installed and goes on.
pub fn setup() -> Result<()> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|p| !present(p)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        eprintln!("setup: {} is missing ({})", package.name, package.used_for);
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        eprintln!("setup: no apt-get here; tests that need these programs will be skipped");
        return Ok(());
    }
    apt(&["update", "-q"]);
    for package in missing {
        apt(&["install", "-y", "-q", "--no-install-recommends", package.name]);
        if !present(package) {
            eprintln!("setup: {} could not be installed; its tests will be skipped", package.name);
        }
    }
    Ok(())
}

fn present(package: &Package) -> bool {
    package.shows.iter().any(|path| Path::new(path).exists())
}

/// Runs apt-get, through sudo where we are not root and sudo asks nothing.
fn apt(args: &[&str]) {
    let quiet_sudo = Command::new("sudo").args(["-n", "true"]).stderr(Stdio::null()).status();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    let mut command = if !is_root && quiet_sudo.is_ok_and(|s| s.success()) {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "apt-get"]);
        sudo
    } else {
        Command::new("apt-get")
    };
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    eprintln!("$ apt-get {}", args.join(" "));
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("setup: apt-get {} ended with {status}", args.join(" ")),
        Err(error) => eprintln!("setup: apt-get cannot be run: {error}"),
    }
}
