//! The events in a stream, as the engine wrote them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::borrow::Cow;

use ichnos_base::{Event, GapReason, GuestVa, ProcessId, SignalInfo, ThreadId, ThreadStart};

use crate::words::{self, NOBODY, u32_at, u64_at};

/// Something that happened to a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told<'a> {
    /// It begins.
    Start(ThreadStart),
    /// It has ended with this status.
    End(u64),
    /// It has ended its process with this status.
    EndAll(u64),
    /// A signal does what it does by default.
    Default(i32),
    /// It has made another thread.
    Create(ThreadId),
    /// It has waited for a process, by the system's number, and got its wait status.
    Reaped(u32, i32),
    /// The time.
    Time(u64),
    /// A system call: number and arguments.
    Syscall(u64, [u64; 6]),
    /// It has returned: number and result.
    Return(u64, i64),
    /// A handler is entered.
    Signal(SignalInfo),
    /// A handler has returned.
    SignalReturn(GuestVa),
    /// The process has a new program.
    Exec(Cow<'a, str>),
    /// A mapping is new.
    Map(Vma<'a>),
    /// Nothing lies there any more: first address and end.
    Unmap(u64, u64),
    /// What follows is not recorded.
    Untraced,
    /// So many instructions were not recorded, for this reason.
    Gap(u64, GapReason),
    /// It has waited for the end of another thread.
    Join(ThreadId),
    /// Synchronisation: a lock, condition variable or barrier.
    Sync(Event<'static>),
}

/// A mapping as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vma<'a> {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Where in its file it begins.
    pub offset: u64,
    /// As in [`words::map_bits`].
    pub bits: u64,
    /// Its file's path or its name.
    pub path: Cow<'a, str>,
}

impl<'a> Told<'a> {
    /// A plain event that is more than a note for the stream itself.
    pub fn plain(tag: u32, value: u64) -> Option<Self> {
        Some(match tag {
            words::END => Self::End(value),
            words::END_ALL => Self::EndAll(value),
            words::DEFAULT => Self::Default(value as i32),
            words::CREATE => Self::Create(ThreadId(value as u32)),
            words::SIGNAL_RETURN => Self::SignalReturn(GuestVa(value)),
            words::REAPED => Self::Reaped(value as u32, (value >> 32) as i32),
            words::TIME => Self::Time(value),
            words::UNTRACED => Self::Untraced,
            words::GAP if value & 1 == 0 => Self::Gap(value >> 1, GapReason::Window),
            words::GAP => Self::Gap(value >> 1, GapReason::Sampling),
            words::JOIN => Self::Join(ThreadId(value as u32)),
            _ => return None,
        })
    }

    /// A wide event; `None` if it cannot be understood.
    pub fn wide(tag: u32, bytes: &'a [u8]) -> Option<Self> {
        let number = |i: usize| u64_at(bytes, 8 * i);
        Some(match tag {
            words::START => {
                let id = |i: usize| u32_at(bytes, 4 * i);
                let creator = Some(id(1)?).filter(|&c| c != NOBODY).map(ThreadId);
                let process = ProcessId(id(0)?);
                Self::Start(ThreadStart { process, creator, os_pid: id(2)?, os_tid: id(3)? })
            }
            words::SYSCALL => {
                let mut args = [0; 6];
                for (i, arg) in args.iter_mut().enumerate() {
                    *arg = number(i + 1)?;
                }
                Self::Syscall(number(0)?, args)
            }
            words::RETURN => Self::Return(number(0)?, number(1)? as i64),
            words::SIGNAL => Self::Signal(SignalInfo {
                number: u32_at(bytes, 0)? as i32,
                code: u32_at(bytes, 4)? as i32,
                interrupted: GuestVa(number(1)?),
                handler: GuestVa(number(2)?),
            }),
            words::EXEC => Self::Exec(String::from_utf8_lossy(bytes)),
            words::MAP => Self::Map(Vma {
                start: number(0)?,
                end: number(1)?,
                offset: number(2)?,
                bits: number(3)?,
                path: path(bytes.get(32..)?),
            }),
            words::UNMAP => Self::Unmap(number(0)?, number(1)?),
            words::SYNC => Self::Sync(words::sync::event(number(0)?, GuestVa(number(1)?))?),
            _ => return None,
        })
    }
}

/// The kernel writes a newline in a path as `\012`, and escapes nothing else.
fn path(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("\\012") { Cow::Owned(text.replace("\\012", "\n")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_not_understood() {
        let bytes: Vec<u8> = (0..56).collect();
        assert!(matches!(Told::wide(words::SYSCALL, &bytes), Some(Told::Syscall(..))));
        assert_eq!(Told::wide(words::SYSCALL, &bytes[..55]), None);
        assert_eq!(Told::wide(words::MAP, &bytes[..31]), None);
        assert_eq!(Told::wide(words::FIRST_WIDE, &bytes), None);
        assert_eq!(Told::plain(words::LEFT, 1), None);
    }

    #[test]
    fn newlines_in_paths_come_back() {
        let mut bytes = vec![0; 32];
        bytes.extend(b"/a\\012b");
        let Some(Told::Map(vma)) = Told::wide(words::MAP, &bytes) else { panic!("a mapping") };
        assert_eq!(vma.path, "/a\nb");
    }
}
