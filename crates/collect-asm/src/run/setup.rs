//! A process that just began to run a program gets the copy of its code and the shared memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ichnos_base::GuestVa;
use ichnos_flow::Options;
use ichnos_rt::{Change, Pool, Resume, Stop, Thread, Word, wait};

use super::Config;
use crate::Error;
use crate::code::{
    Call, Copy, FIND_OBJECT, FROM_LABELS, Form, HOOKED, Image, Patch, Switched, TO_INST, Tool,
    hook, symbol,
};

/// Where the shared memory lies in every traced process: far from everything else, so that
/// programs, their heaps, libraries and stacks are where they would be anyway.
pub(crate) const TAP: u64 = 0x6000_0000_0000;
const PAGE: u64 = 4096;
/// A table has room for all code that a copy may have.
const TABLE_ROOM: u64 = 4 << 28;

/// `mprotect(rdi, 4096, PROT_NONE)` for `r13` places that are `r12` bytes apart, then a trap.
const GUARD: &[u8] = &[
    0xbe, 0x00, 0x10, 0x00, 0x00, // mov $4096,%esi
    0x31, 0xd2, // xor %edx,%edx
    0xb8, 0x0a, 0x00, 0x00, 0x00, // mov $10,%eax
    0x0f, 0x05, // syscall
    0x4c, 0x01, 0xe7, // add %r12,%rdi
    0x49, 0xff, 0xcd, // dec %r13
    0x75, 0xea, // jne to the first
    0xcc, // int3
];

/// `int3`.
const BREAK: u8 = 0xcc;
const PROT_READ: u64 = 1;
const PROT_READ_WRITE: u64 = 3;
const PROT_READ_EXEC: u64 = 5;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const SYS_CLOSE: i64 = 3;
const SYS_MMAP: i64 = 9;
const SYS_OPENAT: i64 = 257;

/// Copies made so far, by file, its time and where it was loaded.
#[derive(Default)]
pub(crate) struct Copies(HashMap<(PathBuf, Option<SystemTime>, u64), Option<Arc<Copy>>>);

impl Copies {
    /// The copy for the program that a process just began to run; nothing if it has no notes.
    pub(crate) fn of(
        &mut self,
        pid: i32,
        (options, form, config): (&Options, Form, &Config),
    ) -> Result<Option<Arc<Copy>>, Error> {
        let link = format!("/proc/{pid}/exe");
        let Ok(path) = fs::read_link(&link) else { return Ok(None) };
        let time = fs::metadata(&link).and_then(|m| m.modified()).ok();
        let Ok(Some(image)) = Image::open(link.as_ref()) else { return Ok(None) };
        let bias = if image.movable { bias(pid, &path, &image) } else { Some(0) };
        let Some(bias) = bias else { return Ok(None) };
        let key = (path, time, bias);
        if let Some(copy) = self.0.get(&key) {
            return Ok(copy.clone());
        }
        let find = |name: &str| {
            let own = symbol(link.as_ref(), name).map(|(own, _)| own);
            let noted = own.filter(|own| image.notes.iter().any(|n| n.start == *own && n.compiled));
            let program = || key.0.to_string_lossy().into_owned();
            let missing = || Error::NoFunction { name: name.to_owned(), program: program() };
            noted.map(|own| GuestVa(own.wrapping_add(bias))).ok_or_else(missing)
        };
        let tool = Tool::of(link.as_ref());
        let copy = Copy::new(&image, bias, (options, form), (config.switching(find)?, tool))?;
        let copy = (!copy.blocks.is_empty()).then(|| Arc::new(copy));
        self.0.insert(key, copy.clone());
        Ok(copy)
    }
}

/// Memory for the hook that is near enough to the function, and in nobody's way.
fn place_near(thread: Thread, function: u64, copy: &Copy) -> io::Result<u64> {
    const FAR: u64 = 1 << 30;
    let behind = copy.end() + GUARD.len() as u64;
    if behind.abs_diff(function) < 2 * FAR - PAGE {
        return Ok(behind);
    }
    let at = function / PAGE * PAGE - FAR;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    call(thread, SYS_MMAP, [at, PAGE, PROT_READ_EXEC, flags, u64::MAX, 0])
}

/// How far from its own addresses an image was loaded.
fn bias(pid: i32, path: &Path, image: &Image) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let name = path.to_string_lossy();
    let line = maps.lines().find(|line| line.ends_with(&*name))?;
    let start = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
    Some(start.wrapping_sub(image.first.1 / PAGE * PAGE))
}

/// Puts a copy and the shared memory into a process that has not executed anything yet, and a
/// stop at the program's beginning; answers the byte that this replaced.
pub(crate) fn prepare(
    thread: Thread,
    copy: &Copy,
    (pool, word): (&Pool, Option<&Word>),
) -> Result<Option<u8>, Error> {
    let failed = |what| move |source| Error::Process { pid: thread.0, what, source };
    thread.leave_exec().map_err(failed("starting the program"))?;
    map_tap(thread, pool).map_err(failed("mapping the shared memory"))?;
    map_copy(thread, copy).map_err(failed("mapping the copy of the code"))?;
    if let Some(exec) = &copy.exec {
        map_exec(thread, exec, word).map_err(failed("mapping the copy that records nothing"))?;
    }
    guard(thread, copy, pool).map_err(failed("guarding the buffers"))?;
    patch(thread, &copy.patches).map_err(failed("patching the code"))?;
    let Some(at) = copy.entry else { return Ok(None) };
    let mut first = [0];
    thread.read(at.0, &mut first).map_err(failed("reading the start"))?;
    let stop = [Patch { at, bytes: vec![BREAK] }];
    patch(thread, &stop).map_err(failed("stopping at the start"))?;
    Ok(first.first().copied())
}

/// A program's own code is about to begin: all its libraries are there. `original` is the
/// byte that the stop replaced.
pub(crate) fn arrived(thread: Thread, copy: &Copy, original: u8) -> Result<(), Error> {
    let failed = |what| move |source| Error::Process { pid: thread.0, what, source };
    let Some(at) = copy.entry else { return Ok(()) };
    let restore = [Patch { at, bytes: vec![original] }];
    patch(thread, &restore).map_err(failed("going on at the start"))?;
    if let Some(tool) = &copy.tool {
        find_functions(thread, copy, tool).map_err(failed("finding the tool's functions"))?;
    }
    let hooked = hook_search(thread, copy).map_err(failed("finding the unwinder"))?;
    if copy.catches && hooked.is_none() {
        let source = io::Error::other("the C library has no _dl_find_object");
        return Err(failed("preparing for exceptions")(source));
    }
    let mut regs = thread.regs().map_err(failed("going on at the start"))?;
    regs.rip = at.0;
    thread.set_regs(&regs).map_err(failed("going on at the start"))
}

/// Tells P_inst where the functions of a tool lie.
fn find_functions(thread: Thread, copy: &Copy, tool: &Tool) -> io::Result<()> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", thread.0))?;
    let name = tool.path.to_string_lossy();
    let line = maps.lines().find(|line| line.ends_with(&*name));
    let start = line.and_then(|l| u64::from_str_radix(l.split('-').next()?, 16).ok());
    let start = start.ok_or_else(|| io::Error::other(format!("{name} is not loaded")))?;
    for call in Call::ALL {
        if let Some((own, first)) = symbol(&tool.path, call.name()) {
            let at = start + own - first / PAGE * PAGE;
            thread.write(copy.tool_page() + call.slot(), &at.to_le_bytes())?;
        }
    }
    Ok(())
}

/// Makes the C library's search for unwinding tables find the copy's.
fn hook_search(thread: Thread, copy: &Copy) -> io::Result<Option<()>> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", thread.0))?;
    let exe = fs::read_link(format!("/proc/{}/exe", thread.0))?;
    let exe = exe.to_string_lossy();
    let mut seen = HashSet::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, path) = (words.next(), words.nth(4).filter(|p| p.starts_with('/')));
        let (Some(range), Some(path)) = (range, path) else { continue };
        let name = Path::new(path).file_name().map(|n| n.to_string_lossy());
        if path != exe && !name.is_some_and(|n| n.starts_with("libc.so") || n.starts_with("ld-")) {
            continue;
        }
        // The first mapping of a file is that of its first segment.
        if !seen.insert(path) {
            continue;
        }
        let Some((own, first)) = symbol(path.as_ref(), FIND_OBJECT) else { continue };
        let start = range.split('-').next().and_then(|s| u64::from_str_radix(s, 16).ok());
        let Some(start) = start else { continue };
        let function = start + own - first / PAGE * PAGE;
        let mut code = [0; HOOKED];
        thread.read(function, &mut code)?;
        let at = place_near(thread, function, copy)?;
        let Some((bytes, jump)) = hook(copy, at, GuestVa(function), &code) else { continue };
        thread.write(at, &bytes)?;
        patch(thread, &[jump])?;
        return Ok(Some(()));
    }
    Ok(None)
}

fn call(thread: Thread, number: i64, args: [u64; 6]) -> io::Result<u64> {
    let result = thread.syscall(number, args)?;
    match i32::try_from(result) {
        Ok(error) if (-4095..0).contains(&error) => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(result as u64),
    }
}

/// A file that this process has open, opened in the other.
fn open(thread: Thread, fd: i32) -> io::Result<u64> {
    const BELOW: u64 = 1024;
    const O_RDWR: u64 = 2;
    const AT_FDCWD: u64 = -100i64 as u64;
    let mut path = format!("/proc/{}/fd/{fd}", std::process::id()).into_bytes();
    path.push(0);
    let place = thread.regs()?.rsp - BELOW;
    let mut before = vec![0; path.len()];
    thread.read(place, &mut before)?;
    thread.write(place, &path)?;
    let opened = call(thread, SYS_OPENAT, [AT_FDCWD, place, O_RDWR, 0, 0, 0]);
    thread.write(place, &before)?;
    opened
}

/// Maps a file that this process has open.
fn map_file(thread: Thread, file: i32, at: u64, (len, protection): (u64, u64)) -> io::Result<()> {
    let fd = open(thread, file)?;
    let flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
    let mapped = call(thread, SYS_MMAP, [at, len, protection, flags, fd, 0]);
    call(thread, SYS_CLOSE, [fd, 0, 0, 0, 0, 0])?;
    mapped.map(drop)
}

fn map_tap(thread: Thread, pool: &Pool) -> io::Result<()> {
    map_file(thread, pool.fd(), TAP, (pool.layout().total(), PROT_READ_WRITE))
}

/// P_exec, the shared word before it, and the tables that lead to P_inst.
fn map_exec(thread: Thread, exec: &Switched, word: Option<&Word>) -> io::Result<()> {
    if let Some(word) = word {
        map_file(thread, word.fd(), exec.base, (PAGE, PROT_READ))?;
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    let (at, len) = (exec.code_at(), exec.code.len() as u64);
    call(thread, SYS_MMAP, [at, len, PROT_READ_EXEC, flags, u64::MAX, 0])?;
    thread.write(at, &exec.code)?;
    write_table(thread, TO_INST, &exec.to_inst)?;
    write_table(thread, FROM_LABELS, &exec.from_labels)
}

/// Writes a table of four-byte entries of which few are not zero.
fn write_table(thread: Thread, at: u64, entries: &[(u64, u32)]) -> io::Result<()> {
    const EACH: u64 = PAGE / 4;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    let last = entries.last().map_or(0, |(i, _)| *i);
    // All of the program's code can be looked up, also behind the last label.
    let len = (4 * (last + 1)).next_multiple_of(TABLE_ROOM);
    call(thread, SYS_MMAP, [at, len, PROT_READ, flags, u64::MAX, 0])?;
    for page in entries.chunk_by(|(a, _), (b, _)| a / EACH == b / EACH) {
        let mut bytes = [0; PAGE as usize];
        let number = page.first().map_or(0, |(i, _)| i / EACH);
        for (i, entry) in page {
            let from = 4 * usize::try_from(i % EACH).map_err(io::Error::other)?;
            if let Some(place) = bytes.get_mut(from..from + 4) {
                place.copy_from_slice(&entry.to_le_bytes());
            }
        }
        thread.write(at + number * PAGE, &bytes)?;
    }
    Ok(())
}

fn map_copy(thread: Thread, copy: &Copy) -> io::Result<()> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // The page more is for the hook.
    let len = copy.code.len() as u64 + GUARD.len() as u64 + PAGE;
    call(thread, SYS_MMAP, [copy.base, len, PROT_READ_EXEC, flags, u64::MAX, 0])?;
    thread.write(copy.base, &copy.code)?;
    if !copy.ways.code.is_empty() {
        let (at, len) = (copy.ways.at, copy.ways.code.len() as u64);
        call(thread, SYS_MMAP, [at, len, PROT_READ_EXEC, flags, u64::MAX, 0])?;
        thread.write(at, &copy.ways.code)?;
    }
    if let Some(tool) = &copy.tool {
        let page = copy.tool_page();
        call(thread, SYS_MMAP, [page, PAGE, PROT_READ_EXEC, flags, u64::MAX, 0])?;
        thread.write(page, &tool.page(page).map_err(io::Error::other)?)?;
    }
    thread.write(copy.end(), GUARD)
}

fn guard(thread: Thread, copy: &Copy, pool: &Pool) -> io::Result<()> {
    let layout = pool.layout();
    let before = thread.regs()?;
    let mut regs = before;
    regs.rip = copy.end();
    regs.rdi = TAP + layout.guard(0);
    regs.r12 = layout.guard(1) - layout.guard(0);
    regs.r13 = u64::from(layout.buffers);
    regs.orig_rax = u64::MAX;
    thread.set_regs(&regs)?;
    thread.resume(Resume::Cont, 0)?;
    match wait(Some(thread))? {
        Some((_, Change::Stopped(Stop::Signal(5)))) => thread.set_regs(&before),
        _ => Err(io::Error::other("it stopped elsewhere")),
    }
}

/// Writes all patches, a page at a time.
fn patch(thread: Thread, patches: &[Patch]) -> io::Result<()> {
    let mut rest = patches;
    while let Some(first) = rest.first() {
        let start = first.at.0 / PAGE * PAGE;
        let mut len = PAGE;
        let mut count = 0;
        // A patch that reaches into the next page takes that along.
        for patch in rest {
            if patch.at.0 >= start + len {
                break;
            }
            let end = patch.at.0 + patch.bytes.len() as u64;
            len = len.max(end - start);
            count += 1;
        }
        let (now, later) = rest.split_at(count);
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        thread.read(start, &mut bytes)?;
        for patch in now {
            let from = usize::try_from(patch.at.0 - start).map_err(io::Error::other)?;
            if let Some(place) = bytes.get_mut(from..from + patch.bytes.len()) {
                place.copy_from_slice(&patch.bytes);
            }
        }
        thread.write(start, &bytes)?;
        rest = later;
    }
    Ok(())
}
