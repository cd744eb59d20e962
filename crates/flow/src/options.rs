//! What the planner may do, each thing switched singly, and the levels that
//! reproduce the steps of the MPTRACE paper's tables 2 to 6.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The planner's switches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// What is planned as one piece, with one identifier in the stream.
    pub piece: Piece,
    /// What stays known from one piece to the next.
    pub across: Across,
    /// Whether registers are followed through moves and arithmetic.
    pub follow: Follow,
    /// Whether four bytes are stored where the upper half is known.
    pub halves: Halves,
}

/// What is planned as one piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Piece {
    /// Each instruction.
    Instruction,
    /// Basic blocks: one entry, one exit.
    Block,
    /// Superblocks: one entry, many exits.
    Superblock,
}

/// What stays known from one piece to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Across {
    /// Nothing.
    Nothing,
    /// The registers of the procedure's frame.
    Frame,
    /// Every register, as far as data flow shows.
    All,
}

/// Whether registers are followed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Follow {
    /// A register that changes is stored again.
    No,
    /// A register that changes in a way that replay can repeat is not.
    Yes,
}

/// Whether half registers are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Halves {
    /// Always eight bytes.
    No,
    /// Four where they suffice.
    Yes,
}

/// Levels of optimisation, each with all of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Level {
    /// Every instruction by itself; constant addresses alone cost nothing.
    None,
    /// Basic blocks; registers stored once and followed inside.
    Block,
    /// Superblocks.
    Superblock,
    /// The frame stays known throughout a procedure.
    Procedural,
    /// So does everything else.
    #[default]
    Flow,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Block, Self::Superblock, Self::Procedural, Self::Flow];

    /// The level's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Block => "block",
            Self::Superblock => "superblock",
            Self::Procedural => "procedural",
            Self::Flow => "flow",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl From<Level> for Options {
    fn from(level: Level) -> Self {
        let piece = match level {
            Level::None => Piece::Instruction,
            Level::Block => Piece::Block,
            _ => Piece::Superblock,
        };
        let across = match level {
            Level::Procedural => Across::Frame,
            Level::Flow => Across::All,
            _ => Across::Nothing,
        };
        let (follow, halves) = match level {
            Level::None => (Follow::No, Halves::No),
            _ => (Follow::Yes, Halves::Yes),
        };
        Self { piece, across, follow, halves }
    }
}
