//! What the host tells the engine it has injected: laid out on the engine's first
//! stack, pointed to by its second argument.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Known, Lines, Sieve};

/// The first argument of an engine, by which it knows itself.
pub const NAME: &[u8] = b"\x7fichnos engine\0";

/// How many stretches of address space the host may hold reserved.
pub const RESERVED: usize = 64;

/// The message itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Boot {
    /// Size of this structure, to notice a host and an engine of different builds.
    pub size: u64,
    /// General registers in the engine's order (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi,
    /// r8 to r15).
    pub regs: [u64; 16],
    /// Where the program would go on.
    pub rip: u64,
    /// Its flags.
    pub rflags: u64,
    /// How many of `reserved` count.
    pub reserved_len: u64,
    /// Stretches (start, length) that the host blocked while the engine's libraries were
    /// mapped.
    pub reserved: [[u64; 2]; RESERVED],
    /// The trace's number of the process and of its first thread.
    pub ids: [u32; 2],
    /// Not zero if the process had another program before, which was recorded.
    pub follows: u64,
    /// Not zero if what runs is to be recorded.
    pub traced: u64,
    /// Not zero if not all is recorded.
    pub counted: u64,
    /// What is: start, stop, and turns of not recorded and recorded instructions.
    pub plan: [u64; 4],
    /// The functions that begin and end it.
    pub gates: [Gate; 2],
    /// What is kept back, if not zero: lines and sets as powers of two, and
    /// lines known and lines in all of each set, of code, then of data.
    pub sieve: [u64; 8],
    /// Bytes of each region of the code cache, at most.
    pub cache: u64,
    /// Not zero if the program shall go on untraced where the engine cannot.
    pub fallback: u64,
    /// Which paths become one piece of code: none, those that are taken often, or all that come a few times.
    pub paths: u64,
    /// Diagnostics: bit 0 says to tell statistics at exit.
    pub debug: u64,
}

/// Which paths through a recorded program become one piece of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Paths {
    /// None.
    Off,
    /// Those that are taken often.
    #[default]
    Hot,
    /// All that are taken a few times, at once: many more than is good for speed, and many that are left early. For tests.
    Eager,
}

impl Paths {
    /// The sort with this number.
    pub const fn of(number: u64) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Hot,
            _ => Self::Eager,
        }
    }
}

/// The name of a function, and zeros behind it; none if it is empty.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gate([u8; Self::LEN]);

impl Gate {
    const LEN: usize = 1024;
    /// No function.
    pub const NONE: Self = Self([0; Self::LEN]);

    /// A function's name, if it is not too long.
    pub fn new(name: &str) -> Option<Self> {
        let mut gate = Self::NONE;
        gate.0
            .get_mut(..name.len())
            .filter(|_| name.len() < Self::LEN)?
            .copy_from_slice(name.as_bytes());
        Some(gate)
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.0[0] == 0
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl Boot {
    /// What is kept back.
    pub fn sieve(&self) -> Option<Sieve> {
        let lines = |at: usize| {
            let [shift, sets, ways, all] = [0, 1, 2, 3].map(|i| self.sieve[at + i] as u32);
            Lines { shift, sets, ways, known: if all != 0 { Known::All } else { Known::Last } }
        };
        (self.sieve[0] != 0).then(|| Sieve { code: lines(0), data: lines(4) })
    }

    /// The same, as numbers.
    pub fn numbers(sieve: Option<Sieve>) -> [u64; 8] {
        let Some(Sieve { code, data }) = sieve else { return [0; 8] };
        let all = |lines: Lines| u32::from(lines.known == Known::All);
        let of = |lines: Lines| [lines.shift, lines.sets, lines.ways, all(lines)];
        let ([a, b, c, d], [e, f, g, h]) = (of(code), of(data));
        [a, b, c, d, e, f, g, h].map(u64::from)
    }

    /// The bytes as they go into the other process.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: a `repr(C)` structure of `u64`s only has no padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}
