//! Debian's kernel boots to a shell on several harts, runs a threaded program,
//! powers off, and does so in the same number of instructions each time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::process::Command;

use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::system::{
    Boot, Config, Cpio, Ending, Outcome, Script, kernel_symbols, run, run_profiled, run_untraced,
};

use crate::debian::{self, Debian};
use crate::guests::{Folder, compile};
use crate::profile::Small;
use crate::programs::Checker;

const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PS1='guest# '
exec setsid cttyhack sh
";

fn initrd(folder: &Folder, debian: &Debian) -> Option<std::path::PathBuf> {
    let threads = compile(folder, "threads", &["-static"])?;
    let mut cpio = Cpio::default();
    for name in ["bin", "dev", "lib", "mnt", "proc", "sys", "tmp"] {
        cpio.folder(name);
    }
    cpio.device("dev/console", 5, 1);
    cpio.file("bin/busybox", 0o755, &fs::read(&debian.busybox).ok()?);
    cpio.file("bin/threads", 0o755, &fs::read(threads).ok()?);
    for (name, path) in debian::MODULES.iter().zip(&debian.modules) {
        cpio.file(&format!("lib/{name}"), 0o644, &fs::read(path).ok()?);
    }
    cpio.file("init", 0o755, INIT.as_bytes());
    let path = folder.0.join("initrd.cpio");
    fs::write(&path, cpio.finish()).ok()?;
    Some(path)
}

fn boot(
    debian: &Debian,
    initrd: &std::path::Path,
    harts: u32,
    speed: Speed,
) -> (Outcome, String, usize) {
    let kernel = Boot::kernel(&debian.kernel).with_initrd(initrd);
    let mut config = Config::new(kernel.with_command_line("console=ttyS0 quiet"));
    config.harts = harts;
    config.speed = speed;
    config.memory = 512 << 20;
    config.limit = Some(10_000_000_000);
    let steps = [
        ("guest# ", "nproc; threads\n"),
        ("45000 18000 30", "echo $((6 * 7)) > /tmp/answer; cat /tmp/answer\n"),
        ("42", "poweroff -f\n"),
    ];
    let steps = steps.map(|(a, b)| (a.to_owned(), b.to_owned()));
    let mut console = Script::new(Vec::new(), steps.into());
    let outcome = run_untraced(&config, &mut console).expect("the machine runs");
    let done = console.steps_done();
    (outcome, String::from_utf8_lossy(&console.into_inner()).into_owned(), done)
}

fn check(harts: u32) {
    let Some(debian) = debian::files() else { return };
    let folder = Folder::new(&format!("boot{harts}"));
    let Some(initrd) = initrd(&folder, &debian) else { return };
    let (outcome, output, done) = boot(&debian, &initrd, harts, Speed::Generated);
    assert_eq!((outcome.ending, done), (Ending::PowerOff, 3), "{output}");
    assert!(output.contains(&format!("\n{harts}\r\n")), "not {harts} processors: {output}");
    // Once more: by the interpreter on two harts, as before on the others.
    let speed = if harts == 2 { Speed::Interpreted } else { Speed::Generated };
    let (again, same, _) = boot(&debian, &initrd, harts, speed);
    assert_eq!(outcome, again);
    assert_eq!(output, same);
}

/// The kernel's first instructions, watched: turning on translation, taking
/// traps and interrupts, patching its own code. Every record must follow from
/// the one before, and every instruction's code must have been told.
#[test]
fn records_follow_the_kernel() {
    let Some(debian) = debian::files() else { return };
    let boot = Boot::kernel(&debian.kernel).with_command_line("console=ttyS0");
    let mut config = Config::new(boot);
    config.memory = 256 << 20;
    config.limit = Some(30_000_000);
    let untraced = run_untraced(&config, &mut Script::new(Vec::new(), Vec::new()));
    let mut checker = Checker::default();
    let traced = run(&config, &mut Script::new(Vec::new(), Vec::new()), &mut checker);
    let (untraced, traced) = (untraced.expect("it runs"), traced.expect("it runs watched"));
    assert_eq!((traced, traced.ending), (untraced, Ending::Limit));
    assert_eq!(checker.totals.insns, traced.retired);
}

#[test]
fn debian_boots_on_one_hart() {
    check(1);
}

#[test]
fn debian_boots_on_two_harts() {
    check(2);
}

#[test]
fn debian_boots_on_four_harts() {
    check(4);
}

/// A profiled boot is the same boot: kernel and programs take the same
/// instructions. The profile names all of them but for a few of programs that
/// stood at the same addresses one after the other.
#[test]
fn debian_boots_profiled() {
    let Some(debian) = debian::files() else { return };
    let folder = Folder::new("boot-profiled");
    let Some(initrd) = initrd(&folder, &debian) else { return };
    let kernel = Boot::kernel(&debian.kernel).with_initrd(&initrd);
    let mut config = Config::new(kernel.with_command_line("console=ttyS0 quiet"));
    config.memory = 256 << 20;
    config.limit = Some(10_000_000_000);
    let script = || {
        let steps = [("guest# ".to_owned(), "ls /bin | wc -l; poweroff -f\n".to_owned())];
        Script::new(Vec::new(), steps.into())
    };
    let (mut plain, mut watched) = (script(), script());
    let untraced = run_untraced(&config, &mut plain).expect("the machine runs");
    let (outcome, profile, cache) =
        run_profiled(&config, &mut watched, Small::of(1 << 13)).expect("it runs profiled");
    assert_eq!((outcome, outcome.ending), (untraced, Ending::PowerOff));
    assert_eq!(watched.into_inner(), plain.into_inner());
    assert_eq!(profile.retired, outcome.retired);
    let deduced: u64 = profile.executed.iter().map(|one| one.count).sum();
    assert!(deduced <= profile.retired);
    assert!(profile.retired - deduced < profile.retired / 100_000, "{deduced} of {outcome:?}");
    let kernel = profile.executed.iter().filter(|one| one.pc.0 >> 63 != 0).count();
    assert!(kernel > 100_000 && kernel < profile.executed.len(), "{kernel}");
    assert!(cache.misses > 100_000, "{}", cache.misses);
}

/// The names that are found in the kernel's image are those that it tells itself
/// when it runs, where it runs.
#[test]
fn debian_names_its_functions() {
    let Some(debian) = debian::files() else { return };
    let folder = Folder::new("boot-symbols");
    let Some(initrd) = initrd(&folder, &debian) else { return };
    let kernel = Boot::kernel(&debian.kernel).with_initrd(&initrd);
    let mut config = Config::new(kernel.with_command_line("console=ttyS0 quiet"));
    config.memory = 256 << 20;
    config.limit = Some(10_000_000_000);
    // The address, sort and name of every symbol but those of modules go into a sum.
    let steps = [(
        "guest# ".to_owned(),
        "grep -vc '\\[' /proc/kallsyms; grep -v '\\[' /proc/kallsyms | md5sum; poweroff -f\n"
            .to_owned(),
    )];
    let mut console = Script::new(Vec::new(), steps.into());
    let outcome = run_untraced(&config, &mut console).expect("the machine runs");
    assert_eq!(outcome.ending, Ending::PowerOff);
    let told = String::from_utf8_lossy(&console.into_inner()).into_owned();
    let image = fs::read(&debian.kernel).expect("the image can be read");
    let symbols = kernel_symbols(&image).expect("the kernel has a table of names");
    let line = |s: &ichnos_collect_rv64::system::KernelSymbol| {
        format!("{:016x} {} {}\n", s.addr.0, s.sort, s.name)
    };
    let text: String = symbols.iter().map(line).collect();
    let list = folder.0.join("symbols");
    fs::write(&list, &text).expect("the list can be written");
    let sum = Command::new("md5sum").arg(&list).output().expect("the host has md5sum");
    let sum = String::from_utf8_lossy(&sum.stdout).split(' ').next().map(str::to_owned);
    let sum = sum.expect("md5sum prints a sum");
    assert!(told.contains(&format!("{}\r\n{sum}", symbols.len())), "{sum}: {told}");
}

/// Debian's drivers find the disk; the guest reads what the host put there, puts
/// an archive on it, and the host finds the guest's files there.
#[test]
fn debian_uses_a_disk() {
    let Some(debian) = debian::files() else { return };
    let folder = Folder::new("boot-disk");
    let Some(initrd) = initrd(&folder, &debian) else { return };
    let image = folder.0.join("disk.img");
    let mut bytes = vec![0; 1 << 20];
    bytes[700_000..700_013].copy_from_slice(b"from the host");
    fs::write(&image, &bytes).expect("the image can be written");
    let kernel = Boot::kernel(&debian.kernel).with_initrd(&initrd);
    let mut config = Config::new(kernel.with_command_line("console=ttyS0 quiet"));
    config.memory = 256 << 20;
    config.limit = Some(10_000_000_000);
    config.disk = Some(image.clone());
    let steps = [
        ("guest# ", "insmod /lib/virtio_mmio.ko; insmod /lib/virtio_blk.ko\n"),
        ("guest# ", "dd if=/dev/vda bs=1 skip=700000 count=13 2>/dev/null; echo ' arrived'\n"),
        (
            "from the host arrived",
            "seq 1 9000 > /tmp/numbers; echo guest says $((40 + 2)) > /tmp/file\n",
        ),
        (
            "guest# ",
            "tar cf /dev/vda -C /tmp numbers file && sync; echo 3 > /proc/sys/vm/drop_caches\n",
        ),
        ("guest# ", "tar xf /dev/vda -O numbers | cmp - /tmp/numbers && echo equal $?\n"),
        ("equal 0", "poweroff -f\n"),
    ];
    let count = steps.len();
    let steps = steps.map(|(a, b)| (a.to_owned(), b.to_owned()));
    let mut console = Script::new(Vec::new(), steps.into());
    let outcome = run_untraced(&config, &mut console).expect("the machine runs");
    let done = console.steps_done();
    let output = String::from_utf8_lossy(&console.into_inner()).into_owned();
    assert_eq!((outcome.ending, done), (Ending::PowerOff, count), "{output}");
    let after = fs::read(&image).expect("the image can be read");
    assert_eq!(after.len(), bytes.len());
    let tar = Command::new("tar").arg("-xOf").arg(&image).args(["file", "numbers"]).output();
    let tar = tar.expect("the host has tar");
    let numbers: String = (1..=9000).map(|n| format!("{n}\n")).collect();
    // The archive holds the larger file first.
    assert!(tar.stdout == format!("{numbers}guest says 42\n").as_bytes(), "{output}");
}
