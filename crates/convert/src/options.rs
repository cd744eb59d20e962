//! What the user may choose when a format says less, or more, than a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::ThreadId;

/// Choices for readers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReadOptions {
    /// The length of instructions whose length neither the format nor the flow
    /// of control tells.
    pub insn_len: u8,
    /// The size of accesses in formats without sizes.
    pub access_size: u32,
    /// What repeated lines of one instruction are, in lackey's text.
    pub repeats: Repeats,
    /// Whether din lines have a third field with a size.
    pub din: DinStyle,
    /// What a gem5 packet's id is.
    pub packet_ids: PacketIds,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            insn_len: 4,
            access_size: 4,
            repeats: Repeats::Separate,
            din: DinStyle::Traditional,
            packet_ids: PacketIds::Ignored,
        }
    }
}

/// What repeated lines of one instruction are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Repeats {
    /// Each line is an instruction, as lackey counts.
    #[default]
    Separate,
    /// Turns of one repeated string instruction, where it can be one.
    Merged,
}

/// A flavour of din.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DinStyle {
    /// Label and address; the rest of a line means nothing.
    #[default]
    Traditional,
    /// Label, address and a size in hexadecimal.
    Sized,
}

/// What a gem5 packet's id is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PacketIds {
    /// Nothing that matters here: all packets are one thread's.
    #[default]
    Ignored,
    /// The thread, as ichnos writes it, or the requestor, as gem5's probes do.
    Threads,
}

/// Choices for writers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Write this thread alone.
    pub thread: Option<ThreadId>,
    /// Whether din lines get a third field with the size.
    pub din: DinStyle,
    /// How lackey's text shows repeated string instructions.
    pub repeats: Repeats,
    /// What becomes of accesses that do not fit into one ChampSim record.
    pub excess: Excess,
    /// Instructions in a chunk of a drmemtrace file.
    pub chunk_insns: u64,
    /// gem5 ticks (picoseconds) from one instruction to the next.
    pub ticks_per_insn: u64,
    /// Instructions in an interval of basic-block vectors.
    pub interval: u64,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            thread: None,
            din: DinStyle::Traditional,
            repeats: Repeats::Separate,
            excess: Excess::Split,
            chunk_insns: 10_000_000,
            ticks_per_insn: 500,
            interval: 100_000_000,
        }
    }
}

/// What becomes of accesses that do not fit into one ChampSim record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Excess {
    /// Further records at the same address hold them: all accesses are kept,
    /// and ChampSim counts more instructions.
    #[default]
    Split,
    /// They are left out: instructions are counted right.
    Drop,
}
