//! A fragment (one translated superblock), its exits, and the map from its code back to the
//! program's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use super::home::Home;
use super::sites::Sites;

/// Which registers of the program lie in the context instead of the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spills(pub u8);

impl Spills {
    /// All in place.
    pub const NONE: Self = Self(0);
    /// rcx is spilled.
    pub const RCX: Self = Self(1);

    /// rax and rcx are spilled.
    pub const BOTH: Self = Self(3);

    /// Only this register is spilled, to the far slot.
    pub const fn far(reg: u8) -> Self {
        Self(0x80 | reg << 2)
    }

    /// The register in the far slot.
    pub const fn far_register(self) -> Option<usize> {
        if self.0 & 0x80 != 0 { Some((self.0 >> 2 & 15) as usize) } else { None }
    }

    /// Whether rcx is spilled.
    pub const fn rcx(self) -> bool {
        self.0 & 0x81 == 1
    }

    /// Whether rax is spilled.
    pub const fn rax(self) -> bool {
        self.0 & 0x82 == 2
    }
}

/// From here on the code belongs to this instruction of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// Offset from the fragment's first byte.
    pub offset: u32,
    /// What is spilled.
    pub spills: Spills,
    /// The program's address.
    pub pc: u64,
    /// Registers, as bits, that the processor no longer holds because the program was about to write
    /// them anyway; a fault comes first, and shows what the context kept.
    pub lost: u16,
    /// Where the address of the next word of trace is.
    pub home: Home,
    /// Whether a save point begins here, which is done again if the buffer is full.
    pub probe: bool,
    /// How many instructions from this one on have been counted already.
    pub rest: u8,
    /// The piece to which those belong, behind a sieve.
    pub block: u32,
    /// Whether the program's arithmetic flags are in the context.
    pub flags: bool,
    /// How many bytes before that address the record begins that the thread has begun, or would begin again if a save point begins here;
    /// perhaps not all of it is stored.
    pub begun: u16,
    /// The part of a path to which it belongs.
    pub part: u8,
}

/// A part of a path: one of its blocks. When a path is entered all of it is recorded; where it is left early, or an instruction
/// faults, that is made true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The identifier of the path up to here.
    pub identifier: u32,
    /// Bytes of the whole path's record.
    pub whole: u16,
    /// Bytes of it that belong to what comes behind.
    pub behind: u16,
}

/// Where a return of the program can land in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PadKind {
    /// After an indirect jump or call.
    Jump,
    /// After a return.
    Ret,
}

/// A landing pad.
#[derive(Clone, Copy, Debug)]
pub struct Pad {
    /// For which transfers.
    pub kind: PadKind,
    /// For which address of the program.
    pub tag: u64,
    /// Where in the cache.
    pub at: u64,
}

/// A fragment.
#[derive(Debug)]
pub struct Fragment {
    /// The program's address of its entry.
    pub pc: u64,
    /// The entry; all registers of the program are in place there.
    pub start: u64,
    /// Where its own ways back to its beginning lead, if not to the entry.
    pub inner: u64,
    /// The first byte, which may be before the entry.
    pub base: u64,
    /// The first byte after it.
    pub end: u64,
    /// Its region.
    pub region: usize,
    /// The map back.
    pub sites: Sites,
    /// Exits that are linked to it.
    pub incoming: Vec<u32>,
    /// Its landing pads.
    pub pads: Vec<Pad>,
    /// Its parts, if it is a path.
    pub parts: Box<[Part]>,
    /// The registers, as bits, that must be known where it is entered.
    pub known: u16,
    /// Where it is given up if they are, and the buffer has no room for it.
    pub renew: Option<u64>,
    /// Its exits.
    pub exits: Range<u32>,
    /// Whether it can still be entered.
    pub live: bool,
    /// Its kind.
    pub kind: Kind,
}

/// The two kinds of fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What runs is not recorded.
    Plain = 0,
    /// It is.
    Recorded = 1,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 2;
}

impl Fragment {
    /// The map back, in order.
    pub fn sites(&self) -> impl Iterator<Item = Site> {
        self.sites.iter(self.pc)
    }

    /// What stands at an address of the cache.
    pub fn site(&self, addr: u64) -> Option<Site> {
        let offset = addr.checked_sub(self.base)?;
        self.sites().take_while(|site| u64::from(site.offset) <= offset).last()
    }

    /// Where the item begins that a save point at a site begins again or goes on with, if that is known: at the fragment's own
    /// beginning. No piece but the first of a superblock does that, and those need what was stored before them.
    pub fn item(&self, site: Site) -> Option<u64> {
        let is_path = !self.parts.is_empty();
        (is_path || site.begun == 0 && site.pc == self.pc).then_some(self.pc)
    }

    /// The part to which a site belongs, if something is recorded that comes behind it.
    pub fn part(&self, site: Site) -> Option<Part> {
        let (_, before) = self.parts.split_last()?;
        before.get(usize::from(site.part)).copied()
    }
}

/// What an exit means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitKind {
    /// Goes on at the target.
    Direct,
    /// A system call; the target is the instruction itself.
    Syscall,
    /// The accesses of the instruction at the target must be told; the code after the exit runs it.
    Flexible,
    /// The base of fs or gs has changed; goes on at the target.
    Base,
    /// The thread's budget is used up before the block at the target.
    Count,
    /// A watched function begins or returns at the target; the code after the exit goes on there.
    Mark,
    /// The instruction at the target runs in its own place.
    InPlace,
    /// A call of the kernel by the way of 32-bit programs, at the target.
    OldSyscall,
    /// An instruction that the engine does not know how to run, at the target.
    Unsupported,
}

/// An exit of a fragment.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// What it means.
    pub kind: ExitKind,
    /// The program's address.
    pub target: u64,
    /// The displacement to patch; zero if it cannot be linked.
    pub patch: u64,
    /// Where the displacement leads when not linked; for [`ExitKind::Flexible`], where to go on.
    pub stub: u64,
    /// For [`ExitKind::Flexible`], the identifier of the instruction's block.
    pub block: u32,
    /// The fragment to which it is linked.
    pub linked: Option<u32>,
    /// The registers, as bits, that are known behind it.
    pub known: u16,
    /// Whether it leads back to its fragment's beginning and skips the entry, as long as nothing else is linked to it.
    pub turns: bool,
    /// The fragment that it leaves.
    pub from: u32,
}
