//! The rules of a trace, by name, and what is said when one is broken.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;

use ichnos_base::{GuestVa, ThreadId};

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One rule that every trace keeps.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])* $variant,)*
        }

        impl Rule {
            /// All rules, in the order in which they are reported.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The rule's name in text and JSON output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

rules! {
    /// An instruction follows the one before it, unless a branch or an event
    /// explains where it lies.
    Flow = "flow",
    /// Exactly one branch record follows each control transfer.
    BranchMissing = "branch-missing",
    /// No branch record follows anything else, or comes twice.
    BranchUnexpected = "branch-unexpected",
    /// Only conditional branches are not taken.
    BranchUntaken = "branch-untaken",
    /// Accesses stand between their instruction and its branch record.
    AccessPlace = "access-place",
    /// Loads and stores touch at least one byte.
    AccessSize = "access-size",
    /// Events stand between instructions, not inside one.
    EventPlace = "event-place",
    /// An instruction has a length that the instruction set knows.
    InsnLength = "insn-length",
    /// Code is told before it is executed, if code is told at all.
    CodeUntold = "code-untold",
    /// The same code is always the same instruction.
    CodeDiffers = "code-differs",
    /// Loads and stores touch mapped memory.
    AccessUnmapped = "access-unmapped",
    /// Stores touch writable and loads accessible memory.
    AccessForbidden = "access-forbidden",
    /// Instructions lie in executable memory.
    FetchForbidden = "fetch-forbidden",
    /// A batch knows how many instructions came before it.
    InsnsBefore = "insns-before",
    /// Values are there when promised, and as long as the accesses.
    Values = "values",
    /// A thread's stream begins with its start, once.
    ThreadStart = "thread-start",
    /// Nothing follows a thread's end.
    ThreadEnd = "thread-end",
    /// A thread's creator and its start agree.
    ThreadCreate = "thread-create",
    /// A joined thread exists and is joined once.
    ThreadJoin = "thread-join",
    /// A thread releases only locks that it holds.
    Lock = "lock",
    /// A thread enters a barrier, leaves it, and only then enters another.
    Barrier = "barrier",
    /// A thread waits for a condition and wakes up, in turn.
    Cond = "cond",
    /// A system call is told after its instruction and returns once.
    Syscall = "syscall",
    /// A signal interrupts the next instruction, and only handlers return.
    Signal = "signal",
    /// A trap interrupts the next instruction.
    Trap = "trap",
    /// Mode switches alternate, and nothing is recorded in exec mode.
    Mode = "mode",
    /// A thread's clock does not go backwards.
    Timestamp = "timestamp",
    /// What was counted is what the file says it holds.
    Totals = "totals",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One place where a rule is broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// In which thread.
    pub thread: ThreadId,
    /// How many instructions of the thread precede the place. For something
    /// wrong with an instruction or its accesses, that instruction's ordinal.
    pub insn: u64,
    /// The instruction at the place, if one has been recorded.
    pub pc: Option<GuestVa>,
    /// What the rule asks for.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}, instruction {}", self.thread, self.insn)?;
        if let Some(pc) = self.pc {
            write!(f, " at {pc}")?;
        }
        write!(f, ": {}: expected {}, got {}", self.rule, self.expected, self.got)
    }
}

/// Where in a thread's stream something is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub thread: ThreadId,
    pub insn: u64,
    pub pc: Option<GuestVa>,
}

/// Counts all violations and keeps the first few of each rule.
#[derive(Debug)]
pub(crate) struct Log {
    keep_per_rule: usize,
    counts: [u64; Rule::ALL.len()],
    kept: Vec<Violation>,
}

impl Log {
    pub fn new(keep_per_rule: usize) -> Self {
        Self { keep_per_rule, counts: [0; Rule::ALL.len()], kept: Vec::new() }
    }

    /// Notes a violation. The texts are made only when they will be kept.
    #[cold]
    pub fn note(&mut self, rule: Rule, place: Place, say: impl FnOnce() -> (String, String)) {
        let count = &mut self.counts[rule as usize];
        *count += 1;
        if *count <= self.keep_per_rule as u64 {
            let (expected, got) = say();
            let Place { thread, insn, pc } = place;
            self.kept.push(Violation { rule, thread, insn, pc, expected, got });
        }
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn by_rule(&self) -> Vec<(Rule, u64)> {
        let with_counts = Rule::ALL.iter().copied().zip(self.counts);
        with_counts.filter(|&(_, count)| count > 0).collect()
    }

    pub fn kept(&self) -> &[Violation] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_counts_all_and_keeps_few() {
        let mut log = Log::new(2);
        let place = Place { thread: ThreadId(1), insn: 7, pc: Some(GuestVa(0x10)) };
        for i in 0..5 {
            log.note(Rule::Flow, place, || ("this".into(), format!("that {i}")));
        }
        log.note(Rule::Mode, place, || ("a".into(), "b".into()));
        assert_eq!(log.total(), 6);
        assert_eq!(log.by_rule(), [(Rule::Flow, 5), (Rule::Mode, 1)]);
        let shown: Vec<_> = log.kept().iter().map(ToString::to_string).collect();
        assert_eq!(shown[0], "thread 1, instruction 7 at 0x10: flow: expected this, got that 0");
        assert_eq!(shown.len(), 3);
    }
}
