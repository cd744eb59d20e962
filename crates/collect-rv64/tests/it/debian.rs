//! Debian's riscv64 kernel and programs, fetched by name with the host's own
//! package tool into a private place: its mirror and its keys, not its package
//! state. Kept in the user's cache; fetched only when `ICHNOS_FETCH=1`.
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
    /// Drivers that the kernel has as modules, in the order of [`MODULES`].
    pub(crate) modules: Vec<PathBuf>,
}

/// What a disk needs.
pub(crate) const MODULES: [&str; 2] = ["virtio_mmio.ko", "virtio_blk.ko"];

/// Programs that are run in user mode, with the libraries they need.
const PROGRAMS: &[&str] = &[
    "bzip2",
    "cpp-14-riscv64-linux-gnu",
    "lua5.4",
    "perl-base",
    "python3.13-minimal",
    "sqlite3",
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libexpat1",
    "libgcc-s1",
    "libgmp10",
    "libisl23",
    "libmpc3",
    "libmpfr6",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "libreadline8t64",
    "libsqlite3-0",
    "libssl3t64",
    "libtinfo6",
    "libzstd1",
    "zlib1g",
];

/// What no program needs to run.
const IDLE: &[&str] = &["./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*"];

fn cache() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
    Some(base.join("ichnos").join(format!("debian-{SUITE}-riscv64")))
}

/// The kernel's files, from the cache or fetched; nothing, with a word on why, if
/// they cannot be had.
pub(crate) fn files() -> Option<Debian> {
    let cache = cache()?;
    let files = Debian {
        kernel: cache.join("Image"),
        busybox: cache.join("busybox"),
        modules: MODULES.iter().map(|name| cache.join(name)).collect(),
    };
    let all = [&files.kernel, &files.busybox];
    let there = || all.into_iter().chain(&files.modules).all(|file| file.exists());
    obtain("its kernel", there, || fetch_kernel(&cache, &files))?;
    Some(files)
}

/// A folder with programs and their libraries, likewise.
pub(crate) fn programs() -> Option<PathBuf> {
    let cache = cache()?;
    let root = cache.join("root");
    // The link is made last.
    let link = root.join("lib");
    obtain("its programs", || link.exists(), || fetch_programs(&cache, &root, &link))?;
    Some(root)
}

/// Has something made that is not there, if that is allowed.
fn obtain(
    what: &str,
    there: impl Fn() -> bool,
    fetch: impl FnOnce() -> Result<(), String>,
) -> Option<()> {
    if there() {
        return Some(());
    }
    if std::env::var_os("ICHNOS_FETCH").is_none() {
        let reason = format!("{what} for riscv64 is not in the cache; ICHNOS_FETCH=1 fetches it");
        tool::skip("collect-rv64: Debian", &reason);
        return None;
    }
    // Tests run side by side; one of them fetches and the others wait.
    static FETCHING: Mutex<()> = Mutex::new(());
    let _guard = FETCHING.lock().expect("no fetch has failed");
    if !there()
        && let Err(why) = fetch()
    {
        tool::skip("collect-rv64: Debian", &format!("{what} cannot be fetched: {why}"));
        return None;
    }
    Some(())
}

fn prepare(cache: &Path) -> Result<(), String> {
    for folder in ["lists/partial", "archives/partial", "state", "tree"] {
        fs::create_dir_all(cache.join(folder)).map_err(|e| e.to_string())?;
    }
    configure(cache)?;
    run_tool("apt-get", cache, &["update"]).map(drop)
}

/// Downloads a package and gives its file.
fn download(cache: &Path, package: &str) -> Result<PathBuf, String> {
    let found = |name: &str| name.starts_with(&format!("{package}_")) && name.ends_with(".deb");
    let look = || {
        let entries = fs::read_dir(cache).ok()?.filter_map(Result::ok);
        entries
            .map(|e| e.path())
            .find(|p| p.file_name().is_some_and(|n| found(&n.to_string_lossy())))
    };
    if look().is_none() {
        run_tool("apt-get", cache, &["download", package])?;
    }
    look().ok_or_else(|| format!("{package} was not downloaded"))
}

fn fetch_kernel(cache: &Path, files: &Debian) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    prepare(cache)?;
    let names = run_tool("apt-cache", cache, &["pkgnames", "linux-image-6."])?;
    let kernel = newest_kernel(&names).ok_or("the archive has no riscv64 kernel")?;
    let tree = cache.join("tree");
    let modules = ["*/virtio/virtio_mmio.ko*", "*/block/virtio_blk.ko*"];
    let wanted = ["--wildcards", "./boot/vmlinu*", modules[0], modules[1]];
    unpack(&download(cache, &kernel)?, &tree, &wanted)?;
    unpack(&download(cache, "busybox-static")?, &tree, &["./usr/bin/busybox"])?;
    let boot = fs::read_dir(tree.join("boot")).map_err(text)?.filter_map(Result::ok);
    let image = boot.map(|e| e.path()).find(|p| p.to_string_lossy().contains("/vmlinu"));
    for (name, file) in MODULES.iter().zip(&files.modules) {
        let packed = find_file(&tree, name).ok_or("the kernel package lacks a module")?;
        unpack_module(&packed, file)?;
    }
    fs::rename(tree.join("usr/bin/busybox"), &files.busybox).map_err(text)?;
    fs::rename(image.ok_or("the kernel package holds no kernel")?, &files.kernel).map_err(text)
}

/// The first file below a folder whose name begins so.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> =
        fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|e| e.path()).collect();
    let matches =
        |p: &&PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(name));
    let here = entries.iter().find(matches).filter(|p| p.is_file()).cloned();
    here.or_else(|| entries.iter().filter(|p| p.is_dir()).find_map(|p| find_file(p, name)))
}

/// Modules are packed; the shell in the guest cannot unpack them.
fn unpack_module(packed: &Path, to: &Path) -> Result<(), String> {
    if packed.extension().is_none_or(|e| e != "xz") {
        return fs::copy(packed, to).map(drop).map_err(|e| e.to_string());
    }
    let output =
        Command::new("xz").args(["-dc"]).arg(packed).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    fs::write(to, output.stdout).map_err(|e| e.to_string())
}

fn fetch_programs(cache: &Path, root: &Path, link: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    prepare(cache)?;
    fs::create_dir_all(root).map_err(text)?;
    let idle: Vec<String> = IDLE.iter().map(|pattern| format!("--exclude={pattern}")).collect();
    let idle: Vec<&str> = idle.iter().map(String::as_str).collect();
    for package in PROGRAMS {
        unpack(&download(cache, package)?, root, &idle)?;
    }
    std::os::unix::fs::symlink("usr/lib", link).map_err(text)
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

/// Takes files out of a package: all that `tar` is not told to leave.
fn unpack(package: &Path, to: &Path, options: &[&str]) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let input = archive.stdout.take().ok_or("dpkg-deb has no output")?;
    let output = Command::new("tar")
        .arg("-x")
        .arg("-C")
        .arg(to)
        .args(options)
        .stdin(input)
        .output()
        .map_err(text)?;
    archive.wait().map_err(text)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {why}", package.display()));
    }
    Ok(())
}
