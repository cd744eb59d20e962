//! Debian's riscv64 kernel and static busybox, fetched by name with the host's
//! own package tool into a private place: its mirror and its keys, not its
//! package state. Kept in the user's cache; fetched only when `ICHNOS_FETCH=1`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use ichnos_testkit::tool;

const SUITE: &str = "trixie";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Files of the distribution.
pub(crate) struct Debian {
    pub(crate) kernel: PathBuf,
    pub(crate) busybox: PathBuf,
}

fn cache() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
    Some(base.join("ichnos").join(format!("debian-{SUITE}-riscv64")))
}

/// The files, from the cache or fetched; nothing, with a word on why, if they
/// cannot be had.
pub(crate) fn files() -> Option<Debian> {
    let cache = cache()?;
    let files = Debian { kernel: cache.join("Image"), busybox: cache.join("busybox") };
    if !files.kernel.exists() || !files.busybox.exists() {
        if std::env::var_os("ICHNOS_FETCH").is_none() {
            let reason = "Debian's riscv64 kernel is not in the cache; ICHNOS_FETCH=1 fetches it";
            tool::skip("collect-rv64: Debian", reason);
            return None;
        }
        // Tests run side by side; one of them fetches and the others wait.
        static FETCHING: Mutex<()> = Mutex::new(());
        let _guard = FETCHING.lock().expect("no fetch has failed");
        let missing = !files.kernel.exists() || !files.busybox.exists();
        if missing && let Err(why) = fetch(&cache, &files) {
            tool::skip("collect-rv64: Debian", &format!("its kernel cannot be fetched: {why}"));
            return None;
        }
    }
    Some(files)
}

fn fetch(cache: &Path, files: &Debian) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    for folder in ["lists/partial", "archives/partial", "state", "tree"] {
        fs::create_dir_all(cache.join(folder)).map_err(text)?;
    }
    configure(cache)?;
    run_tool("apt-get", cache, &["update"])?;
    let names = run_tool("apt-cache", cache, &["pkgnames", "linux-image-6."])?;
    let kernel = newest_kernel(&names).ok_or("the archive has no riscv64 kernel")?;
    for package in [&*kernel, "busybox-static"] {
        run_tool("apt-get", cache, &["download", package])?;
    }
    let entries = fs::read_dir(cache).map_err(text)?.filter_map(Result::ok);
    for package in entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "deb")) {
        unpack(&package, &cache.join("tree"))?;
    }
    let boot = fs::read_dir(cache.join("tree/boot")).map_err(text)?.filter_map(Result::ok);
    let image = boot.map(|e| e.path()).find(|p| p.to_string_lossy().contains("/vmlinu"));
    fs::rename(image.ok_or("the kernel package holds no kernel")?, &files.kernel).map_err(text)?;
    fs::rename(cache.join("tree/usr/bin/busybox"), &files.busybox).map_err(text)?;
    Ok(())
}

/// Writes the private configuration: the mirror is whatever this machine uses.
fn configure(cache: &Path) -> Result<(), String> {
    let mirror = host_mirror().ok_or("no Debian mirror is configured on this machine")?;
    let at = cache.display();
    let configuration = format!(
        "Dir::State \"{at}/state\";\nDir::State::lists \"{at}/lists\";\nDir::State::status \"{at}/status\";\n\
         Dir::Cache::archives \"{at}/archives\";\nDir::Cache::pkgcache \"\";\nDir::Cache::srcpkgcache \"\";\n\
         Dir::Etc::sourcelist \"{at}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
         APT::Architecture \"riscv64\";\nAPT::Architectures \"riscv64\";\nAPT::Sandbox::User \"root\";\n"
    );
    let sources = format!("deb [arch=riscv64 signed-by={KEYRING}] {mirror} {SUITE} main\n");
    let write =
        |name: &str, text: &str| fs::write(cache.join(name), text).map_err(|e| e.to_string());
    write("apt.conf", &configuration)?;
    write("sources.list", &sources)?;
    write("status", "")
}

/// The first mirror in the host's own lists.
fn host_mirror() -> Option<String> {
    let parts =
        fs::read_dir("/etc/apt/sources.list.d").ok().into_iter().flatten().filter_map(Result::ok);
    let files = parts.map(|e| e.path()).chain([PathBuf::from("/etc/apt/sources.list")]);
    let lines: Vec<String> = files
        .filter_map(|f| fs::read_to_string(f).ok())
        .flat_map(|t| t.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let word = |line: &String| {
        let address = line.split_whitespace().find(|w| w.starts_with("http"))?;
        let named = line.starts_with("URIs:") || line.starts_with("deb ");
        (named && address.trim_end_matches('/').ends_with("/debian")).then(|| address.to_owned())
    };
    lines.iter().find_map(word)
}

/// The newest of the kernel packages' names.
fn newest_kernel(names: &str) -> Option<String> {
    let kernels = names.lines().filter(|n| n.ends_with("-riscv64"));
    let version = |name: &&str| -> Vec<u32> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|d| d.parse().ok()).collect()
    };
    kernels.max_by_key(version).map(str::to_owned)
}

fn run_tool(name: &str, cache: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(name)
        .current_dir(cache)
        .env("APT_CONFIG", cache.join("apt.conf"))
        .args(args)
        .output()
        .map_err(|e| format!("{name} does not run: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Takes the files that are wanted out of a package.
fn unpack(package: &Path, to: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let input = archive.stdout.take().ok_or("dpkg-deb has no output")?;
    let status = Command::new("tar")
        .args(["-x", "--wildcards", "-C"])
        .arg(to)
        .args(["./boot/vmlinu*", "./usr/bin/busybox"])
        .stdin(input)
        .stderr(Stdio::null())
        .status()
        .map_err(text)?;
    archive.wait().map_err(text)?;
    // One of the two patterns never matches, so the status says little; the
    // caller finds out whether the files are there.
    let _ = status;
    Ok(())
}
