//! The rules of `docs/EVENTS.md`, checked on a recording item by item. Written
//! apart from the collectors and from `ichnos check`, so that neither can hide
//! the other's mistakes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashMap};

use ichnos_base::{
    AccessFlags, Event, GuestVa, InsnKind, Map, ProcessId, Protection, Record, ThreadId,
};

use crate::{Item, Recording};

/// Everything found wrong; the first hundred, in words.
#[must_use]
pub fn check(recording: &Recording) -> Vec<String> {
    let mut checker = Checker { found: recording.complaints.clone(), ..Checker::default() };
    for (thread, item) in &recording.items {
        checker.item(*thread, item);
        if checker.found.len() >= 100 {
            break;
        }
    }
    checker.end();
    if recording.finished != 1 {
        checker.found.push(format!("the end was told {} times", recording.finished));
    }
    checker.found
}

#[derive(Default)]
struct Checker {
    found: Vec<String>,
    threads: HashMap<ThreadId, Thread>,
    memory: HashMap<ProcessId, Memory>,
    code: HashMap<(ProcessId, u64), Vec<u8>>,
    last: Option<ThreadId>,
    time: u64,
    place: usize,
}

/// Mappings by start: end and protection.
#[derive(Default)]
struct Memory(BTreeMap<u64, (u64, Protection)>);

#[derive(Default)]
struct Thread {
    process: ProcessId,
    /// Where the next instruction must be, if that is known.
    next: Option<u64>,
    /// Another place where it may be: a repeated call or string instruction.
    or_again: Option<u64>,
    /// The kind of the current instruction, and whether its branch came.
    current: Option<(InsnKind, bool, u64)>,
    call: Option<u64>,
    ended: bool,
    stamped: bool,
}

impl Memory {
    fn map(&mut self, start: u64, end: u64, protection: Protection) {
        self.unmap(start, end);
        self.0.insert(start, (end, protection));
    }

    fn unmap(&mut self, start: u64, end: u64) {
        let touched: Vec<_> =
            self.0.range(..end).filter(|(_, v)| v.0 > start).map(|(k, v)| (*k, *v)).collect();
        for (from, (to, protection)) in touched {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, (start, protection));
            }
            if to > end {
                self.0.insert(end, (to, protection));
            }
        }
    }

    /// Whether all of `[addr, addr + len)` is mapped with `wanted`.
    fn allows(&self, addr: u64, len: u64, wanted: Protection) -> bool {
        let mut at = addr;
        let end = addr.saturating_add(len);
        while at < end {
            match self.0.range(..=at).next_back() {
                Some((_, (to, protection))) if *to > at && protection.has(wanted) => at = *to,
                _ => return false,
            }
        }
        true
    }
}

impl Checker {
    fn complain(&mut self, thread: ThreadId, text: &str) {
        self.found.push(format!("item {}, thread {thread}: {text}", self.place));
    }

    fn item(&mut self, id: ThreadId, item: &Item) {
        self.place += 1;
        if !self.threads.contains_key(&id)
            && !matches!(item, Item::Event(e) if matches!(e.event(), Event::ThreadStart(_)))
        {
            self.complain(id, "something comes before its start");
        }
        if self.threads.get(&id).is_some_and(|t| t.ended) {
            self.complain(id, "something comes after its end");
        }
        let switched = self.last.replace(id) != Some(id);
        let timely = matches!(item, Item::Event(e) if matches!(e.event(), Event::Timestamp { .. } | Event::ThreadStart(_)));
        if switched && !timely {
            self.complain(id, "a switch of threads without a timestamp");
        }
        match item {
            Item::Record(record, _) => self.record(id, record),
            Item::Event(event) => self.event(id, &event.event()),
            Item::Code { process, pc, bytes } => {
                self.code.insert((*process, pc.0), bytes.clone());
            }
        }
    }

    fn record(&mut self, id: ThreadId, record: &Record) {
        if !self.threads.get(&id).is_some_and(|t| t.stamped) {
            self.complain(id, "a record before the first timestamp");
        }
        match *record {
            Record::Insn { len, kind, pc } => self.insn(id, len, kind, pc.0),
            Record::Load { addr, size, .. } => self.access(id, addr, size, Protection::READ),
            Record::Store { addr, size, .. } => self.access(id, addr, size, Protection::WRITE),
            Record::Prefetch { .. } | Record::Flush { .. } => {}
            Record::Branch { taken, target } => self.branch(id, taken, target.0),
        }
        if let Record::Load { flags, .. } | Record::Store { flags, .. } = record
            && flags.has(AccessFlags::STRING)
            && let Some(thread) = self.threads.get_mut(&id)
        {
            // A signal may come between its iterations.
            thread.or_again = thread.current.map(|(_, _, pc)| pc);
        }
    }

    fn insn(&mut self, id: ThreadId, len: u8, kind: InsnKind, pc: u64) {
        self.branch_missing(id);
        let thread = self.threads.entry(id).or_default();
        let (next, process) = (thread.next, thread.process);
        if next.is_some_and(|next| next != pc) && thread.or_again != Some(pc) {
            self.complain(id, &format!("instruction at {pc:#x}, but {next:x?} is next"));
        }
        let thread = self.threads.entry(id).or_default();
        thread.next = Some(pc.wrapping_add(u64::from(len)));
        thread.or_again = None;
        thread.current = Some((kind, false, pc));
        match self.code.get(&(process, pc)).map(Vec::len) {
            Some(told) if told >= usize::from(len) => {}
            told => self.complain(id, &format!("code at {pc:#x}: {told:?} bytes told of {len}")),
        }
        let memory = self.memory.entry(process).or_default();
        if !memory.allows(pc, u64::from(len), Protection::EXEC) {
            self.complain(id, &format!("{pc:#x} is not executable memory"));
        }
    }

    fn branch_missing(&mut self, id: ThreadId) {
        if let Some((kind, false, pc)) = self.threads.get(&id).and_then(|t| t.current)
            && kind.transfers()
        {
            self.complain(id, &format!("no branch after the transfer at {pc:#x}"));
        }
    }

    fn access(&mut self, id: ThreadId, addr: GuestVa, size: u32, wanted: Protection) {
        let thread = self.threads.entry(id).or_default();
        let (current, process) = (thread.current, thread.process);
        if current.is_none_or(|(_, branched, _)| branched) {
            self.complain(id, "an access outside an instruction");
        }
        let memory = self.memory.entry(process).or_default();
        if !memory.allows(addr.0, u64::from(size), wanted) {
            self.complain(id, &format!("{size} bytes at {addr} may not be accessed so"));
        }
    }

    fn branch(&mut self, id: ThreadId, taken: bool, target: u64) {
        let thread = self.threads.entry(id).or_default();
        let current = thread.current;
        if taken {
            thread.next = Some(target);
        }
        match &mut thread.current {
            Some((kind, branched, _)) if kind.transfers() && !*branched => *branched = true,
            _ => self.complain(id, &format!("a branch after {current:?}")),
        }
        if let Some((kind, ..)) = current
            && kind != InsnKind::BRANCH
            && !taken
        {
            self.complain(id, "an unconditional transfer was not taken");
        }
    }

    fn event(&mut self, id: ThreadId, event: &Event<'_>) {
        let process = self.threads.get(&id).map_or(ProcessId(0), |t| t.process);
        match *event {
            Event::ThreadStart(start) => {
                let thread = Thread { process: start.process, ..Thread::default() };
                if self.threads.insert(id, thread).is_some() {
                    self.complain(id, "it starts twice");
                }
            }
            Event::ThreadEnd(_) => {
                self.branch_missing(id);
                self.threads.entry(id).or_default().ended = true;
            }
            Event::Timestamp { ns } => {
                if ns <= self.time {
                    self.complain(id, &format!("time {ns} after {}", self.time));
                }
                self.time = ns;
                self.threads.entry(id).or_default().stamped = true;
            }
            Event::Map(map) => self.map(process, &map),
            Event::Unmap { start, len } => {
                let memory = self.memory.entry(process).or_default();
                memory.unmap(start.0, start.0.wrapping_add(len));
            }
            Event::Exec { .. } => {
                self.memory.remove(&process);
                self.code.retain(|(owner, _), _| *owner != process);
                let thread = self.threads.entry(id).or_default();
                (thread.next, thread.call) = (None, None);
            }
            Event::Gap { .. } => self.threads.entry(id).or_default().next = None,
            _ => self.transfer_event(id, event),
        }
    }

    fn map(&mut self, process: ProcessId, map: &Map<'_>) {
        let end = map.start.0.wrapping_add(map.len);
        self.memory.entry(process).or_default().map(map.start.0, end, map.protection);
    }

    /// Events that say where execution goes on.
    fn transfer_event(&mut self, id: ThreadId, event: &Event<'_>) {
        let thread = self.threads.entry(id).or_default();
        let mut wrong = None;
        match *event {
            Event::Syscall { number, .. } => {
                if !matches!(thread.current, Some((InsnKind::SYSCALL, ..))) {
                    wrong = Some("a system call without its instruction".to_owned());
                }
                thread.call = Some(number);
            }
            Event::SyscallReturn { number, result } => {
                if thread.call.take() != Some(number) {
                    wrong = Some(format!("system call {number} returns but was not made"));
                }
                if matches!(result, -516..=-512) {
                    thread.or_again = thread.current.map(|(_, _, pc)| pc);
                }
            }
            Event::Signal(info) => {
                let at = info.interrupted.0;
                if thread.next.is_some_and(|next| next != at) && thread.or_again != Some(at) {
                    wrong = Some(format!("a signal at {at:#x}, but {:x?} is next", thread.next));
                }
                thread.next = Some(info.handler.0);
                thread.or_again = None;
            }
            Event::Trap(info) => {
                let at = info.interrupted.0;
                if thread.next.is_some_and(|next| next != at) {
                    wrong = Some(format!("a trap at {at:#x}, but {:x?} is next", thread.next));
                }
                thread.next = Some(info.handler.0);
            }
            Event::SignalReturn { pc } => {
                if thread.call.take() != Some(15) {
                    wrong = Some("a handler returns without rt_sigreturn".to_owned());
                }
                thread.next = Some(pc.0);
            }
            _ => {}
        }
        if let Some(text) = wrong {
            self.complain(id, &text);
        }
    }

    fn end(&mut self) {
        let open: Vec<_> =
            self.threads.iter().filter(|(_, t)| !t.ended).map(|(id, _)| *id).collect();
        for id in open {
            self.complain(id, "its end is missing");
        }
    }
}

#[cfg(test)]
mod tests {
    use ichnos_base::{EndStatus, MapKind, Sink, ThreadStart};

    use super::*;

    /// A good recording of three instructions, with one thing changed by `spoil`.
    fn found(spoil: impl Fn(&mut Vec<Event<'static>>, &mut Vec<Record>)) -> Vec<String> {
        let map = Map {
            start: GuestVa(0x1000),
            len: 0x1000,
            protection: Protection(5),
            kind: MapKind::IMAGE,
            offset: ichnos_base::FileOff(0),
            bias: 0,
            path: "",
            build_id: &[],
        };
        let mut events = vec![
            Event::ThreadStart(ThreadStart::default()),
            Event::Map(map),
            Event::Timestamp { ns: 5 },
        ];
        let mut records = vec![
            Record::insn(GuestVa(0x1000), 2, InsnKind::OTHER),
            Record::load(GuestVa(0x1100), 8),
            Record::insn(GuestVa(0x1002), 2, InsnKind::JUMP),
            Record::branch(true, GuestVa(0x1010)),
            Record::insn(GuestVa(0x1010), 1, InsnKind::OTHER),
        ];
        spoil(&mut events, &mut records);
        let mut recording = Recording::new();
        let thread = ThreadId(0);
        for event in &events {
            recording.event(thread, event).unwrap();
        }
        for (pc, len) in [(0x1000, 2), (0x1002, 2), (0x1010, 1)] {
            let code = ichnos_base::Code {
                process: ProcessId(0),
                pc: GuestVa(pc),
                bytes: &[0x90; 2][..len],
            };
            recording.code(thread, &code).unwrap();
        }
        let batch = ichnos_base::Batch::new(thread, 0, &records);
        Sink::records(&mut recording, &batch).unwrap();
        recording.event(thread, &Event::ThreadEnd(EndStatus::Exited(0))).unwrap();
        recording.finish().unwrap();
        check(&recording)
    }

    #[test]
    fn a_good_recording_passes() {
        assert_eq!(found(|_, _| {}), [] as [String; 0]);
    }

    /// One way to make a recording bad.
    type Spoil = fn(&mut Vec<Event<'static>>, &mut Vec<Record>);

    #[test]
    fn what_is_wrong_is_found() {
        let spoils: [(&str, Spoil); 7] = [
            ("is next", |_, r| r[4] = Record::insn(GuestVa(0x1011), 1, InsnKind::OTHER)),
            ("no branch", |_, r| r.truncate(3)),
            ("a branch after", |_, r| r.insert(2, Record::branch(true, GuestVa(0x1002)))),
            ("may not be accessed", |_, r| r[1] = Record::store(GuestVa(0x1100), 8)),
            ("may not be accessed", |_, r| r[1] = Record::load(GuestVa(0x1ffc), 8)),
            ("time", |e, _| e.push(Event::Timestamp { ns: 5 })),
            ("before its start", |e, _| *e = e.split_off(1)),
        ];
        for (words, spoil) in spoils {
            let found = found(spoil);
            assert!(found.iter().any(|f| f.contains(words)), "{words}: {found:?}");
        }
    }
}
