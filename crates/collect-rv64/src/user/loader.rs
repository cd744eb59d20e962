//! Loads ELF programs and their interpreter, and lays out the first stack as
//! Linux does. Addresses are always the same, so runs are too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};

use ichnos_base::Protection;
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::error::Error;
use crate::user::space::{PAGE, Region, Sharing, TOP, View};

/// Where position-independent programs go: two thirds up, as on Linux.
const PIE_BASE: u64 = 0x2a_aaaa_a000;
const STACK_TOP: u64 = TOP - PAGE * 4;
const STACK_SIZE: u64 = 8 << 20;
/// Where the code that returns from signal handlers stands.
pub(crate) const TRAMPOLINE: u64 = TOP - PAGE * 2;
/// `li a7, 139` and `ecall`: the system call that returns from a signal.
const TRAMPOLINE_CODE: [u8; 8] = [0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0];
/// The letters of the extensions that programs may ask for: IMAFDC.
const HWCAP: u64 = 1 << 8 | 1 << 12 | 1 | 1 << 5 | 1 << 3 | 1 << 2;

/// A mapped image, for the trace.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) bias: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) build_id: Vec<u8>,
}

/// A loaded segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) protection: Protection,
}

/// A program ready to start.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) entry: u64,
    pub(crate) stack_pointer: u64,
    pub(crate) stack: (u64, u64),
    pub(crate) images: Vec<Image>,
}

/// What to start, as bytes that the guest will see.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The file on the host.
    pub(crate) file: PathBuf,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) env: Vec<Vec<u8>>,
}

struct Parsed<'a> {
    header: &'a FileHeader64<Endianness>,
    data: &'a [u8],
    path: &'a Path,
}

fn not_executable(path: &Path, reason: impl ToString) -> Error {
    Error::NotExecutable { path: path.to_owned(), reason: reason.to_string() }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// Whether a file is an executable for this machine.
pub fn is_program(path: &Path) -> bool {
    use std::io::Read as _;
    let mut head = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut f| f.read_exact(&mut head));
    let machine = u16::from_le_bytes([head[18], head[19]]);
    read.is_ok() && head.starts_with(b"\x7fELF\x02\x01") && machine == elf::EM_RISCV.0
}

impl<'a> Parsed<'a> {
    fn new(data: &'a [u8], path: &'a Path) -> Result<Self, Error> {
        let header =
            FileHeader64::<Endianness>::parse(data).map_err(|e| not_executable(path, e))?;
        if !header.is_little_endian() || header.e_machine.get(Endianness::Little) != elf::EM_RISCV {
            return Err(not_executable(path, "it is for another processor"));
        }
        Ok(Self { header, data, path })
    }

    fn headers(&self) -> Result<&'a [elf::ProgramHeader64<Endianness>], Error> {
        self.header
            .program_headers(Endianness::Little, self.data)
            .map_err(|e| not_executable(self.path, e))
    }

    fn interpreter(&self) -> Result<Option<&'a [u8]>, Error> {
        for header in self.headers()? {
            let name = header.interpreter(Endianness::Little, self.data);
            if let Some(name) = name.map_err(|e| not_executable(self.path, e))? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    fn build_id(&self) -> Vec<u8> {
        let headers = self.headers().unwrap_or_default();
        let notes =
            headers.iter().filter_map(|h| h.notes(Endianness::Little, self.data).ok().flatten());
        for mut iterator in notes {
            while let Ok(Some(note)) = iterator.next() {
                if note.name() == b"GNU" && note.n_type(Endianness::Little) == elf::NT_GNU_BUILD_ID
                {
                    return note.desc().to_vec();
                }
            }
        }
        Vec::new()
    }

    /// The lowest and the highest address of all loaded segments.
    fn span(&self) -> Result<(u64, u64), Error> {
        let e = Endianness::Little;
        let mut span = (u64::MAX, 0);
        for h in self.headers()?.iter().filter(|h| h.p_type(e) == elf::PT_LOAD) {
            let end = h.p_vaddr(e).checked_add(h.p_memsz(e)).filter(|&end| end <= TOP);
            let end =
                end.ok_or_else(|| not_executable(self.path, "a segment lies outside of memory"))?;
            span = (span.0.min(h.p_vaddr(e)), span.1.max(end));
        }
        if span.0 > span.1 {
            return Err(not_executable(self.path, "nothing in it is to be loaded"));
        }
        Ok(span)
    }

    fn map(&self, view: &mut View<'_>, base: u64) -> Result<Image, Error> {
        let (low, high) = self.span()?;
        let bias =
            if self.header.e_type(Endianness::Little) == elf::ET_DYN { base - low } else { 0 };
        if high.checked_add(bias).is_none_or(|end| end > STACK_TOP - STACK_SIZE) {
            return Err(not_executable(self.path, "it does not fit below the stack"));
        }
        let mut segments = Vec::new();
        for header in
            self.headers()?.iter().filter(|h| h.p_type(Endianness::Little) == elf::PT_LOAD)
        {
            segments.push(self.map_segment(view, header, bias)?);
        }
        // The program's folder now is that of this process; who reads the trace may be elsewhere.
        let path = std::path::absolute(self.path).unwrap_or_else(|_| self.path.to_owned());
        Ok(Image { path, bias, segments, build_id: self.build_id() })
    }

    fn map_segment(
        &self,
        view: &mut View<'_>,
        header: &elf::ProgramHeader64<Endianness>,
        bias: u64,
    ) -> Result<Segment, Error> {
        let e = Endianness::Little;
        let data = header
            .data(e, self.data)
            .map_err(|()| not_executable(self.path, "a segment lies outside of the file"))?;
        let start = header.p_vaddr(e) + bias;
        let flags = header.p_flags(e);
        let mut protection = Protection::default();
        for (flag, right) in [
            (elf::PF_R, Protection::READ),
            (elf::PF_W, Protection::WRITE),
            (elf::PF_X, Protection::EXEC),
        ] {
            if flags.contains(flag) {
                protection = Protection(protection.0 | right.0);
            }
        }
        let (first, end) =
            (start & !(PAGE - 1), (start + header.p_memsz(e)).next_multiple_of(PAGE));
        // Two segments may share a page: keep what the first put there.
        let mut page = first;
        while page < end && !view.space.is_free(page, PAGE) {
            view.protect(page, PAGE, protection);
            page += PAGE;
        }
        if page < end {
            view.map(page, Region { end, protection, sharing: Sharing::Private, backing: None });
        }
        view.poke(start, data).map_err(|_| Error::TooLarge {
            what: "the program",
            need: data.len() as u64,
            have: 0,
        })?;
        Ok(Segment {
            start: first,
            len: end - first,
            offset: header.p_offset(e) & !(PAGE - 1),
            protection,
        })
    }
}

/// The file that a guest path names: below the sysroot if it is there.
pub(crate) fn host_path(sysroot: Option<&Path>, path: &Path) -> PathBuf {
    if let (Some(root), Ok(relative)) = (sysroot, path.strip_prefix("/")) {
        let inside = root.join(relative);
        if inside.symlink_metadata().is_ok() {
            return inside;
        }
    }
    path.to_owned()
}

/// Loads a program into an empty space.
pub(crate) fn load(
    view: &mut View<'_>,
    command: &Command,
    sysroot: Option<&Path>,
) -> Result<Loaded, Error> {
    let data = read(&command.file)?;
    let program = Parsed::new(&data, &command.file)?;
    let image = program.map(view, PIE_BASE)?;
    let bias = image.bias;
    view.space.brk_start = (program.span()?.1 + bias).next_multiple_of(PAGE);
    view.space.brk = view.space.brk_start;
    view.space.mmap_top = STACK_TOP - STACK_SIZE - PAGE * 256;
    let own_entry = program.header.e_entry.get(Endianness::Little).wrapping_add(bias);
    let mut loaded = Loaded {
        entry: own_entry,
        stack_pointer: 0,
        stack: (STACK_TOP - STACK_SIZE, STACK_SIZE),
        images: vec![image],
    };
    let mut interpreter_base = 0;
    if let Some(name) = program.interpreter()? {
        let name =
            Path::new(std::str::from_utf8(name).map_err(|e| not_executable(&command.file, e))?);
        let path = host_path(sysroot, name);
        let data = read(&path)?;
        let interpreter = Parsed::new(&data, &path)?;
        let (low, high) = interpreter.span()?;
        let len = (high - (low & !(PAGE - 1))).next_multiple_of(PAGE);
        interpreter_base = view.space.find_free(len).ok_or(Error::TooLarge {
            what: "the interpreter",
            need: len,
            have: 0,
        })?;
        let image = interpreter.map(view, interpreter_base)?;
        loaded.entry = interpreter.header.e_entry.get(Endianness::Little).wrapping_add(image.bias);
        loaded.images.push(image);
    }
    map_fixed(view);
    let phdr = program.header.e_phoff.get(Endianness::Little);
    let facts = Facts {
        program_headers: first_address(&program, phdr)?.wrapping_add(bias),
        header_count: program.headers()?.len() as u64,
        interpreter_base,
        entry: own_entry,
    };
    loaded.stack_pointer = build_stack(view, command, &facts).map_err(|_| Error::TooLarge {
        what: "arguments and environment",
        need: 0,
        have: STACK_SIZE,
    })?;
    Ok(loaded)
}

/// Where the file's byte at `offset` is loaded, before the bias.
fn first_address(program: &Parsed<'_>, offset: u64) -> Result<u64, Error> {
    let e = Endianness::Little;
    let holds = |h: &&elf::ProgramHeader64<Endianness>| {
        h.p_type(e) == elf::PT_LOAD
            && (h.p_offset(e)..h.p_offset(e) + h.p_filesz(e)).contains(&offset)
    };
    Ok(program.headers()?.iter().find(holds).map_or(0, |h| h.p_vaddr(e) + (offset - h.p_offset(e))))
}

/// The stack and the signal trampoline.
fn map_fixed(view: &mut View<'_>) {
    let private =
        |end, protection| Region { end, protection, sharing: Sharing::Private, backing: None };
    let read_write = Protection(Protection::READ.0 | Protection::WRITE.0);
    let read_exec = Protection(Protection::READ.0 | Protection::EXEC.0);
    view.map(STACK_TOP - STACK_SIZE, private(STACK_TOP, read_write));
    view.map(TRAMPOLINE, private(TRAMPOLINE + PAGE, read_exec));
    // A page just mapped takes these bytes unless memory is exhausted, and then
    // the next thing that is loaded says so.
    let _ = view.poke(TRAMPOLINE, &TRAMPOLINE_CODE);
}

struct Facts {
    program_headers: u64,
    header_count: u64,
    interpreter_base: u64,
    entry: u64,
}

/// Arguments, environment and auxiliary vector; the result is the stack pointer.
fn build_stack(
    view: &mut View<'_>,
    command: &Command,
    facts: &Facts,
) -> Result<u64, rustix::io::Errno> {
    let mut at = STACK_TOP;
    let mut push = |view: &mut View<'_>, bytes: &[u8]| {
        at -= bytes.len() as u64 + 1;
        view.write(at, bytes)?;
        Ok::<u64, rustix::io::Errno>(at)
    };
    let name = push(view, command.args.first().map_or(&[][..], |a| a))?;
    let random = push(view, b"ichnos is determ.")?;
    let args = command.args.iter().map(|a| push(view, a)).collect::<Result<Vec<_>, _>>()?;
    let env = command.env.iter().map(|v| push(view, v)).collect::<Result<Vec<_>, _>>()?;
    let auxiliary = [
        (3, facts.program_headers),
        (4, 56),
        (5, facts.header_count),
        (6, PAGE),
        (7, facts.interpreter_base),
        (8, 0),
        (9, facts.entry),
        (11, u64::from(rustix::process::getuid().as_raw())),
        (12, u64::from(rustix::process::geteuid().as_raw())),
        (13, u64::from(rustix::process::getgid().as_raw())),
        (14, u64::from(rustix::process::getegid().as_raw())),
        (16, HWCAP),
        (17, 100),
        (23, 0),
        (25, random),
        (31, name),
        (0, 0),
    ];
    let mut words = vec![args.len() as u64];
    words.extend(args);
    words.push(0);
    words.extend(env);
    words.push(0);
    words.extend(auxiliary.iter().flat_map(|&(kind, value)| [kind, value]));
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let sp = (at - bytes.len() as u64) & !15;
    view.write(sp, &bytes)?;
    Ok(sp)
}
