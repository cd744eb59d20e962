//! The running executable and its loader, as ELF files to be mapped elsewhere.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::Error;

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// `p_flags`: 4 read, 2 write, 1 execute.
    pub flags: u32,
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it begins in memory, before the bias.
    pub vaddr: u64,
    /// Bytes from the file.
    pub file_len: u64,
    /// Bytes in memory.
    pub mem_len: u64,
}

/// A position-independent ELF file.
#[derive(Debug)]
pub struct Image {
    /// The file.
    pub path: String,
    /// Entry point, before the bias.
    pub entry: u64,
    /// Program headers in memory, before the bias.
    pub phdr: u64,
    /// How many program headers.
    pub phnum: u64,
    /// What to map.
    pub segments: Vec<Segment>,
    /// The loader that it names.
    pub interp: Option<String>,
}

impl Image {
    /// Reads the headers of a file.
    pub fn open(path: &str) -> Result<Self, Error> {
        let bad = |why| Error::Image { path: path.to_owned(), why };
        let file =
            File::open(path).map_err(|source| Error::Start { program: path.to_owned(), source })?;
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).map_err(|_| bad("it is too short"))?;
        let elf64 = head.starts_with(b"\x7fELF\x02\x01");
        if !elf64 || field::<2>(&head, 16) != 3 || field::<2>(&head, 54) != 56 {
            return Err(bad("it is not a position-independent 64-bit ELF file"));
        }
        let (phoff, phnum) = (field::<8>(&head, 32), field::<2>(&head, 56));
        let mut image = Self {
            path: path.to_owned(),
            entry: field::<8>(&head, 24),
            phdr: 0,
            phnum,
            segments: Vec::new(),
            interp: None,
        };
        for i in 0..phnum {
            let mut ph = [0; 56];
            file.read_exact_at(&mut ph, phoff + i * 56).map_err(|_| bad("headers are cut"))?;
            image.header(&file, &ph, phoff).ok_or_else(|| bad("it names no loader"))?;
        }
        if image.segments.is_empty() || image.phdr == 0 {
            return Err(bad("it loads nothing"));
        }
        Ok(image)
    }

    fn header(&mut self, file: &File, ph: &[u8; 56], phoff: u64) -> Option<()> {
        let segment = Segment {
            flags: field::<4>(ph, 4) as u32,
            offset: field::<8>(ph, 8),
            vaddr: field::<8>(ph, 16),
            file_len: field::<8>(ph, 32),
            mem_len: field::<8>(ph, 40),
        };
        match field::<4>(ph, 0) as u32 {
            PT_LOAD => {
                if (segment.offset..segment.offset + segment.file_len).contains(&phoff) {
                    self.phdr = phoff - segment.offset + segment.vaddr;
                }
                self.segments.push(segment);
            }
            PT_INTERP => {
                let mut name = vec![0; usize::try_from(segment.file_len).ok()?.min(4096)];
                file.read_exact_at(&mut name, segment.offset).ok()?;
                name.pop();
                self.interp = Some(String::from_utf8(name).ok()?);
            }
            _ => {}
        }
        Some(())
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_executable() {
        let image = Image::open("/proc/self/exe").expect("readable");
        assert!(image.entry != 0 && image.segments.len() >= 2);
        let loader = Image::open(&image.interp.expect("tests link dynamically")).expect("loader");
        assert!(loader.interp.is_none());
        assert!(Image::open("/proc/self/maps").is_err());
    }
}
