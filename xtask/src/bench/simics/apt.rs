//! The host's own package client, used in a private folder: packages of another
//! architecture or suite come by name, and nothing is installed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What a folder is for.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Programs of an architecture.
    Binary(&'static str),
    /// Source packages.
    Source,
}

/// A folder that packages come to.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Prepares a folder and fetches the lists of a suite.
    pub fn new(folder: &Path, suite: &str, kind: Kind) -> Result<Self> {
        for part in ["lists/partial", "archives/partial", "state"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let at = folder.display();
        let mirror = mirror().context("no Debian mirror is configured on this machine")?;
        let (architecture, line) = match kind {
            Kind::Binary(name) => (
                format!("APT::Architecture \"{name}\";\nAPT::Architectures \"{name}\";\n"),
                format!("deb [arch={name} signed-by={KEYRING}] {mirror} {suite} main\n"),
            ),
            Kind::Source => {
                (String::new(), format!("deb-src [signed-by={KEYRING}] {mirror} {suite} main\n"))
            }
        };
        let configuration = format!(
            "Dir::State \"{at}/state\";\nDir::State::lists \"{at}/lists\";\n\
             Dir::State::status \"{at}/status\";\nDir::Cache::archives \"{at}/archives\";\n\
             Dir::Cache::pkgcache \"\";\nDir::Cache::srcpkgcache \"\";\n\
             Dir::Etc::sourcelist \"{at}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             {architecture}APT::Sandbox::User \"root\";\n"
        );
        fs::write(folder.join("apt.conf"), configuration)?;
        fs::write(folder.join("sources.list"), line)?;
        fs::write(folder.join("status"), "")?;
        let apt = Self { folder: folder.to_owned() };
        apt.get(&["update"])?;
        Ok(apt)
    }

    /// Runs `apt-get` in the folder, under its own configuration.
    pub fn get(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new("apt-get");
        command.current_dir(&self.folder).env("APT_CONFIG", self.folder.join("apt.conf"));
        run::output(command.args(args))
    }

    /// The files in the folder whose names end so.
    pub fn files(&self, ending: &str) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Unpacks every package of the folder.
    pub fn unpack(&self, to: &Path) -> Result<()> {
        for package in self.files(".deb")? {
            run::check(Command::new("dpkg-deb").arg("-x").arg(&package).arg(to))?;
        }
        Ok(())
    }
}

/// The first mirror in the host's own lists.
fn mirror() -> Option<String> {
    let parts = fs::read_dir("/etc/apt/sources.list.d").ok().into_iter().flatten();
    let files = parts.filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.chain([PathBuf::from("/etc/apt/sources.list")]);
    let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let address = |line: &str| {
        let address = line.split_whitespace().find(|word| word.starts_with("http"))?;
        let named = line.starts_with("URIs:") || line.starts_with("deb ");
        (named && address.trim_end_matches('/').ends_with("/debian")).then(|| address.to_owned())
    };
    texts.iter().flat_map(|text| text.lines()).find_map(address)
}
