//! A gdb server for machines: waits for a client, then runs the machine as the
//! client says until it detaches, kills, or the machine ends.
//!
//! Nothing here decides what runs: the machine keeps its own schedule and only
//! stops in it. What a client writes to registers or memory is its own doing.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod registers;
mod target;

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use gdbstub::common::{Signal, Tid};
use gdbstub::conn::ConnectionExt;
use gdbstub::stub::run_blocking::{BlockingEventLoop, Event, WaitForStopReasonError};
use gdbstub::stub::{DisconnectReason, GdbStub, MultiThreadStopReason};
use ichnos_base::{GuestPa, GuestVa};
use ichnos_isa_rv64::Csr;

use crate::cpu::Cpu;
use crate::debug::{Debug, Pause};
use crate::error::Error;
use target::{Stub, thread_id, watch_kind};

/// Instructions between two looks at the client, who may want to interrupt.
const POLL: u64 = 1_000_000;

/// Where a gdb client finds the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GdbAt {
    /// A port of this machine's loopback address.
    Port(u16),
    /// A socket in the file system, which is made for the purpose.
    Path(PathBuf),
}

/// How far a machine has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// It has run, or stopped for its debugger.
    On,
    /// It is at its end, with this status.
    Ended(u8),
}

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parting {
    /// The client is gone and the machine runs on alone.
    Detached,
    /// The client ended the machine.
    Killed,
    /// The machine came to its end.
    Ended,
}

/// A machine that can be debugged. Threads are harts in system mode.
pub(crate) trait Debuggee {
    type Error;

    fn debug(&mut self) -> &mut Debug;
    fn threads(&self) -> Vec<usize>;
    /// The thread whose turn it is.
    fn current(&self) -> usize;
    fn describe(&self, thread: usize) -> String;
    fn retired(&self) -> u64;
    fn cpu(&self, thread: usize) -> Option<&Cpu>;
    fn cpu_mut(&mut self, thread: usize) -> Option<&mut Cpu>;
    fn csr(&self, thread: usize, csr: Csr) -> Option<u64>;
    fn set_csr(&mut self, thread: usize, csr: Csr, value: u64) -> Option<()>;
    fn privilege(&self, thread: usize) -> u64;
    fn translate(&mut self, thread: usize, at: GuestVa) -> Option<GuestPa>;
    /// Reads memory as a thread sees it, and says how many bytes there were.
    fn read(&mut self, thread: usize, at: GuestVa, bytes: &mut [u8]) -> usize;
    /// False if part of it is not memory.
    fn write(&mut self, thread: usize, at: GuestVa, bytes: &[u8]) -> bool;
    /// Runs for a while: to the next pause, or to a place between turns.
    fn advance(&mut self) -> Result<Advance, Self::Error>;
}

type Line = Box<dyn ConnectionExt<Error = std::io::Error>>;

/// Waits for a client.
pub(crate) fn accept(at: &GdbAt) -> Result<Line, Error> {
    let fail = |source| Error::Host { what: "a connection for gdb", source };
    match at {
        GdbAt::Port(port) => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).map_err(fail)?;
            let (stream, _) = listener.accept().map_err(fail)?;
            // Packets are small and each waits for its answer.
            stream.set_nodelay(true).map_err(fail)?;
            Ok(Box::new(stream))
        }
        GdbAt::Path(path) => {
            let listener = UnixListener::bind(path).map_err(fail)?;
            let accepted = listener.accept().map_err(fail);
            // Nobody else shall find it: one client, one session.
            let _ = std::fs::remove_file(path);
            Ok(Box::new(accepted?.0))
        }
    }
}

/// Serves a client until it or the machine ends.
pub(crate) fn serve<D: Debuggee>(machine: &mut D, line: Line) -> Result<Parting, D::Error> {
    let mut stub = Stub::new(machine);
    match GdbStub::new(line).run_blocking::<Session<'_, D>>(&mut stub) {
        Ok(DisconnectReason::Kill) => Ok(Parting::Killed),
        Ok(DisconnectReason::TargetExited(_) | DisconnectReason::TargetTerminated(_)) => {
            Ok(Parting::Ended)
        }
        Ok(DisconnectReason::Disconnect) => Ok(Parting::Detached),
        // A client that vanishes leaves the machine alone. So does one that
        // breaks the protocol.
        Err(error) => error.into_target_error().map_or(Ok(Parting::Detached), Err),
    }
}

/// The loop that runs the machine between packets.
struct Session<'a, D>(std::marker::PhantomData<&'a mut D>);

type Stop = MultiThreadStopReason<u64>;

impl<'a, D: Debuggee> BlockingEventLoop for Session<'a, D> {
    type Target = Stub<'a, D>;
    type Connection = Line;
    type StopReason = Stop;

    fn wait_for_stop_reason(
        stub: &mut Stub<'a, D>,
        line: &mut Line,
    ) -> Result<Event<Stop>, WaitForStopReasonError<D::Error, std::io::Error>> {
        let mut looked = stub.machine.retired();
        loop {
            let before = stub.machine.retired();
            match stub.machine.advance().map_err(WaitForStopReasonError::Target)? {
                Advance::Ended(status) => return Ok(Event::TargetStopped(Stop::Exited(status))),
                Advance::On => {}
            }
            if let Some(pause) = stub.machine.debug().pause() {
                return Ok(Event::TargetStopped(reason(pause)));
            }
            let now = stub.machine.retired();
            if now == before || now - looked >= POLL {
                looked = now;
                if line.peek().map_err(WaitForStopReasonError::Connection)?.is_some() {
                    let byte = line.read().map_err(WaitForStopReasonError::Connection)?;
                    return Ok(Event::IncomingData(byte));
                }
            }
        }
    }

    fn on_interrupt(stub: &mut Stub<'a, D>) -> Result<Option<Stop>, D::Error> {
        let tid = thread_id(stub.machine.current());
        Ok(Some(Stop::SignalWithThread { tid, signal: Signal::SIGINT }))
    }
}

/// A pause in the protocol's words.
fn reason(pause: Pause) -> Stop {
    let tid = |thread: usize| -> Tid { thread_id(thread) };
    match pause {
        Pause::Breakpoint { thread } => Stop::SwBreak(tid(thread)),
        Pause::Watched { thread, watch } => {
            Stop::Watch { tid: tid(thread), kind: watch_kind(watch.what), addr: watch.start }
        }
        Pause::Stepped { thread } => {
            Stop::SignalWithThread { tid: tid(thread), signal: Signal::SIGTRAP }
        }
    }
}
