//! Follows processes through `exec`: takes hold of a thread that is about to replace its program, and
//! puts a new engine into the new program.
//!
//! One thread listens for requests; each is served by a thread of its own, because only the thread
//! that took hold of a tracee can act on it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ichnos_tap::{ExecSlot, ExecState};

use super::channel::{Channel, wait, wake};
use super::inject::{How, Order, inject};
use super::launch::is_x86_64;
use super::remote::wait_stop;
use crate::words;

/// How long to sleep at most before looking whether the work is over.
const PATIENCE: Duration = Duration::from_millis(200);

/// The listener.
#[derive(Debug)]
pub struct Follower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    channel: Arc<Channel>,
}

impl Follower {
    /// Begins to listen.
    pub fn start(channel: Arc<Channel>, how: How) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, ours) = (Arc::clone(&stop), Arc::clone(&channel));
        let name = "ichnos-follow".to_owned();
        let thread =
            std::thread::Builder::new().name(name).spawn(move || listen(&ours, &flag, how))?;
        Ok(Self { stop, thread: Some(thread), channel })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.channel.header().request();
        wake(&self.channel.header().requests);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(channel: &Arc<Channel>, stop: &AtomicBool, how: How) {
    let header = channel.header();
    while !stop.load(Ordering::Acquire) {
        let seen = header.requests.load(Ordering::Acquire);
        for (i, slot) in header.exec.iter().enumerate() {
            if !slot.advance(ExecState::POSTED, ExecState::SEEN) {
                continue;
            }
            let channel = Arc::clone(channel);
            let served = std::thread::Builder::new().spawn(move || serve(&channel, i, how));
            if served.is_err() {
                slot.set(ExecState::REFUSED);
                wake(&slot.state);
            }
        }
        wait(&header.requests, seen, PATIENCE);
    }
}

fn serve(channel: &Channel, index: usize, how: How) {
    let slot = &channel.header().exec[index];
    let tid = slot.thread.load(Ordering::Relaxed) as i32;
    let seized = seize(tid);
    let answer = if seized { ExecState::GRANTED } else { ExecState::REFUSED };
    slot.set(answer);
    wake(&slot.state);
    if !seized {
        return;
    }
    let order = order(channel, slot, how);
    await_exec(channel, tid, &order);
    slot.set(ExecState::FREE);
    wake(&slot.state);
}

fn order(channel: &Channel, slot: &ExecSlot, how: How) -> Order {
    let ids = [slot.process.load(Ordering::Relaxed), slot.traced.load(Ordering::Relaxed)];
    Order { tap: channel.fd(), tap_len: channel.len(), ids, follows: true, how }
}

fn seize(tid: i32) -> bool {
    let options = libc::PTRACE_O_TRACEEXEC as usize;
    // SAFETY: the request passes no memory.
    unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, options) == 0 }
}

/// Waits for the new program and injects; or for the stop that says that the call has failed.
fn await_exec(channel: &Channel, tid: i32, order: &Order) {
    loop {
        let mut status = 0;
        // A thread that is not the first of its process changes its number by `exec`, so wait
        // for whatever this thread holds.
        // SAFETY: `status` lives across the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if pid < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        if pid < 0 || !libc::WIFSTOPPED(status) {
            return;
        }
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        if event == libc::PTRACE_EVENT_EXEC {
            // The old program's threads are gone, with what they had begun.
            channel.header().submit_left(order.ids[0]);
            // A program that cannot be taken over runs on as it is.
            if !leave_call(pid) || !is_x86_64(pid) || inject(pid, order).is_err() {
                tell_untraced(channel, pid, order);
                detach(pid, 0);
            }
            return;
        }
        if event == 0 && signal == libc::SIGSTOP {
            detach(tid, 0);
            return;
        }
        // Another signal came first: pass it on.
        let pass = if event == 0 { signal as usize } else { 0 };
        // SAFETY: the request passes no memory.
        unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, pass) };
    }
}

/// The stop comes inside the call, which still has a result to write: brings the process to the
/// new program's first instruction.
fn leave_call(pid: i32) -> bool {
    // SAFETY: the requests pass no memory.
    let going = unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) == 0
            && libc::ptrace(libc::PTRACE_CONT, pid, 0, 0) == 0
    };
    going && wait_stop(pid).is_ok_and(|signal| signal == libc::SIGTRAP)
}

/// Says in the stream of a thread that its new program is not recorded.
fn tell_untraced(channel: &Channel, pid: i32, order: &Order) {
    if !order.how.traced {
        return;
    }
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let path = path.as_os_str().as_bytes();
    let mut item = Vec::new();
    item.extend(words::EXEC.to_le_bytes());
    item.extend((path.len() as u32).to_le_bytes());
    item.extend(path);
    item.extend(words::UNTRACED.to_le_bytes());
    item.extend(0u64.to_le_bytes());
    channel.put(order.ids, &item);
}

fn detach(pid: i32, signal: usize) {
    // SAFETY: the request passes no memory.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, signal) };
}
