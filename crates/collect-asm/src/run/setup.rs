//! A process that just began to run a program gets the copy of its code and the shared memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use ichnos_base::GuestVa;
use ichnos_rt::{Change, Pool, Resume, Stop, Thread, Word, wait};

use super::maps;
use crate::Error;
use crate::code::{
    Call, Copy, FIND_OBJECT, HOOK_LEN, HOOKED, Image, Listed, PAGE, Patch, Plot, Room, Switched,
    Tool, hook, symbol,
};

/// Where the shared memory lies in every traced process: far from everything else, so that
/// programs, their heaps, libraries and stacks are where they would be anyway.
pub(crate) const TAP: u64 = 0x6000_0000_0000;
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
const PROT_NONE: u64 = 0;
const PROT_READ: u64 = 1;
const PROT_READ_WRITE: u64 = 3;
const PROT_READ_EXEC: u64 = 5;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const SYS_CLOSE: i64 = 3;
const SYS_MMAP: i64 = 9;
const SYS_MUNMAP: i64 = 11;
const SYS_OPENAT: i64 = 257;

/// Memory for the hook that is near enough to the function, and in nobody's way.
fn place_near(thread: Thread, function: u64, copy: &Copy) -> io::Result<u64> {
    const FAR: u64 = 1 << 30;
    let behind = hook_of(copy);
    if behind.abs_diff(function) < 2 * FAR - HOOK_LEN {
        return Ok(behind);
    }
    let at = function / PAGE * PAGE - FAR;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    call(thread, SYS_MMAP, [at, HOOK_LEN, PROT_READ_EXEC, flags, u64::MAX, 0])
}

/// Where behind a program's copy there is memory for the hook.
fn hook_of(copy: &Copy) -> u64 {
    (copy.end() + GUARD.len() as u64).next_multiple_of(16)
}

/// How far from its own addresses an image was loaded.
pub(crate) fn bias(pid: i32, path: &Path, image: &Image) -> Option<u64> {
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
) -> Result<Stops, Error> {
    let failed = |what| move |source| Error::Process { pid: thread.0, what, source };
    thread.leave_exec().map_err(failed("starting the program"))?;
    map_tap(thread, pool).map_err(failed("mapping the shared memory"))?;
    map_copy(thread, copy, word).map_err(failed("mapping the copy of the code"))?;
    guard(thread, copy, pool).map_err(failed("guarding the buffers"))?;
    patch(thread, &copy.patches).map_err(failed("patching the code"))?;
    let loader = stop_at_loader(thread).map_err(failed("stopping at the loader"))?;
    let Some(at) = copy.entry else { return Ok(Stops { first: None, loader }) };
    let mut first = [0];
    thread.read(at.0, &mut first).map_err(failed("reading the start"))?;
    let stop = [Patch { at, bytes: vec![BREAK] }];
    patch(thread, &stop).map_err(failed("stopping at the start"))?;
    Ok(Stops { first: first.first().copied(), loader })
}

/// Where a program that was prepared will stop.
pub(crate) struct Stops {
    /// At its beginning, whose first byte was this.
    pub(crate) first: Option<u8>,
    /// Whenever its loader has changed which libraries there are, in the function at this address, which does nothing.
    pub(crate) loader: Option<u64>,
}

/// Lets a program stop where its loader tells debuggers of libraries; nothing if it has no loader, or one that does not.
fn stop_at_loader(thread: Thread) -> io::Result<Option<u64>> {
    const TELLS: &str = "_dl_debug_state";
    /// What a function that does nothing begins with: `ret`, or `endbr64` and `ret`.
    const NOTHING: [&[u8]; 2] = [&[0xc3], &[0xf3, 0x0f, 0x1e, 0xfa, 0xc3]];
    let text = fs::read_to_string(format!("/proc/{}/maps", thread.0))?;
    let exe = fs::read_link(format!("/proc/{}/exe", thread.0))?;
    let mut seen = HashSet::new();
    for line in maps::lines(&text).filter(|l| l.path.starts_with('/')) {
        // The first mapping of a file is that of its first segment.
        if Path::new(line.path) == exe || !seen.insert(line.path) {
            continue;
        }
        let Some((own, first)) = symbol(line.path.as_ref(), TELLS) else { continue };
        let at = line.range.start + own - first / PAGE * PAGE;
        let mut code = [0; 5];
        thread.read(at, &mut code)?;
        if NOTHING.iter().any(|nothing| code.starts_with(nothing)) {
            patch(thread, &[Patch { at: GuestVa(at), bytes: vec![BREAK] }])?;
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// A program's own code is about to begin: all its libraries are there. `original` is the
/// byte that the stop replaced.
pub(crate) fn arrived(thread: Thread, copy: &Copy, original: u8) -> Result<(), Error> {
    let failed = |what| move |source| Error::Process { pid: thread.0, what, source };
    let Some(at) = copy.entry else { return Ok(()) };
    let restore = [Patch { at, bytes: vec![original] }];
    patch(thread, &restore).map_err(failed("going on at the start"))?;
    let mut regs = thread.regs().map_err(failed("going on at the start"))?;
    regs.rip = at.0;
    thread.set_regs(&regs).map_err(failed("going on at the start"))
}

/// Tells P_inst where the functions of a tool lie.
pub(crate) fn find_functions(thread: Thread, page: u64, tool: &Tool) -> io::Result<()> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", thread.0))?;
    let name = tool.path.to_string_lossy();
    let line = maps.lines().find(|line| line.ends_with(&*name));
    let start = line.and_then(|l| u64::from_str_radix(l.split('-').next()?, 16).ok());
    let start = start.ok_or_else(|| io::Error::other(format!("{name} is not loaded")))?;
    for call in Call::ALL {
        if let Some((own, first)) = symbol(&tool.path, call.name()) {
            let at = start + own - first / PAGE * PAGE;
            thread.write(page + call.slot(), &at.to_le_bytes())?;
        }
    }
    Ok(())
}

/// Makes the C library's search for unwinding tables find those of copies that are on a list, which is answered.
pub(crate) fn hook_search(thread: Thread, copy: &Copy) -> io::Result<Option<Listed>> {
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
        let Some((bytes, jump)) = hook(at, GuestVa(function), &code) else { continue };
        thread.write(at, &bytes)?;
        patch(thread, &[jump])?;
        return Ok(Some(Listed::new(at)));
    }
    Ok(None)
}

pub(super) fn call(thread: Thread, number: i64, args: [u64; 6]) -> io::Result<u64> {
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
fn map_file(
    thread: Thread,
    file: i32,
    (at, fixed): (u64, u64),
    (len, protection): (u64, u64),
) -> io::Result<()> {
    let fd = open(thread, file)?;
    let flags = MAP_SHARED | fixed;
    let mapped = call(thread, SYS_MMAP, [at, len, protection, flags, fd, 0]);
    call(thread, SYS_CLOSE, [fd, 0, 0, 0, 0, 0])?;
    mapped.map(drop)
}

fn map_tap(thread: Thread, pool: &Pool) -> io::Result<()> {
    let whole = (pool.layout().total(), PROT_READ_WRITE);
    map_file(thread, pool.fd(), (TAP, MAP_FIXED_NOREPLACE), whole)
}

/// P_exec, and the tables that lead to P_inst.
fn map_exec(thread: Thread, plot: &Plot, exec: &Switched, fixed: u64) -> io::Result<()> {
    map_code(thread, (exec.code_at(), fixed), &exec.code)?;
    write_table(thread, plot.to_inst, &exec.to_inst)?;
    // All of the image's code can be looked up, also behind the last label.
    map_table(thread, plot.from_labels, labels_len(exec))?;
    write_table(thread, plot.from_labels, &exec.from_labels)
}

/// Bytes of the table of an image's labels.
fn labels_len(exec: &Switched) -> u64 {
    (4 * (exec.own + 1)).next_multiple_of(PAGE)
}

/// Maps what threads need that switch in a room: the shared word, and the table that leads to P_inst.
fn map_switches(
    thread: Thread,
    (word_at, fixed): (u64, u64),
    table: u64,
    word: Option<&Word>,
) -> io::Result<()> {
    if let Some(word) = word {
        map_file(thread, word.fd(), (word_at, fixed), (PAGE, PROT_READ))?;
    }
    map_table(thread, table, TABLE_ROOM)
}

fn map_table(thread: Thread, at: u64, len: u64) -> io::Result<()> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    call(thread, SYS_MMAP, [at, len, PROT_READ, flags, u64::MAX, 0]).map(drop)
}

/// Puts code somewhere.
fn map_code(thread: Thread, (at, fixed): (u64, u64), code: &[u8]) -> io::Result<()> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | fixed;
    call(thread, SYS_MMAP, [at, code.len() as u64, PROT_READ_EXEC, flags, u64::MAX, 0])?;
    thread.write(at, code)
}

/// Writes to a table of four-byte entries of which few are not zero.
fn write_table(thread: Thread, at: u64, entries: &[(u64, u32)]) -> io::Result<()> {
    const EACH: u64 = PAGE / 4;
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

/// Puts a library's copies into a process, into a room that is there, and leads its functions there.
pub(super) fn put(thread: Thread, copy: &Copy) -> io::Result<()> {
    map_code(thread, (copy.base, MAP_FIXED), &copy.code)?;
    map_rest(thread, copy, MAP_FIXED)?;
    patch(thread, &copy.patches)
}

/// Takes a library's copies out of a process.
pub(super) fn take(thread: Thread, copy: &Copy) -> io::Result<()> {
    for part in copy.parts() {
        reserve(thread, part.start, part.end - part.start, MAP_FIXED)?;
    }
    if let Some(exec) = &copy.exec {
        call(thread, SYS_MUNMAP, [copy.plot.from_labels, labels_len(exec), 0, 0, 0, 0])?;
    }
    Ok(())
}

/// Memory for a room, with all that its copies share.
pub(super) fn make_room(
    thread: Thread,
    room: Room,
    (switched, word): (bool, Option<&Word>),
    tool: Option<&Tool>,
) -> io::Result<()> {
    reserve(thread, room.at, Room::LEN, MAP_FIXED_NOREPLACE)?;
    if switched {
        map_switches(thread, (room.exec(), MAP_FIXED), room.to_inst(), word)?;
    }
    tool.map_or(Ok(()), |tool| map_tool(thread, (room.tool_page(), MAP_FIXED), tool))
}

/// Keeps memory from being used for anything else.
fn reserve(thread: Thread, at: u64, len: u64, fixed: u64) -> io::Result<()> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed;
    call(thread, SYS_MMAP, [at, len, PROT_NONE, flags, u64::MAX, 0]).map(drop)
}

fn map_tool(thread: Thread, (page, fixed): (u64, u64), tool: &Tool) -> io::Result<()> {
    map_code(thread, (page, fixed), &tool.page(page).map_err(io::Error::other)?)
}

fn map_copy(thread: Thread, copy: &Copy, word: Option<&Word>) -> io::Result<()> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // What is more is for the hook.
    let len = hook_of(copy) + HOOK_LEN - copy.base;
    call(thread, SYS_MMAP, [copy.base, len, PROT_READ_EXEC, flags, u64::MAX, 0])?;
    thread.write(copy.base, &copy.code)?;
    if let Some(tool) = &copy.tool {
        map_tool(thread, (copy.tool_page(), MAP_FIXED_NOREPLACE), tool)?;
    }
    if copy.exec.is_some() {
        let word_at = (copy.plot.exec_room, MAP_FIXED_NOREPLACE);
        map_switches(thread, word_at, copy.plot.to_inst, word)?;
    }
    map_rest(thread, copy, MAP_FIXED_NOREPLACE)?;
    thread.write(copy.end(), GUARD)
}

/// All of a copy but P_inst's own code.
fn map_rest(thread: Thread, copy: &Copy, fixed: u64) -> io::Result<()> {
    if !copy.ways.code.is_empty() {
        map_code(thread, (copy.ways.at, fixed), &copy.ways.code)?;
    }
    copy.exec.as_ref().map_or(Ok(()), |exec| map_exec(thread, &copy.plot, exec, fixed))
}

fn guard(thread: Thread, copy: &Copy, pool: &Pool) -> io::Result<()> {
    /// As many as there are.
    const SIGNALS: usize = 64;
    let layout = pool.layout();
    let before = thread.regs()?;
    let mut regs = before;
    regs.rip = copy.end();
    regs.rdi = TAP + layout.guard(0);
    regs.r12 = layout.guard(1) - layout.guard(0);
    regs.r13 = u64::from(layout.buffers);
    regs.orig_rax = u64::MAX;
    thread.set_regs(&regs)?;
    let mut later = Vec::new();
    loop {
        thread.resume(Resume::Cont, 0)?;
        match wait(Some(thread))? {
            Some((_, Change::Stopped(Stop::Signal(5)))) => break,
            // Those that came before the new program are that one's; a fault would come for ever.
            Some((_, Change::Stopped(Stop::Signal(signal)))) if later.len() < SIGNALS => {
                later.push(signal);
            }
            // It was asked to stop before.
            Some((_, Change::Stopped(Stop::Group(5)))) => {}
            _ => return Err(io::Error::other("it stopped elsewhere")),
        }
    }
    thread.set_regs(&before)?;
    later.into_iter().try_for_each(|signal| thread.send(signal))
}

/// Writes all patches, a page at a time.
pub(super) fn patch(thread: Thread, patches: &[Patch]) -> io::Result<()> {
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
