//! What is noted comes back, and damaged notes give no messages.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    EndStatus, GuestVa, MapKind, Mode, ProcessId, Protection, Register, SignalInfo, ThreadId,
    ThreadStart,
};
use ichnos_rt::Context;

use super::super::maps::Mapped;
use super::super::message::{Moment, Where};
use super::*;

/// A message of each kind but those that have copies, and of each kind of what is in them.
fn messages() -> Vec<Message> {
    let (lane, outer, inner) = (Context(7), Context(8), Context(u32::MAX));
    let start = ThreadStart {
        process: ProcessId(3),
        creator: Some(ThreadId(2)),
        os_pid: 4711,
        os_tid: 4712,
    };
    let pc = GuestVa(0x7fff_ffff_f123);
    let mapped = Mapped {
        start: 0x5555_5555_4000,
        len: 4096,
        protection: Protection(5),
        kind: MapKind::IMAGE,
        offset: 8192,
        bias: u64::MAX,
        path: "/tmp/ü x".into(),
        build_id: vec![0, 255, 3],
    };
    let info = SignalInfo { number: 11, code: -6, interrupted: pc, handler: GuestVa(1) };
    let mut all = vec![
        Message::Start { thread: 1, start, lane, like: None },
        Message::Start {
            thread: 2,
            start: ThreadStart { creator: None, ..start },
            lane,
            like: Some(1),
        },
        Message::Exec { thread: 1, path: String::new() },
        Message::Program { process: 9, images: Images::default() },
        Message::Words { thread: 1, lane, buffer: 1023, to: 1 << 40, last: true },
        Message::Words { thread: 1, lane, buffer: 0, to: 0, last: false },
        Message::Create { thread: 1, child: 2 },
        Message::Left { thread: 1, outer },
        Message::Starved {},
        Message::Stamp { thread: 1, ns: 12 },
        Message::Maps { thread: 1, gone: vec![], maps: vec![mapped.clone(), mapped] },
        Message::Turnover { thread: 1, moment: Moment { ns: 5, cpu: Some(1), starved: true } },
        Message::Turnover { thread: 1, moment: Moment { ns: 5, cpu: None, starved: false } },
        Message::Handle { thread: 1, handle: 0x7fff_0000_0700 },
    ];
    let copy = |stored| Where::Copy { pc, stored, turn: 3 };
    for at in [copy(true), copy(false), Where::Exec(pc), Where::Outside(pc), Where::Unknown] {
        all.push(Message::Rests { thread: 1, lane, at });
        let mode = (Mode::Inst, 77);
        all.push(Message::Signal { thread: 1, at, outer, inner, info, mode });
        let changed = vec![(Register(3), 1 << 60)];
        all.push(Message::SignalReturn { thread: 1, at, inner, outer, pc, changed });
    }
    for status in [EndStatus::Exited(256), EndStatus::Killed(9), EndStatus::Unknown] {
        all.push(Message::End { thread: 1, at: Where::Unknown, status, left: u64::MAX });
    }
    all
}

fn bytes_of(message: &Message, filling: Option<u64>) -> Vec<u8> {
    let mut writer = Writer::new(Level::Flow, &Clock::of((5, 6)));
    writer.notes.clear();
    writer.message(message, filling);
    writer.notes
}

/// The notes of a spool, in which there are no files.
fn read(reader: &mut Reader, notes: &mut &[u8]) -> Result<Option<Note>, Flaw> {
    reader.next(notes, |_| None::<&Path>)
}

#[test]
fn messages_come_back() {
    for (nth, message) in messages().iter().enumerate() {
        let filling = (nth % 2 == 0).then_some(u64::from(u32::MAX) + nth as u64);
        let bytes = bytes_of(message, filling);
        let (mut reader, mut notes) = (Reader::new(), bytes.as_slice());
        let note = read(&mut reader, &mut notes);
        let Ok(Some(Note::Message(again, of))) = note else { panic!("number {nth}") };
        assert_eq!((of, notes.len()), (filling, 0), "number {nth}");
        assert_eq!(bytes_of(&again, of), bytes, "number {nth}");
    }
}

#[test]
fn a_recording_begins_with_what_is_known_of_it() {
    for level in Level::ALL {
        let mut writer = Writer::new(level, &Clock::of((1 << 60, 1 << 39)));
        writer.message(&Message::Stamp { thread: 4, ns: 1 }, None);
        let puts: Vec<Put> = writer.take().collect();
        let [Put::Notes(notes)] = &puts[..] else { panic!("there are no files") };
        let (mut reader, mut notes) = (Reader::new(), notes.as_slice());
        let Ok(Some(Note::Begin(clock))) = read(&mut reader, &mut notes) else { panic!() };
        assert_eq!((clock.parts(), reader.level), ((1 << 60, 1 << 39), level));
        let next = read(&mut reader, &mut notes);
        assert!(matches!(next, Ok(Some(Note::Message(Message::Stamp { thread: 4, ns: 1 }, None)))));
        assert!(matches!(read(&mut reader, &mut notes), Ok(None)));
        // What was taken is not taken again.
        assert_eq!((writer.len(), writer.take().count()), (0, 0));
    }
}

/// Cut anywhere, or with any byte changed, notes are read or refused.
#[test]
fn damaged_notes_are_refused() {
    for (nth, message) in messages().iter().enumerate() {
        let bytes = bytes_of(message, Some(3));
        for len in 1..bytes.len() {
            let flaw = read(&mut Reader::new(), &mut &bytes[..len]);
            assert!(matches!(flaw, Err(Flaw::Damaged)), "number {nth}, {len} bytes");
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let mut notes = damaged.as_slice();
                // At worst it is another message.
                while let Ok(Some(_)) = read(&mut Reader::new(), &mut notes) {}
            }
        }
    }
}
