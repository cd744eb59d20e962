//! The checker's rules about events: which may follow which, and what each one
//! does to the thread and the process it happens to.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    AccessFlags, Event, GuestVa, InsnKind, SignalInfo, ThreadId, ThreadStart, TrapInfo,
};

use super::pairs::{Complaint, Fresh};
use super::process::Process;
use super::rule::{Place, Rule};
use super::thread::kind_name;
use super::{Checker, Extent, Order};

/// What the kernel answers for calls that it will repeat (`ERESTARTSYS`,
/// `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`): the next
/// instruction may be the call itself.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];

impl Checker {
    pub(super) fn check_event(&mut self, id: ThreadId, event: &Event<'_>) {
        if let Event::ThreadStart(start) = event {
            return self.start(id, start);
        }
        let thread = self.alive(id);
        let fresh = if thread.fresh { Fresh::Yes } else { Fresh::No };
        thread.fresh = false;
        let place = thread.place();
        if thread.current.is_some_and(|c| c.branches_due != 0) {
            self.log.note(Rule::EventPlace, place, || {
                ("the transfer's branch record first".into(), "an event".into())
            });
        }
        let complaint = match *event {
            Event::SyscallReturn { number, result } => {
                if let Some(current) = self.alive(id).current.as_mut() {
                    current.again |= RESTARTS.contains(&result);
                }
                self.alive_pairs(id, |pairs| pairs.syscall_return(number, fresh))
            }
            Event::Syscall { number, .. } => self.syscall(id, number),
            Event::Signal(info) => self.signal(id, &info),
            Event::SignalReturn { pc } => self.signal_return(id, pc),
            Event::Trap(info) => self.trap(id, &info),
            Event::Marker { id: Event::APART, .. } => {
                self.apart = true;
                None
            }
            Event::ThreadCreate { child } => self.create(id, child),
            Event::ThreadJoin { child } => self.join(id, child),
            Event::Lock { op, kind, addr } => self.alive_pairs(id, |p| p.lock(op, kind, addr)),
            Event::Barrier { phase, addr } => self.alive_pairs(id, |p| p.barrier(phase, addr)),
            Event::Cond { op, addr } => self.alive_pairs(id, |p| p.cond(op, addr)),
            Event::Timestamp { ns } => self.alive_pairs(id, |p| p.timestamp(ns)),
            Event::ModeSwitch { mode } => {
                self.tear(id);
                self.alive_pairs(id, |p| p.mode(mode))
            }
            _ => {
                self.change(id, event);
                None
            }
        };
        if let Some((rule, expected, got)) = complaint {
            self.log.note(rule, place, || (expected, got));
        }
    }

    fn alive_pairs(
        &mut self,
        id: ThreadId,
        with: impl FnOnce(&mut super::pairs::Pairs) -> Option<Complaint>,
    ) -> Option<Complaint> {
        self.threads.get_mut(&id).and_then(|thread| with(&mut thread.pairs))
    }

    fn tear(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.tear();
        }
    }

    /// Events that change the thread's process or place and cannot be wrong by
    /// themselves.
    fn change(&mut self, id: ThreadId, event: &Event<'_>) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let process = self.processes.entry(thread.process).or_default();
        match event {
            Event::Map(map) => process.map(map),
            Event::Unmap { start, len } => process.unmap(*start, *len),
            Event::Exec { .. } => {
                process.exec();
                thread.next = None;
                thread.pairs.exec();
            }
            Event::Gap { .. } => thread.tear(),
            Event::ThreadEnd(_) => thread.ended = true,
            _ => {}
        }
    }

    fn start(&mut self, id: ThreadId, start: &ThreadStart) {
        let thread = self.threads.entry(id).or_insert_with(|| super::Thread::new(id));
        if thread.start.is_some() {
            self.log.note(Rule::ThreadStart, thread.place(), || {
                ("one start of the thread, as its first event".into(), "another".into())
            });
        }
        thread.start = Some(*start);
        thread.process = start.process;
        thread.next = None;
        let timed = self.config.order == Order::Time;
        let holdings = self.unborn.remove(&id);
        if let Some(process) = self.processes.get_mut(&start.process) {
            // Another thread of a process that is there already.
            process.unsure |= !timed;
            return;
        }
        let process = match (holdings, start.creator) {
            (Some(holdings), _) => Process::forked(holdings),
            (None, Some(_)) if !timed => {
                self.orphans.insert(id, start.process);
                Process::orphaned()
            }
            (None, _) => Process::default(),
        };
        self.processes.insert(start.process, process);
    }

    fn create(&mut self, id: ThreadId, child: ThreadId) -> Option<Complaint> {
        let thread = self.threads.get(&id)?;
        let process = self.processes.entry(thread.process).or_default();
        process.unsure |= self.config.order == Order::Any;
        let holdings = process.now.clone();
        match self.orphans.remove(&child).and_then(|p| self.processes.get_mut(&p)) {
            Some(orphan) => orphan.inherit_late(&holdings),
            None if !self.threads.contains_key(&child) => {
                self.unborn.insert(child, holdings);
            }
            None => {}
        }
        let before = self.created.insert(child, id)?;
        let expected = format!("thread {child} to be made once, by thread {before}");
        Some((Rule::ThreadCreate, expected, format!("made again by thread {id}")))
    }

    fn join(&mut self, id: ThreadId, child: ThreadId) -> Option<Complaint> {
        let before = self.joined.insert(child, id)?;
        let expected = format!("thread {child} to be joined once, by thread {before}");
        Some((Rule::ThreadJoin, expected, format!("joined again by thread {id}")))
    }

    fn syscall(&mut self, id: ThreadId, number: u64) -> Option<Complaint> {
        let kinds_known = self.promise.branches;
        let thread = self.threads.get_mut(&id)?;
        let kind = thread.current.map(|c| c.kind);
        let complaint = thread.pairs.syscall(number);
        let fits = kind == Some(InsnKind::SYSCALL) || kind.is_none() && thread.torn;
        if fits || !kinds_known {
            return complaint;
        }
        let got = kind.map_or_else(|| "none".into(), kind_name);
        Some((Rule::Syscall, "a system-call instruction before the call".into(), got))
    }

    fn signal(&mut self, id: ThreadId, info: &SignalInfo) -> Option<Complaint> {
        let known = self.promise.branches;
        let thread = self.threads.get_mut(&id)?;
        thread.pairs.signal();
        let next = thread.next;
        thread.next = known.then_some(info.handler);
        // The kernel starts an interrupted system call anew by stepping back to
        // its instruction; a string instruction can be interrupted between turns.
        let again = thread
            .current
            .filter(|c| c.kind == InsnKind::SYSCALL || thread.last_flags.has(AccessFlags::STRING))
            .is_some_and(|c| c.pc == info.interrupted);
        let expected = next.filter(|&next| next != info.interrupted && !again)?;
        let got = format!("an interruption at {}", info.interrupted);
        Some((Rule::Signal, format!("an interruption at {expected}"), got))
    }

    fn trap(&mut self, id: ThreadId, info: &TrapInfo) -> Option<Complaint> {
        let known = self.promise.branches;
        let thread = self.threads.get_mut(&id)?;
        let next = std::mem::replace(&mut thread.next, known.then_some(info.handler));
        let expected = next.filter(|&next| next != info.interrupted)?;
        let got = format!("a trap at {}", info.interrupted);
        Some((Rule::Trap, format!("a trap at {expected}"), got))
    }

    fn signal_return(&mut self, id: ThreadId, pc: GuestVa) -> Option<Complaint> {
        let known = self.promise.branches;
        let thread = self.threads.get_mut(&id)?;
        thread.next = known.then_some(pc);
        thread.pairs.signal_return()
    }

    /// Whether makers and made, joiners and joined agree, now that all is told.
    pub(super) fn check_family(&mut self) {
        debug_assert_eq!(self.config.extent, Extent::Whole);
        for (&child, &creator) in &self.created {
            let start = self.threads.get(&child).and_then(|t| t.start);
            let maker = self.threads.get(&creator);
            let place = maker.map_or(Place { thread: creator, insn: 0, pc: None }, |t| t.place());
            let got = match start {
                Some(start) if start.creator == Some(creator) => continue,
                Some(start) => format!("{:?}", start.creator),
                // A trace cut short may lack what comes after the making.
                None if self.apart || maker.is_some_and(|t| !t.ended) => continue,
                None => "no start".into(),
            };
            self.log.note(Rule::ThreadCreate, place, || {
                (format!("thread {child} to start with thread {creator} as creator"), got)
            });
        }
        let mut ids: Vec<_> = self.threads.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.check_creator(id);
        }
        for (child, joiner) in &self.joined {
            if !self.threads.contains_key(child) {
                let place = Place { thread: *joiner, insn: 0, pc: None };
                self.log.note(Rule::ThreadJoin, place, || {
                    ("a thread of this trace to be joined".into(), format!("thread {child}"))
                });
            }
        }
    }

    fn check_creator(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get(&id) else { return };
        let Some(creator) = thread.start.and_then(|s| s.creator) else { return };
        let torn = self.threads.get(&creator).is_some_and(|t| t.torn);
        let elsewhere = self.apart && !self.threads.contains_key(&creator);
        if self.created.contains_key(&id) || torn || elsewhere {
            return;
        }
        self.log.note(Rule::ThreadCreate, thread.place(), || {
            (format!("thread {creator} to tell that it made thread {id}"), "nothing".into())
        });
    }
}
