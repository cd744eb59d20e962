//! Where a static program's image ends and where its `main` begins, read from the
//! file itself, so that stripped programs can be judged, too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::Path;

/// A program's file and what its headers say.
pub struct Layout {
    file: Vec<u8>,
    /// Offset in the file, address, and bytes in the file and in memory.
    segments: Vec<[u64; 4]>,
    interpreted: bool,
}

const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;

impl Layout {
    pub fn of(program: &Path) -> Self {
        let file = fs::read(program).expect("the program can be read");
        assert_eq!(&file[..5], b"\x7fELF\x02", "a 64-bit ELF file");
        let mut layout = Self { file, segments: Vec::new(), interpreted: false };
        let table = layout.word(32);
        let count = u64::from(layout.file[56]);
        for header in (0..count).map(|n| table + 56 * n) {
            match layout.word(header) as u32 {
                LOAD => {
                    let fields = [8, 16, 32, 40].map(|field| layout.word(header + field));
                    layout.segments.push(fields);
                }
                INTERPRETER => layout.interpreted = true,
                _ => {}
            }
        }
        layout
    }

    fn word(&self, at: u64) -> u64 {
        let bytes = self.file[at as usize..].first_chunk().expect("a word of the file");
        u64::from_le_bytes(*bytes)
    }

    /// Whether the program needs no loader.
    pub fn is_static(&self) -> bool {
        !self.interpreted
    }

    /// The first page behind the program's code and data.
    pub fn image_end(&self) -> u64 {
        let end = self.segments.iter().map(|[_, addr, _, size]| addr + size).max();
        end.expect("a segment").next_multiple_of(4096)
    }

    /// The address that the program's first instructions hand to the C library as
    /// `main`: `mov $main,%rdi`, as the linker makes it in programs with fixed addresses.
    pub fn main(&self) -> u64 {
        let entry = self.word(24);
        let inside = |[_, addr, size, _]: &&[u64; 4]| (*addr..addr + size).contains(&entry);
        let [offset, addr, ..] = self.segments.iter().find(inside).expect("code at the entry");
        let code = &self.file[(entry - addr + offset) as usize..][..64];
        let at = code.windows(3).position(|w| w == [0x48, 0xc7, 0xc7]).expect("main's address");
        let bytes = code[at + 3..].first_chunk().expect("an operand");
        u64::from(u32::from_le_bytes(*bytes))
    }
}
