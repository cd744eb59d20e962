//! Costs per instruction, and per call from one function to another: the core
//! of `ichnos annotate`.
//!
//! What a cost is, an [`Observer`] says: plain counts, or the misses of a cache
//! model that it drives. Costs are collected per address; functions and lines
//! come in afterwards, when [`Profile::into_costs`] is gathered by place.
//! Memory: per distinct instruction and per distinct call 8 bytes a column and
//! some 60 more, and per open call 8 bytes a column; not the trace's length.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod calls;
mod gather;

use std::convert::Infallible;

use ichnos_base::{About, Batch, Event, GuestVa, InsnKind, ProcessId, Record, Sink, ThreadId};

use crate::hash::FastMap;
use crate::pcs::Pcs;
pub use calls::Call;
use calls::Calls;
pub use gather::{CallRow, FunctionKey, FunctionRow, Gathered, LineRow, Locate, Place, Site};

/// Says what each record costs.
pub trait Observer {
    /// The columns' names, as in cachegrind's files: `Ir`, `Dr`, `D1mr`, ...
    fn columns(&self) -> Vec<String>;

    /// Adds to the costs of the instruction that made `record`, which is the
    /// instruction's own record or one of its accesses or its branch. `costs`
    /// has one number per column.
    fn observe(&mut self, here: &Here, record: &Record, costs: &mut [u64]);

    /// Takes an event, to keep a model's threads and processes in step.
    fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        let _ = (thread, event);
    }
}

/// The instruction that is being charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Here {
    /// Who executes it.
    pub thread: ThreadId,
    /// In which address space.
    pub process: ProcessId,
    /// Where it lies.
    pub pc: GuestVa,
    /// Its length in bytes.
    pub len: u8,
    /// What it does to control flow.
    pub kind: InsnKind,
}

/// Plain counts: instructions, loads, stores, conditional branches and computed
/// transfers, by cachegrind's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlainCounts;

impl Observer for PlainCounts {
    fn columns(&self) -> Vec<String> {
        ["Ir", "Dr", "Dw", "Bc", "Bi"].map(String::from).into()
    }

    #[inline]
    fn observe(&mut self, here: &Here, record: &Record, costs: &mut [u64]) {
        let column = match record {
            Record::Insn { .. } => 0,
            Record::Load { .. } => 1,
            Record::Store { .. } => 2,
            Record::Branch { .. } => match here.kind {
                InsnKind::BRANCH => 3,
                InsnKind::JUMP_INDIRECT | InsnKind::CALL_INDIRECT | InsnKind::RETURN => 4,
                _ => return,
            },
            _ => return,
        };
        if let Some(cost) = costs.get_mut(column) {
            *cost += 1;
        }
    }
}

/// One program in one address space: a process and how often it called exec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Space {
    /// The process.
    pub process: ProcessId,
    /// How many programs it ran before this one.
    pub execs: u32,
}

/// Collects costs.
#[derive(Debug)]
pub struct Profile<O> {
    observer: O,
    columns: Vec<String>,
    threads: FastMap<ThreadId, Thread>,
    spaces: Vec<Space>,
    current: FastMap<ProcessId, u32>,
    pcs: Pcs,
    costs: Vec<u64>,
    calls: Calls,
}

/// One thread's place.
#[derive(Debug)]
struct Thread {
    process: ProcessId,
    /// The instruction at hand and its number, if there is one.
    here: Option<(Here, usize)>,
    /// What the instruction at hand has cost so far.
    pending: Vec<u64>,
    stack: calls::Stack,
}

/// All costs, per instruction and per call.
#[derive(Clone, Debug)]
pub struct Costs {
    /// The columns' names.
    pub columns: Vec<String>,
    /// Each instruction that ran, with its costs.
    pub insns: Vec<(Space, GuestVa, Vec<u64>)>,
    /// Each call, from one instruction to one target.
    pub calls: Vec<Call>,
    /// Calls too deep to be followed.
    pub calls_dropped: u64,
}

impl<O: Observer> Profile<O> {
    /// A profile of nothing yet.
    pub fn new(observer: O) -> Self {
        let columns = observer.columns();
        Self {
            calls: Calls::new(columns.len()),
            observer,
            columns,
            threads: FastMap::default(),
            spaces: Vec::new(),
            current: FastMap::default(),
            pcs: Pcs::default(),
            costs: Vec::new(),
        }
    }

    /// The costs and the observer. Complete after [`Sink::finish`].
    pub fn into_costs(self) -> (Costs, O) {
        let width = self.columns.len();
        let space = |number: ProcessId| self.spaces.get(number.index()).copied();
        let keys = self.pcs.keys().iter().enumerate();
        let insns = keys.map(|(number, &(owner, pc))| {
            let costs = self.costs.get(number * width..(number + 1) * width);
            (space(owner).unwrap_or_default(), pc, costs.unwrap_or_default().to_vec())
        });
        let costs = Costs {
            insns: insns.collect(),
            calls: self.calls.list(&self.spaces),
            calls_dropped: self.calls.dropped,
            columns: self.columns,
        };
        (costs, self.observer)
    }

    /// The number of the program that a process runs now.
    fn space(&mut self, process: ProcessId) -> u32 {
        let spaces = &mut self.spaces;
        *self.current.entry(process).or_insert_with(|| {
            spaces.push(Space { process, execs: 0 });
            spaces.len() as u32 - 1
        })
    }

    fn exec(&mut self, process: ProcessId) {
        let before = self.space(process);
        let execs = self.spaces.get(before as usize).map_or(0, |s| s.execs + 1);
        self.spaces.push(Space { process, execs });
        self.current.insert(process, self.spaces.len() as u32 - 1);
    }

    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        let width = self.columns.len();
        self.threads.entry(id).or_insert_with(|| Thread {
            process: ProcessId(0),
            here: None,
            pending: vec![0; width],
            stack: calls::Stack::new(width),
        })
    }
}

impl Thread {
    /// Books what the instruction at hand has cost.
    #[inline]
    fn book(&mut self, costs: &mut [u64]) {
        let Some((_, number)) = self.here else { return };
        let width = self.pending.len();
        let Some(row) = costs.get_mut(number * width..(number + 1) * width) else { return };
        let so_far = self.stack.so_far_mut().iter_mut();
        for ((cost, sum), pending) in row.iter_mut().zip(so_far).zip(&mut self.pending) {
            *cost += *pending;
            *sum += *pending;
            *pending = 0;
        }
    }
}

impl<O: Observer> Sink for Profile<O> {
    type Error = Infallible;

    fn begin(&mut self, _about: &About<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let process = self.thread(batch.thread).process;
        let space = ProcessId(self.space(process));
        let width = self.columns.len();
        let Some(thread) = self.threads.get_mut(&batch.thread) else { return Ok(true) };
        for record in batch.records {
            if let Record::Insn { pc, len, kind } = *record {
                thread.book(&mut self.costs);
                let number = self.pcs.number(space, pc);
                if self.costs.len() < (number + 1) * width {
                    self.costs.resize((number + 1) * width, 0);
                }
                thread.here = Some((Here { thread: batch.thread, process, pc, len, kind }, number));
            }
            let Some((here, _)) = thread.here else { continue };
            self.observer.observe(&here, record, &mut thread.pending);
            if let Record::Branch { taken: true, target } = *record {
                thread.book(&mut self.costs);
                match here.kind {
                    InsnKind::CALL | InsnKind::CALL_INDIRECT => {
                        let from = calls::From { space: space.0, pc: here.pc, len: here.len };
                        self.calls.enter(&mut thread.stack, from, target);
                    }
                    InsnKind::RETURN => self.calls.leave(&mut thread.stack, target),
                    _ => {}
                }
            }
        }
        Ok(true)
    }

    fn event(&mut self, id: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.observer.event(id, event);
        let thread = self.thread(id);
        let process = thread.process;
        match event {
            Event::ThreadStart(start) => thread.process = start.process,
            Event::Exec { .. } => {
                self.close(id);
                self.exec(process);
            }
            Event::Gap { .. } | Event::ModeSwitch { .. } | Event::ThreadEnd(_) => self.close(id),
            _ => {}
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        let ids: Vec<_> = self.threads.keys().copied().collect();
        for id in ids {
            self.close(id);
        }
        Ok(())
    }
}

impl<O> Profile<O> {
    /// Ends all calls of a thread: where it goes on, they are not known to be open.
    fn close(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.book(&mut self.costs);
            thread.here = None;
            self.calls.leave_all(&mut thread.stack);
        }
    }
}
