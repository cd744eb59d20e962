//! Making, replacing, awaiting and ending threads and processes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use ichnos_base::{EndStatus, ProcessId, ThreadId};
use rustix::io::Errno;

use super::{Answer, Call};
use crate::user::kernel::News;
use crate::user::loader::{self, Command, host_path};
use crate::user::process::{Process, Thread, Wait};
use crate::user::signal::{Action, Info, Queue, SIGCHLD, SIGNALS, info_bytes};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const WNOHANG: u64 = 1;
const WSTOPPED: u64 = 2;
const WEXITED: u64 = 4;
const WNOWAIT: u64 = 0x100_0000;
const SETPGID: u64 = 154;
const SETSID: u64 = 157;
/// Arguments and environment together, as on Linux.
const MOST_ARGUMENTS: usize = 2 << 20;

/// What `clone` and `clone3` ask for.
struct Birth {
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

impl Call<'_> {
    pub(super) fn exit(&mut self) -> Answer {
        Answer::ExitThread(EndStatus::Exited((self.args[0] & 0xff) as i32))
    }

    pub(super) fn exit_group(&mut self) -> Answer {
        Answer::ExitProcess(EndStatus::Exited((self.args[0] & 0xff) as i32))
    }

    pub(super) fn clone_(&mut self) -> Result<Answer, Errno> {
        let [flags, stack, parent_tid, tls, child_tid, _] = self.args;
        self.give_birth(&Birth { flags, stack, parent_tid, child_tid, tls })
    }

    pub(super) fn clone3(&mut self) -> Result<Answer, Errno> {
        let [va, size, ..] = self.args;
        if size < 64 {
            return Err(Errno::INVAL);
        }
        let mut view = self.view();
        let mut word = |n: u64| view.read_u64(va.wrapping_add(8 * n));
        let (flags, child_tid, parent_tid) = (word(0)?, word(2)?, word(3)?);
        let (stack, stack_size, tls) = (word(5)?, word(6)?, word(7)?);
        let stack = if stack == 0 { 0 } else { stack.wrapping_add(stack_size) };
        self.give_birth(&Birth { flags, stack, parent_tid, child_tid, tls })
    }

    fn give_birth(&mut self, birth: &Birth) -> Result<Answer, Errno> {
        let tid = self.kernel.take_pid();
        let process = if birth.flags & CLONE_THREAD != 0 {
            self.process().threads += 1;
            self.kernel.threads[self.thread].process
        } else {
            self.fork(tid)
        };
        let parent = &self.kernel.threads[self.thread];
        let creator = parent.id;
        let id = ThreadId(self.kernel.threads.len() as u32);
        let mut child = Thread::new(id, tid, process);
        child.cpu.copy_registers(&parent.cpu);
        child.blocked = parent.blocked;
        child.cpu.set_x(10, 0);
        if birth.stack != 0 {
            child.cpu.set_x(2, birth.stack);
        }
        if birth.flags & CLONE_SETTLS != 0 {
            child.cpu.set_x(4, birth.tls);
        }
        if birth.flags & CLONE_CHILD_CLEARTID != 0 {
            child.clear_tid = birth.child_tid;
        }
        let index = self.kernel.threads.len();
        self.kernel.threads.push(child);
        if birth.flags & CLONE_PARENT_SETTID != 0 {
            self.view().write_u32(birth.parent_tid, tid)?;
        }
        if birth.flags & CLONE_CHILD_SETTID != 0 {
            self.kernel.view(index).write_u32(birth.child_tid, tid)?;
        }
        self.kernel.news.push(News::Created { creator, child: id });
        let t = &mut self.kernel.threads[self.thread];
        t.cpu.set_x(10, tid.into());
        if birth.flags & (CLONE_VFORK | CLONE_THREAD) == CLONE_VFORK {
            t.wait = Wait::Vfork { child: tid };
        }
        debug_assert!(birth.flags & CLONE_THREAD == 0 || birth.flags & CLONE_VM != 0);
        Ok(Answer::Set)
    }

    /// A copy of this process; the result is its index.
    fn fork(&mut self, pid: u32) -> usize {
        let space = self.view().fork();
        let id = ProcessId(self.kernel.processes.len() as u32);
        let parent = self.process();
        let child = Process {
            id,
            pid,
            parent: parent.pid,
            space,
            files: parent.files.clone(),
            actions: parent.actions,
            program: parent.program.clone(),
            threads: 1,
            ended: None,
            reaped: false,
            group: parent.group,
            stopped: None,
            stop_told: false,
            pending: Queue::default(),
            alarm: None,
            timers: Vec::new(),
        };
        self.kernel.processes.push(child);
        id.index()
    }

    /// A list of texts that ends with a zero pointer.
    fn texts(&mut self, mut va: u64) -> Result<Vec<Vec<u8>>, Errno> {
        let mut texts = Vec::new();
        let mut total = 0;
        let mut view = self.view();
        while va != 0 {
            let text = view.read_u64(va)?;
            if text == 0 {
                break;
            }
            let text = view.read_text(text)?;
            total += text.len() + 9;
            if total > MOST_ARGUMENTS {
                return Err(Errno::TOOBIG);
            }
            texts.push(text);
            va += 8;
        }
        Ok(texts)
    }

    pub(super) fn execve(&mut self) -> Result<Answer, Errno> {
        let [path, args, env, ..] = self.args;
        let place = self.place(-100i64 as u64, path)?;
        let mut args = self.texts(args)?;
        let env = self.texts(env)?;
        let mut file = place.path;
        let head =
            std::fs::read(&file).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::NOENT))?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
            let mut words =
                line.splitn(2, |&b| b == b' ').map(<[u8]>::trim_ascii).filter(|w| !w.is_empty());
            let interpreter = words.next().ok_or(Errno::NOEXEC)?.to_vec();
            let script = file.as_os_str().as_bytes().to_vec();
            let tail = args.into_iter().skip(1);
            args = [interpreter.clone()]
                .into_iter()
                .chain(words.map(<[u8]>::to_vec))
                .chain([script])
                .chain(tail)
                .collect();
            let interpreter = PathBuf::from(std::ffi::OsStr::from_bytes(&interpreter));
            file = host_path(self.kernel.sysroot.as_deref(), &interpreter);
        }
        if !loader::is_program(&file) {
            return Err(Errno::NOEXEC);
        }
        self.replace(Command { file, args, env })
    }

    /// Replaces the process's program. From here on failure is the end of it.
    fn replace(&mut self, command: Command) -> Result<Answer, Errno> {
        let process = self.kernel.threads[self.thread].process;
        for (n, t) in self.kernel.threads.iter_mut().enumerate() {
            if t.process == process && n != self.thread {
                t.wait = Wait::Ended;
            }
        }
        self.view().clear();
        let p = self.process();
        p.threads = 1;
        p.timers.clear();
        p.program = command.file.canonicalize().unwrap_or_else(|_| command.file.clone());
        for file in &mut p.files {
            if file.as_ref().is_some_and(|f| f.close_on_exec) {
                *file = None;
            }
        }
        let ignored = |a: &Action| if a.handler == 1 { *a } else { Action::default() };
        let actions: [Action; SIGNALS] = std::array::from_fn(|n| ignored(&p.actions[n]));
        p.actions = actions;
        let pid = p.pid;
        let t = &mut self.kernel.threads[self.thread];
        t.cpu.reset_registers();
        t.clear_tid = 0;
        self.kernel.release_vfork(pid);
        if self.kernel.load(self.thread, &command).is_err() {
            return Ok(Answer::ExitProcess(EndStatus::Killed(9)));
        }
        Ok(Answer::Set)
    }

    pub(super) fn wait4(&mut self) -> Result<Answer, Errno> {
        let [which, status_at, options, usage_at, ..] = self.args;
        let group = self.process().group;
        let whom = match which as i32 {
            -1 => Whom::Anyone,
            0 => Whom::Group(group),
            n @ ..-1 => Whom::Group(n.unsigned_abs()),
            n => Whom::One(n as u32),
        };
        let Some((index, change)) = self.changed_child(whom, options | WEXITED)? else {
            return Ok(nobody_yet(options));
        };
        let child = &mut self.kernel.processes[index];
        let pid = child.pid;
        let status = match change {
            Change::Ended(EndStatus::Exited(code)) => (code as u32 & 0xff) << 8,
            Change::Ended(EndStatus::Killed(signal)) => signal as u32 & 0x7f,
            Change::Ended(_) => 0,
            Change::Stopped(signal) => signal << 8 | 0x7f,
        };
        child.note(change);
        if status_at != 0 {
            self.view().write_u32(status_at, status)?;
        }
        if usage_at != 0 {
            self.view().write(usage_at, &[0; 144])?;
        }
        Ok(Answer::Value(pid.into()))
    }

    pub(super) fn waitid(&mut self) -> Result<Answer, Errno> {
        let [kind, id, info_at, options, usage_at, _] = self.args;
        let whom = match kind {
            0 => Whom::Anyone,
            1 => Whom::One(id as u32),
            2 if id == 0 => Whom::Group(self.process().group),
            2 => Whom::Group(id as u32),
            3 => Whom::One(self.process_of(id)?),
            _ => return Err(Errno::INVAL),
        };
        let found = self.changed_child(whom, options)?;
        let Some((index, change)) = found else {
            if options & WNOHANG != 0 && info_at != 0 {
                self.view().write(info_at, &[0; 128])?;
            }
            return Ok(nobody_yet(options));
        };
        let child = &mut self.kernel.processes[index];
        let pid = u64::from(child.pid);
        let (code, status) = match change {
            Change::Ended(EndStatus::Killed(signal)) => (2, signal),
            Change::Ended(EndStatus::Exited(code)) => (1, code),
            Change::Ended(_) => (1, 0),
            Change::Stopped(signal) => (5, signal as i32),
        };
        if options & WNOWAIT == 0 {
            child.note(change);
        }
        if info_at != 0 {
            let extra = u64::from(status as u32);
            let bytes = info_bytes(&Info { signal: SIGCHLD, code, value: pid, extra });
            self.view().write(info_at, &bytes)?;
        }
        if usage_at != 0 {
            self.view().write(usage_at, &[0; 144])?;
        }
        Ok(Answer::Value(0))
    }

    /// A child that ended or stopped and that this process has not heard of.
    fn changed_child(
        &mut self,
        whom: Whom,
        options: u64,
    ) -> Result<Option<(usize, Change)>, Errno> {
        let own = self.process().pid;
        let mine = |p: &Process| {
            let meant = match whom {
                Whom::Anyone => true,
                Whom::One(pid) => p.pid == pid,
                Whom::Group(group) => p.group == group,
            };
            p.parent == own && !p.reaped && meant
        };
        let children = &self.kernel.processes;
        if !children.iter().any(mine) {
            return Err(Errno::CHILD);
        }
        let change = |p: &Process| match (p.ended, p.stopped) {
            (Some(status), _) if options & WEXITED != 0 => Some(Change::Ended(status)),
            (None, Some(signal)) if options & WSTOPPED != 0 && !p.stop_told => {
                Some(Change::Stopped(signal))
            }
            _ => None,
        };
        let mut mine = children.iter().enumerate().filter(|(_, p)| mine(p));
        Ok(mine.find_map(|(n, p)| change(p).map(|c| (n, c))))
    }

    /// Process groups and sessions; a session is its first process's group.
    pub(super) fn groups(&mut self, number: u64) -> Result<u64, Errno> {
        let [pid, group, ..] = self.args;
        let own = self.process().pid;
        let pid = if matches!(number, 157) || pid == 0 { own } else { pid as u32 };
        let found = |p: &&mut Process| p.pid == pid && !p.reaped;
        let process = self.kernel.processes.iter_mut().find(found).ok_or(Errno::SRCH)?;
        match number {
            SETPGID => process.group = if group == 0 { pid } else { group as u32 },
            SETSID => process.group = pid,
            _ => return Ok(process.group.into()),
        }
        Ok(if number == SETSID { pid.into() } else { 0 })
    }
}

/// Whose end is waited for.
#[derive(Clone, Copy)]
enum Whom {
    Anyone,
    One(u32),
    Group(u32),
}

/// What happened to a child.
#[derive(Clone, Copy)]
enum Change {
    Ended(EndStatus),
    Stopped(u32),
}

impl Process {
    /// Its parent has heard of a change.
    fn note(&mut self, change: Change) {
        match change {
            Change::Ended(_) => self.reaped = true,
            Change::Stopped(_) => self.stop_told = true,
        }
    }
}

fn nobody_yet(options: u64) -> Answer {
    if options & WNOHANG != 0 { Answer::Value(0) } else { Answer::Wait(Wait::Child) }
}
