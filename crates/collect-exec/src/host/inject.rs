//! Puts the engine into a stopped process.
//!
//! The process stands at its first instruction after `exec`. The engine is this very
//! executable: its segments and its loader's are mapped into the window, and the loader
//! starts as the kernel would start it. To make the libraries that it then maps land in the
//! window too, everything above the window that is free is blocked meanwhile; the
//! engine takes the blocks away before the program runs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use libc::{
    AT_BASE, AT_ENTRY, AT_EXECFN, AT_NULL, AT_PHDR, AT_PHNUM, MAP_ANONYMOUS, MAP_FIXED,
    MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE,
};

use ichnos_base::Sieve;

use super::maps::mapped;
use super::remote::Remote;
use super::self_image::{Image, Segment};
use super::{Choice, Fallback, Paths, Vdso, vdso};
use crate::boot::{Boot, NAME, RESERVED};
use crate::{Error, window};

const PAGE: u64 = 4096;
/// Bytes of a region of the code cache unless somebody wants less: `engine::places` leaves so much room.
const MOST_CACHE: u64 = 512 << 20;
/// The least that holds a few fragments.
const LEAST_CACHE: u64 = 128 << 10;
/// The end of what user space may map with four-level page tables.
const TASK_END: u64 = 0x7fff_ffff_f000;

/// Environment of the engine's own libc: no restartable sequences (the program's would be
/// refused), and a heap that never moves the program's break.
const ENVIRONMENT: &[u8] = b"GLIBC_TUNABLES=glibc.pthread.rseq=0:glibc.malloc.mmap_threshold=1\0";

/// What an engine is told about its place in the whole.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Descriptor of the tap in this process.
    pub tap: i32,
    /// Bytes of the tap.
    pub tap_len: u64,
    /// The trace's numbers of the process and its first thread.
    pub ids: [u32; 2],
    /// Whether the process had a program before that was recorded.
    pub follows: bool,
    /// How it is to run.
    pub how: How,
}

/// How engines run, the same in all processes of a tree.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Whether what runs is recorded.
    pub traced: bool,
    /// Bytes of each region of the code cache, at most.
    pub cache: u64,
    /// What is recorded, if not all.
    pub choice: Option<Choice>,
    /// What is kept back of that.
    pub sieve: Option<Sieve>,
    /// Whether programs see the vdso.
    pub vdso: Vdso,
    /// What becomes of programs with which the engine cannot go on.
    pub fallback: Fallback,
    /// Which paths become one piece of code.
    pub paths: Paths,
    /// Diagnostics.
    pub debug: u64,
}

impl How {
    /// Limits the code cache: each of its regions takes so many bytes at most, but some in any case.
    pub fn limit_cache(&mut self, bytes: u64) {
        self.cache = (bytes & !(PAGE - 1)).clamp(LEAST_CACHE, MOST_CACHE);
    }
}

impl Default for How {
    fn default() -> Self {
        let (choice, sieve) = (None, None);
        let (vdso, fallback, paths) = (Vdso::Shown, Fallback::Stop, Paths::Hot);
        Self { traced: false, cache: MOST_CACHE, choice, sieve, vdso, fallback, paths, debug: 0 }
    }
}

/// Injects the engine and lets the process run.
pub fn inject(pid: i32, order: &Order) -> Result<(), Error> {
    let maps = mapped(pid).map_err(|source| Error::Process {
        what: "read the mappings of",
        pid,
        source,
    })?;
    if maps.iter().any(|&(start, end)| window::overlaps(start, end - start)) {
        return Err(Error::Occupied { pid });
    }
    let image = Image::open("/proc/self/exe")?;
    let loader = image.interp.as_deref().map(Image::open).transpose()?;
    let mut remote = Remote::new(pid)?;
    if order.how.vdso == Vdso::Hidden {
        vdso::hide(&remote, pid)?;
    }
    map_image(&mut remote, &image, window::IMAGE)?;
    if let Some(loader) = &loader {
        map_image(&mut remote, loader, window::LOADER)?;
    }
    anonymous(&mut remote, (window::STACK, window::STACK_LEN), PROT_READ | PROT_WRITE)?;
    map_tap(&mut remote, order)?;
    let reserved = reserve(&mut remote, &maps)?;
    let boot = boot(&remote, &reserved, order);
    let sp = write_stack(&remote, pid, &boot, &image)?;
    let entry = match &loader {
        Some(loader) => window::LOADER + loader.entry,
        None => window::IMAGE + image.entry,
    };
    remote.release(entry, sp)
}

fn boot(remote: &Remote, reserved: &[[u64; 2]], order: &Order) -> Boot {
    let r = remote.regs();
    let mut boot = Boot {
        size: size_of::<Boot>() as u64,
        regs: [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ],
        rip: r.rip,
        rflags: r.eflags,
        reserved_len: reserved.len() as u64,
        reserved: [[0; 2]; RESERVED],
        ids: order.ids,
        follows: u64::from(order.follows),
        traced: u64::from(order.how.traced),
        counted: u64::from(order.how.choice.is_some()),
        plan: order.how.choice.unwrap_or_default().plan(),
        gates: order.how.choice.unwrap_or_default().gates(),
        sieve: Boot::numbers(order.how.sieve),
        cache: order.how.cache,
        fallback: u64::from(order.how.fallback == Fallback::Untraced),
        paths: order.how.paths as u64,
        debug: order.how.debug,
    };
    boot.reserved[..reserved.len()].copy_from_slice(reserved);
    boot
}

fn anonymous(remote: &mut Remote, (at, len): (u64, u64), prot: i32) -> Result<(), Error> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    let args = [at, len, prot as u64, flags as u64, u64::MAX, 0];
    remote.syscall(libc::SYS_mmap, &args).map(drop)
}

/// Blocks what is free between the window's end and the end of user space.
fn reserve(remote: &mut Remote, maps: &[(u64, u64)]) -> Result<Vec<[u64; 2]>, Error> {
    let mut reserved = Vec::new();
    let mut from = window::END;
    let above = maps.iter().filter(|&&(start, _)| (window::END..TASK_END).contains(&start));
    for &(start, end) in above.chain([&(TASK_END, TASK_END)]) {
        // The stack may still grow, and the kernel never maps above the mapping base,
        // so a gap next to the stack that cannot be had does no harm.
        if start > from && reserved.len() < RESERVED {
            let block = (from, start - from);
            if anonymous(remote, block, PROT_NONE).is_ok() {
                reserved.push([block.0, block.1]);
            }
        }
        from = end;
    }
    Ok(reserved)
}

fn map_image(remote: &mut Remote, image: &Image, base: u64) -> Result<(), Error> {
    let fd = open(remote, &image.path, libc::O_RDONLY)?;
    for segment in &image.segments {
        map_segment(remote, segment, base, fd)?;
    }
    remote.syscall(libc::SYS_close, &[fd]).map(drop)
}

fn map_tap(remote: &mut Remote, order: &Order) -> Result<(), Error> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), order.tap);
    let fd = open(remote, &path, libc::O_RDWR)?;
    let prot = (PROT_READ | PROT_WRITE) as u64;
    let flags = (libc::MAP_SHARED | MAP_FIXED_NOREPLACE) as u64;
    remote.syscall(libc::SYS_mmap, &[window::TAP, order.tap_len, prot, flags, fd, 0])?;
    remote.syscall(libc::SYS_close, &[fd]).map(drop)
}

/// Opens a file of ours in the process; its path is written below the stack's red zone.
fn open(remote: &mut Remote, path: &str, mode: i32) -> Result<u64, Error> {
    let path = if path == "/proc/self/exe" {
        format!("/proc/{}/exe\0", std::process::id())
    } else {
        format!("{path}\0")
    };
    let at = (remote.regs().rsp - 512 - path.len() as u64) & !15;
    remote.write(at, path.as_bytes())?;
    let flags = mode | libc::O_CLOEXEC;
    remote.syscall(libc::SYS_openat, &[libc::AT_FDCWD as u64, at, flags as u64])
}

fn map_segment(remote: &mut Remote, s: &Segment, base: u64, fd: u64) -> Result<(), Error> {
    let bit = |mask: u32, prot: i32| if s.flags & mask != 0 { prot } else { 0 };
    let prot = bit(4, PROT_READ) | bit(2, PROT_WRITE) | bit(1, PROT_EXEC);
    let skew = s.vaddr % PAGE;
    let start = base + s.vaddr - skew;
    let file_end = base + s.vaddr + s.file_len;
    let mem_end = (base + s.vaddr + s.mem_len).next_multiple_of(PAGE);
    let whole = (start, mem_end - start);
    anonymous(remote, whole, prot)?;
    if s.file_len != 0 {
        let len = (file_end - start).next_multiple_of(PAGE);
        let flags = (MAP_PRIVATE | MAP_FIXED) as u64;
        let args = [start, len, prot as u64, flags, fd, s.offset - skew];
        remote.syscall(libc::SYS_mmap, &args)?;
    }
    let page_end = file_end.next_multiple_of(PAGE);
    if s.flags & 2 != 0 && s.mem_len > s.file_len && page_end > file_end {
        remote.write(file_end, &vec![0; (page_end - file_end) as usize])?;
    }
    Ok(())
}

/// Lays out the engine's first stack as the kernel lays out a new program's.
fn write_stack(remote: &Remote, pid: i32, boot: &Boot, image: &Image) -> Result<u64, Error> {
    let top = window::STACK + window::STACK_LEN;
    let boot_at = (top - size_of::<Boot>() as u64 - 64) & !63;
    let name_at = boot_at - 64;
    let env_at = name_at - 128;
    remote.write(boot_at, boot.as_bytes())?;
    remote.write(name_at, NAME)?;
    remote.write(env_at, ENVIRONMENT)?;
    let mut words = vec![2, name_at, boot_at, 0, env_at, 0];
    for (key, value) in auxv(pid)? {
        let value = match key {
            AT_PHDR => window::IMAGE + image.phdr,
            AT_PHNUM => image.phnum,
            AT_ENTRY => window::IMAGE + image.entry,
            AT_BASE => {
                if image.interp.is_some() {
                    window::LOADER
                } else {
                    0
                }
            }
            AT_EXECFN => name_at,
            _ => value,
        };
        words.extend([key, value]);
    }
    words.extend([AT_NULL, 0]);
    let sp = (env_at - words.len() as u64 * 8 - 256) & !15;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    remote.write(sp, &bytes)?;
    Ok(sp)
}

fn auxv(pid: i32) -> Result<Vec<(u64, u64)>, Error> {
    let bytes = std::fs::read(format!("/proc/{pid}/auxv")).map_err(|source| Error::Process {
        what: "read the auxiliary vector of",
        pid,
        source,
    })?;
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()))
        .collect();
    let mut pairs: Vec<_> = words.chunks_exact(2).map(|p| (p[0], p[1])).collect();
    pairs.retain(|&(key, _)| key != AT_NULL);
    if !pairs.iter().any(|&(key, _)| key == AT_BASE) {
        // The kernel tells a static program no loader, but ours wants to know its place.
        pairs.push((AT_BASE, 0));
    }
    Ok(pairs)
}
