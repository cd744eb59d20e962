//! The table by parts against the whole one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

fn table(lines: &[&str]) -> Vec<Vma> {
    lines.iter().filter_map(|line| Vma::parse(line.as_bytes())).collect()
}

#[test]
fn pages_that_the_engine_closed_are_joined_again() {
    let t = table(&["1000-2000 rwxp 0 00:00 0", "2000-3000 rwxp 0 00:00 0"]);
    assert!(joins(&t[0], &t[1], &[0x2000]));
    assert!(joins(&t[0], &t[1], &[0x1000]));
    assert!(!joins(&t[0], &t[1], &[0x5000]));
}

/// The kernel joins a page that the engine closed with one that the program closed.
#[test]
fn pages_that_the_program_closed_stay_closed() {
    let t = without_guards(table(&["1000-5000 r-xp 0 00:00 0"]), &[0x3000, 0x2000, 0x3000]);
    let want = ["1000-2000 r-xp 0 00:00 0", "2000-4000 rwxp 0 00:00 0", "4000-5000 r-xp 0 00:00 0"];
    assert_eq!(t, table(&want));
    let lines = ["1000-2000 rwxp 0 fe:00 5 /a", "2000-4000 r-xp 1000 fe:00 5 /a"];
    let t = without_guards(table(&lines), &[0x2000]);
    let want = ["1000-3000 rwxp 0 fe:00 5 /a", "3000-4000 r-xp 2000 fe:00 5 /a"];
    assert_eq!(t, table(&want));
}

#[test]
fn the_stack_covers_its_limit_but_not_its_neighbour() {
    let lines = ["1000-2000 rw-p 0 00:00 0", "800000-900000 rw-p 0 00:00 0 [stack]"];
    let mut t = table(&lines);
    widen_stack(&mut t, Some(0x20_0000));
    assert_eq!(t[1].start, 0x70_0000);
    widen_stack(&mut t, None);
    assert_eq!(t[1].start, 0x10_2000);
}

/// A room in which mappings come and go, with two pages at its ends that nothing is merged with.
struct Room {
    start: u64,
    pages: u64,
    seed: u64,
}

impl Room {
    fn new(pages: u64, seed: u64) -> Self {
        // Far from where the kernel puts what other threads map, in holes of the room, too.
        const PLACE: u64 = 0x1000_0000_0000;
        let start = PLACE + (seed << 30);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let args = [start, (pages + 2) * PAGE, 0, flags as u64, u64::MAX, 0];
        make(libc::SYS_mmap, args);
        let edge = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        for at in [start, start + (pages + 1) * PAGE] {
            assert_eq!(make(libc::SYS_mprotect, [at, PAGE, edge, 0, 0, 0]), 0);
        }
        Self { start: start + PAGE, pages, seed }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % most
    }

    /// A call that changes something in the room, if it succeeds.
    fn call(&mut self, file: u64) -> (i64, [u64; 6]) {
        const NAMES: [&std::ffi::CStr; 2] = [c"one", c"other"];
        const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
        const SHARED: u64 = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
        const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
        const MOST: u64 = 12;
        let len = self.below(MOST) + 1;
        let at = self.start + self.below(self.pages - MOST) * PAGE;
        let other = self.start + self.below(self.pages - MOST) * PAGE;
        let (bytes, rights) = (len * PAGE, self.below(4));
        match self.below(8) {
            0 => (libc::SYS_mmap, [at, bytes, rights, PRIVATE | ANONYMOUS, u64::MAX, 0]),
            1 => (libc::SYS_mmap, [at, bytes, rights, SHARED | ANONYMOUS, u64::MAX, 0]),
            2 => (libc::SYS_mmap, [at, bytes, rights & 1, PRIVATE, file, self.below(4) * PAGE]),
            3 => (libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]),
            4 => {
                let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                let old = (self.below(MOST) + 1) * PAGE;
                (libc::SYS_mremap, [at, old, bytes, flags, other, 0])
            }
            5 => {
                let name = NAMES[self.below(2) as usize].as_ptr() as u64;
                (libc::SYS_prctl, [libc::PR_SET_VMA as u64, 0, at, bytes, name, 0])
            }
            6 => (libc::SYS_madvise, [at, bytes, 10 + self.below(2), 0, 0, 0]),
            _ => (libc::SYS_mprotect, [at, bytes, rights, 0, 0, 0]),
        }
    }

    fn whole(&self) -> Vec<Vma> {
        let room = self.start - PAGE..self.start + (self.pages + 1) * PAGE;
        let all = vmas::all().expect("the file");
        all.into_iter().filter(|vma| room.contains(&vma.start)).collect()
    }
}

fn make(number: i64, args: [u64; 6]) -> i64 {
    // SAFETY: the tests change what they have mapped themselves.
    let result = unsafe { sys::call(number, args) };
    assert!(number != libc::SYS_mmap || !sys::failed(result), "{result}");
    result
}

/// The text is the naive twin: after every call, what was asked for single mappings gives the same table, line by line.
#[test]
fn asking_for_what_changed_gives_the_whole_table() {
    let mut asked = Asked::open().expect("the file");
    if asked.next(0).is_err() {
        // Before Linux 6.11 there is nothing to compare.
        return;
    }
    let exe = std::fs::File::open("/proc/self/exe").expect("this program");
    let file = std::os::fd::AsRawFd::as_raw_fd(&exe) as u64;
    for seed in 0..20 {
        let mut room = Room::new(60, seed);
        let mut table = Table { told: room.whole(), ..Table::default() };
        for _ in 0..300 {
            let (number, args) = room.call(file);
            let result = make(number, args);
            match changed(number, &args, result) {
                Changed::Borders(range) => table.doubt(range),
                Changed::Ranges(ranges) => {
                    let doubtful = std::mem::take(&mut table.doubtful);
                    let ranges = [&ranges[..], &doubtful].concat();
                    if ranges.contains(&EVERYTHING) {
                        table.told = room.whole();
                        continue;
                    }
                    let parts = table.parts(ranges).expect("parts");
                    table.put(parts);
                    assert_eq!(table.told, room.whole(), "{number} {args:x?} {result}");
                }
                other => assert_eq!(other, Changed::Nothing, "{number} {args:x?} {result}"),
            }
        }
    }
}

#[test]
fn changes_below_the_stack_are_seen_in_the_whole_table() {
    let lines = ["1000-2000 rw-p 0 00:00 0", "800000-900000 rw-p 0 00:00 0 [stack]"];
    let t = Table { told: table(&lines), ..Table::default() };
    assert!(t.moves_stack(0x1000, 0x70_0000) && t.moves_stack(0x85_0000, 0x85_1000));
    assert!(!t.moves_stack(0x1000, 0x6f_f000) && !t.moves_stack(0x90_0000, 0x91_0000));
}
