//! QEMU's own cache plugin. Distributions do not package it: it is compiled from
//! QEMU's source package of the host's suite, with the headers of glib's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::apt::{Apt, Kind};
use crate::run;

/// The caches of the row that it is compared with: 32 KiB, 8 ways, LRU.
const OPTIONS: &str = "dcachesize=32768,dassoc=8,dblksize=64,\
    icachesize=32768,iassoc=8,iblksize=64,evict=lru";

/// The plugin with its options, as QEMU takes it.
pub fn prepare(folder: &Path) -> Result<String> {
    let plugin = folder.join("cache.so");
    if !plugin.exists() {
        build(folder, &plugin)?;
    }
    Ok(format!("{},{OPTIONS}", plugin.display()))
}

fn build(folder: &Path, plugin: &Path) -> Result<()> {
    let suite = suite()?;
    let sources = folder.join("qemu");
    let apt = Apt::new(&sources, &suite, Kind::Source)?;
    apt.get(&["source", "--download-only", "qemu"])?;
    for archive in apt.files(".orig.tar.xz")? {
        let mut tar = Command::new("tar");
        tar.arg("-xJf").arg(archive).arg("-C").arg(&sources).args([
            "--strip-components=1",
            "--wildcards",
            "*/contrib/plugins/cache.c",
            "*/include/qemu/qemu-plugin.h",
        ]);
        run::check(&mut tar)?;
    }
    let headers = folder.join("glib");
    let apt = Apt::new(&headers, &suite, Kind::Binary("amd64"))?;
    apt.get(&["download", "libglib2.0-dev"])?;
    apt.unpack(&headers)?;
    let include = |path: PathBuf| format!("-I{}", path.display());
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(plugin);
    gcc.arg(sources.join("contrib/plugins/cache.c")).args([
        include(sources.join("include/qemu")),
        include(headers.join("usr/include/glib-2.0")),
        include(headers.join("usr/lib/x86_64-linux-gnu/glib-2.0/include")),
        "-l:libglib-2.0.so.0".to_owned(),
    ]);
    run::check(&mut gcc)
}

/// The host's suite.
fn suite() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release has no VERSION_CODENAME")?.to_owned())
}
