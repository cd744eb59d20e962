//! The invariant checker: a sink that holds a trace against the rules which
//! every trace keeps, and says where it does not.
//!
//! Rules about one thread are judged as its stream is told. Rules about memory
//! need the order between threads: mappings made by one thread are used by
//! another. Where that order is not known, an access that does not fit is put by
//! and judged at the end by everything that was ever mapped, so that no good
//! trace is called bad. Memory: per thread 72 KiB, per page of told code 12 KiB,
//! and what the mappings and open events of the program need; not the length of
//! the trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod codebook;
mod events;
mod pairs;
mod process;
mod rule;
mod space;
mod thread;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;

use ichnos_base::{About, Batch, Code, Event, ProcessId, Record, Sink, ThreadId, Totals};

use process::{Deferred, Holdings, Process};
use rule::{Log, Place};
pub use rule::{Rule, Violation};
use thread::{Desk, Promise, Thread};

/// How much of a trace the checker is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extent {
    /// All threads from their beginnings.
    #[default]
    Whole,
    /// Some threads, or some stretches: rules between threads are left out.
    Part,
}

/// In which order threads are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// In any order, as [`Sink`] allows.
    #[default]
    Any,
    /// As things happened: an effect of one thread on another is told before
    /// the other depends on it.
    Time,
}

/// How to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How much is shown.
    pub extent: Extent,
    /// In which order.
    pub order: Order,
    /// How many violations of each rule are kept with their words. All are
    /// counted.
    pub keep_per_rule: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { extent: Extent::Whole, order: Order::Any, keep_per_rule: 20 }
    }
}

/// Checks a trace.
///
/// ```
/// use ichnos_analyze::check::{Checker, Config, Rule};
/// use ichnos_base::*;
///
/// let mut checker = Checker::new(Config::default());
/// checker.begin(&About { isa: Isa::X86_64, branches: true, ..About::default() })?;
/// checker.event(ThreadId(0), &Event::ThreadStart(ThreadStart::default()))?;
/// let records = [
///     Record::insn(GuestVa(0x1000), 4, InsnKind::OTHER),
///     Record::insn(GuestVa(0x1005), 1, InsnKind::OTHER),
/// ];
/// checker.records(&Batch::new(ThreadId(0), 0, &records))?;
/// checker.finish()?;
/// let verdict = checker.into_verdict();
/// assert_eq!(verdict.by_rule, [(Rule::Flow, 1)]);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug)]
pub struct Checker {
    config: Config,
    promise: Promise,
    threads: HashMap<ThreadId, Thread>,
    processes: HashMap<ProcessId, Process>,
    /// Who made which thread.
    created: BTreeMap<ThreadId, ThreadId>,
    joined: BTreeMap<ThreadId, ThreadId>,
    /// What a process held when it made a thread that has not started yet.
    unborn: HashMap<ThreadId, Holdings>,
    /// Processes that started before their parents told of it.
    orphans: HashMap<ThreadId, ProcessId>,
    /// Whether the trace says that it holds one process of several.
    apart: bool,
    expected: BTreeMap<ThreadId, Totals>,
    deferred: Deferred,
    log: Log,
}

/// What the checker found.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The first violations of each rule, in the order in which they were found.
    pub violations: Vec<Violation>,
    /// How often each rule was broken; rules that were kept are left out.
    pub by_rule: Vec<(Rule, u64)>,
    /// What was counted, per thread.
    pub totals: BTreeMap<ThreadId, Totals>,
    /// Threads whose end was not told: the trace may have been cut short.
    pub unended: u64,
    /// Locks that threads held when they ended, which programs may do.
    pub locks_held_at_end: u64,
    /// Accesses that nobody could judge, because too many waited for mappings
    /// of other threads.
    pub unchecked: u64,
}

impl Verdict {
    /// Whether no rule was broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.by_rule.is_empty()
    }

    /// How many violations there are, of all rules.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_rule.iter().map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        let insns: u64 = self.totals.values().map(|t| t.insns).sum();
        let threads = match self.totals.len() {
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        match self.total() {
            0 => write!(f, "clean: {insns} instructions of {threads} keep all rules"),
            1 => write!(f, "1 violation in {insns} instructions of {threads}"),
            n => write!(f, "{n} violations in {insns} instructions of {threads}"),
        }
    }
}

impl Checker {
    /// A checker that has seen nothing.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            promise: Promise::default(),
            threads: HashMap::new(),
            processes: HashMap::new(),
            created: BTreeMap::new(),
            joined: BTreeMap::new(),
            unborn: HashMap::new(),
            orphans: HashMap::new(),
            apart: false,
            expected: BTreeMap::new(),
            deferred: Deferred::default(),
            log: Log::new(config.keep_per_rule),
        }
    }

    /// Says what a thread must count to, as the file's end tells.
    pub fn expect(&mut self, thread: ThreadId, totals: Totals) {
        self.expected.insert(thread, totals);
    }

    /// What was found. Complete after [`Sink::finish`].
    #[must_use]
    pub fn into_verdict(self) -> Verdict {
        let ended = self.threads.values().filter(|t| t.ended);
        Verdict {
            violations: self.log.kept().to_vec(),
            by_rule: self.log.by_rule(),
            totals: self.threads.iter().map(|(&id, t)| (id, t.totals)).collect(),
            unended: self.threads.values().filter(|t| !t.ended).count() as u64,
            locks_held_at_end: ended.map(|t| t.pairs.held()).sum(),
            unchecked: self.deferred.unchecked,
        }
    }

    /// How many violations were found so far.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.log.total()
    }

    /// Complains about anything told of a thread outside its life, and answers
    /// with the thread.
    fn alive(&mut self, id: ThreadId) -> &mut Thread {
        let thread = self.threads.entry(id).or_insert_with(|| Thread::new(id));
        if thread.start.is_none() {
            // Said once: the thread counts as started from here on.
            thread.start = Some(Default::default());
            self.log.note(Rule::ThreadStart, thread.place(), || {
                ("the thread's start first".into(), "something else".into())
            });
        }
        if thread.ended {
            self.log.note(Rule::ThreadEnd, thread.place(), || {
                ("nothing after the thread's end".into(), "something".into())
            });
        }
        thread
    }

    /// What can be said of a batch without looking at each record's place.
    fn check_batch(&mut self, batch: &Batch<'_>) {
        let part = self.config.extent == Extent::Part;
        let promised = self.promise.values;
        let thread = self.alive(batch.thread);
        let place = thread.place();
        let before = thread.insns;
        // After a gap, or in a part, instructions may lie before that were not told.
        let jump = thread.current.is_none() && (thread.torn || part && thread.fresh);
        if batch.insns_before > before && jump {
            thread.insns = batch.insns_before;
        } else if batch.insns_before != before {
            thread.insns = batch.insns_before;
            let got = batch.insns_before;
            self.log.note(Rule::InsnsBefore, place, || (before.to_string(), got.to_string()));
        }
        let bytes: usize = match batch.values {
            Some(_) => batch.records.iter().map(Record::value_len).sum(),
            None if promised => batch.records.iter().map(Record::value_len).sum(),
            None => 0,
        };
        let got = batch.values.map_or(0, <[u8]>::len);
        if got != bytes {
            self.log.note(Rule::Values, place, || {
                (format!("{bytes} bytes of values"), format!("{got} bytes"))
            });
        }
    }

    /// What must hold when instructions follow what was told last.
    fn check_resume(&mut self, id: ThreadId, first: &Record) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let place = thread.place();
        if !thread.pairs.recording() {
            self.log.note(Rule::Mode, place, || {
                ("nothing recorded in exec mode".into(), "records".into())
            });
        }
        if let Record::Insn { pc, .. } = *first
            && let Some(number) = thread.pairs.take_open_syscall()
        {
            self.log.note(Rule::Syscall, place, || {
                (format!("the return of system call {number}"), format!("an instruction at {pc}"))
            });
        }
    }

    fn check_totals(&mut self) {
        for (&id, &expected) in &self.expected {
            let got = self.threads.get(&id).map_or_else(Totals::default, |t| t.totals);
            if got != expected {
                let place = Place { thread: id, insn: got.insns, pc: None };
                self.log
                    .note(Rule::Totals, place, || (format!("{expected:?}"), format!("{got:?}")));
            }
        }
        if self.expected.is_empty() {
            return;
        }
        for (&id, thread) in &self.threads {
            if !self.expected.contains_key(&id) && thread.totals != Totals::default() {
                let got = thread.totals;
                self.log.note(Rule::Totals, thread.place(), || {
                    ("no records of this thread".into(), format!("{got:?}"))
                });
            }
        }
    }
}

impl Sink for Checker {
    type Error = Infallible;

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.promise = Promise { isa: about.isa, branches: about.branches, values: about.values };
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let Some(first) = batch.records.first() else { return Ok(true) };
        self.check_batch(batch);
        self.check_resume(batch.thread, first);
        let Some(thread) = self.threads.get_mut(&batch.thread) else { return Ok(true) };
        thread.fresh = false;
        let mut desk = Desk {
            promise: self.promise,
            process: self.processes.entry(thread.process).or_default(),
            deferred: &mut self.deferred,
            log: &mut self.log,
        };
        thread.records(batch, &mut desk);
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.check_event(thread, event);
        Ok(true)
    }

    fn code(&mut self, _thread: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        let process = self.processes.entry(code.process).or_default();
        if let Some(place) = process.before_code.take() {
            self.log.note(Rule::CodeUntold, place, || {
                ("code told before it is executed".into(), "told only later".into())
            });
        }
        process.tell(code.pc, code.bytes);
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        self.deferred.settle(&self.processes, &mut self.log);
        if self.config.extent == Extent::Whole {
            self.check_family();
        }
        self.check_totals();
        Ok(())
    }
}
